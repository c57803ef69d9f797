//! USDT probes: places within functions that a program marks for tracers, by the notes of SystemTap's `<sys/sdt.h>`.
//!
//! A note says where a nop is, what the place is called, where the arguments are when control comes to it, and which
//! counter of the program (a semaphore) says how many tracers look.

use crate::{Function, Image, Symbol};

/// The type of the notes, and who they are from.
const KIND: u32 = 3;
const OWNER: &[u8] = b"stapsdt\0";
const NOTES: &str = ".note.stapsdt";
/// A section whose address the notes repeat: what has moved the sections since has moved the places as far.
const BASE: &str = ".stapsdt.base";

/// A marked place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsdtProbe {
    /// It as a function: its name is `provider:name`, which several places may share, and it has no size.
    pub place: Function,
    /// Where its arguments are, as the assembler writes operands.
    pub arguments: String,
    /// Offset in the file, in bytes, of the counter by which the program knows that somebody looks; 0 if it has none.
    pub semaphore: u64,
}

impl Image {
    /// The marked places, sorted by file offset. Notes that cannot be read, or whose places are not in the file, are left
    /// out.
    pub fn markers(&self) -> Vec<UsdtProbe> {
        let Some((_, mut notes)) = self.section(NOTES) else { return Vec::new() };
        let base = self.section(BASE).map(|(address, _)| address);
        let mut markers = Vec::new();
        while let Some((note, rest)) = next_note(notes) {
            markers.extend(note.and_then(|description| self.marker(description, base)));
            notes = rest;
        }
        markers.sort_by_key(|marker: &UsdtProbe| marker.place.file_offset);
        markers.dedup_by_key(|marker| marker.place.file_offset);
        markers
    }

    fn marker(&self, description: &[u8], base: Option<u64>) -> Option<UsdtProbe> {
        let (words, texts) = description.split_first_chunk::<24>()?;
        let [address, noted_base, semaphore] = [0, 8, 16].map(|at| word(&words[at..]));
        let moved = base.map_or(0, |base| base.wrapping_sub(noted_base));
        let mut texts = texts.split(|&byte| byte == 0).map(str::from_utf8);
        let [provider, name, arguments] = [texts.next()?.ok()?, texts.next()?.ok()?, texts.next()?.ok()?];
        let semaphore = match semaphore {
            0 => 0,
            address => self.file_offset(address.wrapping_add(moved))?,
        };
        let address = address.wrapping_add(moved);
        let name = format!("{provider}:{name}");
        let symbols = vec![Symbol { name: name.clone(), version: None, is_default: true }];
        let file_offset = self.file_offset(address)?;
        let place = Function { symbols, name, mark: String::new(), address, file_offset, size: 0, ifunc: false };
        Some(UsdtProbe { place, arguments: arguments.to_owned(), semaphore })
    }
}

/// The description of the first note, if it is one of these, and what follows it.
fn next_note(notes: &[u8]) -> Option<(Option<&[u8]>, &[u8])> {
    let (head, rest) = notes.split_first_chunk::<12>()?;
    let [name, description, kind] = [0, 4, 8].map(|at| word(&head[at..at + 4]) as usize);
    let (owner, rest) = split_aligned(rest, name)?;
    let (description, rest) = split_aligned(rest, description)?;
    let is_marker = kind == KIND as usize && owner == OWNER;
    Some((is_marker.then_some(description), rest))
}

/// The first bytes, and what is behind them from a multiple of four on.
fn split_aligned(bytes: &[u8], length: usize) -> Option<(&[u8], &[u8])> {
    let part = bytes.get(..length)?;
    Some((part, bytes.get(length.next_multiple_of(4)..).unwrap_or_default()))
}

fn word(bytes: &[u8]) -> u64 {
    bytes.iter().take(8).rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::fixture;

    /// Assembler for a note of a place, whose name and arguments are given.
    fn noted(name: &str, arguments: &str, semaphore: &str) -> String {
        format!(
            "990: nop\n.pushsection .note.stapsdt,\"?\",\"note\"\n.balign 4\n.4byte 992f-991f, 994f-993f, 3\n\
             991: .asciz \"stapsdt\"\n992: .balign 4\n993: .8byte 990b, _.stapsdt.base, {semaphore}\n\
             .asciz \"app\"\n.asciz \"{name}\"\n.asciz \"{arguments}\"\n994: .balign 4\n.popsection\n"
        )
        .replace('\n', "\\n")
        .replace('"', "\\\"")
    }

    #[test]
    fn notes_of_places_are_read() {
        let base = ".pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n.weak _.stapsdt.base\n\
                    .hidden _.stapsdt.base\n_.stapsdt.base: .space 1\n.popsection\n";
        let base = base.replace('\n', "\\n").replace('"', "\\\"");
        let source = format!(
            "unsigned short counted __attribute__((section(\".probes\"), visibility(\"hidden\"))) = 0;\n\
             int f(int x) {{ __asm__ volatile (\"{base}{}{}{}\"); return x; }}",
            noted("first", "8@%rax -4@$5", "0"),
            noted("second", "", "counted"),
            noted("first", "4@%edi", "0")
        );
        let Some(image) = fixture::compile("gcc", &source, &["-shared", "-fPIC"]) else { return };
        let markers = image.markers();
        let told: Vec<_> =
            markers.iter().map(|marker| (marker.place.name.as_str(), marker.arguments.as_str())).collect();
        assert_eq!(told, [("app:first", "8@%rax -4@$5"), ("app:second", ""), ("app:first", "4@%edi")]);
        assert!(markers.iter().all(|marker| image.code(marker.place.address, 1) == Some(&[0x90])));
        let counted = image.variables("counted").unwrap()[0].address;
        assert_eq!(
            markers.iter().map(|marker| marker.semaphore).collect::<Vec<_>>(),
            [0, image.file_offset(counted).unwrap(), 0]
        );
    }

    #[test]
    fn notes_that_end_too_early_are_left_out() {
        let note = |name: u32, description: u32| {
            let head: Vec<u8> = [name, description, KIND].into_iter().flat_map(u32::to_le_bytes).collect();
            [head, OWNER.to_vec(), vec![0; 24]].concat()
        };
        assert!(next_note(&note(8, 24)).is_some_and(|(note, rest)| note == Some(&[0; 24][..]) && rest.is_empty()));
        for (name, description) in [(8, 25), (u32::MAX, 0), (8, u32::MAX), (33, 0)] {
            assert!(next_note(&note(name, description)).is_none(), "{name} {description}");
        }
        assert!(next_note(&note(4, 24)).unwrap().0.is_none(), "somebody else's");
    }
}
