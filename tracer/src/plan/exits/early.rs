//! Exits that are seen early: at the jumps from which control certainly comes to a `ret`, or to a jump
//! through a pointer that leaves the function.
//!
//! The kernel single-steps these and emulates other jumps, so a call's exit is cheaper to see at the jump
//! into the epilogue, or at the check of a stack protector before it: a few nanoseconds too soon. Every
//! way to the `ret` must then be seen, each once. A conditional jump is hit also where it leads on
//! into the function, so that no call may meet more than two of those without leaving, and none again
//! and again.

use std::collections::{BTreeMap, BTreeSet};

use foldhash::{HashMap, HashSet};
use iced_x86::{Code, FlowControl, Instruction, Mnemonic};

use super::{Leave, Met, Walk, brief, condition, is_refused};
use crate::plan::instruction::{Emulation, Handling};
use crate::plan::stack::words;
use crate::plan::text::branch_target;

/// Conditional jumps of one function that may also lead on, at the most: for each its code is followed.
const MOST_LEADING_ON: usize = 8;

/// All exits of the function, with those seen early where that is cheaper.
pub fn leaves(walk: &Walk) -> Vec<Leave> {
    let plain = |(&address, &condition): (&u64, &Option<u8>)| (address, Leave { address, condition, words: 0 });
    let mut search = Search {
        walk,
        leaves: walk.exits.iter().map(plain).collect(),
        conditional: BTreeSet::new(),
        targets: None,
        reached: HashMap::default(),
    };
    for (&address, condition) in &walk.exits {
        let is_dear = walk.instruction(address).is_some_and(|leave| !walk.is_emulated(&leave));
        if condition.is_some() || !is_dear || walk.words(address) != Some(0) {
            continue;
        }
        // Where the jumps to a place before it are too many, that way may be seen behind them.
        let _ = [false, true].into_iter().any(|stops_at_joins| {
            let mut ways = Ways { walk, found: Vec::new(), left: brief::MOST, stops_at_joins };
            let is_cheaper = ways.find(address) && ways.found.iter().any(|way| way.is_jump);
            is_cheaper && search.replace(address, &ways.found)
        });
    }
    search.leaves.into_values().collect()
}

/// An instruction from which control certainly comes to one that leaves, under the condition if it has one.
#[derive(Clone, Copy)]
struct Way {
    leave: Leave,
    is_jump: bool,
}

/// The ways to one instruction that leaves.
struct Ways<'w, 'a> {
    walk: &'w Walk<'a>,
    found: Vec<Way>,
    /// Instructions that may still be passed.
    left: usize,
    /// Where a line joins jumps it is seen before that, in a single step.
    stops_at_joins: bool,
}

impl Ways<'_, '_> {
    /// Finds all ways to an instruction from which control certainly leaves; false where one cannot be
    /// seen before it.
    fn find(&mut self, address: u64) -> bool {
        let Some(words) = self.walk.words(address) else { return false };
        if self.left == 0 || address == self.walk.entry || self.walk.text.is_entry(address) {
            return false;
        }
        self.left -= 1;
        let jumps = self.walk.jumps.get(&address).map_or(&[][..], Vec::as_slice);
        for &jump in jumps {
            let Some(way) = self.walk.taken(jump, words) else { return false };
            self.found.push(way);
        }
        match self.walk.before(address) {
            Before::Nothing => !jumps.is_empty(),
            Before::Jump(jump, condition) => {
                let leave = Leave { address: jump.ip(), condition: Some(condition ^ 1), words };
                self.found.push(Way { leave, is_jump: true });
                self.walk.is_emulated(&jump)
            }
            Before::Line(instruction) => {
                if self.stops_at_joins && !jumps.is_empty() {
                    return self.stop_at(&instruction);
                }
                let (count, left) = (self.found.len(), self.left);
                if self.find(instruction.ip()) {
                    return true;
                }
                self.found.truncate(count);
                self.left = left;
                // Alone it would be stepped in the place of the one that leaves.
                !jumps.is_empty() && self.stop_at(&instruction)
            }
            Before::Unclear => false,
        }
    }

    /// This way is seen at an instruction that must be single-stepped.
    fn stop_at(&mut self, instruction: &Instruction) -> bool {
        let address = instruction.ip();
        let is_refused = self.walk.bytes(instruction).is_none_or(is_refused);
        let Some(words) = self.walk.words(address).filter(|_| !is_refused && address != self.walk.entry) else {
            return false;
        };
        self.found.push(Way { leave: Leave { address, condition: None, words }, is_jump: false });
        true
    }
}

/// What stands before an instruction and goes on with it.
enum Before {
    Nothing,
    /// A conditional jump that may not be taken, with its condition.
    Jump(Instruction, u8),
    /// A quick one.
    Line(Instruction),
    /// One after which nobody can tell how long it takes, or whether this is reached.
    Unclear,
}

impl Walk<'_> {
    /// The instruction at this address, if control was seen to come there.
    fn instruction(&self, address: u64) -> Option<Instruction> {
        self.at(address).map(|met| met.instruction)
    }

    /// Bytes from the stack pointer up to the return address, before the instruction.
    fn depth(&self, address: u64) -> Option<i32> {
        self.at(address)?.stack.pointer
    }

    /// The same in words, if that is a number of them.
    fn words(&self, address: u64) -> Option<u32> {
        words(self.depth(address)?)
    }

    fn before(&self, address: u64) -> Before {
        let Some((_, offset)) = self.locate(address) else { return Before::Unclear };
        let mut ending_here = (1..=offset.min(15)).filter_map(|len| {
            let met = self.at(address - len as u64)?;
            (met.instruction.len() == len).then_some(met)
        });
        let Some(&Met { instruction, stack }) = ending_here.next() else { return Before::Nothing };
        if ending_here.next().is_some() {
            return Before::Unclear;
        }
        match instruction.flow_control() {
            _ if !goes_to_next(&instruction) => Before::Nothing,
            FlowControl::ConditionalBranch => match condition(&instruction) {
                Some(condition) => Before::Jump(instruction, condition),
                None => Before::Unclear,
            },
            _ => {
                let after = stack.after(&instruction);
                let follows = after.pointer.is_some() && after.pointer == self.depth(address);
                if follows && brief::is_quick(&instruction) { Before::Line(instruction) } else { Before::Unclear }
            }
        }
    }

    /// The jump at this address as a way out, where it leads if it is taken.
    fn taken(&self, address: u64, words: u32) -> Option<Way> {
        let jump = self.instruction(address)?;
        let condition = match jump.flow_control() {
            FlowControl::UnconditionalBranch => None,
            FlowControl::ConditionalBranch => Some(condition(&jump)?),
            _ => return None,
        };
        let agrees = self.depth(address).is_none_or(|_| self.words(address) == Some(words));
        let leave = Leave { address, condition, words };
        (agrees && self.is_emulated(&jump)).then_some(Way { leave, is_jump: true })
    }

    /// Where a conditional jump leads while the call is not over.
    fn leads_on(&self, leave: &Leave) -> Option<u64> {
        let jump = self.instruction(leave.address)?;
        if condition(&jump) == leave.condition { Some(jump.next_ip()) } else { branch_target(&jump) }
    }

    fn is_emulated(&self, jump: &Instruction) -> bool {
        self.bytes(jump).is_some_and(|bytes| Emulation::default().handling(bytes) == Handling::Emulated)
    }

    fn bytes(&self, instruction: &Instruction) -> Option<&[u8]> {
        self.text.image().code(instruction.ip(), instruction.len())
    }
}

/// The exits so far.
struct Search<'w, 'a> {
    walk: &'w Walk<'a>,
    leaves: BTreeMap<u64, Leave>,
    /// Conditional jumps among them that do not leave themselves.
    conditional: BTreeSet<u64>,
    /// Jump → its targets in the function.
    targets: Option<HashMap<u64, Vec<u64>>>,
    /// What is reached from an address, if that is followed.
    reached: HashMap<u64, HashSet<u64>>,
}

impl Search<'_, '_> {
    /// Sees the exits through one instruction at the ways to it instead, unless calls pay for that elsewhere;
    /// tells whether it does.
    fn replace(&mut self, address: u64, ways: &[Way]) -> bool {
        let mut leaves = self.leaves.clone();
        leaves.remove(&address);
        for &Way { leave, .. } in ways {
            let known = leaves.entry(leave.address).or_insert(leave);
            if known.words != leave.words {
                return false;
            }
            known.condition = known.condition.filter(|_| known.condition == leave.condition);
        }
        let mut conditional = self.conditional.clone();
        conditional.extend(ways.iter().map(|way| way.leave.address));
        conditional.retain(|jump| leaves[jump].condition.is_some());
        let on: Option<Vec<(u64, u64)>> =
            conditional.iter().map(|jump| Some((*jump, self.walk.leads_on(&leaves[jump])?))).collect();
        let is_cheap = on.is_some_and(|on| self.is_cheap(&on));
        if is_cheap {
            self.leaves = leaves;
            self.conditional = conditional;
        }
        is_cheap
    }

    /// Whether no call meets three of these jumps without leaving, nor one twice; each is with where it
    /// leads on.
    fn is_cheap(&mut self, jumps: &[(u64, u64)]) -> bool {
        if jumps.len() > MOST_LEADING_ON {
            return false;
        }
        for &(_, on) in jumps {
            self.follow(on);
        }
        // Where nothing leaves the function, as where it gives up, nothing is paid.
        let goes_on = |on: &&(u64, u64)| self.walk.exits.keys().any(|exit| self.reached[&on.1].contains(exit));
        let going_on: Vec<&(u64, u64)> = jumps.iter().filter(goes_on).collect();
        let leads = |from: &(u64, u64), to: &(u64, u64)| self.reached[&from.1].contains(&to.0);
        let goes_far = |next: &(u64, u64)| going_on.iter().any(|last| leads(next, last));
        let is_dear = |first: &(u64, u64)| {
            leads(first, first) || going_on.iter().filter(|next| leads(first, next)).any(|next| goes_far(next))
        };
        !going_on.iter().any(|first| is_dear(first))
    }

    /// Finds out what control may reach from an address, calls taken to return unless they give up.
    fn follow(&mut self, start: u64) {
        if self.reached.contains_key(&start) {
            return;
        }
        let walk = self.walk;
        let targets = self.targets.get_or_insert_with(|| {
            let mut targets: HashMap<u64, Vec<u64>> = HashMap::default();
            for (&target, jumps) in &walk.jumps {
                jumps.iter().for_each(|&jump| targets.entry(jump).or_default().push(target));
            }
            targets
        });
        let mut reached = HashSet::default();
        let mut waiting = vec![start];
        while let Some(address) = waiting.pop() {
            let Some(instruction) = walk.instruction(address) else { continue };
            if !reached.insert(address) {
                continue;
            }
            waiting.extend(targets.get(&address).into_iter().flatten());
            let gives_up = instruction.code() == Code::Call_rel32_64 && walk.text.gives_up(&instruction);
            if goes_to_next(&instruction) && !gives_up {
                waiting.push(instruction.next_ip());
            }
        }
        self.reached.insert(start, reached);
    }
}

/// Whether the next instruction may follow.
fn goes_to_next(instruction: &Instruction) -> bool {
    !matches!(
        instruction.flow_control(),
        FlowControl::UnconditionalBranch | FlowControl::IndirectBranch | FlowControl::Return | FlowControl::Exception
    ) && instruction.mnemonic() != Mnemonic::Hlt
}
