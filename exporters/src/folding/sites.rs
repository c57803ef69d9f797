//! What the calls of a path add up to by the place in the code that they came from.

use rtrace_model::{Call, CallSiteId, LocationId, PathId, Totals};

use crate::overview::SiteRow;

/// Sums by call site.
#[derive(Default)]
pub(super) struct Sites {
    sums: Vec<(CallSiteId, Totals)>,
    /// The place of the site that was used last, which is often the next, too.
    last: usize,
}

impl Sites {
    /// Adds a call; returns how many sites more there are.
    pub(super) fn add(&mut self, site: CallSiteId, call: &Call) -> usize {
        self.add_sums((site, Totals::of(call)))
    }

    /// Adds those of other calls; returns how many sites fewer there are than of both.
    pub(super) fn merge(&mut self, other: Sites) -> usize {
        let before = other.sums.len();
        before - other.sums.into_iter().map(|sums| self.add_sums(sums)).sum::<usize>()
    }

    pub(super) fn rows(&self, location: LocationId, path: PathId) -> impl Iterator<Item = SiteRow> {
        self.sums.iter().map(move |&(site, Totals { calls, inclusive, exclusive, .. })| SiteRow {
            location,
            path,
            site,
            calls,
            inclusive,
            exclusive,
        })
    }

    fn add_sums(&mut self, added: (CallSiteId, Totals)) -> usize {
        if self.sums.get(self.last).is_none_or(|sums| sums.0 != added.0) {
            match self.sums.binary_search_by_key(&added.0, |sums| sums.0) {
                Ok(place) => self.last = place,
                Err(place) => {
                    self.last = place;
                    self.sums.insert(place, added);
                    return 1;
                }
            }
        }
        self.sums[self.last].1.add(added.1);
        0
    }
}
