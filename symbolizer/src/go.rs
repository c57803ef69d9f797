//! Where the code of Go stands in a file.
//!
//! Go has stacks of its own: it moves them where they grow, and a function whose stack was too small
//! begins anew. Code of other languages in the same file (cgo) runs on stacks that stay.

use std::ops::Range;

use object::read::elf::SectionTable;

use crate::Image;
use crate::contents::Contents;
use crate::elf::{ENDIAN, Elf};
use crate::symtab::SymbolTable;

/// What the linker of Go puts in front of a program's build information, at a multiple of [`ALIGNMENT`].
const BUILD_INFO: &[u8] = b"\xff Go buildinf:";
const ALIGNMENT: usize = 16;
/// Bytes of a segment in which its readers look for that.
const SEARCHED: usize = 64 << 10;
/// Symbols at the first byte of Go's code, and behind its last one.
const BOUNDS: [&str; 2] = ["runtime.text", "runtime.etext"];

/// The code that Go has in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GoCode {
    /// These virtual addresses.
    Range(Range<u64>),
    /// What has no unwind entry in `.eh_frame`: Go has another table.
    Unframed,
}

impl Image {
    /// The code that Go has in the file, if there is some.
    pub fn go_code(&self) -> Option<GoCode> {
        if !self.is_of_go() {
            return None;
        }
        let [start, end] = BOUNDS.map(|name| self.symbol_address(name));
        let range = start.zip(end).filter(|(start, end)| start < end);
        Some(range.map_or(GoCode::Unframed, |(start, end)| GoCode::Range(start..end)))
    }

    fn is_of_go(&self) -> bool {
        match self.sections() {
            Ok(sections) if sections.iter().len() > 1 => has_go_section(&sections),
            _ => self.loaded_parts().any(|(_, bytes)| {
                let bytes = &bytes[..bytes.len().min(SEARCHED)];
                bytes.chunks(ALIGNMENT).any(|chunk| chunk.starts_with(BUILD_INFO))
            }),
        }
    }

    fn symbol_address(&self, name: &str) -> Option<u64> {
        let tables = [SymbolTable::full(self), SymbolTable::dynamic(self)];
        tables.into_iter().filter_map(|table| table.ok().flatten()).find_map(|table| {
            let mut entries = table.entries().filter(|entry| entry.is_defined());
            entries.find(|&entry| table.name(entry) == Some(name.as_bytes())).map(|entry| entry.address())
        })
    }
}

fn has_go_section<'a>(sections: &SectionTable<'a, Elf, &'a Contents>) -> bool {
    let names = sections.iter().filter_map(|section| sections.section_name(ENDIAN, section).ok());
    names.into_iter().any(|name| name.ends_with(b".gopclntab") || name == b".go.buildinfo")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::fixture;

    const INFORMED: &str =
        r#"__asm__(".section .go.buildinfo,\"aw\"\n.balign 16\n.ascii \"\\377 Go buildinf:\"\n.text\n");"#;
    const BOUNDED: &str = r#"__asm__(".globl runtime.text, runtime.etext\nruntime.text: nop\nruntime.etext: nop\n");"#;

    fn code(source: &str) -> Option<[Option<GoCode>; 2]> {
        let image = fixture::compile("gcc", source, &["-shared", "-fPIC", "-nostdlib"])?;
        Some([image.go_code(), fixture::without_sections(&image).go_code()])
    }

    #[test]
    fn programs_of_go_are_known_with_and_without_section_headers() {
        let f = "int f(void) { return 1; }";
        let Some(none) = code(f) else { return };
        assert_eq!(none, [None, None]);
        assert_eq!(code(&[INFORMED, f].concat()).unwrap(), [Some(GoCode::Unframed), Some(GoCode::Unframed)]);
        let [code, stripped] = code(&[INFORMED, BOUNDED].concat()).unwrap();
        assert!(matches!(&code, Some(GoCode::Range(range)) if range.end - range.start == 1), "{code:x?}");
        assert_eq!(code, stripped);
    }
}
