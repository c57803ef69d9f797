//! What control comes to, from some addresses on, within a range of code: by running on, and by direct jumps.
//!
//! Data between instructions is not come to, so that nothing in it is taken for an instruction. What only a table, a
//! pointer or the unwinder leads to is not come to either, unless it is followed, too.

use std::ops::Range;

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, Register};

use crate::instruction::LONGEST;
use crate::text::branch_target;

/// Where the instructions of a range begin.
#[derive(Default)]
pub(crate) struct Starts {
    first: u64,
    bits: Vec<u64>,
}

impl Starts {
    pub fn new(range: &Range<u64>) -> Starts {
        Starts { first: range.start, bits: vec![0; ((range.end - range.start) / 64 + 1) as usize] }
    }

    pub fn add(&mut self, address: u64) {
        let offset = address - self.first;
        self.bits[(offset / 64) as usize] |= 1 << (offset % 64);
    }

    pub fn contains(&self, address: u64) -> bool {
        let offset = address - self.first;
        self.bits[(offset / 64) as usize] >> (offset % 64) & 1 == 1
    }
}

/// What control comes to in a range of code.
pub struct Flow<'a> {
    bytes: &'a [u8],
    range: Range<u64>,
    starts: Starts,
    /// Addresses behind its calls, and behind its system calls.
    pub calls: Vec<u64>,
    /// Where its direct jumps go that leave the range.
    pub leaves: Vec<u64>,
    /// Its direct jumps that stay in the range: from where, and to where.
    pub jumps: Vec<(u64, u64)>,
    /// The instructions that were come to, in bytes.
    pub covered: u64,
    /// It has a return.
    pub returns: bool,
    /// It has a jump whose operand does not tell where it goes.
    pub jumps_indirectly: bool,
    /// It comes to the end of the range with something else than a call.
    pub runs_off: bool,
    /// It comes to what is no instruction, or none of a program.
    pub is_broken: bool,
}

impl<'a> Flow<'a> {
    /// Nothing yet, of the code at `start`.
    pub fn new(bytes: &'a [u8], start: u64) -> Flow<'a> {
        let range = start..start + bytes.len() as u64;
        let starts = Starts::new(&range);
        let (calls, leaves, jumps) = (Vec::new(), Vec::new(), Vec::new());
        let (covered, returns, jumps_indirectly, runs_off, is_broken) = (0, false, false, false, false);
        Flow { bytes, range, starts, calls, leaves, jumps, covered, returns, jumps_indirectly, runs_off, is_broken }
    }

    /// Adds what control comes to from this address on.
    pub fn follow(&mut self, from: u64) {
        let mut decoder = Decoder::with_ip(64, self.bytes, self.range.start, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        let mut open = vec![from];
        while let Some(address) = open.pop() {
            if !self.range.contains(&address) {
                self.leaves.push(address);
                continue;
            }
            decoder.set_ip(address);
            decoder.set_position((address - self.range.start) as usize).expect("it lies within the code");
            let mut has_called = false;
            loop {
                let at = decoder.ip();
                if !decoder.can_decode() {
                    self.runs_off |= !has_called;
                    break;
                }
                if self.starts.contains(at) {
                    break;
                }
                decoder.decode_out(&mut instruction);
                if is_implausible(&instruction) {
                    self.is_broken = true;
                    break;
                }
                self.starts.add(at);
                self.covered += instruction.len() as u64;
                if let Some(target) = branch_target(&instruction) {
                    open.push(target);
                    if self.range.contains(&target) {
                        self.jumps.push((at, target));
                    }
                }
                has_called = false;
                match instruction.flow_control() {
                    FlowControl::Call | FlowControl::IndirectCall => {
                        has_called = true;
                        self.calls.push(decoder.ip());
                    }
                    FlowControl::Next if instruction.mnemonic() != Mnemonic::Hlt => {}
                    FlowControl::ConditionalBranch | FlowControl::XbeginXabortXend => {}
                    FlowControl::Return => {
                        self.returns = true;
                        break;
                    }
                    FlowControl::IndirectBranch => {
                        self.jumps_indirectly = true;
                        break;
                    }
                    _ => break,
                }
            }
        }
    }

    /// The loops of what was come to.
    pub fn loops(&self) -> Loops<'_> {
        let mut jumps: Vec<(u64, u64)> = self.jumps.iter().map(|&(from, target)| (target, from)).collect();
        jumps.sort_unstable();
        let back = jumps.iter().filter(|(target, from)| target <= from);
        let mut bodies: Vec<Range<u64>> = back.map(|&(target, from)| target..from + 1).collect();
        // Of the jumps to one beginning, the last ends the loop.
        bodies.reverse();
        bodies.dedup_by_key(|body| body.start);
        bodies.reverse();
        Loops { jumps, bodies, calls: &self.calls }
    }

    /// Whether it comes to an instruction that has one of these bytes.
    pub fn has_byte_of(&self, part: &Range<u64>) -> bool {
        let first = part.start.saturating_sub(LONGEST as u64 - 1).max(self.range.start);
        (first..part.end.min(self.range.end)).any(|address| {
            let code = &self.bytes[(address - self.range.start) as usize..];
            let length = || Decoder::new(64, code, DecoderOptions::NONE).decode().len() as u64;
            self.starts.contains(address) && address + length() > part.start
        })
    }
}

/// In how many bytes behind a return address others come along that do not make its call, by jumps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Joined {
    /// By any of the function.
    pub by_any: Option<u64>,
    /// By those in the innermost loop around it. Who only enters this loop does not count: that is once for all its turns. Nor
    /// does a loop that makes another call in each turn, which is not so hot.
    pub in_loop: Option<u64>,
}

/// Where control comes in the loops of a function.
pub struct Loops<'a> {
    /// Where its calls return to.
    calls: &'a [u64],
    /// Where its jumps lead, and from where; sorted.
    jumps: Vec<(u64, u64)>,
    /// From their first instructions to their last; sorted.
    bodies: Vec<Range<u64>>,
}

impl Loops<'_> {
    /// Where others come along behind a call that returns to this address.
    pub fn joined_behind(&self, address: u64) -> Joined {
        let behind = &self.jumps[self.jumps.partition_point(|&(target, _)| target < address)..];
        let by_any = behind.first().map(|&(target, _)| target - address);
        Joined { by_any, in_loop: self.joined_in_loop(address, behind) }
    }

    fn joined_in_loop(&self, address: u64, behind: &[(u64, u64)]) -> Option<u64> {
        let begun = self.bodies.partition_point(|body| body.start <= address);
        let body = self.bodies[..begun].iter().rfind(|body| body.contains(&address))?;
        let (target, _) =
            behind.iter().take_while(|(target, _)| *target < body.end).find(|(_, from)| body.contains(from))?;
        let makes = |call: u64| {
            let passes = |&(target, from): &(u64, u64)| from < call && target >= call && body.contains(&from);
            body.contains(&call) && call != address && !self.jumps.iter().any(passes)
        };
        (!self.calls.iter().any(|&call| makes(call))).then_some(target - address)
    }
}

/// Whether this is no instruction, or one that ends a program.
fn is_implausible(instruction: &Instruction) -> bool {
    let is_of_zeros = || instruction.code() == Code::Add_rm8_r8 && instruction.len() == 2 && is_al_to_rax(instruction);
    let is_of_system = instruction.is_privileged() && instruction.mnemonic() != Mnemonic::Hlt;
    instruction.is_invalid() || is_of_system || is_of_zeros()
}

/// Whether the operands are those of an instruction whose bytes are all zero.
fn is_al_to_rax(instruction: &Instruction) -> bool {
    instruction.op1_register() == Register::AL
        && instruction.memory_base() == Register::RAX
        && instruction.memory_index() == Register::None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where the calls of this code return to that control comes to, and where jumps leave it.
    fn follow(code: &[u8]) -> (Vec<u64>, Vec<u64>) {
        let mut flow = Flow::new(code, 0x1000);
        flow.follow(0x1000);
        let places = |addresses: &[u64]| addresses.iter().map(|address| address.wrapping_sub(0x1000)).collect();
        (places(&flow.calls), places(&flow.leaves))
    }

    #[test]
    fn data_behind_a_jump_is_not_come_to() {
        // jmp 7; call; 7: call; ret
        let code = [0xeb, 5, 0xe8, 0, 1, 0, 0, 0xe8, 0, 1, 0, 0, 0xc3];
        assert_eq!(follow(&code), (vec![12], vec![]));
    }

    #[test]
    fn what_is_jumped_back_to_is_come_to() {
        // jmp 7; 2: call; 7: je 2; jmp 100
        let code = [0xeb, 5, 0xe8, 0, 1, 0, 0, 0x74, 0xf9, 0xeb, 89];
        assert_eq!(follow(&code), (vec![7], vec![100]));
    }

    #[test]
    fn where_it_ends_is_known() {
        let ends = |code: &[u8]| {
            let mut flow = Flow::new(code, 0x1000);
            flow.follow(0x1000);
            (flow.returns, flow.jumps_indirectly, flow.runs_off, flow.is_broken)
        };
        assert_eq!(ends(&[0x31, 0xc0, 0xc3]), (true, false, false, false)); // xor eax,eax; ret
        assert_eq!(ends(&[0x31, 0xc0]), (false, false, true, false)); // xor eax,eax
        assert_eq!(ends(&[0xe8, 0, 1, 0, 0]), (false, false, false, false)); // call
        assert_eq!(ends(&[0xff, 0xe0]), (false, true, false, false)); // jmp rax
        assert_eq!(ends(&[0x74, 1, 0xc3, 0x06]), (true, false, false, true)); // je 3; ret; 3: nonsense
        assert_eq!(ends(&[0xec, 0xc3]), (false, false, false, true)); // in al,dx
    }

    #[test]
    fn calls_that_loops_pass_by_are_known() {
        let joined = |code: &[u8], address: u64| {
            let mut flow = Flow::new(code, 0x1000);
            flow.follow(0x1000);
            flow.loops().joined_behind(0x1000 + address).in_loop
        };
        // 0: je 7; call; 7: nop; dec eax; jne 0; ret
        let code = [0x74, 5, 0xe8, 0, 1, 0, 0, 0x90, 0xff, 0xc8, 0x75, 0xf4, 0xc3];
        assert_eq!(joined(&code, 7), Some(0));
        // The same without the loop.
        assert_eq!(joined(&code[..10], 7), None);
        // 0: call; nop; 6: dec eax; jne 0; ret
        assert_eq!(joined(&[0xe8, 0, 1, 0, 0, 0x90, 0xff, 0xc8, 0x75, 0xf6, 0xc3], 5), None);
        // 0: je 7; call; 7: call; dec eax; jne 0; ret
        let code = [0x74, 5, 0xe8, 0, 1, 0, 0, 0xe8, 0, 1, 0, 0, 0xff, 0xc8, 0x75, 0xf0, 0xc3];
        assert_eq!(joined(&code, 7), None);
        // 0: je 8; call; nop; 8: dec eax; jne 0; ret
        assert_eq!(joined(&[0x74, 6, 0xe8, 0, 1, 0, 0, 0x90, 0xff, 0xc8, 0x75, 0xf4, 0xc3], 7), Some(1));
    }

    #[test]
    fn who_passes_by_a_call_is_known() {
        let joined = |code: &[u8], address: u64| {
            let mut flow = Flow::new(code, 0x1000);
            flow.follow(0x1000);
            flow.loops().joined_behind(0x1000 + address)
        };
        // 0: je 8; call; nop; 8: ret
        let by_any = |distance| Joined { by_any: Some(distance), in_loop: None };
        assert_eq!(joined(&[0x74, 6, 0xe8, 0, 1, 0, 0, 0x90, 0xc3], 7), by_any(1));
        // 0: je 9; call; jmp 9; 9: ret
        assert_eq!(joined(&[0x74, 7, 0xe8, 0, 1, 0, 0, 0xeb, 0, 0xc3], 7), by_any(2));
        // 0: je 5; nop; nop; nop; 5: call; nop; ret
        assert_eq!(joined(&[0x74, 3, 0x90, 0x90, 0x90, 0xe8, 0, 1, 0, 0, 0x90, 0xc3], 10), Joined::default());
    }

    #[test]
    fn who_enters_a_loop_behind_a_call_does_not_pass_it_by() {
        let joined = |code: &[u8]| {
            let mut flow = Flow::new(code, 0x1000);
            flow.follow(0x1000);
            let behind = flow.calls[0];
            flow.loops().joined_behind(behind).in_loop
        };
        // 0: jmp 8; 2: call; nop; 8: dec eax; jne 2; ret
        let entered = [0xeb, 6, 0xe8, 0, 1, 0, 0, 0x90, 0xff, 0xc8, 0x75, 0xf6, 0xc3];
        assert_eq!(joined(&entered), None);
        // The same within another loop, whose jump it is.
        let nested = [&entered[..12], &[0xff, 0xc9, 0x75, 0xf0, 0xc3]].concat();
        assert_eq!(joined(&nested), None);
        // 0: jmp 10; 2: je 10; call; nop; 10: dec eax; jne 2; ret
        let passed = [0xeb, 8, 0x74, 6, 0xe8, 0, 1, 0, 0, 0x90, 0xff, 0xc8, 0x75, 0xf4, 0xc3];
        assert_eq!(joined(&passed), Some(1));
    }

    #[test]
    fn bytes_of_instructions_are_known() {
        let code = [0x48, 0xb8, 1, 2, 3, 4, 5, 6, 7, 8, 0xc3, 9, 9]; // movabs; ret; data
        let mut flow = Flow::new(&code, 0x1000);
        flow.follow(0x1000);
        assert!(flow.has_byte_of(&(0x1008..0x1009)) && flow.has_byte_of(&(0x1000..0x1008)));
        assert!(!flow.has_byte_of(&(0x100b..0x100d)) && !flow.has_byte_of(&(0xff8..0x1000)));
    }
}
