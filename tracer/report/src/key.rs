//! What rows go by while they are summed up.

/// Names a row: the id of a region, library or location, or the place of a process.
pub(super) type Key = u32;

/// What a key has on top for calls that are not asked for, which have callees that may be.
pub(super) const LEFT_OUT: Key = 1 << 31;

/// The row of calls whose library or process is not defined.
pub(super) const UNKNOWN: Key = !LEFT_OUT;

/// The row of calls that are not reported, as they do not have what rows stand for.
pub(super) const HIDDEN: Key = UNKNOWN - 1;
