//! Code that is not executed as it stands in the file, or that the program may write to.

use std::ops::Range;

use object::LittleEndian;
use object::elf::{self, Rel64, Rela64, RelocationType, Relr64};
use object::read::elf::{Rel as _, Rela as _};

use crate::Image;
use crate::elf::ENDIAN;
use crate::parts::union;

/// Bytes of a word, as packed relocations change.
const WORD: u64 = 8;
/// Bytes that a relocation changes, at most: a descriptor of thread storage.
const MOST: u64 = 16;

/// How many bytes a relocation changes.
fn size(kind: RelocationType) -> u64 {
    match kind {
        elf::R_X86_64_NONE => 0,
        elf::R_X86_64_8 | elf::R_X86_64_PC8 => 1,
        elf::R_X86_64_16 | elf::R_X86_64_PC16 => 2,
        elf::R_X86_64_32 | elf::R_X86_64_32S | elf::R_X86_64_PC32 | elf::R_X86_64_PLT32 | elf::R_X86_64_SIZE32 => 4,
        elf::R_X86_64_TLSDESC => MOST,
        _ => WORD,
    }
}

impl Image {
    /// The virtual addresses in executable segments to which the dynamic linker writes (text relocations): sorted, those
    /// that touch as one.
    pub fn relocated_code(&self) -> Vec<Range<u64>> {
        let executable = self.executable_ranges();
        let is_code = |&(address, size): &(u64, u64)| {
            let end = address.saturating_add(size);
            size > 0 && executable.iter().any(|range| address < range.end && end > range.start)
        };
        let with_addend = self
            .all_relocations()
            .map(|rela: &Rela64<LittleEndian>| (rela.r_offset(ENDIAN), size(rela.r_type(ENDIAN, false))));
        let count = self.dynamic_value(elf::DT_RELSZ).unwrap_or(0) as usize / size_of::<Rel64<LittleEndian>>();
        let plain = self.dynamic_value(elf::DT_REL).map_or(&[][..], |table| self.records(table, count));
        let plain = plain.iter().map(|rel: &Rel64<LittleEndian>| (rel.r_offset(ENDIAN), size(rel.r_type(ENDIAN))));
        let mut parts: Vec<(u64, u64)> = with_addend.chain(plain).filter(is_code).collect();
        self.packed_relocations(|address| parts.extend(Some((address, WORD)).filter(is_code)));
        union(parts.into_iter().map(|(start, size)| start..start.saturating_add(size)).collect())
    }

    /// Shows the address of each word that a packed relocation (`DT_RELR`) changes: an entry that is even is an
    /// address, each that follows and is odd has a bit for each of the next 63 words.
    fn packed_relocations(&self, mut show: impl FnMut(u64)) {
        let count = self.dynamic_value(elf::DT_RELRSZ).unwrap_or(0) as usize / size_of::<Relr64<LittleEndian>>();
        let table = self.dynamic_value(elf::DT_RELR).map_or(&[][..], |table| self.records(table, count));
        let mut next = 0_u64;
        for Relr64(entry) in table {
            let entry: u64 = entry.get(ENDIAN);
            if entry & 1 == 0 {
                show(entry);
                next = entry.wrapping_add(WORD);
                continue;
            }
            (0..63).filter(|bit| entry >> (bit + 1) & 1 == 1).for_each(|bit| show(next.wrapping_add(bit * WORD)));
            next = next.wrapping_add(63 * WORD);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use crate::fixture;

    #[test]
    fn relocations_of_code_are_found_whatever_their_form() {
        // The patched word is at a multiple of its size, as packed relocations need it.
        let code = "__asm__(\".balign 16\\n.skip 5,0x90\\n.globl f\\n.type f,@function\\nf: push %rbx\\nmovabs $v, %rax\\npop %rbx\\nret\\n.size f,.-f\\n\"
            \".data\\n.globl v\\n.hidden v\\nv: .quad v, v\\n.text\");";
        for flags in [&["-Wl,-z,notext"][..], &["-Wl,-z,notext", "-Wl,-z,pack-relative-relocs"]] {
            let flags = [&["-shared", "-nostdlib"], flags].concat();
            let Some(image) = fixture::compile("gcc", code, &flags) else { return };
            let f = image.definitions().find(|definition| definition.name == "f").unwrap().address;
            assert_eq!(image.relocated_code(), std::iter::once(f + 3..f + 11).collect::<Vec<_>>(), "{flags:?}");
        }
        let Some(image) = fixture::compile("gcc", "int v; int *p = &v; int f() { return *p; }", &["-shared", "-fPIC"])
        else {
            return;
        };
        assert_eq!(image.relocated_code(), []);
    }

    #[test]
    fn writable_code_is_known() {
        let code = "int f(int x) { return x + 1; }";
        let flags = ["-shared", "-fPIC", "-nostdlib", "-Wl,-N", "-Wl,-z,noseparate-code"];
        let Some(image) = fixture::compile("gcc", code, &flags) else { return };
        let f = image.definitions().find(|definition| definition.name == "f").unwrap().address;
        assert!(image.writable_code().iter().any(|range| range.contains(&f)));
        let Some(image) = fixture::compile("gcc", code, &["-shared", "-fPIC"]) else { return };
        assert_eq!(image.writable_code(), []);
    }
}
