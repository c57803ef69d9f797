//! Finds the caller of each call while a trace is read from its end.
//!
//! Calls are stored when they end, so a caller is stored after its callees, perhaps much later:
//! reading backward meets it first. What must be remembered between two chunks of calls are, of
//! each thread, the calls that began before the first end seen so far: those that enclose what is
//! still to come, a chain as long as the stack is deep.
//!
//! Around a thread's move between CPUs calls may be stored out of order, so two allowances are
//! made, each worth one chunk: a call is remembered for one chunk more than it should be needed,
//! and a call whose caller is not known waits one chunk for it. Then the caller counts as lost.

mod paths;

use std::collections::{HashMap, HashSet};

use rtrace_model::{FoldedPath, LocationId, Measured, Timestamp};

use crate::{ClockSpan, Visited};

/// What is done with each call.
pub trait Visitor {
    /// What is remembered of a call for its callees.
    type Mark: Copy;

    /// Called once for each call, or for all calls of a call path, with callers before their callees.
    fn visit(&mut self, calls: Visited<'_>, caller: Caller<'_, Self::Mark>) -> Self::Mark;

    /// Called once, when all calls were visited.
    fn finish(&mut self) {}
}

/// Who made a call, with the known calls that enclose it, the outermost first.
#[derive(Clone, Copy)]
pub enum Caller<'a, M> {
    /// No traced function.
    None,
    /// The last of these.
    Known(&'a [OpenCall<M>]),
    /// A call that is not on record, somewhere within these.
    Lost(&'a [OpenCall<M>]),
}

impl<'a, M> Caller<'a, M> {
    /// The known calls that enclose the call.
    pub fn enclosing(&self) -> &'a [OpenCall<M>] {
        match self {
            Caller::None => &[],
            Caller::Known(enclosing) | Caller::Lost(enclosing) => enclosing,
        }
    }

    /// The known calls that enclose the call and have a time, which that of the call is part of.
    pub fn timed(&self) -> impl DoubleEndedIterator<Item = &'a OpenCall<M>> + use<'a, M> {
        self.enclosing().iter().filter(|open| open.is_timed)
    }

    /// Whether the time of the call is part of that of a call with this mark.
    pub fn is_within(&self, mark: M) -> bool
    where
        M: PartialEq,
    {
        self.timed().any(|open| open.mark == mark)
    }
}

/// A visited call, for as long as it may be the caller of others.
#[derive(Clone, Copy)]
pub struct OpenCall<M> {
    /// What the visitor remembers of it.
    pub mark: M,
    /// Whether it has a time, and one that counts.
    is_timed: bool,
    /// The call's, or that of the path.
    pub id: u64,
    parent: u64,
    start: Timestamp,
    /// The latest time at which it is known to have run: of one that is timed, its end.
    pub end: Timestamp,
}

/// A [`Walk`], whatever its visitor is.
pub trait CallReader: Send {
    /// Sets which calls count.
    fn within(&mut self, span: ClockSpan);

    /// Visits all paths.
    fn paths(&mut self, paths: &[FoldedPath]);

    /// Reads the calls that were stored before those of the last chunk, by location and id.
    fn chunk(&mut self, calls: &[Measured]);

    /// Visits what still waits: nothing more will come.
    fn finish(&mut self);
}

/// The state between chunks.
pub struct Walk<V: Visitor> {
    /// What sees each call.
    pub visitor: V,
    span: ClockSpan,
    /// Calls visited with [`Caller::Lost`].
    pub lost_callers: u64,
    threads: HashMap<LocationId, Thread<V::Mark>>,
    /// Threads in the previous chunk.
    recent: HashSet<LocationId>,
}

/// What is remembered of one location.
struct Thread<M> {
    /// Calls that may still turn out to be callers, by id.
    open: Vec<OpenCall<M>>,
    /// Calls without known caller, by id.
    waiting: Vec<Measured>,
    /// First end of a call in the chunks so far.
    earliest_end: Timestamp,
}

/// What the stack of open calls meets next, in the order of ids, which is that of enters.
enum WalkStep<'a, M> {
    Remembered(OpenCall<M>),
    /// A call to visit; late, if it has waited for its caller and waits no longer.
    Visit {
        measured: &'a Measured,
        late: bool,
    },
}

impl<M> WalkStep<'_, M> {
    fn id(&self) -> u64 {
        match self {
            WalkStep::Remembered(open) => open.id,
            WalkStep::Visit { measured, .. } => measured.call.id,
        }
    }
}

impl<V: Visitor<Mark: Send> + Send> CallReader for Walk<V> {
    fn within(&mut self, span: ClockSpan) {
        self.span = span;
    }

    fn paths(&mut self, paths: &[FoldedPath]) {
        self.visit_paths(paths);
    }

    fn chunk(&mut self, calls: &[Measured]) {
        let mut before = std::mem::take(&mut self.recent);
        for calls in calls.chunk_by(|a, b| a.call.location == b.call.location) {
            let location = calls[0].call.location;
            before.remove(&location);
            self.recent.insert(location);
            self.thread(location, calls);
        }
        for location in before {
            self.thread(location, &[]);
        }
    }

    fn finish(&mut self) {
        self.chunk(&[]);
        self.visitor.finish();
    }
}

impl<V: Visitor> Walk<V> {
    /// Visits nothing yet.
    pub fn new(visitor: V) -> Walk<V> {
        Walk { visitor, span: ClockSpan::ALL, lost_callers: 0, threads: HashMap::new(), recent: HashSet::new() }
    }

    fn thread(&mut self, location: LocationId, calls: &[Measured]) {
        let thread = self.threads.entry(location).or_insert_with(|| Thread {
            open: Vec::new(),
            waiting: Vec::new(),
            earliest_end: Timestamp(u64::MAX),
        });
        let remembered = std::mem::take(&mut thread.open);
        let waited = std::mem::take(&mut thread.waiting);
        let remembered = remembered.into_iter().map(WalkStep::Remembered);
        let late = waited.iter().map(|measured| WalkStep::Visit { measured, late: true });
        let new = calls.iter().map(|measured| WalkStep::Visit { measured, late: false });
        let mut steps: Vec<WalkStep<'_, V::Mark>> = remembered.chain(late).chain(new).collect();
        steps.sort_by_key(WalkStep::id);

        let mut stack: Vec<OpenCall<V::Mark>> = Vec::new();
        for step in steps {
            let open = match step {
                WalkStep::Remembered(open) => {
                    unwind(&mut stack, open.parent, open.start);
                    open
                }
                WalkStep::Visit { measured, late } => {
                    let call = &measured.call;
                    let found = unwind(&mut stack, call.parent, call.start);
                    if call.parent != 0 && !found && !late {
                        thread.waiting.push(measured.clone());
                        continue;
                    }
                    let caller = match (call.parent, found) {
                        (0, _) => Caller::None,
                        (_, true) => Caller::Known(&stack),
                        (_, false) => Caller::Lost(&stack),
                    };
                    let counts = self.span.counts(call);
                    self.lost_callers += u64::from(counts && matches!(caller, Caller::Lost(_)));
                    let visited = if counts { Visited::One(measured) } else { Visited::Around(measured) };
                    let mark = self.visitor.visit(visited, caller);
                    OpenCall {
                        mark,
                        is_timed: counts && call.is_timed(),
                        id: call.id,
                        parent: call.parent,
                        start: call.start,
                        end: call.known_until(),
                    }
                }
            };
            stack.push(open);
            thread.open.push(open);
        }

        thread.open.retain(|open| open.start <= thread.earliest_end);
        let earliest = calls.iter().filter_map(|measured| measured.call.end()).min();
        thread.earliest_end = earliest.map_or(thread.earliest_end, |end| end.min(thread.earliest_end));
    }
}

/// Leaves on the stack the calls that enclose one that `parent` made at `start`; whether `parent`
/// is among them.
fn unwind<M>(stack: &mut Vec<OpenCall<M>>, parent: u64, start: Timestamp) -> bool {
    if parent == 0 {
        stack.clear();
        return false;
    }
    if let Ok(place) = stack.binary_search_by_key(&parent, |open| open.id) {
        stack.truncate(place + 1);
        return true;
    }
    while stack.last().is_some_and(|top| top.end <= start) {
        stack.pop();
    }
    false
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use rtrace_model::Call;

    use super::*;
    use crate::testing::{in_order, script};

    /// Notes the caller of each call: its id, 0 for none, or `LOST`.
    #[derive(Default)]
    struct Callers(BTreeMap<(u32, u64), u64>);

    const LOST: u64 = u64::MAX;

    impl Visitor for Callers {
        type Mark = u64;

        fn visit(&mut self, calls: Visited<'_>, caller: Caller<'_, u64>) -> u64 {
            let Visited::One(Measured { call, .. }) = calls else { unreachable!("all are calls, and count") };
            let caller = match caller {
                Caller::None => 0,
                Caller::Known(enclosing) => enclosing.last().unwrap().mark,
                Caller::Lost(_) => LOST,
            };
            assert_eq!(self.0.insert((call.location.0, call.id), caller), None, "visited twice");
            call.id
        }
    }

    /// Walks over calls stored in this order, `size` to a chunk.
    fn walk(calls: &[Call], size: usize) -> Walk<Callers> {
        let mut walk = Walk::new(Callers::default());
        for chunk in calls.rchunks(size) {
            walk.chunk(&in_order(chunk));
        }
        walk.finish();
        walk
    }

    fn truth(calls: &[Call]) -> BTreeMap<(u32, u64), u64> {
        calls.iter().map(|call| ((call.location.0, call.id), call.parent)).collect()
    }

    #[test]
    fn a_caller_may_be_many_chunks_after_its_callees() {
        let calls = script(
            "thread 1
             a 0 100
              b 1 2
              b 3 4
              c 5 90
               d 6 7
               d 8 9
             thread 2
             a 0 95
              b 1 6
              b 8 94",
        );
        for size in 1..10 {
            let walk = walk(&calls, size);
            assert_eq!(walk.visitor.0, truth(&calls), "chunks of {size}");
            assert_eq!(walk.lost_callers, 0);
        }
    }

    #[test]
    fn a_callee_may_be_a_chunk_after_its_caller() {
        let mut calls = script("thread 1\n a 0 100\n  b 10 90\n   c 20 80\n    d 30 70");
        calls.reverse();
        let walk = walk(&calls, 2);
        assert_eq!(walk.visitor.0, truth(&calls));
    }

    #[test]
    fn calls_of_an_instant_keep_their_callers() {
        let calls = script("thread 1\n a 5 5\n  b 5 5\n   c 5 5\n  b 5 5\n a 5 5");
        for size in 1..6 {
            assert_eq!(walk(&calls, size).visitor.0, truth(&calls), "chunks of {size}");
        }
    }

    #[test]
    fn an_untimed_call_is_the_caller_of_what_it_called() {
        let calls = script(
            "thread 1
             a 0 100
              b 1 ?
               c 5 40
                d 6 7
               d 50 60
              b 70 ?",
        );
        assert!(
            calls.iter().any(|call| call.parent > 0 && calls.iter().any(|of| of.id == call.parent && !of.is_timed()))
        );
        for size in 1..8 {
            let walk = walk(&calls, size);
            assert_eq!(walk.visitor.0, truth(&calls), "chunks of {size}");
            assert_eq!(walk.lost_callers, 0);
        }
    }

    #[test]
    fn only_open_calls_are_remembered() {
        let mut walk = Walk::new(Callers::default());
        let root = Call { duration: Some(1_000_000), ..script("thread 1\n a 0 1")[0] };
        let leaf = |id: u64| Call { id, parent: 1, depth: 1, start: Timestamp(id * 100), duration: Some(9), ..root };
        walk.chunk(&in_order(&[root]));
        for chunk in (0..50).rev() {
            let calls: Vec<Call> = (chunk * 100..chunk * 100 + 100).map(|id| leaf(id + 2)).collect();
            walk.chunk(&in_order(&calls));
            assert!(walk.threads[&root.location].open.len() <= 202);
        }
        walk.finish();
        assert_eq!(walk.lost_callers, 0);
        assert_eq!(walk.visitor.0.len(), 5_001);
    }

    #[test]
    fn malformed_calls_are_visited_once() {
        let call = script("thread 1\n a 0 1")[0];
        let calls = [
            Call { id: 7, parent: 7, ..call },
            Call { id: 8, parent: 9, start: Timestamp(u64::MAX), duration: Some(u64::MAX), ..call },
            Call { id: 9, parent: 8, ..call },
            Call { id: u64::MAX, parent: u64::MAX - 1, ..call },
        ];
        for size in 1..5 {
            assert_eq!(walk(&calls, size).visitor.0.len(), 4);
        }
    }

    proptest! {
        #[test]
        fn any_nesting_any_chunks_any_disorder_below_a_chunk(
            shape in prop::collection::vec((1..4_u32, 0..6_usize), 1..200),
            size in 1..20_usize,
        ) {
            let mut calls = crate::testing::nested(&shape);
            for block in calls.chunks_mut(size) {
                block.reverse();
            }
            let walk = walk(&calls, size);
            prop_assert_eq!(walk.visitor.0, truth(&calls));
            prop_assert_eq!(walk.lost_callers, 0);
        }

        #[test]
        fn callees_of_lost_calls_are_counted(
            shape in prop::collection::vec((1..4_u32, 0..6_usize), 1..200),
            size in 1..20_usize,
            keep in prop::collection::vec(any::<bool>(), 200),
        ) {
            let all = crate::testing::nested(&shape);
            let calls: Vec<Call> = all.iter().zip(keep).filter(|(_, keep)| *keep).map(|(call, _)| *call).collect();
            let mut expected = truth(&calls);
            let ids: Vec<(u32, u64)> = expected.keys().copied().collect();
            for (&(location, _), parent) in &mut expected {
                if *parent != 0 && !ids.contains(&(location, *parent)) {
                    *parent = LOST;
                }
            }
            let walk = walk(&calls, size);
            let lost = expected.values().filter(|&&parent| parent == LOST).count();
            prop_assert_eq!(walk.lost_callers, lost as u64);
            prop_assert_eq!(walk.visitor.0, expected);
        }
    }
}
