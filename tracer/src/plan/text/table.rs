//! Where the indirect jumps of a range of code go: by tables, as compilers make them of a `switch`, or through
//! pointers.
//!
//! A jump by a table adds an entry of a table of differences to a constant, or loads an entry of a table of
//! addresses. What wrote the registers is looked for in the lines before, whatever may jump in between: the
//! table's entries tell whether that was right. A jump through a pointer is believed only if nothing jumps in
//! between.

use std::ops::Range;

use foldhash::HashSet;
use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
};

use super::Text;
use super::ways::Destination;

/// Instructions before a jump that are looked at.
const WINDOW: usize = 64;
/// Tables with more entries are not believed.
const MAX_TABLE: u64 = 1 << 16;

/// The instructions of a range, as they stand.
pub struct Line<'a> {
    text: &'a Text<'a>,
    range: &'a Range<u64>,
    instructions: Vec<Instruction>,
    /// Where direct jumps go.
    jumped_to: HashSet<u64>,
}

/// A table in the file.
struct Table {
    address: u64,
    /// Added to each entry.
    base: u64,
    /// Bytes per entry.
    width: u64,
    /// Entries that the comparison before the jump lets it reach.
    len: u64,
}

impl<'a> Line<'a> {
    /// The instructions of `range`, of these bytes, with the targets of all direct jumps in it.
    pub fn new(text: &'a Text<'a>, range: &'a Range<u64>, bytes: &[u8], jumps: &[u64]) -> Line<'a> {
        let instructions = Decoder::with_ip(64, bytes, range.start, DecoderOptions::NONE).into_iter().collect();
        Line { text, range, instructions, jumped_to: jumps.iter().copied().collect() }
    }

    /// Where its indirect jumps go, but for those through a variable at a fixed address.
    pub fn destinations(&self) -> impl Iterator<Item = Destination> {
        let is_computed =
            |jump: &Instruction| jump.flow_control() == FlowControl::IndirectBranch && !jump.is_ip_rel_memory_operand();
        let jumps = self.instructions.iter().enumerate().filter(move |(_, jump)| is_computed(jump));
        jumps.map(|(at, jump)| match jump.op0_kind() {
            OpKind::Memory => self.loaded(at),
            OpKind::Register => self.held(at, jump.op0_register()),
            _ => Destination::Unknown,
        })
    }

    /// What the instruction at this place loads from memory.
    fn loaded(&self, at: usize) -> Destination {
        let load = &self.instructions[at];
        let is_entry = load.memory_base() == Register::None && load.memory_index_scale() == 8;
        let table = || Some(Table { address: load.memory_displacement64(), base: 0, width: 8, len: self.bound(at)? });
        let targets = is_entry.then(table).flatten().and_then(|table| self.read(&table));
        targets.map_or(Destination::Pointer, Destination::Table)
    }

    /// What a register holds before the instruction at this place.
    fn held(&self, at: usize, register: Register) -> Destination {
        let mut info = InstructionInfoFactory::new();
        let mut register = register.full_register();
        // Whether the lines before are the only way here.
        let mut is_certain = true;
        for before in (at.saturating_sub(WINDOW)..at).rev() {
            is_certain &= !self.jumped_to.contains(&self.instructions[before + 1].ip());
            let instruction = &self.instructions[before];
            match instruction.flow_control() {
                FlowControl::Next | FlowControl::ConditionalBranch => {}
                FlowControl::Call | FlowControl::IndirectCall if is_kept(register) => {}
                FlowControl::Call | FlowControl::IndirectCall if register == Register::RAX && is_certain => {
                    return Destination::Pointer;
                }
                FlowControl::Call | FlowControl::IndirectCall => return Destination::Unknown,
                _ => is_certain = false,
            }
            if !writes(&mut info, instruction, register) {
                continue;
            }
            let is_register =
                instruction.op0_kind() == OpKind::Register && instruction.op0_register().full_register() == register;
            let destination = match (instruction.mnemonic(), instruction.op1_kind()) {
                (Mnemonic::Mov, OpKind::Register) if is_register => {
                    register = instruction.op1_register().full_register();
                    continue;
                }
                (Mnemonic::Mov, OpKind::Memory) if is_register => self.loaded(before),
                (Mnemonic::Pop, _) if is_register => Destination::Pointer,
                (Mnemonic::Add, OpKind::Register) if is_register => {
                    return self.differences(before).map_or(Destination::Unknown, Destination::Table);
                }
                _ => Destination::Unknown,
            };
            return match destination {
                Destination::Pointer if !is_certain => Destination::Unknown,
                destination => destination,
            };
        }
        let is_argument = at <= WINDOW && is_certain && !self.jumped_to.contains(&self.range.start);
        if is_argument { Destination::Pointer } else { Destination::Unknown }
    }

    /// The targets of a jump to the sum that the instruction at this place makes of an entry and a constant.
    fn differences(&self, sum: usize) -> Option<Vec<u64>> {
        let registers = [self.instructions[sum].op0_register(), self.instructions[sum].op1_register()];
        let [load, base] = match registers.map(|register| self.entry(sum, register)) {
            [Some(load), None] => [load, self.index_of(sum, registers[1])?],
            [None, Some(load)] => [load, self.index_of(sum, registers[0])?],
            _ => return None,
        };
        let entry = &self.instructions[load];
        let start = self.index_of(load, entry.memory_base())?;
        let constant = |at: usize| self.instructions[at].ip_rel_memory_address();
        let address = constant(start).wrapping_add(entry.memory_displacement64());
        self.read(&Table { address, base: constant(base), width: 4, len: self.bound(load)? })
    }

    /// The instruction before this place that loads an entry of a table of differences into a register, if it is
    /// the last to write it.
    fn entry(&self, at: usize, register: Register) -> Option<usize> {
        let mut info = InstructionInfoFactory::new();
        let window = (at.saturating_sub(WINDOW)..at).rev();
        let writer = window.into_iter().find(|&before| writes(&mut info, &self.instructions[before], register))?;
        let load = &self.instructions[writer];
        let is_entry = load.mnemonic() == Mnemonic::Movsxd
            && load.op1_kind() == OpKind::Memory
            && load.memory_index_scale() == 4
            && load.memory_base() != Register::None;
        is_entry.then_some(writer)
    }

    /// The last instruction before this place that puts an address into a register. It may stand far before, in
    /// front of a loop.
    fn index_of(&self, at: usize, register: Register) -> Option<usize> {
        self.instructions[..at].iter().rposition(|instruction| {
            instruction.mnemonic() == Mnemonic::Lea
                && instruction.is_ip_rel_memory_operand()
                && instruction.op0_register() == register
        })
    }

    /// The number of entries that the last comparison before this place allows.
    fn bound(&self, at: usize) -> Option<u64> {
        let before = &self.instructions[at.saturating_sub(WINDOW)..at];
        let check =
            before.iter().rposition(|instruction| matches!(instruction.mnemonic(), Mnemonic::Ja | Mnemonic::Jbe))?;
        let comparison = before[..check].iter().rfind(|instruction| instruction.rflags_modified() != 0)?;
        let immediate = !matches!(comparison.op1_kind(), OpKind::Register | OpKind::Memory);
        let last =
            (comparison.mnemonic() == Mnemonic::Cmp && immediate).then(|| comparison.immediate(1) & 0xffff_ffff)?;
        (last < MAX_TABLE).then_some(last + 1)
    }

    /// The targets in a table, if its first leads back into the range, and all lead to code. What follows the table
    /// and looks like a part of it is taken for one, as the comparison may have been another's.
    fn read(&self, table: &Table) -> Option<Vec<u64>> {
        let mut targets = Vec::new();
        for index in 0..MAX_TABLE {
            let target = self.entry_of(table, index);
            let leads_back = target.is_some_and(|target| self.begins_at(target));
            if !leads_back && index >= table.len {
                break;
            }
            let target = target.filter(|&target| leads_back || self.text.frame_at(target).is_some())?;
            if !leads_back && index == 0 {
                return None;
            }
            targets.push(target);
        }
        self.text.spend(targets.len()).then_some(targets)
    }

    /// Whether an instruction of the range begins there.
    fn begins_at(&self, address: u64) -> bool {
        self.instructions.binary_search_by_key(&address, Instruction::ip).is_ok()
    }

    fn entry_of(&self, table: &Table, index: u64) -> Option<u64> {
        let address = table.address.checked_add(index * table.width)?;
        let entry = match table.width {
            4 => i64::from(i32::from_le_bytes(self.text.data(address)?)) as u64,
            _ => u64::from_le_bytes(self.text.data(address)?),
        };
        Some(table.base.wrapping_add(entry))
    }
}

/// Whether a register is the same after a call (System V ABI for x86-64, 3.2.1).
fn is_kept(register: Register) -> bool {
    matches!(register, Register::RBX | Register::RBP | Register::R12 | Register::R13 | Register::R14 | Register::R15)
}

fn writes(info: &mut InstructionInfoFactory, instruction: &Instruction, register: Register) -> bool {
    info.info(instruction).used_registers().iter().any(|used| {
        used.register().full_register() == register
            && matches!(
                used.access(),
                OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
            )
    })
}
