//! Folds the calls of a recording by call path while they are written, so that reports need not read them again.
//!
//! Calls arrive when they end, so callees come before their callers. They are folded in chunks, each sorted by thread
//! and id, in which a caller is met before its callees. Where the caller is in no chunk yet, a *pending* node stands
//! for it. When the caller arrives, its node takes the place of the pending one.
//!
//! The sums are exact or there are none. So folding gives up where a caller never arrives, as its record was lost, and
//! where the paths would take too much memory. Then [`Folding::into_paths`] is `None`, and reports read the calls.
//!
//! A node has calls with a time or calls without, not both: the time of what is below belongs to the former only.

mod sums;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;

use foldhash::HashMap;
use rtrace_model::{
    Call, CallSiteId, Context, ContextId, Count, Ending, FoldedPath, HISTOGRAM_BUCKETS, LocationId, PathDetail, PathId,
    PathProfile, Reading, RegionId, histogram_bucket,
};

use self::sums::PathSums;
use crate::file::ROW_GROUP;

/// Call paths of threads, which take some 200 bytes each.
const MOST_NODES: usize = 1 << 17;

/// Numbers that durations may take, 8 bytes each.
const MOST_NUMBERS: i64 = 4 << 20;

/// Around a thread's move between CPUs, a callee may come after its caller, at most by so many calls.
const LATE: usize = ROW_GROUP / 2;

/// A node's place in [`Folding::nodes`].
type NodeId = u32;

const NONE: NodeId = NodeId::MAX;

/// What tells the callees of a path apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    region: RegionId,
    is_timed: bool,
    site: Option<CallSiteId>,
    /// What untraced functions led to the calls, unless a traced call made them directly.
    context: Option<ContextId>,
}

struct Node {
    key: Key,
    sums: PathSums,
    first_callee: NodeId,
    next_sibling: NodeId,
    /// The callee that was called last, which is often the next, too.
    last_callee: NodeId,
}

impl Default for Node {
    fn default() -> Node {
        let key = Key { region: RegionId(0), is_timed: false, site: None, context: None };
        Node { key, sums: PathSums::default(), first_callee: NONE, next_sibling: NONE, last_callee: NONE }
    }
}

/// The end of the nearest timed call around a call.
#[derive(Clone, Copy)]
enum Around {
    Nothing,
    End(u64),
    /// That of the call with that id, which has not arrived, or of one around it.
    Pending(u64),
}

/// A call that may be the caller of others.
#[derive(Clone, Copy)]
struct Open {
    id: u64,
    node: NodeId,
    /// Of callees.
    around: Around,
}

/// A call that has not arrived, though its callees have.
struct Pending {
    id: u64,
    node: NodeId,
    /// The last end of a callee, and the nodes of the callees that ended then; whether each took 0 ns.
    last_end: u64,
    ended_last: Vec<(NodeId, bool)>,
}

impl Pending {
    fn ended(&mut self, end: u64, node: NodeId, is_instant: bool) {
        if end > self.last_end {
            self.last_end = end;
            self.ended_last.clear();
        }
        if end == self.last_end {
            self.ended_last.push((node, is_instant));
        }
    }
}

struct Thread {
    /// Stands for the callers outside of what is traced.
    root: NodeId,
    /// By id.
    pending: Vec<Pending>,
    /// Calls of the last chunks, which may have a callee to come, by id: newer and older ones.
    recent: [Vec<Open>; 2],
}

impl Thread {
    fn pending(&mut self, id: u64) -> Option<&mut Pending> {
        let place = self.pending.binary_search_by_key(&id, |pending| pending.id).ok()?;
        Some(&mut self.pending[place])
    }

    /// Takes what was pending for a call that has arrived.
    fn take_pending(&mut self, id: u64) -> Option<Pending> {
        if self.pending.last().is_none_or(|last| last.id < id) {
            return None;
        }
        let place = self.pending.binary_search_by_key(&id, |pending| pending.id).ok()?;
        Some(self.pending.remove(place))
    }

    fn recent(&self, id: u64) -> Option<Open> {
        let find = |calls: &Vec<Open>| calls.binary_search_by_key(&id, |open| open.id).ok().map(|place| calls[place]);
        self.recent.iter().find_map(find)
    }
}

/// The calls so far, folded.
pub(crate) struct Folding {
    late: usize,
    nodes: Vec<Node>,
    free: Vec<NodeId>,
    callees: HashMap<(NodeId, Key), NodeId>,
    threads: HashMap<LocationId, Thread>,
    /// Nodes that have become part of others since `recent` changed.
    moved: HashMap<NodeId, NodeId>,
    /// Calls since then.
    since: usize,
    pending: usize,
    numbers: i64,
    is_unsure: bool,
    has_given_up: bool,
}

impl Folding {
    pub(crate) fn new() -> Folding {
        Folding::with_late(LATE)
    }

    fn with_late(late: usize) -> Folding {
        Folding {
            late,
            nodes: Vec::new(),
            free: Vec::new(),
            callees: HashMap::default(),
            threads: HashMap::default(),
            moved: HashMap::default(),
            since: 0,
            pending: 0,
            numbers: 0,
            is_unsure: false,
            has_given_up: false,
        }
    }

    /// Adds calls sorted by location and id, with `metrics` readings each: inclusive and of callees.
    pub(crate) fn chunk(&mut self, calls: &[Call], readings: &[u64], metrics: usize) {
        let mut readings = readings;
        for calls in calls.chunk_by(|a, b| a.location == b.location) {
            if self.has_given_up {
                return;
            }
            let (own, rest) = readings.split_at((2 * metrics * calls.len()).min(readings.len()));
            readings = rest;
            self.thread(calls, own, metrics);
        }
        self.since += calls.len();
        if self.since >= self.late {
            self.forget_recent();
        }
        let nodes = self.nodes.len() - self.free.len();
        if self.is_unsure || nodes > MOST_NODES || self.pending > MOST_NODES || self.numbers > MOST_NUMBERS {
            self.give_up();
        }
    }

    /// Gives the memory back; there will be no paths.
    pub(crate) fn give_up(&mut self) {
        *self = Folding { has_given_up: true, ..Folding::new() };
    }

    fn thread(&mut self, calls: &[Call], readings: &[u64], metrics: usize) {
        let location = calls[0].location;
        let mut thread = match self.threads.remove(&location) {
            Some(thread) => thread,
            None => Thread { root: self.node(Node::default()), pending: Vec::new(), recent: Default::default() },
        };
        let pending_before = thread.pending.len();
        let mut stack: Vec<Open> = Vec::new();
        let mut seen = Vec::with_capacity(calls.len());
        for (place, call) in calls.iter().enumerate() {
            if call.parent >= call.id {
                return self.give_up();
            }
            while stack.last().is_some_and(|open| open.id > call.parent) {
                stack.pop();
            }
            let caller = match stack.last() {
                Some(open) if open.id == call.parent => *open,
                _ => {
                    let caller = self.caller(&mut thread, call.parent);
                    stack.push(caller);
                    caller
                }
            };
            let own = readings.get(2 * metrics * place..2 * metrics * (place + 1)).unwrap_or_default();
            let open = self.call(&mut thread, call, caller, own);
            stack.push(open);
            seen.push(open);
        }
        let [newer, _] = &mut thread.recent;
        let is_in_order = newer.last().is_none_or(|last| last.id < seen[0].id);
        newer.append(&mut seen);
        if !is_in_order {
            newer.sort_by_key(|open| open.id);
        }
        self.pending = self.pending + thread.pending.len() - pending_before;
        self.threads.insert(location, thread);
    }

    /// The call with that id, of which nothing is on the stack.
    fn caller(&mut self, thread: &mut Thread, id: u64) -> Open {
        if id == 0 {
            return Open { id, node: thread.root, around: Around::Nothing };
        }
        if let Some(open) = thread.recent(id) {
            return Open { node: self.now(open.node), ..open };
        }
        let around = Around::Pending(id);
        match thread.pending.binary_search_by_key(&id, |pending| pending.id) {
            Ok(place) => Open { id, node: thread.pending[place].node, around },
            Err(place) => {
                let node = self.node(Node::default());
                thread.pending.insert(place, Pending { id, node, last_end: 0, ended_last: Vec::new() });
                Open { id, node, around }
            }
        }
    }

    fn call(&mut self, thread: &mut Thread, call: &Call, caller: Open, readings: &[u64]) -> Open {
        let context = call.context.filter(|&context| call.parent == 0 || context != Context::EMPTY);
        let key = Key { region: call.region, is_timed: call.is_timed(), site: call.call_site, context };
        let arrived = thread.take_pending(call.id);
        let known = self.callee(caller.node, key);
        let node = match (&arrived, known) {
            (None, Some(node)) => node,
            (None, None) => {
                let node = self.node(Node::default());
                self.place(node, caller.node, key);
                node
            }
            (Some(pending), None) => {
                self.place(pending.node, caller.node, key);
                pending.node
            }
            (Some(pending), Some(node)) => {
                self.merge(pending.node, node);
                node
            }
        };
        self.nodes[caller.node as usize].last_callee = node;
        self.numbers += self.nodes[node as usize].sums.add(call, readings);
        let around = match call.end() {
            Some(end) => {
                self.ended(thread, caller.around, end.0, (node, call.duration == Some(0)));
                Around::End(end.0)
            }
            None => caller.around,
        };
        if let Some(Pending { last_end, ended_last, .. }) = arrived {
            for (callee, is_instant) in ended_last {
                let callee = (self.now(callee), is_instant);
                // Its time is in `time`.
                self.ended(thread, around, last_end, callee);
            }
        }
        Open { id: call.id, node, around }
    }

    /// Notes that a call has ended; whether it took 0 ns.
    fn ended(&mut self, thread: &mut Thread, around: Around, end: u64, (node, is_instant): (NodeId, bool)) {
        match around {
            Around::End(of_caller) if of_caller == end => {
                self.nodes[node as usize].sums.ended_with_caller[usize::from(is_instant)] += 1;
            }
            Around::Pending(id) => {
                match thread.pending(id) {
                    Some(pending) => pending.ended(end, node, is_instant),
                    // It arrived before this callee of a callee that was not timed.
                    None => self.is_unsure = true,
                }
            }
            Around::End(_) | Around::Nothing => {}
        }
    }

    fn callee(&self, caller: NodeId, key: Key) -> Option<NodeId> {
        let last = self.nodes[caller as usize].last_callee;
        match self.nodes.get(last as usize) {
            Some(node) if node.key == key => Some(last),
            _ => self.callees.get(&(caller, key)).copied(),
        }
    }

    fn node(&mut self, node: Node) -> NodeId {
        match self.free.pop() {
            Some(id) => {
                self.nodes[id as usize] = node;
                id
            }
            None => {
                self.nodes.push(node);
                (self.nodes.len() - 1) as NodeId
            }
        }
    }

    /// Makes a node a callee of another, which has none of that key.
    fn place(&mut self, node: NodeId, caller: NodeId, key: Key) {
        let first = std::mem::replace(&mut self.nodes[caller as usize].first_callee, node);
        let placed = &mut self.nodes[node as usize];
        (placed.key, placed.next_sibling) = (key, first);
        self.callees.insert((caller, key), node);
    }

    /// Makes what is below a node, and its sums, part of another.
    fn merge(&mut self, from: NodeId, into: NodeId) {
        let mut left = vec![(from, into)];
        while let Some((from, into)) = left.pop() {
            let merged = std::mem::take(&mut self.nodes[from as usize]);
            self.numbers += self.nodes[into as usize].sums.merge(&merged.sums);
            let mut next = merged.first_callee;
            while next != NONE {
                let callee = next;
                let Node { key, next_sibling, .. } = self.nodes[callee as usize];
                next = next_sibling;
                self.callees.remove(&(from, key));
                match self.callees.get(&(into, key)) {
                    Some(&same) => left.push((callee, same)),
                    None => self.place(callee, into, key),
                }
            }
            self.moved.insert(from, into);
        }
    }

    /// The node that a node is part of now.
    fn now(&self, mut node: NodeId) -> NodeId {
        while let Some(&into) = self.moved.get(&node) {
            node = into;
        }
        node
    }

    /// Forgets the older ones of the calls that may have a callee to come.
    fn forget_recent(&mut self) {
        let mut threads = std::mem::take(&mut self.threads);
        for thread in threads.values_mut() {
            let mut newer = std::mem::take(&mut thread.recent[0]);
            newer.iter_mut().for_each(|open| open.node = self.now(open.node));
            thread.recent[1] = newer;
            for (node, _) in thread.pending.iter_mut().flat_map(|pending| &mut pending.ended_last) {
                *node = self.now(*node);
            }
        }
        self.threads = threads;
        self.free.extend(self.moved.drain().map(|(from, _)| from));
        self.since = 0;
    }

    /// The call paths by thread, callers before their callees; `None` where they are not exact.
    pub(crate) fn into_paths(self, metrics: usize) -> Option<Paths> {
        if self.has_given_up || self.threads.values().any(|thread| !thread.pending.is_empty()) {
            return None;
        }
        let mut threads: Vec<(LocationId, NodeId)> =
            self.threads.iter().map(|(&id, thread)| (id, thread.root)).collect();
        threads.sort_unstable_by_key(|&(location, _)| Reverse(location));
        Some(Paths { nodes: self.nodes, metrics, threads, location: LocationId(0), last: 0, next: Vec::new() })
    }
}

/// The paths of all threads, made when they are asked for.
pub(crate) struct Paths {
    nodes: Vec<Node>,
    metrics: usize,
    /// Threads to come with their roots, the next one last.
    threads: Vec<(LocationId, NodeId)>,
    location: LocationId,
    /// The last path of the location.
    last: u32,
    /// Nodes to come with the paths of their callers, the next one last.
    next: Vec<(NodeId, Option<PathId>)>,
}

impl Iterator for Paths {
    type Item = FoldedPath;

    fn next(&mut self) -> Option<FoldedPath> {
        loop {
            let Some((node, parent)) = self.next.pop() else {
                let (location, root) = self.threads.pop()?;
                (self.location, self.last) = (location, 0);
                self.next.push((self.nodes[root as usize].first_callee, None));
                continue;
            };
            let Some(Node { key, sums, first_callee, next_sibling, .. }) = self.nodes.get(node as usize) else {
                continue;
            };
            self.last += 1;
            let path = PathId(self.last);
            self.next.extend([(*next_sibling, parent), (*first_callee, Some(path))]);
            return Some(folded(self.location, (path, parent), *key, sums, self.metrics));
        }
    }
}

fn folded(
    location: LocationId,
    (path, parent): (PathId, Option<PathId>),
    key: Key,
    of: &PathSums,
    metrics: usize,
) -> FoldedPath {
    let sums = &of.sums;
    let durations = sums.latency.listed();
    let mut histogram = [0; HISTOGRAM_BUCKETS];
    durations.iter().for_each(|&(duration, calls)| histogram[histogram_bucket(duration)] += calls);
    let mut counts = of.counts.clone();
    counts.resize(metrics, Count::default());
    let [ended_with_caller, instant_with_caller] = of.ended_with_caller;
    let Key { site: call_site, context, .. } = key;
    let instant = of.instant;
    let detail = PathDetail { call_site, context, durations, instant, ended_with_caller, instant_with_caller };
    let profile = PathProfile {
        path,
        parent,
        region: key.region,
        location,
        calls: sums.calls,
        timed: sums.timed(),
        unwound: sums.of_ending(Ending::Unwound),
        open: sums.of_ending(Ending::Open),
        unseen: sums.untimed(),
        inclusive: sums.inclusive,
        exclusive: sums.exclusive,
        open_time: sums.inclusive.saturating_sub(sums.ended),
        min: sums.min,
        max: sums.max,
        histogram,
        counts,
    };
    FoldedPath { profile, detail: Some(detail) }
}

/// The reading of a metric from its two values.
fn reading(values: &[u64]) -> Reading {
    Reading { inclusive: values[0], child: values[1] }
}
