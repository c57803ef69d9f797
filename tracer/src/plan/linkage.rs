//! What the dynamic linker makes of a library, read as the dynamic linker reads it: by the program
//! headers, from the bytes that are loaded.
//!
//! A file that does not load its own headers, or lies about its tables, has no slots.

use std::collections::HashMap;

use object::LittleEndian;
use object::elf::{self, Dyn64, DynamicTag, FileHeader64, ProgramHeader64, Rela64, Sym64};
use object::pod::{Pod, slice_from_bytes};
use object::read::elf::{Dyn as _, ProgramHeader as _, Rela as _, Sym as _};
use rtrace_symbolizer::Image;

const ENDIAN: LittleEndian = LittleEndian;

/// Slots of the global offset table that the dynamic linker fills with the address of one of the
/// library's own functions, unless another library has one of that name: slot → function.
pub fn own_slots(image: &Image) -> HashMap<u64, u64> {
    let value =
        |tag: DynamicTag| dynamic(image).iter().find(|entry| entry.tag(ENDIAN) == tag).map(|entry| entry.val(ENDIAN));
    let table = |address, size| -> &[Rela64<LittleEndian>] {
        let size = value(size).unwrap_or(0) as usize / size_of::<Rela64<LittleEndian>>();
        value(address).map_or(&[], |address| records(image, address, size))
    };
    let symbols = value(elf::DT_SYMTAB);
    let function = |relocation: &Rela64<LittleEndian>| {
        if !matches!(relocation.r_type(ENDIAN, false), elf::R_X86_64_JUMP_SLOT | elf::R_X86_64_GLOB_DAT) {
            return None;
        }
        let index = relocation.symbol(ENDIAN, false)?.0 as u64;
        let address = symbols?.checked_add(index * size_of::<Sym64<LittleEndian>>() as u64)?;
        let symbol: &Sym64<LittleEndian> = records(image, address, 1).first()?;
        let is_own = symbol.st_type() == elf::STT_FUNC && symbol.st_shndx(ENDIAN) != elf::SHN_UNDEF;
        is_own.then(|| (relocation.r_offset(ENDIAN), symbol.st_value(ENDIAN)))
    };
    let lazy = table(elf::DT_JMPREL, elf::DT_PLTRELSZ);
    lazy.iter().chain(table(elf::DT_RELA, elf::DT_RELASZ)).filter_map(function).collect()
}

/// What the file loads: the address of each part, and its bytes.
pub fn loaded_parts(image: &Image) -> impl Iterator<Item = (u64, &[u8])> {
    let loaded = headers(image).iter().filter(|header| header.p_type(ENDIAN) == elf::PT_LOAD);
    loaded.map(|header| header.p_vaddr(ENDIAN)).filter_map(|address| Some((address, image.loaded(address)?)))
}

fn dynamic(image: &Image) -> &[Dyn64<LittleEndian>] {
    let is_dynamic = |header: &&ProgramHeader64<LittleEndian>| header.p_type(ENDIAN) == elf::PT_DYNAMIC;
    let Some(header) = headers(image).iter().find(is_dynamic) else { return &[] };
    let count = header.p_filesz(ENDIAN) as usize / size_of::<Dyn64<LittleEndian>>();
    records(image, header.p_vaddr(ENDIAN), count)
}

fn headers(image: &Image) -> &[ProgramHeader64<LittleEndian>] {
    let found = || {
        let start = image.address(0)?;
        let header: &FileHeader64<LittleEndian> = records(image, start, 1).first()?;
        let address = start.checked_add(header.e_phoff.get(ENDIAN))?;
        Some(records(image, address, header.e_phnum.get(ENDIAN).into()))
    };
    found().unwrap_or_default()
}

/// A table in memory; empty where the file does not hold all of it.
fn records<T: Pod>(image: &Image, address: u64, count: usize) -> &[T] {
    let bytes = image.loaded(address).unwrap_or_default();
    slice_from_bytes(bytes, count).map_or(&[], |(records, _)| records)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::super::testing::{BASE, compile, image};
    use super::*;

    #[test]
    fn slots_lead_to_functions_of_the_library() {
        let code = "extern int absent(int); int f(int x) { return absent(x) + 1; } int g(int x) { return f(x) + 1; } \
            int (*pointer)(int) = f; int h(void) { return pointer == f; }";
        let Some(image) = compile("c", code, &["-shared", "-fPIC", "-fno-inline"]) else { return };
        let exports = image.exports().unwrap();
        let f = exports.functions.iter().find(|function| function.name == "f").unwrap();
        let slots = own_slots(&image);
        assert!(!slots.is_empty() && slots.values().all(|&function| function == f.address), "{slots:x?}");
    }

    #[test]
    fn a_file_without_a_dynamic_section_has_no_slots() {
        let image = image(&[0xc3]);
        assert!(own_slots(&image).is_empty());
        assert_eq!(loaded_parts(&image).map(|(_, bytes)| bytes.len()).sum::<usize>(), BASE as usize + 1);
    }
}
