//! Code of others that reads foreign bytes, and may panic where these are damaged.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static IS_GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `read`; `None` where it panics.
///
/// What it borrows must be as good after a panic: readers own their buffers, or fill a cache only with what was read to
/// its end.
pub fn guarded<R>(read: impl FnOnce() -> R) -> Option<R> {
    let was_guarded = IS_GUARDED.replace(true);
    let outcome = catch_unwind(AssertUnwindSafe(read));
    IS_GUARDED.set(was_guarded);
    outcome.ok()
}

/// Whether a panic on this thread only says that what is read is damaged: it is not worth a word.
pub fn is_guarded() -> bool {
    IS_GUARDED.get()
}
