//! Calls summed up by call path: all calls that were reached by the same chain of functions, on
//! whatever thread, are one node.
//!
//! A program may reach functions by any number of paths. Above [`MOST_PATHS`] new ones are not
//! told apart any more: what a known path calls by new ones is summed up in one node below it.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use rtrace_exporters::{Led, SampledTime, TraceSet, Untraced, UntracedId, sampled_beside_calls};
use rtrace_model::{Library, RegionId, Totals};
use rtrace_profile::{Caller, Visited, Visitor};

use super::table::{Column, Datum, SUM, Shown, Table};
use super::time::{self, OfRow, Time, TimeRows};
use super::{Error, Sort};

/// Paths that are told apart; they take about 150 MB.
const MOST_PATHS: usize = 1 << 20;

/// The place of a node in [`Tree::nodes`].
type TreeNodeId = u32;

const ROOT: TreeNodeId = 0;

pub(super) struct Tree<'a> {
    trace: &'a TraceSet,
    untraced: Untraced,
    nodes: Vec<TreeNode>,
    ids: HashMap<(TreeNodeId, TreeLabel), TreeNodeId>,
    most_paths: usize,
    /// Whether it is known what tracing took.
    is_corrected: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum TreeLabel {
    Root,
    /// Calls whose caller is not on record.
    LostCaller,
    /// Calls by paths that are not told apart.
    MorePaths,
    Region(RegionId),
    /// A function that is not traced, which led to calls of others.
    Untraced(UntracedId),
    /// One in which CPU time was sampled beside traced calls.
    Sampled(UntracedId),
}

struct TreeNode {
    label: TreeLabel,
    children: Vec<TreeNodeId>,
    totals: Totals,
    /// What tracing took of the times, where it is known.
    tracing: Option<OfRow>,
}

impl TimeRows for Tree<'_> {
    fn take_off(&mut self, tracing: HashMap<TreeNodeId, OfRow>) {
        self.is_corrected = true;
        for (id, of_row) in tracing {
            self.nodes[id as usize].tracing = Some(of_row);
        }
    }
}

impl Visitor for Tree<'_> {
    type Mark = TreeNodeId;

    fn visit(&mut self, calls: Visited<'_>, caller: Caller<'_, TreeNodeId>) -> TreeNodeId {
        let (site, context, sums) = (calls.call_site(), calls.context(), calls.totals());
        let outermost = caller.timed().next().is_none();
        let is_root = matches!(caller, Caller::None);
        let mut parent = match caller {
            Caller::None => ROOT,
            Caller::Known(enclosing) => enclosing.last().map_or(ROOT, |caller| caller.mark),
            Caller::Lost(_) => self.child(ROOT, TreeLabel::LostCaller),
        };
        if self.nodes[parent as usize].label == TreeLabel::LostCaller {
            self.add_inclusive(parent, sums.inclusive);
        }
        if let Some(chain) = self.untraced.of(self.trace, Led { site, context, is_root }) {
            for place in 0..self.untraced.chain(chain).len() {
                let id = self.path(parent, TreeLabel::Untraced(self.untraced.chain(chain)[place]));
                if id != parent {
                    self.add_inclusive(id, sums.inclusive);
                }
                parent = id;
            }
        }
        let id = self.path(parent, TreeLabel::Region(calls.region()));
        if id != parent {
            self.add_inclusive(id, sums.inclusive);
        }
        if outermost {
            self.add_inclusive(ROOT, sums.inclusive);
        }
        // Its inclusive time is added where that is not counted twice.
        self.nodes[id as usize].totals.add(Totals { inclusive: 0, ..sums });
        id
    }
}

impl<'a> Tree<'a> {
    pub(super) fn of(trace: &'a TraceSet) -> Tree<'a> {
        Tree::with_most_paths(trace, MOST_PATHS)
    }

    fn with_most_paths(trace: &'a TraceSet, most_paths: usize) -> Tree<'a> {
        let untraced = Untraced::default();
        Tree {
            trace,
            untraced,
            nodes: vec![TreeNode::new(TreeLabel::Root)],
            ids: HashMap::new(),
            most_paths,
            is_corrected: false,
        }
    }

    /// The node of what `parent` calls.
    fn path(&mut self, parent: TreeNodeId, label: TreeLabel) -> TreeNodeId {
        if let Some(&id) = self.ids.get(&(parent, label)) {
            return id;
        }
        match self.nodes[parent as usize].label {
            TreeLabel::MorePaths => parent,
            _ if self.nodes.len() > self.most_paths => self.child(parent, TreeLabel::MorePaths),
            _ => self.child(parent, label),
        }
    }

    fn child(&mut self, parent: TreeNodeId, label: TreeLabel) -> TreeNodeId {
        *self.ids.entry((parent, label)).or_insert_with(|| {
            let id = TreeNodeId::try_from(self.nodes.len()).expect("most_paths and as many remainders fit");
            self.nodes.push(TreeNode::new(label));
            self.nodes[parent as usize].children.push(id);
            id
        })
    }

    /// Adds the CPU time beside traced calls, as far as it was sampled with stacks; returns whether it was.
    pub(super) fn add_samples(&mut self) -> bool {
        let sampled = sampled_beside_calls(self.trace, &mut self.untraced);
        for &SampledTime { chain, time, .. } in &sampled {
            let steps = self.untraced.chain(chain).to_vec();
            let last = steps.len().saturating_sub(1);
            self.add_inclusive(ROOT, time);
            let mut parent = ROOT;
            for (place, step) in steps.into_iter().enumerate() {
                let label = if place == last { TreeLabel::Sampled(step) } else { TreeLabel::Untraced(step) };
                let id = self.path(parent, label);
                if id != parent {
                    self.add_inclusive(id, time);
                }
                parent = id;
            }
            let exclusive = &mut self.nodes[parent as usize].totals.exclusive;
            *exclusive = exclusive.saturating_add(time);
        }
        !sampled.is_empty()
    }

    fn add_inclusive(&mut self, id: TreeNodeId, duration: u64) {
        let inclusive = &mut self.nodes[id as usize].totals.inclusive;
        *inclusive = inclusive.saturating_add(duration);
    }

    /// The tree as rows, callers above their callees; with a limit those that take most time.
    pub(super) fn table(&self, trace: &TraceSet, order: SiblingOrder, limit: Option<usize>) -> Table {
        let weights = self.weights();
        let names: Vec<String> = self.nodes.iter().map(|node| self.name(trace, node.label)).collect();
        let ranks = self.ranks(&names);
        let called = self.called();
        let shown = self.largest(&weights, &ranks, &called, limit.unwrap_or(self.nodes.len()));
        // Nodes are numbered as they are shown: their ids depend on the order in which calls were read.
        let mut numbers = vec![0; self.nodes.len()];
        let (mut rows, mut marks) = (Vec::new(), Vec::new());
        let mut next = vec![(ROOT, ROOT, 0)];
        while let Some((id, parent, depth)) = next.pop() {
            if !shown[id as usize] {
                continue;
            }
            let node = &self.nodes[id as usize];
            if id != ROOT {
                marks.push(id);
                numbers[id as usize] = marks.len() as u64;
                let parent = (parent != ROOT).then_some(numbers[parent as usize]);
                let share = weights[id as usize] as f64 / weights[ROOT as usize].max(1) as f64;
                rows.push(self.row(trace, id, (marks.len() as u64, parent), (depth, share)));
            }
            let mut children = node.children.clone();
            // From last to first, as the last pushed is the next row.
            children.sort_by_key(|&child| {
                let figure = order.figure(&self.nodes[child as usize], weights[child as usize]);
                Reverse((Reverse(figure), ranks[child as usize]))
            });
            let below = if id == ROOT { 0 } else { depth + 1 };
            next.extend(children.into_iter().map(|child| (child, id, below)));
        }
        let left_out = called.iter().skip(1).filter(|&&is_called| is_called).count() - rows.len();
        let mut table = Table { columns: COLUMNS.to_vec(), rows, marks, left_out, ..Table::default() };
        if self.nodes.iter().any(|node| node.totals.untimed > 0) {
            table.show(TIMED.key, Shown::Always);
        }
        if self.is_corrected {
            time::add_to(&mut table, |id| self.nodes[id as usize].times());
        }
        table
    }

    /// The place of each node among all, by the names of its callers and its own: it does not depend on the order in
    /// which calls were read.
    fn ranks(&self, names: &[String]) -> Vec<usize> {
        let mut ranks = vec![0; self.nodes.len()];
        let (mut next, mut rank) = (vec![ROOT], 0);
        while let Some(id) = next.pop() {
            ranks[id as usize] = rank;
            rank += 1;
            let mut children = self.nodes[id as usize].children.clone();
            children.sort_by_key(|&child| Reverse((&names[child as usize], self.nodes[child as usize].label)));
            next.extend(children);
        }
        ranks
    }

    /// The time of each node without tracing, or that of its callees where this is more: they may be timed where
    /// their caller was not.
    fn weights(&self) -> Vec<u64> {
        // What tracing took of a node and of all below it: so that the time of callees is never more than that of their
        // caller, it is taken off where it was measured, and nowhere more than there is.
        let mut tracing: Vec<u64> = self.nodes.iter().map(|node| node.totals.exclusive - node.own()).collect();
        let mut weights = vec![0; self.nodes.len()];
        // A node comes after its caller.
        for (id, node) in self.nodes.iter().enumerate().rev() {
            let below = |of: &[u64]| node.children.iter().map(|&child| of[child as usize]).fold(0, u64::saturating_add);
            tracing[id] = tracing[id].saturating_add(below(&tracing));
            let least = if node.label == TreeLabel::Root { 0 } else { below(&weights) };
            weights[id] = node.totals.inclusive.saturating_sub(tracing[id]).max(least);
        }
        weights
    }

    /// The time of all calls without tracing, in nanoseconds.
    pub(super) fn total(&self) -> u64 {
        self.weights()[ROOT as usize]
    }

    /// Whether a call of a node, or below it, counts.
    fn called(&self) -> Vec<bool> {
        let is_own = |node: &TreeNode| node.totals.calls > 0 || matches!(node.label, TreeLabel::Sampled(_));
        let mut called: Vec<bool> = self.nodes.iter().map(is_own).collect();
        // A node comes after its caller.
        for (id, node) in self.nodes.iter().enumerate().rev() {
            called[id] |= node.children.iter().any(|&child| called[child as usize]);
        }
        called
    }

    /// Marks the root and the `limit` nodes below it with most inclusive time of those with calls, callers first.
    fn largest(&self, weights: &[u64], ranks: &[usize], called: &[bool], limit: usize) -> Vec<bool> {
        let mut shown = vec![false; self.nodes.len()];
        let mut candidates = BinaryHeap::from([(u64::MAX, Reverse(0), ROOT)]);
        for _ in 0..=limit {
            let Some((_, _, id)) = candidates.pop() else { break };
            shown[id as usize] = true;
            let children = self.nodes[id as usize].children.iter().filter(|&&child| called[child as usize]);
            candidates.extend(children.map(|&child| (weights[child as usize], Reverse(ranks[child as usize]), child)));
        }
        shown
    }

    /// The values of [`COLUMNS`].
    fn row(
        &self,
        trace: &TraceSet,
        id: TreeNodeId,
        numbers: (u64, Option<u64>),
        (depth, share): (usize, f64),
    ) -> Vec<Datum> {
        let node = &self.nodes[id as usize];
        let region = match node.label {
            TreeLabel::Region(region) => Some(region),
            TreeLabel::Root
            | TreeLabel::LostCaller
            | TreeLabel::MorePaths
            | TreeLabel::Untraced(_)
            | TreeLabel::Sampled(_) => None,
        };
        let library = region.and_then(|id| trace.library(trace.region(id)?.library)).map(Library::name);
        let number = |number: Option<u32>| number.map_or(Datum::Absent, |number| Datum::Id(number.into()));
        let is_untraced = matches!(node.label, TreeLabel::Untraced(_));
        let has_calls = !is_untraced && !matches!(node.label, TreeLabel::Sampled(_));
        let counted = |count: u64| if !has_calls { Datum::Absent } else { Datum::Count(count) };
        // A caller may have ended later than the part that is asked for.
        let is_unknown = node.totals.timed() == 0 && (node.totals.calls > 0 || region.is_some());
        let known = |value: Datum| if is_unknown { Datum::Absent } else { value };
        vec![
            Datum::Id(numbers.0),
            numbers.1.map_or(Datum::Absent, Datum::Id),
            Datum::Id(depth as u64),
            number(region.map(|region| region.0)),
            counted(node.totals.calls),
            counted(node.totals.timed()),
            known(Datum::Share(share)),
            known(Datum::Time(node.totals.inclusive)),
            known(if is_untraced { Datum::Absent } else { Datum::Time(node.totals.exclusive) }),
            library.map_or(Datum::Absent, |library| Datum::Name(library.to_owned())),
            Datum::Nested(depth, self.name(trace, node.label)),
        ]
    }

    fn name(&self, trace: &TraceSet, label: TreeLabel) -> String {
        match label {
            TreeLabel::Root => String::new(),
            TreeLabel::LostCaller => "[lost caller]".to_owned(),
            TreeLabel::MorePaths => "[more paths]".to_owned(),
            TreeLabel::Region(id) => trace.function(id).map_or_else(|| "[unknown]".to_owned(), Cow::into_owned),
            TreeLabel::Untraced(id) => self.untraced.name(id).to_owned(),
            TreeLabel::Sampled(id) => format!("{} [sampled]", self.untraced.name(id)),
        }
    }
}

impl TreeNode {
    /// Inclusive and exclusive time, and what tracing took of them, where it is known.
    fn times(&self) -> Option<[Time; 2]> {
        let [of_inclusive, of_exclusive] = self.tracing.filter(|_| self.totals.timed() > 0)?;
        Some([Time::new(self.totals.inclusive, of_inclusive), Time::new(self.totals.exclusive, of_exclusive)])
    }

    /// Exclusive time, without tracing as far as it is known what that took.
    fn own(&self) -> u64 {
        self.times().map_or(self.totals.exclusive, |[_, exclusive]| exclusive.corrected())
    }

    fn new(label: TreeLabel) -> TreeNode {
        TreeNode { label, children: Vec::new(), totals: Totals::default(), tracing: None }
    }
}

/// How many calls the times are of, open ones included; shown to people where a call was not timed.
const TIMED: Column = Column::new("timed", "timed").seat(1).rank(6).shown(Shown::Never);

const COLUMNS: [Column; 11] = [
    Column::label("node", "node").shown(Shown::Never),
    Column::label("parent", "parent").shown(Shown::Never),
    Column::label("depth", "depth").shown(Shown::Never),
    Column::label("region", "region").shown(Shown::Never),
    Column::new("calls", "calls").seat(0),
    TIMED,
    Column::new("share", "share").heading("inclusive").seat(2).rank(1).with_bar(),
    Column::new("inclusive_ns", "inclusive").seat(3).rank(1).unit(SUM),
    Column::new("exclusive_ns", "exclusive").seat(6).rank(2).unit(SUM),
    Column::label("library", "library").shown(Shown::Never),
    Column::name("function", "function"),
];

/// The order of siblings.
#[derive(Clone, Copy)]
pub(super) struct SiblingOrder(Sort);

impl SiblingOrder {
    pub(super) fn new(sort: Sort) -> Result<SiblingOrder, Error> {
        match sort {
            Sort::Calls | Sort::Inclusive | Sort::Exclusive | Sort::Name => Ok(SiblingOrder(sort)),
            Sort::Mean | Sort::P50 | Sort::P90 | Sort::P99 | Sort::P999 | Sort::Max | Sort::Lost => {
                Err(Error::Sort(sort))
            }
        }
    }

    /// What a node is sorted by, whose weight is the time of it or of its callees.
    fn figure(self, node: &TreeNode, weight: u64) -> u64 {
        match self.0 {
            Sort::Calls => node.totals.calls,
            Sort::Inclusive => weight,
            Sort::Exclusive => node.own(),
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;
    use rtrace_profile::{CallReader as _, Walk};

    use super::*;
    use crate::testing::{definitions, in_order, nested, script, text};

    fn tree(calls: &[rtrace_model::Call], most_paths: usize) -> Tree<'static> {
        let trace = Box::leak(Box::new(definitions()));
        let mut walk = Walk::new(Tree::with_most_paths(trace, most_paths));
        walk.chunk(&in_order(calls));
        walk.finish();
        walk.visitor
    }

    fn table(tree: &Tree, sort: Sort, limit: Option<usize>) -> String {
        text(tree.table(&definitions(), SiblingOrder::new(sort).unwrap(), limit))
    }

    #[test]
    fn paths_of_all_threads_merge_and_recursion_nests() {
        let calls = script(
            "thread 1
             a 0 100
              b 0 30
               b 5 20
              c 40 90
             thread 2
             a 0 60
              c 0 20
             c 70 90",
        );
        assert_eq!(
            table(&tree(&calls, MOST_PATHS), Sort::Inclusive, None),
            "\
calls  inclusive %  inclusive ns  exclusive ns  function
    2         88.9           160            60  a
    2         38.9            70            70    c
    1         16.7            30            15    b
    1          8.3            15            15      b
    1         11.1            20            20  c
"
        );
    }

    #[test]
    fn a_limit_keeps_the_largest_and_their_callers() {
        let calls = script("thread 1\n a 0 100\n  b 0 10\n  c 10 90\n   d 20 80\n e 200 240");
        assert_eq!(
            table(&tree(&calls, MOST_PATHS), Sort::Name, Some(3)),
            "\
calls  inclusive %  inclusive ns  exclusive ns  function
    1         71.4           100            10  a
    1         57.1            80            20    c
    1         42.9            60            60      d
"
        );
    }

    #[test]
    fn an_untimed_call_has_no_time_and_keeps_its_callees() {
        let calls = script("thread 1\n a 0 ?\n  b 10 30\n   c 15 ?\n    d 20 25\n e 100 110\n f 200 ?");
        let tree = tree(&calls, MOST_PATHS);
        assert_eq!(
            table(&tree, Sort::Inclusive, None),
            "\
calls  timed  inclusive %  inclusive ns  exclusive ns  function
    1      0            -             -             -  a
    1      1         66.7            20            15    b
    1      0            -             -             -      c
    1      1         16.7             5             5        d
    1      1         33.3            10            10  e
    1      0            -             -             -  f
"
        );
        let two = table(&tree, Sort::Name, Some(2));
        let shown: Vec<_> = two.lines().skip(1).map(|line| line.split_whitespace().last().unwrap()).collect();
        assert_eq!(shown, ["a", "b"], "callees count for what is left out");
    }

    #[test]
    fn callees_of_lost_calls_hang_under_a_node_of_their_own() {
        let mut calls = script("thread 1\n a 0 100\n  b 10 90\n   c 20 50\n    d 30 40\n   c 60 70");
        calls.retain(|call| call.id != 2);
        assert_eq!(
            table(&tree(&calls, MOST_PATHS), Sort::Inclusive, None),
            "\
calls  inclusive %  inclusive ns  exclusive ns  function
    1        100.0           100            20  a
    0         40.0            40             0  [lost caller]
    2         40.0            40            30    c
    1         10.0            10            10      d
"
        );
    }

    #[test]
    fn paths_beyond_the_limit_are_summed_up_where_they_begin() {
        let calls = script("thread 1\n a 0 100\n  b 10 90\n   c 20 50\n    d 30 40\n   e 60 70\n f 100 110");
        assert_eq!(
            table(&tree(&calls, 2), Sort::Inclusive, None),
            "\
calls  inclusive %  inclusive ns  exclusive ns  function
    1         90.9           100            20  a
    1         72.7            80            40    b
    3         36.4            40            40      [more paths]
    1          9.1            10            10  [more paths]
"
        );
    }

    proptest! {
        #[test]
        fn exclusive_times_add_up_to_the_inclusive_times_of_roots(
            shape in prop::collection::vec((1..4_u32, 0..6_usize), 1..200),
            most_paths in prop_oneof![0..20_usize, Just(MOST_PATHS)],
        ) {
            let calls = nested(&shape);
            let tree = tree(&calls, most_paths);
            let roots: u64 = calls.iter().filter(|call| call.parent == 0).filter_map(|call| call.duration).sum();
            prop_assert_eq!(tree.nodes.iter().map(|node| node.totals.exclusive).sum::<u64>(), roots);
            prop_assert_eq!(tree.nodes[ROOT as usize].totals.inclusive, roots);
            for node in &tree.nodes[1..] {
                let below: u64 = node.children.iter().map(|&child| tree.nodes[child as usize].totals.inclusive).sum();
                prop_assert_eq!(node.totals.inclusive, node.totals.exclusive + below);
            }
        }
    }
}
