//! Event-flow graphs: what a thread calls after what.
//!
//! Nodes are call paths: functions with the places in their callers that they are called from, as far as these are known.
//! An edge leads from a call path to the one that the same caller entered next,
//! with the executions of its source after which it was taken: the first, the last, and the stride
//! between them where it is constant. A loop is an edge back to an earlier call path, so a program
//! that iterates a million times has the graph of one that iterates twice, with other numbers. The values of a call
//! path are those of all its calls, as are its times and counts, and make no difference between paths or graphs.
//!
//! After X. Aguilar, K. Fürlinger, E. Laure: "MPI Trace Compression Using Event Flow Graphs",
//! Euro-Par 2014.

use std::collections::{BTreeMap, HashMap};

use rtrace_model::{Call, CallSiteId, ContextId, LocationId, Measured, RegionId, Timestamp};

use super::nesting::Visitor;
use super::paths::PathFigures;
use super::variety::Varieties;
use super::{Excerpt, ExportError};

/// A call path within a [`EventFlow`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FlowNode {
    /// The path of the caller; `None` at a root.
    pub(super) parent: Option<usize>,
    pub(super) region: RegionId,
    site: CallOrigin,
    pub(super) calls: u64,
}

/// Where calls come from.
type CallOrigin = (Option<CallSiteId>, Option<ContextId>);

/// An end of an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum EdgeEnd {
    /// The begin of the caller, or of the thread.
    Begin(Option<usize>),
    /// A call.
    Call(usize),
    /// The end of the caller, or of the thread.
    End(Option<usize>),
}

/// How often, and after which executions of its source, an edge was taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Edge {
    pub(super) count: u64,
    pub(super) first: u64,
    pub(super) last: u64,
    /// The difference between these executions where it is constant; else 0.
    pub(super) stride: u64,
}

impl Edge {
    fn take(&mut self, execution: u64) {
        let step = execution - self.last;
        match self.count {
            0 => self.first = execution,
            1 => self.stride = step,
            _ if self.stride != step => self.stride = 0,
            _ => {}
        }
        self.last = execution;
        self.count += 1;
    }
}

/// The event-flow graph of a thread; nodes in the order of their first calls.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct EventFlow {
    pub(super) nodes: Vec<FlowNode>,
    pub(super) edges: BTreeMap<(EdgeEnd, EdgeEnd), Edge>,
}

/// A graph with the threads that have it.
pub(super) struct Flows {
    pub(super) flow: EventFlow,
    pub(super) threads: Vec<LocationId>,
    /// The values of the calls of each node, and what they add up to.
    pub(super) values: Vec<Varieties>,
    pub(super) figures: Vec<PathFigures>,
}

impl EventFlow {
    /// The edges that leave a place.
    pub(super) fn leaving(&self, from: EdgeEnd) -> impl Iterator<Item = (EdgeEnd, &Edge)> {
        let edges = self.edges.range((from, EdgeEnd::Begin(None))..=(from, EdgeEnd::End(Some(usize::MAX))));
        edges.map(|(&(_, to), edge)| (to, edge))
    }

    /// The graphs of all threads.
    pub(super) fn collect(source: &Excerpt<'_>) -> Result<Vec<Flows>, ExportError> {
        let mut places: HashMap<EventFlow, usize> = HashMap::new();
        let mut threads: Vec<(Vec<LocationId>, Vec<Varieties>, Vec<PathFigures>)> = Vec::new();
        let nested = source.nested_with_values()?;
        for location in nested.locations() {
            let mut following = Following::default();
            nested.visit(location, &mut following)?;
            let (flow, values, figures) = following.finish();
            let place = *places.entry(flow).or_insert(threads.len());
            match threads.get_mut(place) {
                Some((threads, known, sums)) => {
                    threads.push(location);
                    known.iter_mut().zip(values).for_each(|(known, values)| known.merge(values));
                    sums.iter_mut().zip(&figures).for_each(|(sum, figures)| sum.add(figures));
                }
                None => threads.push((vec![location], values, figures)),
            }
        }
        let mut flows: Vec<_> = places.into_iter().collect();
        flows.sort_by_key(|&(_, place)| place);
        let flows = flows.into_iter().zip(threads);
        Ok(flows.map(|((flow, _), (threads, values, figures))| Flows { flow, threads, values, figures }).collect())
    }
}

/// A thread's graph while its calls are followed.
#[derive(Default)]
struct Following {
    flow: EventFlow,
    /// Of each node.
    values: Vec<Varieties>,
    figures: Vec<PathFigures>,
    places: HashMap<(Option<usize>, RegionId, CallOrigin), usize>,
    /// The open calls, each with its latest callee.
    open: Vec<(usize, Option<usize>)>,
    /// The latest call of the thread itself.
    latest: Option<usize>,
}

impl Following {
    fn finish(mut self) -> (EventFlow, Vec<Varieties>, Vec<PathFigures>) {
        self.ends(None, self.latest);
        (self.flow, self.values, self.figures)
    }

    /// A caller ends after its latest callee.
    fn ends(&mut self, caller: Option<usize>, latest: Option<usize>) {
        if let Some(latest) = latest {
            self.edge(EdgeEnd::Call(latest), EdgeEnd::End(caller));
        }
    }

    fn edge(&mut self, from: EdgeEnd, to: EdgeEnd) {
        let execution = match from {
            EdgeEnd::Call(node) | EdgeEnd::Begin(Some(node)) => self.flow.nodes[node].calls,
            EdgeEnd::Begin(None) | EdgeEnd::End(_) => 1,
        };
        self.flow.edges.entry((from, to)).or_default().take(execution);
    }
}

impl Visitor for Following {
    fn enter(&mut self, _: Timestamp, measured: &Measured, _: &[Measured]) -> Result<(), ExportError> {
        let Call { region, call_site, context, .. } = measured.call;
        let (parent, site) = (self.open.last().map(|&(node, _)| node), (call_site, context));
        let node = *self.places.entry((parent, region, site)).or_insert_with(|| {
            self.flow.nodes.push(FlowNode { parent, region, site, calls: 0 });
            self.values.push(Varieties::default());
            self.figures.push(PathFigures::default());
            self.flow.nodes.len() - 1
        });
        let latest = self.open.last_mut().map_or(&mut self.latest, |(_, latest)| latest);
        let from = latest.replace(node).map_or(EdgeEnd::Begin(parent), EdgeEnd::Call);
        self.edge(from, EdgeEnd::Call(node));
        self.flow.nodes[node].calls += 1;
        self.values[node].add(measured.values.as_ref());
        self.open.push((node, None));
        Ok(())
    }

    fn leave(&mut self, _: Timestamp, measured: &Measured) -> Result<(), ExportError> {
        let (node, latest) = self.open.pop().expect("a call is entered before it is left");
        if measured.call.duration.is_some() {
            self.figures[node].add_call(measured);
        }
        self.ends(Some(node), latest);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edge_keeps_first_last_and_stride() {
        let taken = |executions: &[u64]| {
            let mut edge = Edge::default();
            executions.iter().for_each(|&execution| edge.take(execution));
            edge
        };
        assert_eq!(taken(&[10, 20, 30]), Edge { count: 3, first: 10, last: 30, stride: 10 });
        assert_eq!(taken(&[1, 2, 4, 5]), Edge { count: 4, first: 1, last: 5, stride: 0 });
        assert_eq!(taken(&[7]), Edge { count: 1, first: 7, last: 7, stride: 0 });
    }
}
