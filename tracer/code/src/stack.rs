//! How far the stack pointer is from the return address, followed from instruction to instruction.
//!
//! At the entry of a function the stack pointer is at the return address. Where it is there again,
//! control may leave the function; where it is not, a jump stays in the function even if it goes
//! far away. What cannot be followed is unknown, never guessed.

use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind, Register};
use rtrace_model::MOST_WORDS;

/// Bytes from a register down to the slot of the return address; none where unknown.
pub type Depth = Option<i32>;

/// A depth in words, where it is a number of them that an attach cookie can tell.
pub fn words(depth: i32) -> Option<u32> {
    let depth = u32::try_from(depth).ok()?;
    (depth.is_multiple_of(8) && depth / 8 <= MOST_WORDS).then_some(depth / 8)
}

/// What is known before an instruction executes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stack {
    /// Of the stack pointer.
    pub pointer: Depth,
    /// Of `rbp`, where it serves as frame pointer.
    pub frame: Depth,
}

impl Stack {
    /// As a caller leaves it.
    pub const ENTRY: Stack = Stack { pointer: Some(0), frame: None };
    /// Nothing is known.
    pub const UNKNOWN: Stack = Stack { pointer: None, frame: None };

    /// What holds after `instruction`; a call is taken to have returned.
    pub fn after(self, instruction: &Instruction) -> Stack {
        if matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall) {
            return self;
        }
        match instruction.mnemonic() {
            Mnemonic::Cmp | Mnemonic::Test => self,
            Mnemonic::Leave => Stack { pointer: self.frame.map(|depth| depth - 8), frame: None },
            Mnemonic::Enter => Stack::UNKNOWN,
            Mnemonic::Xchg | Mnemonic::Xadd | Mnemonic::Mulx if touches(instruction) => Stack::UNKNOWN,
            Mnemonic::Push | Mnemonic::Pushfq => self.moved(instruction),
            Mnemonic::Pop | Mnemonic::Popfq => match written(instruction) {
                Some(Register::RSP) => Stack { pointer: None, ..self },
                Some(Register::RBP) => Stack { frame: None, ..self.moved(instruction) },
                _ => self.moved(instruction),
            },
            _ => match written(instruction) {
                Some(Register::RSP) => Stack { pointer: self.value(instruction), ..self },
                Some(Register::RBP) => Stack { frame: self.value(instruction), ..self },
                _ => self,
            },
        }
    }

    fn moved(self, instruction: &Instruction) -> Stack {
        let by = instruction.stack_pointer_increment();
        Stack { pointer: self.pointer.and_then(|depth| depth.checked_sub(by)), ..self }
    }

    fn of(self, register: Register) -> Depth {
        match register {
            Register::RSP => self.pointer,
            Register::RBP => self.frame,
            _ => None,
        }
    }

    /// The depth that an instruction writes to its first operand.
    fn value(self, instruction: &Instruction) -> Depth {
        match (instruction.mnemonic(), instruction.op1_kind()) {
            (Mnemonic::Mov, OpKind::Register) => self.of(instruction.op1_register()),
            (Mnemonic::Lea, OpKind::Memory) if instruction.memory_index() == Register::None => {
                let displacement = i32::try_from(instruction.memory_displacement64() as i64).ok()?;
                self.of(instruction.memory_base())?.checked_sub(displacement)
            }
            (Mnemonic::Add, kind) if kind != OpKind::Register && kind != OpKind::Memory => {
                let by = i32::try_from(instruction.immediate(1) as i64).ok()?;
                self.of(instruction.op0_register())?.checked_sub(by)
            }
            (Mnemonic::Sub, kind) if kind != OpKind::Register && kind != OpKind::Memory => {
                let by = i32::try_from(instruction.immediate(1) as i64).ok()?;
                self.of(instruction.op0_register())?.checked_add(by)
            }
            _ => None,
        }
    }
}

/// The whole register that the first operand is or is part of.
fn written(instruction: &Instruction) -> Option<Register> {
    (instruction.op_count() > 0 && instruction.op0_kind() == OpKind::Register)
        .then(|| instruction.op0_register().full_register())
}

/// Whether a register operand is the stack or frame pointer.
fn touches(instruction: &Instruction) -> bool {
    (0..instruction.op_count()).any(|operand| {
        instruction.op_kind(operand) == OpKind::Register
            && matches!(instruction.op_register(operand).full_register(), Register::RSP | Register::RBP)
    })
}

#[cfg(test)]
mod tests {
    use iced_x86::{Decoder, DecoderOptions};

    use super::*;

    fn run(code: &[u8]) -> Stack {
        let mut decoder = Decoder::with_ip(64, code, 0x1000, DecoderOptions::NONE);
        (&mut decoder).into_iter().fold(Stack::ENTRY, |stack, instruction| {
            assert!(!instruction.is_invalid());
            stack.after(&instruction)
        })
    }

    #[test]
    fn follows_pushes_and_frames() {
        // push rbp; mov rbp,rsp; push rbx; sub rsp,0x18
        let prologue = [0x55, 0x48, 0x89, 0xe5, 0x53, 0x48, 0x83, 0xec, 0x18];
        assert_eq!(run(&prologue), Stack { pointer: Some(40), frame: Some(8) });
        // … leave
        assert_eq!(run(&[&prologue[..], &[0xc9]].concat()), Stack { pointer: Some(0), frame: None });
        // … and rsp,-32; lea rsp,[rbp-8]; pop rbx; pop rbp
        let aligned = [&prologue[..], &[0x48, 0x83, 0xe4, 0xe0]].concat();
        assert_eq!(run(&aligned), Stack { pointer: None, frame: Some(8) });
        let restored = [&aligned[..], &[0x48, 0x8d, 0x65, 0xf8, 0x5b, 0x5d]].concat();
        assert_eq!(run(&restored), Stack { pointer: Some(0), frame: None });
    }

    #[test]
    fn gives_up_what_it_cannot_follow() {
        assert_eq!(run(&[0x48, 0x89, 0xfc]).pointer, None); // mov rsp,rdi
        assert_eq!(run(&[0x48, 0x29, 0xc4]).pointer, None); // sub rsp,rax
        assert_eq!(run(&[0x48, 0x94]).pointer, None); // xchg rsp,rax
        assert_eq!(run(&[0x5c]).pointer, None); // pop rsp
        assert_eq!(run(&[0x48, 0x89, 0xe5, 0x89, 0xc5]).frame, None); // mov rbp,rsp; mov ebp,eax
    }

    #[test]
    fn comparisons_and_calls_change_nothing() {
        assert_eq!(run(&[0x48, 0x39, 0xdc, 0xe8, 0, 0, 0, 0]), Stack::ENTRY); // cmp rsp,rbx; call
    }
}
