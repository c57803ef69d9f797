//! Tables that the dynamic linker and the unwinder find without section headers.
//!
//! Section headers are not loaded: tools strip them, and they may say anything. What a running program uses
//! is found by its program headers. Where section headers say the same they are believed, as they also tell
//! how long `.eh_frame` is.

use std::ops::Range;

use gimli::{BaseAddresses, EhFrameHdr, Pointer};
use object::elf::{self, SectionHeader64, SectionType};
use object::pod::{Pod, slice_from_bytes};
use object::read::elf::{GnuHashTable, HashTable, ProgramHeader as _, Rela as _, SectionHeader as _};
use object::{LittleEndian, U32, U64};

use crate::Image;
use crate::elf::{ENDIAN, Elf};

/// Bytes that a linkage stub takes up, and at a multiple of which it begins.
const STUB: u64 = 16;
/// `jmp *rel32(%rip)`
const JUMP_SLOT: [u8; 2] = [0xff, 0x25];

impl Image {
    /// Whether the section headers tell of the tables that the program headers tell of.
    pub(crate) fn has_sections(&self) -> bool {
        let sections = self.sections().unwrap_or_default();
        let is_told = |kind, address| {
            let mut sections = sections.iter().filter(|section| section.sh_type(ENDIAN) == kind);
            sections.any(|section| self.is_at(section, address))
        };
        let symbols = self.dynamic_value(elf::DT_SYMTAB);
        symbols.is_none_or(|address| is_told(elf::SHT_DYNSYM, address))
            && self.frame_address().is_none_or(|address| self.frame_section(address).is_some())
    }

    /// Whether a section is what is loaded at this virtual address.
    fn is_at(&self, section: &SectionHeader64<LittleEndian>, address: u64) -> bool {
        section.sh_addr(ENDIAN) == address && Some(section.sh_offset(ENDIAN)) == self.file_offset(address)
    }

    /// The bytes of `.eh_frame`, where a section header tells of it at this virtual address.
    fn frame_section(&self, address: u64) -> Option<&[u8]> {
        let sections = self.sections().ok()?;
        let (_, section) = sections.section_by_name(ENDIAN, b".eh_frame")?;
        let bytes = section.data(ENDIAN, self.bytes()).ok().filter(|bytes| !bytes.is_empty());
        bytes.filter(|_| self.is_at(section, address))
    }

    /// A table in memory; empty where the file does not hold all of it.
    pub(crate) fn records<T: Pod>(&self, address: u64, count: usize) -> &[T] {
        let bytes = self.loaded(address).unwrap_or_default();
        slice_from_bytes(bytes, count).map_or(&[], |(records, _)| records)
    }

    /// How many symbols `.dynsym` has, as far as the tables tell that refer to them: a hash table tells of
    /// those that are defined, relocations of those that are used.
    pub(crate) fn dynamic_symbol_count(&self) -> usize {
        // Those that it has stand at the end of the symbols.
        let table = |tag| self.dynamic_value(tag).and_then(|address| self.loaded(address));
        let hashed = table(elf::DT_HASH).and_then(|table| HashTable::<Elf>::parse(ENDIAN, table).ok());
        if let Some(hashed) = hashed {
            return hashed.symbol_table_length() as usize;
        }
        let hashed = table(elf::DT_GNU_HASH).and_then(|table| GnuHashTable::<Elf>::parse(ENDIAN, table).ok());
        if let Some(length) = hashed.and_then(|hashed| hashed.symbol_table_length(ENDIAN)) {
            return length as usize;
        }
        let used = self.all_relocations().filter_map(|relocation| Some(relocation.symbol(ENDIAN, false)?.0 + 1));
        used.max().unwrap_or(0)
    }

    /// A section header for a table that begins at this virtual address, of unknown length.
    pub(crate) fn loaded_section(&self, address: u64, kind: SectionType) -> Option<SectionHeader64<LittleEndian>> {
        let (zero, none) = (U64::new(ENDIAN, 0), U32::new(ENDIAN, 0));
        Some(SectionHeader64 {
            sh_name: none,
            sh_type: U32::new(ENDIAN, kind),
            sh_flags: U64::new(ENDIAN, elf::SectionFlags(0)),
            sh_addr: U64::new(ENDIAN, address),
            sh_offset: U64::new(ENDIAN, self.file_offset(address)?),
            sh_size: U64::new(ENDIAN, self.loaded(address)?.len() as u64),
            sh_link: none,
            sh_info: none,
            sh_addralign: zero,
            sh_entsize: zero,
        })
    }

    /// `.eh_frame`: its virtual address and its bytes, or more than these.
    pub(crate) fn frames(&self) -> Option<(u64, &[u8])> {
        let Some(address) = self.frame_address() else { return self.section(".eh_frame") };
        Some((address, self.frame_section(address).or_else(|| self.loaded(address))?))
    }

    /// The virtual address of `.eh_frame`, by the table with which the unwinder searches it.
    fn frame_address(&self) -> Option<u64> {
        let header = self.program_headers().iter().find(|header| header.p_type(ENDIAN) == elf::PT_GNU_EH_FRAME)?;
        let address = header.p_vaddr(ENDIAN);
        let bases = BaseAddresses::default().set_eh_frame_hdr(address);
        let table = EhFrameHdr::new(self.loaded(address)?, gimli::LittleEndian).parse(&bases, 8).ok()?;
        match table.eh_frame_ptr() {
            Pointer::Direct(address) => Some(address),
            Pointer::Indirect(_) => None,
        }
    }

    /// Where linkage stubs stand, by the slots through which they jump, and to which slots lead that the dynamic
    /// linker has not filled.
    pub(crate) fn stubs_by_slots(&self) -> Vec<Range<u64>> {
        let mut slots: Vec<u64> = self.slots().iter().map(|slot| slot.address).collect();
        slots.extend(self.own_slots().filter(|slot| slot.is_chosen).map(|slot| slot.address));
        slots.sort_unstable();
        let executable = self.executable_ranges();
        let unfilled = slots.iter().filter_map(|&slot| Some(u64::from_le_bytes(*self.loaded(slot)?.first_chunk()?)));
        let unfilled = unfilled.filter(|address| executable.iter().any(|range| range.contains(address)));
        let mut stubs: Vec<u64> = unfilled.collect();
        for range in &executable {
            let bytes = self.loaded(range.start).unwrap_or_default();
            let jumps = bytes.windows(6).enumerate().filter(|(_, window)| window.starts_with(&JUMP_SLOT));
            let leads = jumps.filter_map(|(position, window)| {
                let address = range.start.wrapping_add(position as u64);
                let distance = i32::from_le_bytes(*window.last_chunk()?);
                let slot = address.wrapping_add(window.len() as u64).wrapping_add_signed(distance.into());
                slots.binary_search(&slot).is_ok().then_some(address)
            });
            stubs.extend(leads);
        }
        let mut blocks: Vec<u64> = stubs.into_iter().map(|stub| stub & !(STUB - 1)).collect();
        blocks.sort_unstable();
        blocks.dedup();
        let runs = blocks.chunk_by(|before, after| after - before == STUB);
        runs.filter_map(|run| Some(*run.first()?..run.last()?.saturating_add(STUB))).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::fixture;

    const SOURCE: &str = r#"
        #include <stdexcept>
        struct Guard { ~Guard() { __asm__ volatile (""); } };
        extern "C" { int absent(int); void throws(int x) { Guard guard; if (absent(x)) throw std::runtime_error("x"); }
            static int chosen() { return 1; } static int (*resolver())() { return chosen; }
            int selected() __attribute__((ifunc("resolver")));
            int call(int x) { throws(x); return selected(); } }
        __asm__(".symver call, named@@V1");
    "#;

    fn fixtures() -> Vec<Image> {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("versions");
        std::fs::write(&script, "V1 { global: *; };").unwrap();
        let script = format!("-Wl,--version-script={}", script.display());
        let styles =
            ["-Wl,--hash-style=gnu", "-Wl,--hash-style=sysv", "-Wl,-z,now", "-fcf-protection=full", "-fno-plt"];
        let compiled = styles.map(|style| fixture::compile("g++", SOURCE, &["-shared", "-fPIC", &script, style]));
        compiled.into_iter().flatten().collect()
    }

    #[test]
    fn a_file_without_section_headers_tells_the_same() {
        for image in fixtures() {
            let stripped = fixture::without_sections(&image);
            assert!(image.has_sections() && !stripped.has_sections());
            let exports = image.exports().unwrap();
            assert!(exports.functions.iter().any(|function| function.symbols[0].version.as_deref() == Some("V1")));
            assert_eq!(stripped.exports().unwrap(), exports);
            assert!(stripped.definitions().eq(image.definitions()));
            assert_eq!(stripped.frame_ranges(), image.frame_ranges());
            assert!(stripped.frame_ranges().iter().any(|range| range.has_lsda));
            assert_eq!(stripped.slots(), image.slots());
            assert!(stripped.slots().iter().any(|slot| slot.version.is_some()));
            assert_eq!(stripped.imports(), image.imports());
        }
    }

    #[test]
    fn stubs_are_known_by_their_slots() {
        for image in fixtures() {
            let tables = image.stub_tables();
            let found = fixture::without_sections(&image).stub_tables();
            let is_known = |stub: u64| tables.iter().any(|table| table.contains(&stub));
            let mut stubs = found.iter().flat_map(|run| run.clone().step_by(STUB as usize));
            assert!(stubs.all(is_known), "{found:x?} of {tables:x?}");
            assert_eq!(found.is_empty(), tables.is_empty());
        }
    }

    #[test]
    fn a_section_of_another_place_is_not_believed() {
        let Some(image) = fixtures().pop() else { return };
        let mut bytes = image.bytes().to_vec();
        let sections = image.header().e_shoff.get(ENDIAN) as usize;
        let table = image.sections().unwrap().iter().position(|section| section.sh_type(ENDIAN) == elf::SHT_DYNSYM);
        let address = sections + table.unwrap() * size_of::<SectionHeader64<LittleEndian>>() + 16;
        bytes[address] ^= 8;
        let lying = Image::parse(bytes).unwrap();
        assert!(!lying.has_sections());
        assert_eq!(lying.exports().unwrap(), image.exports().unwrap());
    }
}
