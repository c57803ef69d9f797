//! The call paths that the kernel side folds calls into, as the sinks see them.
//!
//! They are read once a second and at the end. Of a location that has ended nothing changes any
//! more: its paths are read once again, and their entries in the kernel's table are given back.

use std::collections::{HashMap, HashSet};

use rtrace_bpf::wire::{EndingCode, PathRecord};
use rtrace_bpf::{Error, Programs};
use rtrace_model::{Call, Ending, LocationId, PathId, PathProfile, RegionId, Summary};

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
    by_region: HashMap<RegionId, u64>,
    ended: HashSet<u32>,
    /// Calls that still ran at the end: number, inclusive and exclusive time, and of those that may
    /// have ended unseen the number.
    open: HashMap<Place, [u64; 4]>,
}

/// Calls by ending.
type Endings = [u64; 4];

impl Paths {
    /// A location has ended: its paths are complete.
    pub fn location_ended(&mut self, location: u32) {
        self.ended.insert(location);
    }

    /// Adds a call that still runs at the end to its path.
    pub fn add_open(&mut self, path: u32, call: &Call) {
        let sums = self.open.entry((call.location.0, path)).or_default();
        let is_open = u64::from(call.ending == Ending::Open);
        for (sum, value) in sums.iter_mut().zip([is_open, call.duration, call.exclusive(), 1 - is_open]) {
            *sum += value;
        }
    }

    /// The paths that are new or have more calls than when last read.
    ///
    /// # Errors
    /// A map cannot be read.
    pub fn read(&mut self, programs: &Programs) -> Result<Vec<PathProfile>, Error> {
        let mut changed = Vec::new();
        let mut given_back = Vec::new();
        for (id, mut record) in programs.paths()? {
            let place = (record.location, id);
            if let Some([calls, inclusive, exclusive, unseen]) = self.open.get(&place) {
                record.endings[EndingCode::RT_OPEN.0 as usize] += calls;
                record.endings[EndingCode::RT_UNSEEN.0 as usize] += unseen;
                record.inclusive += inclusive;
                record.exclusive += exclusive;
                record.open += inclusive;
            }
            let before = self.told.insert(place, record.endings);
            if before != Some(record.endings) {
                changed.push(profile_of(id, &record));
            }
            let before = before.unwrap_or_default();
            let more = record.endings.iter().zip(before);
            self.total.iter_mut().zip(more).for_each(|(total, (now, before))| *total += now - before);
            *self.by_region.entry(RegionId(record.region)).or_default() +=
                record.endings.iter().sum::<u64>() - before.iter().sum::<u64>();
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
    pub fn by_region(&self) -> &HashMap<RegionId, u64> {
        &self.by_region
    }

    /// Counts the calls of all paths.
    pub fn count(&self, summary: &mut Summary) {
        let [returned, unwound, open, unseen] = self.total;
        summary.calls = returned + unwound + open + unseen;
        (summary.unwound, summary.open, summary.unseen) = (unwound, open, unseen);
    }
}

fn profile_of(id: u32, record: &PathRecord) -> PathProfile {
    let [returned, unwound, open, unseen] = record.endings;
    PathProfile {
        path: PathId(id),
        parent: (record.parent != 0).then_some(PathId(record.parent)),
        region: RegionId(record.region),
        location: LocationId(record.location),
        calls: returned + unwound + open + unseen,
        timed: returned + unwound,
        unwound,
        open,
        unseen,
        inclusive: record.inclusive,
        exclusive: record.exclusive,
        open_time: record.open,
        min: record.min,
        max: record.max,
        histogram: record.histogram,
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
