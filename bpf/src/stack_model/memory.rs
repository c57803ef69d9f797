//! The words on the stacks of a modelled program.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::c_void;

/// Address of the kernel's return trampoline.
pub const TRAMPOLINE: u64 = 0x7fff_ffff_e000;

/// Words by address; an address without one cannot be read.
#[derive(Default)]
pub struct Memory(RefCell<HashMap<u64, u64>>);

impl Memory {
    pub fn write(&self, address: u64, word: u64) {
        self.0.borrow_mut().insert(address, word);
    }

    pub fn read(&self, address: u64) -> Option<u64> {
        self.0.borrow().get(&address).copied()
    }

    /// The page with this word goes out.
    pub fn take_out(&self, address: u64) {
        self.0.borrow_mut().remove(&address);
    }
}

/// What the shadow stack reads by. Returns 0 if the word could be read.
pub extern "C" fn read_word(memory: *const c_void, address: u64, word: *mut u64) -> i32 {
    // SAFETY: the `Memory` of the thread that reads, kept by it.
    let Some(found) = (unsafe { &*memory.cast::<Memory>() }).read(address) else { return -1 };
    // SAFETY: the shadow stack gives a variable of its own.
    unsafe { word.write(found) };
    0
}
