//! A machine for fetch programs: registers, a stack and memory, as a probe meets them.

use crate::{At, Fetch, FetchProgram, MOST_VALUE_WORDS, Op, OpCode, Register, Width};

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
    pub fn run(&self, program: &FetchProgram, at: At, words: &mut [u64; MOST_VALUE_WORDS]) -> u32 {
        let mut failed = 0;
        for (number, fetch) in program.fetches.iter().enumerate().filter(|(_, fetch)| fetch.op.at == at) {
            if self.step(fetch, words).is_none() {
                failed |= 1 << number;
            }
        }
        failed
    }

    fn step(&self, fetch: &Fetch, words: &mut [u64; MOST_VALUE_WORDS]) -> Option<()> {
        let target = usize::from(fetch.target);
        let Op { code, number, width, .. } = fetch.op;
        let [left, right] = fetch.operands.map(|operand| operand.map(|word| words[usize::from(word)]));
        let left = left.unwrap_or_default();
        let right = right.map_or(i64::from(number), u64::cast_signed);
        words[target] = match code {
            OpCode::Register => width.extend(self.registers[number as usize]),
            OpCode::Vector => word(self.vectors.get(number as usize * 16..)?, width)?,
            OpCode::Stack => word(self.stack.get(number as usize..)?, width)?,
            OpCode::Memory if (left, number) == (ERRNO, 0) => word(&self.errno.to_le_bytes(), width)?,
            OpCode::Memory => word(self.at(left.wrapping_add_signed(i64::from(number)))?, width)?,
            OpCode::Text => {
                let memory = self.at(left)?;
                let text = memory.split(|&byte| byte == 0).next()?;
                for (place, chunk) in words[target..]
                    .iter_mut()
                    .enumerate()
                    .take(number as usize / 8)
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
            // Lists are read by no test of this machine, and it has no CPUs.
            OpCode::List | OpCode::Sum | OpCode::Keep | OpCode::Kept | OpCode::Cpu => return None,
            OpCode::Result => width.extend(self.result),
            OpCode::ErrnoAddress => ERRNO,
            OpCode::Number => i64::from(number) as u64,
            OpCode::Shift => width.extend(left >> number),
            OpCode::Tagged if left >> 24 & 0xff != number as u64 >> 8 => return None,
            OpCode::Tagged => width.extend(left >> (number & 0xff)),
            OpCode::Multiply => left.cast_signed().wrapping_mul(right) as u64,
            OpCode::Add => left.cast_signed().wrapping_add(right) as u64,
            OpCode::Subtract => left.cast_signed().wrapping_sub(right) as u64,
            OpCode::Max => left.cast_signed().max(right) as u64,
            OpCode::Min => left.cast_signed().min(right) as u64,
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
