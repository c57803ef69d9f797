//! The messages of a parallel program: who sent how much to whom, and when.
//!
//! They come from the values of calls and the roles of these ([`Role`](rtrace_model::Role)), so the reader knows no
//! function by name. Ranks are those of the world communicator. What a trace does not say stays unknown and is counted
//! ([`MessageGaps`]): nothing is guessed.
//!
//! [`TraceSet::messages`] reads the communicators of all ranks. [`Messages::matched`] gives each message once, with both
//! of its ends; [`Messages::events_of`] gives the records of one trace, as formats such as OTF2 have them. Memory grows
//! with the messages of the traces that are read at a time, and for the first with those whose other end is in a trace that comes later.

mod accesses;
mod awaited;
mod calls;
mod communicators;
mod event;
mod files;
mod matching;
mod records;
mod requests;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use rtrace_model::{Call, CallValues, FunctionEvent, LocationId, RegionId, Timestamp};

use crate::parallel::in_order;
use crate::{Error, TraceSet};

use self::awaited::AwaitedCalls;
use self::calls::{MessageCall, ProcessKey};
use self::communicators::Communicators;
use self::records::Recorder;

pub use self::awaited::AwaitedCall;
pub use self::communicators::{Communicator, CommunicatorId, RmaWindow, WindowId};
pub use self::event::{Collective, Completion, FileAct, MessageEvent, MessageGaps, MessageKind, Size, Transfer};
pub use self::matching::{MatchedMessage, MessageEnd};

/// The messages of a set of traces, one for each rank, or one for all.
#[derive(Debug)]
pub struct Messages<'a> {
    set: &'a TraceSet,
    processes: HashMap<LocationId, ProcessKey>,
    communicators: Communicators,
}

impl TraceSet {
    /// Reads which communicators the traced program has made. Ranks that were not recorded are missing.
    ///
    /// # Errors
    /// A trace cannot be read.
    pub fn messages(&self) -> Result<Messages<'_>, Error> {
        let processes = calls::processes(self);
        let communicators = Communicators::read(self, &processes)?;
        Ok(Messages { set: self, processes, communicators })
    }
}

impl Messages<'_> {
    /// The number of ranks of the program, as the launcher says, or one more than the highest rank that is known.
    pub fn size(&self) -> u32 {
        self.communicators.size()
    }

    /// The rank in the world of the process that a thread belongs to.
    pub fn rank_of(&self, location: LocationId) -> Option<u32> {
        self.communicators.rank_of(*self.processes.get(&location)?)
    }

    /// All communicators whose members are known, by id. The first is that of all ranks.
    pub fn communicators(&self) -> &[Communicator] {
        self.communicators.all()
    }

    /// All windows whose communicators are known, by id. The first is that of all ranks, where nothing makes windows.
    pub fn windows(&self) -> &[RmaWindow] {
        self.communicators.windows()
    }

    /// The records of one of the [`traces`](TraceSet::traces), by its place: by location, call and time.
    ///
    /// # Errors
    /// The trace cannot be read.
    pub fn events_of(&self, place: usize) -> Result<(Vec<MessageEvent>, MessageGaps), Error> {
        let calls = calls::of_trace(self.set, place)?;
        Ok(records::records(&calls, &self.processes, &self.communicators))
    }

    /// Follows the calls of one trace one by one, in memory that does not grow with them.
    pub(crate) fn follow(&self) -> FollowedCalls<'_> {
        FollowedCalls { messages: self, recorder: Recorder::new(&self.communicators) }
    }

    /// Visits all messages of which both ends are known, in no order, and says what is missing.
    ///
    /// # Errors
    /// A trace cannot be read.
    pub fn matched(&self, visit: impl FnMut(MatchedMessage)) -> Result<MessageGaps, Error> {
        self.match_ends(|_, _, _| {}, visit)
    }

    /// Visits the accesses to memory of other ranks, in no order: nobody receives them.
    ///
    /// # Errors
    /// A trace cannot be read.
    pub fn accesses(&self, mut visit: impl FnMut(RemoteAccess)) -> Result<(), Error> {
        use FunctionEvent::{RmaAtomic, RmaGet, RmaIatomic, RmaIget, RmaIput, RmaPut};
        let is_access = |event| matches!(event, RmaAtomic | RmaGet | RmaIatomic | RmaIget | RmaIput | RmaPut);
        if !self.set.regions().iter().any(|region| region.event.is_some_and(is_access)) {
            return Ok(());
        }
        let events_of = |place| self.events_of(place);
        in_order(self.set.traces().len(), events_of, |events| {
            for MessageEvent { at, kind, .. } in events?.0 {
                let MessageKind::Access { event, target: other, size, .. } = kind else { continue };
                let Some(own) = self.rank_of(at.location) else { continue };
                let (source, target) = if matches!(event, RmaGet | RmaIget) { (other, own) } else { (own, other) };
                visit(RemoteAccess { source, target, bytes: size.exact(), at });
            }
            Ok(())
        })
    }

    /// Visits the calls that return when something has come from other ranks, and says until when they waited for these,
    /// in no order. Those of which not all is known are left out. Memory grows with all of these calls.
    ///
    /// # Errors
    /// A trace cannot be read.
    pub fn awaited(&self, visit: impl FnMut(AwaitedCall)) -> Result<(), Error> {
        let calls = std::cell::RefCell::new(AwaitedCalls::default());
        self.match_ends(
            |events, gaps, is_lossy| {
                let is_unsure = is_lossy || gaps.unknown_others > 0;
                calls.borrow_mut().add(events, is_unsure, |location| self.rank_of(location));
            },
            |message| calls.borrow_mut().matched(&message),
        )?;
        calls.into_inner().finish(self.communicators(), visit);
        Ok(())
    }

    /// Visits the records of each trace, with what is missing in it and whether calls may be lost, and all messages of
    /// which both ends are known.
    fn match_ends(
        &self,
        mut see: impl FnMut(&[MessageEvent], MessageGaps, bool),
        mut visit: impl FnMut(MatchedMessage),
    ) -> Result<MessageGaps, Error> {
        let mut last_places: HashMap<u32, usize> = HashMap::new();
        for &process in self.processes.values() {
            let rank = self.communicators.rank_of(process);
            rank.into_iter().for_each(|rank| {
                let last = last_places.entry(rank).or_default();
                *last = process.0.max(*last);
            });
        }
        let mut ends = matching::MessageEnds::default();
        let read = |place| Ok((place, self.events_of(place)?, !self.set.part(place).losses()?.is_empty()));
        in_order(self.set.traces().len(), read, |read: Result<_, Error>| {
            let (place, (events, gaps), is_lossy) = read?;
            see(&events, gaps, is_lossy);
            ends.add(&events, gaps, is_lossy, |location| self.rank_of(location));
            ends.visit(|rank| last_places.get(&rank).is_none_or(|last| *last <= place), &mut visit);
            Ok(())
        })?;
        Ok(ends.gaps)
    }
}

/// The calls of one trace, of which one after the other becomes records.
pub(crate) struct FollowedCalls<'a> {
    messages: &'a Messages<'a>,
    recorder: Recorder<'a>,
}

impl FollowedCalls<'_> {
    /// The records of a call, which begins after those before it in its process; in the order of their times.
    pub(crate) fn next(&mut self, call: &Call, values: Option<&CallValues>) -> impl Iterator<Item = MessageEvent> {
        let event = calls::event_of(self.messages.set, call);
        if let Some((event, &process)) = event.zip(self.messages.processes.get(&call.location)) {
            self.recorder.call(process, &MessageCall::of(event, call, values));
        }
        self.recorder.events.drain(..)
    }

    /// What is not known of all calls that came.
    pub(crate) fn gaps(self) -> MessageGaps {
        self.recorder.gaps()
    }
}

/// An access to memory of another rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteAccess {
    /// The rank in the world whose memory is read: that which accesses, or the other one if that is read.
    pub source: u32,
    /// The rank in the world whose memory is written.
    pub target: u32,
    /// Its bytes; `None` if they are not known.
    pub bytes: Option<u64>,
    /// The call that accesses.
    pub at: CallTime,
}

/// A time within a call: when it begins, and when it returns, if that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallTime {
    /// The thread.
    pub location: LocationId,
    /// The call.
    pub call: u64,
    /// Its function.
    pub region: RegionId,
    /// When it began.
    pub start: Timestamp,
    /// When it returned; `None` if that is not known.
    pub end: Option<Timestamp>,
}
