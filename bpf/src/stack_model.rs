//! Tests of the shadow stack (`stack.h`, `enter.h`, `returns.h`, `jump.h`) in user space, through `stack_test.c`.
//!
//! [`cases`], [`ends`] and [`jumps`] are known situations with the records they must give, [`machine`] runs random
//! programs whose truth is known, [`chaos`] sends hits that no program could cause.

#![allow(clippy::unwrap_used, reason = "tests")]

mod cases;
mod chaos;
mod counting;
mod ends;
mod jumps;
mod machine;
mod rules;
mod script;
mod thread;
mod world;

use crate::wire::{Limit, StackCode};

use self::thread::{Function, Hit, LOCATION, Thread};
use self::world::TRAMPOLINE;

const SIGNAL: u32 = StackCode::RT_STACK_SIGNAL.0;
const OWN: u32 = StackCode::RT_STACK_OWN.0;
const OTHER: u32 = StackCode::RT_STACK_OTHER.0;

const FRAMES: u32 = Limit::RT_FRAMES.0;
const FRAMES_NEAR: u32 = Limit::RT_FRAMES_NEAR.0;
const LEFT_MAX: u32 = Limit::RT_LEFT_MAX.0;
const SKIPS_MAX: u32 = Limit::RT_SKIPS_MAX.0;
const TAILS_MAX: u32 = Limit::RT_TAILS_MAX.0;
