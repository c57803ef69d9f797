//! Calls that are worth showing one by one: the slowest, and a sample of each slice of time.
//!
//! The callers of a slow call took longer than it, so the slowest calls stand below their callers. The sample is of
//! those calls whose ids hash to the least numbers: the same in every picture of a recording, whatever the order in
//! which calls come.

use std::collections::{BTreeMap, BinaryHeap};

use rtrace_model::{Call, LocationId};

use super::axis::Axis;

/// The slowest calls of all.
const SLOWEST: usize = 6_000;

/// Sampled calls of a slice.
const SAMPLED: usize = 16;

/// Single calls, chosen as they come.
#[derive(Debug)]
pub(super) struct Chosen {
    axis: Axis,
    slowest: Least,
    sampled: Vec<Least>,
}

/// The calls of the least ranks.
#[derive(Debug)]
pub(super) struct Least {
    most: usize,
    /// The greatest rank that may come in.
    bound: u64,
    heap: BinaryHeap<Ranked>,
}

#[derive(Debug)]
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
    pub(super) fn new(most: usize) -> Least {
        Least { most, bound: u64::MAX, heap: BinaryHeap::new() }
    }

    #[inline]
    pub(super) fn add(&mut self, rank: u64, call: &Call) {
        if rank <= self.bound {
            self.take(Ranked { rank, call: *call });
        }
    }

    #[cold]
    fn take(&mut self, ranked: Ranked) {
        if self.heap.len() < self.most {
            self.heap.push(ranked);
        } else if let Some(mut greatest) = self.heap.peek_mut().filter(|greatest| ranked < **greatest) {
            *greatest = ranked;
        }
        if let Some(greatest) = self.heap.peek().filter(|_| self.heap.len() == self.most) {
            self.bound = greatest.rank;
        }
    }

    /// The `most` calls of the least ranks.
    fn calls(&self, most: usize) -> impl Iterator<Item = Call> {
        let mut ranked: Vec<&Ranked> = self.heap.iter().collect();
        ranked.sort();
        ranked.into_iter().take(most).map(|ranked| ranked.call)
    }
}

impl Chosen {
    pub(super) fn new(axis: Axis) -> Chosen {
        let sampled = (0..axis.slices()).map(|_| Least::new(SAMPLED)).collect();
        Chosen { axis, slowest: Least::new(SLOWEST), sampled }
    }

    /// Adds a call that may be slow.
    pub(super) fn add_slow(&mut self, rank: u64, call: &Call) {
        self.slowest.add(rank, call);
    }

    /// Adds a call that may be in the sample.
    pub(super) fn add_sample(&mut self, call: &Call) {
        let slice = loop {
            match self.axis.slice(call.start) {
                Some(slice) => break slice,
                None => self.widen(),
            }
        };
        self.sampled[slice as usize].add(hash(call), call);
    }

    fn widen(&mut self) {
        let sampled = self.sampled.iter().map(|_| Least::new(SAMPLED)).collect();
        let before = std::mem::replace(&mut self.sampled, sampled);
        for (slice, calls) in before.into_iter().enumerate() {
            for Ranked { rank, call } in calls.heap {
                self.sampled[slice / 2].add(rank, &call);
            }
        }
        self.axis.widen();
    }

    /// The calls, and those of each function, by thread and start: one part in `divisor`.
    pub(super) fn with<'a>(&self, of_functions: impl Iterator<Item = &'a Least>, divisor: usize) -> Vec<Call> {
        let slowest = self.slowest.calls(SLOWEST / divisor);
        let of_functions = of_functions.flat_map(|calls| calls.calls(usize::MAX)).take(SLOWEST / divisor);
        let sampled = self.sampled.iter().flat_map(|calls| calls.calls(SAMPLED / divisor));
        let chosen = slowest.chain(of_functions).chain(sampled);
        let chosen: BTreeMap<_, _> = chosen.map(|call| ((call.location, call.start, call.id), call)).collect();
        chosen.into_values().collect()
    }
}

/// A number that says nothing of its call: multiplied by the golden ratio, ids that follow each other are far apart.
fn hash(call: &Call) -> u64 {
    let bits = (call.id ^ u64::from(call.location.0) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (bits ^ bits >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}
