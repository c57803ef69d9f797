//! What is known of each function so far.
//!
//! Figures of calls never go down: Prometheus would take that for a new start.

use std::collections::BTreeMap;
use std::sync::Arc;

use foldhash::HashMap;
use rtrace_model::{
    Batch, Definition, Estimate, EventKind, Header, Item, Known, Latency, Level, LibraryId, LocationId, LossReason,
    MetricId, Missed, Overhead, PathId, PathProfile, Region, RegionId, Sample, escape,
};
use rtrace_profile::Sums;

/// The names of a function and of its library, escaped. Functions at different addresses may have the same, and are
/// one function here.
pub(super) type Labels = (Arc<str>, Arc<str>);

/// A function's place in [`ShownFigures::functions`].
type FunctionIndex = usize;

/// The name of what was not defined.
const UNKNOWN: &str = "[unknown]";

/// A function that was called, or throttled.
#[derive(Clone, Debug)]
pub(super) struct FunctionFigures {
    pub(super) labels: Labels,
    pub(super) sums: Sums,
    /// Whether a budget has its probes out; `None` while it never had.
    pub(super) is_throttled: Option<bool>,
    /// Further calls that were counted, and those of which a budget leaves no more than an estimate.
    pub(super) without_record: Option<(u64, Missed)>,
}

impl FunctionFigures {
    /// Calls without a record that were counted, and what is known of those that were not; `None` where a budget left none.
    pub(super) fn calls_without_record(&self) -> Option<(u64, Known)> {
        self.without_record.map(|(counted, missed)| (counted, missed.known()))
    }
}

/// What is shown to who asks.
#[derive(Clone, Debug, Default)]
pub(super) struct ShownFigures {
    /// Known once calls are being recorded.
    pub(super) header: Option<Header>,
    pub(super) is_folded: bool,
    pub(super) functions: Vec<FunctionFigures>,
    pub(super) losses: BTreeMap<LossReason, u64>,
    pub(super) blind_windows: u64,
    /// What tracing takes, once that was measured.
    pub(super) overhead: Option<Overhead>,
}

/// All figures, and what they are made of.
#[derive(Debug, Default)]
pub(super) struct Figures {
    shown: ShownFigures,
    libraries: HashMap<LibraryId, Arc<str>>,
    by_labels: HashMap<Labels, FunctionIndex>,
    /// Absent until its first call.
    by_region: Vec<Option<FunctionIndex>>,
    regions: HashMap<RegionId, Labels>,
    /// Only where calls are folded.
    paths: HashMap<(LocationId, PathId), PathProfile>,
    estimates: HashMap<(LocationId, RegionId), Estimate>,
    overhead: Option<MetricId>,
}

impl Figures {
    pub(super) fn new(is_folded: bool) -> Figures {
        Figures { shown: ShownFigures { is_folded, ..ShownFigures::default() }, ..Figures::default() }
    }

    /// A copy for who asks.
    pub(super) fn shown(&self) -> ShownFigures {
        let mut shown = self.shown.clone();
        for (&(_, region), estimate) in &self.estimates {
            let Some(&Some(place)) = self.by_region.get(region.index()) else { continue };
            let (counted, missed) = shown.functions[place].without_record.get_or_insert_default();
            *counted += estimate.counted;
            *missed += estimate.missed();
        }
        shown
    }

    /// Takes in what a recording tells.
    pub(super) fn take(&mut self, item: &Item) {
        match item {
            Item::Begin(header) => self.shown.header = Some(header.clone()),
            Item::Define(definitions) => definitions.iter().for_each(|definition| self.define(definition)),
            Item::Calls(batch) => self.calls(batch),
            Item::Profile(paths) => self.profile(paths),
            Item::Estimates(estimates) => self.estimates(estimates),
            Item::Samples(samples) => self.samples(samples),
            Item::Event(event) => self.event(&event.kind),
            Item::Values(_) | Item::Running(..) | Item::Tick | Item::Finish(_) => {}
        }
    }

    fn define(&mut self, definition: &Definition) {
        match definition {
            Definition::Library(library) => _ = self.libraries.insert(library.id, escape(library.name()).into()),
            Definition::Region(region) => self.define_region(region),
            Definition::Metric(metric) if metric.name == Overhead::METRIC => self.overhead = Some(metric.id),
            _ => {}
        }
    }

    fn define_region(&mut self, region: &Region) {
        let library = self.libraries.get(&region.library).cloned();
        let labels = (escape(&region.name).into(), library.unwrap_or_else(|| UNKNOWN.into()));
        self.regions.insert(region.id, labels);
    }

    fn calls(&mut self, batch: &Batch) {
        if self.shown.is_folded {
            return;
        }
        for call in &**batch {
            self.function(call.region).sums.add_call(call, true);
        }
    }

    fn profile(&mut self, paths: &[PathProfile]) {
        for path in paths {
            let before = self.paths.insert((path.location, path.path), path.clone()).unwrap_or_default();
            self.function(path.region).sums.add_profile(&path.since(&before), true);
        }
    }

    fn estimates(&mut self, estimates: &[Estimate]) {
        for estimate in estimates {
            self.function(estimate.region);
            self.estimates.insert((estimate.location, estimate.region), *estimate);
        }
    }

    fn samples(&mut self, samples: &[Sample]) {
        let last = samples.iter().rfind(|sample| Some(sample.metric) == self.overhead);
        self.shown.overhead = last.map(|sample| Overhead::percent(sample.value)).or(self.shown.overhead);
    }

    fn event(&mut self, kind: &EventKind) {
        match kind {
            EventKind::Loss(loss) => *self.shown.losses.entry(loss.reason).or_default() += loss.count,
            EventKind::BlindWindow { .. } => self.shown.blind_windows += 1,
            EventKind::Level { region, to, .. } => self.function(*region).is_throttled = Some(*to == Level::Off),
            _ => {}
        }
    }

    /// The function of a region. From now on it is shown.
    fn function(&mut self, region: RegionId) -> &mut FunctionFigures {
        let place = match self.by_region.get(region.index()) {
            Some(&Some(place)) => place,
            _ => self.place(region),
        };
        &mut self.shown.functions[place]
    }

    #[cold]
    fn place(&mut self, region: RegionId) -> FunctionIndex {
        let known = self.regions.get(&region).cloned();
        let is_known = known.is_some();
        let labels = known.unwrap_or_else(|| (UNKNOWN.into(), UNKNOWN.into()));
        let functions = &mut self.shown.functions;
        let place = *self.by_labels.entry(labels).or_insert_with_key(|labels| {
            functions.push(FunctionFigures {
                labels: labels.clone(),
                // Durations are known to a power of two, as in paths.
                sums: Sums { latency: Latency::default().folded(), ..Sums::default() },
                is_throttled: None,
                without_record: None,
            });
            functions.len() - 1
        });
        // Ids of regions count up from 0. Of one that was not defined that is not certain.
        if is_known {
            let length = self.by_region.len().max(region.index() + 1);
            self.by_region.resize(length, None);
            self.by_region[region.index()] = Some(place);
        }
        place
    }
}
