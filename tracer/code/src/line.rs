//! The straight line at the entry of a function: the instructions that each call executes before
//! anything else, with the stack pointer at a known distance from the return address.
//!
//! It ends where control may go elsewhere, where nobody can tell the stack pointer any more, and where
//! the return address might be written: by a store through the stack pointer, or through any register
//! once the stack pointer was copied. A store through another pointer cannot meet it, since the slot
//! came into being with the call, and no caller knows its address. It ends early too where an instruction may fault,
//! as a signal handler may leave the call, and where it takes time: what is done before the site belongs to no call.

use std::ops::Range;

use iced_x86::{FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpKind, Register, UsedMemory};

use crate::copies::{Copies, Registers, writes};
use crate::instruction::{accesses_beside_stack, may_fault};
use crate::stack::{Stack, words};
use crate::text::{FunctionCode, Text};

/// Instructions that may stand before a site: a few nanoseconds.
const LONGEST: usize = 32;
/// Bytes of the return address.
const SLOT: i64 = 8;

/// The number of the frame pointer, `rbp`.
const FRAME_POINTER: u8 = 5;

/// What must still be as it was where a probe sits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Intact {
    /// No memory beside the stack has been accessed, as accesses are counted.
    pub accesses: bool,
    /// Some register holds so many low bytes of what the caller put into each general register, by its number in
    /// instructions.
    pub registers: [u8; 16],
    /// The frame pointer is the caller's.
    pub frame: bool,
    /// So does memory, but for the function's own part of the stack.
    pub memory: bool,
}

impl Intact {
    /// Whether memory is as it was after this instruction, in front of which the stack pointer is so many bytes below
    /// the return address, if it was before.
    fn spares(self, info: &mut InstructionInfoFactory, instruction: &Instruction, depth: i32) -> bool {
        if self.accesses && accesses_beside_stack(info, instruction) {
            return false;
        }
        let is_own = |store: &UsedMemory| {
            let end = (store.displacement() as i64).saturating_add(store.memory_size().size() as i64);
            store.base().full_register() == Register::RSP && store.index() == Register::None && end <= i64::from(depth)
        };
        let used = info.info(instruction);
        !self.memory || used.used_memory().iter().filter(|memory| writes(memory.access())).all(is_own)
    }

    /// Where the registers are, if all of them are somewhere.
    fn places(self, copies: &Copies) -> Option<Registers> {
        let has_frame = !self.frame || copies.place(FRAME_POINTER, 8) == Some(FRAME_POINTER);
        copies.places(&self.registers).filter(|_| has_frame)
    }
}

/// An instruction of the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodePoint {
    /// Its address.
    pub address: u64,
    /// Words from the stack pointer up to the return address.
    pub words: u32,
    /// Where the registers are that are to be kept.
    pub registers: Registers,
}

impl CodePoint {
    /// Where the function begins.
    pub fn entry(code: FunctionCode) -> CodePoint {
        CodePoint { address: code.entry, words: 0, registers: Registers::default() }
    }
}

/// The instructions of the line after the first one, as long as what is to be kept is as it was.
pub fn from_entry(text: &Text, extent: &Range<u64>, keeps: Intact) -> Vec<CodePoint> {
    let mut info = InstructionInfoFactory::new();
    let mut line = Vec::new();
    let mut address = extent.start;
    let mut stack = Stack::ENTRY;
    let mut stack_copied = false;
    let mut copies = Copies::new();
    while line.len() < LONGEST
        && let Some(instruction) = text.instruction(address)
        && let Some(depth) = stack.pointer
        // Nobody knows what a patched instruction does.
        && text.verbatim().obstacle(&(address..instruction.next_ip())).is_none()
    {
        stack_copied |= copies_stack(&instruction);
        let behind = address + 1..=instruction.next_ip();
        address = instruction.next_ip();
        stack = stack.after(&instruction);
        let words = stack.pointer.and_then(words);
        // Code may begin in the middle of an instruction, too.
        let is_entered = behind.into_iter().any(|address| text.is_start(address));
        let is_spared = keeps.spares(&mut info, &instruction, depth);
        let continues = continues(&mut info, &instruction, depth, stack_copied);
        copies.follow(&mut info, &instruction);
        let kept = words.zip(keeps.places(&copies));
        let Some((words, registers)) =
            kept.filter(|_| continues && is_spared && !is_entered && extent.contains(&address))
        else {
            break;
        };
        line.push(CodePoint { address, words, registers });
    }
    line
}

/// Whether `instruction` leaves the return address alone, and the next one follows: a call whose first load faults may be
/// left by a signal handler.
fn continues(info: &mut InstructionInfoFactory, instruction: &Instruction, depth: i32, stack_copied: bool) -> bool {
    let follows = instruction.flow_control() == FlowControl::Next && !may_fault(info, instruction);
    if !follows || instruction.is_string_instruction() {
        return false;
    }
    let mut stores = info.info(instruction).used_memory().iter().filter(|memory| writes(memory.access()));
    stores.all(|store| spares_slot(store, i64::from(depth), stack_copied))
}

/// Whether a store does not meet the return address, which is so many bytes above the stack pointer.
fn spares_slot(store: &UsedMemory, depth: i64, stack_copied: bool) -> bool {
    if store.base().full_register() != Register::RSP {
        return !stack_copied;
    }
    let displacement = (store.displacement() as i64).saturating_sub(depth);
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
