//! Both ends of each message.
//!
//! Messages from one rank to another of one tag and communicator do not overtake each other, so the n-th that is sent is
//! the n-th for which a receive was posted. Where the end of such a receive was not seen, that is known nevertheless if only
//! one sender and one tag would do.

use std::cmp::Ordering;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use rtrace_model::{LocationId, Timestamp};

use super::CallTime;
use super::communicators::CommunicatorId;
use super::event::{MessageEvent, MessageGaps, MessageKind, Size, Transfer};

/// A call's part in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageEnd {
    /// The thread.
    pub location: LocationId,
    /// The call that began it.
    pub call: u64,
    /// When that began.
    pub start: Timestamp,
    /// The call that returned when the message had been sent or received, as far as this rank is concerned: the same one, or
    /// one that waited for it; `None` if that is not known.
    pub done: Option<CallTime>,
    /// The call that waited for the message before another began to receive it, if one did.
    pub probed: Option<CallTime>,
}

impl MessageEnd {
    /// When the message had been sent or received; `None` if that is not known.
    pub fn end(&self) -> Option<Timestamp> {
        self.done?.end
    }
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
    /// Whether its receiver says how many came.
    pub is_measured: bool,
    /// Its tag.
    pub tag: i32,
    /// Its communicator.
    pub communicator: CommunicatorId,
    /// Where it was sent.
    pub sent: MessageEnd,
    /// Where it was received.
    pub received: MessageEnd,
}

/// What makes messages follow each other: source, target, tag and communicator.
type Channel = (u32, u32, i32, CommunicatorId);

/// One end of a message, as a call says it.
#[derive(Clone, Copy, Debug)]
struct ToldEnd {
    end: MessageEnd,
    size: Size,
    /// When the call that began it returned, if that is known.
    begun: Option<Timestamp>,
    /// Whether it was asked for and nobody saw it come.
    is_open: bool,
}

/// The ends of messages, in the order in which they began.
#[derive(Debug, Default)]
pub(super) struct MessageEnds {
    channels: BTreeMap<Channel, [Vec<ToldEnd>; 2]>,
    /// Ranks that have sent, or received, what is not known.
    unsure: [BTreeSet<u32>; 2],
    pub(super) gaps: MessageGaps,
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
        let completed: HashMap<u64, CallTime> = events
            .iter()
            .filter_map(|event| match event.kind {
                MessageKind::IsendComplete { request } => Some((request, event.at)),
                _ => None,
            })
            .collect();
        let came: HashSet<u64> = events
            .iter()
            .filter_map(|event| match event.kind {
                MessageKind::Irecv { request, .. } | MessageKind::IrecvCancelled { request } => Some(request),
                _ => None,
            })
            .collect();
        // The records of a thread come in its order, so who receives a message that was probed comes next.
        let mut probes: HashMap<(LocationId, Channel), CallTime> = HashMap::new();
        for event in events {
            let (side, transfer, at, done) = match event.kind {
                MessageKind::Send(transfer) => (SENT, transfer, event.at, Some(event.at)),
                MessageKind::Isend { transfer, request } => {
                    (SENT, transfer, event.at, completed.get(&request).copied())
                }
                MessageKind::Recv(transfer) => (RECEIVED, transfer, event.at, Some(event.at)),
                MessageKind::Irecv { transfer, posted, .. } => (RECEIVED, transfer, posted, Some(event.at)),
                MessageKind::Probed(transfer) => (RECEIVED, transfer, event.at, None),
                MessageKind::IrecvRequest { request, .. } if came.contains(&request) => continue,
                MessageKind::IrecvRequest { asked: Some(transfer), .. } => (RECEIVED, transfer, event.at, None),
                MessageKind::IrecvRequest { asked: None, .. } => {
                    self.unsure[RECEIVED].extend(rank_of(event.at.location));
                    continue;
                }
                _ => continue,
            };
            // Records have peers only where the own rank is known.
            let Some(own) = rank_of(event.at.location) else { continue };
            let Transfer { peer, tag, communicator, size } = transfer;
            let (source, target) = if side == SENT { (own, peer) } else { (peer, own) };
            let channel = (source, target, tag, communicator);
            let mut probed = None;
            if let MessageKind::Probed(_) = event.kind {
                probes.entry((at.location, channel)).or_insert(at);
                continue;
            }
            if side == RECEIVED
                && let Entry::Occupied(probe) = probes.entry((at.location, channel))
                && probe.get().start <= at.start
            {
                probed = Some(probe.remove());
            }
            let end = MessageEnd { location: at.location, call: at.call, start: at.start, done, probed };
            let is_open = matches!(event.kind, MessageKind::IrecvRequest { .. });
            self.channels.entry(channel).or_default()[side].push(ToldEnd { end, size, begun: at.end, is_open });
        }
        let ranks = || events.iter().filter_map(|event| rank_of(event.at.location));
        if is_lossy || gaps.unknown_sends > 0 {
            self.unsure[SENT].extend(ranks());
        }
        if is_lossy || gaps.unknown_receives > 0 {
            self.unsure[RECEIVED].extend(ranks());
        }
    }

    /// Visits the messages from and to ranks whose calls have all been added, and forgets their ends.
    pub(super) fn visit(&mut self, is_complete: impl Fn(u32) -> bool, visit: &mut impl FnMut(MatchedMessage)) {
        let complete = |channel: &Channel| is_complete(channel.0) && is_complete(channel.1);
        let complete: Vec<Channel> = self.channels.keys().copied().filter(complete).collect();
        for channel in complete {
            if let Some(sides) = self.channels.remove(&channel) {
                self.match_sides(channel, sides, visit);
            }
        }
    }

    fn match_sides(
        &mut self,
        (source, target, tag, communicator): Channel,
        mut sides: [Vec<ToldEnd>; 2],
        visit: &mut impl FnMut(MatchedMessage),
    ) {
        sides.iter_mut().for_each(|ends| ends.sort_by_key(|ToldEnd { end, .. }| (end.start, end.location, end.call)));
        // Nothing has come for the last of those that nobody saw come.
        let [sent, received] = &mut sides;
        while received.len() > sent.len() && received.pop_if(|end| end.is_open).is_some() {}
        let [sent, received] = &sides;
        let unsure = [self.unsure[SENT].contains(&source), self.unsure[RECEIVED].contains(&target)];
        let order = [sent, received].map(|ends| in_order(ends));
        let both = || (0..).zip(sent.iter().zip(received));
        let is_ordered = |place: usize| order.iter().all(|order| order[place]);
        // No message comes before it was sent.
        let is_possible = both()
            .filter(|(place, _)| is_ordered(*place))
            .all(|(_, (sent, received))| received.end.end().is_none_or(|end| end >= sent.end.start));
        let is_in_step = is_possible && may_be_in_step(sent.len(), received.len(), unsure);
        let pairs = if is_in_step { sent.len().min(received.len()) } else { 0 };
        self.gaps.unmatched_sends += (sent.len() - pairs) as u64;
        self.gaps.unmatched_receives += (received.len() - pairs) as u64;
        for (place, (sent, received)) in both().take(pairs) {
            if !is_ordered(place) {
                self.gaps.unordered += 1;
                continue;
            }
            let bytes = sent.size.exact().or(received.size.exact());
            let is_measured = received.size.exact().is_some();
            let (sent, received) = (sent.end, received.end);
            visit(MatchedMessage { source, target, bytes, is_measured, tag, communicator, sent, received });
        }
    }
}

/// Of each end in the order of their starts, whether that is the order in which the messages began. It need not be of
/// threads whose calls begin a message at the same time.
fn in_order(ends: &[ToldEnd]) -> Vec<bool> {
    let mut known = vec![true; ends.len()];
    // The call before that returns last; of a call whose return is not known, none does.
    let mut last: Option<&ToldEnd> = None;
    for (place, of) in ends.iter().enumerate() {
        let is_within = |last: &ToldEnd| {
            last.end.location != of.end.location && last.begun.is_none_or(|begun| begun > of.end.start)
        };
        if last.is_some_and(is_within) {
            known[place] = false;
            known[place - 1] = false;
        }
        let is_later = |last: &&ToldEnd| match (last.begun, of.begun) {
            (Some(last), Some(own)) => own >= last,
            (None, Some(_)) => last.end.location == of.end.location,
            (_, None) => true,
        };
        last = Some(last.filter(|last| !is_later(last)).unwrap_or(of));
    }
    known
}

/// Whether the n-th message that was sent is the n-th that was received. It is not where one may be missing before.
fn may_be_in_step(sent: usize, received: usize, unsure: [bool; 2]) -> bool {
    match (unsure, sent.cmp(&received)) {
        // Those sent last may be on their way.
        ([false, false], Ordering::Greater) => true,
        ([true, true], _) | (_, Ordering::Less | Ordering::Greater) => false,
        (_, Ordering::Equal) => true,
    }
}
