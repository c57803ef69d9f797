//! Both ends of each message.
//!
//! Messages from one rank to another of one tag and communicator do not overtake each other, so the n-th that is sent is
//! the n-th for which a receive was posted.

use std::collections::BTreeMap;

use rtrace_model::{LocationId, Timestamp};

use super::communicators::CommunicatorId;
use super::records::{Gaps, MessageEvent, MessageKind, Size, Transfer};

/// A call's part in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageEnd {
    /// The thread.
    pub location: LocationId,
    /// The call that began it.
    pub call: u64,
    /// When that began.
    pub start: Timestamp,
    /// When the message had been sent or received, as far as this rank is concerned; `None` if that is not known.
    pub end: Option<Timestamp>,
}

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// The rank in the world that sent it.
    pub source: u32,
    /// The rank in the world that received it.
    pub target: u32,
    /// Its bytes; `None` if neither end says it.
    pub bytes: Option<u64>,
    /// Its tag.
    pub tag: i32,
    /// Its communicator.
    pub communicator: CommunicatorId,
    /// Where it was sent.
    pub sent: MessageEnd,
    /// Where it was received.
    pub received: MessageEnd,
}

/// The messages of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Matched {
    /// Those of which both ends are known, by the time when they were sent.
    pub messages: Vec<Message>,
    /// What is not among them.
    pub gaps: Gaps,
}

/// What makes messages follow each other: source, target, tag and communicator.
type Channel = (u32, u32, i32, CommunicatorId);

/// The ends of messages, in the order in which they began.
#[derive(Debug, Default)]
pub(super) struct Ends {
    channels: BTreeMap<Channel, [Vec<(MessageEnd, Size)>; 2]>,
    gaps: Gaps,
}

const SENT: usize = 0;
const RECEIVED: usize = 1;

impl Ends {
    /// Adds those of one trace.
    pub(super) fn add(&mut self, events: &[MessageEvent], gaps: Gaps, rank_of: impl Fn(LocationId) -> Option<u32>) {
        self.gaps.add(gaps);
        for event in events {
            let Some(own) = rank_of(event.at.location) else {
                self.gaps.unknown_peers += 1;
                continue;
            };
            let (side, Transfer { peer, tag, communicator, size }) = match event.kind {
                MessageKind::Send(transfer) => (SENT, transfer),
                MessageKind::Recv(transfer) => (RECEIVED, transfer),
            };
            let (source, target) = if side == SENT { (own, peer) } else { (peer, own) };
            let (location, call) = (event.at.location, event.at.call);
            let end = MessageEnd { location, call, start: event.at.start, end: event.at.end };
            self.channels.entry((source, target, tag, communicator)).or_default()[side].push((end, size));
        }
    }

    /// All messages, by the time when they were sent.
    pub(super) fn matched(self) -> Matched {
        let mut matched = Matched { messages: Vec::new(), gaps: self.gaps };
        for ((source, target, tag, communicator), mut sides) in self.channels {
            sides.iter_mut().for_each(|ends| ends.sort_by_key(|(end, _)| (end.start, end.location, end.call)));
            let [sent, received] = &sides;
            let pairs = sent.len().min(received.len());
            matched.gaps.unmatched_sends += (sent.len() - pairs) as u64;
            matched.gaps.unmatched_receives += (received.len() - pairs) as u64;
            matched.messages.extend(sent.iter().zip(received).map(|(&(sent, of_send), &(received, of_receive))| {
                let bytes = of_send.exact().or(of_receive.exact());
                Message { source, target, bytes, tag, communicator, sent, received }
            }));
        }
        matched.messages.sort_by_key(|message| (message.sent.start, message.sent.location, message.sent.call));
        matched
    }
}
