//! The slots through which a file reaches functions by name, and what it loads.
//!
//! Read as the dynamic linker reads them: by the dynamic section, from the bytes that are loaded. A
//! file that lies about its tables has no slots.

use foldhash::HashSet;
use object::LittleEndian;
use object::elf::{self, DynamicTag, Rela64, Sym64};
use object::read::elf::{Rela as _, Sym as _};

use crate::elf::{ENDIAN, string_at};
use crate::symtab::SymbolTable;
use crate::{Exports, Image};

/// A slot that the dynamic linker fills with the address of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot<'a> {
    /// Virtual address of the slot.
    pub address: u64,
    /// The function's name.
    pub name: &'a str,
    /// The version that the function must have, where the file names one.
    pub version: Option<&'a str>,
    /// Virtual address of the file's own function of that name, if it has one; it is meant unless
    /// another file has one too and comes first.
    pub own: Option<u64>,
    /// It belongs to the linkage table: what is there is called. Others may be read as variables.
    pub is_called: bool,
}

/// A slot that the dynamic linker fills with an address in the file itself, whatever else is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnSlot {
    /// Virtual address of the slot.
    pub address: u64,
    /// Virtual address that the slot holds, or that of the resolver (IFUNC) that chooses it.
    pub target: u64,
    /// `target` is a resolver.
    pub is_chosen: bool,
}

/// What files do with functions of another one, by their names.
#[derive(Clone, Debug, Default)]
pub struct Uses {
    /// They call these through the linkage table: what these stand for are functions.
    pub called: HashSet<String>,
    /// They take the addresses of these, to call them or to read what is there.
    pub taken: HashSet<String>,
}

impl Uses {
    /// What these files do with the functions of one that has these.
    pub fn of<'i>(files: impl IntoIterator<Item = &'i Image>, exports: &Exports) -> Uses {
        let functions = exports.functions.iter().chain(&exports.untyped);
        let names: HashSet<&str> =
            functions.flat_map(|function| &function.symbols).map(|symbol| symbol.name.as_str()).collect();
        let mut uses = Uses::default();
        for file in files {
            uses.called.extend(file.called_names().filter(|name| names.contains(name)).map(str::to_owned));
            uses.taken.extend(file.taken_names().filter(|name| names.contains(name)).map(str::to_owned));
        }
        uses
    }
}

impl Image {
    /// The slots for functions; those whose function is chosen by a resolver (IFUNC) have no own one.
    pub fn slots(&self) -> Vec<Slot<'_>> {
        let versions = SymbolTable::dynamic(self).ok().flatten();
        let slot = |relocation: &Rela64<LittleEndian>| {
            let kind = relocation.r_type(ENDIAN, false);
            let is_called = kind == elf::R_X86_64_JUMP_SLOT;
            if !is_called && kind != elf::R_X86_64_GLOB_DAT {
                return None;
            }
            let index = relocation.symbol(ENDIAN, false)?;
            let (symbol, name) = self.symbol_of(relocation)?;
            let is_function = match symbol.st_type() {
                elf::STT_FUNC => true,
                elf::STT_NOTYPE => is_called,
                _ => false,
            };
            let is_own = is_function && symbol.st_shndx(ENDIAN) != elf::SHN_UNDEF;
            let version = || versions.as_ref()?.version(versions.as_ref()?.entry(index)?);
            Some(Slot {
                address: relocation.r_offset(ENDIAN),
                name,
                version: version().map(|version| version.name),
                own: is_own.then(|| symbol.st_value(ENDIAN)),
                is_called,
            })
        };
        self.all_relocations().filter_map(slot).collect()
    }

    /// The names that the file calls through the linkage table: what they stand for are functions.
    pub fn called_names(&self) -> impl Iterator<Item = &str> {
        self.slots().into_iter().filter(|slot| slot.is_called).map(|slot| slot.name)
    }

    /// The names of which it takes the addresses, to call them or to read what is there.
    pub fn taken_names(&self) -> impl Iterator<Item = &str> {
        let takes = |kind| matches!(kind, elf::R_X86_64_GLOB_DAT | elf::R_X86_64_64 | elf::R_X86_64_COPY);
        let taking = self.all_relocations().filter(move |relocation| takes(relocation.r_type(ENDIAN, false)));
        taking.filter_map(|relocation| Some(self.symbol_of(relocation)?.1))
    }

    /// The symbol that a relocation is about, with its name.
    fn symbol_of(&self, relocation: &Rela64<LittleEndian>) -> Option<(&Sym64<LittleEndian>, &str)> {
        let symbols = self.dynamic_value(elf::DT_SYMTAB)?;
        let index = relocation.symbol(ENDIAN, false)?;
        let address = symbols.checked_add(index.0 as u64 * size_of::<Sym64<LittleEndian>>() as u64)?;
        let symbol: &Sym64<LittleEndian> = self.records(address, 1).first()?;
        let strings = self.loaded(self.dynamic_value(elf::DT_STRTAB)?)?;
        Some((symbol, str::from_utf8(string_at(strings, symbol.st_name(ENDIAN).into())?).ok()?))
    }

    /// The slots that lead into the file itself, function or not; packed ones (`DT_RELR`) are left out.
    pub fn own_slots(&self) -> impl Iterator<Item = OwnSlot> {
        self.all_relocations().filter_map(|relocation| {
            let kind = relocation.r_type(ENDIAN, false);
            matches!(kind, elf::R_X86_64_RELATIVE | elf::R_X86_64_IRELATIVE).then(|| OwnSlot {
                address: relocation.r_offset(ENDIAN),
                target: relocation.r_addend(ENDIAN) as u64,
                is_chosen: kind == elf::R_X86_64_IRELATIVE,
            })
        })
    }

    /// Whether the dynamic linker fills words of which [`relocated_words`](Image::relocated_words) tells nothing, or none
    /// that the file has for addresses of itself.
    pub fn has_other_words(&self) -> bool {
        self.is_fixed() || self.dynamic_value(elf::DT_RELR).is_some() || self.dynamic_value(elf::DT_REL).is_some()
    }

    /// The words that the dynamic linker fills: the address, what it puts there where that is an address of this file,
    /// and whether only it writes there.
    pub fn relocated_words(&self) -> impl Iterator<Item = (u64, Option<u64>, bool)> {
        let symbols = SymbolTable::dynamic(self).ok().flatten();
        self.all_relocations().map(move |relocation| {
            let kind = relocation.r_type(ENDIAN, false);
            let addend = relocation.r_addend(ENDIAN) as u64;
            let symbol = || symbols.as_ref()?.entry(relocation.symbol(ENDIAN, false)?);
            let own = || symbol().filter(|symbol| symbol.is_defined() && !symbol.is_ifunc());
            let is_slot = matches!(kind, elf::R_X86_64_GLOB_DAT | elf::R_X86_64_JUMP_SLOT);
            let value = match kind {
                elf::R_X86_64_RELATIVE => Some(addend),
                elf::R_X86_64_64 => own().map(|symbol| symbol.address().wrapping_add(addend)),
                _ if is_slot => own().map(|symbol| symbol.address()),
                _ => None,
            };
            (relocation.r_offset(ENDIAN), value, is_slot)
        })
    }

    pub(crate) fn all_relocations(&self) -> impl Iterator<Item = &Rela64<LittleEndian>> {
        let lazy = self.relocations(elf::DT_JMPREL, elf::DT_PLTRELSZ);
        lazy.iter().chain(self.relocations(elf::DT_RELA, elf::DT_RELASZ))
    }

    fn relocations(&self, address: DynamicTag, size: DynamicTag) -> &[Rela64<LittleEndian>] {
        let count = self.dynamic_value(size).unwrap_or(0) as usize / size_of::<Rela64<LittleEndian>>();
        self.dynamic_value(address).map_or(&[], |address| self.records(address, count))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use crate::fixture;

    #[test]
    fn slots_lead_to_functions_by_name() {
        let code = "extern \"C\" { extern int absent(int), getpid(); int f(int x) { return absent(x) + 1; } \
            int g(int x) { return f(x) + getpid(); } int (*pointer)(int) = f; int h() { return pointer == f; } \
            static int own(int x) { return x; } __attribute__((used)) static int (*const table[])(int) = {own}; }";
        let Some(image) = fixture::compile("g++", code, &["-shared", "-fPIC", "-fno-inline"]) else { return };
        let f = image.exports().unwrap().functions.into_iter().find(|function| function.name == "f").unwrap();
        let slots = image.slots();
        let named = |name| slots.iter().filter(move |slot| slot.name == name);
        assert!(named("f").count() > 0 && named("f").all(|slot| slot.own == Some(f.address)), "{slots:x?}");
        assert!(named("absent").all(|slot| slot.version.is_none()), "{slots:x?}");
        assert!(named("getpid").all(|slot| slot.version.is_some_and(|version| version.starts_with("GLIBC_"))));
        assert!(named("absent").count() == 1 && named("absent").all(|slot| slot.own.is_none()), "{slots:x?}");

        let functions = image.exports().unwrap().functions;
        let is_exported = |address| functions.iter().any(|function| function.address == address);
        let is_local = |address| !is_exported(address) && image.code_ranges().iter().any(|own| own.start == address);
        assert!(image.own_slots().any(|slot| !slot.is_chosen && is_local(slot.target)));
    }
}
