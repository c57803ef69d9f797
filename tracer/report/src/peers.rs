//! Messages by the rank that sends them and the rank that receives them.
//!
//! A row's calls, and their times, are those that send, or that access memory of another rank: such an access is a message
//! from where the bytes are to where they go, and nobody receives it. A receiver waits for a *late sender* in the call that returns with
//! the message, or that probes for it, from the start of that call to the start of the call that sends. Where one call
//! returns with several messages, each has the time since the one before it was sent. A sender waits for a *late receiver*
//! likewise if its call returns only after that has come, and only in calls that return when the message is through: a
//! small message is often sent before.
//!
//! Memory grows with the messages of the job, of which as little as possible is kept.

use std::collections::{BTreeMap, HashMap};

use rtrace_exporters::{MatchedMessage, MessageGaps, RemoteAccess, TraceSet};
use rtrace_model::{Call, FunctionEvent, LocationId, RegionId, Timestamp, counted};

use super::Error;
use super::key::{HIDDEN, RowId};
use super::people::Note;
use super::table::{Column, Datum, SUM, Shown, Table};

/// A rank that sends, and one that receives.
type Pair = (u32, u32);

/// The thread and the number of a call.
type PeerCall = (LocationId, u64);

/// The messages, and what the calls that are visited say of them.
pub(super) struct Peers {
    events: HashMap<RegionId, FunctionEvent>,
    pairs: Vec<Pair>,
    /// By the call that began to send: when the call that received began, and the bytes if they are known.
    sent: PeerEnds<(Timestamp, Option<u64>)>,
    /// By the calls that returned with a message or probed for it: when the call that sent it began.
    received: PeerEnds<Timestamp>,
    sums: HashMap<RowId, MessageSums>,
    gaps: MessageGaps,
}

/// PeerEnds of messages by their calls: each with its row, and when the other end began.
struct PeerEnds<T>(Vec<(PeerCall, RowId, T)>);

impl<T: Copy> PeerEnds<T> {
    /// Of rows that are in order; those of a call come by what `order` says.
    fn new<K: Ord>(mut ends: Vec<(PeerCall, RowId, T)>, rows: &[RowId], order: impl Fn(RowId, T) -> K) -> PeerEnds<T> {
        ends.iter_mut().for_each(|end| end.1 = rows[end.1 as usize]);
        ends.sort_unstable_by_key(|&(call, row, end)| (call, order(row, end)));
        ends.shrink_to_fit();
        PeerEnds(ends)
    }

    fn of(&self, call: PeerCall) -> &[(PeerCall, RowId, T)] {
        let from = self.0.partition_point(|end| end.0 < call);
        let of_call = &self.0[from..];
        &of_call[..of_call.partition_point(|end| end.0 == call)]
    }
}

#[derive(Clone, Copy, Default)]
struct MessageSums {
    messages: u64,
    bytes: u64,
    /// Messages whose bytes are not known.
    sizeless: u64,
    late_senders: u64,
    late_receivers: u64,
}

impl Peers {
    /// # Errors
    /// No message is on record, or the trace cannot be read.
    pub(super) fn new(trace: &TraceSet) -> Result<Peers, Error> {
        if !trace.profile().is_empty() {
            return Err(Error::Aggregated);
        }
        let mut numbers: BTreeMap<Pair, RowId> = BTreeMap::new();
        let (mut sent, mut received) = (Vec::new(), Vec::new());
        let mut row_of = |pair: Pair| {
            let next = numbers.len() as RowId;
            *numbers.entry(pair).or_insert(next)
        };
        let messages = trace.messages()?;
        let gaps = messages.matched(|MatchedMessage { source, target, bytes, sent: of, received: to, .. }| {
            let row = row_of((source, target));
            sent.push(((of.location, of.call), row, (to.start, bytes)));
            let waiting = to.done.into_iter().chain(to.probed);
            received.extend(waiting.map(|at| ((at.location, at.call), row, of.start)));
        })?;
        messages.accesses(|RemoteAccess { source, target, bytes, at }| {
            sent.push(((at.location, at.call), row_of((source, target)), (at.start, bytes)));
        })?;
        if numbers.is_empty() {
            return Err(Error::NoMessages);
        }
        let mut rows = vec![0; numbers.len()];
        numbers.values().zip(0..).for_each(|(&number, row)| rows[number as usize] = row);
        Ok(Peers {
            events: trace.regions().iter().filter_map(|region| Some((region.id, region.event?))).collect(),
            pairs: numbers.into_keys().collect(),
            sent: PeerEnds::new(sent, &rows, |row, end| (row, end)),
            received: PeerEnds::new(received, &rows, |row, sent| (sent, row)),
            sums: HashMap::new(),
            gaps,
        })
    }

    /// The row of a call that sends, by its first message.
    pub(super) fn key(&self, call: Option<PeerCall>) -> RowId {
        call.and_then(|call| self.sent.of(call).first()).map_or(HIDDEN, |&(_, row, _)| row)
    }

    /// Adds a call that counts.
    pub(super) fn visited(&mut self, call: &Call) {
        let key = (call.location, call.id);
        let event = self.events.get(&call.region);
        // How long it was in the call before the other side came.
        let before = |other: Timestamp| call.end().map_or(0, |end| other.min(end).since(call.start));
        for &(_, row, (received, bytes)) in self.sent.of(key) {
            let sums = self.sums.entry(row).or_default();
            sums.messages += 1;
            match bytes {
                Some(bytes) => sums.bytes = sums.bytes.saturating_add(bytes),
                None => sums.sizeless += 1,
            }
            if event == Some(&FunctionEvent::Send) && call.end() >= Some(received) {
                sums.late_receivers = sums.late_receivers.saturating_add(before(received));
            }
        }
        use FunctionEvent::{Probe, Recv, SendRecv, Wait};
        let waits = matches!(event, Some(Probe | Recv | SendRecv | Wait));
        let mut waited = 0;
        for &(_, row, sent) in self.received.of(key).iter().filter(|_| waits) {
            let until = before(sent);
            let sums = self.sums.entry(row).or_default();
            sums.late_senders = sums.late_senders.saturating_add(until - waited);
            waited = until;
        }
    }

    /// Says which messages are missing, and of how many the size is.
    pub(super) fn unknown(&self) -> Option<Note> {
        let sizeless = self.sums.values().map(|sums| sums.sizeless).sum();
        let said: Vec<String> = [
            (self.gaps.unknown_sends + self.gaps.unknown_receives, "call", "of which the peer is not known"),
            (self.gaps.unknown_communicators, "call", "on communicators whose members are not known"),
            (self.gaps.unseen_ends + self.gaps.unseen_begins, "request", "of which the begin or the end was not seen"),
            (
                self.gaps.unordered,
                "message",
                "that threads sent or received at the same time, so that it is not known which is which",
            ),
            (self.gaps.unmatched_sends, "message", "whose receiver is not on record"),
            (self.gaps.unmatched_receives, "message", "whose sender is not on record"),
            (sizeless, "message", "of unknown size, so that these rows have no bytes"),
        ]
        .into_iter()
        .filter(|(count, ..)| *count > 0)
        .map(|(count, what, which)| format!("{} {which}", counted(count, what)))
        .collect();
        (!said.is_empty()).then(|| Note::warning(format!("messages: {}", said.join("; "))).kept())
    }

    /// Adds what is known of the messages to a table of these rows.
    pub(super) fn add_to(&self, table: &mut Table) {
        table.insert(&COLUMNS, |mark| {
            let sums = self.sums.get(&mark).copied().unwrap_or_default();
            let is_known = sums.messages > 0 && sums.sizeless == 0;
            let mean = is_known.then(|| Datum::Ratio(sums.bytes as f64 / sums.messages as f64));
            let bytes = if is_known { Datum::Count(sums.bytes) } else { Datum::Absent };
            let late = [sums.late_senders, sums.late_receivers].map(Datum::Time);
            [Datum::Count(sums.messages), bytes, mean.unwrap_or(Datum::Absent)].into_iter().chain(late).collect()
        });
        ["calls", "inclusive_ns"].iter().for_each(|key| table.show(key, Shown::Never));
    }

    /// What a row is, its name last.
    pub(super) const fn columns() -> &'static [Column] {
        const PAIR: [Column; 2] = [Column::name("source", "source"), Column::name("target", "target")];
        &PAIR
    }

    /// The values of [`columns`](Peers::columns).
    pub(super) fn labels(&self, key: RowId) -> Vec<Datum> {
        let pair = self.pairs.get(key as usize);
        [pair.map(|pair| pair.0), pair.map(|pair| pair.1)]
            .map(|rank| rank.map_or(Datum::Absent, |rank| Datum::Id(rank.into())))
            .into()
    }
}

pub(super) const COLUMNS: [Column; 5] = [
    Column::new("messages", "messages").seat(0),
    Column::new("bytes", "bytes").seat(0),
    Column::new("mean_bytes", "mean bytes").seat(0).rank(1),
    Column::new("late_sender_ns", "late sender").seat(1).rank(1).unit(SUM).shown(Shown::IfNotZero),
    Column::new("late_receiver_ns", "late receiver").seat(1).rank(2).unit(SUM).shown(Shown::IfNotZero),
];
