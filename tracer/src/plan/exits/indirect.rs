//! Where an indirect jump goes: through a pointer to another function, or by a table to code of
//! the same one.
//!
//! The instructions on all ways to the jump say how its operand was made. A sum of a constant and
//! an entry of a table of differences is a `switch`; the table is read from the file, as far as
//! the comparison before the jump lets the index go. A value loaded from a variable, or handed in
//! by the caller, is a pointer: where no frame is left, the jump is a tail call.

use foldhash::HashSet;
use iced_x86::{FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register, RflagsBits};

use super::{Place, Walk};
use crate::plan::stack::Stack;

/// How many instructions before a jump are looked at.
const WINDOW: usize = 512;
/// Tables with more entries are not believed.
const MAX_TABLE: u64 = 1 << 16;

/// Where an indirect jump goes.
pub enum Destination {
    /// To another function, through a pointer.
    Pointer,
    /// To this address.
    Known(u64),
    /// To one of these addresses in the function.
    Table(Vec<u64>),
}

/// What a register holds.
#[derive(Clone, Copy, PartialEq)]
enum Value {
    /// An address within the library.
    Constant(u64),
    /// What a variable holds, what the caller passed, or what a callee returned.
    Pointer,
    /// The sum of two registers, made by the instruction at this address.
    Sum(u64),
    /// An entry of a table, read by the instruction at this address.
    Entry(u64),
}

/// What one instruction makes of a register.
enum Effect {
    /// It holds what this one held before: itself, or another.
    Holds(Register),
    /// It holds this.
    Is(Value),
    /// That is not understood.
    Unknown,
}

/// A table in the file.
struct Table {
    address: u64,
    /// Added to each entry.
    base: u64,
    /// Bytes per entry.
    width: u64,
    /// Number of entries.
    len: u64,
}

/// Where `jump` goes, and what is known of the stack there; none where that cannot be told.
pub(super) fn destination(walk: &Walk, jump: &Instruction) -> Option<(Stack, Destination)> {
    let stack = walk.at(jump.ip())?.stack;
    let value = match jump.op0_kind() {
        OpKind::Register => walk.value(jump.op0_register(), jump.ip())?,
        OpKind::Memory => memory_value(jump),
        _ => return None,
    };
    let destination = match value {
        Value::Constant(target) => Destination::Known(target),
        Value::Pointer if stack.pointer == Some(0) || jump.is_ip_rel_memory_operand() => Destination::Pointer,
        Value::Pointer => return None,
        Value::Sum(sum) => Destination::Table(walk.read(&walk.differences(sum)?, stack)?),
        Value::Entry(load) => Destination::Table(walk.read(&walk.addresses(load)?, stack)?),
    };
    Some((stack, destination))
}

/// What an instruction loads from memory: with a scaled index an entry of a table, else a
/// variable.
fn memory_value(instruction: &Instruction) -> Value {
    match (instruction.memory_index(), instruction.memory_index_scale()) {
        (Register::None, _) | (_, 1) => Value::Pointer,
        _ => Value::Entry(instruction.ip()),
    }
}

impl Walk<'_> {
    /// The instructions from which control comes to `address`: the one that stands before it,
    /// then the jumps to it.
    fn predecessors(&self, address: u64) -> Vec<Instruction> {
        let line = (1..=15).find_map(|len| {
            let start = address.checked_sub(len)?;
            let instruction = self.at(start)?.instruction;
            let runs_on = !matches!(
                instruction.flow_control(),
                FlowControl::UnconditionalBranch | FlowControl::IndirectBranch | FlowControl::Return
            );
            (instruction.len() as u64 == len && runs_on).then_some(instruction)
        });
        let jumps = self.jumps.get(&address).map_or(&[][..], Vec::as_slice);
        line.into_iter().chain(jumps.iter().filter_map(|&jump| Some(self.at(jump)?.instruction))).collect()
    }

    /// What `register` holds before the instruction at `address`, if all ways to it agree.
    fn value(&self, register: Register, address: u64) -> Option<Value> {
        let mut info = InstructionInfoFactory::new();
        let mut found = None;
        let mut seen = HashSet::default();
        let mut ways = vec![(address, register.full_register())];
        while let Some((address, register)) = ways.pop() {
            if !seen.insert((address, register)) {
                continue;
            }
            if seen.len() > WINDOW {
                return None;
            }
            let mut agree = |value: Value| *found.get_or_insert(value) == value;
            if address == self.entry && !(is_argument(register) && agree(Value::Pointer)) {
                return None;
            }
            let predecessors = self.predecessors(address);
            if predecessors.is_empty() && address != self.entry || !self.text.spend(predecessors.len()) {
                return None;
            }
            for instruction in predecessors {
                match effect(&mut info, &instruction, register) {
                    Effect::Holds(before) => ways.push((instruction.ip(), before)),
                    Effect::Is(value) if agree(value) => {}
                    Effect::Is(_) | Effect::Unknown => return None,
                }
            }
        }
        found
    }

    /// The table of a jump to the sum of a constant and an entry.
    fn differences(&self, sum: u64) -> Option<Table> {
        let sum = self.text.instruction(sum)?;
        let registers = [sum.op0_register(), sum.op1_register()];
        let loads = registers.map(|register| match self.value(register, sum.ip()) {
            Some(Value::Entry(load)) => self.text.instruction(load),
            _ => None,
        });
        let (load, base) = match loads {
            [Some(load), None] => (load, registers[1]),
            [None, Some(load)] => (load, registers[0]),
            _ => return None,
        };
        if load.mnemonic() != Mnemonic::Movsxd || load.memory_index_scale() != 4 {
            return None;
        }
        let start = self.constant(load.memory_base(), load.ip())?;
        Some(Table {
            address: start.wrapping_add(load.memory_displacement64()),
            base: self.constant(base, sum.ip())?,
            width: 4,
            len: self.bound(load.ip())?,
        })
    }

    /// The table of a jump to an entry, in programs that are not relocated.
    fn addresses(&self, load: u64) -> Option<Table> {
        let load = self.text.instruction(load)?;
        if load.memory_base() != Register::None || load.memory_index_scale() != 8 {
            return None;
        }
        Some(Table { address: load.memory_displacement64(), base: 0, width: 8, len: self.bound(load.ip())? })
    }

    fn constant(&self, register: Register, address: u64) -> Option<u64> {
        match self.value(register, address)? {
            Value::Constant(constant) => Some(constant),
            _ => None,
        }
    }

    /// The number of entries that the last comparison before a table is read allows.
    fn bound(&self, address: u64) -> Option<u64> {
        let mut address = address;
        let mut before = std::iter::from_fn(|| {
            let instruction = self.predecessors(address).into_iter().next()?;
            address = instruction.ip();
            Some(instruction)
        })
        .take(WINDOW);
        before.find(|instruction| instruction.mnemonic() == Mnemonic::Ja)?;
        let comparison = before.find(|instruction| instruction.rflags_modified() != RflagsBits::NONE)?;
        let immediate = !matches!(comparison.op1_kind(), OpKind::Register | OpKind::Memory);
        let last =
            (comparison.mnemonic() == Mnemonic::Cmp && immediate).then(|| comparison.immediate(1) & 0xffff_ffff)?;
        (last < MAX_TABLE).then_some(last + 1)
    }

    /// The targets in a table, if all of them lie in the function.
    fn read(&self, table: &Table, stack: Stack) -> Option<Vec<u64>> {
        if !self.text.spend(table.len as usize) {
            return None;
        }
        let target = |index| self.entry_of(table, index).filter(|&target| self.belongs(target, stack));
        (0..table.len).map(target).collect()
    }

    fn entry_of(&self, table: &Table, index: u64) -> Option<u64> {
        let address = table.address.checked_add(index * table.width)?;
        let entry = match table.width {
            4 => i64::from(i32::from_le_bytes(self.text.data(address)?)) as u64,
            _ => u64::from_le_bytes(self.text.data(address)?),
        };
        Some(table.base.wrapping_add(entry))
    }

    fn belongs(&self, target: u64, stack: Stack) -> bool {
        matches!(self.judge(target, stack), Ok(Place::Inside | Place::Fragment(_) | Place::NoReturn))
    }
}

/// What `instruction` makes of `register`.
fn effect(info: &mut InstructionInfoFactory, instruction: &Instruction, register: Register) -> Effect {
    if matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall) {
        return match register {
            Register::RAX => Effect::Is(Value::Pointer),
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
        (Mnemonic::Mov | Mnemonic::Movsxd, OpKind::Memory) => Effect::Is(memory_value(instruction)),
        (Mnemonic::Lea, _) if instruction.is_ip_rel_memory_operand() => {
            Effect::Is(Value::Constant(instruction.ip_rel_memory_address()))
        }
        (Mnemonic::Add, OpKind::Register) => Effect::Is(Value::Sum(instruction.ip())),
        // The C library scrambles pointers that it keeps; code addresses are never made so.
        (Mnemonic::Ror, _) => Effect::Is(Value::Pointer),
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
