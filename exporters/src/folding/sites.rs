//! What the calls of a path add up to by the place in the code that they came from.

use rtrace_model::{Call, CallSiteId, LocationId, PathId};

use crate::overview::SiteRow;

/// Sums by call site.
#[derive(Default)]
pub(super) struct Sites {
    sums: Vec<Sums>,
    /// The place of the site that was used last, which is often the next, too.
    last: usize,
}

/// Times in nanoseconds.
struct Sums {
    site: CallSiteId,
    calls: u64,
    inclusive: u64,
    exclusive: u64,
}

impl Sites {
    /// Adds a call; returns how many sites more there are.
    pub(super) fn add(&mut self, site: CallSiteId, call: &Call) -> usize {
        let (inclusive, exclusive) = (call.duration.unwrap_or(0), call.exclusive().unwrap_or(0));
        self.add_sums(Sums { site, calls: 1, inclusive, exclusive })
    }

    /// Adds those of other calls; returns how many sites fewer there are than of both.
    pub(super) fn merge(&mut self, other: Sites) -> usize {
        let before = other.sums.len();
        before - other.sums.into_iter().map(|sums| self.add_sums(sums)).sum::<usize>()
    }

    pub(super) fn rows(&self, location: LocationId, path: PathId) -> impl Iterator<Item = SiteRow> {
        self.sums.iter().map(move |&Sums { site, calls, inclusive, exclusive }| SiteRow {
            location,
            path,
            site,
            calls,
            inclusive,
            exclusive,
        })
    }

    fn add_sums(&mut self, added: Sums) -> usize {
        if self.sums.get(self.last).is_none_or(|sums| sums.site != added.site) {
            match self.sums.binary_search_by_key(&added.site, |sums| sums.site) {
                Ok(place) => self.last = place,
                Err(place) => {
                    self.last = place;
                    self.sums.insert(place, added);
                    return 1;
                }
            }
        }
        let sums = &mut self.sums[self.last];
        sums.calls += added.calls;
        sums.inclusive = sums.inclusive.saturating_add(added.inclusive);
        sums.exclusive = sums.exclusive.saturating_add(added.exclusive);
        0
    }
}
