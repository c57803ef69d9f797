//! How long calls waited for other ranks before what they do could happen.
//!
//! Who receives a message waits until the call begins that sends it, and who sends one, in a call that returns after the
//! receiver has come, until that asks for it. In a collective operation it depends on what that does: all wait for the last
//! of them, or for the root, or the root for the last of the others, or each for those before it. The rest of the call is
//! the transfer. A call is left out unless the other ends of all that it received are known.

use std::collections::{BTreeMap, BTreeSet};

use foldhash::HashMap;
use rtrace_model::{FunctionEvent, LocationId, Timestamp};

use super::CallTime;
use super::communicators::{Communicator, CommunicatorId, WindowId};
use super::event::{Collective, MessageEvent, MessageKind};
use super::matching::{MatchedMessage, MessageEnd};

/// A call that returned when something had come from other ranks, or had gone to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AwaitedCall {
    /// The call.
    pub at: CallTime,
    /// When the last of those began what it waited for; before the call began if it did not wait.
    pub until: Timestamp,
}

/// A rank's part in a collective operation: when it began, and the call in which it ended.
#[derive(Clone, Copy, Debug)]
struct Part {
    collective: Collective,
    start: Timestamp,
    done: CallTime,
}

/// A call, and how much of what it waited for has not been found yet.
#[derive(Clone, Copy, Debug)]
struct OpenWait {
    call: AwaitedCall,
    unknown: u32,
}

/// The calls of a job that wait for other ranks.
#[derive(Debug, Default)]
pub(super) struct AwaitedCalls {
    calls: HashMap<(LocationId, u64), OpenWait>,
    parts: BTreeMap<(CommunicatorId, Option<WindowId>), BTreeMap<u32, Vec<Part>>>,
    /// Ranks of which operations may be missing.
    unsure: BTreeSet<u32>,
}

impl AwaitedCalls {
    /// Adds the records of one trace, in which operations may be missing.
    pub(super) fn add(
        &mut self,
        events: &[MessageEvent],
        is_unsure: bool,
        rank_of: impl Fn(LocationId) -> Option<u32>,
    ) {
        let mut begun: HashMap<u64, Timestamp> = HashMap::default();
        for event in events {
            let Some(rank) = rank_of(event.at.location) else { continue };
            if is_unsure {
                self.unsure.insert(rank);
            }
            let (collective, start) = match event.kind {
                MessageKind::Send(_) | MessageKind::Recv(_) | MessageKind::Irecv { .. } | MessageKind::Probed(_) => {
                    self.expect(event.at);
                    continue;
                }
                MessageKind::CollectiveRequest { request, .. } => {
                    begun.insert(request, event.at.start);
                    continue;
                }
                // Those whose return was not seen are not here, so that others are not the same one.
                MessageKind::Collective(Collective { event: FunctionEvent::WindowCreate, .. }) => continue,
                MessageKind::Collective(collective) => (collective, event.at.start),
                MessageKind::CollectiveComplete { collective, request } => match begun.remove(&request) {
                    Some(start) => (collective, start),
                    None => continue,
                },
                _ => continue,
            };
            self.expect(event.at);
            let of_same = self.parts.entry((collective.communicator, collective.window)).or_default();
            of_same.entry(rank).or_default().push(Part { collective, start, done: event.at });
        }
        // Operations whose end is not known are missing in their communicators, whichever these are.
        if let Some(rank) = events.iter().find_map(|event| rank_of(event.at.location)).filter(|_| !begun.is_empty()) {
            self.unsure.insert(rank);
        }
    }

    fn expect(&mut self, at: CallTime) {
        let call = AwaitedCall { at, until: at.start };
        self.calls.entry((at.location, at.call)).or_insert(OpenWait { call, unknown: 0 }).unknown += 1;
    }

    /// What a call waited for began then.
    fn found(&mut self, at: CallTime, began: Timestamp) {
        if let Some(wait) = self.calls.get_mut(&(at.location, at.call)) {
            wait.call.until = wait.call.until.max(began);
            wait.unknown = wait.unknown.saturating_sub(1);
        }
    }

    /// Both ends of a message are known.
    pub(super) fn matched(&mut self, message: &MatchedMessage) {
        let MatchedMessage { sent, received, .. } = message;
        received.done.into_iter().chain(received.probed).for_each(|at| self.found(at, sent.start));
        // What is sent by a request may have gone long before the call that ends it.
        let is_own = |end: &MessageEnd| end.done.filter(|done| (done.location, done.call) == (end.location, end.call));
        if let Some(at) = is_own(sent) {
            let waited = at.end.is_some_and(|end| end >= received.start);
            self.found(at, if waited { received.start } else { at.start });
        }
    }

    /// Visits the calls of which all is known.
    pub(super) fn finish(mut self, communicators: &[Communicator], mut visit: impl FnMut(AwaitedCall)) {
        for ((id, _), mut parts) in std::mem::take(&mut self.parts) {
            let Some(communicator) = communicators.get(id.0 as usize) else { continue };
            let ranks = &communicator.members;
            parts.values_mut().for_each(|of_rank| of_rank.sort_by_key(|part| part.start));
            let of_ranks: Option<Vec<&Vec<Part>>> = ranks.iter().map(|rank| parts.get(rank)).collect();
            // The n-th operation of each rank is the same one, if none is missing.
            let is_sure = communicator.others.is_none() && !ranks.iter().any(|rank| self.unsure.contains(rank));
            let Some(of_ranks) =
                of_ranks.filter(|of_ranks| is_sure && of_ranks.iter().all(|parts| parts.len() == of_ranks[0].len()))
            else {
                continue;
            };
            for number in 0..of_ranks.first().map_or(0, |parts| parts.len()) {
                let of_operation: Vec<Part> = of_ranks.iter().map(|parts| parts[number]).collect();
                let what = |part: &Part| (part.collective.event, part.collective.root);
                if of_operation.iter().any(|part| what(part) != what(&of_operation[0])) {
                    break;
                }
                operation(ranks, &of_operation, |at, began| self.found(at, began));
            }
        }
        self.calls.into_values().filter(|wait| wait.unknown == 0).for_each(|wait| visit(wait.call));
    }
}

/// Says of each rank's part in an operation when the last of those began that it waits for.
fn operation(ranks: &[u32], parts: &[Part], mut found: impl FnMut(CallTime, Timestamp)) {
    use FunctionEvent as E;
    let Collective { event, root, .. } = parts[0].collective;
    let root = root.and_then(|root| ranks.iter().position(|rank| *rank == root));
    let last = parts.iter().map(|part| part.start).max().unwrap_or_default();
    let mut before = Timestamp::default();
    for (place, part) in parts.iter().enumerate() {
        before = before.max(part.start);
        let began = match (event, root) {
            (E::Broadcast | E::Scatter | E::ScatterV, Some(root)) => parts[root].start,
            (E::Reduce | E::Gather | E::GatherV, Some(root)) => {
                if root == place {
                    last
                } else {
                    part.start
                }
            }
            (E::Scan | E::Exscan, _) => before,
            (E::Barrier | E::Allgather | E::AllgatherV | E::Allreduce, _) => last,
            (E::Alltoall | E::AlltoallV | E::ReduceScatter | E::ReduceScatterBlock, _) => last,
            (E::RmaFence | E::WindowFree, _) => last,
            _ => continue,
        };
        found(part.done, began);
    }
}
