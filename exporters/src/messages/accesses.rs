//! The accesses of a process to memory of other ranks, until it is known that they have ended.
//!
//! An access ends here when its buffer may be used again, and at its target when the memory there is as it should be. A
//! call that waits for accesses through a window ends all of them, or those to one rank.

use std::collections::HashMap;

use super::communicators::CommunicatorId;
use super::event::{Completion, MessageKind};

/// An access that has not ended at its target.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingAccess {
    access: u64,
    communicator: CommunicatorId,
    /// Whether its buffer may be used again.
    has_ended_here: bool,
}

/// The accesses of a process.
#[derive(Debug, Default)]
pub(super) struct Accesses {
    /// By window, or none where there are no windows, and by the rank that the call says.
    pending: HashMap<Option<i64>, HashMap<Option<i64>, Vec<PendingAccess>>>,
}

impl Accesses {
    pub(super) fn pending(access: u64, communicator: CommunicatorId, has_ended_here: bool) -> PendingAccess {
        PendingAccess { access, communicator, has_ended_here }
    }

    pub(super) fn begin(&mut self, window: Option<i64>, rank: Option<i64>, access: PendingAccess) {
        self.pending.entry(window).or_default().entry(rank).or_default().push(access);
    }

    /// A request says that the buffer of an access may be used again.
    pub(super) fn end_here(&mut self, access: u64) -> Option<MessageKind> {
        let mut all = self.pending.values_mut().flat_map(HashMap::values_mut).flatten();
        let ended = all.find(|pending| pending.access == access && !pending.has_ended_here)?;
        ended.has_ended_here = true;
        Some(ended.record(Completion::Here))
    }

    /// Accesses through a window have ended, or those to one rank: their records, in the order in which they began.
    pub(super) fn end(&mut self, window: Option<i64>, rank: Option<i64>) -> Vec<MessageKind> {
        let Some(of_window) = self.pending.get_mut(&window) else { return Vec::new() };
        let mut ended = match rank {
            Some(_) => of_window.remove(&rank).unwrap_or_default(),
            None => std::mem::take(of_window).into_values().flatten().collect(),
        };
        ended.sort_by_key(|pending| pending.access);
        let records = |pending: PendingAccess| {
            let here = (!pending.has_ended_here).then(|| pending.record(Completion::Here));
            here.into_iter().chain([pending.record(Completion::Target)])
        };
        ended.into_iter().flat_map(records).collect()
    }
}

impl PendingAccess {
    fn record(&self, completion: Completion) -> MessageKind {
        let PendingAccess { access, communicator, .. } = *self;
        MessageKind::AccessComplete { communicator, access, completion }
    }
}
