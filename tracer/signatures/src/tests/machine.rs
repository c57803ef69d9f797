//! A machine for fetch programs: registers, a stack and memory, as a probe meets them.

use crate::{At, Fetch, Operand, Operator, Program, Register, Step, Width};

/// The address of `errno`.
const ERRNO: u64 = 0x7f00_0000_1234;

/// What a probe can see.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// By their number in instructions.
    pub registers: [u64; 16],
    /// The vector registers of arguments, 16 bytes each.
    pub vectors: Vec<u8>,
    /// From the return address upwards.
    pub stack: Vec<u8>,
    /// Pieces of memory by address.
    pub memory: Vec<(u64, Vec<u8>)>,
    /// `rax` behind the call.
    pub result: u64,
    /// The thread's.
    pub errno: i32,
}

impl Machine {
    /// Runs the operations of one end of a call, on the words of the call; a bit for each that fails.
    pub fn run(&self, program: &Program, at: At, words: &mut [u64; 16]) -> u16 {
        let mut failed = 0;
        for (number, fetch) in program.fetches.iter().enumerate().filter(|(_, fetch)| fetch.at == at) {
            if self.step(fetch, words).is_none() {
                failed |= 1 << number;
            }
        }
        failed
    }

    fn step(&self, fetch: &Fetch, words: &mut [u64; 16]) -> Option<()> {
        let target = usize::from(fetch.target);
        words[target] = match fetch.step {
            Step::Register(register, width) => width.extend(self.registers[register as usize]),
            Step::Vector(number, width) => word(self.vectors.get(usize::from(number) * 16..)?, width)?,
            Step::Stack(offset, width) => word(self.stack.get(offset as usize..)?, width)?,
            Step::Deref(base, 0, width) if words[usize::from(base)] == ERRNO => word(&self.errno.to_le_bytes(), width)?,
            Step::Deref(base, offset, width) => {
                word(self.at(words[usize::from(base)].wrapping_add_signed(i64::from(offset)))?, width)?
            }
            Step::Text(base, max) => {
                let memory = self.at(words[usize::from(base)])?;
                let text = memory.split(|&byte| byte == 0).next()?;
                for (place, chunk) in words[target..]
                    .iter_mut()
                    .enumerate()
                    .take(usize::from(max) / 8)
                    .map(|(place, word)| (place * 8, word))
                {
                    let mut bytes = [0; 8];
                    for (byte, letter) in bytes.iter_mut().zip(text.iter().skip(place)) {
                        *byte = *letter;
                    }
                    *chunk = u64::from_le_bytes(bytes);
                }
                return Some(());
            }
            Step::Result(width) => width.extend(self.result),
            Step::ErrnoAddress => ERRNO,
            Step::Thread(..) => return None,
            Step::Const(number) => i64::from(number) as u64,
            Step::Shift(base, right, width) => width.extend(words[usize::from(base)] >> right),
            Step::Binary(operator, left, right) => {
                let right = match right {
                    Operand::Word(word) => words[usize::from(word)] as i64,
                    Operand::Number(number) => i64::from(number),
                };
                let left = words[usize::from(left)] as i64;
                (match operator {
                    Operator::Multiply => left.wrapping_mul(right),
                    Operator::Add => left.wrapping_add(right),
                    Operator::Subtract => left.wrapping_sub(right),
                    Operator::Max => left.max(right),
                    Operator::Min => left.min(right),
                }) as u64
            }
        };
        Some(())
    }

    fn at(&self, address: u64) -> Option<&[u8]> {
        let (start, bytes) =
            self.memory.iter().find(|(start, bytes)| (*start..*start + bytes.len() as u64).contains(&address))?;
        bytes.get((address - start) as usize..)
    }

    /// Puts the registers of arguments.
    pub fn set(&mut self, arguments: [u64; 6]) {
        for (register, value) in Register::ARGUMENTS.into_iter().zip(arguments) {
            self.registers[register as usize] = value;
        }
    }
}

fn word(bytes: &[u8], width: Width) -> Option<u64> {
    let mut word = [0; 8];
    word[..usize::from(width.bytes)].copy_from_slice(bytes.get(..usize::from(width.bytes))?);
    Some(width.extend(u64::from_le_bytes(word)))
}
