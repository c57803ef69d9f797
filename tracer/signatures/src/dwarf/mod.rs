//! What debug information says of functions: definitions of a library, declarations of a program that calls it.
//!
//! It is read from files that others wrote. Whatever is wrong in it means that less is known.

mod incoming;
mod language;
mod types;

use std::collections::{HashMap, HashSet};
use std::path::Path;

use gimli::{
    AttributeValue, DW_AT_abstract_origin, DW_AT_artificial, DW_AT_calling_convention, DW_AT_declaration,
    DW_AT_external, DW_AT_linkage_name, DW_AT_low_pc, DW_AT_name, DW_AT_prototyped, DW_AT_ranges, DW_AT_specification,
    DW_AT_type, DwTag,
};
use rtrace_symbolizer::{DebugFile, DwarfUnit, Image, Reader};

use self::incoming::{INTEGERS, Incoming, VECTORS};
use self::language::Language;
use self::types::{DwarfFiles, EntryRef};
use crate::description::Description;
use crate::prototype::Declared;
use crate::{AbiPlace, NotKnown, Register, SaidBy, Type, abi};

type Die<'a, 'unit> = gimli::DebuggingInformationEntry<'unit, 'unit, Reader<'a>>;

/// Namespaces nested deeper than this are not looked into.
const DEEPEST: u32 = 16;
/// Parameters of one function.
const MOST_PARAMS: usize = 256;

/// Functions of which something is to be found.
#[derive(Clone, Debug, Default)]
pub struct WantedFunctions {
    /// Definitions at these addresses of the file.
    pub addresses: HashSet<u64>,
    /// Those among them that no other file can call.
    pub local: HashSet<u64>,
    /// Declarations with these symbols.
    pub names: HashSet<String>,
    /// Pointers that are followed into structures.
    pub levels: u32,
}

/// What was found.
#[derive(Debug, Default)]
pub struct DwarfFindings {
    /// By address.
    pub definitions: HashMap<u64, Description>,
    /// What is said of these is not true of how they are called.
    pub refused: HashMap<u64, NotKnown>,
    /// By symbol; `None` where declarations contradict each other.
    pub declarations: HashMap<String, Option<Description>>,
}

/// Reads what the debug information of a file says of functions; nothing if there is none.
///
/// People know the file by `path`; it can be opened by `open`.
pub fn read(
    path: &Path,
    open: &Path,
    image: &Image,
    wanted: &WantedFunctions,
    source: fn(&Path) -> SaidBy,
) -> DwarfFindings {
    let mut found = DwarfFindings::default();
    let Some(file) = DebugFile::find(path, open, image) else { return found };
    let dwarf = file.dwarf();
    let files = DwarfFiles::new(&dwarf);
    let source = source(&file.path);
    for number in 0..files.units() {
        // A unit that cannot be read says nothing; others may.
        let _ = scan(&files, number, wanted, &source, &mut found);
    }
    found
}

fn scan(
    files: &DwarfFiles,
    number: usize,
    wanted: &WantedFunctions,
    source: &SaidBy,
    found: &mut DwarfFindings,
) -> gimli::Result<()> {
    let unit = files.unit(false, number)?;
    let mut entries = unit.entries();
    let Some((_, root)) = entries.next_dfs()? else { return Ok(()) };
    let Some(language) = files.language(false, number) else { return Ok(()) };
    let mut scan = Scan { files, number, unit: &unit, language, wanted, source, found };
    scan.children(root.offset(), 0)
}

struct Scan<'f, 'a> {
    files: &'f DwarfFiles<'a>,
    number: usize,
    unit: &'f DwarfUnit<'a>,
    language: Language,
    wanted: &'f WantedFunctions,
    source: &'f SaidBy,
    found: &'f mut DwarfFindings,
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

    fn function(&mut self, entry: &Die<'a, '_>) -> gimli::Result<()> {
        if flag(entry, DW_AT_declaration)? {
            return self.declaration(entry);
        }
        let Some(address) = self.address(entry)? else { return Ok(()) };
        if !self.wanted.addresses.contains(&address) || self.found.refused.contains_key(&address) {
            return Ok(());
        }
        let refused = match self.definition(entry, address)? {
            Some(Ok(description)) => {
                let known = self.found.definitions.entry(address).or_insert_with(|| description.clone());
                // A linker may put functions with the same code in one place.
                if known.is_called_as(&description) { None } else { Some(NotKnown::Merged) }
            }
            Some(Err(refused)) => Some(refused),
            None => None,
        };
        if let Some(reason) = refused {
            self.found.definitions.remove(&address);
            self.found.refused.insert(address, reason);
        }
        Ok(())
    }

    /// What the entry of a function at this address says of it, unless it is not called so.
    fn definition(&self, entry: &Die<'a, '_>, address: u64) -> gimli::Result<Option<Result<Description, NotKnown>>> {
        if !self.is_called_as_usual(entry)? {
            return Ok(Some(Err(NotKnown::Unusual)));
        }
        let (description, incoming) = self.description(entry, Some(address))?;
        // Compilers but GCC keep the name of a function whose parameters they change, where nobody else can call it.
        let is_as_written = !incoming.is_empty() && incoming.iter().all(|place| place.is_on_stack());
        if self.wanted.local.contains(&address) && !is_as_written && !self.files.is_of_gcc(self.number) {
            return Ok(Some(Err(NotKnown::Local)));
        }
        let is_as_usual = agrees_with_abi(&description, &incoming);
        Ok(self
            .readable(description)
            .map(|description| if is_as_usual { Ok(description) } else { Err(NotKnown::Unusual) }))
    }

    /// What a program says of a function that it calls.
    fn declaration(&mut self, entry: &Die<'a, '_>) -> gimli::Result<()> {
        if !flag(entry, DW_AT_external)? || self.wanted.names.is_empty() {
            return Ok(());
        }
        let place = EntryRef { shared: false, unit: self.number, offset: entry.offset() };
        let linkage = self.files.text(place, entry.attr_value(DW_AT_linkage_name)?);
        let name = linkage.or_else(|| self.files.text(place, entry.attr_value(DW_AT_name).ok()?));
        let Some(name) = name.filter(|name| self.wanted.names.contains(name)) else { return Ok(()) };
        // `int f();` says nothing of its parameters, nor does Fortran, nor a compiler of what it knows itself.
        let is_silent = match self.language {
            Language::C => !flag(entry, DW_AT_prototyped)?,
            Language::Fortran => true,
            Language::Cpp | Language::Rust => {
                self.files.text(place, entry.attr_value(DW_AT_name)?).is_some_and(|name| name.starts_with("__builtin_"))
            }
        };
        if is_silent || !self.is_called_as_usual(entry)? {
            return Ok(());
        }
        let Some(description) = self.readable(self.description(entry, None)?.0) else { return Ok(()) };
        let known = self.found.declarations.entry(name).or_insert_with(|| Some(description.clone()));
        if known.as_ref().is_some_and(|known| !known.agrees_with(&description)) {
            *known = None;
        }
        Ok(())
    }

    fn address(&self, entry: &Die<'a, '_>) -> gimli::Result<Option<u64>> {
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

    /// Whether a function is called as the platform's ABI says, as far as its entry tells.
    fn is_called_as_usual(&self, entry: &Die<'a, '_>) -> gimli::Result<bool> {
        Ok(match entry.attr_value(DW_AT_calling_convention)? {
            // That of the main program in Fortran.
            Some(AttributeValue::CallingConvention(convention)) => {
                matches!(convention, gimli::DW_CC_normal | gimli::DW_CC_program)
            }
            _ => true,
        })
    }

    /// What an entry says of a function, with the entries that it refers to, and where its parameters are as the
    /// function at this address begins.
    fn description(&self, entry: &Die<'a, '_>, address: Option<u64>) -> gimli::Result<(Description, Vec<Incoming>)> {
        let place = EntryRef { shared: false, unit: self.number, offset: entry.offset() };
        let own = self.params(place, address)?;
        let origin = self.files.origin(place, DW_AT_abstract_origin);
        // Code that was optimized as a whole is in a unit that may be of another language.
        let language =
            origin.and_then(|origin| self.files.language(origin.shared, origin.unit)).unwrap_or(self.language);
        let declared = self.files.origin(origin.unwrap_or(place), DW_AT_specification);
        let of_origin = origin.map(|origin| self.params(origin, None)).transpose()?;
        let params = match of_origin {
            // A copy may leave out what it does not use. Constructors have hidden parameters that only copies know.
            Some(listed) if listed.params.len() >= own.params.len() && !listed.is_constructor => listed.placed_as(&own),
            _ => own,
        };
        let mut result = None;
        for place in [Some(place), origin, declared].into_iter().flatten() {
            result = result.or(self.files.attribute(place, DW_AT_type).map(|ctype| (place, ctype)));
        }
        let levels = self.wanted.levels;
        let result = result.map_or(Type::Void, |(place, ctype)| self.files.ctype(place, ctype, levels));
        let incoming = params.params.iter().map(|param| param.incoming).collect();
        let description = Description {
            params: params.params.into_iter().map(|param| param.declared(language)).collect(),
            result,
            variadic: params.variadic,
            by_reference: language == Language::Fortran,
            source: self.source.clone(),
        };
        Ok((description, incoming))
    }

    /// What is said of a function, if the language is one that puts such parameters where C does.
    fn readable(&self, description: Description) -> Option<Description> {
        let is_plain = |ctype: &Type| matches!(ctype, Type::Void) || ctype.scalar().is_some();
        let has_plain = description.params.iter().all(|param| is_plain(&param.ctype)) && is_plain(&description.result);
        Some(description).filter(|_| self.language != Language::Rust || has_plain)
    }

    /// The parameters that an entry lists; `address`: that of the function, if it is one.
    fn params(&self, place: EntryRef, address: Option<u64>) -> gimli::Result<Params> {
        let mut params = Params::default();
        for child in self.files.children(place)? {
            match child.tag {
                gimli::DW_TAG_formal_parameter if params.params.len() < MOST_PARAMS => {
                    let param = self.param(child.place, address);
                    let is_hidden = |name: &String| name == "__in_chrg" || name == "__vtt_parm";
                    params.is_constructor |= param.artificial && param.name.as_ref().is_some_and(is_hidden);
                    params.params.push(param);
                }
                gimli::DW_TAG_unspecified_parameters => params.variadic = true,
                _ => {}
            }
        }
        Ok(params)
    }

    fn param(&self, place: EntryRef, function: Option<u64>) -> Listed {
        let origin = self.files.origin(place, DW_AT_abstract_origin);
        let of = |name| {
            let own = self.files.attribute(place, name).map(|value| (place, value));
            own.or_else(|| origin.and_then(|origin| Some((origin, self.files.attribute(origin, name)?))))
        };
        let (ctype, c_type) = match of(DW_AT_type) {
            Some((home, ctype)) => {
                (self.files.ctype(home, ctype, self.wanted.levels), self.files.type_text(home, ctype))
            }
            None => (Type::Named("?".to_owned()), "?".to_owned()),
        };
        Listed {
            place,
            origin,
            name: of(DW_AT_name).and_then(|(place, name)| self.files.text(place, Some(name))),
            ctype,
            c_type,
            artificial: matches!(of(DW_AT_artificial), Some((_, AttributeValue::Flag(true)))),
            incoming: function.map_or(Incoming::Unknown, |function| self.files.incoming(place, function)),
        }
    }
}

/// Whether parameters are where the ABI puts them, as far as debug information says where they are.
fn agrees_with_abi(description: &Description, incoming: &[Incoming]) -> bool {
    let typed: Vec<(&str, &Type)> = description.params.iter().map(|param| ("", &param.ctype)).collect();
    let (locations, _) = abi::locations(&typed, Some(&description.result));
    let number = |register| {
        let place = Register::ARGUMENTS.iter().position(|&argument| argument == register);
        place.map(|place| INTEGERS[place])
    };
    locations.iter().zip(incoming).all(|(location, incoming)| match (location, incoming) {
        (AbiPlace::Register(register), Incoming::Register(said)) => number(*register) == Some(*said),
        (AbiPlace::Xmm(place), Incoming::Register(said)) => VECTORS.start + u16::from(*place) == *said,
        (AbiPlace::Stack(_), Incoming::Register(_)) => false,
        _ => true,
    })
}

/// A parameter that an entry lists.
#[derive(Debug)]
struct Listed {
    place: EntryRef,
    /// The parameter of which this one is a copy.
    origin: Option<EntryRef>,
    name: Option<String>,
    /// As the source says it.
    ctype: Type,
    c_type: String,
    artificial: bool,
    incoming: Incoming,
}

impl Listed {
    /// What is passed for it.
    fn declared(self, language: Language) -> Declared {
        let Listed { name, c_type, incoming, artificial, .. } = self;
        let ctype = match (self.ctype, language, incoming) {
            (ctype, Language::Fortran, Incoming::Behind { .. }) => Type::Pointer(Box::new(ctype)),
            // The lengths of texts are values. For all others, it is unknown whether the address is passed.
            (ctype, Language::Fortran, Incoming::Unknown) if !artificial || ctype.scalar().is_none() => {
                Type::Named(c_type.clone())
            }
            (Type::Struct(mut structure), Language::Cpp, incoming) => {
                structure.by_reference = match incoming {
                    Incoming::Behind { .. } => true,
                    Incoming::Register(_) | Incoming::Parts | Incoming::Stack => false,
                    Incoming::Unknown => structure.by_reference,
                };
                Type::Struct(structure)
            }
            (ctype, ..) => ctype.as_parameter(),
        };
        Declared { name, ctype, c_type }
    }
}

#[derive(Debug, Default)]
struct Params {
    params: Vec<Listed>,
    variadic: bool,
    is_constructor: bool,
}

impl Params {
    /// These, each in the place of its copy.
    fn placed_as(mut self, copies: &Params) -> Params {
        for param in &mut self.params {
            let copy = copies.params.iter().find(|copy| copy.origin == Some(param.place));
            param.incoming = copy.map_or(Incoming::Unknown, |copy| copy.incoming);
        }
        self
    }
}

/// A child of an entry.
#[derive(Clone, Copy, Debug)]
struct Child {
    place: EntryRef,
    tag: DwTag,
}

fn flag(entry: &Die, name: gimli::DwAt) -> gimli::Result<bool> {
    Ok(matches!(entry.attr_value(name)?, Some(AttributeValue::Flag(true))))
}
