//! Where a thread's `errno` is, as the C library itself finds it.
//!
//! The linker decides where it is behind the thread pointer, and differently in each program. What it has decided is in
//! a word of the library, or in the code that reads it: that of the function that returns its address.

use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};
use rtrace_symbolizer::Image;

/// The function of the C library that returns the address.
pub const FUNCTION: &str = "__errno_location";

/// Bytes of its code that are looked at.
const LENGTH: usize = 32;

/// Where a thread's `errno` is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Errno {
    /// As many bytes behind the thread pointer as the word at this virtual address says.
    Slot(u64),
    /// So many bytes behind the thread pointer.
    Distance(i32),
}

impl Errno {
    /// By the code of [`FUNCTION`] at a virtual address; none if that is not one of those that are understood.
    pub fn of(image: &Image, address: u64) -> Option<Errno> {
        let bytes = image.code_from(address)?;
        understand(&bytes[..bytes.len().min(LENGTH)], address)
    }
}

/// The function adds two parts in `rax`: the thread pointer, from the thread's own control block, and the distance.
fn understand(bytes: &[u8], address: u64) -> Option<Errno> {
    let mut decoder = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE);
    let mut distance = None;
    let mut has_pointer = false;
    for instruction in &mut decoder {
        let is_first = distance.is_none() && !has_pointer;
        match instruction.mnemonic() {
            Mnemonic::Endbr64 => continue,
            Mnemonic::Ret => return distance.filter(|_| has_pointer),
            Mnemonic::Mov if is_first => {}
            Mnemonic::Add if !is_first => {}
            _ => return None,
        }
        if instruction.op0_kind() != OpKind::Register || instruction.op0_register() != Register::RAX {
            return None;
        }
        if is_control_block(&instruction) {
            if std::mem::replace(&mut has_pointer, true) {
                return None;
            }
        } else if distance.replace(part(&instruction)?).is_some() {
            return None;
        }
    }
    None
}

/// `fs:0`, where the thread pointer itself stands.
fn is_control_block(instruction: &Instruction) -> bool {
    instruction.op1_kind() == OpKind::Memory
        && instruction.memory_segment() == Register::FS
        && instruction.memory_base() == Register::None
        && instruction.memory_index() == Register::None
        && instruction.memory_displacement64() == 0
}

fn part(instruction: &Instruction) -> Option<Errno> {
    match instruction.op1_kind() {
        OpKind::Memory if instruction.is_ip_rel_memory_operand() && instruction.segment_prefix() == Register::None => {
            Some(Errno::Slot(instruction.ip_rel_memory_address()))
        }
        OpKind::Immediate8to64 | OpKind::Immediate32to64 => {
            i32::try_from(instruction.immediate(1).cast_signed()).ok().map(Errno::Distance)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As gcc and clang compile the two C libraries, shared and static.
    #[test]
    fn the_code_of_c_libraries_is_understood() {
        let slot: &[u8] = b"\x48\x8b\x05\x79\xb7\x1a\x00\x64\x48\x03\x04\x25\0\0\0\0\xc3";
        let marked: &[u8] = b"\xf3\x0f\x1e\xfa\x64\x48\x8b\x04\x25\0\0\0\0\x48\x03\x05\x10\0\0\0\xc3";
        let constant: &[u8] = b"\x48\xc7\xc0\xc0\xff\xff\xff\x64\x48\x03\x04\x25\0\0\0\0\xc3";
        let musl: &[u8] = b"\x64\x48\x8b\x04\x25\0\0\0\0\x48\x83\xc0\x34\xc3";
        assert_eq!(understand(slot, 0x27660), Some(Errno::Slot(0x1d2de0)));
        assert_eq!(understand(marked, 0x1000), Some(Errno::Slot(0x1024)));
        assert_eq!(understand(constant, 0x1000), Some(Errno::Distance(-64)));
        assert_eq!(understand(musl, 0x1000), Some(Errno::Distance(0x34)));
    }

    #[test]
    fn other_code_is_not() {
        let twice: &[u8] = b"\x64\x48\x8b\x04\x25\0\0\0\0\x64\x48\x03\x04\x25\0\0\0\0\xc3";
        let alone: &[u8] = b"\x48\x8b\x05\x79\xb7\x1a\x00\xc3";
        let loads: &[u8] = b"\x48\x8b\x05\x79\xb7\x1a\x00\x48\x8b\x00\xc3";
        let jump: &[u8] = b"\xe9\0\0\0\0";
        for code in [twice, alone, loads, jump, b"", b"\xc3"] {
            assert_eq!(understand(code, 0x1000), None, "{code:x?}");
        }
    }
}
