//! Tests that trace: they need root, BPF and uprobes, and skip with the reason where rtrace finds
//! that it cannot trace.

mod abi;
mod attach;
mod budget;
mod call_sites;
mod changed;
mod contexts;
mod counters;
mod dashboard;
mod exceptions;
mod exits;
mod filters;
mod go;
mod harmless;
mod jumps;
mod ledger;
mod leftovers;
mod linkage;
mod live;
mod notebooks;
mod processes;
mod profile;
mod qt;
mod ranks;
mod readers;
mod real_programs;
mod registers;
mod shapes;
mod sinks;
mod stubs;
mod surroundings;
mod threads;
mod typed;
mod values;
mod watch;
mod ways;
