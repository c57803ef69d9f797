//! Finds ELF files, the functions that they export and the processes that map them.
//!
//! Everything read here (files, symbol names, `/proc` of other processes) may be hostile or may
//! change under our hands: readers return errors or less, they do not panic, loop or allocate
//! without a bound that the input's own size sets. Names are returned as they are; whoever prints
//! them escapes them.
//!
//! - [`Image`]: one x86-64 ELF file: its exported functions, variables, unwind ranges and linkage
//! - [`address_space`]: what a live process maps
//! - [`modules`]: the ELF files that it executes of that
//! - [`linker`]: what a program that does not run yet will load
//! - [`select`]: library names as people type them
//! - [`ifunc`]: which implementation of an IFUNC a process chose

pub mod address_space;
mod code;
mod contents;
mod debug_file;
mod demangle;
mod distinct;
mod dynamic;
mod elf;
mod error;
mod exports;
#[cfg(test)]
mod fixture;
mod frames;
mod function;
mod go;
pub mod ifunc;
mod image;
pub mod lines;
pub mod linker;
mod load_order;
pub mod modules;
mod mounts;
mod outline;
pub mod parts;
mod perf_map;
mod rewritten;
mod segments;
pub mod select;
mod slots;
mod sources;
mod stamp;
mod symtab;
mod text_file;
mod unwind;
mod usdt;
mod variables;

pub use debug_file::{DebugFile, DwarfUnit, Reader, debug_files, debug_places};
pub use demangle::demangle;
pub use dynamic::DynamicDefinition;
pub use error::Error;
pub use exports::{Exports, Refused, RefusedReason};
pub use frames::FrameRange;
pub use function::{Function, Symbol};
pub use go::GoCode;
pub use image::Image;
pub use load_order::load_order;
pub use mounts::{open_path, open_regular};
pub use outline::{is_executable, soname};
pub use slots::{OwnSlot, Slot, Uses};
pub use sources::Sources;
pub use stamp::Stamp;
pub use text_file::read_text;
pub use unwind::UnwindTables;
pub use usdt::UsdtProbe;
pub use variables::Variable;
