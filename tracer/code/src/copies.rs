//! Where what general registers held at one instruction is at a later one, as the instructions in between copy it.
//!
//! A copy from register to register is followed, also one of the low bytes alone. What is written in any other way is
//! gone, and so is what an instruction may have written.

use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};
use rtrace_model::HeldBytes;

/// General registers, which have their numbers in instructions.
const REGISTERS: usize = 16;
const RAX: u8 = 0;
const RSP: usize = 4;
/// Bytes of a register.
const WORD: u8 = 8;

/// Where registers of a first instruction are at a later one, by number. By default, where they were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers([u8; REGISTERS]);

impl Default for Registers {
    fn default() -> Registers {
        Registers(std::array::from_fn(|number| number as u8))
    }
}

impl Registers {
    /// The register that holds what the one of this number held.
    pub fn of(&self, number: u8) -> u8 {
        self.0[usize::from(number) % REGISTERS]
    }

    /// Whether each is where it was.
    pub fn are_unmoved(&self) -> bool {
        *self == Registers::default()
    }
}

/// What the registers hold of what they held first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copies([Option<HeldBytes>; REGISTERS]);

impl Copies {
    /// At the first instruction.
    pub fn new() -> Copies {
        Copies(std::array::from_fn(|number| Some(HeldBytes { register: number as u8, bytes: WORD })))
    }

    /// A register that holds at least so many low bytes of what the one of this number held first: that one itself,
    /// if it does.
    pub fn place(&self, number: u8, bytes: u8) -> Option<u8> {
        let holds =
            |place: &u8| self.0[usize::from(*place)].is_some_and(|held| held.register == number && held.bytes >= bytes);
        std::iter::once(number).chain(0..REGISTERS as u8).find(holds)
    }

    /// Where the registers are of which so many low bytes are wanted; none where one of them is nowhere.
    pub fn places(&self, wanted: &[u8; REGISTERS]) -> Option<Registers> {
        let mut places = Registers::default();
        for (number, &bytes) in wanted.iter().enumerate().filter(|(_, bytes)| **bytes > 0) {
            places.0[number] = self.place(number as u8, bytes)?;
        }
        Some(places)
    }

    /// Follows one instruction.
    pub fn follow(&mut self, info: &mut InstructionInfoFactory, instruction: &Instruction) {
        let copied = self.copied(instruction);
        for used in info.info(instruction).used_registers().iter().filter(|used| writes(used.access())) {
            if let Some(number) = number(used.register()) {
                self.0[number] = None;
            }
        }
        if let Some((to, held)) = copied {
            self.0[to] = Some(held);
        }
    }

    /// What an instruction copies, and to which register.
    fn copied(&self, instruction: &Instruction) -> Option<(usize, HeldBytes)> {
        let (to, from, bytes) = match instruction.mnemonic() {
            Mnemonic::Cdqe => (Register::RAX, Register::EAX, 4),
            Mnemonic::Mov | Mnemonic::Movzx | Mnemonic::Movsx | Mnemonic::Movsxd => {
                let is_register = |operand| instruction.op_kind(operand) == OpKind::Register;
                let (to, from) = (instruction.op0_register(), instruction.op1_register());
                // A write to less leaves the rest as it was. The second lowest byte is another one.
                let is_plain = to.is_gpr32() || to.is_gpr64();
                let is_second = matches!(from, Register::AH | Register::CH | Register::DH | Register::BH);
                if !is_register(0) || !is_register(1) || !is_plain || is_second {
                    return None;
                }
                (to, from, from.size().min(to.size()) as u8)
            }
            _ => return None,
        };
        let held = self.0[number(from)?]?;
        let to = number(to).filter(|&to| to != RSP)?;
        Some((to, HeldBytes { bytes: held.bytes.min(bytes), ..held }))
    }

    /// Where the result of a function is, if the first instruction is the one behind its call.
    pub fn result(&self) -> Option<HeldBytes> {
        let held = |bytes| Some(HeldBytes { register: self.place(RAX, bytes)?, bytes });
        held(WORD).or_else(|| held(WORD / 2))
    }
}

/// The number of a general register, or of the one that it is part of.
pub(crate) fn number(register: Register) -> Option<usize> {
    let number = (register.full_register() as usize).checked_sub(Register::RAX as usize)?;
    (number < REGISTERS).then_some(number)
}

/// Whether what is accessed so may be written.
pub(crate) fn writes(access: OpAccess) -> bool {
    matches!(access, OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite)
}

/// Whether an instruction may write to memory.
pub(crate) fn writes_memory(info: &mut InstructionInfoFactory, instruction: &Instruction) -> bool {
    info.info(instruction).used_memory().iter().any(|memory| writes(memory.access()))
}

#[cfg(test)]
mod tests {
    use iced_x86::{Decoder, DecoderOptions};

    use super::*;

    /// Which register holds so many bytes of this one behind this code.
    fn place(code: &[u8], number: u8, bytes: u8) -> Option<u8> {
        let mut info = InstructionInfoFactory::new();
        let mut copies = Copies::new();
        for instruction in &mut Decoder::new(64, code, DecoderOptions::NONE) {
            assert!(!instruction.is_invalid());
            copies.follow(&mut info, &instruction);
        }
        copies.place(number, bytes)
    }

    const GONE: [u8; 2] = [0x31, 0xc0]; // xor eax,eax

    #[test]
    fn copies_of_registers_are_followed() {
        let behind = |code: &[u8], bytes| place(&[code, &GONE].concat(), 0, bytes);
        assert_eq!(place(&[], 0, 8), Some(0));
        assert_eq!(behind(&[], 1), None);
        assert_eq!(behind(&[0x48, 0x89, 0xc3], 8), Some(3)); // mov rbx,rax
        assert_eq!(behind(&[0x49, 0x89, 0xc7], 8), Some(15)); // mov r15,rax
        assert_eq!(behind(&[0x48, 0x89, 0xc3, 0x48, 0x89, 0xdd, 0x31, 0xdb], 8), Some(5)); // …; mov rbp,rbx; xor ebx,ebx
        assert_eq!(behind(&[0x48, 0x89, 0xc3, 0xb3, 1], 1), None); // …; mov bl,1
        assert_eq!(behind(&[0x48, 0x89, 0xc4], 8), None); // mov rsp,rax
        assert_eq!(behind(&[0x48, 0x89, 0xc3, 0x48, 0x0f, 0x44, 0xda], 8), None); // …; cmove rbx,rdx
        assert_eq!(behind(&[0x48, 0x93], 8), None); // xchg rbx,rax
        assert_eq!(behind(&[0x48, 0x8d, 0x58, 0x01], 8), None); // lea rbx,[rax+1]
    }

    #[test]
    fn a_copy_of_less_holds_less() {
        let behind = |code: &[u8]| [1, 2, 4, 8].map(|bytes| place(&[code, &GONE].concat(), 0, bytes).is_some());
        assert_eq!(behind(&[0x89, 0xc3]), [true, true, true, false]); // mov ebx,eax
        assert_eq!(behind(&[0x48, 0x63, 0xd8]), [true, true, true, false]); // movsxd rbx,eax
        assert_eq!(behind(&[0x0f, 0xb7, 0xd8]), [true, true, false, false]); // movzx ebx,ax
        assert_eq!(behind(&[0x48, 0x0f, 0xbe, 0xd8]), [true, false, false, false]); // movsx rbx,al
        assert_eq!(behind(&[0x0f, 0xb6, 0xdc]), [false; 4]); // movzx ebx,ah
        assert_eq!(behind(&[0x66, 0x89, 0xc3]), [false; 4]); // mov bx,ax
        assert_eq!(behind(&[0x88, 0xc3]), [false; 4]); // mov bl,al
        assert_eq!(behind(&[0x48, 0x98, 0x48, 0x89, 0xc3]), [true, true, true, false]); // cdqe; mov rbx,rax
        assert_eq!((place(&[0x48, 0x98], 0, 4), place(&[0x48, 0x98], 0, 8)), (Some(0), None)); // cdqe
        assert_eq!((place(&[0x89, 0xc0], 0, 4), place(&[0x89, 0xc0], 0, 8)), (Some(0), None)); // mov eax,eax
    }

    #[test]
    fn what_instructions_write_beside_their_operands_is_gone() {
        assert_eq!(place(&[0x48, 0x99], 2, 1), None); // cqo
        assert_eq!(place(&[0xf7, 0xf1], 0, 1), None); // div ecx
        assert_eq!(place(&[0x0f, 0xa2], 3, 1), None); // cpuid
        assert_eq!(place(&[0x48, 0xad], 6, 1), None); // lodsq
        assert_eq!(place(&[0x58], 0, 1), None); // pop rax
    }
}
