//! Tests that trace: they need root, BPF and uprobes, and skip with the reason where rtrace finds
//! that it cannot trace.

mod attach;
mod exceptions;
mod exits;
mod jumps;
mod ledger;
mod leftovers;
mod linkage;
mod processes;
mod profile;
mod qt;
mod readers;
mod real_programs;
mod shapes;
mod surroundings;
mod threads;
