//! Who called whom: the rows of `--by caller`, without their distributions.

use foldhash::HashMap;
use rtrace_exporters::TraceSet;
use rtrace_model::{Call, CallSiteId, FoldedPath, PathProfile, RegionId};
use serde_json::{Value as Json, json};

use super::names::PageNames;
use super::rows;
use crate::chains::{ChainDepth, Chains};
use crate::key::RowId;
use crate::table::Datum;
use crate::walk::{Caller, Visitor};

/// Calls of a function, by who called it.
pub(super) struct Edges<'a> {
    chains: Chains<'a>,
    sums: HashMap<RowId, EdgeSums>,
}

/// Times in nanoseconds.
#[derive(Clone, Copy)]
pub(super) struct EdgeSums {
    pub(super) calls: u64,
    /// Of these, calls whose time is known.
    pub(super) timed: u64,
    /// `None` where it is not known which calls were within others of the row.
    pub(super) inclusive: Option<u64>,
    pub(super) exclusive: u64,
}

impl EdgeSums {
    pub(super) fn of_call(call: &Call) -> EdgeSums {
        let (inclusive, exclusive) = (call.duration.unwrap_or(0), call.exclusive().unwrap_or(0));
        EdgeSums { calls: 1, timed: u64::from(call.is_timed()), inclusive: Some(inclusive), exclusive }
    }

    pub(super) fn of_path(path: &FoldedPath) -> EdgeSums {
        let PathProfile { calls, unseen, inclusive, exclusive, .. } = path.profile;
        EdgeSums { calls, timed: calls.saturating_sub(unseen), inclusive: Some(inclusive), exclusive }
    }

    /// What is left of them beside those.
    pub(super) fn without(self, those: EdgeSums) -> EdgeSums {
        EdgeSums {
            calls: self.calls.saturating_sub(those.calls),
            timed: self.timed.saturating_sub(those.timed),
            inclusive: self.inclusive.zip(those.inclusive).map(|(all, those)| all.saturating_sub(those)),
            exclusive: self.exclusive.saturating_sub(those.exclusive),
        }
    }
}

impl Visitor for Edges<'_> {
    type Mark = RowId;

    fn visit(&mut self, call: &Call, caller: Caller<'_, RowId>) -> RowId {
        self.add_within(call.region, call.call_site, &caller, EdgeSums::of_call(call))
    }

    fn enclose(&mut self, call: &Call, caller: Caller<'_, RowId>) -> RowId {
        self.key(call.region, call.call_site, &caller)
    }

    fn visit_path(&mut self, path: &FoldedPath, caller: Caller<'_, RowId>) -> RowId {
        self.add_within(path.region, path.call_site(), &caller, EdgeSums::of_path(path))
    }
}

impl<'a> Edges<'a> {
    pub(super) fn new(depth: ChainDepth, trace: &'a TraceSet) -> Edges<'a> {
        Edges { chains: Chains::new(depth, trace), sums: HashMap::default() }
    }

    /// The row of calls.
    pub(super) fn key(&mut self, region: RegionId, site: Option<CallSiteId>, caller: &Caller<'_, RowId>) -> RowId {
        self.chains.key(region, (site, None), caller)
    }

    /// Adds to a row.
    pub(super) fn add(&mut self, key: RowId, added: EdgeSums) {
        let sums = self.sums.entry(key).or_insert(EdgeSums { calls: 0, timed: 0, inclusive: Some(0), exclusive: 0 });
        sums.calls += added.calls;
        sums.timed += added.timed;
        sums.inclusive = sums.inclusive.zip(added.inclusive).map(|(sum, of)| sum.saturating_add(of));
        sums.exclusive = sums.exclusive.saturating_add(added.exclusive);
    }

    fn add_within(
        &mut self,
        region: RegionId,
        site: Option<CallSiteId>,
        caller: &Caller<'_, RowId>,
        sums: EdgeSums,
    ) -> RowId {
        let key = self.key(region, site, caller);
        self.add(key, if caller.is_within(key) { EdgeSums { inclusive: Some(0), ..sums } } else { sums });
        key
    }

    /// Caller, or -1 where none is known, function, calls, timed calls, inclusive and exclusive time of the `most` rows
    /// with most time.
    pub(super) fn told(&self, most: usize, names: &mut PageNames<'_>) -> Json {
        let mut keys: Vec<RowId> = self.sums.keys().copied().collect();
        keys.sort_by_cached_key(|key| {
            let sums = &self.sums[key];
            let labels: Vec<_> = self.chains.labels(*key).iter().map(Datum::sortable).collect();
            (std::cmp::Reverse((sums.inclusive.unwrap_or(sums.exclusive), sums.calls)), labels)
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
            let [inclusive, exclusive] =
                [sums.inclusive, Some(sums.exclusive)].map(|time| time.filter(|_| sums.timed > 0));
            told.push(json!([from, to, sums.calls, sums.timed, inclusive, exclusive]));
        }
        json!({ "rows": told, "left_out": keys.len().saturating_sub(most) })
    }
}
