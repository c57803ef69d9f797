//! Where the indirect jumps of a range of code go: by tables, as compilers make them of a `switch`, or through
//! pointers.
//!
//! A jump by a table adds an entry of a table of differences to a constant, or loads an entry of a table of
//! addresses. What wrote the registers is looked for in the lines before, whatever may jump in between: the
//! table's entries tell whether that was right. A jump through a pointer is believed only if all ways to it
//! agree.

use std::ops::Range;

use foldhash::{HashMap, HashSet};
use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
};

use super::{Text, branch_target};

/// Instructions before a jump that are looked at for what makes up a table.
const WINDOW: usize = 64;
/// Instructions that are looked at on the ways to a jump through a pointer.
const MOST_WAYS: usize = 512;
/// Tables with more entries are not believed.
const MAX_TABLE: u64 = 1 << 16;

/// Where an indirect jump goes.
pub enum JumpTarget {
    /// To one of these addresses.
    Table(Vec<u64>),
    /// Through a pointer that was loaded or passed; its value stands in the file if it points here.
    Pointer,
    /// That is not understood.
    Unknown,
}

/// The instructions of a range, as they stand.
pub struct StraightLine<'a> {
    text: &'a Text<'a>,
    instructions: Vec<Instruction>,
    /// The places of the direct jumps to an address.
    jumps: HashMap<u64, Vec<usize>>,
}

/// A table in the file.
struct JumpTable {
    address: u64,
    /// Added to each entry.
    base: u64,
    /// Bytes per entry.
    width: u64,
    /// Entries that the comparison before the jump lets it reach.
    len: u64,
}

impl<'a> StraightLine<'a> {
    /// The instructions of `range`, of these bytes.
    pub fn new(text: &'a Text<'a>, range: &Range<u64>, bytes: &[u8]) -> StraightLine<'a> {
        let instructions: Vec<Instruction> =
            Decoder::with_ip(64, bytes, range.start, DecoderOptions::NONE).into_iter().collect();
        let mut jumps: HashMap<u64, Vec<usize>> = HashMap::default();
        for (place, instruction) in instructions.iter().enumerate() {
            if let Some(target) = branch_target(instruction) {
                jumps.entry(target).or_default().push(place);
            }
        }
        StraightLine { text, instructions, jumps }
    }

    /// Its indirect jumps, but for those through a variable at a fixed address, and where they go.
    pub fn destinations(&self) -> impl Iterator<Item = (u64, JumpTarget)> {
        let is_computed =
            |jump: &Instruction| jump.flow_control() == FlowControl::IndirectBranch && !jump.is_ip_rel_memory_operand();
        let jumps = self.instructions.iter().enumerate().filter(move |(_, jump)| is_computed(jump));
        jumps.map(|(at, jump)| {
            let destination = match jump.op0_kind() {
                OpKind::Memory => self.loaded(at),
                OpKind::Register => self.held(at, jump.op0_register()),
                _ => JumpTarget::Unknown,
            };
            (jump.ip(), destination)
        })
    }

    /// What the instruction at this place loads from memory.
    fn loaded(&self, at: usize) -> JumpTarget {
        self.addresses(at).map_or(JumpTarget::Pointer, JumpTarget::Table)
    }

    /// What a register holds before the instruction at this place.
    fn held(&self, at: usize, register: Register) -> JumpTarget {
        match self.switch(at, register) {
            Some(targets) => JumpTarget::Table(targets),
            None if self.is_pointer(at, register) => JumpTarget::Pointer,
            None => JumpTarget::Unknown,
        }
    }

    /// The targets of a jump to what a register holds before this place, if it goes by a table.
    fn switch(&self, at: usize, register: Register) -> Option<Vec<u64>> {
        let writer = self.writer(at, register)?;
        match self.instructions[writer].mnemonic() {
            Mnemonic::Add => self.differences(writer),
            Mnemonic::Mov => self.addresses(writer),
            _ => None,
        }
    }

    /// Whether a register holds what a variable holds, what the caller passed, or what a callee returned, on all
    /// ways to this place.
    fn is_pointer(&self, at: usize, register: Register) -> bool {
        let mut info = InstructionInfoFactory::new();
        let mut seen = HashSet::default();
        let mut ways = vec![(at, register.full_register())];
        while let Some((at, register)) = ways.pop() {
            if !seen.insert((at, register)) {
                continue;
            }
            let before = self.predecessors(at);
            let is_entry = at == 0;
            let is_padding = before.is_empty() && !is_entry && self.instructions[at].mnemonic() == Mnemonic::Nop;
            if is_padding {
                continue;
            }
            if seen.len() > MOST_WAYS || is_entry && !is_argument(register) || !is_entry && before.is_empty() {
                return false;
            }
            for place in before {
                let instruction = &self.instructions[place];
                match effect(&mut info, instruction, register) {
                    Effect::Holds(register) => ways.push((place, register)),
                    Effect::Pointer if self.addresses(place).is_none() => {}
                    Effect::Pointer | Effect::Unknown => return false,
                }
            }
        }
        true
    }

    /// The places from which control comes to this one: the one before, and those of the jumps to it.
    fn predecessors(&self, at: usize) -> Vec<usize> {
        let runs_on = |place: &usize| {
            !matches!(
                self.instructions[*place].flow_control(),
                FlowControl::UnconditionalBranch | FlowControl::IndirectBranch | FlowControl::Return
            )
        };
        let line = at.checked_sub(1).filter(runs_on);
        let jumps = self.jumps.get(&self.instructions[at].ip()).map_or(&[][..], Vec::as_slice);
        line.into_iter().chain(jumps.iter().copied()).collect()
    }

    /// The last instruction to write a register in the lines before this place, where it does not copy another.
    fn writer(&self, at: usize, register: Register) -> Option<usize> {
        let mut info = InstructionInfoFactory::new();
        let mut register = register.full_register();
        (at.saturating_sub(WINDOW)..at).rev().find(|&place| {
            let instruction = &self.instructions[place];
            let is_copy = instruction.mnemonic() == Mnemonic::Mov
                && instruction.op1_kind() == OpKind::Register
                && instruction.op0_register().full_register() == register;
            if is_copy {
                register = instruction.op1_register().full_register();
            }
            !is_copy && writes(&mut info, instruction, register)
        })
    }

    /// The targets in the table of addresses that the instruction at this place loads an entry of, in programs that
    /// are not relocated.
    fn addresses(&self, at: usize) -> Option<Vec<u64>> {
        let load = &self.instructions[at];
        let has_memory = (0..load.op_count()).any(|operand| load.op_kind(operand) == OpKind::Memory);
        if !has_memory || load.memory_base() != Register::None || load.memory_index_scale() != 8 {
            return None;
        }
        self.read(&JumpTable { address: load.memory_displacement64(), base: 0, width: 8, len: self.bound(at)? })
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
        self.read(&JumpTable { address, base: constant(base), width: 4, len: self.bound(load)? })
    }

    /// The instruction before this place that loads an entry of a table of differences into a register, if it is
    /// the last to write it.
    fn entry(&self, at: usize, register: Register) -> Option<usize> {
        let writer = self.writer(at, register)?;
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

    /// The targets in a table, if some lead back into the range, and all lead to code. What follows the table and
    /// looks like a part of it is taken for one, as the comparison may have been another's.
    fn read(&self, table: &JumpTable) -> Option<Vec<u64>> {
        let mut targets = Vec::new();
        let mut leads_back = false;
        for index in 0..MAX_TABLE {
            let target = self.entry_of(table, index);
            let is_inside = target.is_some_and(|target| self.begins_at(target));
            if !is_inside && index >= table.len {
                break;
            }
            leads_back |= is_inside;
            targets.push(target.filter(|&target| is_inside || self.text.frame_at(target).is_some())?);
        }
        (leads_back && self.text.spend(targets.len())).then_some(targets)
    }

    /// Whether an instruction of the range begins there.
    fn begins_at(&self, address: u64) -> bool {
        self.instructions.binary_search_by_key(&address, Instruction::ip).is_ok()
    }

    fn entry_of(&self, table: &JumpTable, index: u64) -> Option<u64> {
        let address = table.address.checked_add(index * table.width)?;
        let entry = match table.width {
            4 => i64::from(i32::from_le_bytes(self.text.data(address)?)) as u64,
            _ => u64::from_le_bytes(self.text.data(address)?),
        };
        Some(table.base.wrapping_add(entry))
    }
}

/// What one instruction makes of a register.
enum Effect {
    /// It holds what this one held before: itself, or another.
    Holds(Register),
    /// It holds what a variable holds, or what a callee returned.
    Pointer,
    /// That is not understood.
    Unknown,
}

/// What `instruction` makes of `register`.
fn effect(info: &mut InstructionInfoFactory, instruction: &Instruction, register: Register) -> Effect {
    if matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall) {
        // What a call leaves as it was: System V ABI for x86-64, 3.2.1.
        return match register {
            Register::RAX => Effect::Pointer,
            Register::RBX | Register::RBP | Register::R12 | Register::R13 | Register::R14 | Register::R15 => {
                Effect::Holds(register)
            }
            _ => Effect::Unknown,
        };
    }
    if !writes(info, instruction, register) {
        return Effect::Holds(register);
    }
    if instruction.op0_kind() != OpKind::Register || instruction.op0_register().full_register() != register {
        return Effect::Unknown;
    }
    match (instruction.mnemonic(), instruction.op1_kind()) {
        (Mnemonic::Mov, OpKind::Register) => Effect::Holds(instruction.op1_register().full_register()),
        (Mnemonic::Mov, OpKind::Memory) | (Mnemonic::Pop, _) => Effect::Pointer,
        // Its address is in the instruction.
        (Mnemonic::Lea, _) if instruction.is_ip_rel_memory_operand() => Effect::Pointer,
        // The C library scrambles pointers that it keeps; code addresses are never made so.
        (Mnemonic::Ror, _) => Effect::Pointer,
        (Mnemonic::Xor, OpKind::Memory) if instruction.segment_prefix() == Register::FS => Effect::Holds(register),
        _ => Effect::Unknown,
    }
}

/// Whether callers pass an argument in this register.
fn is_argument(register: Register) -> bool {
    matches!(register, Register::RDI | Register::RSI | Register::RDX | Register::RCX | Register::R8 | Register::R9)
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
