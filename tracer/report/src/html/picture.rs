//! What a page shows of calls beside the tables that `rtrace report` has: when, how long, and on which thread.

use rtrace_exporters::Overview;
use rtrace_model::{Call, Timestamp};
use rtrace_profile::{Caller, Visited, Visitor};

/// Gathers it from the calls of a trace whose recorder has not.
pub(super) struct Picture {
    overview: Overview,
    /// All calls; absent where they are too many to be on a page.
    all: Option<Vec<Call>>,
}

impl Picture {
    /// From that time on.
    pub(super) fn new(begin: Timestamp) -> Picture {
        Picture { overview: Overview::new(begin), all: Some(Vec::new()) }
    }

    /// That of an overview, which is of many calls.
    pub(super) fn of(overview: Overview) -> Picture {
        Picture { overview, all: None }
    }

    /// Adds a call; `is_outermost` unless its time is part of another one's.
    pub(super) fn add(&mut self, call: &Call, is_outermost: bool) {
        self.overview.add(call, is_outermost);
        self.all = self.all.take().filter(|all| (all.len() as u64) < Overview::FEW);
        if let Some(all) = &mut self.all {
            all.push(*call);
        }
    }

    pub(super) fn overview(&self) -> &Overview {
        &self.overview
    }

    /// The calls to show by thread and start, one part in `divisor` of what could be; and whether these are all.
    pub(super) fn chosen(&self, divisor: usize) -> (Vec<Call>, bool) {
        let is_room = |all: &&Vec<Call>| all.len() as u64 <= Overview::FEW / divisor as u64;
        if let Some(all) = self.all.as_ref().filter(is_room) {
            let mut all = all.clone();
            all.sort_by_key(|call| (call.location, call.start, call.id));
            return (all, true);
        }
        (self.overview.chosen(divisor), false)
    }
}

impl Visitor for Picture {
    type Mark = ();

    fn visit(&mut self, calls: Visited<'_>, caller: Caller<'_, ()>) {
        if let Visited::One(measured) = calls {
            self.add(&measured.call, caller.timed().next().is_none());
        }
    }
}
