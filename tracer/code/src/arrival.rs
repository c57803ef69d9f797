//! Where a call is seen to have returned: at a probe in its caller.
//!
//! The caller continues at the call's return address. The probe sits there, or further down the
//! straight line from there, at the first instruction that the kernel emulates. A single step costs
//! several times as much. A caller that only returns from there needs no probe: its own return tells
//! the same, a few instructions later.
//!
//! Nothing here reads a file or a process: these are functions of bytes.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic};
use rtrace_model::{HeldBytes, MOST_MOVED};

use crate::copies::{Copies, writes_memory};
use crate::instruction::{Emulation, Handling, SiteCost, accesses_beside_stack, may_fault};
use crate::stack::Stack;

/// Instructions between a return address and its probe, at most: a few nanoseconds.
const MOST_INSTRUCTIONS: usize = 20;
/// Bytes of the shortest and of the longest call instruction without needless prefixes.
const CALL_LENGTHS: std::ops::RangeInclusive<usize> = 2..=7;
/// Bytes of a word of the stack.
const WORD: i32 = 8;
/// The number of the register of results.
const RAX: u8 = 0;

/// What must still be as it was where a return is seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keeps {
    /// No memory beside the stack has been accessed, as accesses are counted.
    pub accesses: bool,
    /// Some register holds so many low bytes of what the function returned: 0, 4 or 8.
    pub result: u8,
    /// Memory is as the function left it.
    pub memory: bool,
}

impl Keeps {
    /// All that can be read of a call when it has returned.
    pub const READABLE: Keeps = Keeps { accesses: false, result: 8, memory: true };

    /// What either of two needs.
    #[must_use]
    pub fn or(self, other: Keeps) -> Keeps {
        Keeps {
            accesses: self.accesses || other.accesses,
            result: self.result.max(other.result),
            memory: self.memory || other.memory,
        }
    }

    /// What both of them need.
    #[must_use]
    pub fn and(self, other: Keeps) -> Keeps {
        Keeps {
            accesses: self.accesses && other.accesses,
            result: self.result.min(other.result),
            memory: self.memory && other.memory,
        }
    }
}

/// Where a call that returns to an address is seen to have returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// At this probe.
    Site(ReturnProbe),
    /// Where its caller returns: the caller does nothing else from there.
    Skip {
        /// Words from the slot of the call's return address up to the slot of the caller's own; 1 where the
        /// return address is that of a `ret`.
        words: u32,
    },
    /// Nowhere: no probe can be placed.
    Impossible,
    /// Never: with the call the code of its caller ends, so that it does not return.
    Never,
}

/// A probe that sees the returns to one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReturnProbe {
    /// Bytes from the return address to the probed instruction.
    pub distance: u8,
    /// What the instructions in between add to the stack pointer, in words of 8 bytes: positive where they
    /// pop. The slot of the call's return address is `words + 1` words below the stack pointer at the
    /// probe. [`MOST_MOVED`] at most, up or down.
    pub words: i32,
    /// [`SiteCost::Emulated`] or [`SiteCost::SingleStep`].
    pub cost: SiteCost,
    /// Where what the function returned in `rax` is at the probe.
    pub result: Option<HeldBytes>,
    /// Something may have been stored in between.
    pub is_stored: bool,
}

/// Where calls that return to an address are seen to have returned.
///
/// `code`: the code from the return address on, about 128 bytes or up to the end of the caller's.
pub fn arrival(code: &[u8], emulation: &Emulation, keeps: Keeps) -> Arrival {
    if code.is_empty() {
        return Arrival::Never;
    }
    let emulation = Emulation { steps: false, ..*emulation };
    let mut decoder = Decoder::with_ip(64, code, 0, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    let (mut emulated, mut stepped) = (None, None);
    let mut stack = Stack::ENTRY;
    let (mut only_rises, mut is_stored) = (true, false);
    let mut copies = Copies::new();
    let mut info = InstructionInfoFactory::new();
    for _ in 0..MOST_INSTRUCTIONS {
        let Some(words) = stack.pointer.and_then(raised) else { break };
        let Ok(distance) = u8::try_from(decoder.position()) else { break };
        if !decoder.can_decode() {
            break;
        }
        decoder.decode_out(&mut instruction);
        if instruction.is_invalid() {
            break;
        }
        // A word pushed on the way would be what it returns to. Who is returned to finds the result in `rax`.
        let has_result = keeps.result == 0 || copies.place(RAX, keeps.result) == Some(RAX);
        if instruction.mnemonic() == Mnemonic::Ret && instruction.op_count() == 0 && only_rises && has_result {
            return Arrival::Skip { words: words.unsigned_abs() + 1 };
        }
        let site = |cost| ReturnProbe { distance, words, cost, result: copies.result(), is_stored };
        match emulation.handling(&code[usize::from(distance)..decoder.position()]) {
            Handling::Emulated => emulated = emulated.or(Some(site(SiteCost::Emulated))),
            Handling::SingleStep => stepped = stepped.or(Some(site(SiteCost::SingleStep))),
            Handling::BpfEmulated(_) | Handling::Refused(_) => {}
        }
        // What may fault is passed only where the kernel takes no probe on it: a wait in between is the lesser evil.
        let has_site = emulated.or(stepped).is_some();
        if !is_passed(&instruction) || (has_site && may_fault(&mut info, &instruction)) {
            break;
        }
        let before = stack.pointer;
        stack = stack.after(&instruction);
        only_rises &= stack.pointer <= before;
        // It may have written to the slot, which tells a return from a call that was left.
        let writes_memory = writes_memory(&mut info, &instruction);
        let may_write_slot = stack.pointer.is_none_or(|depth| depth > 0) && writes_memory;
        is_stored |= writes_memory;
        copies.follow(&mut info, &instruction);
        if may_write_slot
            || (keeps.accesses && accesses_beside_stack(&mut info, &instruction))
            || (keeps.memory && writes_memory)
            || (keeps.result > 0 && copies.place(RAX, keeps.result).is_none())
        {
            break;
        }
    }
    emulated.or(stepped).map_or(Arrival::Impossible, Arrival::Site)
}

/// The probe at the return address itself, which nothing but returns comes to; none where the kernel takes
/// none there. Arguments as for [`arrival`].
pub fn at_return_address(code: &[u8], emulation: &Emulation) -> Option<ReturnProbe> {
    let emulation = Emulation { steps: false, ..*emulation };
    let length = Decoder::with_ip(64, code, 0, DecoderOptions::NONE).decode().len();
    let cost = match emulation.handling(code.get(..length)?) {
        Handling::Emulated => SiteCost::Emulated,
        Handling::SingleStep => SiteCost::SingleStep,
        Handling::BpfEmulated(_) | Handling::Refused(_) => return None,
    };
    Some(ReturnProbe { distance: 0, words: 0, cost, result: Copies::new().result(), is_stored: false })
}

/// Whether a function of this code may return what one that it calls has returned, because it only returns then.
pub fn passes_on(code: &[u8]) -> bool {
    let mut decoder = Decoder::with_ip(64, code, 0, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        let is_call = matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall);
        let behind = || arrival(&code[decoder.position()..], &Emulation::default(), Keeps::READABLE);
        if instruction.is_invalid() || (is_call && matches!(behind(), Arrival::Skip { .. })) {
            return true;
        }
    }
    false
}

/// Whether an instruction that calls ends where this code does.
pub fn is_return_address(before: &[u8]) -> bool {
    calls_that_end(before).next().is_some()
}

/// All calls that may be what ends where this code does. Prefixes are left out.
fn calls_that_end(before: &[u8]) -> impl Iterator<Item = Instruction> {
    let lengths = CALL_LENGTHS.filter_map(|length| before.len().checked_sub(length));
    lengths.filter_map(|start| {
        let instruction = Decoder::new(64, &before[start..], DecoderOptions::NONE).decode();
        let ends_there = start + instruction.len() == before.len();
        (ends_there && instruction.mnemonic() == Mnemonic::Call).then_some(instruction)
    })
}

/// Words that the stack pointer has risen by where it is so many bytes above a slot; none where that is no number
/// of words, or more than [`MOST_MOVED`].
fn raised(depth: i32) -> Option<i32> {
    let words = depth.checked_neg()? / WORD;
    (depth % WORD == 0 && words.unsigned_abs() <= MOST_MOVED).then_some(words)
}

/// Whether the instruction behind this one follows at once, unless this one faults.
fn is_passed(instruction: &Instruction) -> bool {
    let takes_long =
        instruction.is_string_instruction() && (instruction.has_rep_prefix() || instruction.has_repne_prefix());
    instruction.flow_control() == FlowControl::Next && !takes_long && !instruction.is_privileged()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KERNEL: Emulation = Emulation { long_nops: true, steps: true };
    const CALL: [u8; 5] = [0xe8, 0x10, 0x20, 0x00, 0x00];
    const NOP5: [u8; 5] = [0x0f, 0x1f, 0x44, 0x00, 0x00];
    const EMULATED: SiteCost = SiteCost::Emulated;
    const STEPPED: SiteCost = SiteCost::SingleStep;

    fn site(distance: u8, words: i32, cost: SiteCost) -> Arrival {
        Arrival::Site(ReturnProbe { distance, words, cost, result: None, is_stored: false })
    }

    /// Behind a direct call, without where the result is.
    fn behind(code: &[u8]) -> Arrival {
        place(arrival(code, &KERNEL, Keeps::default()))
    }

    fn place(arrival: Arrival) -> Arrival {
        match arrival {
            Arrival::Site(ReturnProbe { distance, words, cost, .. }) => site(distance, words, cost),
            other => other,
        }
    }

    #[test]
    fn a_site_moves_to_what_is_emulated() {
        assert_eq!(behind(&[0x85, 0xc0, 0x74, 0x10]), site(2, 0, EMULATED)); // test eax,eax; je
        assert_eq!(behind(&[0x74, 0x10, 0x90]), site(0, 0, EMULATED)); // je; nop
        assert_eq!(behind(&[0x48, 0x89, 0xc7, 0xe8, 0, 0, 0, 0]), site(3, 0, EMULATED)); // mov rdi,rax; call
        // add rsp,16; jmp: what the call had pushed was taken away
        assert_eq!(behind(&[0x48, 0x83, 0xc4, 0x10, 0xe9, 0, 0, 0, 0]), site(4, 2, EMULATED));
        assert_eq!(behind(&[0x48, 0x83, 0xec, 0x08, 0x53]), site(4, -1, EMULATED)); // sub rsp,8; push rbx
        assert_eq!(behind(&[0x5b, 0x48, 0x8d, 0x64, 0x24, 0x08, 0xeb, 0]), site(6, 2, EMULATED)); // pop; lea rsp,[rsp+8]; jmp
        // vzeroupper, which no probe can be placed on, is passed.
        assert_eq!(behind(&[0xc5, 0xf8, 0x77, 0x74, 0]), site(3, 0, EMULATED));
        // So is the check of a stack protector.
        let check = [0x64, 0x48, 0x2b, 0x04, 0x25, 0x28, 0, 0, 0, 0x75, 0x10];
        assert_eq!(behind(&check), site(9, 0, EMULATED));
        // An access that may fault is passed where no probe can be on it.
        assert_eq!(behind(&[0xf0, 0xff, 0x0b, 0x74, 0]), site(3, 0, EMULATED)); // lock dec dword [rbx]; je
        assert_eq!(behind(&[0xc5, 0xfb, 0x10, 0x03, 0x74, 0]), site(4, 0, EMULATED)); // vmovsd xmm0,[rbx]; je
        assert_eq!(behind(&[0x8b, 0x03, 0xf0, 0xff, 0x0b, 0x74, 0]), site(0, 0, STEPPED)); // mov eax,[rbx]; lock …
    }

    #[test]
    fn nothing_returns_to_where_the_code_of_the_caller_ends() {
        assert_eq!(behind(&[]), Arrival::Never);
    }

    #[test]
    fn a_site_is_stepped_where_nothing_is_emulated() {
        assert_eq!(behind(&[0x31, 0xc0, 0xff, 0xd3]), site(0, 0, STEPPED)); // xor eax,eax; call rbx
        assert_eq!(behind(&[0xff, 0x25, 0, 0, 0, 0]), site(0, 0, STEPPED)); // jmp [rip]
        assert_eq!(behind(&[0xc9, 0xc3]), site(0, 0, STEPPED)); // leave; ret
        assert_eq!(behind(&[0xc5, 0xf8, 0x77, 0x31, 0xc0, 0xff, 0xd3]), site(3, 0, STEPPED)); // vzeroupper; xor; call rbx
        assert_eq!(behind(&[0x31, 0xc0]), site(0, 0, STEPPED)); // xor, and no more is known
        assert_eq!(behind(&[0x31, 0xc0].repeat(30)), site(0, 0, STEPPED));
        let other = arrival(&[0x0f, 0x1f, 0x00, 0xff, 0xe0], &Emulation::default(), Keeps::default());
        assert_eq!(place(other), site(0, 0, STEPPED)); // nop3; jmp rax
    }

    #[test]
    fn a_site_never_moves_past_what_takes_long_or_hides_the_stack() {
        let jump = [0xeb, 0];
        let passed = |code: &[u8]| behind(&[code, &jump].concat()) != site(0, 0, STEPPED);
        assert!(passed(&[0x89, 0x04, 0x24])); // mov [rsp],eax
        assert!(!passed(&[0x48, 0x83, 0xec, 0x10, 0x48, 0x89, 0x44, 0x24, 0x08])); // sub rsp,16; mov [rsp+8],rax
        assert!(passed(&[0x48, 0x83, 0xec, 0x10, 0x39, 0x44, 0x24, 0x08])); // sub rsp,16; cmp [rsp+8],eax
        assert!(!passed(&[0x48, 0xa5])); // movsq
        assert!(!passed(&[0x8b, 0x03])); // mov eax,[rbx]
        assert!(!passed(&[0xf7, 0xf3])); // div ebx
        assert!(passed(&[0x8b, 0x05, 0, 0, 0, 0])); // mov eax,[rip]
        assert!(passed(&[0x8b, 0x45, 0xf8])); // mov eax,[rbp-8]
        assert!(!passed(&[0xf3, 0x48, 0xa5])); // rep movsq
        assert!(!passed(&[0xf2, 0xae])); // repne scasb
        assert!(!passed(&[0x48, 0x89, 0xc4])); // mov rsp,rax
        assert!(!passed(&[0x48, 0x83, 0xe4, 0xe0])); // and rsp,-32
        assert!(!passed(&[0x48, 0x83, 0xc4, 0x04])); // add rsp,4
        assert!(!passed(&[0x48, 0x81, 0xec, 0, 0, 0x10, 0])); // sub rsp,1048576
        for refused in [&[0x0f, 0x05][..], &[0xcc], &[0x0f, 0x0b], &[0xf4], &[0x06], &[0x9c]] {
            assert_eq!(behind(&[refused, &jump].concat()), Arrival::Impossible, "{refused:x?}");
        }
    }

    #[test]
    fn a_site_never_moves_past_an_access_that_is_counted() {
        let keeps = Keeps { accesses: true, ..Keeps::default() };
        let arrival = |code: &[u8]| place(arrival(code, &KERNEL, keeps));
        // mov dword [rip+…],-1; call: the store is the caller's
        assert_eq!(arrival(&[0xc7, 0x05, 0, 0, 0, 0, 255, 255, 255, 255, 0xe8, 0, 0, 0, 0]), site(0, 0, STEPPED));
        assert_eq!(arrival(&[0x89, 0x44, 0x24, 0x08, 0xe8, 0, 0, 0, 0]), site(4, 0, EMULATED)); // mov [rsp+8],eax; call
    }

    #[test]
    fn a_site_never_moves_past_what_overwrites_the_result() {
        let arrival = |code: &[u8]| place(arrival(code, &KERNEL, Keeps { result: 8, ..Keeps::default() }));
        assert_eq!(arrival(&[0x85, 0xc0, 0x74, 0x10]), site(2, 0, EMULATED)); // test eax,eax; je
        assert_eq!(arrival(&[0x31, 0xc0, 0x53]), site(0, 0, STEPPED)); // xor eax,eax; push rbx
        assert_eq!(arrival(&[0x89, 0xc3, 0xb0, 1, 0x53]), site(0, 0, STEPPED)); // mov ebx,eax; mov al,1; push rbx
        assert_eq!(arrival(&[0x58, 0xc3]), site(0, 0, STEPPED)); // pop rax; ret
        assert_eq!(arrival(&[0x48, 0x83, 0xc4, 0x08, 0xc3]), Arrival::Skip { words: 2 }); // add rsp,8; ret
        assert_eq!(arrival(&[0xb8, 1, 0, 0, 0, 0xc3]), site(0, 0, STEPPED)); // mov eax,1; ret
        assert_eq!(arrival(&[0x48, 0x98, 0xc3]), site(0, 0, STEPPED)); // cdqe; ret
        // mov rbx,rax; xor eax,eax; ret: who is returned to finds another result
        assert_eq!(arrival(&[0x48, 0x89, 0xc3, 0x31, 0xc0, 0xc3]), site(0, 0, STEPPED));
    }

    #[test]
    fn a_result_is_found_where_it_was_copied_to() {
        let result = |code: &[u8], bytes| match arrival(code, &KERNEL, Keeps { result: bytes, ..Keeps::default() }) {
            Arrival::Site(site) => (site.distance, site.result.map(|held| (held.register, held.bytes))),
            other => panic!("{other:?}"),
        };
        let copied = [0x48, 0x89, 0xc3, 0x31, 0xc0, 0x74, 0]; // mov rbx,rax; xor eax,eax; je
        assert_eq!(result(&copied, 8), (5, Some((3, 8))));
        assert_eq!(result(&copied, 4), (5, Some((3, 8))));
        let half = [0x89, 0xc3, 0x31, 0xc0, 0x74, 0]; // mov ebx,eax; xor eax,eax; je
        assert_eq!(result(&half, 8), (0, Some((0, 8))));
        assert_eq!(result(&half, 4), (4, Some((3, 4))));
        assert_eq!(result(&half, 0), (4, Some((3, 4))));
        assert_eq!(result(&[0x48, 0x98, 0x74, 0], 4), (2, Some((0, 4)))); // cdqe; je
        assert_eq!(result(&[0x31, 0xc0, 0x74, 0], 0), (2, None)); // xor eax,eax; je
        assert_eq!(result(&[0x0f, 0xb6, 0xd8, 0x31, 0xc0, 0x74, 0], 0), (5, None)); // movzx ebx,al; xor eax,eax; je
    }

    #[test]
    fn a_site_never_moves_past_a_store_where_memory_is_read() {
        let arrival =
            |memory| match arrival(&[0x48, 0x89, 0x45, 0xf8, 0x74, 0], &KERNEL, Keeps { memory, ..Keeps::default() }) {
                Arrival::Site(site) => (site.distance, site.is_stored),
                other => panic!("{other:?}"),
            };
        assert_eq!((arrival(true), arrival(false)), ((0, false), (4, true))); // mov [rbp-8],rax; je
    }

    #[test]
    fn no_site_is_on_a_nop_that_becomes_a_call() {
        for nop in [&NOP5[..], &[0x66, 0x66, 0x66, 0x66, 0x90], &[0x0f, 0x1f, 0x44, 0x20, 0x00]] {
            for kernel in [KERNEL, Emulation::default()] {
                let code = [nop, &[0x53]].concat();
                assert_eq!(place(arrival(&code, &kernel, Keeps::default())), site(5, 0, EMULATED), "{nop:x?}");
            }
        }
    }

    #[test]
    fn a_caller_that_only_returns_is_skipped() {
        let words = |code: &[u8]| match behind(code) {
            Arrival::Skip { words } => Some(words),
            _ => None,
        };
        assert_eq!(words(&[0xc3]), Some(1));
        assert_eq!(words(&[0xf3, 0xc3]), Some(1)); // rep ret
        assert_eq!(words(&[0xc2, 0x08, 0x00]), None); // ret 8
        assert_eq!(words(&[0x48, 0x83, 0xc4, 0x08, 0xc3]), Some(2)); // add rsp,8; ret
        // mov eax,1; add rsp,24; pop rbx; pop rbp; ret
        assert_eq!(words(&[0xb8, 1, 0, 0, 0, 0x48, 0x83, 0xc4, 0x18, 0x5b, 0x5d, 0xc3]), Some(6));
        assert_eq!(words(&[&NOP5[..], &[0x5b, 0xc3]].concat()), Some(2));
        assert_eq!(words(&[0x50, 0xc3]), None); // push rax; ret
        assert_eq!(words(&[0x48, 0x83, 0xc4, 0x10, 0x50, 0xc3]), None); // add rsp,16; push rax; ret
        assert_eq!(words(&[0xc9, 0xc3]), None); // leave; ret
        assert_eq!(words(&[0x74, 0x00, 0xc3]), None); // je; ret
        assert_eq!(words(&[0xcb]), None); // a far return
    }

    #[test]
    fn a_function_that_only_returns_passes_a_result_on() {
        assert!(passes_on(&[&[0x53][..], &CALL, &[0x5b, 0xc3]].concat())); // push rbx; call; pop rbx; ret
        assert!(passes_on(&[0xff, 0xd0, 0xc3])); // call rax; ret
        assert!(!passes_on(&[&CALL[..], &[0x31, 0xc0, 0xc3]].concat())); // call; xor eax,eax; ret
        assert!(!passes_on(&[0x31, 0xc0, 0xc3])); // xor eax,eax; ret
        assert!(passes_on(&[0x06, 0xc3])); // nobody knows what it does
    }

    #[test]
    fn calls_are_known_by_the_bytes_that_end_them() {
        let fixed: [&[u8]; 5] = [
            &CALL,
            &[0x66, 0x66, 0x48, 0xe8, 0, 0, 0, 0],                   // data16 call
            &[0x67, 0xe8, 0, 0, 0, 0],                               // addr32 call
            &[0xff, 0x15, 0x10, 0x20, 0, 0],                         // call [rip+…]
            &[0x31, 0xc0, 0x90, 0xf2, 0xff, 0x15, 0x10, 0x20, 0, 0], // bnd call [rip+…]
        ];
        for code in fixed {
            assert!(is_return_address(code), "{code:x?}");
        }
        let varying: [&[u8]; 11] = [
            &[0xff, 0xd0],                                     // call rax
            &[0x41, 0xff, 0xd4],                               // call r12
            &[0x3e, 0xff, 0xd0],                               // notrack call rax
            &[0xff, 0x50, 0x18],                               // call [rax+24]
            &[0xff, 0x54, 0x24, 0x08],                         // call [rsp+8]
            &[0xff, 0x14, 0xc6],                               // call [rsi+rax*8]
            &[0xff, 0x92, 0xe8, 0x10, 0, 0],                   // call [rdx+0x10e8]
            &[0xff, 0x94, 0xe8, 0x10, 0x20, 0, 0],             // call [rax+rbp*8+…]: ends as a direct call does
            &[0xff, 0x14, 0xc5, 0x10, 0x20, 0, 0],             // call [rax*8+…]
            &[0x48, 0x8d, 0x7d, 0xe8, 0x89, 0xde, 0xff, 0xd0], // lea rdi,[rbp-24]; mov esi,ebx; call rax
            &[0xff, 0x15, 0x10, 0x20, 0xff, 0xd0],             // the end of something; call rax
        ];
        for code in varying {
            assert!(is_return_address(code), "{code:x?}");
        }
        let none: [&[u8]; 6] =
            [&[], &[0xe8], &[0xe9, 0, 0, 0, 0], &[0xff, 0xe0], &[0xff, 0x25, 0, 0, 0, 0], &[0x0f, 0x05]];
        for code in none {
            assert!(!is_return_address(code), "{code:x?}");
        }
    }
}
