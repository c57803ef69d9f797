//! Functions that execute their first instruction again without being called again.
//!
//! A loop may begin there: each lap hits a probe on it. [`restarts`] says of which functions this is true.
//!
//! A Go function begins with a look at how much of its stack is left. Where that is too little it
//! has its stack moved to a larger place and begins anew, so its first instruction is executed twice by one
//! call. The instruction behind the check is executed once: it makes the frame, so that no loop begins there.

use std::ops::Range;

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

use crate::obstacle::Obstacle;
use crate::stack::Stack;
use crate::tails;
use crate::text::{FunctionCode, Text, branch_target};

/// Instructions of a check, at most.
const LONGEST_CHECK: usize = 8;
/// Instructions that save arguments, have the stack moved, and load arguments, at most.
const LONGEST_RESTART: usize = 64;

/// Whether a function comes back to its first instruction without another call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restarts {
    /// None of its jumps leads there.
    Never,
    /// A loop begins there, or the function calls itself by a jump: both look the same. An instruction that repeats
    /// itself is such a loop: the kernel steps each repetition, which hits the probe again.
    ByJump,
    /// It has jumps whose targets are not known.
    Unknown,
}

/// Whether jumps of a function, or of its parts elsewhere, lead back to its first instruction. A jump through a pointer
/// counts as a call of what the pointer names.
pub fn restarts(text: &Text, function: FunctionCode) -> Restarts {
    let repeats =
        |first: Instruction| first.is_string_instruction() && (first.has_rep_prefix() || first.has_repne_prefix());
    if text.instruction(function.entry).is_some_and(repeats) {
        return Restarts::ByJump;
    }
    let is_function = |address| address == function.entry || text.is_entry(address);
    match text.extent(function).and_then(|extent| tails::followed(text, extent, &is_function)) {
        None => Restarts::Unknown,
        Some(followed) if followed.reached.contains(&function.entry) => Restarts::ByJump,
        Some(_) => Restarts::Never,
    }
}

/// The part of a Go function that each call begins to execute once: all of it, or what follows its check.
///
/// # Errors
/// Why that is not known.
pub fn once(text: &Text, function: FunctionCode) -> Result<FunctionCode, Obstacle> {
    let extent = text.extent(function).ok_or(Obstacle::GoSize)?;
    let bytes = text.code(&extent).filter(|bytes| text.spend(bytes.len())).ok_or(Obstacle::GoCode)?;
    let (mut restarts, mut entered) = (Vec::new(), u64::MAX);
    for instruction in &mut Decoder::with_ip(64, bytes, extent.start, DecoderOptions::NONE) {
        if instruction.is_invalid() {
            return Err(Obstacle::GoCode);
        }
        match branch_target(&instruction) {
            Some(target) if target == extent.start => restarts.push(instruction.ip()),
            Some(target) if target > extent.start => entered = entered.min(target),
            _ => {}
        }
    }
    if restarts.is_empty() {
        return Ok(function);
    }
    let (start, restart) = check(text, &extent).ok_or(Obstacle::GoRepeated)?;
    let another = text.entries_from(extent.start + 1).first().is_some_and(|&entry| entry <= start);
    let is_only_restart = restarts == [restart] && start < entered && !another;
    let code = FunctionCode { entry: start, size: extent.end.saturating_sub(start) };
    if is_only_restart { Ok(code) } else { Err(Obstacle::GoRepeated) }
}

/// The instruction behind the check at the beginning of a function, and the jump back to there.
fn check(text: &Text, extent: &Range<u64>) -> Option<(u64, u64)> {
    let mut address = extent.start;
    let mut found: Option<(u64, u64)> = None;
    for _ in 0..LONGEST_CHECK {
        let instruction = text.instruction(address)?;
        address = instruction.next_ip();
        if matches!(instruction.mnemonic(), Mnemonic::Jb | Mnemonic::Jbe) {
            let slow = branch_target(&instruction)?;
            if found.is_some_and(|(_, known)| known != slow) {
                return None;
            }
            found = Some((address, slow));
        } else if !only_compares(&instruction) {
            break;
        }
    }
    let (start, slow) = found.filter(|(_, slow)| extent.contains(slow))?;
    let makes_frame = Stack::ENTRY.after(&text.instruction(start)?).pointer.is_some_and(|depth| depth > 0);
    makes_frame.then_some((start, restart(text, slow, extent)?))
}

/// Whether an instruction changes nothing but registers that a check may use.
fn only_compares(instruction: &Instruction) -> bool {
    let to_register = || {
        let register = instruction.op0_register().full_register();
        instruction.op0_kind() == OpKind::Register && !matches!(register, Register::RSP | Register::RBP)
    };
    match instruction.mnemonic() {
        Mnemonic::Cmp => true,
        Mnemonic::Mov | Mnemonic::Lea | Mnemonic::Sub => to_register(),
        _ => false,
    }
}

/// The jump to the beginning at the end of the code from `slow` on, which calls something before.
fn restart(text: &Text, slow: u64, extent: &Range<u64>) -> Option<u64> {
    let mut address = slow;
    let mut has_called = false;
    for _ in 0..LONGEST_RESTART {
        let instruction = text.instruction(address)?;
        match instruction.flow_control() {
            FlowControl::Next => {}
            FlowControl::Call => has_called |= instruction.code() == Code::Call_rel32_64,
            FlowControl::UnconditionalBranch => {
                return (has_called && branch_target(&instruction) == Some(extent.start)).then_some(address);
            }
            _ => return None,
        }
        address = instruction.next_ip();
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::testing::{BASE, compile, image};

    #[test]
    fn jumps_back_to_the_first_instruction_are_known() {
        let restarts = |code: &[u8]| {
            let image = image(code);
            restarts(&Text::new(&image, vec![BASE]), FunctionCode { entry: BASE, size: code.len() as u64 })
        };
        assert_eq!(restarts(&[0x48, 0xff, 0xc8, 0x75, 0xfb, 0xc3]), Restarts::ByJump); // 0: dec rax; jne 0; ret
        assert_eq!(restarts(&[0x90, 0x48, 0xff, 0xc8, 0x75, 0xfb, 0xc3]), Restarts::Never); // nop; 1: dec rax; jne 1
        assert_eq!(restarts(&[0x85, 0xff, 0x74, 0x01, 0xc3, 0xeb, 0xf9]), Restarts::ByJump); // test; je 5; ret; 5: jmp 0
        assert_eq!(restarts(&[0xf3, 0xaa, 0xc3]), Restarts::ByJump); // rep stosb; ret
        assert_eq!(restarts(&[0xf2, 0x48, 0xaf, 0xc3]), Restarts::ByJump); // repne scasq; ret
        assert_eq!(restarts(&[0xaa, 0xf3, 0xc3]), Restarts::Never); // stosb; rep ret
        assert_eq!(restarts(&[0x48, 0x8b, 0x07, 0xff, 0x20]), Restarts::Never); // mov rax,[rdi]; jmp [rax]
        assert_eq!(restarts(&[0x48, 0x01, 0xf8, 0xff, 0xe0]), Restarts::Unknown); // add rax,rdi; jmp rax
    }

    #[test]
    fn compiled_loops_that_begin_functions_are_known() {
        let code = "struct n { struct n *next; };
            struct n *last(struct n *p) { while (p->next) p = p->next; return p; }
            void drain(volatile long *p) { while (--*p) ; }
            long plain(long x) { return x + 1; }
            long sum(const long *p, long n) { long s = 0; for (long i = 0; i < n; i++) s += p[i]; return s; }";
        let Some(image) = compile("c", code, &["-shared", "-fPIC", "-fcf-protection=none"]) else { return };
        let functions = image.exports().unwrap().functions;
        let text = Text::new(&image, functions.iter().map(|function| function.address).collect());
        for (name, expected) in [
            ("last", Restarts::ByJump),
            ("drain", Restarts::ByJump),
            ("plain", Restarts::Never),
            ("sum", Restarts::Never),
        ] {
            let function = functions.iter().find(|function| function.name == name).unwrap();
            let code = FunctionCode { entry: function.address, size: function.size };
            assert_eq!(restarts(&text, code), expected, "{name}");
        }
    }

    /// Where the only execution of this code begins that a call makes, in bytes from its beginning.
    fn begins(code: &[u8]) -> Result<u64, Obstacle> {
        let image = image(code);
        let function = FunctionCode { entry: BASE, size: code.len() as u64 };
        once(&Text::new(&image, vec![BASE]), function).map(|code| code.entry - BASE)
    }

    /// What has the stack moved and jumps to the beginning, so many bytes behind it.
    fn restart(behind: usize) -> Vec<u8> {
        let jump = -(behind as i32 + 5 + 5);
        [&[0xe8, 0, 0x10, 0, 0, 0xe9][..], &jump.to_le_bytes()].concat()
    }

    /// A check, the bytes of a body, and the restart, to which the jumps lead that end at these positions.
    fn function(check: &[u8], jumps: &[usize], body: &[u8]) -> Vec<u8> {
        let mut code = [check, body].concat();
        let slow = code.len();
        for &end in jumps {
            code[end - 1] = (slow - end) as u8;
        }
        code.extend(restart(slow));
        code
    }

    /// `sub rsp,0x60; add rsp,0x60; ret`
    const BODY: [u8; 9] = [0x48, 0x83, 0xec, 0x60, 0x48, 0x83, 0xc4, 0x60, 0xc3];
    /// `cmp rsp,[r14+0x10]; jbe`
    const SMALL: [u8; 6] = [0x49, 0x3b, 0x66, 0x10, 0x76, 0];

    #[test]
    fn a_call_begins_once_behind_the_check() {
        assert_eq!(begins(&function(&SMALL, &[6], &BODY)), Ok(6));
        // lea r12,[rsp-0x78]; cmp r12,[r14+0x10]; jbe
        let medium = [0x4c, 0x8d, 0x64, 0x24, 0x88, 0x4d, 0x3b, 0x66, 0x10, 0x76, 0];
        assert_eq!(begins(&function(&medium, &[11], &BODY)), Ok(11));
        // mov r12,rsp; sub r12,0x22c0; jb; cmp r12,[r14+0x10]; jbe
        let large = [0x49, 0x89, 0xe4, 0x49, 0x81, 0xec, 0xc0, 0x22, 0, 0, 0x72, 0, 0x4d, 0x3b, 0x66, 0x10, 0x76, 0];
        assert_eq!(begins(&function(&large, &[12, 18], &BODY)), Ok(18));
        // mov rcx,fs:[-8]; cmp rsp,[rcx+0x10]; jbe
        let by_thread = [0x64, 0x48, 0x8b, 0x0c, 0x25, 0xf8, 255, 255, 255, 0x48, 0x3b, 0x61, 0x10, 0x76, 0];
        assert_eq!(begins(&function(&by_thread, &[15], &BODY)), Ok(15));
        // push rbp; …
        assert_eq!(begins(&function(&SMALL, &[6], &[0x55, 0x5d, 0xc3])), Ok(6));
    }

    #[test]
    fn a_function_without_check_begins_at_its_first_instruction() {
        assert_eq!(begins(&[0x48, 0x8d, 0x04, 0x40, 0xc3]), Ok(0)); // lea rax,[rax+rax*2]; ret
        assert_eq!(begins(&[0x90, 0x48, 0xff, 0xc8, 0x75, 0xfb, 0xc3]), Ok(0)); // nop; 1: dec rax; jne 1b; ret
    }

    #[test]
    fn what_may_begin_again_otherwise_is_refused() {
        assert_eq!(begins(&[0x48, 0xff, 0xc8, 0x75, 0xfb, 0xc3]), Err(Obstacle::GoRepeated)); // dec rax; jne; ret
        // No frame is made behind the check: a loop may begin there.
        assert_eq!(begins(&function(&SMALL, &[6], &[0x90, 0xc3])), Err(Obstacle::GoRepeated));
        // sub rsp,0x60; jmp to it
        assert_eq!(begins(&function(&SMALL, &[6], &[0x48, 0x83, 0xec, 0x60, 0xeb, 0xfa])), Err(Obstacle::GoRepeated));
        // Another jump to the beginning: sub rsp,8; jmp
        assert_eq!(begins(&function(&SMALL, &[6], &[0x48, 0x83, 0xec, 8, 0xeb, 0xf4])), Err(Obstacle::GoRepeated));
        // The jumps lead elsewhere: to a return.
        let mut elsewhere = function(&SMALL, &[6], &BODY);
        elsewhere[5] = 8;
        assert_eq!(begins(&elsewhere), Err(Obstacle::GoRepeated));
        assert_eq!(begins(&[0x06]), Err(Obstacle::GoCode));
        // Another function begins behind the check.
        let code = function(&SMALL, &[6], &BODY);
        let image = image(&code);
        let whole = FunctionCode { entry: BASE, size: code.len() as u64 };
        assert_eq!(once(&Text::new(&image, vec![BASE, BASE + 6]), whole).err(), Some(Obstacle::GoRepeated));
    }
}
