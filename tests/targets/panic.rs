// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rust panics that leave traced calls and are caught outside; tells the truth as `harness.h` says.

use std::ffi::{c_int, c_void};
use std::io::Write as _;
use std::panic::{catch_unwind, set_hook};
use std::ptr::null_mut;

#[link(name = "truth")]
unsafe extern "C-unwind" {
    fn leaf(n: c_int) -> c_int;
    fn visit(callback: extern "C-unwind" fn(*mut c_void), argument: *mut c_void);
}

extern "C-unwind" fn fail(_: *mut c_void) {
    // SAFETY: leaf has no requirement.
    unsafe { leaf(0) };
    panic!("expected");
}

extern "C-unwind" fn descend(argument: *mut c_void) {
    // SAFETY: the callback ignores its argument.
    unsafe { visit(fail, argument) };
}

fn main() {
    set_hook(Box::new(|_| {}));
    let id = std::process::id();
    let mut caught = 0;
    for _ in 0..200 {
        // SAFETY: the callback ignores its argument.
        if catch_unwind(|| unsafe { visit(descend, null_mut()) }).is_err() {
            caught += 1;
        }
        // SAFETY: leaf has no requirement.
        unsafe { leaf(0) };
    }
    let mut lines = format!("caught {caught}\n");
    for _ in 0..200 {
        lines += &format!("truth {id} {id} visit!(visit!(leaf)) leaf\n");
    }
    std::io::stdout().write_all(lines.as_bytes()).expect("stdout is open");
}
