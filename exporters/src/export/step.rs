//! What call paths are made of.

use rtrace_model::{LocationId, RegionId};

use crate::UntracedId;

/// One step of a call path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum PathStep {
    /// A process, by its place among the programs.
    Program(usize),
    Thread(LocationId),
    Function(RegionId),
    /// A function that is not traced, which led to a call.
    Untraced(UntracedId),
}

/// Between functions of a context on one line, of which the second is called by the first.
pub(super) const BELOW: &str = " > ";
