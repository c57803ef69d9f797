//! The sink that fills a trace directory.
//!
//! Once a second everything is published, definitions before the calls that refer to them, so that
//! at any moment the directory is a readable trace of all but the last second.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::time::{Duration, Instant};

use rtrace_model::{
    Batch, Call, CallSite, CallSiteId, Context, ContextId, CpuSamples, Definition, Estimate, Event, FoldedPath, Header,
    Item, Library, LibraryId, Location, LocationId, Metric, MetricId, PathId, PathProfile, Process, Region, RegionId,
    Sample, Sink, SinkError, Summary, Timestamp, ValueBatch, ValueColumn,
};

use crate::directory::{Directory, Lock};
use crate::file::Encoder;
use crate::folding::Folding;
use crate::manifest::{Failure, Manifest};
use crate::schema::{Row as _, call_columns};
use crate::segment::Segments;
use crate::table::IdTable;
use crate::values::{self, ValueWriter};
use crate::{Error, Owner};

/// Time between publications: a little under the second between ticks, so that none of these comes
/// just too early.
const PERIOD: Duration = Duration::from_millis(900);

/// Keeps room on the disk in which the trace can say that there is no more.
const RESERVE: &str = ".reserve";
/// What it takes: more than `trace.json`.
const RESERVED_BYTES: usize = 32 << 10;

/// Rows of `folded.parquet` that are in memory at a time: each takes some 600 bytes, and its durations.
const FOLDED_ROWS: usize = 4_096;

/// Process and place of samples, and what led there.
type SampledPlace = (Option<u32>, Option<CallSiteId>, Option<ContextId>);

/// Writes a recording into a trace directory.
///
/// Dropped without [`finish`](Sink::finish), as after an error, the directory keeps what was
/// published and says that the recording did not end; a directory in which no recording began goes.
pub struct TraceWriter {
    directory: Directory,
    manifest: Manifest,
    begun: bool,
    libraries: IdTable<LibraryId, Library>,
    regions: IdTable<RegionId, Region>,
    processes: IdTable<(u32, Timestamp), Process>,
    locations: IdTable<LocationId, Location>,
    metrics: IdTable<MetricId, Metric>,
    call_sites: IdTable<CallSiteId, CallSite>,
    /// Present once calls have contexts.
    contexts: IdTable<ContextId, Context>,
    /// Present once a region has values.
    value_columns: IdTable<(RegionId, u32), ValueColumn>,
    values: HashMap<RegionId, ValueWriter>,
    calls: Segments<Call>,
    folding: Folding,
    events: Segments<Event>,
    /// Present once there is a profile: recordings without have no such file.
    profile: IdTable<(LocationId, PathId), PathProfile>,
    /// Present where CPU time is sampled.
    cpu_samples: IdTable<SampledPlace, CpuSamples>,
    /// Present where a budget has taken probes out.
    estimates: IdTable<(LocationId, RegionId), Estimate>,
    samples: Segments<Sample>,
    published: Instant,
    began: Instant,
    /// Calls that were taken.
    taken: u64,
    /// Calls of these that readers find.
    written: u64,
    lock: Option<Lock>,
}

impl TraceWriter {
    /// Makes the directory `path`, or takes an empty one.
    ///
    /// All that is made in it belongs to `owner` where one is given.
    ///
    /// # Errors
    /// The directory holds something, cannot be made, or not be given to its owner.
    pub fn create(path: &Path, owner: Option<Owner>) -> Result<TraceWriter, Error> {
        let directory = Directory::create(path, owner)?;
        Ok(TraceWriter {
            manifest: Manifest::recording(Header::default()),
            begun: false,
            libraries: IdTable::new(),
            regions: IdTable::new(),
            processes: IdTable::new(),
            locations: IdTable::new(),
            metrics: IdTable::new(),
            call_sites: IdTable::new(),
            contexts: IdTable::optional(),
            value_columns: IdTable::optional(),
            values: HashMap::new(),
            calls: Segments::create(&directory)?,
            folding: Folding::new(),
            events: Segments::create(&directory)?,
            profile: IdTable::optional(),
            estimates: IdTable::optional(),
            cpu_samples: IdTable::optional(),
            samples: Segments::create(&directory)?,
            published: Instant::now(),
            began: Instant::now(),
            taken: 0,
            written: 0,
            lock: Some(directory.lock()),
            directory,
        })
    }

    /// As [`create`](TraceWriter::create), and makes the directory around it unless it is there:
    /// for one of the traces that [`TraceSet`](crate::TraceSet) opens as one.
    ///
    /// # Errors
    /// As there; and the directory around it is a trace itself.
    pub fn create_member(path: &Path, owner: Option<Owner>) -> Result<TraceWriter, Error> {
        if let Some(around) = path.parent() {
            Directory::create_around(around, owner)?;
        }
        TraceWriter::create(path, owner)
    }

    fn publish(&mut self, is_last: bool) -> Result<(), Error> {
        self.libraries.publish(&self.directory)?;
        self.regions.publish(&self.directory)?;
        self.processes.publish(&self.directory)?;
        self.locations.publish(&self.directory)?;
        self.metrics.publish(&self.directory)?;
        self.call_sites.publish(&self.directory)?;
        self.contexts.publish(&self.directory)?;
        self.value_columns.publish(&self.directory)?;
        self.values.values_mut().try_for_each(|values| values.publish(is_last))?;
        self.events.publish(&mut |_, _| {})?;
        self.samples.publish(&mut |_, _| {})?;
        let metrics = self.calls.further() / 2;
        self.calls.publish(&mut |calls, readings| self.folding.chunk(calls, readings, metrics))?;
        self.profile.publish(&self.directory)?;
        self.estimates.publish(&self.directory)?;
        self.cpu_samples.publish(&self.directory)?;
        self.published = Instant::now();
        self.written = self.taken;
        Ok(())
    }

    /// Says in the trace why it ends, in the room that was kept for it: the disk may be full.
    fn give_up(&mut self, error: &Error) {
        if !self.begun || self.manifest.failure.is_some() {
            return;
        }
        let nanoseconds = |since: Instant| since.elapsed().as_nanos() as u64;
        self.manifest.failure = Some(Failure {
            error: error.to_string(),
            after_ns: nanoseconds(self.began),
            missing_ns: nanoseconds(self.published),
            calls: self.taken,
            written: self.written,
        });
        self.calls.abandon();
        self.directory.remove(RESERVE);
        // Without room, the trace says what one says that was killed.
        let _ = self.manifest.write(&self.directory);
    }

    /// Writes newer states of call sites into a trace that is finished already.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn name_call_sites<'a>(&mut self, sites: impl Iterator<Item = &'a CallSite>) -> Result<(), Error> {
        let known: HashSet<CallSiteId> = self.call_sites.rows().map(|site| site.id).collect();
        sites.filter(|site| known.contains(&site.id)).for_each(|site| self.call_sites.put(site.id, site));
        self.call_sites.publish(&self.directory)
    }

    fn push_calls(&mut self, batch: &Batch) -> Result<(), Error> {
        let defined = self.calls.further() / 2;
        if batch.metrics() != defined {
            return Err(Error::Readings { defined, found: batch.metrics() });
        }
        let mut values = Vec::with_capacity(2 * defined * batch.len());
        for index in 0..batch.len() {
            values.extend(batch.readings(index).iter().flat_map(|reading| [reading.inclusive, reading.child]));
            values.resize(2 * defined * (index + 1), 0);
        }
        let mut fold = |calls: &[Call], readings: &[u64]| self.folding.chunk(calls, readings, defined);
        self.calls.push_further(batch, &values, &mut fold)
    }

    /// Writes what the calls add up to, if that is exact. It comes last: a recording that was killed has no such file.
    fn write_folded(&mut self) -> Result<(), Error> {
        let metrics = self.calls.further() / 2;
        self.calls.close(&mut |calls, readings| self.folding.chunk(calls, readings, metrics));
        let folding = std::mem::replace(&mut self.folding, Folding::new());
        let Some(mut paths) = folding.into_paths(metrics) else { return Ok(()) };
        let mut encoder = Encoder::create(&self.directory, FoldedPath::PLACE, &[])?;
        loop {
            let rows: Vec<FoldedPath> = paths.by_ref().take(FOLDED_ROWS).collect();
            if rows.is_empty() {
                return encoder.commit();
            }
            encoder.row_group(rows.iter(), Vec::new())?;
        }
    }

    /// Columns are defined before the first values.
    fn push_values(&mut self, batch: &ValueBatch) -> Result<(), Error> {
        if !self.values.contains_key(&batch.region) {
            let columns = self.value_columns.rows().filter(|column| column.region == batch.region).cloned().collect();
            let name = self.regions.rows().find(|region| region.id == batch.region).map(values::folder_name);
            let name = name.unwrap_or_else(|| batch.region.0.to_string());
            let around = match self.values.is_empty() {
                true => self.directory.folder(values::PLACE)?,
                false => self.directory.existing_folder(values::PLACE)?,
            };
            self.values.insert(batch.region, ValueWriter::create(around.folder(&name)?, columns));
        }
        self.values.get_mut(&batch.region).map_or(Ok(()), |values| values.push(batch))
    }

    fn write(&mut self, item: &Item) -> Result<(), Error> {
        match item {
            Item::Begin(header) => return self.open(header),
            Item::Define(definitions) => definitions.iter().for_each(|definition| self.put(definition)),
            Item::Calls(batch) => {
                self.taken += batch.len() as u64;
                self.push_calls(batch)?;
                if self.calls.is_full() {
                    self.publish(false)?;
                }
            }
            Item::Values(batches) => batches.iter().try_for_each(|batch| self.push_values(batch))?,
            Item::Profile(paths) => {
                self.folding.give_up();
                paths.iter().for_each(|path| self.profile.put((path.location, path.path), path));
            }
            Item::Estimates(estimates) => {
                estimates.iter().for_each(|of| self.estimates.put((of.location, of.region), of))
            }
            Item::Samples(samples) => self.samples.push(samples)?,
            Item::Event(event) => self.events.push(std::slice::from_ref(event))?,
            Item::Tick if self.published.elapsed() >= PERIOD => self.publish(false)?,
            Item::Running(..) | Item::Tick => {}
            Item::Finish(summary) => return self.close(summary),
        }
        Ok(())
    }

    /// A directory with a `trace.json` has all other files, too: it comes last.
    fn open(&mut self, header: &Header) -> Result<(), Error> {
        self.manifest = Manifest::recording(header.clone());
        self.begun = true;
        let result = self.publish(false).and_then(|()| self.manifest.write(&self.directory));
        self.began = Instant::now();
        // It may be full already.
        let _ = self.directory.write(RESERVE, &[0; RESERVED_BYTES]);
        result
    }

    fn put(&mut self, definition: &Definition) {
        match definition {
            Definition::Library(library) => self.libraries.put(library.id, library),
            Definition::Region(region) => self.regions.put(region.id, region),
            Definition::Process(process) => self.processes.put((process.pid, process.start), process),
            Definition::Location(location) => self.locations.put(location.id, location),
            Definition::Metric(metric) => {
                self.metrics.put(metric.id, metric);
                self.calls.set_further(call_columns(self.metrics.rows()));
            }
            Definition::CallSite(site) => self.call_sites.put(site.id, site),
            Definition::Context(context) => self.contexts.put(context.id, context),
            Definition::ValueColumn(column) => self.value_columns.put((column.region, column.position), column),
            Definition::CpuSamples(samples) => {
                self.cpu_samples.put((samples.pid, samples.call_site, samples.context), samples);
            }
        }
    }

    fn close(&mut self, summary: &Summary) -> Result<(), Error> {
        self.manifest.finish(summary.clone());
        let written = self.publish(true).and_then(|()| self.write_folded());
        let result = written.and_then(|()| self.manifest.write(&self.directory));
        if result.is_ok() {
            self.directory.remove(RESERVE);
        }
        self.lock = None;
        result
    }
}

impl Drop for TraceWriter {
    fn drop(&mut self) {
        if !self.begun {
            self.directory.discard();
        }
    }
}

impl Sink for TraceWriter {
    fn take(&mut self, item: &Item) -> Result<(), SinkError> {
        self.write(item).map_err(|error| {
            self.give_up(&error);
            SinkError::new(format!("record into `{}`", self.directory.path().display()), error)
        })
    }
}
