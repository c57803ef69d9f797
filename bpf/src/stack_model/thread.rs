//! One thread with its shadow stack, as `stack_test.c` offers it: for the tests, and for the fuzzer.

use std::rc::Rc;

use crate::wire::{CallRecord, LossCode, PolicyCode, TailsCode, UntimedCode};

use super::world::{RawWorld, TRAMPOLINE, World};

/// The id that records give the thread.
pub const LOCATION: u32 = 7;

#[repr(C)]
struct RawThread([u8; 0]);

unsafe extern "C" {
    fn rt_test_new(location: u32, memory_is_short: u32, world: *const RawWorld) -> *mut RawThread;
    fn rt_test_fold(test: *mut RawThread, region: u32);
    fn rt_test_move(test: *mut RawThread, slot: u64);
    fn rt_test_free(test: *mut RawThread);
    fn rt_test_enter(
        test: *mut RawThread,
        slot: u64,
        stack: u32,
        now: u64,
        region: u32,
        policy: u32,
        tails: u32,
        laps: u32,
        pops: u32,
    );
    fn rt_test_return(
        test: *mut RawThread,
        slot: u64,
        word: u64,
        stack: u32,
        now: u64,
        is_fixed: u32,
        reach: u32,
    ) -> u32;
    fn rt_test_jump(test: *mut RawThread, from: u64, target: u64, stack: u32, now: u64, is_final: u32);
    fn rt_test_abandon(test: *mut RawThread, now: u64);
    fn rt_test_calls(test: *const RawThread) -> u64;
    fn rt_test_frames(test: *const RawThread) -> u32;
    fn rt_test_openers(test: *const RawThread) -> u32;
    fn rt_test_left(test: *const RawThread) -> u32;
    fn rt_test_shares_stack(test: *const RawThread) -> u32;
    fn rt_test_frame(test: *mut RawThread, index: u32, call: *mut CallRecord);
    fn rt_test_records(test: *const RawThread, count: *mut u64) -> *const CallRecord;
    fn rt_test_lost(test: *const RawThread, reason: u32) -> u64;
    fn rt_test_untimed(test: *const RawThread, reason: u32) -> u64;
    fn rt_test_asked_for(test: *const RawThread) -> u64;
    fn rt_test_counts_well(test: *const RawThread) -> i32;
    fn rt_test_is_intact(test: *const RawThread) -> i32;
}

/// Where and when a probe was hit.
#[derive(Clone, Copy, Debug)]
pub struct Hit {
    pub slot: u64,
    /// Key of the stack, `enum rt_stack_key`.
    pub stack: u32,
    pub now: u64,
}

/// A function as its entry probe knows it.
#[derive(Clone, Copy, Debug)]
pub struct Function {
    pub region: u32,
    pub policy: PolicyCode,
    pub tails: TailsCode,
    /// It may come back to its first instruction.
    pub laps: bool,
    /// Words that it takes off the stack as it returns.
    pub pops: u32,
}

/// One thread with its shadow stack, the program that it runs, and the records that left it.
pub struct Thread {
    raw: *mut RawThread,
    /// What `raw` asks.
    pub world: Rc<World>,
}

impl Thread {
    pub fn new() -> Thread {
        Thread::with(0, TRAMPOLINE)
    }

    /// A thread for which no storage of deep frames and of frames that were left can be made.
    pub fn short_of_memory() -> Thread {
        Thread::with(1, TRAMPOLINE)
    }

    /// A thread of a process for which the kernel has made no trampoline.
    pub fn without_trampoline() -> Thread {
        Thread::with(0, 0)
    }

    fn with(is_short: u32, trampoline: u64) -> Thread {
        let world = Rc::new(World::default());
        let raw_world = RawWorld::new(Rc::as_ptr(&world), trampoline);
        // SAFETY: allocates or aborts, and copies the callbacks; the world lives as long as the thread.
        let raw = unsafe { rt_test_new(LOCATION, is_short, &raw const raw_world) };
        Thread { raw, world }
    }

    /// From now on calls of the region leave without a record, unless one that they made has one.
    pub fn fold(&mut self, region: u32) {
        // SAFETY: the thread lives as long as `self`.
        unsafe { rt_test_fold(self.raw, region) }
    }

    /// The call that returns from this slot, on a stack that is not the thread's own, has returned on another thread.
    pub fn returns_elsewhere(&mut self, slot: u64) {
        // SAFETY: the thread lives as long as `self`.
        unsafe { rt_test_move(self.raw, slot) }
    }

    /// A call enters.
    pub fn enter(&mut self, hit: Hit, function: Function) {
        let Function { region, policy, tails, laps, pops } = function;
        let laps = laps.into();
        // SAFETY: the thread lives as long as `self`.
        unsafe { rt_test_enter(self.raw, hit.slot, hit.stack, hit.now, region, policy.0, tails.0, laps, pops) }
    }

    /// Control arrives at the return address `word`, the stack pointer above the slot of the hit.
    /// `is_fixed`: whoever calls from there calls one function. `reach`: so many words from the slot of the
    /// hit down are as they were when the call returned. Returns whether a call has ended.
    pub fn arrive(&mut self, hit: Hit, word: u64, is_fixed: bool, reach: u8) -> bool {
        // SAFETY: the thread lives as long as `self`.
        unsafe { rt_test_return(self.raw, hit.slot, word, hit.stack, hit.now, is_fixed.into(), reach.into()) != 0 }
    }

    /// Control jumps to where the stack pointer is `target`. `from`: where it was, 0 on the signal stack; `is_final`:
    /// what the jump leaves cannot go on.
    pub fn jump(&mut self, from: u64, target: u64, stack: u32, now: u64, is_final: bool) {
        // SAFETY: the thread lives as long as `self`.
        unsafe { rt_test_jump(self.raw, from, target, stack, now, is_final.into()) }
    }

    /// The thread ends.
    pub fn abandon(&mut self, now: u64) {
        // SAFETY: the thread lives as long as `self`.
        unsafe { rt_test_abandon(self.raw, now) }
    }

    /// Number of ids given out.
    pub fn calls(&self) -> u64 {
        // SAFETY: the thread lives as long as `self`.
        unsafe { rt_test_calls(self.raw) }
    }

    /// The calls on the shadow stack, the oldest first.
    pub fn frames(&mut self) -> Vec<CallRecord> {
        // SAFETY: the thread lives as long as `self`, and the index is below the number of frames.
        unsafe {
            (0..rt_test_frames(self.raw))
                .map(|index| {
                    let mut call = CallRecord::default();
                    rt_test_frame(self.raw, index, &raw mut call);
                    call
                })
                .collect()
        }
    }

    /// Number of calls that open, as the shadow stack counts them.
    pub fn openers(&self) -> u32 {
        // SAFETY: the thread lives as long as `self`.
        unsafe { rt_test_openers(self.raw) }
    }

    /// Whether other stacks seem to lie in its own.
    pub fn shares_stack(&self) -> bool {
        // SAFETY: the thread lives as long as `self`.
        unsafe { rt_test_shares_stack(self.raw) != 0 }
    }

    /// Number of calls that are kept aside.
    pub fn left(&self) -> u32 {
        // SAFETY: the thread lives as long as `self`.
        unsafe { rt_test_left(self.raw) }
    }

    /// The records so far, in the order in which they left.
    pub fn records(&self) -> &[CallRecord] {
        let mut count = 0;
        // SAFETY: the list lives until the next hit, for which `self` has to be borrowed anew.
        unsafe {
            let first = rt_test_records(self.raw, &raw mut count);
            if first.is_null() { &[] } else { std::slice::from_raw_parts(first, count as usize) }
        }
    }

    pub fn lost(&self, reason: LossCode) -> u64 {
        // SAFETY: the thread lives as long as `self`, and the reason is one of the list.
        unsafe { rt_test_lost(self.raw, reason.0) }
    }

    /// Number of calls that have no duration for this reason.
    pub fn untimed(&self, reason: UntimedCode) -> u64 {
        // SAFETY: the thread lives as long as `self`, and the reason is one of the list.
        unsafe { rt_test_untimed(self.raw, reason.0) }
    }

    /// The return address that a probe was last asked for, because callers only return from there.
    pub fn asked_for(&self) -> Option<u64> {
        // SAFETY: the thread lives as long as `self`.
        Some(unsafe { rt_test_asked_for(self.raw) }).filter(|&address| address != 0)
    }

    /// Whether every record came with what its call counted.
    pub fn counts_well(&self) -> bool {
        // SAFETY: the thread lives as long as `self`.
        unsafe { rt_test_counts_well(self.raw) != 0 }
    }

    /// Whether nothing was written beside the memory of the shadow stack.
    pub fn is_intact(&self) -> bool {
        // SAFETY: the thread lives as long as `self`.
        unsafe { rt_test_is_intact(self.raw) != 0 }
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        // SAFETY: made by `rt_test_new`, and freed only here.
        unsafe { rt_test_free(self.raw) }
    }
}
