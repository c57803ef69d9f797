//! Which functions may have their return hooked in a program that can unwind.
//!
//! A hooked return is deadly when, while the call runs, something unwinds through it, leaves its
//! stack for another on which returns are hooked, or returns to it twice. Most functions of most
//! programs can do none of that, though a library elsewhere in the program can. A function is
//! *closed* if everything that runs between its enter and its exit is known:
//!
//! - all its exits are proven, with the stack pointer back at the return address, which it neither
//!   reads nor writes; the stack pointer moves as compilers move it, never to another stack;
//! - its calls and tail calls go to closed functions of the library, or by a name of which it is
//!   known where it leads ([`Binding`]) to one of those or to a function of the C library that
//!   comes back ([`system`]); there are no calls through pointers;
//! - there are no system calls, so no cancellation point, and no handlers of exceptions.
//!
//! What remains is what interrupts a thread at any instruction. Programs that cancel threads
//! asynchronously, or make exceptions of signals, are hazards of their own
//! ([`Hazards::interrupts`]): in them no function is closed. Of other signal handlers it is taken
//! that they return, jump back with `siglongjmp` (the kernel then drops the hook), or end the
//! program, but neither throw out of a C function nor go on with another coroutine. Every uretprobe
//! assumes that and much more. A profiler whose handler walks the stack sees it end at a hooked
//! frame. Handlers on a stack of their own, and coroutines, are told by the kernel side, which
//! refuses the hook there; that is why a mechanism is needed that can refuse.
//!
//! [`Hazards::interrupts`]: super::Hazards::interrupts

pub mod system;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use foldhash::{HashMap, HashSet};
use iced_x86::{
    Code, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register, UsedMemory,
};

use super::binding::{Binding, Destination};
use super::exits::{self, Exits, FunctionCode, Walk};
use super::stack::Stack;
use super::text::Text;
use crate::parallel;

/// Bytes of the return address.
const SLOT: i64 = 8;

/// What is known of a library.
pub struct Library<'a> {
    /// Its code.
    pub text: &'a Text<'a>,
    /// Where its slots lead.
    pub binding: &'a Binding,
    /// Sizes of functions as the symbol table states them, by address.
    pub sizes: HashMap<u64, u64>,
    /// Addresses of functions that do more than their code tells.
    pub special: HashSet<u64>,
}

impl Library<'_> {
    fn function(&self, entry: u64) -> Option<Function<'_>> {
        if self.special.contains(&entry) {
            return None;
        }
        let size = self.sizes.get(&entry).copied().unwrap_or(0);
        let walk = exits::follow(&FunctionCode { text: self.text, entry, size }).ok()?;
        Some(Function { text: self.text, binding: self.binding, walk })
    }
}

/// The closed functions of a library.
pub struct Closed {
    /// Addresses of their first instructions.
    addresses: HashSet<u64>,
    /// Exits of all functions that were looked at and whose exits are proven, by address.
    exits: HashMap<u64, Arc<Exits>>,
}

impl Closed {
    /// Looks at the functions that begin at `waiting`, and at what they call.
    pub fn among(library: &Library, mut waiting: Vec<u64>) -> Closed {
        let mut callees: HashMap<u64, Option<Vec<u64>>> = HashMap::default();
        let mut exits = HashMap::default();
        let look = |&entry: &u64| {
            let function = library.function(entry);
            let exits = function.as_ref().map(|function| Arc::new(function.walk.exits()));
            (entry, exits, function.and_then(|function| function.callees()))
        };
        while !waiting.is_empty() {
            waiting.sort_unstable();
            waiting.dedup();
            let mut found = Vec::new();
            for (entry, its_exits, its_callees) in parallel::map(&waiting, look) {
                exits.extend(its_exits.map(|exits| (entry, exits)));
                found.extend(its_callees.iter().flatten());
                callees.insert(entry, its_callees);
            }
            found.retain(|callee| !callees.contains_key(callee));
            waiting = found;
        }
        Closed { addresses: without_open(callees), exits }
    }

    /// All exits of the function that begins at `address`, if it was looked at and they are proven.
    pub fn exits(&self, address: u64) -> Option<&Arc<Exits>> {
        self.exits.get(&address)
    }

    /// Whether the function that begins at `address` is closed.
    pub fn contains(&self, address: u64) -> bool {
        self.addresses.contains(&address)
    }
}

/// The functions from which no call leads to one whose callees are not known.
fn without_open(callees: HashMap<u64, Option<Vec<u64>>>) -> HashSet<u64> {
    let mut callers: HashMap<u64, Vec<u64>> = HashMap::default();
    for (&caller, callees) in &callees {
        for &callee in callees.iter().flatten() {
            callers.entry(callee).or_default().push(caller);
        }
    }
    let mut closed: HashSet<u64> =
        callees.iter().filter(|(_, callees)| callees.is_some()).map(|(&entry, _)| entry).collect();
    let mut open: Vec<u64> = callees.keys().copied().filter(|entry| !closed.contains(entry)).collect();
    while let Some(function) = open.pop() {
        open.extend(callers.remove(&function).unwrap_or_default().into_iter().filter(|caller| closed.remove(caller)));
    }
    closed
}

/// One function that may be closed.
struct Function<'a> {
    text: &'a Text<'a>,
    binding: &'a Binding,
    walk: Walk<'a>,
}

/// Where control goes from an instruction.
enum Way {
    /// On within the function, out of it by a return, or by a direct jump.
    On,
    /// Through a call or a slot, to this function.
    To(Destination),
}

impl Function<'_> {
    /// The functions of the library that it calls, if it is closed but for these.
    fn callees(&self) -> Option<Vec<u64>> {
        if self.walk.has_handlers() {
            return None;
        }
        let mut info = InstructionInfoFactory::new();
        let mut callees = Vec::new();
        let mut add = |way| match way {
            Way::To(Destination::Own(callee)) => callees.push(callee),
            Way::To(Destination::System) | Way::On => {}
        };
        for target in self.walk.elsewhere() {
            add(Way::To(self.function_at(target)?));
        }
        for (instruction, stack) in self.walk.instructions() {
            if self.walk.leaves_at(instruction.ip()) && stack.pointer != Some(0) {
                return None;
            }
            if instruction.flow_control() == FlowControl::Next && !keeps_stack(&mut info, instruction, stack) {
                return None;
            }
            add(self.way(instruction)?);
        }
        Some(callees)
    }

    /// Where control goes from an instruction, if that is known.
    fn way(&self, instruction: &Instruction) -> Option<Way> {
        match instruction.flow_control() {
            FlowControl::Next if is_special(instruction.mnemonic()) => None,
            FlowControl::Next | FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => Some(Way::On),
            FlowControl::Return => (instruction.code() == Code::Retnq).then_some(Way::On),
            FlowControl::Call if instruction.op0_kind() == OpKind::NearBranch64 => {
                Some(Way::To(self.function_at(instruction.near_branch_target())?))
            }
            FlowControl::IndirectCall | FlowControl::IndirectBranch if instruction.is_ip_rel_memory_operand() => {
                Some(Way::To(self.binding.destination(instruction.ip_rel_memory_address())?))
            }
            // By a table to code of its own.
            FlowControl::IndirectBranch => (!self.walk.leaves_at(instruction.ip())).then_some(Way::On),
            // These end the program.
            FlowControl::Exception => Some(Way::On),
            FlowControl::Interrupt => (instruction.mnemonic() == Mnemonic::Int3).then_some(Way::On),
            FlowControl::Call | FlowControl::IndirectCall | FlowControl::XbeginXabortXend => None,
        }
    }

    /// The function that begins at `target`, or to which the linkage stub there leads.
    fn function_at(&self, target: u64) -> Option<Destination> {
        match self.text.stub_slot(target) {
            Some(slot) => self.binding.destination(slot),
            None => Some(Destination::Own(target)),
        }
    }
}

/// Whether an instruction changes what a thread is: its shadow stack, or its thread control block.
fn is_special(mnemonic: Mnemonic) -> bool {
    matches!(
        mnemonic,
        Mnemonic::Incsspd
            | Mnemonic::Incsspq
            | Mnemonic::Rstorssp
            | Mnemonic::Saveprevssp
            | Mnemonic::Wrfsbase
            | Mnemonic::Wrgsbase
    )
}

/// Whether an instruction has to do with the stack, as far as its operands tell.
fn concerns_stack(instruction: &Instruction) -> bool {
    let points_there = |register: Register| matches!(register.full_register(), Register::RSP | Register::RBP);
    instruction.is_stack_instruction()
        || points_there(instruction.memory_base())
        || (0..instruction.op_count()).any(|operand| {
            instruction.op_kind(operand) == OpKind::Register
                && instruction.op_register(operand).full_register() == Register::RSP
        })
}

/// Whether an instruction leaves the return address alone, and the stack pointer on its stack.
fn keeps_stack(info: &mut InstructionInfoFactory, instruction: &Instruction, stack: Stack) -> bool {
    if !concerns_stack(instruction) {
        return true;
    }
    let info = info.info(instruction);
    let moves = info.used_registers().iter().any(|used| {
        let writes = matches!(
            used.access(),
            OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
        );
        writes && used.register().full_register() == Register::RSP
    });
    let is_operand = instruction.op_count() > 0
        && instruction.op0_kind() == OpKind::Register
        && instruction.op0_register() == Register::RSP;
    let moves_soundly = || match instruction.mnemonic() {
        Mnemonic::Push | Mnemonic::Pushfq | Mnemonic::Popfq => true,
        Mnemonic::Pop => !is_operand,
        // Room whose size the program computes, and the alignment of frames.
        Mnemonic::Sub | Mnemonic::And => is_operand,
        _ => stack.after(instruction).pointer.is_some(),
    };
    (!moves || moves_soundly()) && !info.used_memory().iter().any(|memory| meets_return_address(memory, stack))
}

/// Whether an access relative to the stack or frame pointer reads or writes the return address.
fn meets_return_address(memory: &UsedMemory, stack: Stack) -> bool {
    let depth = match memory.base().full_register() {
        Register::RSP => stack.pointer,
        Register::RBP => stack.frame,
        _ => None,
    };
    depth.filter(|_| memory.index() == Register::None).is_some_and(|depth| {
        let start = (memory.displacement() as i64).saturating_sub(depth.into());
        start < SLOT && start.saturating_add(memory.memory_size().size() as i64) > 0
    })
}
