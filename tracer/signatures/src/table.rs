//! Tables of signatures: TOML that a user can read, extend and override.
//!
//! Prototypes are C, on one line; their parameters' names are the names of the columns.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::{Path, PathBuf};

use rtrace_model::{FunctionEvent, Role};
use rtrace_symbolizer::{Image, select};
use serde::Deserialize;
use toml::Spanned;

use crate::capture::Wanted;
use crate::description::Description;
use crate::prototype::{self, Types};
use crate::{Error, Field, SaidBy, Structure, TableLine, Type, expression};

/// Tables are read whole; a longer one is a mistake.
const LONGEST: usize = 4 << 20;
/// Functions of one table, with all members of families.
const MOST_FUNCTIONS: usize = 20_000;

/// A build with suffixed symbols, such as that of BLAS with integers of 64 bits.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawVariant {
    /// What functions are called there; `{name}` stands for the usual name.
    symbol: String,
    /// By type: the one that stands there in its place. If there are some, it has only functions with one of them.
    #[serde(default)]
    types: BTreeMap<String, String>,
}

impl RawVariant {
    fn of(&self, usual: &TableEntry) -> Option<TableEntry> {
        let has = |c: &String| self.types.keys().any(|name| c.contains(&format!("{name} ")));
        if !self.types.is_empty() && !usual.c.as_ref().is_none_or(has) {
            return None;
        }
        let name = self.symbol.replace("{name}", &usual.name);
        let prototype = |c: &String| {
            let c = c.replacen(&format!("{}(", usual.name), &format!("{name}("), 1);
            self.types.iter().fold(c, |c, (usual, other)| c.replace(&format!("{usual} "), &format!("{other} ")))
        };
        Some(TableEntry { c: usual.c.as_ref().map(prototype), name: name.clone(), ..usual.clone() })
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    #[serde(default)]
    library: RawLibrary,
    #[serde(default)]
    types: BTreeMap<String, Spanned<String>>,
    /// By type, then by the symbol that tells an implementation.
    #[serde(default)]
    handle: BTreeMap<String, BTreeMap<String, Spanned<BTreeMap<String, String>>>>,
    /// Builds of the library in which all functions have other names, and types.
    #[serde(default)]
    variant: Vec<RawVariant>,
    /// By name: what `{name}` stands for, with what `{type}` stands for.
    #[serde(default)]
    family: BTreeMap<String, BTreeMap<String, String>>,
    #[serde(default)]
    function: Vec<Spanned<RawFunction>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLibrary {
    #[serde(default)]
    names: Vec<String>,
    #[serde(default)]
    symbols: Vec<String>,
    /// The headers that declare its functions, for the tests.
    #[serde(default, rename = "headers")]
    _headers: Vec<String>,
    /// The version of these, for people.
    #[serde(default)]
    version: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFunction {
    c: Option<Spanned<String>>,
    name: Option<Spanned<String>>,
    #[serde(default)]
    aliases: Vec<String>,
    family: Option<Spanned<String>>,
    capture: Option<Vec<Spanned<String>>>,
    #[serde(default)]
    metrics: BTreeMap<String, Spanned<String>>,
    #[serde(default)]
    roles: BTreeMap<String, Spanned<String>>,
    errno: Option<Spanned<String>>,
}

/// One table.
#[derive(Debug)]
pub struct SignatureTable {
    origin: TableLine,
    libraries: Vec<String>,
    symbols: Vec<String>,
    version: String,
    types: Types,
    handles: Vec<HandleType>,
    entries: Vec<TableEntry>,
    by_name: HashMap<String, usize>,
}

/// What a table has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableContents {
    /// Where it comes from.
    pub origin: TableOrigin,
    /// The libraries that it is about, as `--lib` names libraries; of any if there are neither these nor symbols.
    pub libraries: Vec<String>,
    /// It is also about libraries that define one of these.
    pub symbols: Vec<String>,
    /// The version of the library of which it was made; empty if it does not say.
    pub version: String,
    /// The functions, each with its prototype unless debug information has to say that.
    pub functions: Vec<(String, Option<String>)>,
}

/// Where a table comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableOrigin {
    /// It is a part of rtrace, by this name.
    BuiltIn(&'static str),
    /// A file.
    File(PathBuf),
}

/// What is said of one function.
#[derive(Clone, Debug)]
pub struct TableEntry {
    /// The function's name.
    pub name: String,
    /// Its prototype; `None` if debug information has to say it.
    pub c: Option<String>,
    /// Where it stands.
    pub line: usize,
    /// What is captured; `None` for all parameters.
    pub capture: Option<Vec<Wanted>>,
    /// Names and expressions of metrics.
    pub metrics: Vec<(String, String)>,
    /// What the function does.
    pub event: Option<FunctionEvent>,
    /// Roles, each with the column or metric that has it.
    pub roles: Vec<(Role, String)>,
    /// When `errno` means something.
    pub errno: Option<(String, crate::Comparison, i64)>,
}

/// A type that differs between implementations of a library.
#[derive(Debug)]
struct HandleType {
    name: String,
    implementations: Vec<Implementation>,
}

#[derive(Debug)]
struct Implementation {
    symbol: String,
    ctype: Type,
    /// What its value consists of, where it is no pointer.
    parts: Type,
}

/// The types of a table in one library, with its implementation of handles.
#[derive(Clone, Debug, Default)]
pub struct Dialect {
    /// By name.
    pub types: Types,
    /// The members of handles, by the handle's name; none where the implementation is not known.
    pub parts: Types,
}

impl SignatureTable {
    /// Reads and checks a table. The name is that of a built-in one.
    ///
    /// # Errors
    /// Something in it is wrong.
    pub fn parse(text: &str, path: Option<&Path>, name: &'static str) -> Result<SignatureTable, Error> {
        let origin = TableLine { path: path.map(Path::to_owned), name, line: 1 };
        let faulty = |at: Range<usize>, message: String| Error::Table {
            origin: TableLine { line: line_of(text, at.start), ..origin.clone() },
            message,
        };
        if text.len() > LONGEST {
            return Err(faulty(0..0, format!("longer than {LONGEST} bytes")));
        }
        let raw: Raw =
            toml::from_str(text).map_err(|error| faulty(error.span().unwrap_or(0..0), error.message().to_owned()))?;
        let mut types = prototype::known_types();
        let mut named: Vec<_> = raw.types.iter().collect();
        named.sort_by_key(|(_, ctype)| ctype.span().start);
        for (name, ctype) in named {
            let known = prototype::parse_type(ctype.get_ref(), &types).map_err(|error| faulty(ctype.span(), error))?;
            types.insert(name.clone(), tagged(known, name));
        }
        let mut handles = Vec::new();
        for (name, implementations) in &raw.handle {
            let mut found = Vec::new();
            for (symbol, fields) in implementations {
                let implementation = implementation(name, symbol, fields.get_ref(), &types)
                    .map_err(|error| faulty(fields.span(), error))?;
                found.push(implementation);
            }
            handles.push(HandleType { name: name.clone(), implementations: found });
        }
        let RawLibrary { names: libraries, symbols, version, .. } = raw.library;
        let mut table = SignatureTable {
            origin: origin.clone(),
            libraries,
            symbols,
            version,
            types,
            handles,
            entries: Vec::new(),
            by_name: HashMap::new(),
        };
        let dialect = table.dialect(|_| true);
        for function in &raw.function {
            let line = line_of(text, function.span().start);
            let entries = entries(function.get_ref(), line, &raw.family)
                .map_err(|(at, message)| faulty(at.unwrap_or_else(|| function.span()), message))?;
            for (entry, aliases) in entries {
                let wrong = |message| faulty(function.span(), message);
                let usual = table.add(entry, &aliases, &dialect).map_err(wrong)?;
                for variant in raw.variant.iter().filter_map(|variant| variant.of(&usual)) {
                    table.add(variant, &[], &dialect).map_err(wrong)?;
                }
            }
        }
        Ok(table)
    }

    fn add(&mut self, mut entry: TableEntry, aliases: &[String], dialect: &Dialect) -> Result<TableEntry, String> {
        if let Some(c) = &entry.c {
            let prototype = prototype::parse(c, &dialect.types)?;
            let unknown = prototype.params.iter().map(|param| &param.ctype).chain([&prototype.result]);
            if let Some(Type::Named(name)) = unknown.into_iter().find(|ctype| matches!(ctype, Type::Named(_))) {
                return Err(format!("the type `{name}` is not known: say under [types] what it is"));
            }
            entry.name = prototype.name;
        }
        if self.entries.len() >= MOST_FUNCTIONS {
            return Err(format!("more than {MOST_FUNCTIONS} functions"));
        }
        for name in aliases.iter().chain([&entry.name]) {
            if let Some(other) = self.by_name.insert(name.clone(), self.entries.len()) {
                let line = self.entries.get(other).map_or(entry.line, |other| other.line);
                return Err(format!("`{name}` is there already, in line {line}"));
            }
        }
        self.entries.push(entry.clone());
        Ok(entry)
    }

    /// Whether it speaks of this library.
    pub fn is_about(&self, path: &Path, image: &Image) -> bool {
        let is_any = self.libraries.is_empty() && self.symbols.is_empty();
        let soname = || image.soname().map(str::to_owned);
        is_any
            || self.libraries.iter().any(|pattern| select::names(pattern, path, soname))
            || self.symbols.iter().any(|symbol| image.defines(symbol))
    }

    /// Its types in a library that defines the symbols for which `defines` holds.
    pub fn dialect(&self, defines: impl Fn(&str) -> bool) -> Dialect {
        let mut dialect = Dialect { types: self.types.clone(), parts: Types::new() };
        for handle in &self.handles {
            let known = handle.implementations.iter().find(|implementation| defines(&implementation.symbol));
            dialect
                .types
                .insert(handle.name.clone(), known.map_or_else(|| opaque(&handle.name), |it| it.ctype.clone()));
            let parts = known.map_or_else(|| opaque(&handle.name), |known| known.parts.clone());
            dialect.parts.insert(handle.name.clone(), parts);
        }
        dialect
    }

    /// What it says of a function.
    pub fn entry(&self, name: &str) -> Option<&TableEntry> {
        self.by_name.get(name).and_then(|&place| self.entries.get(place))
    }

    /// What it has, for people.
    #[must_use]
    pub fn contents(&self) -> TableContents {
        TableContents {
            origin: self.origin.path.clone().map_or(TableOrigin::BuiltIn(self.origin.name), TableOrigin::File),
            libraries: self.libraries.clone(),
            symbols: self.symbols.clone(),
            version: self.version.clone(),
            functions: self.entries.iter().map(|entry| (entry.name.clone(), entry.c.clone())).collect(),
        }
    }

    /// All its functions, with their names.
    #[cfg(test)]
    pub fn entries(&self) -> impl Iterator<Item = (&str, &TableEntry)> {
        self.by_name.iter().map(|(name, &place)| (name.as_str(), &self.entries[place]))
    }

    /// What the prototype of one of its entries says, if it has one.
    ///
    /// # Errors
    /// The prototype is wrong in this dialect.
    pub(crate) fn description(&self, entry: &TableEntry, dialect: &Dialect) -> Result<Option<Description>, Error> {
        let Some(c) = &entry.c else { return Ok(None) };
        let prototype = prototype::parse(c, &dialect.types).map_err(|message| self.fault(entry, message))?;
        Ok(Some(Description {
            params: prototype.params,
            result: prototype.result,
            variadic: prototype.variadic,
            by_reference: false,
            source: self.source(entry),
        }))
    }

    /// That something is wrong with one of its entries.
    pub fn fault(&self, entry: &TableEntry, message: String) -> Error {
        Error::Table { origin: TableLine { line: entry.line, ..self.origin.clone() }, message }
    }

    /// The source of what it says of a function.
    pub fn source(&self, entry: &TableEntry) -> SaidBy {
        match &self.origin.path {
            Some(path) => SaidBy::File(path.clone(), entry.line),
            None => SaidBy::Table(self.origin.name, entry.line),
        }
    }
}

/// A structure that is called as its type is; other types stay as they are.
fn tagged(ctype: Type, name: &str) -> Type {
    match ctype {
        Type::Struct(structure) => Type::Struct(Box::new(Structure { name: name.to_owned(), ..*structure })),
        other => other,
    }
}

/// A handle of an implementation that is not known: it takes a register, and its value has no meaning.
fn opaque(name: &str) -> Type {
    let word = Type::Array(Box::new(Type::Integer { bytes: 8, signed: false }), 1);
    let fields = vec![Field { name: String::new(), offset: 0, ctype: word, bits: None, tag: None }];
    Type::Struct(Box::new(Structure::plain(name.to_owned(), Some(8), 8, fields)))
}

/// Reads `{ c = "void *", id = "+224 u32" }`, or `{ c = "int", size = "+1 u8 of 0x4c" }`.
fn implementation(
    name: &str,
    symbol: &str,
    fields: &BTreeMap<String, String>,
    types: &Types,
) -> Result<Implementation, String> {
    let c = fields.get("c").ok_or_else(|| format!("`c` is missing: which type `{name}` is with `{symbol}`"))?;
    let mut members = Vec::new();
    for (field, place) in fields.iter().filter(|(field, _)| *field != "c") {
        let wrong = || format!("`{place}` is not like \"+24 u64\" or \"+1 u8 of 0x4c\"");
        let (place, tag) = match place.split_once(" of 0x") {
            Some((place, tag)) => (place, Some(u8::from_str_radix(tag, 16).map_err(|_| wrong())?)),
            None => (place.as_str(), None),
        };
        let (offset, ctype) = place.strip_prefix('+').and_then(|rest| rest.split_once(' ')).ok_or_else(wrong)?;
        let offset = offset.parse().map_err(|_| wrong())?;
        let integer = |signed| ctype[1..].parse().map(|bits: u8| Type::Integer { bytes: bits / 8, signed });
        let ctype = match ctype {
            "u8" | "u16" | "u32" | "u64" => integer(false).map_err(|_| wrong())?,
            "i8" | "i16" | "i32" | "i64" => integer(true).map_err(|_| wrong())?,
            "text" => Type::Array(Box::new(Type::Char), 64),
            other => prototype::parse_type(other, types)?,
        };
        members.push(Field { name: field.clone(), offset, ctype, bits: None, tag });
    }
    let structure = |bytes| Type::Struct(Box::new(Structure::plain(name.to_owned(), bytes, 1, members.clone())));
    let ctype = match prototype::parse_type(c, types)? {
        Type::Pointer(_) => Type::Pointer(Box::new(structure(None))),
        other if other.scalar().is_some() => other,
        Type::Struct(own) if members.is_empty() => Type::Struct(Box::new(Structure { name: name.to_owned(), ..*own })),
        _ => return Err(format!("`{c}` is neither a pointer, nor a number, nor a structure that names its members")),
    };
    Ok(Implementation { symbol: symbol.to_owned(), parts: structure(ctype.bytes()), ctype })
}

type TableFault = (Option<Range<usize>>, String);

/// The functions of an entry: one, or one for each member of a family.
fn entries(
    raw: &RawFunction,
    line: usize,
    families: &BTreeMap<String, BTreeMap<String, String>>,
) -> Result<Vec<(TableEntry, Vec<String>)>, TableFault> {
    let Some(family) = &raw.family else { return Ok(vec![entry(raw, line, &|text| text.to_owned())?]) };
    let members = families
        .get(family.get_ref())
        .ok_or_else(|| (Some(family.span()), format!("there is no [family.{}]", family.get_ref())))?;
    let member = |(name, ctype): (&String, &String)| {
        entry(raw, line, &|text| text.replace("{name}", name).replace("{type}", ctype))
    };
    members.iter().map(member).collect()
}

fn entry(
    raw: &RawFunction,
    line: usize,
    fill: &dyn Fn(&str) -> String,
) -> Result<(TableEntry, Vec<String>), TableFault> {
    let at = |spanned: &Spanned<String>, message: String| (Some(spanned.span()), message);
    let name = match (&raw.c, &raw.name) {
        (Some(_), None) => String::new(),
        (None, Some(name)) => fill(name.get_ref()),
        _ => return Err((None, "a function needs either `c`, its prototype, or `name`".to_owned())),
    };
    let wanted = |text: &Spanned<String>| Wanted::parse(&fill(text.get_ref())).map_err(|message| at(text, message));
    let capture = raw.capture.as_ref().map(|list| list.iter().map(wanted).collect()).transpose()?;
    let mut event = None;
    let mut roles = Vec::new();
    for (role, column) in &raw.roles {
        if role == "event" {
            let word = fill(column.get_ref());
            let known = FunctionEvent::from_name(&word);
            event = Some(known.ok_or_else(|| at(column, format!("there is no event `{word}`")))?);
        } else {
            let known = Role::from_name(role).ok_or_else(|| at(column, format!("there is no role `{role}`")))?;
            roles.push((known, column.get_ref().clone()));
        }
    }
    let condition = |text: &Spanned<String>| expression::condition(text.get_ref()).map_err(|message| at(text, message));
    let errno = raw.errno.as_ref().map(condition).transpose()?;
    let metrics = raw.metrics.iter().map(|(name, text)| (name.clone(), fill(text.get_ref()))).collect();
    let c = raw.c.as_ref().map(|c| fill(c.get_ref()));
    let aliases = raw.aliases.iter().map(|alias| fill(alias)).collect();
    Ok((TableEntry { name, c, line, capture, metrics, event, roles, errno }, aliases))
}

/// The line of a byte, counted from 1.
fn line_of(text: &str, byte: usize) -> usize {
    let before = text.as_bytes().get(..byte).unwrap_or(text.as_bytes());
    1 + before.iter().filter(|&&letter| letter == b'\n').count()
}
