//! How the returns of a function leave the stack.
//!
//! Nearly all are a `ret` at the slot of the return address. Assembly also takes its arguments off the stack (`ret N`),
//! takes the return address off and jumps to it, or returns by a far return or a return from an interrupt from words that it
//! has pushed. Control is followed from the entry, with the distance of the stack pointer from the slot.

use std::ops::Range;

use foldhash::HashSet;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

use crate::stack::Stack;
use crate::tails::own_ways;
use crate::text::{FunctionCode, Returns, Text, branch_target};

const WORD: i32 = 8;

/// What is known of a function's returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Returning {
    /// Words that they take off the stack, beside the return address; 0 where they differ.
    pub pops: u32,
    /// The function writes to the slot of its return address, which says nothing about it then.
    pub overwrites: bool,
    /// It may return with a lower stack pointer than others, or call from where its return address was: nothing tells its
    /// returns.
    pub is_unknown: bool,
}

/// How `function` returns; none where it does not return itself, but ends in jumps.
pub fn of(text: &Text, function: FunctionCode) -> Option<Returning> {
    match own_ways(text, function, |ways| ways.returns)? {
        Returns::Never => None,
        Returns::Plain => Some(Returning::default()),
        Returns::Other => {
            let extent = text.extent(function)?;
            let bytes = text.code(&extent).filter(|bytes| text.spend(bytes.len()));
            let mut walk = Walk { extent, ..Walk::default() };
            walk.follow(bytes?);
            walk.returning()
        }
    }
}

#[derive(Default)]
struct Walk {
    extent: Range<u64>,
    /// Where control comes to, with the stack then.
    open: Vec<(u64, Stack)>,
    seen: HashSet<u64>,
    /// What each return takes off the stack, in words.
    pops: Vec<i32>,
    overwrites: bool,
    /// It has taken its return address off.
    has_taken: bool,
    /// Nothing tells where the stack pointer is at some return.
    is_lost: bool,
    is_unknown: bool,
}

impl Walk {
    fn follow(&mut self, bytes: &[u8]) {
        let mut decoder = Decoder::with_ip(64, bytes, self.extent.start, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        self.open.push((self.extent.start, Stack::ENTRY));
        while let Some((address, mut stack)) = self.open.pop() {
            if !self.extent.contains(&address) {
                // What control comes to elsewhere has to give the return address back.
                self.is_unknown |= stack.pointer.is_some_and(|depth| depth < 0);
                continue;
            }
            decoder.set_ip(address);
            decoder.set_position((address - self.extent.start) as usize).expect("it lies within the code");
            while decoder.can_decode() && self.seen.insert(decoder.ip()) {
                decoder.decode_out(&mut instruction);
                if instruction.is_invalid() || !self.see(&instruction, stack) {
                    break;
                }
                stack = stack.after(&instruction);
            }
        }
    }

    /// Takes note of an instruction; returns whether control runs on behind it.
    fn see(&mut self, instruction: &Instruction, stack: Stack) -> bool {
        let depth = stack.pointer;
        let is_taken = depth.is_some_and(|depth| depth < 0);
        self.has_taken |= is_taken;
        self.overwrites |= depth.is_some_and(|depth| stores_at(instruction, depth));
        self.open.extend(branch_target(instruction).map(|target| (target, stack)));
        match instruction.flow_control() {
            FlowControl::Call | FlowControl::IndirectCall => self.is_unknown |= is_taken,
            FlowControl::Return => {
                let own = match instruction.mnemonic() {
                    Mnemonic::Ret => Some(0),
                    Mnemonic::Retf => Some(1),
                    _ => None,
                };
                let more = if instruction.op_count() > 0 { i32::from(instruction.immediate16()) } else { 0 };
                match (own, depth) {
                    (Some(own), Some(depth)) => self.returns(own * WORD + more - depth, own > 0),
                    (Some(own), None) => {
                        self.is_lost = true;
                        self.returns(own * WORD + more, false);
                    }
                    // The stack pointer is among the words: where it leads is taken to be where a `ret` leads.
                    (None, _) => self.pops.push(0),
                }
            }
            FlowControl::IndirectBranch if is_taken => {
                self.returns(-depth.unwrap_or_default() - WORD, false);
            }
            FlowControl::IndirectBranch => self.is_lost |= depth.is_none(),
            FlowControl::UnconditionalBranch | FlowControl::Exception => {}
            _ => return true,
        }
        matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall)
    }

    /// Control returns, and the stack pointer is so many bytes higher than behind a `ret`. If it is lower, it is a jump to
    /// what was pushed, but for a far one, of which nothing is known.
    fn returns(&mut self, bytes: i32, is_far: bool) {
        match bytes {
            0.. if bytes % WORD == 0 => self.pops.push(bytes / WORD),
            0.. => self.is_unknown = true,
            _ => self.is_unknown |= is_far,
        }
    }

    fn returning(&self) -> Option<Returning> {
        let is_unknown = self.is_unknown || self.has_taken && self.is_lost;
        if self.pops.is_empty() && !is_unknown {
            return None;
        }
        let first = self.pops.first().copied().unwrap_or_default();
        let is_one = self.pops.iter().all(|&pops| pops == first);
        let pops = if is_one { first.unsigned_abs() } else { 0 };
        Some(Returning { pops, overwrites: self.overwrites, is_unknown })
    }
}

/// Whether an instruction writes to the slot of the return address, that far above the stack pointer in bytes.
fn stores_at(instruction: &Instruction, depth: i32) -> bool {
    let leaves_memory = || {
        use Mnemonic::{Call, Cmp, Jmp, Push, Test};
        matches!(instruction.mnemonic(), Call | Cmp | Jmp | Push | Test)
    };
    let stores = instruction.op_count() > 0
        && instruction.op0_kind() == OpKind::Memory
        && instruction.memory_base() == Register::RSP
        && instruction.memory_index() == Register::None
        && instruction.memory_displacement64() as i64 == i64::from(depth)
        && !leaves_memory();
    stores || depth == -WORD && matches!(instruction.mnemonic(), Mnemonic::Push | Mnemonic::Pushfq)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{BASE, image};

    /// What is known of the returns of this code.
    fn of_code(code: &[u8]) -> Option<Returning> {
        let image = image(code);
        let text = Text::new(&image, vec![BASE]);
        of(&text, FunctionCode { entry: BASE, size: code.len() as u64 })
    }

    fn known(pops: u32, overwrites: bool) -> Option<Returning> {
        Some(Returning { pops, overwrites, is_unknown: false })
    }

    fn unknown(code: &[u8]) -> bool {
        of_code(code).is_some_and(|returning| returning.is_unknown)
    }

    #[test]
    fn returns_take_words_off_the_stack() {
        assert_eq!(of_code(&[0x53, 0x5b, 0xc3]), known(0, false)); // push rbx; pop rbx; ret
        assert_eq!(of_code(&[0xc2, 0x10, 0x00]), known(2, false)); // ret 16
        assert_eq!(of_code(&[0x74, 0x03, 0xc2, 0x10, 0x00, 0xc3]), known(0, false)); // je; ret 16; ret
        assert_eq!(of_code(&[0x59, 0x5a, 0x51, 0xc3]), known(1, false)); // pop rcx; pop rdx; push rcx; ret
        assert_eq!(of_code(&[0x59, 0x5a, 0xff, 0xe1]), known(1, false)); // pop rcx; pop rdx; jmp rcx
        assert_eq!(of_code(&[0xff, 0xe1]), None); // jmp rcx
        // mov rcx,[rsp]; push rcx; ret 8
        assert_eq!(of_code(&[0x48, 0x8b, 0x0c, 0x24, 0x51, 0xc2, 0x08, 0x00]), known(0, false));
        // push rcx; ret 24
        assert_eq!(of_code(&[0x51, 0xc2, 0x18, 0x00]), known(2, false));
    }

    #[test]
    fn returns_of_other_kinds_are_returns() {
        assert_eq!(of_code(&[0x48, 0xcb]), known(1, false)); // retfq behind a far call
        // pop rcx; push 0x33; push rcx; retfq
        assert_eq!(of_code(&[0x59, 0x6a, 0x33, 0x51, 0x48, 0xcb]), known(0, true));
        // mov rcx,[rsp]; push 0x33; push rcx; retfq 8
        assert_eq!(of_code(&[0x48, 0x8b, 0x0c, 0x24, 0x6a, 0x33, 0x51, 0x48, 0xca, 8, 0]), known(0, false));
        // pop rcx; mov rdx,rsp; push 0x2b; push rdx; pushfq; push 0x33; push rcx; iretq
        let iret = [0x59, 0x48, 0x89, 0xe2, 0x6a, 0x2b, 0x52, 0x9c, 0x6a, 0x33, 0x51, 0x48, 0xcf];
        assert_eq!(of_code(&iret), known(0, true));
        // mov [rsp],rcx; ret
        assert_eq!(of_code(&[0x48, 0x89, 0x0c, 0x24, 0xc3]), known(0, true));
        // pop rdx; push rbx; pop rbx; je; jmp rdx; push rdx; ret
        assert_eq!(of_code(&[0x5a, 0x53, 0x5b, 0x74, 0x02, 0xff, 0xe2, 0x52, 0xc3]), known(0, true));
    }

    #[test]
    fn what_cannot_be_told_is_unknown() {
        assert!(unknown(&[0x59, 0x48, 0x29, 0xc4, 0x51, 0xc3])); // pop rcx; sub rsp,rax; push rcx; ret
        assert!(unknown(&[0x59, 0x48, 0x29, 0xc4, 0xff, 0xe1])); // pop rcx; sub rsp,rax; jmp rcx
        assert!(unknown(&[0x59, 0xe8, 0, 0, 0, 0, 0x51, 0xc3])); // pop rcx; call; push rcx; ret
        assert!(unknown(&[0x48, 0x8b, 0x0c, 0x24, 0x6a, 0x33, 0x51, 0x48, 0xcb])); // …; push 0x33; push rcx; retfq
        assert!(unknown(&[0xc2, 0x04, 0x00])); // ret 4
        assert!(!unknown(&[0x48, 0x29, 0xc4, 0xc3])); // sub rsp,rax; ret
    }
}
