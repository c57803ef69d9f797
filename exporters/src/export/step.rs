//! What call paths are made of.

use rtrace_model::{LocationId, RegionId};

/// One step of a call path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Step {
    /// A process, by its place among the programs.
    Program(usize),
    Thread(LocationId),
    Function(RegionId),
}
