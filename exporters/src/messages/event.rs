//! Records of messages, as formats such as OTF2 have them.

use rtrace_model::{FunctionEvent, Timestamp};

use super::CallTime;
use super::communicators::{CommunicatorId, WindowId};

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

/// What a record says. Requests have numbers of their own in each trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageKind {
    /// A message is sent, and its buffer free when the call returns.
    Send(Transfer),
    /// A message was received when the call returned.
    Recv(Transfer),
    /// A message begins to be sent.
    Isend {
        /// The message.
        transfer: Transfer,
        /// What ends it.
        request: u64,
    },
    /// The buffer of a message is free.
    IsendComplete {
        /// What began it.
        request: u64,
    },
    /// A call waited for a message that a later one receives.
    Probed(Transfer),
    /// A message may be received.
    IrecvRequest {
        /// What ends it.
        request: u64,
        /// The message, with the room for it, if only one sender and one tag will do.
        asked: Option<Transfer>,
    },
    /// What was asked for is not received any more.
    IrecvCancelled {
        /// What began it.
        request: u64,
    },
    /// A message was received that was asked for.
    Irecv {
        /// The message.
        transfer: Transfer,
        /// What began it.
        request: u64,
        /// Where it was asked for.
        posted: CallTime,
    },
    /// A collective operation, from the beginning of the call to its return.
    Collective(Collective),
    /// A collective operation begins that a later call ends.
    CollectiveRequest {
        /// The operation.
        collective: Collective,
        /// What ends it.
        request: u64,
    },
    /// Such an operation has ended.
    CollectiveComplete {
        /// The operation.
        collective: Collective,
        /// What began it.
        request: u64,
    },
    /// Memory of another rank is accessed, from the beginning of the call on.
    Access {
        /// Whether it is written, read, or both: an event of such a name.
        event: FunctionEvent,
        /// The rank in the world whose memory it is.
        target: u32,
        /// The bytes.
        size: Size,
        /// Through which window.
        window: WindowId,
        /// Its number in its trace, which those have in common that end together.
        access: u64,
    },
    /// Accesses of one number have ended.
    AccessComplete {
        /// Their window.
        window: WindowId,
        /// Their number.
        access: u64,
        /// Of which end that is known.
        completion: Completion,
    },
    /// A communicator was made of another one, or is freed, when the call returned.
    Handle {
        /// The one that it was made of, or that is freed.
        communicator: CommunicatorId,
        /// Whether it was made.
        is_made: bool,
    },
    /// Accesses to memory of one rank, or of all, begin with the call, or have ended when it returned.
    Lock {
        /// Through which window.
        window: WindowId,
        /// The rank in the world, if it is one.
        target: Option<u32>,
        /// Whether they have ended.
        is_over: bool,
    },
    /// Something was done with a file.
    File {
        /// The file that was opened, by a number of its own in each trace.
        file: u64,
        /// What was done.
        act: FileAct,
    },
}

/// What is done with a file. Operations have numbers of their own in each trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileAct {
    /// It was opened by the ranks of a communicator.
    Opened(Option<CommunicatorId>),
    /// It was open before anything was seen of it.
    Found,
    /// It was closed.
    Closed,
    /// Bytes begin to be read or written.
    Begun {
        /// The operation.
        operation: u64,
        /// Whether they are written; else they are read.
        is_write: bool,
        /// The bytes that are asked for.
        asked: Option<u64>,
        /// Whether a later call ends it.
        is_nonblocking: bool,
    },
    /// The call that began it returned, and another one ends it.
    Issued(u64),
    /// It has ended.
    Done {
        /// The operation.
        operation: u64,
        /// The bytes that were read or written.
        bytes: Size,
    },
}

/// A rank's part in a collective operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Collective {
    /// What it does.
    pub event: FunctionEvent,
    /// The communicator.
    pub communicator: CommunicatorId,
    /// Its window, where the operation is one of memory that all can access.
    pub window: Option<WindowId>,
    /// The rank in the world of its root, where there is one.
    pub root: Option<u32>,
    /// Bytes that this rank sends to all, itself included, unless that is in place.
    pub sent: Size,
    /// Bytes that this rank receives from all, in the same way.
    pub received: Size,
}

/// Which end of an access is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// The call that accesses returns when its buffer may be used again.
    Call,
    /// The buffer may be used again.
    Here,
    /// The memory of the target is as the access makes it.
    Target,
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
pub struct MessageGaps {
    /// Calls that send, of which the communicator, the peer or the tag is not known.
    pub unknown_sends: u64,
    /// The same of those that receive.
    pub unknown_receives: u64,
    /// Collective operations, and accesses to memory, of which the communicator or the target is not known.
    pub unknown_others: u64,
    /// Calls on communicators, or windows, whose members are not known: no message on another one is one of theirs.
    pub unknown_communicators: u64,
    /// Requests whose end was not seen: their calls were not timed, or had more requests than are recorded.
    pub unseen_ends: u64,
    /// Ends of requests whose begin was not seen.
    pub unseen_begins: u64,
    /// Messages that threads of a rank sent or received at the same time, so that nothing says which of them is which.
    pub unordered: u64,
    /// Messages that were sent, and whose receiver is not known.
    pub unmatched_sends: u64,
    /// Messages that were received, and whose sender is not known.
    pub unmatched_receives: u64,
}

impl MessageGaps {
    /// Whether nothing is missing.
    pub fn is_empty(&self) -> bool {
        self.total() == 0
    }

    /// The sum of all.
    pub fn total(&self) -> u64 {
        let unknown = self.unknown_sends + self.unknown_receives + self.unknown_others + self.unknown_communicators;
        let unmatched = self.unordered + self.unmatched_sends + self.unmatched_receives;
        unknown + self.unseen_ends + self.unseen_begins + unmatched
    }

    /// Adds those of another trace.
    pub(super) fn add(&mut self, other: MessageGaps) {
        self.unknown_sends += other.unknown_sends;
        self.unknown_receives += other.unknown_receives;
        self.unknown_others += other.unknown_others;
        self.unknown_communicators += other.unknown_communicators;
        self.unseen_ends += other.unseen_ends;
        self.unseen_begins += other.unseen_begins;
        self.unordered += other.unordered;
        self.unmatched_sends += other.unmatched_sends;
        self.unmatched_receives += other.unmatched_receives;
    }
}
