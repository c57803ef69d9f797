//! A trace directory opened for reading: finished, still being written, or left by a recorder that
//! was killed.
//!
//! Definitions are read at once. Calls and events may be any number, so they are read row group by
//! row group, from either end.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use rtrace_model::{
    Batch, Call, Event, EventKind, FoldedPath, Header, Location, Loss, Process, Reading, RegionId, Sample, Summary,
    Timestamp, Untimed, ValueBatch, words,
};

use crate::definitions::Definitions;
use crate::file::{self, Decoder};
use crate::manifest::{self, Manifest};
use crate::schema::{Row as _, Stream, call_columns};
use crate::{Error, directory, values};

/// A stored trace, with its [definitions](Definitions).
#[derive(Debug)]
pub struct Trace {
    directory: PathBuf,
    manifest: Manifest,
    definitions: Definitions,
    /// The segments of each region that has some.
    values: HashMap<RegionId, Vec<PathBuf>>,
    calls: Vec<RowGroup>,
    /// The columns of calls that hold readings.
    readings: Vec<String>,
    events: Vec<RowGroup>,
    samples: Vec<RowGroup>,
    warnings: Vec<Warning>,
}

words! {
    /// Whether a recording has ended.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    Status {
        /// It ended well, and the trace is whole.
        Finished = "finished",
        /// It goes on.
        Recording = "recording",
        /// It was killed; its last second may be missing. So it looks, too, while another machine
        /// records into a network file system that keeps no locks.
        Abandoned = "abandoned",
    }
}

/// Something that the trace should hold and does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning(String);

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[derive(Debug)]
struct RowGroup {
    segment: PathBuf,
    index: usize,
    rows: u64,
    /// Of calls: when the first of them began, and a time after which all had ended; absent where it is not known.
    reach: Option<[Timestamp; 2]>,
}

impl RowGroup {
    /// Whether calls may be in it that ran within that time.
    fn reaches(&self, from: Timestamp, to: Timestamp) -> bool {
        self.reach.is_none_or(|[first, last]| first <= to && last >= from)
    }
}

impl Deref for Trace {
    type Target = Definitions;

    fn deref(&self) -> &Definitions {
        &self.definitions
    }
}

impl Trace {
    /// Opens the trace directory `path`.
    ///
    /// Segments that a crash of the machine left incomplete are left out of an unfinished trace,
    /// with a [warning](Trace::warnings).
    ///
    /// # Errors
    /// There is no trace, its schema is another, a file is missing or cannot be read.
    pub fn open(path: &Path) -> Result<Trace, Error> {
        let manifest = Manifest::read(path)?;
        let mut warnings: Vec<Warning> = manifest.failure.iter().map(|failure| Warning(failure.to_string())).collect();
        let skipped = match manifest.status {
            manifest::StoredStatus::Recording => Some(&mut warnings),
            manifest::StoredStatus::Finished => None,
        };
        let mut segments = SegmentFinder { directory: path, skipped };
        let calls = segments.row_groups::<Call>()?;
        let events = segments.row_groups::<Event>()?;
        let samples = segments.row_groups::<Sample>()?;
        let definitions = Definitions::read(path)?;
        let values = segments.values(&definitions)?;
        Ok(Trace {
            directory: path.to_owned(),
            manifest,
            readings: call_columns(definitions.metrics.iter()),
            definitions,
            values,
            calls,
            events,
            samples,
            warnings,
        })
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Whether the recording has ended, and how.
    pub fn status(&self) -> Status {
        match self.manifest.status {
            manifest::StoredStatus::Finished => Status::Finished,
            manifest::StoredStatus::Recording if directory::is_being_written(&self.directory) => Status::Recording,
            manifest::StoredStatus::Recording => Status::Abandoned,
        }
    }

    /// Whether the recorder could not write on, which a [warning](Trace::warnings) describes.
    pub fn has_failed(&self) -> bool {
        self.manifest.failure.is_some()
    }

    /// What was known when the recording began.
    pub fn header(&self) -> &Header {
        &self.manifest.header
    }

    /// What was known when it had ended; absent while it runs and when its end was not written.
    pub fn summary(&self) -> Option<&Summary> {
        self.manifest.summary.as_ref()
    }

    /// What is missing, found while opening.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// The values of the calls of a region, in batches sorted by location and call id.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn values(&self, region: RegionId) -> Result<Vec<ValueBatch>, Error> {
        let columns = self.value_columns_of(region);
        let mut batches = Vec::new();
        for segment in self.value_segments(region) {
            batches.extend(values::read(segment, region, columns)?);
        }
        Ok(batches)
    }

    /// The files with the values of the calls of a region.
    pub(crate) fn value_segments(&self, region: RegionId) -> &[PathBuf] {
        self.values.get(&region).map_or(&[], Vec::as_slice)
    }

    /// The process that a location belongs to: the last of its pid that began before it, or else the first of its pid.
    /// The start of a process may be known a little less exactly than that of its threads.
    pub fn process_of(&self, location: &Location) -> Option<&Process> {
        let after =
            self.processes().partition_point(|process| (process.pid, process.start) <= (location.pid, location.start));
        let is_meant = |process: &&Process| process.pid == location.pid;
        let before = after.checked_sub(1).and_then(|place| self.processes().get(place)).filter(is_meant);
        before.or_else(|| self.processes().get(after).filter(is_meant))
    }

    /// The calls in batches of at most some 100,000, batches roughly in the order in which calls
    /// ended, each sorted by location and call id. Reversed, the last calls come first.
    pub fn calls(&self) -> impl DoubleEndedIterator<Item = Result<Batch, Error>> {
        self.calls.iter().map(|group| self.batch(group))
    }

    /// The batches that may have calls which ran within that time, and the batch before each of these: a call that was
    /// not timed may be stored before those that it made.
    pub(crate) fn calls_near(
        &self,
        from: Timestamp,
        to: Timestamp,
    ) -> impl DoubleEndedIterator<Item = Result<Batch, Error>> {
        let is_near = move |place: usize| self.calls.get(place).is_some_and(|group| group.reaches(from, to));
        let groups = self.calls.iter().enumerate();
        groups.filter(move |&(place, _)| is_near(place) || is_near(place + 1)).map(|(_, group)| self.batch(group))
    }

    fn batch(&self, group: &RowGroup) -> Result<Batch, Error> {
        let (calls, values) = Decoder::open(&group.segment)?.read_further(vec![group.index], &self.readings)?;
        let reading = |pair: &[u64]| Reading { inclusive: pair[0], child: pair[1] };
        let readings = values.chunks_exact(2).map(reading).collect();
        Ok(Batch::measured(calls, self.readings.len() / 2, readings))
    }

    /// Calls on record, without reading them.
    pub fn recorded_calls(&self) -> u64 {
        self.calls.iter().map(|group| group.rows).sum()
    }

    /// The calls on record folded by call path, by location, callers before their callees. `None` where the recorder
    /// has not written them: the recording goes on or was killed, calls that made others were lost, or there were too many
    /// paths; and where they are not what is in `calls/`, as another program has changed that.
    pub fn folded(&self) -> Option<Vec<FoldedPath>> {
        let path = self.directory.join(FoldedPath::PLACE);
        if self.manifest.status != manifest::StoredStatus::Finished || !self.profile().is_empty() || !path.exists() {
            return None;
        }
        // What cannot be read is in the calls, too.
        let paths = Decoder::<FoldedPath>::open(&path).and_then(Decoder::read_all).ok()?;
        let calls = paths.iter().fold(0, |sum: u64, path| sum.saturating_add(path.profile.calls));
        (calls == self.recorded_calls()).then_some(paths)
    }

    /// The events in batches, by time within each.
    pub fn events(&self) -> impl DoubleEndedIterator<Item = Result<Vec<Event>, Error>> {
        read_groups(&self.events)
    }

    /// The values of metrics beside the calls, in batches, by metric, instance and time within each.
    pub fn samples(&self) -> impl DoubleEndedIterator<Item = Result<Vec<Sample>, Error>> {
        read_groups(&self.samples)
    }

    /// What is known to be missing: from the summary, of an unfinished trace from the events.
    ///
    /// # Errors
    /// The events cannot be read.
    pub fn losses(&self) -> Result<Vec<Loss>, Error> {
        self.told(
            |summary| &summary.losses,
            |kind| match kind {
                EventKind::Loss(loss) => Some(loss),
                _ => None,
            },
        )
    }

    /// How many calls were not timed, and why: from the summary, of an unfinished trace from the
    /// events.
    ///
    /// # Errors
    /// The events cannot be read.
    pub fn untimed(&self) -> Result<Vec<Untimed>, Error> {
        self.told(
            |summary| &summary.untimed,
            |kind| match kind {
                EventKind::Untimed(untimed) => Some(untimed),
                _ => None,
            },
        )
    }

    /// What the summary tells at the end, and events tell until then.
    fn told<T: Clone>(
        &self,
        at_end: impl Fn(&Summary) -> &Vec<T>,
        until_then: impl Fn(EventKind) -> Option<T>,
    ) -> Result<Vec<T>, Error> {
        if let Some(summary) = self.summary() {
            return Ok(at_end(summary).clone());
        }
        let mut told = Vec::new();
        for events in self.events() {
            told.extend(events?.into_iter().filter_map(|event| until_then(event.kind)));
        }
        Ok(told)
    }
}

fn read_groups<T: Stream>(groups: &[RowGroup]) -> impl DoubleEndedIterator<Item = Result<Vec<T>, Error>> {
    groups.iter().map(|group| Decoder::open(&group.segment)?.read(vec![group.index]))
}

/// Finds the segments of a trace.
struct SegmentFinder<'a> {
    directory: &'a Path,
    /// Where to note segments that cannot be read; none may be where a recording has finished.
    skipped: Option<&'a mut Vec<Warning>>,
}

impl SegmentFinder<'_> {
    fn row_groups<T: Stream>(&mut self) -> Result<Vec<RowGroup>, Error> {
        let mut groups = Vec::new();
        for segment in list(&self.directory.join(T::PLACE))? {
            groups.extend(self.unless_incomplete(row_groups::<T>(&segment))?.unwrap_or_default());
        }
        Ok(groups)
    }

    /// The segments with the values of each region. Of a finished trace, they are opened when they are needed.
    fn values(&mut self, definitions: &Definitions) -> Result<HashMap<RegionId, Vec<PathBuf>>, Error> {
        let has_values: HashSet<RegionId> = definitions.value_columns.iter().map(|column| column.region).collect();
        let mut found = HashMap::new();
        for region in definitions.regions.iter().filter(|region| has_values.contains(&region.id)) {
            let folder = values::folder_of(self.directory, region);
            if !folder.exists() {
                continue;
            }
            let mut segments = list(&folder)?;
            if self.skipped.is_some() {
                let mut complete = Vec::new();
                for segment in segments {
                    complete.extend(self.unless_incomplete(file::check(&segment).map(|()| segment))?);
                }
                segments = complete;
            }
            found.insert(region.id, segments);
        }
        Ok(found)
    }

    /// What was read of a segment; nothing, with a warning, where the recording did not finish.
    fn unless_incomplete<T>(&mut self, read: Result<T, Error>) -> Result<Option<T>, Error> {
        match (read, &mut self.skipped) {
            (Ok(found), _) => Ok(Some(found)),
            (Err(error), Some(warnings)) => {
                warnings.push(Warning(format!("left out a segment: {error}")));
                Ok(None)
            }
            (Err(error), None) => Err(error),
        }
    }
}

fn row_groups<T: Stream>(segment: &Path) -> Result<Vec<RowGroup>, Error> {
    let decoder = Decoder::<T>::open(segment)?;
    let starts = decoder.ranges("start_ns").into_iter().zip(decoder.ranges("duration_ns"));
    let reaches = starts.map(|(start, duration)| {
        let ([first, last], [_, longest]) = (start?, duration?);
        Some([first, last.saturating_add(longest)].map(Timestamp))
    });
    let groups = decoder.rows().into_iter().zip(reaches).enumerate();
    Ok(groups.map(|(index, (rows, reach))| RowGroup { segment: segment.to_owned(), index, rows, reach }).collect())
}

/// The segments in a folder, in their order; temporary files are none.
pub(crate) fn list(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut segments = Vec::new();
    for entry in fs::read_dir(folder).map_err(Error::io("open", folder))? {
        let path = entry.map_err(Error::io("read", folder))?.path();
        let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if !hidden && path.extension().is_some_and(|extension| extension == "parquet") {
            segments.push(path);
        }
    }
    // By number: a millionth segment has a longer name.
    segments.sort_by(|a, b| (a.as_os_str().len(), a).cmp(&(b.as_os_str().len(), b)));
    Ok(segments)
}
