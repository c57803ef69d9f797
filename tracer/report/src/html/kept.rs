//! The single calls that a page holds: all of a short recording; of others the slowest, the slowest of each function,
//! and a sample of each slice of time.
//!
//! The callers of a slow call took longer than it, so the slowest calls stand below their callers. The sample is of
//! those calls whose ids hash to the least numbers: the same in every page of a recording, whatever the order in which
//! calls are read.

use std::collections::{BTreeMap, BinaryHeap};

use foldhash::HashMap;
use rtrace_model::{Call, LocationId, RegionId};

use super::axis::Axis;

/// Up to so many calls, a page holds them all.
const ALL: usize = 20_000;

/// The slowest calls of all.
const SLOWEST: usize = 6_000;

/// The slowest calls of each function.
const SLOWEST_OF_FUNCTION: usize = 3;

/// Sampled calls of a slice.
const SAMPLED: usize = 16;

/// Single calls, chosen while all are read.
pub(super) struct Kept {
    axis: Axis,
    /// All calls; absent where they are too many.
    all: Option<Vec<Call>>,
    seen: u64,
    slowest: Least,
    of_functions: HashMap<RegionId, Least>,
    sampled: Vec<Least>,
}

/// The calls of the least ranks.
struct Least {
    most: usize,
    heap: BinaryHeap<Ranked>,
}

struct Ranked {
    rank: u64,
    call: Call,
}

impl Ranked {
    /// Ranks may be equal; calls are not.
    fn key(&self) -> (u64, LocationId, u64) {
        (self.rank, self.call.location, self.call.id)
    }
}

impl Ord for Ranked {
    fn cmp(&self, other: &Ranked) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Ranked) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Ranked {
    fn eq(&self, other: &Ranked) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Ranked {}

impl Least {
    fn new(most: usize) -> Least {
        Least { most, heap: BinaryHeap::new() }
    }

    fn add(&mut self, rank: u64, call: &Call) {
        if self.heap.len() < self.most {
            self.heap.push(Ranked { rank, call: *call });
        } else if let Some(mut greatest) = self.heap.peek_mut() {
            let ranked = Ranked { rank, call: *call };
            if ranked < *greatest {
                *greatest = ranked;
            }
        }
    }

    /// The `most` calls of the least ranks.
    fn calls(&self, most: usize) -> impl Iterator<Item = Call> {
        let mut ranked: Vec<&Ranked> = self.heap.iter().collect();
        ranked.sort();
        ranked.into_iter().take(most).map(|ranked| ranked.call)
    }
}

impl Kept {
    pub(super) fn new(axis: Axis) -> Kept {
        let sampled = (0..axis.slices()).map(|_| Least::new(SAMPLED)).collect();
        let of_functions = HashMap::default();
        Kept { axis, all: Some(Vec::new()), seen: 0, slowest: Least::new(SLOWEST), of_functions, sampled }
    }

    /// Adds a call.
    pub(super) fn add(&mut self, call: &Call) {
        self.seen += 1;
        self.all = self.all.take().filter(|all| all.len() < ALL);
        if let Some(all) = &mut self.all {
            all.push(*call);
        }
        if let Some(duration) = call.duration {
            let rank = u64::MAX - duration;
            self.slowest.add(rank, call);
            let of_function = self.of_functions.entry(call.region);
            of_function.or_insert_with(|| Least::new(SLOWEST_OF_FUNCTION)).add(rank, call);
        }
        let slice = loop {
            match self.axis.slice(call.start) {
                Some(slice) => break slice,
                None => self.widen(),
            }
        };
        self.sampled[slice].add(hash(call), call);
    }

    fn widen(&mut self) {
        let before = std::mem::take(&mut self.sampled);
        self.sampled = (0..self.axis.slices()).map(|_| Least::new(SAMPLED)).collect();
        for (slice, calls) in before.into_iter().enumerate() {
            for Ranked { rank, call } in calls.heap {
                self.sampled[slice / 2].add(rank, &call);
            }
        }
        self.axis.widen();
    }

    /// Calls that were looked at.
    pub(super) fn seen(&self) -> u64 {
        self.seen
    }

    /// The calls by thread and start, one part in `divisor` of what could be; and whether these are all.
    pub(super) fn chosen(&self, divisor: usize) -> (Vec<Call>, bool) {
        if let Some(all) = self.all.as_ref().filter(|all| all.len() <= ALL / divisor) {
            let mut all = all.clone();
            all.sort_by_key(|call| (call.location, call.start, call.id));
            return (all, true);
        }
        let slowest = self.slowest.calls(SLOWEST / divisor);
        let of_functions = self.of_functions.values().flat_map(|calls| calls.calls(SLOWEST_OF_FUNCTION));
        let sampled = self.sampled.iter().flat_map(|calls| calls.calls(SAMPLED / divisor));
        let chosen = slowest.chain(of_functions.take(SLOWEST / divisor)).chain(sampled);
        let chosen: BTreeMap<_, _> = chosen.map(|call| ((call.location, call.start, call.id), call)).collect();
        (chosen.into_values().collect(), false)
    }
}

/// A number that says nothing of its call: the finalizer of MurmurHash3 (<https://github.com/aappleby/smhasher>).
fn hash(call: &Call) -> u64 {
    let mut bits = call.id ^ u64::from(call.location.0).rotate_left(32);
    for factor in [0xff51_afd7_ed55_8ccd_u64, 0xc4ce_b9fe_1a85_ec53] {
        bits = (bits ^ bits >> 33).wrapping_mul(factor);
    }
    bits ^ bits >> 33
}

#[cfg(test)]
mod tests {
    use rtrace_model::Timestamp;

    use super::*;

    fn call(id: u64) -> Call {
        // The durations go up and down.
        let duration = id * 7_919 % 100_003;
        Call {
            id,
            start: Timestamp(id * 10),
            duration: Some(duration),
            region: RegionId(id as u32 % 3),
            ..Call::default()
        }
    }

    fn kept(ids: impl Iterator<Item = u64>) -> Kept {
        let mut kept = Kept::new(Axis::new(Timestamp(0), None, 8));
        ids.for_each(|id| kept.add(&call(id)));
        kept
    }

    #[test]
    fn few_calls_are_all_there() {
        let (calls, are_all) = kept((1..=100).rev()).chosen(1);
        assert!(are_all);
        assert_eq!(calls, (1..=100).map(call).collect::<Vec<_>>());
    }

    #[test]
    fn of_many_the_slowest_and_a_sample_of_all_times_are_there_in_whatever_order_they_came() {
        let (calls, are_all) = kept(1..=50_000).chosen(1);
        assert!(!are_all);
        assert_eq!(calls, kept((1..=50_000).rev()).chosen(1).0);
        let mut all: Vec<Call> = (1..=50_000).map(call).collect();
        all.sort_by_key(|call| std::cmp::Reverse(call.duration));
        assert!(all[..SLOWEST].iter().all(|slow| calls.contains(slow)));
        assert!(calls.len() <= SLOWEST + 3 * SLOWEST_OF_FUNCTION + 8 * SAMPLED);
        assert!(calls.len() > SLOWEST + 4 * SAMPLED / 2);
        assert!(kept(1..=50_000).chosen(8).0.len() < calls.len() / 4);
    }
}
