//! What debug information says of functions: definitions of a library, declarations of a program that calls it.
//!
//! It is read from files that others wrote. Whatever is wrong in it means that less is known.

mod files;
mod types;

use std::collections::{HashMap, HashSet};
use std::path::Path;

use gimli::{
    AttributeValue, DW_AT_abstract_origin, DW_AT_artificial, DW_AT_calling_convention, DW_AT_declaration,
    DW_AT_external, DW_AT_language, DW_AT_linkage_name, DW_AT_location, DW_AT_low_pc, DW_AT_name, DW_AT_prototyped,
    DW_AT_ranges, DW_AT_specification, DW_AT_type, DwLang, DwTag, EndianSlice, LittleEndian,
};
use rtrace_symbolizer::Image;

use self::files::DebugFile;
use self::types::{Files, Place};
use crate::describe::Description;
use crate::prototype::Declared;
use crate::{Source, Type};

type Reader<'a> = EndianSlice<'a, LittleEndian>;
type Unit<'a> = gimli::Unit<Reader<'a>>;
type Entry<'a, 'unit> = gimli::DebuggingInformationEntry<'unit, 'unit, Reader<'a>>;

/// Namespaces nested deeper than this are not looked into.
const DEEPEST: u32 = 16;
/// Parameters of one function.
const MOST_PARAMS: usize = 256;

/// Functions of which something is to be found.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Definitions at these addresses of the file.
    pub addresses: HashSet<u64>,
    /// Declarations with these symbols.
    pub names: HashSet<String>,
    /// Pointers that are followed into structures.
    pub levels: u32,
}

/// What was found.
#[derive(Debug, Default)]
pub struct Found {
    /// By address.
    pub definitions: HashMap<u64, Description>,
    /// By symbol; `None` where declarations contradict each other.
    pub declarations: HashMap<String, Option<Description>>,
}

/// Reads what the debug information of a file says of functions; nothing if there is none.
///
/// People know the file by `path`; it can be opened by `open`.
#[must_use]
pub fn read(path: &Path, open: &Path, image: &Image, wanted: &Wanted, source: fn(&Path) -> Source) -> Found {
    let mut found = Found::default();
    let Some(file) = DebugFile::find(path, open, image) else { return found };
    let dwarf = match &file.shared {
        Some(shared) => file.sections.borrow_with_sup(shared, |bytes| slice(bytes)),
        None => file.sections.borrow(|bytes| slice(bytes)),
    };
    let files = Files::new(&dwarf);
    let source = source(&file.path);
    for number in 0..files.units() {
        // A unit that cannot be read says nothing; others may.
        let _ = scan(&files, number, wanted, &source, &mut found);
    }
    found
}

fn slice(bytes: &[u8]) -> Reader<'_> {
    EndianSlice::new(bytes, LittleEndian)
}

/// How far what a language says of a function is what the processor sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Language {
    C,
    Cpp,
    Fortran,
    /// Functions with plain parameters are called as those of C, if their name is not changed.
    Rust,
}

impl Language {
    fn of(language: DwLang) -> Option<Language> {
        Some(match language {
            gimli::DW_LANG_C
            | gimli::DW_LANG_C89
            | gimli::DW_LANG_C99
            | gimli::DW_LANG_C11
            | gimli::DW_LANG_C17
            | gimli::DW_LANG_ObjC => Language::C,
            gimli::DW_LANG_C_plus_plus
            | gimli::DW_LANG_C_plus_plus_03
            | gimli::DW_LANG_C_plus_plus_11
            | gimli::DW_LANG_C_plus_plus_14
            | gimli::DW_LANG_C_plus_plus_17
            | gimli::DW_LANG_C_plus_plus_20
            | gimli::DW_LANG_ObjC_plus_plus => Language::Cpp,
            gimli::DW_LANG_Fortran77
            | gimli::DW_LANG_Fortran90
            | gimli::DW_LANG_Fortran95
            | gimli::DW_LANG_Fortran03
            | gimli::DW_LANG_Fortran08
            | gimli::DW_LANG_Fortran18 => Language::Fortran,
            gimli::DW_LANG_Rust => Language::Rust,
            _ => return None,
        })
    }
}

fn scan(files: &Files, number: usize, wanted: &Wanted, source: &Source, found: &mut Found) -> gimli::Result<()> {
    let unit = files.unit(false, number)?;
    let mut entries = unit.entries();
    let Some((_, root)) = entries.next_dfs()? else { return Ok(()) };
    let language = match root.attr_value(DW_AT_language)? {
        Some(AttributeValue::Language(language)) => Language::of(language),
        _ => None,
    };
    let Some(language) = language else { return Ok(()) };
    let mut scan = Scan { files, number, unit: &unit, language, wanted, source, found };
    scan.children(root.offset(), 0)
}

struct Scan<'f, 'a> {
    files: &'f Files<'a>,
    number: usize,
    unit: &'f Unit<'a>,
    language: Language,
    wanted: &'f Wanted,
    source: &'f Source,
    found: &'f mut Found,
}

impl<'f, 'a> Scan<'f, 'a> {
    fn children(&mut self, parent: gimli::UnitOffset, depth: u32) -> gimli::Result<()> {
        let unit = self.unit;
        let mut entries = unit.entries_at_offset(parent)?;
        entries.next_dfs()?;
        let mut next = match entries.next_dfs()? {
            Some((1, child)) => Some(child.clone()),
            _ => None,
        };
        while let Some(child) = next {
            match child.tag() {
                gimli::DW_TAG_subprogram => self.function(&child)?,
                gimli::DW_TAG_namespace | gimli::DW_TAG_module if depth < DEEPEST => {
                    self.children(child.offset(), depth + 1)?
                }
                _ => {}
            }
            next = entries.next_sibling()?.cloned();
        }
        Ok(())
    }

    fn function(&mut self, entry: &Entry<'a, '_>) -> gimli::Result<()> {
        if flag(entry, DW_AT_declaration)? {
            return self.declaration(entry);
        }
        let Some(address) = self.address(entry)? else { return Ok(()) };
        if !self.wanted.addresses.contains(&address) || self.found.definitions.contains_key(&address) {
            return Ok(());
        }
        if let Some(description) = self.description(entry)? {
            self.found.definitions.insert(address, description);
        }
        Ok(())
    }

    /// What a program says of a function that it calls.
    fn declaration(&mut self, entry: &Entry<'a, '_>) -> gimli::Result<()> {
        if !flag(entry, DW_AT_external)? || self.wanted.names.is_empty() {
            return Ok(());
        }
        let place = Place { shared: false, unit: self.number, offset: entry.offset() };
        let linkage = self.files.text(place, entry.attr_value(DW_AT_linkage_name)?);
        let name = linkage.or_else(|| self.files.text(place, entry.attr_value(DW_AT_name).ok()?));
        let Some(name) = name.filter(|name| self.wanted.names.contains(name)) else { return Ok(()) };
        // `int f();` says nothing of its parameters.
        if self.language == Language::C && !flag(entry, DW_AT_prototyped)? {
            return Ok(());
        }
        let Some(description) = self.description(entry)? else { return Ok(()) };
        let known = self.found.declarations.entry(name).or_insert_with(|| Some(description.clone()));
        if known.as_ref().is_some_and(|known| !known.agrees_with(&description)) {
            *known = None;
        }
        Ok(())
    }

    fn address(&self, entry: &Entry<'a, '_>) -> gimli::Result<Option<u64>> {
        if let Some(low) = entry.attr_value(DW_AT_low_pc)? {
            return self.files.dwarf.attr_address(self.unit, low);
        }
        if entry.attr_value(DW_AT_ranges)?.is_none() {
            return Ok(None);
        }
        let mut ranges = self.files.dwarf.die_ranges(self.unit, entry)?;
        while let Some(range) = ranges.next()? {
            if self.wanted.addresses.contains(&range.begin) {
                return Ok(Some(range.begin));
            }
        }
        Ok(None)
    }

    /// What an entry says of a function, with the entries that it refers to.
    fn description(&self, entry: &Entry<'a, '_>) -> gimli::Result<Option<Description>> {
        // 3 is DW_CC_nocall: it is not called as its type says.
        let convention = entry.attr_value(DW_AT_calling_convention)?;
        if matches!(convention, Some(AttributeValue::CallingConvention(gimli::DW_CC_nocall))) {
            return Ok(None);
        }
        let place = Place { shared: false, unit: self.number, offset: entry.offset() };
        let own = self.params(place)?;
        let origin = self.files.origin(place, DW_AT_abstract_origin);
        let declared = self.files.origin(origin.unwrap_or(place), DW_AT_specification);
        let of_origin = origin.map(|origin| self.params(origin)).transpose()?;
        let params = match of_origin {
            // A copy may leave out what it does not use. Constructors have hidden parameters that only copies know.
            Some(listed) if listed.params.len() >= own.params.len() && !listed.is_constructor => listed,
            _ => own,
        };
        let mut result = None;
        for place in [Some(place), origin, declared].into_iter().flatten() {
            result = result.or(self.files.attribute(place, DW_AT_type).map(|ctype| (place, ctype)));
        }
        let levels = self.wanted.levels;
        let result = result.map_or(Type::Void, |(place, ctype)| self.files.ctype(place, ctype, levels));
        let description = Description {
            params: params.params.clone(),
            result,
            variadic: params.variadic,
            by_reference: self.language == Language::Fortran,
            source: self.source.clone(),
        };
        // Procedures for C may take values, and where optimized code has them says too little.
        if self.language == Language::Fortran && !self.is_of_fortran(place, declared) && params.is_optimized {
            return Ok(None);
        }
        let is_plain = |ctype: &Type| matches!(ctype, Type::Void) || ctype.scalar().is_some();
        let has_plain = description.params.iter().all(|param| is_plain(&param.ctype)) && is_plain(&description.result);
        Ok(Some(description).filter(|_| self.language != Language::Rust || has_plain))
    }

    /// Whether a procedure has a symbol as compilers of Fortran make them.
    fn is_of_fortran(&self, place: Place, declared: Option<Place>) -> bool {
        let symbol = |place| self.files.text(place, self.files.attribute(place, DW_AT_linkage_name));
        let symbol = symbol(place).or_else(|| declared.and_then(symbol));
        symbol.is_some_and(|symbol| symbol.ends_with('_') || symbol.contains("_MOD_"))
    }

    /// The parameters that an entry lists.
    fn params(&self, place: Place) -> gimli::Result<Params> {
        let mut params = Params::default();
        for child in self.files.children(place)? {
            match child.tag {
                gimli::DW_TAG_formal_parameter if params.params.len() < MOST_PARAMS => {
                    let (declared, artificial) = self.param(child.place);
                    let is_hidden = |name: &String| name == "__in_chrg" || name == "__vtt_parm";
                    params.is_constructor |= artificial && declared.name.as_ref().is_some_and(is_hidden);
                    let location = self.files.attribute(child.place, DW_AT_location);
                    params.is_optimized |= !matches!(location, Some(AttributeValue::Exprloc(_)));
                    params.params.push(declared);
                }
                gimli::DW_TAG_unspecified_parameters => params.variadic = true,
                _ => {}
            }
        }
        Ok(params)
    }

    /// The type that is passed for a parameter. Fortran passes references, which its debug information tells only by
    /// where it says the value is.
    fn passed(&self, place: Place, ctype: Type, artificial: bool) -> Type {
        if self.language != Language::Fortran {
            return ctype.as_parameter();
        }
        let is_behind = match self.files.attribute(place, DW_AT_location) {
            Some(AttributeValue::Exprloc(expression)) => expression.0.slice().last() == Some(&gimli::DW_OP_deref.0),
            _ if matches!(ctype, Type::Pointer(_)) => false,
            _ => !artificial,
        };
        if is_behind { Type::Pointer(Box::new(ctype)) } else { ctype.as_parameter() }
    }

    fn param(&self, place: Place) -> (Declared, bool) {
        let origin = self.files.origin(place, DW_AT_abstract_origin);
        let of = |name| {
            let own = self.files.attribute(place, name).map(|value| (place, value));
            own.or_else(|| origin.and_then(|origin| Some((origin, self.files.attribute(origin, name)?))))
        };
        let name = of(DW_AT_name).and_then(|(place, name)| self.files.text(place, Some(name)));
        let artificial = matches!(of(DW_AT_artificial), Some((_, AttributeValue::Flag(true))));
        let declared = match of(DW_AT_type) {
            Some((home, ctype)) => Declared {
                name,
                ctype: self.passed(place, self.files.ctype(home, ctype, self.wanted.levels), artificial),
                c_type: self.files.type_text(home, ctype),
            },
            None => Declared { name, ctype: Type::Named("?".to_owned()), c_type: "?".to_owned() },
        };
        (declared, artificial)
    }
}

#[derive(Debug, Default)]
struct Params {
    params: Vec<Declared>,
    variadic: bool,
    is_constructor: bool,
    /// Of a parameter, it is not said that it is in one place all the time.
    is_optimized: bool,
}

/// A child of an entry.
#[derive(Clone, Copy, Debug)]
struct Child {
    place: Place,
    tag: DwTag,
}

fn flag(entry: &Entry, name: gimli::DwAt) -> gimli::Result<bool> {
    Ok(matches!(entry.attr_value(name)?, Some(AttributeValue::Flag(true))))
}
