//! Who called whom, and what calls add up to.
//!
//! A [`Walk`] finds the caller of each call. What is made of that is up to its [`Visitor`]: it sees single calls and
//! call paths alike, as [`Visited`]. [`Sums`] are what calls add up to in a row of a report, a function of the dashboard
//! or a call path of a recording. Nothing here reads files or knows names.

mod span;
mod sums;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod visited;
mod walk;

pub use span::ClockSpan;
pub use sums::Sums;
pub use visited::Visited;
pub use walk::{CallReader, Caller, OpenCall, Visitor, Walk};
