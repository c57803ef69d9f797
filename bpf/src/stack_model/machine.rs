//! Random programs on a model machine that knows the truth about its calls.
//!
//! The machine has a thread's own stack, an alternate signal stack, two coroutine stacks, and memory
//! for them. Its calls come from return addresses of which something is known: whether a probe is there,
//! whether all calls from there enter the same function, whether the caller only returns from there.
//!
//! Where each stack has a mapping of its own, the records must say exactly what is true. Where one of the
//! coroutines lies within the mapping of the own stack, calls on one of them seem to be left when the
//! other goes on, and callers may be mistaken. Then each call must be on record once, and one that is
//! recorded as returned must have done so at that time; a caller must have got the time of the calls
//! that are recorded as its own.
//!
//! The machine does not do what slots cannot tell, and runs untraced code instead, from a return address
//! without a probe:
//! - where a call left by a `longjmp` that no probe saw, or by a return that went unseen, would seem to be the caller,
//!   because nothing has been written to its slot since;
//! - where it would seem to have ended in a jump to what enters at its slot now;
//! - where untraced code would return to the place that it would have returned to;
//! - where untraced code that only returns would have its slot and return address.
//!
//! A signal finds the stack of the last hit. A function that may jump anywhere does not jump in a circle where
//! its caller may get control back without its return.
//! Untraced code writes over what callers that only return have left below it, and these over all words of
//! their frames: a call that was left there would seem to return with what they call.

mod aside;
mod jump;
mod lap;
mod programs;
mod wherever;

use std::cmp::{Ordering, Reverse};

use proptest::prelude::*;

use crate::wire::{ArrivalCode, BehindBit, CallRecord, EndingCode, PolicyCode, TailsCode, UntimedCode};

use self::jump::Seen;
use self::programs::{op, regions, signal_top, site};
use super::{Function, Hit, LOCATION, OTHER, OWN, SIGNAL, SKIPS_MAX, TRAMPOLINE, Thread};

const REGIONS: usize = 6;
const SITES: usize = 6;

/// Return addresses: of a site, of a caller that only returns from so many words above, of none.
const SITE: u64 = 0x1000;
const SKIP: u64 = 0x2000;
const UNPROBED: u64 = 0x3000;

const OWN_TOP: u64 = 0x7fff_0000_0000;
/// Words below the stack pointer that nothing writes to before a return is seen.
const REACH: u8 = 16;
/// Bytes of a coroutine stack within the mapping of the own stack: more than a program can fill.
const WITHIN: u64 = 0x2_0000;

#[derive(Clone, Copy, Debug)]
enum Op {
    /// Calls a region, or untraced code, with this many words between the return addresses.
    Call {
        region: Option<usize>,
        words: u64,
        site: usize,
        /// The caller only returns when the call has.
        only_returns: bool,
        /// What the caller has written to all words between: the return address of a site.
        locals: Option<usize>,
    },
    /// The running function jumps to another.
    TailCall {
        region: Option<usize>,
    },
    /// The running function comes back to its first instruction.
    Lap,
    Return,
    /// Leaves this many activations at once.
    Longjmp {
        activations: usize,
        seen: Seen,
    },
    /// A handler starts on the signal stack.
    Signal,
    /// Goes on with the own stack (0) or a coroutine.
    Switch {
        stack: usize,
    },
    /// User space has answered: a probe is at the site.
    Place {
        site: usize,
    },
}

/// What is known of a return address.
#[derive(Clone, Copy, Debug)]
struct Site {
    kind: ArrivalCode,
    /// All calls from there enter this region.
    fixed: Option<usize>,
    /// Who calls from there may get control back without a return.
    catches: bool,
}

impl Site {
    /// The same, as the kernel side is told.
    fn behind(&self) -> u32 {
        let bit = |is: bool, BehindBit(bit)| if is { bit } else { 0 };
        bit(self.catches, BehindBit::RT_BEHIND_CATCHES) | bit(self.fixed.is_some(), BehindBit::RT_BEHIND_FIXED)
    }
}

#[derive(Clone, Copy, Debug)]
struct Region {
    policy: PolicyCode,
    tails: TailsCode,
    /// Regions that it is known to jump to, a bit each.
    known: u8,
    /// Another tracer hooks its returns.
    is_hooked_by_others: bool,
    /// It may come back to its first instruction.
    laps: bool,
}

/// A word that holds a return address, and the traced calls that end when it is used.
struct Activation {
    slot: u64,
    word: u64,
    /// Calls, as indices: one, and those it made by tail calls.
    calls: Vec<usize>,
    is_handler: bool,
    only_returns: bool,
}

struct Stack {
    key: u32,
    top: u64,
    activations: Vec<Activation>,
    /// Calls that are over, which no hit has shown: left by `longjmp`, or returned unseen.
    dead: Vec<usize>,
}

impl Stack {
    fn new(key: u32, top: u64) -> Stack {
        Stack { key, top, activations: Vec::new(), dead: Vec::new() }
    }

    fn pointer(&self) -> u64 {
        self.activations.last().map_or(self.top, |activation| activation.slot)
    }

    /// Whether there is no other stack with this key.
    fn is_ordered(&self) -> bool {
        self.key < OTHER
    }

    fn innermost(&self) -> Option<usize> {
        self.activations.iter().rev().find_map(|activation| activation.calls.last().copied())
    }

    fn only_returns(&self) -> bool {
        self.activations.last().is_some_and(|activation| activation.only_returns)
    }
}

struct Call {
    record: CallRecord,
    region: usize,
    slot: u64,
    word: u64,
    home_slot: u64,
    home: u64,
    /// The return of a caller that only returns was hooked: returning there writes over the slot.
    is_below_hook: bool,
    /// Its caller may get control back without its return.
    is_caught: bool,
    is_fixed: bool,
    /// Why its return may go undetected.
    doubt: Option<UntimedCode>,
    has_ended: bool,
    /// It was left, but while its slot is as it was it may return.
    is_aside: bool,
    /// A jump that was seen has left it.
    is_jumped: bool,
    /// Control has come back to its caller, whether that was seen or not.
    has_returned: bool,
    /// When that was seen.
    returned_at: Option<u64>,
}

impl Call {
    /// Whether the slot is its own, or that of a caller that only returns.
    fn spans(&self, slot: u64) -> bool {
        (self.slot..=self.home_slot).contains(&slot)
    }

    fn returns_to(&self, slot: u64, word: u64) -> bool {
        (self.home_slot, self.home) == (slot, word)
    }

    /// Whether its slot tells, where control comes by its home, that it did not return there.
    fn is_told_by_slot(&self) -> bool {
        !self.is_below_hook && (1..u64::from(REACH)).contains(&((self.home_slot - self.slot) / 8))
    }
}

struct Machine {
    thread: Thread,
    regions: [Region; REGIONS],
    sites: [Site; SITES],
    /// Nanoseconds between hits.
    tick: u64,
    now: u64,
    /// Own, coroutine, coroutine.
    stacks: [Stack; 3],
    signal: Stack,
    /// Where a coroutine stack lies within the mapping of the own one: its end.
    within: Option<u64>,
    /// Which of `stacks` runs, or is interrupted by a signal.
    current: usize,
    handlers: usize,
    /// Which of `stacks` was hit last.
    last_hit: usize,
    /// The call with id `n` is at `n - 1`.
    calls: Vec<Call>,
    untimed: [u64; UntimedCode::RT_UNTIMED_REASONS.0 as usize],
}

impl Machine {
    fn new(regions: [Region; REGIONS], sites: [Site; SITES], signal_top: u64, within: Option<u64>) -> Machine {
        let thread = Thread::new();
        for (word, site) in (SITE..).zip(&sites) {
            thread.world.set_arrival(word, site.kind, site.behind());
        }
        thread.world.set_arrival(UNPROBED, ArrivalCode::RT_ARRIVAL_IMPOSSIBLE, 0);
        for words in 1..32 {
            thread.world.set_arrival(SKIP + words, ArrivalCode::RT_ARRIVAL_SKIP, words as u32);
        }
        for (from, region) in regions.iter().enumerate() {
            let known = (0..REGIONS).filter(|to| region.known >> to & 1 != 0);
            known.for_each(|to| thread.world.add_tail(from as u32, to as u32));
        }
        let coroutine = match within {
            Some(end) => Stack::new(OWN, end),
            None => Stack::new(OTHER | 1, OWN_TOP - 0x1000_0000),
        };
        Machine {
            thread,
            regions,
            sites,
            tick: 0,
            now: 1_000,
            stacks: [Stack::new(OWN, OWN_TOP), coroutine, Stack::new(OTHER | 2, OWN_TOP + 0x1000_0000)],
            signal: Stack::new(SIGNAL, signal_top),
            within,
            current: 0,
            handlers: 0,
            last_hit: 0,
            calls: Vec::new(),
            untimed: [0; UntimedCode::RT_UNTIMED_REASONS.0 as usize],
        }
    }

    fn running(&mut self) -> &mut Stack {
        if self.handlers > 0 { &mut self.signal } else { &mut self.stacks[self.current] }
    }

    /// Whether slots tell which calls on the running stack are over.
    fn is_ordered(&self) -> bool {
        let key = self.running_key();
        key == SIGNAL || key == OWN && !self.thread.shares_stack()
    }

    fn step(&mut self, op: Op) {
        match op {
            Op::Call { region, words, site, only_returns, locals } => {
                self.call(region, words, site, only_returns, locals);
            }
            Op::TailCall { region } => self.tail_call(region),
            Op::Lap => self.lap(),
            Op::Return => self.leave(),
            Op::Longjmp { activations, seen } => self.longjmp(activations, seen),
            Op::Signal => self.interrupt(),
            Op::Switch { stack } if self.handlers == 0 => self.current = stack,
            Op::Switch { .. } => {}
            Op::Place { site } => {
                if self.sites[site].kind == ArrivalCode::RT_ARRIVAL_ASKED {
                    self.sites[site].kind = ArrivalCode::RT_ARRIVAL_PLACED;
                    let behind = self.sites[site].behind();
                    self.thread.world.set_arrival(SITE + site as u64, ArrivalCode::RT_ARRIVAL_PLACED, behind);
                }
            }
        }
    }

    fn write(&self, address: u64, word: u64) {
        self.thread.world.write(address, word);
    }

    /// The slot of the next call, `words` below the stack pointer. The own stack leaves out the coroutine
    /// that lies within its mapping.
    fn next_slot(&mut self, words: u64) -> u64 {
        let within = self.within.filter(|_| self.handlers == 0 && self.current == 0);
        let pointer = self.running().pointer();
        let slot = pointer - 8 * words;
        match within {
            Some(end) if pointer >= end && slot < end => end - WITHIN - 8 * words,
            _ => slot,
        }
    }

    fn call(&mut self, region: Option<usize>, words: u64, site: usize, only_returns: bool, locals: Option<usize>) {
        let pointer = self.running().pointer();
        let slot = self.next_slot(words);
        let is_next = slot == pointer - 8 * words;
        let can_return = self.running().activations.last().is_some_and(|caller| !caller.is_handler);
        let (mut region, mut word) = (region, SITE + site as u64);
        let mut is_fixed = false;
        if only_returns && can_return && is_next {
            self.running().activations.last_mut().unwrap().only_returns = true;
            word = SKIP + words;
        } else if let Some(fixed) = self.sites[site].fixed {
            (region, is_fixed) = (Some(fixed), true);
        }
        let local = locals.map(|site| SITE + site as u64).or((word == SKIP + words).then_some(0));
        if let Some(local) = local.filter(|_| is_next) {
            (slot..pointer).step_by(8).skip(1).for_each(|address| self.write(address, local));
        }
        self.write(slot, word);
        let dead = region.and_then(|region| Some((region, self.in_the_way(slot, word, region)?)));
        if dead.is_none() && (is_fixed || self.is_mistaken(slot, word)) {
            word = UNPROBED;
            self.write(slot, word);
        }
        let activation = Activation { slot, word, calls: Vec::new(), is_handler: false, only_returns: false };
        self.running().activations.push(activation);
        if let Some((region, dead)) = dead {
            self.enter(region, dead);
        }
    }

    fn tail_call(&mut self, region: Option<usize>) {
        let Some(activation) = self.running().activations.last() else { return };
        if activation.is_handler {
            return;
        }
        let (slot, word, chain) = (activation.slot, activation.word, activation.calls.clone());
        let Some(region) = region.filter(|&region| self.can_jump(&chain, region)) else { return };
        // It may as well be a new call on the stack of a coroutine that never goes on.
        let is_new = !chain.iter().any(|&call| self.calls[call].region == region);
        if !self.is_ordered() && chain.last().is_some_and(|&last| !is_new || !self.calls[last].is_fixed) {
            return;
        }
        if chain.last().is_some_and(|&last| self.may_lap(&self.calls[last], word, region)) {
            return;
        }
        if let Some(dead) = self.in_the_way(slot, word, region) {
            self.enter(region, dead);
        }
    }

    /// Whether the last of these calls may end in a jump to the region, maybe over untraced code.
    fn can_jump(&self, chain: &[usize], region: usize) -> bool {
        let Some(&from) = chain.last() else { return true };
        let is_new = !chain.iter().any(|&call| self.calls[call].region == region);
        let from = &self.calls[from];
        self.jumps(from, region, is_new)
    }

    /// Whether a call can end in a jump to the region, which is new on its slot or not.
    fn jumps(&self, from: &Call, region: usize, is_new: bool) -> bool {
        let is_sure = is_new || from.doubt.is_none();
        match self.regions[from.region].tails {
            TailsCode::RT_TAILS_NEVER => false,
            TailsCode::RT_TAILS_KNOWN => self.is_known(from.region, region) && is_sure,
            _ => is_new || is_sure && !from.is_caught,
        }
    }

    fn function(&self, region: usize) -> Function {
        let Region { policy, tails, laps, .. } = self.regions[region];
        Function { region: region as u32, policy, tails, laps, pops: 0 }
    }

    fn is_known(&self, from: usize, to: usize) -> bool {
        self.regions[from].known >> to & 1 != 0
    }

    /// The running function returns, and so do callers that only return.
    fn leave(&mut self) {
        let mut returning = Vec::new();
        loop {
            let Some(activation) = self.running().activations.pop() else { return };
            if activation.is_handler {
                self.handlers -= 1;
                return;
            }
            returning.splice(..0, activation.calls.iter().copied());
            self.return_from(&activation, &mut returning);
            if !self.running().only_returns() {
                assert!(returning.is_empty());
                return;
            }
        }
    }

    /// Control leaves an activation, and with it these calls, the oldest first. Takes out those that do
    /// not return further up.
    fn return_from(&mut self, activation: &Activation, returning: &mut Vec<usize>) {
        let &Activation { slot, word, .. } = activation;
        let is_hooked = self.thread.world.read(slot) == Some(TRAMPOLINE);
        if is_hooked {
            // The trampoline pushes three registers.
            (0..3).for_each(|register| self.write(slot - 8 * register, register));
        }
        if is_hooked {
            // And returns by the address that it has replaced.
            self.write(slot, word);
        }
        let homecoming = returning.extract_if(.., |call| self.calls[*call].home_slot == slot).collect::<Vec<_>>();
        for &index in &homecoming {
            self.calls[index].has_returned = true;
        }
        let site = word.checked_sub(SITE).and_then(|site| self.sites.get(site as usize)).copied();
        match site {
            Some(Site { kind: ArrivalCode::RT_ARRIVAL_PLACED, fixed, .. }) => {
                self.arrive(slot, word, fixed.is_some(), &homecoming);
            }
            _ => self.running().dead.extend(homecoming),
        }
    }

    /// A probe is hit at the return address of these calls.
    fn arrive(&mut self, slot: u64, word: u64, is_fixed: bool, homecoming: &[usize]) {
        if homecoming.is_empty() {
            self.write_below(slot, word);
        }
        let dead = &self.running().dead.clone();
        let is_mistaken = dead.iter().any(|&call| self.calls[call].returns_to(slot, word));
        let hit = self.hit_at_return(slot, word);
        for &index in homecoming.iter().rev() {
            self.end_at_home(index, is_fixed && self.calls[index].slot == slot);
        }
        let is_ambiguous = !is_fixed && self.end_aside(slot, word);
        let has_ended = self.thread.arrive(hit, word, is_fixed, REACH);
        if self.within.is_none() {
            assert_eq!(has_ended, !homecoming.is_empty() || is_mistaken || is_ambiguous);
        }
    }

    /// Untraced code that returns there has used the slots of calls that are over, and would have returned there.
    fn write_below(&self, slot: u64, word: u64) {
        let is_below = |call: &&Call| call.slot < slot && call.returns_to(slot, word);
        self.calls.iter().filter(is_below).for_each(|call| self.write(call.slot, 0));
    }

    fn interrupt(&mut self) {
        if self.last_hit != self.current {
            return;
        }
        let slot = self.signal.pointer() - 64;
        let handler = Activation { slot, word: 0, calls: Vec::new(), is_handler: true, only_returns: false };
        self.signal.activations.push(handler);
        self.handlers += 1;
    }

    /// Whether a dead call's slot has been written to since.
    fn is_overwritten(&self, call: usize) -> bool {
        let word = self.thread.world.read(self.calls[call].slot);
        word != Some(self.calls[call].word) && word != Some(TRAMPOLINE)
    }

    /// Whether a call may have returned unseen, and its caller is over.
    fn is_forsaken(&self, call: usize) -> bool {
        let Call { doubt, record, .. } = &self.calls[call];
        let caller = record.parent.checked_sub(1).map(|caller| &self.calls[caller as usize]);
        doubt.is_some() && caller.is_some_and(|caller| caller.has_ended)
    }

    /// Whether a dead call might have jumped to the region, which now enters at its slot.
    fn may_have_jumped(&self, call: usize, word: u64, region: usize) -> bool {
        let call = &self.calls[call];
        call.word == word && (self.may_lap(call, word, region) || self.jumps(call, region, call.region != region))
    }

    /// Whether untraced code that returns there would seem to be a call that is over.
    fn is_mistaken(&mut self, slot: u64, word: u64) -> bool {
        let dead = self.running().dead.clone();
        let is_told = |call: &Call| self.within.is_none() && (call.doubt.is_some() || call.is_told_by_slot());
        let is_resumed =
            |call: &Call| call.record.ending == EndingCode::RT_UNWOUND && (call.slot, call.word) == (slot, word);
        dead.iter().map(|&call| &self.calls[call]).any(|call| call.returns_to(slot, word) && !is_told(call))
            || word >= SKIP && self.calls.iter().any(is_resumed)
    }

    /// The dead calls between an enter at the slot and its caller; none if one cannot be told.
    fn in_the_way(&mut self, slot: u64, word: u64, region: usize) -> Option<Vec<usize>> {
        if self.within.is_some() {
            return self.is_clear(slot, word, region).then(Vec::new);
        }
        let is_handling = self.handlers > 0;
        let stack = self.running();
        let (caller, dead, is_ordered) = (stack.innermost(), stack.dead.clone(), stack.is_ordered());
        let of_caller = caller.map(|caller| &self.calls[caller]).map(|call| (call.record.id, call.slot));
        let (caller_id, caller_slot) = of_caller.unwrap_or((0, u64::MAX));
        let mut found = Vec::new();
        for index in dead {
            let call = &self.calls[index];
            let calls_again = call.doubt.is_some() && call.slot < slot && call.record.parent >= caller_id;
            if !is_ordered && !(slot..caller_slot).contains(&call.slot) && !call.spans(slot) && !calls_again {
                continue;
            }
            let is_told = match call.slot.cmp(&slot) {
                Ordering::Less => true,
                Ordering::Equal => !self.may_have_jumped(index, word, region),
                Ordering::Greater => self.is_overwritten(index) || (!is_ordered && self.is_forsaken(index)),
            };
            found.push(is_told.then_some(index)?);
        }
        if is_handling && caller.is_none() {
            let interrupted = &self.stacks[self.current];
            for &call in interrupted.dead.iter().filter(|&&call| Some(call) > interrupted.innermost()) {
                found.push(self.is_overwritten(call).then_some(call)?);
            }
        }
        Some(found)
    }

    /// Where stacks share a mapping: whether what enters is not taken for a dead call when it returns.
    /// Those that returned to the same place must not be hidden from the enter by a younger call further up,
    /// which may belong to the other stack.
    fn is_clear(&mut self, slot: u64, word: u64, region: usize) -> bool {
        let dead = self.running().dead.clone();
        let is_clear = dead.iter().all(|&index| {
            let hides = |call: &Call| call.slot > slot && call.returned_at.is_none();
            let call = &self.calls[index];
            // Also one that returns farther up.
            let is_lap = call.slot == slot && self.may_lap(call, word, region);
            let is_hidden = || self.calls[index + 1..].iter().any(hides);
            let may_be_taken = || call.slot == slot && self.may_have_jumped(index, word, region) || is_hidden();
            !is_lap && (call.home_slot != slot || !may_be_taken())
        });
        if is_clear {
            let dead = dead.into_iter().filter(|&call| self.calls[call].home_slot != slot).collect();
            self.running().dead = dead;
        }
        is_clear
    }

    /// A probe is hit on the running stack.
    fn hit(&mut self, slot: u64, mut dead: Vec<usize>) -> Hit {
        self.now += self.tick;
        if self.handlers == 0 {
            self.last_hit = self.current;
            dead.extend(&self.signal.dead);
        }
        let hit = Hit { slot, stack: self.running().key, now: self.now };
        self.show(hit, dead)
    }

    /// A probe is hit where control returns: what ran below is over, and what would have returned there.
    fn hit_at_return(&mut self, slot: u64, word: u64) -> Hit {
        let (is_ordered, dead) = (self.is_ordered(), self.running().dead.clone());
        let is_over = |call: &Call| is_ordered && call.slot <= slot || call.spans(slot) || call.returns_to(slot, word);
        let over: Vec<usize> = dead.into_iter().filter(|&call| is_over(&self.calls[call])).collect();
        // Functions may take words off the stack as they return.
        let may_have_returned =
            |call: &Call| call.home == word && call.slot < slot && !call.spans(slot) && call.doubt.is_none();
        for &call in &over {
            if may_have_returned(&self.calls[call]) {
                self.calls[call].doubt = Some(UntimedCode::RT_UNTIMED_AMBIGUOUS);
            }
        }
        self.hit(slot, over)
    }

    /// A hit shows that these calls are over: they end now.
    fn show(&mut self, hit: Hit, mut dead: Vec<usize>) -> Hit {
        if self.within.is_some() {
            return hit;
        }
        dead.sort_unstable_by_key(|&call| Reverse(call));
        for &call in &dead {
            self.calls[call].is_aside = !self.calls[call].spans(hit.slot) && !self.is_overwritten(call);
            self.end(call, EndingCode::RT_UNWOUND);
        }
        for stack in self.stacks.iter_mut().chain([&mut self.signal]) {
            stack.dead.retain(|call| !dead.contains(call));
        }
        hit
    }

    /// Where the function that runs returns to, past callers that only return, and why that may go unseen.
    fn home(&mut self) -> (u64, u64, Option<UntimedCode>) {
        let sites = self.sites;
        let activations = &self.running().activations;
        let mut callers = activations.iter().rev();
        for _ in 0..=SKIPS_MAX {
            let &Activation { slot, word, .. } = callers.next().expect("who only returns has a caller");
            let kind = word.checked_sub(SITE).and_then(|site| sites.get(site as usize)).map(|site| site.kind);
            return match kind {
                Some(ArrivalCode::RT_ARRIVAL_PLACED) => (slot, word, None),
                Some(ArrivalCode::RT_ARRIVAL_ASKED) => (slot, word, Some(UntimedCode::RT_UNTIMED_NOT_YET_PLACED)),
                Some(ArrivalCode::RT_ARRIVAL_DROPPED) => (slot, word, Some(UntimedCode::RT_UNTIMED_DROPPED)),
                None if word != UNPROBED => continue,
                _ => (slot, word, Some(UntimedCode::RT_UNTIMED_NOT_PROBEABLE)),
            };
        }
        let &Activation { slot, word, .. } = callers.next().expect("who only returns has a caller");
        (slot, word, Some(UntimedCode::RT_UNTIMED_NOT_YET_PLACED))
    }

    /// Whether who calls from the return address may get control back without a return.
    fn catches(&self, word: u64) -> bool {
        let site = word.checked_sub(SITE).and_then(|site| self.sites.get(site as usize));
        site.is_none_or(|site| site.catches || site.kind != ArrivalCode::RT_ARRIVAL_PLACED)
    }

    /// Whether all that calls from the return address enters one function.
    fn is_fixed(&self, word: u64) -> bool {
        let site = word.checked_sub(SITE).and_then(|site| self.sites.get(site as usize));
        site.is_some_and(|site| site.fixed.is_some() && site.kind == ArrivalCode::RT_ARRIVAL_PLACED)
    }

    /// The function of the innermost activation enters, which shows that these calls are over.
    fn enter(&mut self, region: usize, dead: Vec<usize>) {
        let Activation { slot, word, .. } = *self.running().activations.last().expect("it was called");
        let hit = self.hit(slot, dead);
        self.settle_aside(slot, word, region);
        let mut caller = self.running().innermost();
        if self.handlers > 0 {
            caller = caller.or(self.stacks[self.current].innermost());
        }
        let Region { policy, is_hooked_by_others, .. } = self.regions[region];
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
        let (home_slot, home, doubt) = match policy {
            PolicyCode::RT_POLICY_RETURN_SITE => self.home(),
            _ => (slot, 0, None),
        };
        let mut callers = (slot..=home_slot).step_by(8).skip(1);
        let is_below_hook = callers.any(|caller| self.thread.world.read(caller) == Some(TRAMPOLINE));
        let is_caught = policy != PolicyCode::RT_POLICY_RETURN_SITE || home_slot == slot && self.catches(word);
        let is_fixed = policy == PolicyCode::RT_POLICY_RETURN_SITE && home_slot == slot && self.is_fixed(word);
        let (has_ended, is_aside, is_jumped, has_returned, returned_at) = (false, false, false, false, None);
        self.calls.push(Call {
            record,
            region,
            slot,
            word,
            home_slot,
            home,
            is_below_hook,
            is_caught,
            is_fixed,
            doubt,
            has_ended,
            is_aside,
            is_jumped,
            has_returned,
            returned_at,
        });
        if policy == PolicyCode::RT_POLICY_ENTRY_ONLY {
            self.untimed[UntimedCode::RT_UNTIMED_NOT_ASKED_FOR.0 as usize] += 1;
            self.end(call, EndingCode::RT_UNSEEN);
        } else {
            self.running().activations.last_mut().expect("still there").calls.push(call);
        }
        self.thread.enter(hit, self.function(region));
        if is_hooked_by_others {
            self.thread.world.hook(slot);
        }
    }

    /// The call has returned, and control is where that is detected. `is_sure`: also if it is in doubt.
    fn end_at_home(&mut self, index: usize, is_sure: bool) {
        let is_known = match self.calls[index].doubt {
            Some(UntimedCode::RT_UNTIMED_AMBIGUOUS) => false,
            doubt => is_sure || doubt.is_none(),
        };
        self.end(index, if is_known { EndingCode::RT_RETURNED } else { EndingCode::RT_UNSEEN });
    }

    /// The call ends. That it does so without a return which is detected shows only its doubt.
    fn end(&mut self, index: usize, ending: EndingCode) {
        let call = &mut self.calls[index];
        assert!(!call.has_ended);
        call.has_ended = true;
        call.returned_at = (ending == EndingCode::RT_RETURNED).then_some(self.now);
        call.record.ending = ending;
        if let Some(reason) = call.doubt.filter(|_| ending != EndingCode::RT_RETURNED) {
            call.is_aside = false;
            call.record.ending = EndingCode::RT_UNSEEN;
            self.untimed[reason.0 as usize] += 1;
        }
        // What an unseen call has called took time of its own caller.
        let time = match call.record.ending {
            EndingCode::RT_UNSEEN => std::mem::take(&mut call.record.child),
            _ => {
                call.record.duration = self.now - call.record.start;
                call.record.duration
            }
        };
        let parent = call.record.parent;
        if let Some(caller) = parent.checked_sub(1).map(|caller| &mut self.calls[caller as usize])
            && !caller.has_ended
        {
            caller.record.child += time;
        }
    }

    /// The thread ends. Returns what was recorded, by id.
    fn finish(&mut self) -> Vec<CallRecord> {
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
        recorded
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn records_are_the_truth(
        regions in regions(),
        sites in prop::array::uniform6(site()),
        signal_top in signal_top(),
        program in prop::collection::vec((op(), 0..5_u64), 0..400),
    ) {
        let mut machine = Machine::new(regions, sites, signal_top, None);
        for (op, tick) in program {
            machine.tick = tick;
            machine.step(op);
            // Nor is exact which calls are over once slots no longer tell it.
            if machine.has_no_room() || machine.thread.shares_stack() {
                return Ok(());
            }
        }
        let recorded = machine.finish();
        prop_assert_eq!(machine.calls.len(), recorded.len());
        for (truth, recorded) in machine.calls.iter().zip(&recorded) {
            prop_assert_eq!(format!("{:?}", truth.record), format!("{recorded:?}"));
        }
        for (reason, count) in (0..).map(UntimedCode).zip(machine.untimed) {
            prop_assert_eq!(machine.thread.untimed(reason), count);
        }
    }
}
