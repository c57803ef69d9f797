//! From calls to records of messages.

use std::collections::HashMap;

use rtrace_model::{FunctionEvent, LocationId, Role, Timestamp};

use super::CallTime;
use super::calls::{MessageCall, ProcessKey};
use super::communicators::{CommunicatorId, Communicators};

/// How large a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// So many bytes were sent or received.
    Exact(u64),
    /// There was room for so many bytes: the program did not ask how many came.
    Posted(u64),
    /// It is not known.
    Unknown,
}

impl Size {
    /// The bytes, if they are exact.
    pub fn exact(self) -> Option<u64> {
        match self {
            Size::Exact(bytes) => Some(bytes),
            Size::Posted(_) | Size::Unknown => None,
        }
    }
}

/// One end of a message, as a call says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// The rank in the world at the other end.
    pub peer: u32,
    /// The tag.
    pub tag: i32,
    /// The communicator.
    pub communicator: CommunicatorId,
    /// The bytes.
    pub size: Size,
}

/// What a record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageKind {
    /// A message is sent, and its buffer free when the call returns.
    Send(Transfer),
    /// A message was received when the call returned.
    Recv(Transfer),
}

/// A record of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageEvent {
    /// The call that it belongs to.
    pub at: CallTime,
    /// Whether it happens when the call returns; else when it begins.
    pub at_exit: bool,
    /// What happens.
    pub kind: MessageKind,
}

impl MessageEvent {
    /// When it happens; `None` if the call's return was not seen.
    pub fn time(&self) -> Option<Timestamp> {
        if self.at_exit { self.at.end } else { Some(self.at.start) }
    }
}

/// What is not known of messages, by number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gaps {
    /// Calls that send or receive, of which the communicator, the peer or the tag is not known.
    pub unknown_peers: u64,
    /// Messages that were sent, and whose receiver is not known.
    pub unmatched_sends: u64,
    /// Messages that were received, and whose sender is not known.
    pub unmatched_receives: u64,
}

impl Gaps {
    /// Adds those of another trace.
    pub(super) fn add(&mut self, other: Gaps) {
        self.unknown_peers += other.unknown_peers;
        self.unmatched_sends += other.unmatched_sends;
        self.unmatched_receives += other.unmatched_receives;
    }
}

/// The records of calls that are sorted by time.
pub(super) fn records(
    calls: Vec<MessageCall>,
    processes: &HashMap<LocationId, ProcessKey>,
    communicators: &Communicators,
) -> (Vec<MessageEvent>, Gaps) {
    let mut recorder = Recorder { communicators, events: Vec::new(), gaps: Gaps::default() };
    for call in &calls {
        if let Some(&process) = processes.get(&call.at.location) {
            recorder.call(process, call);
        }
    }
    let Recorder { mut events, gaps, .. } = recorder;
    events.sort_by_key(|event| (event.at.location, event.at.call, event.at_exit));
    (events, gaps)
}

struct Recorder<'a> {
    communicators: &'a Communicators,
    events: Vec<MessageEvent>,
    gaps: Gaps,
}

/// The other end of a call that sends or receives.
enum Peer {
    /// This one.
    Known(Transfer),
    /// There is none: nothing is sent.
    Nobody,
    /// It is not known.
    Unknown,
}

impl Recorder<'_> {
    fn call(&mut self, process: ProcessKey, call: &MessageCall) {
        match call.event {
            FunctionEvent::Send => self.end(process, call, false, MessageKind::Send),
            FunctionEvent::Recv => self.end(process, call, true, MessageKind::Recv),
            _ => {}
        }
    }

    fn end(
        &mut self,
        process: ProcessKey,
        call: &MessageCall,
        is_received: bool,
        kind: impl Fn(Transfer) -> MessageKind,
    ) {
        match self.peer(process, call, is_received) {
            Peer::Known(transfer) => {
                self.events.push(MessageEvent { at: call.at, at_exit: is_received, kind: kind(transfer) });
            }
            Peer::Nobody => {}
            Peer::Unknown => self.gaps.unknown_peers += 1,
        }
    }

    fn peer(&self, process: ProcessKey, call: &MessageCall, is_received: bool) -> Peer {
        let value = |of_status, asked| call.value(of_status).filter(|_| is_received).or(call.value(asked));
        let (peer, tag) = (value(Role::Source, Role::Peer), value(Role::SourceTag, Role::Tag));
        let (Some(peer), Some(tag), Some(called)) = (peer, tag, call.value(Role::Communicator)) else {
            return Peer::Unknown;
        };
        if is_nobody(peer, called) {
            return Peer::Nobody;
        }
        let posted = call.value(Role::Bytes).and_then(|bytes| u64::try_from(bytes).ok());
        let received = call.value(Role::Received).and_then(|bytes| u64::try_from(bytes).ok());
        let size = match (is_received, received, posted) {
            (true, Some(bytes), _) | (false, _, Some(bytes)) => Size::Exact(bytes),
            (true, None, Some(bytes)) => Size::Posted(bytes),
            (_, _, None) => Size::Unknown,
        };
        let communicator = self.communicators.find(process, called, call.at.start);
        let peer = communicator.and_then(|id| self.communicators.member(id, peer));
        match (communicator, peer, i32::try_from(tag)) {
            (Some(communicator), Some(peer), Ok(tag @ 0..)) => {
                Peer::Known(Transfer { peer, tag, communicator, size })
            }
            _ => Peer::Unknown,
        }
    }
}

/// Whether a rank stands for nobody, in an implementation that calls communicators so: handles of MPICH have their kind
/// in the upper bits, contexts of Open MPI are small.
fn is_nobody(rank: i64, communicator: i64) -> bool {
    let is_mpich = communicator >= 0x4000_0000;
    rank == if is_mpich { -1 } else { -2 }
}
