//! What is known of one thread, and who called whom on it.
//!
//! A call arrives when it ends, so before its caller, which may run for long. Calls wait until
//! their callers are known: because they ended too, or because they are among those that run. They
//! wait in the order of their ends, in which callees come before callers; read backward, callers
//! come first, and those of the next call are the ones around the call before, or some of them.

use std::cmp::Reverse;

use rtrace_model::{Call, Ending, Location, RegionId, Timestamp};

use super::lanes::Lanes;
use super::paths::{Figures, Label, PathIndex, Paths, ROOT};

/// Calls that wait for their callers before they are looked at.
const CROWD: usize = 1 << 14;

/// A thread with its calls so far.
#[derive(Clone, Debug)]
pub struct Thread {
    /// Which one.
    pub location: Location,
    /// Calls that ended.
    pub calls: u64,
    /// Nanoseconds in traced calls that no traced function made.
    pub traced: u64,
    /// What runs, callers before callees.
    pub running: Vec<Call>,
    /// Its call paths.
    pub paths: Paths,
    /// Its last calls.
    pub lanes: Lanes,
    pending: Vec<Call>,
    /// Number of pending calls that is worth a look at them.
    crowd: usize,
    is_in_order: bool,
    last: (Timestamp, Reverse<u64>),
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

/// A call whose path is known.
#[derive(Clone, Copy)]
struct Known {
    id: u64,
    path: PathIndex,
}

impl Thread {
    /// A thread without calls.
    pub fn new(location: Location) -> Thread {
        Thread {
            location,
            calls: 0,
            traced: 0,
            running: Vec::new(),
            paths: Paths::default(),
            lanes: Lanes::default(),
            pending: Vec::new(),
            crowd: CROWD,
            is_in_order: true,
            last: (Timestamp(0), Reverse(u64::MAX)),
        }
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

    /// Adds a call that ended; `most` are kept of each class for the timeline.
    pub fn add(&mut self, call: &Call, most: usize) {
        self.calls += 1;
        if call.parent == 0 && call.ending != Ending::Unseen {
            self.traced = self.traced.saturating_add(call.duration);
        }
        self.lanes.add(call, most);
        let place = (call.end(), Reverse(call.id));
        self.is_in_order &= place >= self.last;
        self.last = place;
        self.pending.push(*call);
    }

    /// Puts calls whose callers are known on their paths. `outer` is told the inclusive time of
    /// each that is not nested in a call of the same function.
    pub fn settle(
        &mut self,
        until: Settle,
        merged: &mut Paths,
        room: &mut usize,
        mut outer: impl FnMut(RegionId, u64),
    ) {
        if !self.is_in_order {
            self.pending.sort_by_key(|call| (call.end(), Reverse(call.id)));
            self.is_in_order = true;
        }
        let running = self.running_paths(merged, room);
        let mut around: Vec<Known> = Vec::new();
        let mut waiting = Vec::new();
        for call in std::mem::take(&mut self.pending).into_iter().rev() {
            let caller = match call.parent {
                0 => Some(ROOT),
                parent => find(&mut around, &running, parent),
            };
            let parent = match caller {
                _ if call.end() > until.before => None,
                None if call.end() <= until.lost_before => {
                    Some(self.paths.child(ROOT, Label::LostCaller, merged, room))
                }
                caller => caller,
            };
            let Some(parent) = parent else {
                waiting.push(call);
                continue;
            };
            if call.parent == 0 {
                around.clear();
            }
            let path = self.paths.child(parent, Label::Region(call.region), merged, room);
            let (inclusive, exclusive) =
                if call.ending == Ending::Unseen { (0, 0) } else { (call.duration, call.exclusive()) };
            if path != parent {
                self.paths.figures(path).add(Figures { calls: 1, inclusive, exclusive });
            } else {
                self.paths.figures(path).add(Figures { calls: 1, inclusive: 0, exclusive });
            }
            if self.paths.node(parent).label == Label::LostCaller {
                self.paths.figures(parent).inclusive += inclusive;
            }
            if self.is_outermost(path, parent, call.region) {
                outer(call.region, inclusive);
            }
            around.push(Known { id: call.id, path });
        }
        waiting.reverse();
        self.crowd = CROWD.max(2 * waiting.len());
        self.pending = waiting;
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
            known.push(Known { id: call.id, path });
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
