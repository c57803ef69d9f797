//! Who called whom: the rows of `--by caller`, without their distributions.

use std::collections::HashSet;

use foldhash::HashMap;
use rtrace_exporters::TraceSet;
use rtrace_model::{CallSiteId, RegionId, Totals};
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
    /// Rows of whose calls it is not known which were within others of the row.
    unclear: HashSet<RowId>,
}

/// Whether the time of calls is part of that of calls of the same row around them.
pub(super) enum Within {
    No,
    Yes,
    /// Of some of them, and it is not known of which.
    Some,
}

impl Visitor for Edges<'_> {
    type Mark = RowId;

    fn visit(&mut self, calls: Visited<'_>, caller: Caller<'_, RowId>) -> RowId {
        let key = self.key(calls.region(), calls.call_site(), &caller);
        if calls.are_counted() {
            self.add(key, calls.totals(), if caller.is_within(key) { Within::Yes } else { Within::No });
        }
        key
    }
}

impl<'a> Edges<'a> {
    pub(super) fn new(depth: ChainDepth, trace: &'a TraceSet) -> Edges<'a> {
        Edges { chains: Chains::new(depth, trace), sums: HashMap::default(), unclear: HashSet::new() }
    }

    /// The row of calls.
    pub(super) fn key(&mut self, region: RegionId, site: Option<CallSiteId>, caller: &Caller<'_, RowId>) -> RowId {
        self.chains.key(region, (site, None), caller)
    }

    /// Adds to a row.
    pub(super) fn add(&mut self, key: RowId, added: Totals, within: Within) {
        let inclusive = if matches!(within, Within::No) { added.inclusive } else { 0 };
        self.sums.entry(key).or_default().add(Totals { inclusive, ..added });
        if matches!(within, Within::Some) {
            self.unclear.insert(key);
        }
    }

    /// Caller, or -1 where none is known, function, calls, timed calls, inclusive and exclusive time of the `most` rows
    /// with most time.
    pub(super) fn told(&self, most: usize, names: &mut PageNames<'_>) -> Json {
        let mut keys: Vec<RowId> = self.sums.keys().copied().collect();
        keys.sort_by_cached_key(|key| {
            let (sums, inclusive) = self.sums(*key);
            let labels: Vec<_> = self.chains.labels(*key).iter().map(Datum::sortable).collect();
            (std::cmp::Reverse((inclusive.unwrap_or(sums.exclusive), sums.calls)), labels)
        });
        let mut told = Vec::new();
        for key in keys.iter().take(most) {
            let (sums, inclusive) = self.sums(*key);
            let [region, _, function, from] = &self.chains.labels(*key)[..] else { continue };
            let Datum::Name(function) = function else { continue };
            let to = names.place(rows::region_of(region), function);
            let from = match (self.chains.caller(*key), from) {
                (Some(region), _) => names.of(region) as i64,
                (None, Datum::Name(name)) => names.place(None, name) as i64,
                (None, _) => -1,
            };
            let timed = sums.timed();
            let [inclusive, exclusive] = [inclusive, Some(sums.exclusive)].map(|time| time.filter(|_| timed > 0));
            told.push(json!([from, to, sums.calls, timed, inclusive, exclusive]));
        }
        json!({ "rows": told, "left_out": keys.len().saturating_sub(most) })
    }

    /// The sums of a row, and its inclusive time where that is known.
    fn sums(&self, key: RowId) -> (Totals, Option<u64>) {
        let sums = self.sums[&key];
        (sums, Some(sums.inclusive).filter(|_| !self.unclear.contains(&key)))
    }
}
