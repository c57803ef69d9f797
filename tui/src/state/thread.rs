//! What is known of one thread, and who called whom on it.
//!
//! A call arrives when it ends, so before its caller, which may run for long. Calls wait until
//! their callers are known: because they ended too, or because they are among those that run. They
//! wait in the order of their ends, in which callees come before callers; read backward, callers
//! come first, and those of the next call are the ones around the call before, or some of them. A call
//! that was not timed waits where it arrived: it comes when nothing more is to come from within it.

use std::cmp::Reverse;
use std::ops::Range;

use rtrace_model::{Call, Count, Location, PathProfile, RegionId, Timestamp, Totals};

use super::folded::Folded;
use super::lanes::Lanes;
use super::paths::{Label, PathIndex, Paths, ROOT};

/// Calls that wait for their callers before they are looked at.
const CROWD: usize = 1 << 14;

/// A thread with its calls so far.
#[derive(Debug)]
pub struct Thread {
    /// Which one.
    pub location: Location,
    /// Calls that ended.
    pub calls: u64,
    /// Nanoseconds in traced calls that no traced function made.
    pub traced: u64,
    /// What ran at the last snapshot, callers before callees.
    running: Vec<Call>,
    /// When that was.
    snapshot: Timestamp,
    /// Calls that began before it and have ended since.
    over: Vec<u64>,
    /// Its call paths.
    pub paths: Paths,
    /// Its last calls.
    pub lanes: Lanes,
    folded: Folded,
    pending: Vec<Pending>,
    /// What pending calls counted.
    counts: Vec<Count>,
    /// Room for as many calls as waited last time: threads that rest need none.
    room: usize,
    /// Number of pending calls that is worth a look at them.
    crowd: usize,
    is_in_order: bool,
    last: (Timestamp, Reverse<u64>),
}

/// A call that waits for its callers.
#[derive(Debug)]
struct Pending {
    call: Call,
    /// When it ended; where it was not timed, the end of what arrived before it.
    end: Timestamp,
    /// Where its counts are.
    counts: Range<u32>,
}

/// How far calls are settled.
#[derive(Clone, Copy, Debug)]
pub struct Settle {
    /// What ended later waits: calls from before may still be on their way.
    pub before: Timestamp,
    /// Of what ended earlier, callers that are not known count as lost.
    pub lost_before: Timestamp,
}

impl Settle {
    /// Everything, now.
    pub const ALL: Settle = Settle { before: Timestamp(u64::MAX), lost_before: Timestamp(u64::MAX) };
}

/// What is told of a call when its callers are known.
#[derive(Clone, Copy, Debug)]
pub struct Settled<'a> {
    /// Its function.
    pub region: RegionId,
    /// The function that made it, where that is traced.
    pub caller: Option<RegionId>,
    /// Its time, unless it is nested in a call of the same function.
    pub inclusive: Option<u64>,
    /// What it counted.
    pub counts: &'a [Count],
}

/// A call whose path is known.
#[derive(Clone, Copy)]
struct Known {
    id: u64,
    path: PathIndex,
    /// The function whose time its time is part of.
    timed: Option<RegionId>,
}

impl Thread {
    /// A thread without calls.
    pub fn new(location: Location) -> Thread {
        Thread {
            location,
            calls: 0,
            traced: 0,
            running: Vec::new(),
            snapshot: Timestamp(0),
            over: Vec::new(),
            paths: Paths::default(),
            lanes: Lanes::default(),
            folded: Folded::default(),
            pending: Vec::new(),
            counts: Vec::new(),
            room: 0,
            crowd: CROWD,
            is_in_order: true,
            last: (Timestamp(0), Reverse(u64::MAX)),
        }
    }

    /// The same, to be looked at only.
    pub fn snapshot(&self) -> Thread {
        Thread {
            calls: self.calls,
            traced: self.traced,
            running: self.running.clone(),
            snapshot: self.snapshot,
            over: self.over.clone(),
            paths: self.paths.snapshot(),
            lanes: self.lanes.clone(),
            ..Thread::new(self.location.clone())
        }
    }

    /// Takes in what runs at a time.
    pub fn set_running(&mut self, time: Timestamp, running: &[Call]) {
        self.snapshot = time;
        self.running.clear();
        self.running.extend_from_slice(running);
        self.over.clear();
    }

    /// What ran at the last snapshot, with the durations until then, callers before callees.
    pub fn at_snapshot(&self) -> &[Call] {
        &self.running
    }

    /// Of what ran at the last snapshot, what has not ended since.
    pub fn running(&self) -> impl Iterator<Item = &Call> {
        self.running.iter().filter(|call| !self.over.contains(&call.id))
    }

    /// Calls that wait for their callers.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Whether there is something to settle.
    pub fn is_unsettled(&self) -> bool {
        !self.pending.is_empty() || !self.running.is_empty()
    }

    /// Whether there are so many of them that it is time to settle.
    pub fn is_crowded(&self) -> bool {
        self.pending.len() >= self.crowd
    }

    /// Adds a call that ended, with what it counted; `most` are kept of each class for the timeline.
    pub fn add(&mut self, call: &Call, counts: impl Iterator<Item = Count>, most: usize) {
        self.calls += 1;
        if call.parent == 0 {
            self.traced = self.traced.saturating_add(call.duration.unwrap_or(call.child));
        }
        self.show(call, most);
        let end = call.end().unwrap_or(call.start.max(self.last.0));
        let place = (end, Reverse(call.id));
        self.is_in_order &= place >= self.last;
        self.last = place;
        self.wait(*call, end, counts);
    }

    fn wait(&mut self, call: Call, end: Timestamp, counts: impl Iterator<Item = Count>) {
        let place = |counts: &Vec<Count>| u32::try_from(counts.len()).expect("pending calls are bounded");
        if self.pending.is_empty() {
            self.pending.reserve(self.room);
        }
        let begin = place(&self.counts);
        self.counts.extend(counts);
        self.pending.push(Pending { call, end, counts: begin..place(&self.counts) });
    }

    /// Shows a call that ended on the timeline, without counting it.
    pub fn show(&mut self, call: &Call, most: usize) {
        self.lanes.add(call, most);
        // It may have run at the last snapshot.
        if self.running.first().is_some_and(|outermost| outermost.start <= call.start && call.start <= self.snapshot) {
            self.over.push(call.id);
        }
    }

    /// Takes in calls that are folded by call path; of callers that are not known after the last
    /// ones nothing is to come. `told` gets what is new, whether it is nested in no call of the
    /// same function, and the function that called it.
    pub fn fold(
        &mut self,
        rows: &[&PathProfile],
        are_last: bool,
        merged: &mut Paths,
        room: &mut usize,
        mut told: impl FnMut(&PathProfile, bool, Option<RegionId>),
    ) {
        let mut folded = std::mem::take(&mut self.folded);
        folded.take(rows, are_last, |caller, row| {
            let parent = caller.unwrap_or_else(|| self.paths.child(ROOT, Label::LostCaller, merged, room));
            self.calls += row.calls;
            if row.parent.is_none() {
                self.traced = self.traced.saturating_add(row.inclusive);
            }
            let (path, is_outermost) = self.put(parent, row.region, Totals::of_path(row), merged, room);
            self.count_on(path, parent, &row.counts);
            told(row, is_outermost, self.paths.node(parent).function());
            path
        });
        self.folded = folded;
    }

    /// Adds calls of a function to the path below `parent`, and tells whether they are nested in no
    /// call of the same function.
    fn put(
        &mut self,
        parent: PathIndex,
        region: RegionId,
        figures: Totals,
        merged: &mut Paths,
        room: &mut usize,
    ) -> (PathIndex, bool) {
        let path = self.paths.child(parent, Label::Region(region), merged, room);
        // Within paths that are not told apart, time counts once.
        let inclusive = if path == parent { 0 } else { figures.inclusive };
        self.paths.figures(path).add(Totals { inclusive, ..figures });
        if self.paths.node(parent).label == Label::LostCaller {
            self.paths.figures(parent).inclusive += figures.inclusive;
        }
        (path, self.is_outermost(path, parent, region))
    }

    /// Adds what calls on a path below `parent` counted.
    fn count_on(&mut self, path: PathIndex, parent: PathIndex, counts: &[Count]) {
        if path == parent {
            // As with time, inclusive counts once.
            let own: Vec<Count> = counts.iter().map(|count| Count { inclusive: 0, ..*count }).collect();
            self.paths.count(path, &own);
        } else {
            self.paths.count(path, counts);
        }
    }

    /// Puts calls whose callers are known on their paths, and tells of each.
    pub fn settle(&mut self, until: Settle, merged: &mut Paths, room: &mut usize, mut told: impl FnMut(Settled<'_>)) {
        if !self.is_in_order {
            self.pending.sort_by_key(|Pending { call, end, .. }| (*end, Reverse(call.id)));
            self.is_in_order = true;
        }
        let running = self.running_paths(merged, room);
        let mut around: Vec<Known> = Vec::new();
        // Whether all that is around a call is in `around`.
        let mut is_whole = false;
        let mut waiting = Vec::new();
        let all_counts = std::mem::take(&mut self.counts);
        self.room = self.pending.len();
        for pending in std::mem::take(&mut self.pending).into_iter().rev() {
            let call = pending.call;
            let caller = match call.parent {
                0 => Some(ROOT),
                parent => find(&mut around, &running, parent),
            };
            let parent = match caller {
                _ if pending.end > until.before => None,
                None if pending.end <= until.lost_before => {
                    Some(self.paths.child(ROOT, Label::LostCaller, merged, room))
                }
                caller => caller,
            };
            let Some(parent) = parent else {
                waiting.push(pending);
                continue;
            };
            if call.parent == 0 {
                around.clear();
            }
            is_whole = call.parent == 0 || is_whole && !around.is_empty();
            let figures = Totals::of(&call);
            let (path, is_first) = self.put(parent, call.region, figures, merged, room);
            // Its time is in no other's where those above it were not timed.
            let timed = call.is_timed().then_some(call.region);
            let is_outermost = is_first || is_whole && !around.iter().any(|above| above.timed == Some(call.region));
            let counts = &all_counts[pending.counts.start as usize..pending.counts.end as usize];
            self.count_on(path, parent, counts);
            let (caller, inclusive) = (self.paths.node(parent).function(), is_outermost.then_some(figures.inclusive));
            told(Settled { region: call.region, caller, inclusive, counts });
            around.push(Known { id: call.id, path, timed });
        }
        self.crowd = CROWD.max(2 * waiting.len());
        for Pending { call, end, counts } in waiting.into_iter().rev() {
            self.wait(call, end, all_counts[counts.start as usize..counts.end as usize].iter().copied());
        }
    }

    /// Among paths that are not told apart, callers are known up to where that begins.
    fn is_outermost(&self, path: PathIndex, parent: PathIndex, region: RegionId) -> bool {
        let node = self.paths.node(path);
        if node.label == Label::Region(region) {
            node.outermost
        } else {
            !self.paths.has_above(parent, Label::Region(region))
        }
    }

    /// The paths of what runs, by call id.
    fn running_paths(&mut self, merged: &mut Paths, room: &mut usize) -> Vec<Known> {
        let mut known: Vec<Known> = Vec::with_capacity(self.running.len());
        for call in &self.running {
            let above = known.binary_search_by_key(&call.parent, |known| known.id);
            let parent = above.map_or(ROOT, |place| known[place].path);
            let path = self.paths.child(parent, Label::Region(call.region), merged, room);
            known.push(Known { id: call.id, path, timed: Some(call.region) });
        }
        known
    }
}

/// The path of a caller; leaves in `around` the calls that enclose what it called.
fn find(around: &mut Vec<Known>, running: &[Known], id: u64) -> Option<PathIndex> {
    if let Ok(place) = around.binary_search_by_key(&id, |known| known.id) {
        around.truncate(place + 1);
        return Some(around[place].path);
    }
    let place = running.binary_search_by_key(&id, |known| known.id).ok()?;
    around.clear();
    Some(running[place].path)
}
