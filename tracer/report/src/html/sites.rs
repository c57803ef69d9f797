//! From which places in the code functions were called: the rows of `--by callsite`, without their distributions.
//!
//! Sums by call path know how often each place called, and how long these calls took. They do not know which calls of a
//! function that calls itself were within another one from the same place. Where that decides on the inclusive time, it
//! is not known.

use std::collections::HashMap;

use rtrace_exporters::{SiteRow, TraceSet};
use rtrace_model::{CallSiteId, LocationId, PathId, RegionId, Totals};
use rtrace_profile::{Caller, Visited, Visitor};
use serde_json::Value as Json;

use super::edges::{Edges, Within};
use super::names::PageNames;
use crate::chains::ChainDepth;
use crate::key::RowId;

/// Calls of a function by the place that called it.
pub(super) struct SiteTable<'a> {
    edges: Edges<'a>,
    /// What is known of the calls of paths with callers.
    known: HashMap<(LocationId, PathId), Vec<SiteRow>>,
    /// The rows of each path's calls.
    paths: Vec<Vec<RowId>>,
}

/// The rows of what is visited.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Mark {
    /// Of a call.
    Row(RowId),
    /// Of the calls of a path, by its place.
    Path(usize),
}

impl<'a> SiteTable<'a> {
    pub(super) fn new(trace: &'a TraceSet) -> SiteTable<'a> {
        SiteTable { edges: Edges::new(ChainDepth::Site, trace), known: HashMap::new(), paths: Vec::new() }
    }

    /// Learns where calls of paths came from.
    pub(super) fn know(&mut self, rows: &[SiteRow]) {
        for row in rows {
            self.known.entry((row.location, row.path)).or_default().push(*row);
        }
    }

    pub(super) fn told(&self, most: usize, names: &mut PageNames<'_>) -> Json {
        self.edges.told(most, names)
    }

    fn within(&self, key: RowId, caller: &Caller<'_, Mark>) -> Within {
        let mut within = Within::No;
        for open in caller.timed() {
            match open.mark {
                Mark::Row(row) if row == key => return Within::Yes,
                Mark::Path(place) if self.paths[place] == [key] => return Within::Yes,
                Mark::Path(place) if self.paths[place].contains(&key) => within = Within::Some,
                Mark::Row(_) | Mark::Path(_) => {}
            }
        }
        within
    }

    fn add(&mut self, region: RegionId, site: Option<CallSiteId>, caller: &Caller<'_, Mark>, sums: Totals) -> RowId {
        let key = self.edges.key(region, site, &Caller::None);
        let within = self.within(key, caller);
        self.edges.add(key, sums, within);
        key
    }
}

impl Visitor for SiteTable<'_> {
    type Mark = Mark;

    fn visit(&mut self, calls: Visited<'_>, caller: Caller<'_, Mark>) -> Mark {
        let (region, site) = (calls.region(), calls.call_site());
        let Visited::Path(path) = calls else {
            return Mark::Row(match calls.are_counted() {
                true => self.add(region, site, &caller, calls.totals()),
                false => self.edges.key(region, site, &Caller::None),
            });
        };
        let is_timed = path.has_time();
        let mut rest = calls.totals();
        let mut keys = Vec::new();
        for row in self.known.get(&(path.location, path.path)).cloned().unwrap_or_default() {
            let SiteRow { calls, inclusive, exclusive, .. } = row;
            let sums = Totals { calls, untimed: if is_timed { 0 } else { calls }, inclusive, exclusive };
            rest = rest.without(sums);
            keys.push(self.add(region, Some(row.site), &caller, sums));
        }
        if rest.calls > 0 {
            keys.push(self.add(region, site, &caller, rest));
        }
        self.paths.push(keys);
        Mark::Path(self.paths.len() - 1)
    }
}
