//! When the calls of a recording were, how long they took, and which of them are worth showing: what a picture of a
//! recording needs of single calls, in bounded memory.
//!
//! It is the same, whatever the order in which calls come.

mod activity;
mod axis;
mod chosen;
mod durations;
#[cfg(test)]
mod tests;

use foldhash::HashMap;
use rtrace_model::{Call, Ending, LocationId, RegionId, Timestamp};

pub use self::activity::Activity;
pub use self::axis::Axis;
use self::chosen::{Chosen, Least};
pub use self::durations::{DurationCell, Durations};

/// Most slices of time of the threads' activity, of durations, and of the sample of calls.
const SLICES: [u32; 3] = [1 << 10, 1 << 8, 1 << 8];

/// Slices of all threads together, 24 bytes each. Above, slices become wider.
const MOST_SLICES: usize = 1 << 19;

/// Cells of the durations of all functions together, 4 bytes each. Above, their slices become wider.
const MOST_CELLS: usize = 1 << 20;

/// The slowest calls of each function.
const SLOWEST_OF_FUNCTION: usize = 3;

/// What is known of calls beyond their sums.
#[derive(Debug)]
pub struct Overview {
    calls: u64,
    activity_axis: Axis,
    durations_axis: Axis,
    /// The latest time so far, for which both have room.
    reached: Timestamp,
    threads: Vec<(LocationId, Activity)>,
    thread_of: HashMap<LocationId, u32>,
    functions: Vec<FunctionOverview>,
    function_of: HashMap<RegionId, u32>,
    chosen: Chosen,
    /// Of all threads.
    slices: usize,
    /// Of all functions.
    cells: usize,
}

#[derive(Debug)]
struct FunctionOverview {
    region: RegionId,
    durations: Durations,
    slowest: Least,
}

impl Overview {
    /// A recording with so many calls or fewer needs no overview: each of them can be shown.
    pub const FEW: u64 = 20_000;

    /// Of no calls, from the beginning of a recording.
    pub fn new(begin: Timestamp) -> Overview {
        let [activity, durations, sampled] = SLICES.map(|slices| Axis::new(begin, slices));
        Overview {
            calls: 0,
            activity_axis: activity,
            durations_axis: durations,
            reached: begin,
            threads: Vec::new(),
            thread_of: HashMap::default(),
            functions: Vec::new(),
            function_of: HashMap::default(),
            chosen: Chosen::new(sampled),
            slices: 0,
            cells: 0,
        }
    }

    /// Adds a call; `is_outermost` unless its time is part of another one's.
    pub fn add(&mut self, call: &Call, is_outermost: bool) {
        let (thread, function) = (self.thread(call.location) as usize, self.function(call.region) as usize);
        self.calls += 1;
        let end = call.known_until();
        if end > self.reached {
            self.reach(end);
        }
        let of_thread = &mut self.threads[thread].1;
        self.slices += of_thread.add_call(&self.activity_axis, call.start);
        if is_outermost && call.is_timed() {
            self.slices += of_thread.add_time(&self.activity_axis, call.start, end);
        }
        if let Some(duration) = call.duration {
            let rank = u64::MAX - duration;
            let of_function = &mut self.functions[function];
            of_function.slowest.add(rank, call);
            self.chosen.add_slow(rank, call);
            if call.ending != Ending::Open {
                let slice = self.durations_axis.nearest(end);
                self.cells += of_function.durations.add(slice, duration);
            }
        }
        self.chosen.add_sample(call);
        self.keep_small();
    }

    /// The number of a thread.
    fn thread(&mut self, location: LocationId) -> u32 {
        *self.thread_of.entry(location).or_insert_with(|| {
            self.threads.push((location, Activity::new(&self.activity_axis)));
            (self.threads.len() - 1) as u32
        })
    }

    /// The number of a function.
    fn function(&mut self, region: RegionId) -> u32 {
        *self.function_of.entry(region).or_insert_with(|| {
            let slowest = Least::new(SLOWEST_OF_FUNCTION);
            let durations = Durations::new(&self.durations_axis);
            self.functions.push(FunctionOverview { region, durations, slowest });
            (self.functions.len() - 1) as u32
        })
    }

    /// The slices of time of activity.
    pub fn activity_axis(&self) -> &Axis {
        &self.activity_axis
    }

    /// The slices of time of durations.
    pub fn durations_axis(&self) -> &Axis {
        &self.durations_axis
    }

    /// How busy each thread was over time, and how often it called.
    pub fn threads(&self) -> impl Iterator<Item = (LocationId, &Activity)> {
        self.threads.iter().map(|(location, activity)| (*location, activity))
    }

    /// The durations over time of each function.
    pub fn functions(&self) -> impl Iterator<Item = (RegionId, &Durations)> {
        self.functions.iter().map(|function| (function.region, &function.durations))
    }

    /// Calls that were added.
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// The slowest calls, the slowest of each function, and a sample of each slice of time: one part in `divisor` of
    /// those that are known, by thread and start.
    pub fn chosen(&self, divisor: usize) -> Vec<Call> {
        let mut functions: Vec<&FunctionOverview> = self.functions.iter().collect();
        functions.sort_unstable_by_key(|function| function.region);
        self.chosen.with(functions.into_iter().map(|function| &function.slowest), divisor)
    }

    /// Makes room for that time.
    fn reach(&mut self, time: Timestamp) {
        self.reached = time;
        while self.activity_axis.slice(time).is_none() {
            self.widen_activity();
        }
        while self.durations_axis.slice(time).is_none() {
            self.widen_durations();
        }
    }

    /// Widens slices where there are too many.
    fn keep_small(&mut self) {
        if self.slices > MOST_SLICES {
            self.widen_activity();
        }
        if self.cells > MOST_CELLS {
            self.widen_durations();
        }
    }

    fn widen_activity(&mut self) {
        self.activity_axis.widen();
        let axis = &self.activity_axis;
        self.threads.iter_mut().for_each(|(_, activity)| activity.fit(axis));
        self.slices = self.threads.iter().map(|(_, activity)| activity.slices()).sum();
    }

    fn widen_durations(&mut self) {
        self.durations_axis.widen();
        let axis = &self.durations_axis;
        self.functions.iter_mut().for_each(|function| function.durations.fit(axis));
        self.cells = self.functions.iter().map(|function| function.durations.room()).sum();
    }
}
