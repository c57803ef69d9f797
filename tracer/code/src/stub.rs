//! Which functions can be seen at a stub instead, and what the stub holds.
//!
//! A stub stores the vector registers that are asked for, in words below the stack pointer that belong to nobody, because
//! programs of probes cannot read registers of this kind. Then comes a `nop`, with the probe on it, then a copy of the
//! function's instructions up to the one at which its enter would be seen, that one included, then a jump to the next. So
//! a call that comes by the stub passes a probe that the kernel emulates and avoids the function's own, which stays where
//! it is: a call that comes by another way meets that as ever. Each call meets one of the two, whatever way it takes, and
//! whether or not a process has stubs.
//!
//! The instructions must do the same wherever they stand, raise no signal there, and move the stack pointer, if at all, by a
//! known distance, so that the unwind table of the stubs can tell it.

use foldhash::HashSet;
use iced_x86::{Code, FlowControl, InstructionInfoFactory};

use crate::instruction::may_fault;
use crate::obstacle::Obstacle;
use crate::stack::Stack;
use crate::text::Text;

/// What a stub holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stub {
    /// Virtual address of the function in its library's own terms.
    pub address: u64,
    /// The vector registers that it stores, by their numbers.
    pub vectors: Vec<u8>,
    /// The copied instructions.
    pub code: Vec<u8>,
    /// How far the stack pointer is from the return address, in bytes, each with the length of the
    /// copied code after which it is so; empty where it does not move.
    pub depths: Vec<(u32, u32)>,
    /// The last of them returns: nothing is jumped to.
    pub returns: bool,
    /// Its library calls it without the dynamic linker's help, too, or holds its address.
    pub has_other_callers: bool,
}

/// The stub for the function that begins at `entry`, whose enter is seen at `site`.
///
/// # Errors
/// Why there can be none.
pub fn of(text: &Text, entry: u64, site: u64) -> Result<Stub, Obstacle> {
    let mut stub = Stub { address: entry, ..Stub::default() };
    let mut stack = Stack::ENTRY;
    let mut address = entry;
    let mut info = InstructionInfoFactory::new();
    while address <= site {
        let instruction = text.instruction(address).ok_or(Obstacle::NoInstruction)?;
        if instruction.is_ip_rel_memory_operand() {
            return Err(Obstacle::Position);
        }
        stub.returns = instruction.code() == Code::Retnq;
        if !stub.returns && instruction.flow_control() != FlowControl::Next {
            return Err(Obstacle::Branch);
        }
        // A handler may know by its address the one instruction of the program that may fault.
        if may_fault(&mut info, &instruction) {
            return Err(Obstacle::MayFault);
        }
        stub.code.extend(text.instruction_bytes(address).unwrap_or_default());
        address = instruction.next_ip();
        if stub.returns {
            break;
        }
        let before = stack.pointer;
        stack = stack.after(&instruction);
        let depth = stack.pointer.and_then(|depth| u32::try_from(depth).ok());
        let depth = depth.ok_or(Obstacle::StackPointer)?;
        if stack.pointer != before {
            stub.depths.push((stub.code.len() as u32, depth));
        }
    }
    Ok(stub)
}

/// Those of the functions at these addresses that their library also calls or jumps to directly, or
/// whose address it holds; all of them, where its code cannot be read to the end.
pub fn reached_directly(text: &Text, functions: &HashSet<u64>) -> HashSet<u64> {
    let references = text.references();
    let reached = references.all().filter(|address| functions.contains(address));
    if references.is_complete { reached.collect() } else { functions.clone() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::testing::{BASE, image};

    /// The stub of a function of this code whose enter is seen so many bytes behind its first.
    fn stub(code: &[u8], site: u64) -> Result<Stub, Obstacle> {
        let image = image(code);
        of(&Text::new(&image, vec![BASE]), BASE, BASE + site)
    }

    #[test]
    fn the_copy_ends_behind_the_site() {
        let copied = |code: &[u8], site| stub(code, site).map(|stub| (stub.code.len(), stub.returns, stub.depths));
        // sub rsp,0xd8; mov [rsp+0x30],rdx
        let frame = [0x48, 0x81, 0xec, 0xd8, 0, 0, 0, 0x48, 0x89, 0x54, 0x24, 0x30];
        assert_eq!(copied(&frame, 0), Ok((7, false, vec![(7, 0xd8)])));
        // endbr64; sub rsp,8
        let landing = [0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0x83, 0xec, 0x08];
        assert_eq!(copied(&landing, 0), Ok((4, false, vec![])));
        assert_eq!(copied(&landing, 4), Ok((8, false, vec![(8, 8)])));
        // lea eax,[rdi+1]; ret
        let leaf = [0x8d, 0x47, 0x01, 0xc3];
        assert_eq!(copied(&leaf, 0), Ok((3, false, vec![])));
        assert_eq!(copied(&leaf, 3), Ok((4, true, vec![])));
    }

    #[test]
    fn what_depends_on_its_place_is_not_copied() {
        assert_eq!(stub(&[0x48, 0x8b, 0x05, 0, 0, 0, 0, 0xc3], 0), Err(Obstacle::Position)); // mov rax,[rip]
        for code in [&[0xe8, 0, 0, 0, 0][..], &[0xeb, 0], &[0xff, 0xe0], &[0xff, 0xd0], &[0x0f, 0x05], &[0xc2, 8, 0]] {
            assert_eq!(stub(code, 0), Err(Obstacle::Branch), "{code:x?}");
        }
        assert_eq!(stub(&[0x48, 0x83, 0xe4, 0xe0, 0xc3], 0), Err(Obstacle::StackPointer)); // and rsp,-32
        assert_eq!(stub(&[0x06, 0xc3], 0), Err(Obstacle::NoInstruction));
        assert_eq!(stub(&[0x8b, 0x07, 0xc3], 0), Err(Obstacle::MayFault)); // mov eax,[rdi]
        assert_eq!(stub(&[0x31, 0xd2, 0xf7, 0xf7, 0xc3], 2), Err(Obstacle::MayFault)); // xor edx,edx; div edi
    }

    #[test]
    fn other_ways_to_a_function_are_seen() {
        // ret; 1: jmp 1 + 2; 3: call 0; 8: lea rax,[rip] to 15; 15: ret
        let code = [0xc3, 0xeb, 0x00, 0xe8, 0xf8, 0xff, 0xff, 0xff, 0x48, 0x8d, 0x05, 0, 0, 0, 0, 0xc3];
        let image = image(&code);
        let entries = [0, 1, 3, 15].map(|place| BASE + place);
        let text = Text::new(&image, entries.to_vec());
        let reached = reached_directly(&text, &entries.into_iter().collect());
        assert_eq!(reached, [0, 3, 15].map(|place| BASE + place).into_iter().collect());
    }
}
