//! The straight line at the entry of a function: the instructions that each call executes before
//! anything else, with the stack pointer at the return address.
//!
//! It ends where control may go elsewhere, where the stack pointer is written, and where the
//! return address might be: by a store through the stack pointer, or through any register once the
//! stack pointer was copied. A store through another pointer cannot meet it, since the slot came
//! into being with the call, and no caller knows its address. It ends early too where it takes
//! time: what is done before the site belongs to no call.

use std::ops::Range;

use iced_x86::{FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register, UsedMemory};

use crate::plan::text::Text;

/// Instructions that may stand before a site: a few nanoseconds.
const LONGEST: usize = 32;
/// Bytes of the return address.
const SLOT: i64 = 8;

/// The instructions of the line after the first one; with `keeps_accesses` it ends at an access to
/// memory beside the stack.
pub fn from_entry(text: &Text, extent: &Range<u64>, keeps_accesses: bool) -> Vec<u64> {
    let mut info = InstructionInfoFactory::new();
    let mut line = Vec::new();
    let mut address = extent.start;
    let mut stack_copied = false;
    while line.len() < LONGEST
        && let Some(instruction) = text.instruction(address)
    {
        stack_copied |= copies_stack(&instruction);
        let behind = address + 1..=instruction.next_ip();
        address = instruction.next_ip();
        // Code may begin in the middle of an instruction, too.
        let is_entered = behind.into_iter().any(|address| text.is_start(address));
        let is_kept = keeps_accesses && accesses_beside_stack(&mut info, &instruction);
        if is_kept || !continues(&mut info, &instruction, stack_copied) || !extent.contains(&address) || is_entered {
            break;
        }
        line.push(address);
    }
    line
}

/// Whether all is as before after `instruction`, and the next one follows.
fn continues(info: &mut InstructionInfoFactory, instruction: &Instruction, stack_copied: bool) -> bool {
    if instruction.flow_control() != FlowControl::Next || instruction.is_string_instruction() {
        return false;
    }
    let info = info.info(instruction);
    let moves_stack = info
        .used_registers()
        .iter()
        .any(|used| used.register().full_register() == Register::RSP && writes(used.access()));
    let stores = info.used_memory().iter().filter(|memory| writes(memory.access()));
    !moves_stack && stores.into_iter().all(|store| spares_slot(store, stack_copied))
}

fn accesses_beside_stack(info: &mut InstructionInfoFactory, instruction: &Instruction) -> bool {
    let mut used = info.info(instruction).used_memory().iter();
    used.any(|memory| memory.base().full_register() != Register::RSP)
}

/// Whether a store does not meet the return address.
fn spares_slot(store: &UsedMemory, stack_copied: bool) -> bool {
    if store.base().full_register() != Register::RSP {
        return !stack_copied;
    }
    let displacement = store.displacement() as i64;
    let size = store.memory_size().size() as i64;
    store.index() == Register::None && size > 0 && (displacement >= SLOT || displacement.saturating_add(size) <= 0)
}

/// Whether another register may point to the stack afterwards.
fn copies_stack(instruction: &Instruction) -> bool {
    let is_stack = |register: Register| register.full_register() == Register::RSP;
    let is_operand =
        |operand| instruction.op_kind(operand) == OpKind::Register && is_stack(instruction.op_register(operand));
    let is_lea = instruction.mnemonic() == Mnemonic::Lea && is_stack(instruction.memory_base());
    is_lea || (0..instruction.op_count()).any(is_operand)
}

fn writes(access: OpAccess) -> bool {
    matches!(access, OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite)
}
