//! One thread with its shadow stack, as `stack_test.c` offers it: for the tests, and for the fuzzer.

use std::ffi::c_void;
use std::rc::Rc;

use crate::wire::{CallRecord, LossCode, PolicyCode};

use super::memory::{Memory, TRAMPOLINE, read_word};

/// The id that records give the thread.
pub const LOCATION: u32 = 7;

#[repr(C)]
struct RawThread([u8; 0]);

unsafe extern "C" {
    fn rt_test_new(
        location: u32,
        memory_is_short: u32,
        memory: *const c_void,
        read_word: extern "C" fn(*const c_void, u64, *mut u64) -> i32,
        trampoline: u64,
    ) -> *mut RawThread;
    fn rt_test_fold(test: *mut RawThread, region: u32);
    fn rt_test_blind(test: *mut RawThread, region: u32, since: u64);
    fn rt_test_free(test: *mut RawThread);
    fn rt_test_enter(test: *mut RawThread, slot: u64, stack: u32, now: u64, region: u32, policy: u32) -> i32;
    fn rt_test_exit(test: *mut RawThread, slot: u64, stack: u32, now: u64, region: u32) -> i32;
    fn rt_test_abandon(test: *mut RawThread, now: u64);
    fn rt_test_calls(test: *const RawThread) -> u64;
    fn rt_test_frames(test: *const RawThread) -> u32;
    fn rt_test_hooked(test: *const RawThread) -> u32;
    fn rt_test_frame(test: *mut RawThread, index: u32, call: *mut CallRecord) -> u32;
    fn rt_test_records(test: *const RawThread, count: *mut u64) -> *const CallRecord;
    fn rt_test_lost(test: *const RawThread, reason: u32) -> u64;
    fn rt_test_counts_well(test: *const RawThread) -> i32;
    fn rt_test_is_intact(test: *const RawThread) -> i32;
}

/// Where and when a probe was hit.
#[derive(Clone, Copy, Debug)]
pub struct Hit {
    pub slot: u64,
    pub stack: u32,
    pub now: u64,
}

/// A call that is still on the shadow stack.
pub struct Frame {
    pub call: CallRecord,
    pub hooked: bool,
}

/// One thread with its shadow stack, the memory of the program, and the records that left it.
pub struct Thread {
    raw: *mut RawThread,
    /// Where `raw` reads words.
    pub memory: Rc<Memory>,
}

impl Thread {
    pub fn new() -> Thread {
        Thread::with(0, TRAMPOLINE)
    }

    /// A thread for which the storage of deep frames cannot be made.
    pub fn short_of_memory() -> Thread {
        Thread::with(1, TRAMPOLINE)
    }

    /// A thread of a process for which the kernel has made no trampoline.
    pub fn without_trampoline() -> Thread {
        Thread::with(0, 0)
    }

    fn with(is_short: u32, trampoline: u64) -> Thread {
        let memory = Rc::new(Memory::default());
        // SAFETY: allocates or aborts; the memory lives as long as the thread.
        let raw = unsafe { rt_test_new(LOCATION, is_short, Rc::as_ptr(&memory).cast(), read_word, trampoline) };
        Thread { raw, memory }
    }

    /// From now on calls of the region leave without a record, unless one that they made has one.
    pub fn fold(&mut self, region: u32) {
        // SAFETY: the thread lives as long as `self`.
        unsafe { rt_test_fold(self.raw, region) }
    }

    /// Exits of the region are no longer seen: those of calls that began before are missing.
    pub fn blind(&mut self, region: u32, since: u64) {
        // SAFETY: the thread lives as long as `self`.
        unsafe { rt_test_blind(self.raw, region, since) }
    }

    /// A call enters. Returns whether its exit is waited for.
    pub fn enter(&mut self, hit: Hit, region: u32, policy: PolicyCode) -> bool {
        // SAFETY: the thread lives as long as `self`.
        unsafe { rt_test_enter(self.raw, hit.slot, hit.stack, hit.now, region, policy.0) != 0 }
    }

    /// A call exits. Returns whether it was on the stack.
    pub fn exit(&mut self, hit: Hit, region: u32) -> bool {
        // SAFETY: the thread lives as long as `self`.
        unsafe { rt_test_exit(self.raw, hit.slot, hit.stack, hit.now, region) != 0 }
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

    /// Number of frames that count as hooked.
    pub fn hooked(&self) -> u32 {
        // SAFETY: the thread lives as long as `self`.
        unsafe { rt_test_hooked(self.raw) }
    }

    /// What is on the shadow stack, the oldest first.
    pub fn frames(&mut self) -> Vec<Frame> {
        // SAFETY: the thread lives as long as `self`, and the index is below the number of frames.
        unsafe {
            (0..rt_test_frames(self.raw))
                .map(|index| {
                    let mut call = CallRecord::default();
                    let hooked = rt_test_frame(self.raw, index, &raw mut call) != 0;
                    Frame { call, hooked }
                })
                .collect()
        }
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
