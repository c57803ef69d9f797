//! The code ranges that `.eh_frame` describes, and what can be unwound through them.
//!
//! Each entry is read once, in file order, and may refer only to a common entry before it, so the
//! time is proportional to the section whatever it claims.

use std::collections::HashMap;

use gimli::{
    BaseAddresses, CallFrameInstruction, CallFrameInstructionIter, CieOrFde, CommonInformationEntry, EhFrame,
    FrameDescriptionEntry, LittleEndian, Pointer, Register, UnwindSection, X86_64,
};

use crate::{Image, Reader};

/// Bytes of the length with which an entry begins.
const LENGTH: usize = 4;

/// The code range of one frame description entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameRange {
    /// First virtual address.
    pub start: u64,
    /// Virtual address after the last byte.
    pub end: u64,
    /// At `start` the return address is at the stack pointer (the canonical frame address is
    /// `rsp + 8`), as at the entry of an ordinary function.
    pub entry_is_plain: bool,
    /// The range has a language specific data area: it catches or cleans up when an exception passes.
    pub has_lsda: bool,
}

impl Image {
    /// The ranges of `.eh_frame`, sorted by start; those that cannot be read are left out.
    pub fn frame_ranges(&self) -> Vec<FrameRange> {
        let Some((address, bytes)) = self.frames() else { return Vec::new() };
        let mut ranges = Vec::new();
        each_entry(address, bytes, |frame, bases, fde| {
            let entry = address.saturating_add(fde.offset() as u64);
            let entry = entry..entry.saturating_add((LENGTH + fde.entry_len()) as u64);
            let start = fde.initial_address();
            let Some(end) = start.checked_add(fde.len()).filter(|&end| end > start) else { return };
            let frame_address = FrameAddress::default().after(fde.cie().instructions(frame, bases));
            ranges.push(FrameRange {
                start,
                end,
                entry_is_plain: frame_address.after(fde.instructions(frame, bases)).is_plain(),
                // A relative pointer of zero means none and comes out as its own address.
                has_lsda: fde.lsda().map(Pointer::pointer).is_some_and(|lsda| !entry.contains(&lsda)),
            });
        });
        ranges.sort_by_key(|range| range.start);
        ranges
    }
}

/// A section as `gimli` reads it.
pub(crate) fn section_of(address: u64, section: &[u8]) -> (EhFrame<Reader<'_>>, BaseAddresses) {
    let mut frame = EhFrame::new(section, LittleEndian);
    frame.set_address_size(8);
    (frame, BaseAddresses::default().set_eh_frame(address))
}

/// Shows each frame description entry of a section that can be read, in file order.
pub(crate) fn each_entry<'s>(
    address: u64,
    section: &'s [u8],
    mut show: impl FnMut(&EhFrame<Reader<'s>>, &BaseAddresses, FrameDescriptionEntry<Reader<'s>>),
) {
    let (frame, bases) = section_of(address, section);
    let mut common: HashMap<usize, CommonInformationEntry<Reader<'_>>> = HashMap::new();
    let mut entries = frame.entries(&bases);
    while let Ok(Some(entry)) = entries.next() {
        match entry {
            CieOrFde::Cie(cie) => _ = common.insert(cie.offset(), cie),
            CieOrFde::Fde(partial) => {
                let cie = common.get(&partial.cie_offset().0);
                if let Some(Ok(fde)) = cie.map(|cie| partial.parse(|_, _, _| Ok(cie.clone()))) {
                    show(&frame, &bases, fde);
                }
            }
        }
    }
}

/// The rule for the canonical frame address: a register plus an offset, `None` where it is something else.
#[derive(Clone, Copy, Default)]
struct FrameAddress(Option<(Register, u64)>);

impl FrameAddress {
    /// The rule for the first instruction of a range that has these unwind instructions.
    fn after(self, mut instructions: CallFrameInstructionIter<Reader>) -> FrameAddress {
        let mut rule = self.0;
        while let Ok(Some(instruction)) = instructions.next() {
            rule = match (instruction, rule) {
                (CallFrameInstruction::AdvanceLoc { .. } | CallFrameInstruction::SetLoc { .. }, _) => break,
                (CallFrameInstruction::DefCfa { register, offset }, _) => Some((register, offset)),
                (CallFrameInstruction::DefCfaRegister { register }, Some((_, offset))) => Some((register, offset)),
                (CallFrameInstruction::DefCfaOffset { offset }, Some((register, _))) => Some((register, offset)),
                (CallFrameInstruction::DefCfaSf { .. } | CallFrameInstruction::DefCfaOffsetSf { .. }, _)
                | (CallFrameInstruction::DefCfaExpression { .. }, _) => None,
                (_, rule) => rule,
            };
        }
        FrameAddress(rule)
    }

    fn is_plain(self) -> bool {
        self.0 == Some((X86_64::RSP, 8))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use crate::fixture;

    const SOURCE: &str = r#"
        extern void may_throw(void);
        struct Guard { ~Guard() { __asm__ volatile (""); } };
        extern "C" void plain(void) { __asm__ volatile (""); }
        extern "C" void cleans_up(void) { Guard guard; may_throw(); }
        __asm__(".type odd, @function\n.globl odd\nodd:\n.cfi_startproc\n.cfi_def_cfa_offset 16\nret\n.cfi_endproc\n"
                ".size odd, .-odd\n");
    "#;

    #[test]
    fn ranges_tell_entries_and_cleanups_apart() {
        let Some(image) = fixture::compile("g++", SOURCE, &["-shared", "-fPIC", "-O1", "-fno-inline"]) else { return };
        let exports = image.exports().unwrap();
        let ranges = image.frame_ranges();
        assert!(ranges.is_sorted_by_key(|range| range.start));
        for (name, entry_is_plain, has_lsda) in
            [("plain", true, false), ("cleans_up", true, true), ("odd", false, false)]
        {
            let function = exports.functions.iter().find(|function| function.name == name).unwrap();
            let range = ranges.iter().find(|range| range.start == function.address).unwrap();
            assert_eq!(range.end - range.start, function.size, "{name}");
            assert_eq!((range.entry_is_plain, range.has_lsda), (entry_is_plain, has_lsda), "{name}");
        }
    }
}
