//! A recording at work: who places probes, keeps the cost down, follows processes, and reads what the kernel side tells.
//! `recorder` is the order in which this happens.

pub(crate) mod admission;
pub(crate) mod attach;
pub mod calibration;
pub(crate) mod callers;
pub(crate) mod contexts;
pub(crate) mod cpu_clock;
pub(crate) mod family;
pub(crate) mod fuse;
pub(crate) mod gate;
pub(crate) mod governor;
pub mod guard;
pub(crate) mod inspection;
pub(crate) mod jump_candidates;
pub(crate) mod late_loads;
pub(crate) mod limit;
pub mod overhead;
pub mod pauses;
pub(crate) mod pipeline;
pub(crate) mod recorder;
pub(crate) mod returns;
pub(crate) mod sample_stacks;
pub mod signatures;
pub(crate) mod source;
pub mod stale;
mod standby;
pub(crate) mod values;
pub(crate) mod writers;
