//! The accesses of a process to memory of other ranks, until it is known that they have ended.
//!
//! An access ends here when its buffer may be used again, and at its target when the memory there is as it should be. What
//! is read has ended at both at once. Accesses to one rank that end together have one number, as Score-P gives it to them,
//! so that memory does not grow with them.

use std::collections::BTreeMap;

use super::communicators::WindowId;
use super::event::{Completion, MessageKind};

/// Accesses that end together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct AccessKey {
    pub(super) window: WindowId,
    /// The rank that the call says.
    pub(super) rank: Option<i64>,
    /// The number of what has a request of its own.
    pub(super) request: Option<u64>,
    /// Whether memory of the target is only read.
    pub(super) is_read: bool,
}

/// What is known of the accesses of a key.
#[derive(Clone, Copy, Debug)]
struct PendingAccess {
    access: u64,
    /// Whether their buffers may be used again.
    has_ended_here: bool,
}

/// What a call waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AccessEnd {
    /// Buffers may be used again.
    Here,
    /// So they may, and later accesses are others.
    Epoch,
    /// The memory of the targets is as it should be.
    Everywhere,
}

/// The accesses of a process.
#[derive(Debug, Default)]
pub(super) struct Accesses(BTreeMap<AccessKey, PendingAccess>);

impl Accesses {
    /// An access begins that may have the number `access`: gives the one that it has.
    pub(super) fn begin(&mut self, key: AccessKey, access: u64, has_ended_here: bool) -> u64 {
        let pending = self.0.entry(key).or_insert(PendingAccess { access, has_ended_here });
        pending.has_ended_here = has_ended_here;
        pending.access
    }

    /// The request of an access has ended: the records of that.
    pub(super) fn end_request(&mut self, request: u64) -> Vec<MessageKind> {
        self.end_some(|key| key.request == Some(request), AccessEnd::Here)
    }

    /// Accesses through a window have ended, or those to one rank: the records of that.
    pub(super) fn end(&mut self, window: WindowId, rank: Option<i64>, end: AccessEnd) -> Vec<MessageKind> {
        self.end_some(|key| key.window == window && (rank.is_none() || key.rank == rank), end)
    }

    fn end_some(&mut self, is_meant: impl Fn(&AccessKey) -> bool, end: AccessEnd) -> Vec<MessageKind> {
        let mut records = Vec::new();
        self.0.retain(|key, pending| {
            if !is_meant(key) {
                return true;
            }
            let mut put = |completion| {
                let (window, access) = (key.window, pending.access);
                records.push(MessageKind::AccessComplete { window, access, completion });
            };
            if !pending.has_ended_here {
                put(Completion::Here);
            }
            if end == AccessEnd::Everywhere || (key.is_read && !pending.has_ended_here) {
                put(Completion::Target);
            }
            pending.has_ended_here = true;
            end == AccessEnd::Here && !key.is_read
        });
        records
    }
}
