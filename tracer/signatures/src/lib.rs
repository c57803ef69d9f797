//! What is known of a function's arguments and results, and how their values are fetched.
//!
//! A [`Signature`] says which parameters a function has, where the System V ABI for x86-64 puts each of them, and
//! which of their values are of interest. Its columns are fetched by programs that are data ([`Op`]), which the kernel
//! side interprets: no code is generated. What cannot be fetched is never guessed; a [`Cause`] says why.
//!
//! Names and types come from files that others wrote and may be hostile: readers bound what they take, and whoever
//! prints a name escapes it.

mod abi;
mod assemble;
mod book;
mod builtin;
mod capture;
mod column;
mod ctype;
mod describe;
mod description;
mod dwarf;
mod errno;
mod error;
mod expression;
mod lexer;
mod location;
mod operand;
mod prototype;
mod read;
mod selection;
mod signature;
mod table;

pub use assemble::{Fetch, FetchProgram, Slots, assemble};
pub use book::{Asked, Book, Lookup, Request, SITE_TABLES, TracedLibrary, contents};
pub use column::{
    At, ColumnType, Comparison, Condition, ListElement, MOST_ELEMENTS, MOST_LISTED_WORDS, MOST_OPS, MOST_TEXT,
    MOST_VALUE_WORDS, MetricSpec, MetricUnit, Op, OpCode, Register, ValueSpec, Width,
};
pub use ctype::{Class, Field, Structure, Type};
pub use errno::leave_out_errno;
pub use error::{Error, TableLine};
pub use location::{AbiPlace, Cause};
pub use operand::Operand;
pub use signature::{DropReason, Dropped, NotKnown, Param, SaidBy, Signature};
pub use table::{TableContents, TableOrigin};

#[cfg(test)]
mod tests;
