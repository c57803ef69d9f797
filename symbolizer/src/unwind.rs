//! How frames are left for their callers, by the unwind tables of a file (`.eh_frame`).
//!
//! The tables are read when the first address is asked for: where each entry is. Only the rows of entries that are
//! asked for are computed.

use std::ops::Range;

use gimli::{
    CfaRule, EhFrame, EhFrameOffset, Encoding, Format, Operation, RegisterRule, UnwindContext, UnwindExpression,
    UnwindSection, UnwindTableRow, X86_64,
};
use rtrace_model::{CallerFrame, CallerStack, UnwindRule};

use crate::frames::{each_entry, section_of};
use crate::{Image, Reader};

const ENCODING: Encoding = Encoding { address_size: 8, format: Format::Dwarf32, version: 4 };

/// Where the return address is below the caller's stack pointer.
const RETURN_ADDRESS: i64 = -8;

/// An entry that describes the frames of a range of code.
#[derive(Clone, Copy, Debug)]
struct FrameEntry {
    start: u64,
    end: u64,
    /// Its place in the section.
    offset: usize,
}

/// The unwind tables of a file.
#[derive(Debug)]
pub struct UnwindTables {
    /// Bytes of the file that are loaded as code, by their offset, and the address of the first.
    code: Vec<(Range<u64>, u64)>,
    address: u64,
    section: Vec<u8>,
    /// By start.
    entries: Vec<FrameEntry>,
}

impl UnwindTables {
    /// Those of `image`; empty where it has none.
    pub fn of(image: &Image) -> UnwindTables {
        let code = image.executable_ranges().into_iter().filter_map(|addresses| {
            let offset = image.file_offset(addresses.start)?;
            Some((offset..offset.saturating_add(addresses.end - addresses.start), addresses.start))
        });
        let (address, section) = image.frames().unwrap_or((0, &[]));
        let entries = entries(address, section);
        // Another section may follow.
        let end = entries.iter().map(|entry| entry.offset).max().unwrap_or_default();
        let size = section.get(end..).and_then(|last| Some(u32::from_le_bytes(*last.first_chunk::<4>()?)));
        let end = size.map_or(0, |size| end.saturating_add(4 + size as usize)).min(section.len());
        UnwindTables { code: code.collect(), address, section: section[..end].to_vec(), entries }
    }

    /// How a frame is left to which a call returns at this offset of the file.
    pub fn rule(&self, return_offset: u64) -> UnwindRule {
        // What counts is the call: the next instruction may belong to another function.
        let call = return_offset.saturating_sub(1);
        let part = self.code.iter().find(|(offsets, _)| offsets.contains(&call));
        let rule = part.and_then(|(offsets, address)| self.rule_at(address.checked_add(call - offsets.start)?));
        rule.unwrap_or(UnwindRule::Unknown)
    }

    fn rule_at(&self, address: u64) -> Option<UnwindRule> {
        let behind = self.entries.partition_point(|entry| entry.start <= address);
        let entry = self.entries[..behind].last().filter(|entry| address < entry.end)?;
        let (frame, bases) = section_of(self.address, &self.section);
        let fde = frame.fde_from_offset(&bases, EhFrameOffset(entry.offset), EhFrame::cie_from_offset).ok()?;
        if fde.is_signal_trampoline() {
            return Some(UnwindRule::Signal);
        }
        let mut context = UnwindContext::new();
        let row = fde.unwind_info_for_address(&frame, &bases, &mut context, address).ok()?;
        rule_of(&frame, row)
    }
}

/// The entries of a section, each read once.
fn entries(address: u64, section: &[u8]) -> Vec<FrameEntry> {
    let mut found = Vec::new();
    each_entry(address, section, |_, _, fde| {
        let start = fde.initial_address();
        found.push(FrameEntry { start, end: start.saturating_add(fde.len()), offset: fde.offset() });
    });
    found.sort_by_key(|entry| entry.start);
    found
}

/// `None`: the rule is none that rtrace can follow.
fn rule_of(frame: &EhFrame<Reader<'_>>, row: &UnwindTableRow<usize>) -> Option<UnwindRule> {
    match row.register(X86_64::RA) {
        RegisterRule::Undefined => return Some(UnwindRule::Outermost),
        RegisterRule::Offset(RETURN_ADDRESS) => {}
        _ => return None,
    }
    let small = |offset: i64| i32::try_from(offset).ok();
    let stack = match *row.cfa() {
        CfaRule::RegisterAndOffset { register: X86_64::RSP, offset } => CallerStack::AboveStack(small(offset)?),
        CfaRule::RegisterAndOffset { register: X86_64::RBP, offset } => CallerStack::AboveFrame(small(offset)?),
        CfaRule::RegisterAndOffset { .. } => return None,
        CfaRule::Expression(expression) => match above_frame(frame, expression)? {
            (offset, true) => CallerStack::StoredAboveFrame(small(offset)?),
            (_, false) => return None,
        },
    };
    let caller_frame = match row.register(X86_64::RBP) {
        // It is kept by whoever does not say otherwise.
        RegisterRule::Undefined | RegisterRule::SameValue => CallerFrame::Untouched,
        RegisterRule::Offset(offset) => CallerFrame::AboveStack(small(offset)?),
        RegisterRule::Expression(expression) => match above_frame(frame, expression) {
            Some((offset, false)) => CallerFrame::AboveFrame(small(offset)?),
            _ => CallerFrame::Nowhere,
        },
        _ => CallerFrame::Nowhere,
    };
    Some(UnwindRule::Up(stack, caller_frame))
}

/// The offset of an expression that is so many bytes above the frame pointer, and whether it is the word there: what
/// compilers write for functions that align their stack.
fn above_frame(frame: &EhFrame<Reader<'_>>, expression: UnwindExpression<usize>) -> Option<(i64, bool)> {
    let mut operations = expression.get(frame).ok()?.operations(ENCODING);
    let Operation::RegisterOffset { register: X86_64::RBP, offset, .. } = operations.next().ok()?? else { return None };
    match (operations.next().ok()?, operations.next().ok()?) {
        (None, _) => Some((offset, false)),
        (Some(Operation::Deref { size: 8, space: false, .. }), None) => Some((offset, true)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::fixture;

    /// Functions whose frames are told in each way that compilers use; a label behind each call.
    const SOURCE: &str = r#"
        __asm__(".text\n"
            ".globl f, plain, framed, aligned, first, odd, handler\n"
            "f: ret\n"
            "plain: .cfi_startproc\npush %rbp\n.cfi_def_cfa_offset 16\n.cfi_offset 6,-16\nsub $24,%rsp\n"
            ".cfi_def_cfa_offset 40\ncall f\n.globl after_plain\nafter_plain: nop\n.cfi_endproc\n"
            "framed: .cfi_startproc\npush %rbp\n.cfi_def_cfa_offset 16\n.cfi_offset 6,-16\nmov %rsp,%rbp\n"
            ".cfi_def_cfa_register 6\ncall f\n.globl after_framed\nafter_framed: nop\n.cfi_endproc\n"
            "aligned: .cfi_startproc\n.cfi_escape 0x0f,0x3,0x76,0x78,0x6\n.cfi_escape 0x10,0x6,0x2,0x76,0x0\n"
            "call f\n.globl after_aligned\nafter_aligned: nop\n.cfi_endproc\n"
            "first: .cfi_startproc\n.cfi_undefined 16\ncall f\n.globl after_first\nafter_first: nop\n.cfi_endproc\n"
            "odd: .cfi_startproc\n.cfi_def_cfa 3,16\ncall f\n.globl after_odd\nafter_odd: nop\n.cfi_endproc\n"
            "handler: .cfi_startproc\n.cfi_signal_frame\nnop\n.globl after_handler\nafter_handler: nop\n.cfi_endproc\n"
            "bare: call f\n.globl after_bare\nafter_bare: nop\n");
    "#;

    #[test]
    fn each_way_to_leave_a_frame_is_understood_or_unknown() {
        let Some(image) = fixture::compile("gcc", SOURCE, &["-shared", "-fPIC", "-nostdlib"]) else { return };
        let tables = UnwindTables::of(&image);
        let up = UnwindRule::Up;
        let saved = CallerFrame::AboveStack(-16);
        for (name, expected) in [
            ("after_plain", up(CallerStack::AboveStack(40), saved)),
            ("after_framed", up(CallerStack::AboveFrame(16), saved)),
            ("after_aligned", up(CallerStack::StoredAboveFrame(-8), CallerFrame::AboveFrame(0))),
            ("after_first", UnwindRule::Outermost),
            ("after_odd", UnwindRule::Unknown),
            ("after_handler", UnwindRule::Signal),
            ("after_bare", UnwindRule::Unknown),
        ] {
            let address = image.definitions().find(|definition| definition.name == name).unwrap().address;
            assert_eq!(tables.rule(image.file_offset(address).unwrap()), expected, "{name}");
        }
        assert_eq!(tables.rule(0), UnwindRule::Unknown);
        assert_eq!(tables.rule(u64::MAX), UnwindRule::Unknown);
    }
}
