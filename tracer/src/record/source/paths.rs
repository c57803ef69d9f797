//! The call paths that the kernel side folds calls into, as the sinks see them.
//!
//! They are read once a second and at the end. Of a location that has ended nothing changes any
//! more: its paths are read once again, and their entries in the kernel's table are given back.

use std::collections::{HashMap, HashSet};

use rtrace_bpf::wire::{EndingCode, PathRecord};
use rtrace_bpf::{Error, Programs};
use rtrace_model::{Call, Count, LocationId, PathId, PathProfile, Reading, RegionId, Summary};

use super::add_calls;

/// The place of a path: its location and its id there.
type Place = (u32, u32);

/// What is known of the paths.
#[derive(Debug, Default)]
pub struct Paths {
    /// Calls by ending, as last told to the sinks, of the paths in the kernel's table.
    told: HashMap<Place, Endings>,
    /// Of all paths, those given back included.
    total: Endings,
    /// Calls of all paths by region.
    by_region: Vec<u64>,
    ended: HashSet<u32>,
    /// Calls that still ran at the end, and those that may have ended unseen.
    open: HashMap<Place, Open>,
    /// Metrics of calls.
    metrics: usize,
}

/// Calls that still run at the end, or may have ended unseen.
#[derive(Clone, Debug, Default)]
struct Open {
    calls: u64,
    unseen: u64,
    inclusive: u64,
    exclusive: u64,
    counts: Vec<Count>,
}

/// Calls by ending.
type Endings = [u64; 4];

impl Paths {
    /// A location has ended: its paths are complete.
    pub fn location_ended(&mut self, location: u32) {
        self.ended.insert(location);
    }

    /// None yet, of calls with so many metrics.
    pub fn new(metrics: usize) -> Paths {
        Paths { metrics, ..Paths::default() }
    }

    /// Adds a call that still runs at the end to its path.
    pub fn add_open(&mut self, path: u32, call: &Call, readings: &[Reading]) {
        let open = self.open.entry((call.location.0, path)).or_default();
        let (Some(duration), Some(exclusive)) = (call.duration, call.exclusive()) else {
            open.unseen += 1;
            return;
        };
        open.calls += 1;
        open.inclusive += duration;
        open.exclusive += exclusive;
        Count::add_all(&mut open.counts, readings.iter().map(|&reading| Count::from(reading)));
    }

    /// The paths that are new or have more calls than when last read.
    ///
    /// # Errors
    /// A map cannot be read.
    pub fn read(&mut self, programs: &Programs) -> Result<Vec<PathProfile>, Error> {
        let mut changed = Vec::new();
        let mut given_back = Vec::new();
        for (id, mut record, counts) in programs.paths()? {
            let place = (record.location, id);
            let folded = counts.sum.iter().take(self.metrics);
            let mut counts: Vec<Count> =
                folded.map(|sum| Count { inclusive: sum.inclusive, exclusive: sum.exclusive }).collect();
            if let Some(open) = self.open.get(&place) {
                record.endings[EndingCode::RT_OPEN.0 as usize] += open.calls;
                record.endings[EndingCode::RT_UNSEEN.0 as usize] += open.unseen;
                record.inclusive += open.inclusive;
                record.exclusive += open.exclusive;
                record.open += open.inclusive;
                Count::add_all(&mut counts, open.counts.iter().copied());
            }
            let before = self.told.insert(place, record.endings);
            if before != Some(record.endings) {
                changed.push(profile_of(id, &record, counts));
            }
            let before = before.unwrap_or_default();
            let more = record.endings.iter().zip(before);
            self.total.iter_mut().zip(more).for_each(|(total, (now, before))| *total += now - before);
            let calls = record.endings.iter().sum::<u64>() - before.iter().sum::<u64>();
            add_calls(&mut self.by_region, RegionId(record.region), calls);
            if self.ended.contains(&record.location) {
                given_back.push((id, record));
            }
        }
        for (id, record) in given_back {
            programs.forget_path(id, &record)?;
            self.told.remove(&(record.location, id));
        }
        self.ended.clear();
        Ok(changed)
    }

    /// Calls by region, of all paths as last read.
    pub fn by_region(&self) -> &[u64] {
        &self.by_region
    }

    /// Counts the calls of all paths.
    pub fn count(&self, summary: &mut Summary) {
        let [returned, unwound, open, unseen] = self.total;
        summary.calls = returned + unwound + open + unseen;
        (summary.unwound, summary.open, summary.unseen) = (unwound, open, unseen);
    }
}

fn profile_of(id: u32, record: &PathRecord, counts: Vec<Count>) -> PathProfile {
    let [returned, unwound, open, unseen] = record.endings;
    let timed = returned + unwound;
    PathProfile {
        path: PathId(id),
        parent: (record.parent != 0).then_some(PathId(record.parent)),
        region: RegionId(record.region),
        location: LocationId(record.location),
        calls: returned + unwound + open + unseen,
        timed,
        unwound,
        open,
        unseen,
        inclusive: record.inclusive,
        exclusive: record.exclusive,
        open_time: record.open,
        min: (timed > 0).then_some(record.min),
        max: (timed > 0).then_some(record.max),
        histogram: record.histogram,
        counts,
    }
}

#[cfg(test)]
mod tests {
    use rtrace_bpf::wire::Limit;
    use rtrace_model::HISTOGRAM_BUCKETS;

    #[test]
    fn the_kernel_side_has_the_buckets_of_the_model() {
        assert_eq!(Limit::RT_BUCKETS.0 as usize, HISTOGRAM_BUCKETS);
    }
}
