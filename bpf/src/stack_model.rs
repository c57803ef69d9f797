//! Tests of the shadow stack (`stack.h`) in user space, through `stack_test.c`.
//!
//! [`cases`] are known situations with the records they must give, [`machine`] runs random
//! programs whose truth is known, [`chaos`] sends hits that no program could cause.

#![allow(clippy::unwrap_used, reason = "tests")]

mod cases;
mod chaos;
mod counting;
mod machine;
mod memory;
mod thread;

use self::memory::TRAMPOLINE;
use self::thread::{Hit, LOCATION, Thread};

/// Keys of stacks, `enum rt_stack_key` of `frame.h`.
const SIGNAL: u32 = 1;
const OWN: u32 = 2;
const OTHER: u32 = 0x8000_0000;

/// Limits of `rtrace.h`.
const FRAMES: u32 = 1024;
const FRAMES_NEAR: u32 = 60;
const HOOKED_MAX: u32 = 56;
