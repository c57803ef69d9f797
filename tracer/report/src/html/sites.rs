//! From which places in the code functions were called: the rows of `--by callsite`, without their distributions.
//!
//! Sums by call path know how often each place called, and how long these calls took. They do not know which calls of a
//! function that calls itself were within another one from the same place. Where that decides on the inclusive time, it
//! is not known.

use std::collections::HashMap;

use rtrace_exporters::{SiteRow, TraceSet};
use rtrace_model::{Call, CallSiteId, FoldedPath, LocationId, PathId, PathProfile, RegionId};
use serde_json::Value as Json;

use super::edges::{EdgeSums, Edges};
use super::names::PageNames;
use crate::chains::ChainDepth;
use crate::key::RowId;
use crate::walk::{Caller, Visitor};

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

/// Whether the time of calls is part of that of calls of the same row around them.
enum Within {
    No,
    Yes,
    Some,
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

    fn add(&mut self, region: RegionId, site: Option<CallSiteId>, caller: &Caller<'_, Mark>, sums: EdgeSums) -> RowId {
        let key = self.edges.key(region, site, &Caller::None);
        let sums = match self.within(key, caller) {
            Within::No => sums,
            Within::Yes => EdgeSums { inclusive: Some(0), ..sums },
            Within::Some => EdgeSums { inclusive: None, ..sums },
        };
        self.edges.add(key, sums);
        key
    }
}

impl Visitor for SiteTable<'_> {
    type Mark = Mark;

    fn visit(&mut self, call: &Call, caller: Caller<'_, Mark>) -> Mark {
        Mark::Row(self.add(call.region, call.call_site, &caller, EdgeSums::of_call(call)))
    }

    fn enclose(&mut self, call: &Call, caller: Caller<'_, Mark>) -> Mark {
        let _ = caller;
        Mark::Row(self.edges.key(call.region, call.call_site, &Caller::None))
    }

    fn visit_path(&mut self, path: &FoldedPath, caller: Caller<'_, Mark>) -> Mark {
        let PathProfile { location, path: id, region, .. } = path.profile;
        let is_timed = path.has_time();
        let mut rest = EdgeSums::of_path(path);
        let mut keys = Vec::new();
        for row in self.known.get(&(location, id)).cloned().unwrap_or_default() {
            let timed = if is_timed { row.calls } else { 0 };
            let sums = EdgeSums { calls: row.calls, timed, inclusive: Some(row.inclusive), exclusive: row.exclusive };
            rest = rest.without(sums);
            keys.push(self.add(region, Some(row.site), &caller, sums));
        }
        if rest.calls > 0 {
            keys.push(self.add(region, path.call_site(), &caller, rest));
        }
        self.paths.push(keys);
        Mark::Path(self.paths.len() - 1)
    }
}
