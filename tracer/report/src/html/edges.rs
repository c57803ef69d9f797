//! Who called whom, and from where: the rows of `--by caller` and `--by callsite`, without their distributions.

use foldhash::HashMap;
use rtrace_exporters::TraceSet;
use rtrace_model::{Call, CallSiteId, ContextId, FoldedPath, PathProfile, RegionId};
use serde_json::{Value as Json, json};

use super::names::Names;
use super::rows;
use crate::chains::{Chains, Depth};
use crate::grouping::Key;
use crate::table::Value;
use crate::walk::{Caller, Visitor};

/// Calls of a function, by who or what place called it.
pub(super) struct Edges<'a> {
    chains: Chains<'a>,
    sums: HashMap<Key, Sums>,
}

/// Times in nanoseconds.
#[derive(Clone, Copy, Default)]
struct Sums {
    calls: u64,
    /// Of these, calls whose time is known.
    timed: u64,
    inclusive: u64,
    exclusive: u64,
}

/// The site of a call and its context.
type Origin = (Option<CallSiteId>, Option<ContextId>);

impl Visitor for Edges<'_> {
    type Mark = Key;

    fn visit(&mut self, call: &Call, caller: Caller<'_, Key>) -> Key {
        let inclusive = call.duration.unwrap_or(0);
        let exclusive = call.exclusive().unwrap_or(0);
        let sums = Sums { calls: 1, timed: u64::from(call.is_timed()), inclusive, exclusive };
        self.add(call.region, (call.call_site, call.context), &caller, sums)
    }

    fn visit_path(&mut self, path: &FoldedPath, caller: Caller<'_, Key>) -> Key {
        let PathProfile { calls, unseen, inclusive, exclusive, .. } = path.profile;
        let sums = Sums { calls, timed: calls.saturating_sub(unseen), inclusive, exclusive };
        self.add(path.region, (path.call_site(), path.context()), &caller, sums)
    }
}

impl<'a> Edges<'a> {
    pub(super) fn new(depth: Depth, trace: &'a TraceSet) -> Edges<'a> {
        Edges { chains: Chains::new(depth, trace), sums: HashMap::default() }
    }

    fn add(&mut self, region: RegionId, from: Origin, caller: &Caller<'_, Key>, added: Sums) -> Key {
        let key = self.chains.key(region, from, caller);
        let sums = self.sums.entry(key).or_default();
        sums.calls += added.calls;
        sums.timed += added.timed;
        if !caller.is_within(key) {
            sums.inclusive = sums.inclusive.saturating_add(added.inclusive);
        }
        sums.exclusive = sums.exclusive.saturating_add(added.exclusive);
        key
    }

    /// Caller, or -1 where none is known, function, calls, timed calls, inclusive and exclusive time of the `most` rows
    /// with most time.
    pub(super) fn told(&self, most: usize, names: &mut Names<'_>) -> Json {
        let mut keys: Vec<Key> = self.sums.keys().copied().collect();
        keys.sort_by_cached_key(|key| {
            let sums = &self.sums[key];
            let labels: Vec<_> = self.chains.labels(*key).iter().map(Value::sortable).collect();
            (std::cmp::Reverse((sums.inclusive, sums.calls)), labels)
        });
        let mut told = Vec::new();
        for key in keys.iter().take(most) {
            let sums = &self.sums[key];
            let [region, _, function, from] = &self.chains.labels(*key)[..] else { continue };
            let Value::Name(function) = function else { continue };
            let to = names.place(rows::region_of(region), function);
            let from = match (self.chains.caller(*key), from) {
                (Some(region), _) => names.of(region) as i64,
                (None, Value::Name(name)) => names.place(None, name) as i64,
                (None, _) => -1,
            };
            let time = |time: u64| if sums.timed == 0 { Json::Null } else { json!(time) };
            told.push(json!([from, to, sums.calls, sums.timed, time(sums.inclusive), time(sums.exclusive)]));
        }
        json!({ "rows": told, "left_out": keys.len().saturating_sub(most) })
    }
}
