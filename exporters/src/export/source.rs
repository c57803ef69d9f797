//! A trace as a format sees it: the chosen calls, and the names of what they refer to.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::ops::Deref;

use rtrace_model::{Batch, Call, LocationId, Measured, Metric, Region, RegionId, Scope, Timestamp};

use super::nesting::{self, Findings, Visitor};
use super::spool::{Spool, Spooler};
use super::step::PathStep;
use super::threads::{ProgramLifetime, Threads};
use super::{ExportError, Exported, Selection};
use crate::{Led, SampledTime, TraceSet, Untraced, ValueReader, sampled_beside_calls};

/// Calls whose values are looked up together: those of all threads may be under way at once.
const TOGETHER: usize = 1 << 8;

/// A stored trace with a selection of its calls.
///
/// Derefs to the trace.
pub(super) struct Excerpt<'a> {
    trace: &'a TraceSet,
    pub(super) threads: Threads,
    call_metrics: Vec<Metric>,
    sampled_metrics: Vec<Metric>,
    selection: &'a Selection,
    findings: RefCell<BTreeMap<LocationId, Findings>>,
    untraced: RefCell<Untraced>,
}

impl Deref for Excerpt<'_> {
    type Target = TraceSet;

    fn deref(&self) -> &TraceSet {
        self.trace
    }
}

impl<'a> Excerpt<'a> {
    pub(super) fn new(trace: &'a TraceSet, selection: &'a Selection) -> Excerpt<'a> {
        let (call_metrics, sampled_metrics) =
            trace.metrics().iter().cloned().partition(|metric| metric.scope == Scope::Call);
        let threads = Threads::of(trace);
        let (findings, untraced) = (RefCell::default(), RefCell::default());
        Excerpt { trace, threads, call_metrics, sampled_metrics, selection, findings, untraced }
    }

    /// What was written so far.
    pub(super) fn exported(&self) -> Exported {
        self.findings.borrow().values().fold(Exported::default(), |sum, of_location| Exported {
            calls: sum.calls + of_location.calls,
            lost_callers: sum.lost_callers + of_location.lost_callers,
            moved: sum.moved + of_location.moved,
        })
    }

    /// Whether calls may be left out of the export.
    pub(super) fn is_selection(&self) -> bool {
        !self.selection.is_all()
    }

    /// The chosen calls as they are stored: roughly in the order of their ends.
    pub(super) fn batches(&self) -> impl Iterator<Item = Result<Batch, ExportError>> {
        self.read().inspect(|batch| {
            let mut findings = self.findings.borrow_mut();
            for call in batch.iter().flat_map(|batch| batch.iter()) {
                findings.entry(call.location).or_default().calls += 1;
            }
        })
    }

    /// The chosen calls thread by thread, callers before callees, without their values.
    pub(super) fn nested(&self) -> Result<Nested<'_>, ExportError> {
        self.spooled(None)
    }

    /// As [`nested`](Excerpt::nested), with their values.
    pub(super) fn nested_with_values(&self) -> Result<Nested<'_>, ExportError> {
        self.spooled(self.has_values().then(|| self.trace.value_reader()))
    }

    /// Whether calls have arguments or results.
    pub(super) fn has_values(&self) -> bool {
        !self.value_columns().is_empty()
    }

    /// Whether it was recorded which untraced functions led to calls.
    pub(super) fn has_contexts(&self) -> bool {
        !self.contexts().is_empty()
    }

    fn spooled(&self, values: Option<ValueReader<'a>>) -> Result<Nested<'_>, ExportError> {
        let mut batches = self.read().peekable();
        let metrics = match batches.peek() {
            Some(Ok(batch)) => batch.metrics(),
            _ => 0,
        };
        let mut spooler = Spooler::new(metrics)?;
        for batch in batches {
            spooler.add(&batch?)?;
        }
        let values = values.map(RefCell::new);
        Ok(Nested { source: self, spool: spooler.finish()?, values })
    }

    fn read(&self) -> impl Iterator<Item = Result<Batch, ExportError>> {
        self.trace.calls().map(|batch| Ok(self.selection.apply(batch?)))
    }

    /// The region's name for people.
    pub(super) fn function(&self, id: RegionId) -> &str {
        self.region(id).map_or("not defined", |region| region.name.as_str())
    }

    /// The same where its library is not told beside it.
    pub(super) fn function_alone(&self, id: RegionId) -> Cow<'_, str> {
        self.trace.function(id).unwrap_or(Cow::Borrowed("not defined"))
    }

    /// The name that the linker knows the region by.
    pub(super) fn symbol(&self, id: RegionId) -> Cow<'_, str> {
        self.trace.region(id).map_or(Cow::Borrowed("not defined"), Region::symbol)
    }

    /// Name of the library that the region is in.
    pub(super) fn library_of(&self, id: RegionId) -> &str {
        let library = self.region(id).and_then(|region| self.library(region.library));
        library.map_or("not defined", |library| library.name())
    }

    /// The source file of the region, and the line of its first instruction.
    pub(super) fn begin_of(&self, id: RegionId) -> (Option<&str>, Option<u32>) {
        self.region(id).map_or((None, None), |region| (region.source_file.as_deref(), region.source_line))
    }

    /// The place that a call comes from, as people read it.
    pub(super) fn call_site_of(&self, call: &Call) -> Option<String> {
        Some(self.call_site(call.call_site?)?.to_string())
    }

    /// What a step of a call path is called.
    pub(super) fn step(&self, step: PathStep) -> String {
        let program = |program: &ProgramLifetime| format!("{} ({})", program.name, program.pid);
        match step {
            PathStep::Program(place) => program(&self.threads.programs[place]),
            PathStep::Thread(location) => {
                let thread = self.threads.thread(location);
                format!("{} ({})", thread.name, thread.tid)
            }
            PathStep::Function(region) => self.function_alone(region).into_owned(),
            PathStep::Untraced(id) => self.untraced.borrow().name(id).to_owned(),
        }
    }

    /// The untraced functions that led to a call, the outermost first.
    pub(super) fn led_to(&self, call: &Call) -> Vec<PathStep> {
        let mut untraced = self.untraced.borrow_mut();
        let chain =
            untraced.of(self.trace, Led { site: call.call_site, context: call.context, is_root: call.parent == 0 });
        chain.map_or_else(Vec::new, |chain| untraced.chain(chain).iter().copied().map(PathStep::Untraced).collect())
    }

    /// The CPU time beside traced calls, by samples: each process with the functions from the outermost on, and nanoseconds.
    pub(super) fn sampled(&self) -> Vec<(Option<PathStep>, Vec<PathStep>, u64)> {
        let mut untraced = self.untraced.borrow_mut();
        let sampled = sampled_beside_calls(self.trace, &mut untraced);
        let told = sampled.into_iter().map(|SampledTime { pid, chain, time }| {
            let program = self.threads.programs.iter().position(|program| program.pid == pid);
            let steps = untraced.chain(chain).iter().copied().map(PathStep::Untraced).collect();
            (program.map(PathStep::Program), steps, time)
        });
        told.collect()
    }

    /// The same by name, where contexts were recorded.
    pub(super) fn context_of(&self, call: &Call) -> Option<Vec<String>> {
        let steps = self.led_to(call);
        (!steps.is_empty()).then(|| steps.into_iter().map(|step| self.step(step)).collect())
    }

    /// Whether something of that time is selected.
    pub(super) fn spans(&self, time: Timestamp) -> bool {
        self.selection.spans(time)
    }

    /// The metrics that calls have readings of, in the order of the readings.
    pub(super) fn call_metrics(&self) -> &[Metric] {
        &self.call_metrics
    }

    /// The metrics that have values beside the calls.
    pub(super) fn sampled_metrics(&self) -> &[Metric] {
        &self.sampled_metrics
    }

    /// Nanoseconds since the recording began.
    pub(super) fn offset(&self, time: Timestamp) -> u64 {
        time.since(self.header().begin.monotonic)
    }
}

/// The chosen calls of a trace, thread by thread, with callers before callees.
pub(super) struct Nested<'s> {
    source: &'s Excerpt<'s>,
    spool: Spool,
    values: Option<RefCell<ValueReader<'s>>>,
}

impl Nested<'_> {
    /// The locations with calls.
    pub(super) fn locations(&self) -> impl Iterator<Item = LocationId> {
        self.spool.locations()
    }

    /// Visits the enters and exits of one location in their order.
    pub(super) fn visit<V: Visitor + ?Sized>(
        &self,
        location: LocationId,
        visitor: &mut V,
    ) -> Result<Findings, ExportError> {
        let calls = self.calls(location);
        let findings = nesting::visit(calls, !self.source.selection.is_all(), visitor)?;
        self.source.findings.borrow_mut().insert(location, findings);
        Ok(findings)
    }

    /// The calls of one location in the order of their enters.
    pub(super) fn calls(&self, location: LocationId) -> impl Iterator<Item = Result<Measured, ExportError>> {
        let mut calls = self.spool.calls(location);
        let mut ready = Vec::new().into_iter();
        std::iter::from_fn(move || {
            if ready.len() == 0 {
                match self.some(&mut calls) {
                    Ok(some) => ready = some.into_iter(),
                    Err(error) => return Some(Err(error)),
                }
            }
            ready.next().map(Ok)
        })
    }

    /// The next of these calls, with their values.
    fn some(&self, calls: &mut impl Iterator<Item = io::Result<Measured>>) -> Result<Vec<Measured>, ExportError> {
        let mut some = calls.take(TOGETHER).collect::<io::Result<Vec<Measured>>>()?;
        if let Some(values) = &self.values {
            let calls: Vec<Call> = some.iter().map(|measured| measured.call).collect();
            let found = values.borrow_mut().of(&calls)?;
            some.iter_mut().zip(found).for_each(|(measured, values)| measured.values = values);
        }
        Ok(some)
    }
}
