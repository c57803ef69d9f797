//! Both ends of each message.
//!
//! Messages from one rank to another of one tag and communicator do not overtake each other, so the n-th that is sent is
//! the n-th for which a receive was posted.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use rtrace_model::{LocationId, Timestamp};

use super::communicators::CommunicatorId;
use super::records::{MessageEvent, MessageGaps, MessageKind, Size, Transfer};

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
pub struct MatchedMessage {
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
    pub messages: Vec<MatchedMessage>,
    /// What is not among them.
    pub gaps: MessageGaps,
}

/// What makes messages follow each other: source, target, tag and communicator.
type Channel = (u32, u32, i32, CommunicatorId);

/// The ends of messages, in the order in which they began.
#[derive(Debug, Default)]
pub(super) struct MessageEnds {
    channels: BTreeMap<Channel, [Vec<(MessageEnd, Size)>; 2]>,
    /// Ranks that have sent, or received, what is not known.
    unsure: [BTreeSet<u32>; 2],
    gaps: MessageGaps,
}

const SENT: usize = 0;
const RECEIVED: usize = 1;

impl MessageEnds {
    /// Adds those of one trace, in which calls may be lost.
    pub(super) fn add(
        &mut self,
        events: &[MessageEvent],
        gaps: MessageGaps,
        is_lossy: bool,
        rank_of: impl Fn(LocationId) -> Option<u32>,
    ) {
        self.gaps.add(gaps);
        let completed: HashMap<u64, Option<Timestamp>> = events
            .iter()
            .filter_map(|event| match event.kind {
                MessageKind::IsendComplete { request } => Some((request, event.at.end)),
                _ => None,
            })
            .collect();
        let mut open: BTreeMap<u32, i64> = BTreeMap::new();
        for event in events {
            let (side, transfer, at, end) = match event.kind {
                MessageKind::Send(transfer) => (SENT, transfer, event.at, event.at.end),
                MessageKind::Isend { transfer, request } => {
                    (SENT, transfer, event.at, completed.get(&request).copied().flatten())
                }
                MessageKind::Recv(transfer) => (RECEIVED, transfer, event.at, event.at.end),
                MessageKind::Irecv { transfer, posted, .. } => (RECEIVED, transfer, posted, event.at.end),
                MessageKind::IrecvRequest { .. } => {
                    if let Some(own) = rank_of(event.at.location) {
                        *open.entry(own).or_default() += 1;
                    }
                    continue;
                }
                _ => continue,
            };
            // Records have peers only where the own rank is known.
            let Some(own) = rank_of(event.at.location) else { continue };
            if matches!(event.kind, MessageKind::Irecv { .. }) {
                *open.entry(own).or_default() -= 1;
            }
            let Transfer { peer, tag, communicator, size } = transfer;
            let (source, target) = if side == SENT { (own, peer) } else { (peer, own) };
            let end = MessageEnd { location: at.location, call: at.call, start: at.start, end };
            self.channels.entry((source, target, tag, communicator)).or_default()[side].push((end, size));
        }
        let ranks = || events.iter().filter_map(|event| rank_of(event.at.location));
        if is_lossy || gaps.unknown_sends > 0 {
            self.unsure[SENT].extend(ranks());
        }
        if is_lossy || gaps.unknown_receives > 0 {
            self.unsure[RECEIVED].extend(ranks());
        }
        self.unsure[RECEIVED].extend(open.into_iter().filter(|(_, open)| *open != 0).map(|(rank, _)| rank));
    }

    /// All messages, by the time when they were sent.
    pub(super) fn matched(self) -> Matched {
        let mut matched = Matched { messages: Vec::new(), gaps: self.gaps };
        for ((source, target, tag, communicator), mut sides) in self.channels {
            sides.iter_mut().for_each(|ends| ends.sort_by_key(|(end, _)| (end.start, end.location, end.call)));
            let [sent, received] = &sides;
            let unsure = [self.unsure[SENT].contains(&source), self.unsure[RECEIVED].contains(&target)];
            let pairs = if is_in_step(sent, received, unsure) { sent.len().min(received.len()) } else { 0 };
            matched.gaps.unmatched_sends += (sent.len() - pairs) as u64;
            matched.gaps.unmatched_receives += (received.len() - pairs) as u64;
            let both = sent.iter().zip(received).take(pairs);
            matched.messages.extend(both.map(|(&(sent, of_send), &(received, of_receive))| {
                let bytes = of_send.exact().or(of_receive.exact());
                MatchedMessage { source, target, bytes, tag, communicator, sent, received }
            }));
        }
        matched.messages.sort_by_key(|message| (message.sent.start, message.sent.location, message.sent.call));
        matched
    }
}

/// Whether the n-th message that was sent is the n-th that was received. It is not where one may be missing before.
fn is_in_step(sent: &[(MessageEnd, Size)], received: &[(MessageEnd, Size)], unsure: [bool; 2]) -> bool {
    let is_possible = match (unsure, sent.len().cmp(&received.len())) {
        // Those sent last may be on their way.
        ([false, false], Ordering::Greater) => true,
        ([true, true], _) | (_, Ordering::Less | Ordering::Greater) => false,
        (_, Ordering::Equal) => true,
    };
    // No message comes before it was sent.
    is_possible
        && sent.iter().zip(received).all(|((sent, _), (received, _))| received.end.is_none_or(|end| end >= sent.start))
}
