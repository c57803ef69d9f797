//! What a modelled program looks like to the shadow stack: the words on its stacks, and what is known of
//! its return addresses and tail calls.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::ffi::c_void;

use crate::wire::ArrivalCode;

/// Address of the kernel's return trampoline.
pub const TRAMPOLINE: u64 = 0x7fff_ffff_e000;

/// Words by address; an address without one cannot be read. Return addresses are placed unless said
/// otherwise.
#[derive(Default)]
pub struct World {
    words: RefCell<HashMap<u64, u64>>,
    /// What the trampoline has replaced, by slot.
    replaced: RefCell<HashMap<u64, u64>>,
    /// Kinds of return addresses, and the words of those that are skipped; of those that have a probe, whether
    /// the caller catches what leaves its callee.
    arrivals: RefCell<HashMap<u64, (ArrivalCode, u32)>>,
    tails: RefCell<HashSet<(u32, u32)>>,
}

impl World {
    pub fn write(&self, address: u64, word: u64) {
        self.words.borrow_mut().insert(address, word);
    }

    pub fn read(&self, address: u64) -> Option<u64> {
        self.words.borrow().get(&address).copied()
    }

    /// The page with this word goes out.
    pub fn take_out(&self, address: u64) {
        self.words.borrow_mut().remove(&address);
    }

    /// Somebody hooks the return at this slot.
    pub fn hook(&self, slot: u64) {
        match self.read(slot) {
            Some(TRAMPOLINE) | None => {}
            Some(word) => {
                self.replaced.borrow_mut().insert(slot, word);
                self.write(slot, TRAMPOLINE);
            }
        }
    }

    /// What the trampoline has replaced there is no longer known.
    pub fn forget_replaced(&self, slot: u64) {
        self.replaced.borrow_mut().remove(&slot);
    }

    pub fn set_arrival(&self, address: u64, kind: ArrivalCode, words: u32) {
        self.arrivals.borrow_mut().insert(address, (kind, words));
    }

    /// A region is known to end in jumps to another.
    pub fn add_tail(&self, from: u32, to: u32) {
        self.tails.borrow_mut().insert((from, to));
    }
}

/// What the shadow stack asks by: `struct rt_world` of `stack_test.c`.
#[repr(C)]
pub struct RawWorld {
    context: *const c_void,
    read_word: extern "C" fn(*const c_void, u64, *mut u64) -> i32,
    replaced: extern "C" fn(*const c_void, u64) -> u64,
    arrival: extern "C" fn(*const c_void, u64, *mut u32) -> u32,
    is_known_tail: extern "C" fn(*const c_void, u32, u32) -> u32,
    trampoline: u64,
}

impl RawWorld {
    /// The world must outlive the shadow stack that asks it. `trampoline`: 0 if there is none.
    pub fn new(world: *const World, trampoline: u64) -> RawWorld {
        RawWorld { context: world.cast(), read_word, replaced, arrival, is_known_tail, trampoline }
    }
}

fn world<'a>(context: *const c_void) -> &'a World {
    // SAFETY: the `World` of the thread that asks, kept by it.
    unsafe { &*context.cast::<World>() }
}

extern "C" fn read_word(context: *const c_void, address: u64, word: *mut u64) -> i32 {
    let Some(found) = world(context).read(address) else { return -1 };
    // SAFETY: the shadow stack gives a variable of its own.
    unsafe { word.write(found) };
    0
}

extern "C" fn replaced(context: *const c_void, slot: u64) -> u64 {
    world(context).replaced.borrow().get(&slot).copied().unwrap_or(0)
}

extern "C" fn arrival(context: *const c_void, address: u64, words: *mut u32) -> u32 {
    let known = world(context).arrivals.borrow().get(&address).copied();
    let (kind, skipped) = known.unwrap_or((ArrivalCode::RT_ARRIVAL_PLACED, 0));
    // SAFETY: the shadow stack gives a variable of its own.
    unsafe { words.write(skipped) };
    kind.0
}

extern "C" fn is_known_tail(context: *const c_void, from: u32, to: u32) -> u32 {
    world(context).tails.borrow().contains(&(from, to)).into()
}
