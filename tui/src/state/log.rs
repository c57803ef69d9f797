//! What happened beside the calls: events, refusals, losses.

use std::collections::{BTreeMap, VecDeque};

use rtrace_model::{Event, EventKind, LossReason, Summary};

/// Events that are kept, the newest.
const MOST_EVENTS: usize = 10_000;

/// Refusals that are kept, the first.
const MOST_REFUSALS: usize = 100_000;

/// A function that was left out.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// Path of its library.
    pub library: String,
    /// Its preferred name.
    pub function: String,
    /// Why.
    pub reason: String,
}

/// The log of a recording.
#[derive(Clone, Debug, Default)]
pub struct Log {
    /// Refusals are none of these: there may be thousands.
    pub events: VecDeque<Event>,
    /// Functions left out.
    pub refusals: Vec<Refusal>,
    /// Functions left out, also those that are not kept.
    pub refused: u64,
    losses: BTreeMap<LossReason, u64>,
}

impl Log {
    /// Takes in an event.
    pub fn add(&mut self, event: &Event) {
        if let EventKind::Refused { library, region, reason } = &event.kind {
            self.refused += 1;
            if self.refusals.len() < MOST_REFUSALS {
                let (library, function, reason) = (library.clone(), region.clone(), reason.clone());
                self.refusals.push(Refusal { library, function, reason });
            }
            return;
        }
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
