//! How control leaves a range of code other than by calls and returns: where its jumps go.
//!
//! One pass over the range, line by line. What is decoded may be data, and a jump may go where no instruction
//! was seen; then nothing is known of the range, rather than something wrong.

use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

use super::table::Line;
use super::{Text, branch_target};

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
}

impl Ways {
    /// Nothing is known.
    pub fn unknown() -> Ways {
        Ways { is_unknown: true, ..Ways::default() }
    }
}

/// Where an indirect jump goes.
pub enum Destination {
    /// To one of these addresses.
    Table(Vec<u64>),
    /// Through a pointer that was loaded or passed; its value stands in the file if it points here.
    Pointer,
    /// That is not understood.
    Unknown,
}

impl Text<'_> {
    /// How control leaves this range of code.
    pub fn ways_out(&self, range: &Range<u64>) -> Ways {
        let Some(bytes) = self.code(range).filter(|bytes| self.spend(bytes.len())) else { return Ways::unknown() };
        let mut pass = Pass { starts: Starts::new(range), ..Pass::default() };
        let mut decoder = Decoder::with_ip(64, bytes, range.start, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        while decoder.can_decode() {
            decoder.decode_out(&mut instruction);
            if instruction.is_invalid() {
                return Ways::unknown();
            }
            pass.see(&instruction);
        }
        let Pass { starts, mut jumps, mut through_pointers, has_computed_jumps, runs_on, .. } = pass;
        let is_inside = |target: &u64| range.contains(target);
        if jumps.iter().any(|&target| is_inside(&target) && !starts.may_be_entered(target, bytes)) {
            return Ways::unknown();
        }
        let mut tables = Vec::new();
        if has_computed_jumps {
            let line = Line::new(self, range, bytes);
            for destination in line.destinations() {
                match destination {
                    Destination::Table(targets) => tables.extend(targets),
                    Destination::Pointer => through_pointers = true,
                    Destination::Unknown => return Ways::unknown(),
                }
            }
            if tables.iter().any(|&target| is_inside(&target) && !starts.may_be_entered(target, bytes)) {
                return Ways::unknown();
            }
        }
        jumps.extend(runs_on.then_some(range.end));
        jumps.extend(&tables);
        jumps.retain(|target| !is_inside(target) || *target == range.start);
        jumps.sort_unstable();
        jumps.dedup();
        Ways { targets: jumps.into(), tables: tables.into(), through_pointers, is_unknown: false }
    }
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
}

impl Pass {
    fn see(&mut self, instruction: &Instruction) {
        self.starts.add(instruction.ip());
        self.jumps.extend(branch_target(instruction));
        match instruction.flow_control() {
            FlowControl::Return => {
                self.through_pointers |= self.has_pushed || instruction.mnemonic() != Mnemonic::Ret;
                self.runs_on = false;
            }
            FlowControl::IndirectBranch => {
                self.has_computed_jumps |= !instruction.is_ip_rel_memory_operand();
                self.through_pointers |= instruction.is_ip_rel_memory_operand();
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
    }
}

/// Whether an instruction stores something where the stack pointer is afterwards.
fn pushes(instruction: &Instruction) -> bool {
    let stores = || {
        instruction.op_count() > 0
            && instruction.op0_kind() == OpKind::Memory
            && instruction.memory_base() == Register::RSP
            && !matches!(instruction.mnemonic(), Mnemonic::Cmp | Mnemonic::Test)
    };
    instruction.mnemonic() == Mnemonic::Push || stores()
}

/// Where the instructions of a range begin.
#[derive(Default)]
struct Starts {
    first: u64,
    bits: Vec<u64>,
}

impl Starts {
    fn new(range: &Range<u64>) -> Starts {
        Starts { first: range.start, bits: vec![0; ((range.end - range.start) / 64 + 1) as usize] }
    }

    fn add(&mut self, address: u64) {
        let offset = address - self.first;
        self.bits[(offset / 64) as usize] |= 1 << (offset % 64);
    }

    fn contains(&self, offset: u64) -> bool {
        self.bits[(offset / 64) as usize] >> (offset % 64) & 1 == 1
    }

    /// Whether an instruction begins there, or one that is told from it by a `lock` prefix, which jumps skip.
    fn may_be_entered(&self, address: u64, bytes: &[u8]) -> bool {
        let offset = address - self.first;
        let is_behind_lock =
            || offset.checked_sub(1).is_some_and(|before| bytes[before as usize] == 0xf0 && self.contains(before));
        self.contains(offset) || is_behind_lock()
    }
}
