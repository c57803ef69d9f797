//! One thread with its shadow stack, as `stack_test.c` offers it.

use std::ffi::c_void;
use std::slice;

use rtrace_bpf::wire::{CallRecord, LossCode, PolicyCode};

/// Address of the kernel's return trampoline.
pub const TRAMPOLINE: u64 = 0x7fff_ffff_e000;

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
    fn rt_test_is_intact(test: *const RawThread) -> i32;
}

/// Words by slot; a slot beyond them cannot be read.
pub type Memory = [u64; 64];

/// Where and when a probe was hit.
#[derive(Clone, Copy)]
pub struct Hit {
    pub slot: u64,
    pub stack: u32,
    pub now: u64,
}

pub struct Thread {
    raw: *mut RawThread,
    /// Read through a pointer of `raw`, so it is not touched through a reference.
    memory: *mut Memory,
}

impl Thread {
    pub fn new(memory_is_short: bool) -> Thread {
        let memory = Box::into_raw(Box::new([0; size_of::<Memory>() / size_of::<u64>()]));
        // SAFETY: allocates or aborts; the memory lives as long as the thread.
        let raw = unsafe { rt_test_new(7, memory_is_short.into(), memory.cast(), read_word, TRAMPOLINE) };
        Thread { raw, memory }
    }

    /// Sets the word at the slot, if there is memory.
    pub fn write(&mut self, slot: u64, word: u64) {
        // SAFETY: no other reference exists; the shadow stack reads only while it is called.
        let memory = unsafe { &mut *self.memory };
        if let Some(place) = usize::try_from(slot).ok().and_then(|slot| memory.get_mut(slot)) {
            *place = word;
        }
    }

    pub fn enter(&mut self, hit: Hit, region: u32, policy: PolicyCode) -> bool {
        // SAFETY: the thread lives as long as `self`.
        unsafe { rt_test_enter(self.raw, hit.slot, hit.stack, hit.now, region, policy.0) != 0 }
    }

    pub fn exit(&mut self, hit: Hit, region: u32) -> bool {
        // SAFETY: the thread lives as long as `self`.
        unsafe { rt_test_exit(self.raw, hit.slot, hit.stack, hit.now, region) != 0 }
    }

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

    /// What is on the shadow stack, the oldest first, and whether it is hooked.
    pub fn frames(&mut self) -> Vec<(CallRecord, bool)> {
        // SAFETY: the thread lives as long as `self`.
        let count = unsafe { rt_test_frames(self.raw) };
        (0..count)
            .map(|index| {
                let mut call = CallRecord::default();
                // SAFETY: the index is below the number of frames.
                let hooked = unsafe { rt_test_frame(self.raw, index, &raw mut call) };
                (call, hooked != 0)
            })
            .collect()
    }

    /// The records so far, in the order in which they left.
    pub fn records(&self) -> &[CallRecord] {
        let mut count = 0;
        // SAFETY: the thread lives as long as `self`.
        let first = unsafe { rt_test_records(self.raw, &raw mut count) };
        if first.is_null() {
            return &[];
        }
        // SAFETY: the list lives until the next hit, for which `self` has to be borrowed anew.
        unsafe { slice::from_raw_parts(first, count as usize) }
    }

    pub fn lost(&self, reason: LossCode) -> u64 {
        // SAFETY: the thread lives as long as `self`, and the reason is one of the list.
        unsafe { rt_test_lost(self.raw, reason.0) }
    }

    /// Whether nothing was written beside the memory of the shadow stack.
    pub fn is_intact(&self) -> bool {
        // SAFETY: the thread lives as long as `self`.
        unsafe { rt_test_is_intact(self.raw) != 0 }
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        // SAFETY: both were made by `new`, and are freed only here.
        unsafe {
            rt_test_free(self.raw);
            drop(Box::from_raw(self.memory));
        }
    }
}

/// What the shadow stack reads by. Returns 0 if the word could be read.
extern "C" fn read_word(memory: *const c_void, slot: u64, word: *mut u64) -> i32 {
    // SAFETY: the memory of the thread that reads, kept by it and not written to meanwhile.
    let memory = unsafe { &*memory.cast::<Memory>() };
    let Some(&found) = usize::try_from(slot).ok().and_then(|slot| memory.get(slot)) else { return -1 };
    // SAFETY: the shadow stack gives a variable of its own.
    unsafe { word.write(found) };
    0
}
