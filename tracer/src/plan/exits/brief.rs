//! Functions whose calls take so little that a second probe would only measure the first.

use iced_x86::{FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpKind, Register};

/// So many instructions take a few nanoseconds. Each has 15 bytes at the most.
pub const MOST: usize = 32;

/// Whether these are few, and none of them waits: for other processors, for devices, or for what it
/// calls.
pub fn are_quick<'a>(mut instructions: impl Iterator<Item = &'a Instruction>) -> bool {
    instructions.by_ref().take(MOST).all(is_quick) && instructions.next().is_none()
}

/// Whether it takes next to no time, and goes on in the function or leaves it.
pub fn is_quick(instruction: &Instruction) -> bool {
    let goes_on = matches!(
        instruction.flow_control(),
        FlowControl::Next
            | FlowControl::UnconditionalBranch
            | FlowControl::ConditionalBranch
            | FlowControl::IndirectBranch
            | FlowControl::Return
    );
    goes_on && !instruction.is_string_instruction() && !is_atomic(instruction) && !is_slow(instruction.mnemonic())
}

/// Whether it may wait until other processors give up the memory.
fn is_atomic(instruction: &Instruction) -> bool {
    let exchanges = instruction.mnemonic() == Mnemonic::Xchg
        && (0..instruction.op_count()).any(|operand| instruction.op_kind(operand) == OpKind::Memory);
    exchanges || instruction.has_lock_prefix()
}

fn is_slow(mnemonic: Mnemonic) -> bool {
    matches!(
        mnemonic,
        Mnemonic::Cpuid
            | Mnemonic::Rdtsc
            | Mnemonic::Rdtscp
            | Mnemonic::Rdpmc
            | Mnemonic::Rdpid
            | Mnemonic::Rdrand
            | Mnemonic::Rdseed
            | Mnemonic::Pause
            | Mnemonic::Tpause
            | Mnemonic::Umonitor
            | Mnemonic::Umwait
            | Mnemonic::Monitorx
            | Mnemonic::Mwaitx
            | Mnemonic::Serialize
            | Mnemonic::Mfence
            | Mnemonic::Lfence
            | Mnemonic::Sfence
            | Mnemonic::Clflush
            | Mnemonic::Clflushopt
            | Mnemonic::Clwb
            | Mnemonic::Hlt
    )
}

/// Whether one of these accesses memory beside the stack.
pub fn accesses_memory<'a>(mut instructions: impl Iterator<Item = &'a Instruction>) -> bool {
    let mut info = InstructionInfoFactory::new();
    instructions.any(|instruction| {
        let mut used = info.info(instruction).used_memory().iter();
        used.any(|memory| memory.base().full_register() != Register::RSP)
    })
}
