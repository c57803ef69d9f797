//! Facts of machine code: what stands where in a library, where control goes from there, and what a probe on an
//! instruction means.
//!
//! Nothing here knows what is wanted. [`text`] is all code of a library; [`tails`], [`line`](mod@line), [`restarting`],
//! [`returning`], [`skipped`] and [`stub`] are asked about one of its functions; [`verbatim`] says where no probe may be in a file; [`obstacle`] names what may stand in the way; [`instruction`], [`arrival`] and [`calls`] are functions
//! of bytes, [`copies`] of instructions, [`catching`] and [`choices`] of a file.
//! No instruction of the processor leaves this package.

pub mod arrival;
pub mod calls;
pub mod catching;
pub mod choices;
pub mod copies;
pub mod errno;
pub mod flow;
pub mod instruction;
pub mod line;
pub mod obstacle;
pub mod parallel;
pub mod proof;
pub mod restarting;
pub mod returning;
pub mod skipped;
mod stack;
pub mod stub;
pub mod tails;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod text;
pub mod verbatim;
