//! Tests that trace: they need root, BPF and uprobes, and skip with the reason where rtrace finds
//! that it cannot trace.

mod attach;
mod counters;
mod exceptions;
mod exits;
mod jumps;
mod linkage;
mod processes;
mod qt;
mod readers;
mod real_programs;
mod shapes;
mod threads;
