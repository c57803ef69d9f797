//! What a page shows of calls beside the tables that `rtrace report` has: when, how long, and on which thread.

use std::collections::HashSet;

use foldhash::HashMap;
use rtrace_exporters::TraceSet;
use rtrace_model::{Call, LocationId, Timestamp};
use rtrace_profile::ClockSpan;

use crate::Error;
use crate::overview::Overview;
use crate::reading::each_batch;

/// Gathers it from the calls of a trace.
pub(super) struct Picture {
    overview: Overview,
    /// All calls; absent where they are too many to be on a page.
    all: Option<Vec<Call>>,
}

impl Picture {
    /// That of the calls which ended within that time. Read from the last one, callers come before their callees.
    ///
    /// # Errors
    /// The calls cannot be read.
    pub(super) fn read(trace: &TraceSet, span: ClockSpan) -> Result<Picture, Error> {
        let begin = span.from.unwrap_or(trace.header().begin.monotonic);
        let mut picture = Picture { overview: Overview::new(begin), all: Some(Vec::new()) };
        // Of aggregated recordings, the callers of a call may have no record.
        let aggregated: HashSet<LocationId> = trace.profile().iter().map(|path| path.location).collect();
        // Calls without a time that counts, in no call with one: when they began.
        let mut outside: HashMap<(LocationId, u64), Timestamp> = HashMap::default();
        let (from, to) = (span.from.unwrap_or_default(), span.to.unwrap_or(Timestamp(u64::MAX)));
        each_batch(trace.calls_near(from, to).rev(), |batch| {
            for call in batch.iter() {
                let is_outermost = match aggregated.contains(&call.location) {
                    true => call.depth == 0,
                    false => call.parent == 0 || outside.contains_key(&(call.location, call.parent)),
                };
                let counts = span.counts(call);
                if is_outermost && !(counts && call.is_timed()) {
                    outside.insert((call.location, call.id), call.start);
                }
                if counts {
                    picture.add(call, is_outermost);
                }
            }
            // What began later encloses nothing that is still to come.
            let earliest = batch.iter().map(Call::known_until).min().unwrap_or_default();
            outside.retain(|_, start| *start <= earliest);
            Ok(())
        })?;
        Ok(picture)
    }

    /// Adds a call; `is_outermost` unless its time is part of another one's.
    fn add(&mut self, call: &Call, is_outermost: bool) {
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
