//! Types of debug information, as types of C.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use gimli::{
    AttributeValue, DW_AT_GNU_vector, DW_AT_alignment, DW_AT_artificial, DW_AT_bit_offset, DW_AT_bit_size,
    DW_AT_byte_size, DW_AT_calling_convention, DW_AT_count, DW_AT_data_bit_offset, DW_AT_data_member_location,
    DW_AT_declaration, DW_AT_defaulted, DW_AT_deleted, DW_AT_encoding, DW_AT_external, DW_AT_language,
    DW_AT_linkage_name, DW_AT_lower_bound, DW_AT_name, DW_AT_producer, DW_AT_type, DW_AT_upper_bound, DW_AT_virtuality,
    DwAt, DwTag, Dwarf, UnitOffset, UnitSectionOffset,
};

use super::language::Language;
use rtrace_symbolizer::{DwarfUnit, Reader};

use super::Child;
use crate::{Field, Structure, Type, Width};

/// Types nested deeper than this are taken by their name.
const DEEPEST: u32 = 24;
/// Parts of one type; what is more is taken by its name.
const MOST_PARTS: u32 = 4096;
/// Units that are kept ready.
const MOST_UNITS: usize = 32;
/// Children of one entry that are looked at.
const MOST_CHILDREN: usize = 8192;
/// Names are cut here.
const LONGEST_NAME: usize = 256;

/// An entry, in the file itself or in the one that it shares with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryRef {
    pub shared: bool,
    pub unit: usize,
    pub offset: UnitOffset,
}

/// What the functions of a class say of its objects: if they are no plain data, a pointer to them is passed (section
/// 3.1.2 of the Itanium C++ ABI).
#[derive(Clone, Copy, Debug, Default)]
struct Copying {
    /// It is virtual, or destroys or copies objects in its own way.
    is_special: bool,
    /// A way to copy, or move, objects is forbidden.
    is_deleted: bool,
    /// Another one is that of plain data.
    is_defaulted: bool,
}

/// Whether a member of this type makes an object no plain data.
fn is_special(ctype: &Type) -> bool {
    match ctype {
        Type::Struct(structure) => structure.by_reference,
        Type::Array(of, _) => is_special(of),
        _ => false,
    }
}

/// A pointer to a member function, which is a pair (section 2.3 of the Itanium C++ ABI).
fn pointer_to_method(word: &Type) -> Type {
    let field =
        |name: &str, offset| Field { name: name.to_owned(), offset, ctype: word.clone(), bits: None, tag: None };
    Type::Struct(Box::new(Structure::plain(String::new(), Some(16), 8, vec![field("ptr", 0), field("adj", 8)])))
}

/// Whether an entry is another type by another name, or with a qualifier.
fn is_alias(tag: DwTag) -> bool {
    let qualifiers = [gimli::DW_TAG_const_type, gimli::DW_TAG_volatile_type, gimli::DW_TAG_restrict_type];
    qualifiers.contains(&tag) || matches!(tag, gimli::DW_TAG_typedef | gimli::DW_TAG_atomic_type)
}

fn is_class(tag: DwTag) -> bool {
    matches!(tag, gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type | gimli::DW_TAG_union_type)
}

type DwarfValue<'a> = AttributeValue<Reader<'a>>;

/// Debug information whose entries refer to each other.
pub struct DwarfFiles<'a> {
    pub dwarf: &'a Dwarf<Reader<'a>>,
    /// Where the units of both files begin, in their order.
    headers: [Vec<gimli::UnitHeader<Reader<'a>>>; 2],
    units: RefCell<HashMap<(bool, usize), Rc<DwarfUnit<'a>>>>,
    /// What is left for the type that is being read.
    parts: Cell<u32>,
}

impl<'a> DwarfFiles<'a> {
    pub fn new(dwarf: &'a Dwarf<Reader<'a>>) -> DwarfFiles<'a> {
        let headers = |dwarf: Option<&Dwarf<Reader<'a>>>| {
            let mut headers = Vec::new();
            let mut units = dwarf.map(Dwarf::units);
            while let Some(Ok(Some(header))) = units.as_mut().map(gimli::DebugInfoUnitHeadersIter::next) {
                headers.push(header);
            }
            headers
        };
        let headers = [headers(Some(dwarf)), headers(dwarf.sup())];
        DwarfFiles { dwarf, headers, units: RefCell::default(), parts: Cell::new(0) }
    }

    /// How many units the file has.
    pub fn units(&self) -> usize {
        self.headers[0].len()
    }

    fn of(&self, shared: bool) -> gimli::Result<&Dwarf<Reader<'a>>> {
        if shared { self.dwarf.sup().ok_or(gimli::Error::ExpectedStringAttributeValue) } else { Ok(self.dwarf) }
    }

    pub fn unit(&self, shared: bool, number: usize) -> gimli::Result<Rc<DwarfUnit<'a>>> {
        if let Some(unit) = self.units.borrow().get(&(shared, number)) {
            return Ok(unit.clone());
        }
        let header = *self.headers[usize::from(shared)].get(number).ok_or(gimli::Error::MissingUnitDie)?;
        let unit = Rc::new(self.of(shared)?.unit(header)?);
        let mut units = self.units.borrow_mut();
        if units.len() >= MOST_UNITS {
            units.clear();
        }
        units.insert((shared, number), unit.clone());
        Ok(unit)
    }

    /// An attribute of an entry.
    pub fn attribute(&self, place: EntryRef, name: DwAt) -> Option<DwarfValue<'a>> {
        let unit = self.unit(place.shared, place.unit).ok()?;
        let entry = unit.entry(place.offset).ok()?;
        entry.attr_value(name).ok().flatten()
    }

    /// The entry that an attribute refers to.
    pub fn origin(&self, place: EntryRef, name: DwAt) -> Option<EntryRef> {
        self.target(place, self.attribute(place, name)?)
    }

    fn target(&self, place: EntryRef, value: DwarfValue<'a>) -> Option<EntryRef> {
        let (shared, offset) = match value {
            AttributeValue::UnitRef(offset) => return Some(EntryRef { offset, ..place }),
            AttributeValue::DebugInfoRef(offset) => (place.shared, offset),
            AttributeValue::DebugInfoRefSup(offset) => (true, offset),
            _ => return None,
        };
        let headers = &self.headers[usize::from(shared)];
        let start = |header: &gimli::UnitHeader<Reader<'a>>| header.offset().as_debug_info_offset();
        let unit =
            headers.partition_point(|header| start(header).is_some_and(|start| start <= offset)).checked_sub(1)?;
        let offset = UnitSectionOffset::DebugInfoOffset(offset).to_unit_offset(&*self.unit(shared, unit).ok()?)?;
        Some(EntryRef { shared, unit, offset })
    }

    /// The text of an attribute.
    pub fn text(&self, place: EntryRef, value: Option<DwarfValue<'a>>) -> Option<String> {
        Some(self.whole_text(place, value?)?.chars().take(LONGEST_NAME).collect())
    }

    /// As [`text`](DwarfFiles::text), however long it is.
    pub fn whole_text(&self, place: EntryRef, value: DwarfValue<'a>) -> Option<Cow<'a, str>> {
        let unit = self.unit(place.shared, place.unit).ok()?;
        Some(self.of(place.shared).ok()?.attr_string(&unit, value).ok()?.to_string_lossy())
    }

    fn tag(&self, place: EntryRef) -> Option<DwTag> {
        Some(self.unit(place.shared, place.unit).ok()?.entry(place.offset).ok()?.tag())
    }

    fn name(&self, place: EntryRef) -> Option<String> {
        self.text(place, self.attribute(place, DW_AT_name))
    }

    /// The children of an entry.
    pub fn children(&self, place: EntryRef) -> gimli::Result<Vec<Child>> {
        let unit = self.unit(place.shared, place.unit)?;
        let mut entries = unit.entries_at_offset(place.offset)?;
        entries.next_dfs()?;
        let mut children = Vec::new();
        let mut next = match entries.next_dfs()? {
            Some((1, child)) => Some(child),
            _ => None,
        };
        while let Some(child) = next {
            if children.len() >= MOST_CHILDREN {
                break;
            }
            children.push(Child { place: EntryRef { offset: child.offset(), ..place }, tag: child.tag() });
            next = entries.next_sibling()?;
        }
        Ok(children)
    }

    fn number(&self, place: EntryRef, name: DwAt) -> Option<u64> {
        self.attribute(place, name)?.udata_value()
    }

    fn has(&self, place: EntryRef, name: DwAt) -> bool {
        matches!(self.attribute(place, name), Some(AttributeValue::Flag(true)))
    }

    /// The type that an attribute of an entry refers to. So many pointers are followed into structures.
    pub fn ctype(&self, place: EntryRef, value: DwarfValue<'a>, levels: u32) -> Type {
        self.parts.set(MOST_PARTS);
        self.referred(place, value, levels, 0)
    }

    fn referred(&self, place: EntryRef, value: DwarfValue<'a>, levels: u32, depth: u32) -> Type {
        let unknown = || Type::Named("?".to_owned());
        self.target(place, value).map_or_else(unknown, |target| self.entry(target, levels, depth))
    }

    fn entry(&self, place: EntryRef, levels: u32, depth: u32) -> Type {
        let named = || Type::Named(self.name(place).unwrap_or_else(|| "?".to_owned()));
        let left = self.parts.get();
        if depth > DEEPEST || left == 0 {
            return named();
        }
        self.parts.set(left - 1);
        let inner = |levels| match self.attribute(place, DW_AT_type) {
            Some(value) => self.referred(place, value, levels, depth + 1),
            None => Type::Void,
        };
        let Some(tag) = self.tag(place) else { return named() };
        match tag {
            gimli::DW_TAG_base_type => self.base(place),
            gimli::DW_TAG_pointer_type | gimli::DW_TAG_reference_type | gimli::DW_TAG_rvalue_reference_type => {
                Type::Pointer(Box::new(self.pointee(place, levels, depth)))
            }
            alias if is_alias(alias) => inner(levels),
            gimli::DW_TAG_enumeration_type => self.enumeration(place, inner(0)),
            class if is_class(class) => self.structure(place, tag, levels, depth),
            gimli::DW_TAG_array_type => self.array(place, inner(levels)),
            gimli::DW_TAG_string_type => {
                Type::Array(Box::new(Type::Char), self.number(place, DW_AT_byte_size).unwrap_or(0))
            }
            gimli::DW_TAG_subroutine_type => Type::Function,
            gimli::DW_TAG_unspecified_type => Type::Pointer(Box::new(Type::Void)),
            gimli::DW_TAG_ptr_to_member_type => {
                let word = Type::Integer { bytes: 8, signed: true };
                match inner(0) {
                    Type::Function => pointer_to_method(&word),
                    _ => word,
                }
            }
            _ => named(),
        }
    }

    /// What a pointer points to: structures only as deep as it is asked for.
    fn pointee(&self, place: EntryRef, levels: u32, depth: u32) -> Type {
        let Some(value) = self.attribute(place, DW_AT_type) else { return Type::Void };
        let Some(target) = self.target(place, value) else { return Type::Named("?".to_owned()) };
        match self.structure_behind(target) {
            Some(name) if levels == 0 => Type::Named(name),
            _ => self.entry(target, levels.saturating_sub(1), depth + 1),
        }
    }

    /// The name of the structure that an entry is, behind qualifiers and typedefs.
    fn structure_behind(&self, mut place: EntryRef) -> Option<String> {
        for _ in 0..DEEPEST {
            match self.tag(place)? {
                alias if is_alias(alias) => place = self.origin(place, DW_AT_type)?,
                class if is_class(class) => return Some(self.name(place).unwrap_or_default()),
                _ => return None,
            }
        }
        None
    }

    fn base(&self, place: EntryRef) -> Type {
        let name = self.name(place).unwrap_or_default();
        let bytes = self.number(place, DW_AT_byte_size).unwrap_or(0);
        let Some(AttributeValue::Encoding(encoding)) = self.attribute(place, DW_AT_encoding) else {
            return Type::Named(name);
        };
        let integer = |signed| match bytes {
            1 | 2 | 4 | 8 | 16 => Type::Integer { bytes: bytes as u8, signed },
            _ => Type::Named(name.clone()),
        };
        let float = |bytes| match bytes {
            4 => Type::Float,
            8 => Type::Double,
            16 if name.contains("128") || name.contains("kind=16") => Type::Vector(16),
            16 => Type::LongDouble,
            2 => Type::Vector(2),
            _ => Type::Named(name.clone()),
        };
        match encoding {
            gimli::DW_ATE_boolean if bytes == 1 => Type::Bool,
            gimli::DW_ATE_signed_char if name == "char" => Type::Char,
            gimli::DW_ATE_signed | gimli::DW_ATE_signed_char => integer(true),
            gimli::DW_ATE_boolean
            | gimli::DW_ATE_unsigned
            | gimli::DW_ATE_unsigned_char
            | gimli::DW_ATE_UTF
            | gimli::DW_ATE_address => integer(false),
            gimli::DW_ATE_float => float(bytes),
            gimli::DW_ATE_complex_float => match float(bytes / 2) {
                part @ (Type::Float | Type::Double | Type::LongDouble) => Type::Complex(Box::new(part)),
                _ => Type::Named(name),
            },
            gimli::DW_ATE_decimal_float if matches!(bytes, 4 | 8 | 16) => Type::Vector(bytes as u16),
            _ => Type::Named(name),
        }
    }

    fn enumeration(&self, place: EntryRef, base: Type) -> Type {
        let name = self.name(place).unwrap_or_default();
        let signed = match base {
            Type::Integer { signed, .. } => signed,
            Type::Char => true,
            _ => false,
        };
        match self.number(place, DW_AT_byte_size).or_else(|| base.bytes()) {
            Some(bytes @ (1 | 2 | 4 | 8)) => Type::Enum { name, width: Width { bytes: bytes as u8, signed } },
            _ => Type::Named(name),
        }
    }

    fn array(&self, place: EntryRef, of: Type) -> Type {
        let bound = |place, name| {
            let value = self.attribute(place, name)?;
            value.sdata_value().or_else(|| i64::try_from(value.udata_value()?).ok())
        };
        let first = match self.language(place.shared, place.unit) {
            Some(Language::Fortran) => 1,
            _ => 0,
        };
        let mut count = 1_u64;
        for child in self.children(place).unwrap_or_default() {
            if child.tag == gimli::DW_TAG_subrange_type {
                let lower = bound(child.place, DW_AT_lower_bound).unwrap_or(first);
                let size = bound(child.place, DW_AT_upper_bound)
                    .and_then(|upper| u64::try_from(upper.checked_sub(lower)?.checked_add(1)?).ok());
                let size = self.number(child.place, DW_AT_count).or(size);
                count = count.saturating_mul(size.unwrap_or(0));
            }
        }
        let bytes = of.bytes().unwrap_or(0).saturating_mul(count);
        match (self.has(place, DW_AT_GNU_vector), u16::try_from(bytes)) {
            (true, Ok(bytes)) => Type::Vector(bytes),
            _ => Type::Array(Box::new(of), count),
        }
    }

    fn structure(&self, place: EntryRef, tag: DwTag, levels: u32, depth: u32) -> Type {
        let name = self.name(place).unwrap_or_default();
        let is_declared = self.has(place, DW_AT_declaration);
        let bytes = self.number(place, DW_AT_byte_size).filter(|_| !is_declared);
        // The compiler makes members of these that debug information does not tell apart.
        if name.starts_with("<lambda") {
            return Type::Named(name);
        }
        let mut fields = Vec::new();
        let (mut align, mut own_align) = (1, None);
        let mut copying = Copying::default();
        for child in self.children(place).unwrap_or_default() {
            self.look_at_copying(child, place, &name, &mut copying);
            let is_member = matches!(child.tag, gimli::DW_TAG_member | gimli::DW_TAG_inheritance);
            let is_static = self.has(child.place, DW_AT_external) || self.has(child.place, DW_AT_declaration);
            let Some(value) = self.attribute(child.place, DW_AT_type) else { continue };
            if !is_member || is_static {
                continue;
            }
            if self.parts.get() == 0 {
                return Type::Named(name);
            }
            let ctype = self.referred(child.place, value, levels, depth + 1);
            let own = self.number(child.place, DW_AT_alignment);
            own_align = own_align.max(own);
            align = ctype.align().max(align).max(own.unwrap_or(1));
            copying.is_special |= is_special(&ctype);
            let Some((offset, bits)) = self.member_place(child.place, tag, &ctype) else { return Type::Named(name) };
            fields.push(Field { name: self.name(child.place).unwrap_or_default(), offset, ctype, bits, tag: None });
        }
        let stated = self.number(place, DW_AT_alignment);
        let may_be_packed = stated.is_none() && own_align < Some(align);
        let align = stated.unwrap_or(match bytes {
            // It is packed.
            Some(bytes) if !bytes.is_multiple_of(align) => 1,
            _ => align,
        });
        let by_reference = match self.attribute(place, DW_AT_calling_convention) {
            Some(AttributeValue::CallingConvention(gimli::DW_CC_pass_by_reference)) => true,
            Some(AttributeValue::CallingConvention(gimli::DW_CC_pass_by_value)) => false,
            _ => copying.is_special || (copying.is_deleted && !copying.is_defaulted),
        };
        // That they are defaulted may have been left out.
        if copying.is_special && self.is_strict(place.shared, place.unit) {
            return Type::Named(name);
        }
        let align = if align.is_power_of_two() { align.min(1 << 12) } else { 1 };
        Type::Struct(Box::new(Structure { name, bytes, align, may_be_packed, fields, by_reference }))
    }

    /// What a child of a class says of how objects are copied.
    fn look_at_copying(&self, child: Child, class: EntryRef, name: &str, copying: &mut Copying) {
        let is_virtual = self.number(child.place, DW_AT_virtuality).is_some_and(|kind| kind != 0)
            || matches!(self.attribute(child.place, DW_AT_virtuality), Some(AttributeValue::Virtuality(kind)) if kind.0 != 0);
        copying.is_special |= is_virtual && matches!(child.tag, gimli::DW_TAG_inheritance | gimli::DW_TAG_subprogram);
        if child.tag != gimli::DW_TAG_subprogram || is_virtual {
            return;
        }
        let own = self.name(child.place).unwrap_or_default();
        let is_constructor = own == name.split('<').next().unwrap_or_default() && self.copies(child.place, class);
        if !is_constructor && !own.starts_with('~') {
            return;
        }
        // 1 is DW_DEFAULTED_in_class; out of the class it is the user's own.
        if self.number(child.place, DW_AT_defaulted) == Some(1) {
            copying.is_defaulted |= is_constructor;
        } else if self.has(child.place, DW_AT_deleted) {
            copying.is_deleted = true;
        } else {
            copying.is_special = true;
        }
    }

    /// Whether a constructor's first argument is a reference to an object of its class.
    fn copies(&self, constructor: EntryRef, class: EntryRef) -> bool {
        let params = self.children(constructor).unwrap_or_default();
        let first = params.iter().find(|param| !self.has(param.place, DW_AT_artificial));
        let mut target = first.and_then(|param| self.origin(param.place, DW_AT_type));
        for _ in 0..DEEPEST {
            let Some(place) = target else { return false };
            if place.offset == class.offset && place.unit == class.unit && place.shared == class.shared {
                return true;
            }
            target = match self.tag(place) {
                Some(gimli::DW_TAG_reference_type | gimli::DW_TAG_rvalue_reference_type) => {
                    self.origin(place, DW_AT_type)
                }
                Some(alias) if is_alias(alias) => self.origin(place, DW_AT_type),
                _ => return false,
            };
        }
        false
    }

    /// The offset of a member, and its bits if it is a bit field.
    fn member_place(&self, place: EntryRef, tag: DwTag, ctype: &Type) -> Option<(u64, Option<(u8, u8)>)> {
        let offset = match self.attribute(place, DW_AT_data_member_location) {
            Some(value) => value.udata_value(),
            None if tag == gimli::DW_TAG_union_type || self.number(place, DW_AT_data_bit_offset).is_some() => Some(0),
            None => Some(0),
        }?;
        let Some(size) = self.number(place, DW_AT_bit_size).and_then(|size| u8::try_from(size).ok()) else {
            return Some((offset, None));
        };
        let first = match (self.number(place, DW_AT_data_bit_offset), self.number(place, DW_AT_bit_offset)) {
            (Some(first), _) => first,
            // Of older debug information: counted from the most significant bit of the type.
            (None, Some(from_top)) => {
                let bytes = self.number(place, DW_AT_byte_size).or_else(|| ctype.bytes())?;
                (offset * 8 + bytes * 8).checked_sub(from_top + u64::from(size))?
            }
            (None, None) => offset.checked_mul(8)?,
        };
        Some((first / 8, Some(((first % 8) as u8, size))))
    }

    /// A type as C says it, for people.
    pub fn type_text(&self, place: EntryRef, value: DwarfValue<'a>) -> String {
        self.target(place, value).map_or_else(|| "?".to_owned(), |target| self.text_of(target, 0))
    }

    fn text_of(&self, place: EntryRef, depth: u32) -> String {
        let inner = || match self.origin(place, DW_AT_type) {
            Some(target) if depth < DEEPEST => self.text_of(target, depth + 1),
            Some(_) => "…".to_owned(),
            None => "void".to_owned(),
        };
        let name = || {
            let linkage = self.attribute(place, DW_AT_linkage_name);
            self.name(place).or_else(|| self.text(place, linkage)).unwrap_or_default()
        };
        let Some(tag) = self.tag(place) else { return "?".to_owned() };
        let tagged = |word: &str| format!("{word} {}", name()).trim_end().to_owned();
        match tag {
            gimli::DW_TAG_pointer_type => match inner() {
                inner if inner.ends_with('*') => format!("{inner}*"),
                inner => format!("{inner} *"),
            },
            gimli::DW_TAG_reference_type => format!("{} &", inner()),
            gimli::DW_TAG_rvalue_reference_type => format!("{} &&", inner()),
            gimli::DW_TAG_const_type => match inner() {
                inner if inner.ends_with('*') => format!("{inner} const"),
                inner => format!("const {inner}"),
            },
            gimli::DW_TAG_volatile_type => format!("volatile {}", inner()),
            gimli::DW_TAG_restrict_type | gimli::DW_TAG_atomic_type => inner(),
            gimli::DW_TAG_structure_type => tagged("struct"),
            gimli::DW_TAG_union_type => tagged("union"),
            gimli::DW_TAG_enumeration_type => tagged("enum"),
            gimli::DW_TAG_array_type => format!("{}[]", inner()),
            gimli::DW_TAG_subroutine_type => "function".to_owned(),
            _ => Some(name()).filter(|name| !name.is_empty()).unwrap_or_else(|| "?".to_owned()),
        }
    }
}

impl<'a> DwarfFiles<'a> {
    /// The language of a unit, if it is one whose functions are understood.
    pub fn language(&self, shared: bool, unit: usize) -> Option<Language> {
        match self.attribute(self.root(shared, unit)?, DW_AT_language) {
            Some(AttributeValue::Language(language)) => Language::of(language),
            _ => None,
        }
    }

    /// Whether GCC made a unit.
    pub fn is_of_gcc(&self, unit: usize) -> bool {
        self.producer(false, unit).is_some_and(|producer| producer.starts_with("GNU "))
    }

    /// Whether the compiler was told to leave out what the unit's version of DWARF does not have, as how functions of a
    /// class came to be.
    pub fn is_strict(&self, shared: bool, unit: usize) -> bool {
        let is_old = self.unit(shared, unit).is_ok_and(|unit| unit.encoding().version < 5);
        is_old && self.producer(shared, unit).is_some_and(|producer| producer.contains("-gstrict-dwarf"))
    }

    fn producer(&self, shared: bool, unit: usize) -> Option<Cow<'a, str>> {
        let root = self.root(shared, unit)?;
        self.whole_text(root, self.attribute(root, DW_AT_producer)?)
    }

    fn root(&self, shared: bool, unit: usize) -> Option<EntryRef> {
        let offset = self.unit(shared, unit).ok()?.entries().next_dfs().ok()??.1.offset();
        Some(EntryRef { shared, unit, offset })
    }
}
