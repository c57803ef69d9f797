//! Finds the calls in bytes of code.
//!
//! Few bytes of code are calls of traced functions, so code is not disassembled: each byte that may
//! begin a direct call is taken for one if the call would lead to a traced function. That can be
//! wrong in the middle of another instruction, and in constants between instructions, where a probe would destroy the
//! program. Therefore control is [followed](Flow) through each function with such a place, and a place counts only if
//! control comes to a call that ends there.

use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions, FlowControl};

use crate::flow::{Flow, Joined};
use crate::text::Addresses;

/// `call rel32`
const CALL: u8 = 0xe8;
/// `call *rel32(%rip)`
const CALL_SLOT: [u8; 2] = [0xff, 0x15];
/// `jmp *rel32(%rip)`
const JUMP_SLOT: [u8; 2] = [0xff, 0x25];
/// What stands before that in a stub.
const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
/// An older prefix of that, for bounds.
const BND: u8 = 0xf2;
/// `mov $imm32, %r11d`, which one linker puts between the two.
const MOV_R11D: [u8; 2] = [0x41, 0xbb];
/// Bytes of that with its operand.
const MOV_R11D_SIZE: usize = 6;
/// Bytes of a displacement.
const REL32: usize = 4;
/// `jmp rel32`
const JUMP: u8 = 0xe9;
/// Bytes of a function that only passes its arguments on, at most.
pub const LONGEST_WRAPPER: u64 = 64;

/// The virtual address to which the displacement at this position leads, and the position behind it.
fn destination(bytes: &[u8], start: u64, position: usize) -> Option<(u64, usize)> {
    let displacement = i32::from_le_bytes(*bytes.get(position..)?.first_chunk()?);
    let end = position + REL32;
    Some((start.wrapping_add(end as u64).wrapping_add_signed(displacement.into()), end))
}

/// Sorted virtual addresses behind everything that could be a call of a target that is meant, or through such a slot.
pub fn candidates(
    bytes: &[u8],
    start: u64,
    is_target: impl Fn(u64) -> bool,
    is_slot: impl Fn(u64) -> bool,
) -> Vec<u64> {
    let mut found = Vec::new();
    for (position, &byte) in bytes.iter().enumerate() {
        let is_direct = byte == CALL;
        if !is_direct && (byte != CALL_SLOT[0] || bytes.get(position + 1) != Some(&CALL_SLOT[1])) {
            continue;
        }
        let displacement = position + if is_direct { 1 } else { CALL_SLOT.len() };
        if let Some((target, end)) = destination(bytes, start, displacement)
            && if is_direct { is_target(target) } else { is_slot(target) }
        {
            found.push(start + end as u64);
        }
    }
    found
}

/// What a function calls, and where its calls through pointers return to, all as virtual addresses.
#[derive(Debug, Default)]
pub struct Calls {
    /// Functions that it calls directly.
    pub targets: Vec<u64>,
    /// Slots through which it calls.
    pub slots: Vec<u64>,
    /// Return addresses of its calls through other pointers.
    pub behind_pointers: Vec<u64>,
}

/// The calls of a function of this code; what follows bytes that are no instruction is left out.
pub fn calls_of(code: &[u8], start: u64) -> Calls {
    let mut calls = Calls::default();
    for instruction in Decoder::with_ip(64, code, start, DecoderOptions::NONE) {
        match instruction.flow_control() {
            _ if instruction.is_invalid() => break,
            FlowControl::Call if instruction.is_call_near() => calls.targets.push(instruction.near_branch64()),
            FlowControl::IndirectCall if instruction.is_ip_rel_memory_operand() => {
                calls.slots.push(instruction.ip_rel_memory_address());
            }
            FlowControl::IndirectCall => calls.behind_pointers.push(instruction.next_ip()),
            _ => {}
        }
    }
    calls
}

/// A call that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confirmed {
    /// The virtual address behind it.
    pub behind: u64,
    /// Where others come along from there that do not make the call.
    pub joined: Joined,
}

/// Those of the sorted candidates at which a call really ends to which control comes, and after which its function goes
/// on.
///
/// `ranges` are those of the functions, sorted; `tables`: where jumps by tables lead in one of them.
pub fn confirmed(
    bytes: &[u8],
    start: u64,
    ranges: &[Range<u64>],
    candidates: &[u64],
    tables: impl Fn(&Range<u64>) -> Vec<u64>,
) -> Vec<Confirmed> {
    let mut confirmed = Vec::new();
    let mut rest = candidates;
    for range in ranges {
        rest = &rest[rest.partition_point(|&candidate| candidate <= range.start)..];
        let (within, behind) = rest.split_at(rest.partition_point(|&candidate| candidate < range.end));
        rest = behind;
        let Some(code) = bytes.get((range.start - start) as usize..).filter(|_| !within.is_empty()) else { continue };
        let code = &code[..code.len().min((range.end - range.start) as usize)];
        let mut flow = Flow::new(code, range.start);
        flow.follow(range.start);
        if flow.jumps_indirectly && within.iter().any(|candidate| !flow.calls.contains(candidate)) {
            tables(range).into_iter().for_each(|target| flow.follow(target));
        }
        flow.calls.sort_unstable();
        let loops = flow.loops();
        let calls = within.iter().copied().filter(|candidate| flow.calls.binary_search(candidate).is_ok());
        confirmed.extend(calls.map(|behind| Confirmed { behind, joined: loops.joined_behind(behind) }));
    }
    confirmed
}

/// Where a call leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Callee {
    /// To this address.
    Direct(u64),
    /// To the address in the slot at this one.
    Slot(u64),
}

/// Where the call leads that ends at this address, if it is one of the [`candidates`].
pub fn callee(bytes: &[u8], start: u64, end: u64) -> Option<Callee> {
    let displacement = usize::try_from(end.checked_sub(start)?).ok()?.checked_sub(REL32)?;
    let (target, _) = destination(bytes, start, displacement)?;
    match bytes[..displacement] {
        [.., CALL] => Some(Callee::Direct(target)),
        _ => bytes[..displacement].ends_with(&CALL_SLOT).then_some(Callee::Slot(target)),
    }
}

/// Virtual addresses at which a stub that jumps through one of the slots may be entered, each with the slot.
pub fn stubs(bytes: &[u8], start: u64, slots: &Addresses) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    for (jump, _) in bytes.windows(JUMP_SLOT.len()).enumerate().filter(|(_, window)| *window == JUMP_SLOT) {
        let leads = destination(bytes, start, jump + JUMP_SLOT.len()).filter(|(slot, _)| slots.contains(*slot));
        let Some((slot, _)) = leads else { continue };
        let before = &bytes[..jump];
        let bare = before.strip_suffix(&[BND]).unwrap_or(before);
        let numbered =
            bare.len().checked_sub(MOV_R11D_SIZE).filter(|&position| bare[position..].starts_with(&MOV_R11D));
        let landing = |position: usize| bytes[..position].strip_suffix(&ENDBR64).map(<[u8]>::len);
        let entries = [Some(jump), Some(bare.len()), landing(bare.len()), numbered.and_then(landing)];
        found.extend(entries.into_iter().flatten().map(|position| (start + position as u64, slot)));
    }
    found
}

/// What a short function jumps to at its end, if all its ways lead to what is meant: who calls it gets the return of that.
pub fn passes_on(code: &[u8], start: u64, is_target: impl Fn(u64) -> bool) -> Option<u64> {
    let jump = code.len().checked_sub(1 + REL32).filter(|&jump| code[jump] == JUMP)?;
    let (target, _) = destination(code, start, jump + 1).filter(|(target, _)| is_target(*target))?;
    let mut flow = Flow::new(code, start);
    flow.follow(start);
    let stays = flow.returns || flow.jumps_indirectly || flow.runs_off || flow.is_broken || !flow.calls.is_empty();
    (!stays && flow.leaves.iter().all(|&leads| is_target(leads))).then_some(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where the code of these tests begins, and what is called.
    const START: u64 = 0x1000;
    const CALLED: u64 = 0x1800;

    /// `call CALLED`, if it stands so many bytes behind the start.
    fn call(position: u64) -> [u8; 5] {
        let displacement = (CALLED - (START + position + 5)) as u32;
        let [a, b, c, d] = displacement.to_le_bytes();
        [CALL, a, b, c, d]
    }

    /// Where calls in this code return to, counted from its beginning: all candidates, and those that
    /// are confirmed for functions that begin and end there.
    fn returns(code: &[u8], functions: &[(u64, u64)]) -> (Vec<u64>, Vec<u64>) {
        let (targets, slots) = (Addresses::new(vec![CALLED]), Addresses::new(vec![START + 0x800]));
        let candidates = candidates(code, START, |target| targets.contains(target), |slot| slots.contains(slot));
        let ranges: Vec<_> = functions.iter().map(|(start, end)| START + start..START + end).collect();
        let confirmed = confirmed(code, START, &ranges, &candidates, |_| Vec::new());
        let place = |address: Vec<u64>| address.into_iter().map(|address| address - START).collect();
        (place(candidates), place(confirmed.into_iter().map(|call| call.behind).collect()))
    }

    #[test]
    fn a_call_within_another_instruction_is_none() {
        // movabs $..., %rax; ret
        let code = [&[0x48, 0xb8][..], &call(2), &[0, 0, 0, 0xc3]].concat();
        assert_eq!(returns(&code, &[(0, 11)]), (vec![7], vec![]));
        // nop; nop; the call; ret
        let code = [&[0x90, 0x90][..], &call(2), &[0xc3]].concat();
        assert_eq!(returns(&code, &[(0, 8)]), (vec![7], vec![7]));
    }

    #[test]
    fn a_call_that_ends_its_function_does_not_return() {
        let code = [&call(0)[..], &[0x90], &call(6), &[0xc3]].concat();
        assert_eq!(returns(&code, &[(0, 5), (6, 12)]), (vec![5, 11], vec![11]));
        assert_eq!(returns(&code, &[(6, 12)]), (vec![5, 11], vec![11]), "nothing is known of the first bytes");
        assert_eq!(returns(&code, &[]), (vec![5, 11], vec![]));
    }

    #[test]
    fn a_call_among_constants_is_none() {
        // jmp 7; constants that read as a call; 7: the call; ret
        let code = [&[0xeb, 0x05][..], &call(2), &call(7), &[0xc3]].concat();
        assert_eq!(returns(&code, &[(0, 13)]), (vec![7, 12], vec![12]));
    }

    #[test]
    fn nothing_is_confirmed_behind_data() {
        // A call; 06 is no instruction; a call.
        let code = [&call(0)[..], &[0x06], &call(6), &[0xc3]].concat();
        assert_eq!(returns(&code, &[(0, 12)]), (vec![5, 11], vec![5]));
    }

    #[test]
    fn calls_through_slots_and_truncated_ones() {
        // call *0x7fa(%rip); bnd call CALLED; addr32 call CALLED; call
        let slot = [0xff, 0x15, 0xfa, 0x07, 0, 0];
        let code = [&slot[..], &[BND], &call(7), &[0x67], &call(13), &[CALL, 0, 0]].concat();
        assert_eq!(returns(&code, &[(0, code.len() as u64)]), (vec![6, 12, 18], vec![6, 12, 18]));
        let callees = [6, 12, 18].map(|end| callee(&code, START, START + end));
        let expected = [Callee::Slot(START + 0x800), Callee::Direct(CALLED), Callee::Direct(CALLED)];
        assert_eq!(callees, expected.map(Some));
        assert_eq!((callee(&code, START, START + 3), callee(&code, START, START + 7)), (None, None));
    }

    #[test]
    fn wrappers_pass_a_call_on() {
        let jump = |position: u64| [&[JUMP], &call(position)[1..]].concat();
        let target = |code: &[u8]| passes_on(code, START, |target| target == CALLED);
        let clear = [0x31, 0xc0];
        assert_eq!(target(&[&clear[..], &jump(2)].concat()), Some(CALLED));
        assert_eq!(passes_on(&jump(0), START, |_| false), None);
        // je 4; xor; 4: jmp CALLED
        assert_eq!(target(&[&[0x74, 2], &clear[..], &jump(4)].concat()), Some(CALLED));
        // je 3; ret; 3: jmp CALLED
        assert_eq!(target(&[&[0x74, 1, 0xc3][..], &jump(3)].concat()), None, "it may return itself");
        // je behind it; jmp CALLED
        assert_eq!(target(&[&[0x74, 5][..], &jump(2)].concat()), None, "it may go elsewhere");
        assert_eq!(target(&[&call(0)[..], &jump(5)].concat()), None, "what it calls returns before");
    }

    #[test]
    fn stubs_of_all_linkers() {
        let slots = Addresses::new(vec![START + 0x100]);
        let stub = |before: &[u8], slot: u64| {
            let displacement = (slot - (START + before.len() as u64 + 6)) as u32;
            [before, &JUMP_SLOT, &displacement.to_le_bytes()].concat()
        };
        let entries = |before: &[u8]| -> Vec<u64> {
            let mut entries = stubs(&stub(before, START + 0x100), START, &slots);
            entries.sort_unstable();
            entries.dedup();
            assert!(entries.iter().all(|&(_, slot)| slot == START + 0x100));
            entries.iter().map(|(entry, _)| entry - START).collect()
        };
        assert_eq!(entries(&[]), [0]);
        assert_eq!(entries(&ENDBR64), [0, 4]);
        assert_eq!(entries(&[&ENDBR64[..], &[BND]].concat()), [0, 4, 5]);
        assert_eq!(entries(&[&ENDBR64[..], &MOV_R11D, &[1, 0, 0, 0]].concat()), [0, 10]);
        assert_eq!(stubs(&stub(&ENDBR64, START + 0x108), START, &slots), []);
    }
}
