//! How control leaves a range of code other than by calls and returns: where its jumps go.
//!
//! One pass over the range, line by line. What is decoded may be data, and a jump may go where no instruction
//! was seen; then nothing is known of the range, rather than something wrong.

use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

use rtrace_symbolizer::Image;

use super::table::{JumpTarget, StraightLine};
use super::{Text, branch_target};
use crate::flow::Starts;
use crate::stack::Stack;

/// How control leaves a range of code.
#[derive(Clone, Default)]
pub struct Ways {
    /// Where it may go behind direct jumps and tables: addresses outside, and the start of the range. If the
    /// last instruction runs on, also the end.
    pub targets: Box<[u64]>,
    /// Targets of its jump tables, inside and outside.
    pub tables: Box<[u64]>,
    /// It may also leave through a pointer: one in memory, in an argument, or pushed.
    pub through_pointers: bool,
    /// It has jumps of which nothing is known.
    pub is_unknown: bool,
    /// It may leave with a stack pointer that was loaded from elsewhere: its callers are left, or suspended.
    pub abandons: bool,
    /// Whether it returns.
    pub returns: Returns,
}

/// How a range of code returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Returns {
    /// It has no return.
    #[default]
    Never,
    /// By `ret` alone.
    Plain,
    /// Also otherwise, or with its return address moved.
    Other,
}

impl Ways {
    /// Nothing is known.
    pub fn unknown() -> Ways {
        Ways { is_unknown: true, ..Ways::default() }
    }
}

impl Text<'_> {
    /// Where the jumps by tables in this range of code lead that are understood.
    pub fn tables(&self, range: &Range<u64>) -> Vec<u64> {
        let Some(bytes) = self.code(range).filter(|bytes| self.spend(bytes.len())) else { return Vec::new() };
        let table = |(_, destination)| match destination {
            JumpTarget::Table(targets) => targets,
            JumpTarget::Pointer | JumpTarget::Unknown => Vec::new(),
        };
        StraightLine::new(self, range, bytes).destinations().flat_map(table).collect()
    }

    /// How control leaves this range of code.
    pub fn ways_out(&self, range: &Range<u64>) -> Ways {
        let Some(bytes) = self.code(range).filter(|bytes| self.spend(bytes.len())) else { return Ways::unknown() };
        let mut pass = Pass { starts: Starts::new(range), stack: Some(Stack::ENTRY), ..Pass::default() };
        let mut decoder = Decoder::with_ip(64, bytes, range.start, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        while decoder.can_decode() {
            decoder.decode_out(&mut instruction);
            if instruction.is_invalid() {
                return Ways::unknown();
            }
            pass.see(&instruction);
        }
        let (returns, has_abandoned) = (pass.returns, pass.has_abandoned);
        let Pass { starts, mut jumps, mut through_pointers, has_computed_jumps, runs_on, abandoning, .. } = pass;
        let is_inside = |target: &u64| range.contains(target);
        // Only where all ways to the jump come by the load.
        let abandons = |jump: u64| {
            let load = abandoning.iter().find(|&&(_, at)| at == jump).map(|&(load, _)| load);
            load.is_some_and(|load| !jumps.iter().any(|target| (load + 1..=jump).contains(target)))
        };
        through_pointers |= abandoning.iter().any(|&(_, jump)| !abandons(jump));
        if jumps.iter().any(|&target| is_inside(&target) && !may_be_entered(&starts, target, range, bytes)) {
            return Ways::unknown();
        }
        let mut tables = Vec::new();
        if has_computed_jumps {
            let line = StraightLine::new(self, range, bytes);
            for (jump, destination) in line.destinations() {
                match destination {
                    _ if abandons(jump) => {}
                    JumpTarget::Table(targets) => tables.extend(targets),
                    JumpTarget::Pointer => through_pointers = true,
                    JumpTarget::Unknown => return Ways::unknown(),
                }
            }
            if tables.iter().any(|&target| is_inside(&target) && !may_be_entered(&starts, target, range, bytes)) {
                return Ways::unknown();
            }
        }
        jumps.extend(runs_on.then_some(range.end));
        jumps.extend(&tables);
        jumps.retain(|target| !is_inside(target) || *target == range.start);
        jumps.sort_unstable();
        jumps.dedup();
        Ways {
            targets: jumps.into(),
            tables: tables.into(),
            through_pointers,
            is_unknown: false,
            abandons: has_abandoned,
            returns,
        }
    }
}

/// Whether some code of a file jumps through a pointer behind a load of the stack pointer, in whatever function: a
/// `longjmp` or an unwinder of its own, also one without a symbol.
pub fn leaves_frames(image: &Image) -> bool {
    image.executable_ranges().iter().any(|range| {
        let bytes = image.code_from(range.start).unwrap_or_default();
        let loads = bytes.windows(SHORTEST_LOAD).enumerate().filter(|(_, bytes)| may_load_stack_pointer(bytes));
        loads.map(|(at, _)| &bytes[at..]).any(jumps_behind_load)
    })
}

/// Bytes of the shortest `mov` to the stack pointer.
const SHORTEST_LOAD: usize = 3;

/// Instructions from a load of the stack pointer to the jump.
const MOST_BEHIND_LOAD: usize = 12;

/// Whether these bytes may begin a `mov` to the stack pointer.
fn may_load_stack_pointer(bytes: &[u8]) -> bool {
    let &[prefix, code, operands, ..] = bytes else { return false };
    match code {
        0x8b => matches!(prefix, 0x48..=0x4b) && operands & 0x38 == 0x20,
        0x89 => matches!(prefix, 0x48 | 0x4a | 0x4c | 0x4e) && operands & 0xc7 == 0xc4,
        _ => false,
    }
}

/// Whether the first of these instructions loads the stack pointer, and control runs straight on to a jump through a
/// pointer.
fn jumps_behind_load(bytes: &[u8]) -> bool {
    let mut decoder = Decoder::new(64, bytes, DecoderOptions::NONE);
    let mut load = None;
    for _ in 0..MOST_BEHIND_LOAD {
        let instruction = decoder.decode();
        if instruction.flow_control() != FlowControl::Next {
            return load.is_some() && instruction.flow_control() == FlowControl::IndirectBranch;
        }
        load = loads_stack_pointer(&instruction, load);
        if load.is_none() {
            return false;
        }
    }
    false
}

/// What one pass over a range finds.
#[derive(Default)]
struct Pass {
    starts: Starts,
    /// Targets of direct jumps.
    jumps: Vec<u64>,
    through_pointers: bool,
    has_computed_jumps: bool,
    /// Control runs on behind the last instruction.
    runs_on: bool,
    /// The last instruction put a value where a `ret` would take its address from.
    has_pushed: bool,
    /// The instruction that has loaded the stack pointer from elsewhere, with no jump since.
    load: Option<u64>,
    /// Jumps through pointers behind such a load, which is the first: they go on in another function's frame, so
    /// they abandon the call and are not its tail call.
    abandoning: Vec<(u64, u64)>,
    has_abandoned: bool,
    returns: Returns,
    /// The stack as far as control runs straight on from the start of the range.
    stack: Option<Stack>,
    /// Control takes the return address off there.
    has_taken: bool,
}

impl Pass {
    fn see(&mut self, instruction: &Instruction) {
        self.starts.add(instruction.ip());
        self.jumps.extend(branch_target(instruction));
        let load = self.load;
        self.load = match instruction.flow_control() {
            FlowControl::Next => loads_stack_pointer(instruction, load),
            _ => None,
        };
        match instruction.flow_control() {
            FlowControl::Return => {
                self.has_abandoned |= load.is_some();
                let leads_on = self.has_pushed || instruction.mnemonic() != Mnemonic::Ret;
                let is_plain = !leads_on && !self.has_taken && instruction.op_count() == 0;
                self.returns = match self.returns {
                    Returns::Never | Returns::Plain if is_plain => Returns::Plain,
                    _ => Returns::Other,
                };
                self.jumps_through_pointer(leads_on, load, instruction.ip());
                self.runs_on = false;
            }
            FlowControl::IndirectBranch => {
                self.has_computed_jumps |= !instruction.is_ip_rel_memory_operand();
                let is_computed = !instruction.is_ip_rel_memory_operand();
                self.jumps_through_pointer(!is_computed || load.is_some(), load, instruction.ip());
                if self.has_taken {
                    self.returns = Returns::Other;
                }
                self.runs_on = false;
            }
            // A call at the end is of a function that does not return.
            FlowControl::UnconditionalBranch | FlowControl::Exception | FlowControl::IndirectCall => {
                self.runs_on = false
            }
            FlowControl::Call => self.runs_on = instruction.mnemonic() != Mnemonic::Call,
            FlowControl::Next if instruction.mnemonic() == Mnemonic::Hlt => self.runs_on = false,
            FlowControl::Interrupt if instruction.mnemonic() == Mnemonic::Int3 => {}
            FlowControl::Next if instruction.mnemonic() == Mnemonic::Nop => {}
            _ => self.runs_on = true,
        }
        self.has_pushed = pushes(instruction);
        let runs_on = instruction.flow_control() == FlowControl::Next;
        self.stack = self.stack.filter(|_| runs_on).map(|stack| stack.after(instruction));
        self.has_taken |= self.stack.and_then(|stack| stack.pointer).is_some_and(|depth| depth < 0);
    }

    fn jumps_through_pointer(&mut self, is_one: bool, load: Option<u64>, at: u64) {
        match load {
            Some(load) if is_one => {
                self.has_abandoned = true;
                self.abandoning.push((load, at));
            }
            _ => self.through_pointers |= is_one,
        }
    }
}

/// Where the stack pointer was loaded from memory or from a register, once this instruction has been executed; `load`:
/// the same before it. The frame pointer, and what is computed from another register, give the function's own frame.
fn loads_stack_pointer(instruction: &Instruction, load: Option<u64>) -> Option<u64> {
    if instruction.mnemonic() == Mnemonic::Leave {
        return None;
    }
    if instruction.op_count() == 0 || instruction.op0_kind() != OpKind::Register {
        return load;
    }
    match (instruction.op0_register(), instruction.mnemonic()) {
        (Register::RSP, Mnemonic::Mov) => {
            let is_own = instruction.op1_kind() == OpKind::Register && instruction.op1_register() == Register::RBP;
            (!is_own).then_some(instruction.ip())
        }
        (Register::RSP, Mnemonic::Lea) => load.filter(|_| instruction.memory_base() == Register::RSP),
        (Register::RSP, Mnemonic::Pop) => Some(instruction.ip()),
        _ => load,
    }
}

/// Whether an instruction stores something where the stack pointer is afterwards. One with a `lock` prefix is there to order
/// memory, and changes nothing.
fn pushes(instruction: &Instruction) -> bool {
    let stores = || {
        instruction.op_count() > 0
            && instruction.op0_kind() == OpKind::Memory
            && instruction.memory_base() == Register::RSP
            && !instruction.has_lock_prefix()
            && !matches!(instruction.mnemonic(), Mnemonic::Cmp | Mnemonic::Test)
    };
    instruction.mnemonic() == Mnemonic::Push || stores()
}

/// Whether an instruction begins there, or one that is told from it by a `lock` prefix, which jumps skip.
fn may_be_entered(starts: &Starts, address: u64, range: &Range<u64>, bytes: &[u8]) -> bool {
    let is_behind_lock = || {
        let before = address.checked_sub(1).filter(|before| range.contains(before));
        before.is_some_and(|before| bytes[(before - range.start) as usize] == 0xf0 && starts.contains(before))
    };
    starts.contains(address) || is_behind_lock()
}
