//! Who called whom: the rows of `--by caller`, without their distributions.

use foldhash::HashMap;
use rtrace_exporters::TraceSet;
use rtrace_model::Totals;
use rtrace_profile::{Caller, Visited, Visitor};
use serde_json::{Value as Json, json};

use super::names::PageNames;
use super::rows;
use crate::chains::{ChainDepth, Chains};
use crate::key::RowId;
use crate::table::Datum;

/// Calls of a function, by who called it.
pub(super) struct Edges<'a> {
    chains: Chains<'a>,
    sums: HashMap<RowId, Totals>,
}

impl Visitor for Edges<'_> {
    type Mark = RowId;

    fn visit(&mut self, calls: Visited<'_>, caller: Caller<'_, RowId>) -> RowId {
        let key = self.chains.key(calls.region(), (calls.call_site(), None), &caller);
        if calls.are_counted() {
            let added = calls.totals();
            let inclusive = if caller.is_within(key) { 0 } else { added.inclusive };
            self.sums.entry(key).or_default().add(Totals { inclusive, ..added });
        }
        key
    }
}

impl<'a> Edges<'a> {
    pub(super) fn new(depth: ChainDepth, trace: &'a TraceSet) -> Edges<'a> {
        Edges { chains: Chains::new(depth, trace), sums: HashMap::default() }
    }

    /// Caller, or -1 where none is known, function, calls, timed calls, inclusive and exclusive time of the `most` rows
    /// with most time.
    pub(super) fn told(&self, most: usize, names: &mut PageNames<'_>) -> Json {
        let mut keys: Vec<RowId> = self.sums.keys().copied().collect();
        keys.sort_by_cached_key(|key| {
            let sums = &self.sums[key];
            let labels: Vec<_> = self.chains.labels(*key).iter().map(Datum::sortable).collect();
            (std::cmp::Reverse((sums.inclusive, sums.calls)), labels)
        });
        let mut told = Vec::new();
        for key in keys.iter().take(most) {
            let sums = &self.sums[key];
            let [region, _, function, from] = &self.chains.labels(*key)[..] else { continue };
            let Datum::Name(function) = function else { continue };
            let to = names.place(rows::region_of(region), function);
            let from = match (self.chains.caller(*key), from) {
                (Some(region), _) => names.of(region) as i64,
                (None, Datum::Name(name)) => names.place(None, name) as i64,
                (None, _) => -1,
            };
            let timed = sums.timed();
            let [inclusive, exclusive] = [sums.inclusive, sums.exclusive].map(|time| (timed > 0).then_some(time));
            told.push(json!([from, to, sums.calls, timed, inclusive, exclusive]));
        }
        json!({ "rows": told, "left_out": keys.len().saturating_sub(most) })
    }
}
