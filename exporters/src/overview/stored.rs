//! `overview/`: an overview in a trace directory, and those of several traces as one.

use std::path::Path;

use rtrace_model::{Call, CallSiteId, LocationId, PathId, RegionId, Timestamp};

use super::axis::Axis;
use super::{Overview, Slice, durations};
use crate::Error;
use crate::directory::Directory;
use crate::file::{Decoder, Encoder};
use crate::schema::Row;

/// The folder of the files.
const PLACE: &str = "overview";

/// Single calls, with the columns of `calls/`.
const CALLS: &str = "calls.parquet";

/// Rows that are written at a time.
const ROWS: usize = 1 << 14;

/// What a thread did in a slice of time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ActivityRow {
    pub(crate) location: LocationId,
    pub(crate) start: Timestamp,
    /// Of the slice, in nanoseconds.
    pub(crate) length: u64,
    pub(crate) calls: u64,
    pub(crate) busy: u64,
}

/// Calls of a function that ended in a slice of time and took about as long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DurationsRow {
    pub(crate) region: RegionId,
    pub(crate) start: Timestamp,
    /// Of the slice, in nanoseconds.
    pub(crate) length: u64,
    /// The least duration that these calls may have.
    pub(crate) from: u64,
    pub(crate) calls: u64,
}

/// What the calls of a call path from one call site add up to, of paths with callers. Times in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SiteRow {
    /// The thread.
    pub location: LocationId,
    /// The path.
    pub path: PathId,
    /// Where the calls came from.
    pub site: CallSiteId,
    /// How many.
    pub calls: u64,
    /// Time with callees.
    pub inclusive: u64,
    /// Time without traced callees.
    pub exclusive: u64,
}

/// The rows of an overview.
#[derive(Debug, Default)]
pub(crate) struct StoredOverview {
    pub(crate) activity: Vec<ActivityRow>,
    pub(crate) durations: Vec<DurationsRow>,
    pub(crate) sites: Vec<SiteRow>,
    pub(crate) calls: Vec<Call>,
}

impl StoredOverview {
    /// The overview in a trace directory; `None` where there is none, or it cannot be read.
    pub(crate) fn read(directory: &Path) -> Option<StoredOverview> {
        let folder = directory.join(PLACE);
        folder.is_dir().then_some(())?;
        Some(StoredOverview {
            activity: rows(&folder.join(ActivityRow::PLACE))?,
            durations: rows(&folder.join(DurationsRow::PLACE))?,
            sites: rows(&folder.join(SiteRow::PLACE))?,
            calls: rows(&folder.join(CALLS))?,
        })
    }

    /// All calls of the recording.
    pub(crate) fn number(&self) -> u64 {
        self.activity.iter().fold(0, |sum, row| sum.saturating_add(row.calls))
    }
}

fn rows<T: Row>(path: &Path) -> Option<Vec<T>> {
    Decoder::open(path).and_then(Decoder::read_all).ok()
}

impl Overview {
    /// Writes it into a trace directory.
    pub(crate) fn write(&self, directory: &Directory, sites: impl Iterator<Item = SiteRow>) -> Result<(), Error> {
        let folder = directory.folder(PLACE)?;
        let axis = &self.activity_axis;
        let activity = self.threads().flat_map(|(location, activity)| {
            activity.told().iter().map(move |slice| ActivityRow {
                location,
                start: axis.time(slice.number),
                length: axis.width(),
                calls: slice.calls,
                busy: slice.busy,
            })
        });
        write(&folder, ActivityRow::PLACE, activity)?;
        let axis = &self.durations_axis;
        let durations = self.functions().flat_map(|(region, durations)| {
            durations.told().map(move |cell| DurationsRow {
                region,
                start: axis.time(cell.slice),
                length: axis.width(),
                from: durations::least(cell.step),
                calls: cell.calls.into(),
            })
        });
        write(&folder, DurationsRow::PLACE, durations)?;
        write(&folder, SiteRow::PLACE, sites)?;
        write(&folder, CALLS, self.chosen(1).into_iter())
    }

    /// Those of one or several recordings as one. A slice of theirs is in that slice in which its middle is, so times
    /// of several recordings may be a slice early or late.
    pub(crate) fn of(begin: Timestamp, parts: &[StoredOverview]) -> Overview {
        let mut overview = Overview::new(begin);
        let activity = || parts.iter().flat_map(|part| &part.activity);
        let durations = || parts.iter().flat_map(|part| &part.durations);
        let middle = |start: Timestamp, length: u64| Timestamp(start.0.saturating_add(length / 2));
        let reach = |axis: &mut Axis, (start, length): (Timestamp, u64)| {
            while axis.width() < length && axis.can_widen() || axis.slice(middle(start, length)).is_none() {
                axis.widen();
            }
        };
        activity().for_each(|row| reach(&mut overview.activity_axis, (row.start, row.length)));
        durations().for_each(|row| reach(&mut overview.durations_axis, (row.start, row.length)));
        for row in activity() {
            let thread = overview.thread(row.location);
            let number = overview.activity_axis.nearest(middle(row.start, row.length));
            let activity = &mut overview.threads[thread as usize].1;
            let before = activity.slices();
            activity.add(Slice { number, calls: row.calls, busy: row.busy });
            overview.slices += activity.slices() - before;
            overview.keep_small();
            overview.calls = overview.calls.saturating_add(row.calls);
        }
        for row in durations() {
            let function = overview.function(row.region);
            let calls = u32::try_from(row.calls).unwrap_or(u32::MAX);
            let slice = overview.durations_axis.nearest(middle(row.start, row.length));
            overview.cells += overview.functions[function as usize].durations.add(slice, row.from, calls);
            overview.keep_small();
        }
        overview.sites.extend(parts.iter().flat_map(|part| &part.sites));
        for call in parts.iter().flat_map(|part| &part.calls) {
            if let Some(duration) = call.duration {
                let (rank, function) = (u64::MAX - duration, overview.function(call.region));
                overview.functions[function as usize].slowest.add(rank, call);
                overview.chosen.add_slow(rank, call);
            }
            overview.chosen.add_sample(call);
        }
        overview
    }
}

fn write<T: Row>(folder: &Directory, name: &str, mut rows: impl Iterator<Item = T>) -> Result<(), Error> {
    let mut encoder = Encoder::create(folder, name, &[])?;
    loop {
        let some: Vec<T> = rows.by_ref().take(ROWS).collect();
        if some.is_empty() {
            return encoder.commit();
        }
        encoder.row_group(some.iter(), Vec::new())?;
    }
}
