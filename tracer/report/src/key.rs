//! What rows go by while they are summed up.

/// Names a row: the id of a region, library or location, or the place of a process.
pub(super) type RowId = u32;

/// What a key has on top for calls that are not asked for, which have callees that may be.
pub(super) const LEFT_OUT: RowId = 1 << 31;

/// The row of calls whose library or process is not defined.
pub(super) const UNKNOWN: RowId = !LEFT_OUT;

/// The row of calls that are not reported, as they do not have what rows stand for.
pub(super) const HIDDEN: RowId = UNKNOWN - 1;
