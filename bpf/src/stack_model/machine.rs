//! Random programs on a model machine that knows the truth about its calls; the records must say
//! exactly the same.
//!
//! The machine has a thread's own stack, an alternate signal stack, two coroutine stacks, and memory
//! for them. It does not do what slots cannot tell: where a call left by a `longjmp` would seem to be
//! the caller, because nothing has been written to its slot since, untraced code runs instead; and a
//! signal finds the stack of the last hit.

use std::cmp::{Ordering, Reverse};

use proptest::prelude::*;

use crate::wire::{CallRecord, EndingCode, PolicyCode};

use super::{HOOKED_MAX, Hit, LOCATION, OTHER, OWN, SIGNAL, TRAMPOLINE, Thread};

const REGIONS: usize = 6;

#[derive(Clone, Copy, Debug)]
enum Op {
    /// Calls a region, or untraced code, with this many words between the return addresses.
    Call {
        region: Option<usize>,
        words: u64,
        /// The return address.
        site: u64,
        /// What the caller has written to all words between.
        locals: Option<u64>,
    },
    /// The running function jumps to another.
    TailCall {
        region: Option<usize>,
    },
    Return,
    /// Leaves this many activations at once.
    Longjmp {
        activations: usize,
    },
    /// A handler starts on the signal stack.
    Signal,
    /// Goes on with the own stack (0) or a coroutine.
    Switch {
        stack: usize,
    },
}

/// A word that holds a return address, and the traced calls that end when it is used.
struct Activation {
    slot: u64,
    /// Calls, as indices, whose return is hooked: one, and those it made by tail calls.
    hooked: Vec<usize>,
    /// The running function, if it has probes on its returns.
    ret_site: Option<usize>,
    is_handler: bool,
}

impl Activation {
    fn new(slot: u64) -> Activation {
        Activation { slot, hooked: Vec::new(), ret_site: None, is_handler: false }
    }

    fn innermost(&self) -> Option<usize> {
        self.ret_site.or(self.hooked.last().copied())
    }
}

struct Stack {
    key: u32,
    top: u64,
    activations: Vec<Activation>,
    /// Calls left by `longjmp` that no hit has shown to be dead.
    dead: Vec<usize>,
}

impl Stack {
    fn new(key: u32, top: u64) -> Stack {
        Stack { key, top, activations: Vec::new(), dead: Vec::new() }
    }

    fn pointer(&self) -> u64 {
        self.activations.last().map_or(self.top, |activation| activation.slot)
    }

    /// Whether the machine has no other stack with this key.
    fn is_ordered(&self) -> bool {
        self.key < OTHER
    }

    fn innermost(&self) -> Option<usize> {
        self.activations.iter().rev().find_map(Activation::innermost)
    }

    /// The innermost activation is left without its returns.
    fn discard(&mut self) {
        let Some(activation) = self.activations.pop() else { return };
        self.dead.extend(activation.hooked.into_iter().chain(activation.ret_site));
    }
}

struct Call {
    record: CallRecord,
    slot: u64,
    /// At the slot, at its enter.
    word: u64,
    is_hooked: bool,
    has_ended: bool,
}

struct Machine {
    thread: Thread,
    policies: [PolicyCode; REGIONS],
    /// Regions whose returns another tracer hooks.
    hooked_by_others: [bool; REGIONS],
    /// Nanoseconds between hits.
    tick: u64,
    now: u64,
    /// Own, coroutine, coroutine.
    stacks: [Stack; 3],
    signal: Stack,
    /// Which of `stacks` runs, or is interrupted by a signal.
    current: usize,
    handlers: usize,
    /// Which of `stacks` was hit last.
    last_hit: usize,
    /// The truth; the call with id `n` is at `n - 1`.
    calls: Vec<Call>,
}

impl Machine {
    fn new(policies: [PolicyCode; REGIONS], hooked_by_others: [bool; REGIONS], signal_top: u64) -> Machine {
        let own = 0x7fff_0000_0000;
        Machine {
            thread: Thread::new(),
            policies,
            hooked_by_others,
            tick: 0,
            now: 1_000,
            stacks: [
                Stack::new(OWN, own),
                Stack::new(OTHER | 1, own - 0x1000_0000),
                Stack::new(OTHER | 2, own + 0x1000_0000),
            ],
            signal: Stack::new(SIGNAL, signal_top),
            current: 0,
            handlers: 0,
            last_hit: 0,
            calls: Vec::new(),
        }
    }

    fn running(&mut self) -> &mut Stack {
        if self.handlers > 0 { &mut self.signal } else { &mut self.stacks[self.current] }
    }

    fn step(&mut self, op: Op) {
        match op {
            Op::Call { region, words, site, locals } => self.call(region, words, site, locals),
            Op::TailCall { region } => self.tail_call(region),
            Op::Return => self.leave(),
            Op::Longjmp { activations } => (0..activations).for_each(|_| self.unwind()),
            Op::Signal => self.interrupt(),
            Op::Switch { stack } if self.handlers == 0 => self.current = stack,
            Op::Switch { .. } => {}
        }
    }

    fn write(&self, address: u64, word: u64) {
        self.thread.memory.write(address, word);
    }

    fn call(&mut self, region: Option<usize>, words: u64, site: u64, locals: Option<u64>) {
        let pointer = self.running().pointer();
        let slot = pointer - 8 * words;
        if let Some(word) = locals {
            (slot..pointer).step_by(8).skip(1).for_each(|address| self.write(address, word));
        }
        self.write(slot, site);
        self.running().activations.push(Activation::new(slot));
        if let Some(region) = region {
            self.enter(region);
        }
    }

    fn tail_call(&mut self, region: Option<usize>) {
        let Some(activation) = self.running().activations.last_mut() else { return };
        if activation.is_handler {
            return;
        }
        let slot = activation.slot;
        if let Some(call) = activation.ret_site.take() {
            self.exit(call, slot);
        }
        if let Some(region) = region {
            self.enter(region);
        }
    }

    fn leave(&mut self) {
        let Some(activation) = self.running().activations.pop() else { return };
        if activation.is_handler {
            self.handlers -= 1;
            return;
        }
        if let Some(call) = activation.ret_site {
            self.exit(call, activation.slot);
        }
        if self.thread.memory.read(activation.slot) == Some(TRAMPOLINE) {
            // The trampoline pushes three registers.
            (0..3).for_each(|register| self.write(activation.slot - 8 * register, register));
        }
        for &call in activation.hooked.iter().rev() {
            self.exit(call, activation.slot);
        }
    }

    /// One activation is left by a `longjmp`.
    fn unwind(&mut self) {
        let stack = self.running();
        if stack.activations.last().is_some_and(|activation| activation.is_handler) {
            stack.activations.pop();
            self.handlers -= 1;
        } else {
            stack.discard();
        }
    }

    fn interrupt(&mut self) {
        if self.last_hit != self.current {
            return;
        }
        let slot = self.signal.pointer() - 64;
        self.signal.activations.push(Activation { is_handler: true, ..Activation::new(slot) });
        self.handlers += 1;
    }

    /// Whether a dead call's slot has been written to since.
    fn is_overwritten(&self, call: usize) -> bool {
        let word = self.thread.memory.read(self.calls[call].slot);
        word != Some(self.calls[call].word) && word != Some(TRAMPOLINE)
    }

    /// The dead calls between an enter at the slot and its caller; none if one cannot be told.
    fn in_the_way(&mut self, slot: u64) -> Option<Vec<usize>> {
        let is_reached_by_call = self.thread.memory.read(slot) != Some(TRAMPOLINE);
        let is_handling = self.handlers > 0;
        let stack = self.running();
        let (caller, dead) = (stack.innermost(), stack.dead.clone());
        let is_ordered = stack.is_ordered();
        let caller_slot = caller.map_or(u64::MAX, |caller| self.calls[caller].slot);
        let mut found = Vec::new();
        for call in dead {
            let dead_slot = self.calls[call].slot;
            if !is_ordered && !(slot..caller_slot).contains(&dead_slot) {
                continue;
            }
            let is_told = match dead_slot.cmp(&slot) {
                Ordering::Less => true,
                Ordering::Equal => is_reached_by_call,
                Ordering::Greater => self.is_overwritten(call),
            };
            found.push(is_told.then_some(call)?);
        }
        if is_handling && caller.is_none() {
            let interrupted = &self.stacks[self.current];
            for &call in interrupted.dead.iter().filter(|&&call| Some(call) > interrupted.innermost()) {
                found.push(self.is_overwritten(call).then_some(call)?);
            }
        }
        Some(found)
    }

    /// A probe is hit on the running stack, and proves these calls dead: they end now.
    fn hit(&mut self, slot: u64, mut dead: Vec<usize>) -> Hit {
        self.now += self.tick;
        if self.handlers == 0 {
            self.last_hit = self.current;
            dead.extend(&self.signal.dead);
        }
        dead.sort_unstable_by_key(|&call| Reverse(call));
        for &call in &dead {
            self.end(call, EndingCode::RT_UNWOUND);
        }
        for stack in self.stacks.iter_mut().chain([&mut self.signal]) {
            stack.dead.retain(|call| !dead.contains(call));
        }
        Hit { slot, stack: self.running().key, now: self.now }
    }

    /// The function of the innermost activation enters.
    fn enter(&mut self, region: usize) {
        let slot = self.running().pointer();
        let Some(dead) = self.in_the_way(slot) else { return };
        let word = self.thread.memory.read(slot).expect("written by the call");
        let hit = self.hit(slot, dead);
        let mut caller = self.running().innermost();
        if self.handlers > 0 {
            caller = caller.or(self.stacks[self.current].innermost());
        }
        let policy = self.policies[region];
        let hooked = self.calls.iter().filter(|call| call.is_hooked && !call.has_ended).count();
        let is_hooked = policy == PolicyCode::RT_POLICY_URETPROBE && hit.stack == OWN && hooked < HOOKED_MAX as usize;
        let call = self.calls.len();
        let record = CallRecord {
            id: call as u64 + 1,
            parent: caller.map_or(0, |caller| caller as u64 + 1),
            depth: caller.map_or(0, |caller| self.calls[caller].record.depth + 1),
            start: hit.now,
            region: region as u32,
            location: LOCATION,
            ..CallRecord::default()
        };
        self.calls.push(Call { record, slot, word, is_hooked, has_ended: false });
        let is_ret_site = policy == PolicyCode::RT_POLICY_RET_SITE;
        let activation = self.running().activations.last_mut().expect("still there");
        if is_ret_site {
            activation.ret_site = Some(call);
        } else if is_hooked {
            activation.hooked.push(call);
        } else if policy == PolicyCode::RT_POLICY_INSTANT {
            self.end(call, EndingCode::RT_RETURNED);
        } else {
            self.end(call, EndingCode::RT_UNSEEN);
        }
        assert_eq!(self.thread.enter(hit, region as u32, policy), is_ret_site || is_hooked);
        if is_hooked || self.hooked_by_others[region] && hit.stack == OWN {
            self.write(slot, TRAMPOLINE);
        }
    }

    fn exit(&mut self, call: usize, slot: u64) {
        let stack = self.running();
        let dead = if stack.is_ordered() { stack.dead.clone() } else { Vec::new() };
        let hit = self.hit(slot, dead);
        self.end(call, EndingCode::RT_RETURNED);
        assert!(self.thread.exit(hit, self.calls[call].record.region));
    }

    fn end(&mut self, call: usize, ending: EndingCode) {
        let call = &mut self.calls[call];
        assert!(!call.has_ended);
        call.has_ended = true;
        call.record.ending = ending;
        call.record.duration = self.now - call.record.start;
        let CallRecord { parent, duration, .. } = call.record;
        if let Some(caller) = parent.checked_sub(1).map(|caller| &mut self.calls[caller as usize])
            && !caller.has_ended
        {
            caller.record.child += duration;
        }
    }

    /// The thread ends. Returns what is true and what was recorded, both by id.
    fn finish(mut self) -> (Vec<CallRecord>, Vec<CallRecord>) {
        self.now += self.tick;
        self.thread.abandon(self.now);
        for call in (0..self.calls.len()).rev() {
            if !self.calls[call].has_ended {
                self.end(call, EndingCode::RT_OPEN);
            }
        }
        assert!(self.thread.is_intact());
        assert!(self.thread.counts_well());
        let mut recorded = self.thread.records().to_vec();
        recorded.sort_by_key(|call| call.id);
        (self.calls.into_iter().map(|call| call.record).collect(), recorded)
    }
}

fn policy() -> impl Strategy<Value = PolicyCode> {
    prop_oneof![
        4 => Just(PolicyCode::RT_POLICY_URETPROBE),
        4 => Just(PolicyCode::RT_POLICY_RET_SITE),
        1 => Just(PolicyCode::RT_POLICY_ENTRY_ONLY),
        1 => Just(PolicyCode::RT_POLICY_INSTANT),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let region = || prop::option::weighted(0.7, 0..REGIONS);
    let word = || 1..5_u64;
    prop_oneof![
        12 => (region(), 1..20_u64, word(), prop::option::of(word()))
            .prop_map(|(region, words, site, locals)| Op::Call { region, words, site, locals }),
        3 => region().prop_map(|region| Op::TailCall { region }),
        7 => Just(Op::Return),
        2 => (1..6_usize).prop_map(|activations| Op::Longjmp { activations }),
        1 => Just(Op::Signal),
        2 => (0..3_usize).prop_map(|stack| Op::Switch { stack }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn records_are_the_truth(
        policies in prop::array::uniform6(policy()),
        hooked_by_others in prop::array::uniform6(prop::bool::weighted(0.2)),
        signal_is_above in any::<bool>(),
        program in prop::collection::vec((op(), 0..5_u64), 0..400),
    ) {
        let signal_top = if signal_is_above { 0x7fff_8000_0000 } else { 0x7ffe_8000_0000 };
        let mut machine = Machine::new(policies, hooked_by_others, signal_top);
        for (op, tick) in program {
            machine.tick = tick;
            machine.step(op);
        }
        let (truth, recorded) = machine.finish();
        prop_assert_eq!(truth.len(), recorded.len());
        for (truth, recorded) in truth.iter().zip(&recorded) {
            prop_assert_eq!(format!("{truth:?}"), format!("{recorded:?}"));
        }
    }
}
