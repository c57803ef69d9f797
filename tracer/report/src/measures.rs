//! What is summed up of each row: a list of measures that see the same calls.

use rtrace_exporters::TraceSet;
use rtrace_model::Timestamp;
use rtrace_profile::{Caller, Visited, Visitor};

use super::corrected::TracingSums;
use super::counting::Counting;
use super::distribution::Distribution;
use super::key::RowId;
use super::memory::Memory;
use super::time::TimeRows;

/// Rows with what else is known of their calls.
pub(super) struct Measures<'a, R> {
    pub(super) rows: R,
    tracing: Option<TracingSums<'a>>,
    pub(super) counting: Counting,
    pub(super) distribution: Option<Distribution>,
    pub(super) memory: Option<Memory>,
}

impl<'a, R: TimeRows> Measures<'a, R> {
    /// Of the calls that ended later than `from`, if that is given.
    pub(super) fn new(rows: R, trace: &'a TraceSet, from: Option<Timestamp>) -> Measures<'a, R> {
        let tracing = TracingSums::new(trace, from);
        Measures { rows, tracing, counting: Counting::new(trace), distribution: None, memory: None }
    }

    /// The same without counters.
    pub(super) fn uncounted(self) -> Measures<'a, R> {
        Measures { counting: Counting::default(), ..self }
    }
}

impl<R: TimeRows> Visitor for Measures<'_, R> {
    type Mark = RowId;

    fn visit(&mut self, calls: Visited<'_>, caller: Caller<'_, RowId>) -> RowId {
        let row = self.rows.visit(calls, caller);
        if calls.are_counted() {
            if let Some(tracing) = &mut self.tracing {
                tracing.add(row, calls, caller);
            }
            self.counting.add(row, calls, caller);
            if let Some(distribution) = &mut self.distribution {
                distribution.add(row, calls);
            }
            if let Some(memory) = &mut self.memory {
                memory.add(row, calls);
            }
        }
        row
    }

    fn finish(&mut self) {
        if let Some(tracing) = self.tracing.take() {
            self.rows.take_off(tracing.into_rows());
        }
    }
}
