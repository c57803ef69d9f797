//! The calls of a trace folded by call path.
//!
//! Memory grows with the number of distinct call paths, not with that of calls.

use std::collections::{BTreeMap, HashMap};

use rtrace_model::{Call, Count, Measured, RegionId, Timestamp, Totals};

use super::ExportError;
use super::nesting::Visitor;
use super::source::Excerpt;
use super::step::PathStep;
use crate::{Costs, Traced};

/// A call path with the calls made on it.
#[derive(Clone, Debug)]
pub(super) struct Path {
    /// The path without its last step.
    pub(super) parent: Option<usize>,
    pub(super) step: PathStep,
    pub(super) figures: PathFigures,
}

/// What calls add up to.
#[derive(Clone, Debug, Default)]
pub(super) struct PathFigures {
    pub(super) totals: Totals,
    /// What tracing took of the exclusive time, as far as that is known.
    tracing: u64,
    /// One per call metric.
    pub(super) counts: Vec<Count>,
}

impl PathFigures {
    pub(super) fn add_call(&mut self, Measured { call, readings, .. }: &Measured) {
        self.totals.add(Totals::of(call));
        Count::add_all(&mut self.counts, readings.iter().map(|&reading| Count::from(reading)));
    }

    pub(super) fn add(&mut self, other: &PathFigures) {
        self.totals.add(other.totals);
        Count::add_all(&mut self.counts, other.counts.iter().copied());
    }

    /// Exclusive time in nanoseconds without tracing, as far as it is known what that took.
    pub(super) fn own(&self) -> u64 {
        self.totals.exclusive.saturating_sub(self.tracing)
    }
}

/// By function, and by caller and function.
type Graph = (BTreeMap<RegionId, PathFigures>, BTreeMap<(RegionId, RegionId), PathFigures>);

/// All call paths; those that a path begins with come before it.
#[derive(Debug, Default)]
pub(super) struct ExportPaths {
    pub(super) all: Vec<Path>,
    places: HashMap<(Option<usize>, PathStep), usize>,
}

impl ExportPaths {
    /// What the chosen calls of all threads add up to by function, and by caller and function.
    pub(super) fn graph(source: &Excerpt<'_>) -> Result<Graph, ExportError> {
        let paths = ExportPaths::gather(source, false)?;
        let (mut functions, mut pairs) = Graph::default();
        for path in &paths.all {
            let PathStep::Function(callee) = path.step else { continue };
            functions.entry(callee).or_default().add(&path.figures);
            if let Some(PathStep::Function(caller)) = path.parent.map(|parent| paths.all[parent].step) {
                pairs.entry((caller, callee)).or_default().add(&path.figures);
            }
        }
        Ok((functions, pairs))
    }

    /// Folds the chosen calls below their process and thread, with the untraced functions that led to them.
    pub(super) fn of_threads(source: &Excerpt<'_>) -> Result<ExportPaths, ExportError> {
        ExportPaths::gather(source, true)
    }

    fn gather(source: &Excerpt<'_>, of_threads: bool) -> Result<ExportPaths, ExportError> {
        let untraced = of_threads.then_some(source);
        let (mut paths, mut costs) = (ExportPaths::default(), Costs::of(source));
        let nested = source.nested()?;
        for location in nested.locations() {
            let root = of_threads.then(|| {
                let program = paths.place(None, PathStep::Program(source.threads.thread(location).program));
                paths.place(Some(program), PathStep::Thread(location))
            });
            let (paths, costs) = (&mut paths, costs.as_mut());
            nested.visit(location, &mut PathFolding { paths, untraced, root, costs, open: Vec::new() })?;
        }
        Ok(paths)
    }

    /// The steps of a path, the last first.
    pub(super) fn upward(&self, place: usize) -> impl Iterator<Item = &Path> {
        std::iter::successors(Some(&self.all[place]), |path| Some(&self.all[path.parent?]))
    }

    /// The place of a call's path, behind the untraced functions that led from `parent` to it.
    pub(super) fn place_call(&mut self, parent: Option<usize>, led_to: Vec<PathStep>, call: &Call) -> usize {
        let parent = led_to.into_iter().fold(parent, |parent, step| Some(self.place(parent, step)));
        self.place(parent, PathStep::Function(call.region))
    }

    /// The place of the path that is `parent` and one step more.
    pub(super) fn place(&mut self, parent: Option<usize>, step: PathStep) -> usize {
        *self.places.entry((parent, step)).or_insert_with(|| {
            self.all.push(Path { parent, step, figures: PathFigures::default() });
            self.all.len() - 1
        })
    }
}

struct PathFolding<'p, 'c> {
    paths: &'p mut ExportPaths,
    /// Who knows the untraced functions, if they are wanted.
    untraced: Option<&'p Excerpt<'p>>,
    root: Option<usize>,
    /// What tracing took, if it is known.
    costs: Option<&'p mut Costs<'c>>,
    open: Vec<OpenPath>,
}

/// An open call.
struct OpenPath {
    place: usize,
    /// Absent where it is not timed.
    end: Option<Timestamp>,
}

impl PathFolding<'_, '_> {
    /// Takes off what tracing took of a call that is left: of its own time, and of that of the nearest timed call around it.
    fn take_off(&mut self, place: usize, call: &Call) {
        let Some(costs) = &mut self.costs else { return };
        let caller = self.open.iter().rev().find(|open| open.end.is_some());
        let cost = costs.cost(&Traced {
            region: call.region,
            location: call.location,
            site: call.call_site,
            calls: 1,
            stamped: u64::from(call.duration.is_some_and(|duration| duration > 0)),
            share_returns: call.end().is_some() && call.end() == caller.and_then(|caller| caller.end),
        });
        for (place, took) in [(place, cost.inner)].into_iter().chain(caller.map(|caller| (caller.place, cost.outer())))
        {
            let tracing = &mut self.paths.all[place].figures.tracing;
            *tracing = tracing.saturating_add(took);
        }
    }
}

impl Visitor for PathFolding<'_, '_> {
    fn enter(&mut self, _: Timestamp, measured: &Measured, _: &[Measured]) -> Result<(), ExportError> {
        let parent = self.open.last().map(|open| open.place).or(self.root);
        let led_to = self.untraced.map_or_else(Vec::new, |source| source.led_to(&measured.call));
        let place = self.paths.place_call(parent, led_to, &measured.call);
        self.open.push(OpenPath { place, end: measured.call.end() });
        Ok(())
    }

    fn leave(&mut self, _: Timestamp, measured: &Measured) -> Result<(), ExportError> {
        let OpenPath { place, .. } = self.open.pop().expect("a call is entered before it is left");
        self.take_off(place, &measured.call);
        self.paths.all[place].figures.add_call(measured);
        Ok(())
    }
}
