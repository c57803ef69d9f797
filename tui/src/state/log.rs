//! What happened beside the calls: events, losses.

use std::collections::{BTreeMap, VecDeque};

use rtrace_model::{Event, EventKind, LossReason, Summary};

/// Events that are kept, the newest.
const MOST_EVENTS: usize = 10_000;

/// The log of a recording.
#[derive(Clone, Debug, Default)]
pub struct Log {
    /// In their order.
    pub events: VecDeque<Event>,
    losses: BTreeMap<LossReason, u64>,
}

impl Log {
    /// Takes in an event.
    pub fn add(&mut self, event: &Event) {
        if let EventKind::Loss(loss) = &event.kind {
            *self.losses.entry(loss.reason).or_default() += loss.count;
        }
        while self.events.len() >= MOST_EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(event.clone());
    }

    /// The summary knows all losses, also those that came too late for an event.
    pub fn conclude(&mut self, summary: &Summary) {
        self.losses = summary.lost_by_reason().into_iter().collect();
    }

    /// What is missing, by reason; reasons without losses are left out.
    pub fn losses(&self) -> impl Iterator<Item = (LossReason, u64)> {
        self.losses.iter().map(|(&reason, &count)| (reason, count)).filter(|&(_, count)| count > 0)
    }

    /// Calls and events that are missing.
    pub fn lost(&self) -> u64 {
        self.losses.iter().filter(|(reason, _)| !reason.is_value()).map(|(_, count)| count).sum()
    }
}
