//! Calls sorted by location and id: an external merge sort.
//!
//! Calls are stored as they end, so an outer call may come any time after its callees, and no window
//! of bounded size puts them into the order of their enters. But every batch of a trace is sorted by
//! location and id already. So each batch's part of a location is a run; the runs go into one
//! temporary file, and those of a location are merged while they are read back, a block each in
//! memory. Most runs follow each other without overlap and are opened when their first id is due.
//!
//! A call takes about a dozen bytes in the file. The file has no name: whatever happens, nothing of
//! it is left.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use rtrace_model::{Batch, Call, CallSiteId, ContextId, Ending, LocationId, Measured, Reading, RegionId, Timestamp};

use super::varint;

/// Bytes that a run under way keeps in memory.
const BLOCK: usize = 16 * 1024;

/// Integers per call beside the readings, at most: a call that was not timed has no duration.
const INTEGERS: usize = 8;

/// The sorted parts of the calls, being collected.
pub(super) struct Spooler {
    file: BufWriter<File>,
    written: u64,
    metrics: usize,
    runs: BTreeMap<LocationId, Vec<SpoolRun>>,
    bytes: Vec<u8>,
}

/// All calls, ready to be read sorted.
pub(super) struct Spool {
    file: File,
    metrics: usize,
    runs: BTreeMap<LocationId, Vec<SpoolRun>>,
}

/// Calls of one location, sorted by id.
#[derive(Clone, Copy, Debug)]
struct SpoolRun {
    first: u64,
    begin: u64,
    end: u64,
}

impl Spooler {
    /// For calls with `metrics` readings each.
    pub(super) fn new(metrics: usize) -> io::Result<Spooler> {
        let file = BufWriter::with_capacity(1 << 20, temporary()?);
        Ok(Spooler { file, written: 0, metrics, runs: BTreeMap::new(), bytes: Vec::new() })
    }

    /// Adds calls.
    pub(super) fn add(&mut self, batch: &Batch) -> io::Result<()> {
        let mut order: Vec<usize> = (0..batch.len()).collect();
        let key = |index: &usize| (batch[*index].location, batch[*index].id);
        if !order.is_sorted_by_key(key) {
            order.sort_by_key(key);
        }
        for run in order.chunk_by(|&a, &b| batch[a].location == batch[b].location) {
            self.bytes.clear();
            let mut before = PreviousCall::default();
            for &index in run {
                before.put(&mut self.bytes, &batch[index]);
                let readings = batch.readings(index);
                for place in 0..if batch[index].is_timed() { self.metrics } else { 0 } {
                    let reading = readings.get(place).copied().unwrap_or_default();
                    varint::put(&mut self.bytes, reading.inclusive);
                    varint::put(&mut self.bytes, reading.child);
                }
            }
            self.file.write_all(&self.bytes).map_err(named("write"))?;
            let first = &batch[run[0]];
            let (begin, end) = (self.written, self.written + self.bytes.len() as u64);
            self.runs.entry(first.location).or_default().push(SpoolRun { first: first.id, begin, end });
            self.written = end;
        }
        Ok(())
    }

    pub(super) fn finish(self) -> io::Result<Spool> {
        let file = self.file.into_inner().map_err(|error| named("write")(error.into_error()))?;
        Ok(Spool { file, metrics: self.metrics, runs: self.runs })
    }
}

impl Spool {
    /// The locations with calls.
    pub(super) fn locations(&self) -> impl Iterator<Item = LocationId> {
        self.runs.keys().copied()
    }

    /// The calls of one location in the order of their ids.
    pub(super) fn calls(&self, location: LocationId) -> Sorted<'_> {
        let runs = self.runs.get(&location).map_or(&[][..], Vec::as_slice);
        let due = runs.iter().enumerate().map(|(index, run)| Reverse((run.first, index))).collect();
        Sorted { spool: self, location, runs, open: BTreeMap::new(), due }
    }
}

/// The calls of one location in the order of their ids.
pub(super) struct Sorted<'a> {
    spool: &'a Spool,
    location: LocationId,
    runs: &'a [SpoolRun],
    open: BTreeMap<usize, Cursor<'a>>,
    /// The next id of every run that is not at its end.
    due: BinaryHeap<Reverse<(u64, usize)>>,
}

impl Sorted<'_> {
    fn take(&mut self) -> io::Result<Option<Measured>> {
        let Some(mut due) = self.due.peek_mut() else { return Ok(None) };
        let Reverse((_, index)) = *due;
        let cursor = match self.open.entry(index) {
            std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::btree_map::Entry::Vacant(entry) => {
                entry.insert(Cursor::open(self.spool, self.location, self.runs[index])?)
            }
        };
        let measured = cursor.next.take();
        cursor.advance()?;
        match &cursor.next {
            Some(next) => *due = Reverse((next.call.id, index)),
            None => {
                std::collections::binary_heap::PeekMut::pop(due);
                self.open.remove(&index);
            }
        }
        Ok(measured)
    }
}

impl Iterator for Sorted<'_> {
    type Item = io::Result<Measured>;

    fn next(&mut self) -> Option<io::Result<Measured>> {
        self.take().map_err(named("read")).transpose()
    }
}

/// A place in a run.
struct Cursor<'a> {
    spool: &'a Spool,
    location: LocationId,
    /// What of the run is not in `block` yet.
    rest: std::ops::Range<u64>,
    block: Vec<u8>,
    at: usize,
    before: PreviousCall,
    next: Option<Measured>,
}

impl<'a> Cursor<'a> {
    fn open(spool: &'a Spool, location: LocationId, run: SpoolRun) -> io::Result<Cursor<'a>> {
        let (rest, before) = (run.begin..run.end, PreviousCall::default());
        let mut cursor = Cursor { spool, location, rest, block: Vec::new(), at: 0, before, next: None };
        cursor.advance()?;
        Ok(cursor)
    }

    /// Puts the next call into `next`.
    fn advance(&mut self) -> io::Result<()> {
        let metrics = self.spool.metrics;
        let longest = varint::LONGEST * (INTEGERS + 2 * metrics);
        if self.block.len() - self.at < longest && !self.rest.is_empty() {
            self.refill(longest)?;
        }
        if self.at == self.block.len() {
            self.next = None;
            return Ok(());
        }
        let mut bytes = &self.block[self.at..];
        let measured = self.before.take(&mut bytes, self.location).and_then(|call| {
            let reading = |_| Some(Reading { inclusive: varint::take(&mut bytes)?, child: varint::take(&mut bytes)? });
            let readings = (0..if call.is_timed() { metrics } else { 0 }).map(reading).collect::<Option<_>>()?;
            Some(Measured { call, readings, values: None })
        });
        self.next = Some(measured.ok_or(io::ErrorKind::InvalidData)?);
        self.at = self.block.len() - bytes.len();
        Ok(())
    }

    /// Reads on, until so many bytes are in memory, or all that are left.
    fn refill(&mut self, longest: usize) -> io::Result<()> {
        self.block.drain(..self.at);
        self.at = 0;
        let kept = self.block.len();
        let wanted = BLOCK.max(longest) as u64;
        let more = wanted.min(self.rest.end - self.rest.start);
        self.block.resize(kept + more as usize, 0);
        self.spool.file.read_exact_at(&mut self.block[kept..], self.rest.start)?;
        self.rest.start += more;
        Ok(())
    }
}

/// What the next call of a run is written relative to.
#[derive(Default)]
struct PreviousCall {
    id: u64,
    start: u64,
}

impl PreviousCall {
    fn put(&mut self, bytes: &mut Vec<u8>, call: &Call) {
        varint::put_difference(bytes, self.id, call.id);
        varint::put_difference(bytes, call.id, call.parent);
        varint::put_difference(bytes, self.start, call.start.0);
        varint::put(bytes, call.ending as u64);
        if let Some(duration) = call.duration {
            varint::put(bytes, duration);
        }
        varint::put(bytes, call.child);
        varint::put(bytes, call.region.0.into());
        varint::put(bytes, call.depth.into());
        varint::put(bytes, call.call_site.map_or(0, |site| u64::from(site.0) + 1));
        varint::put(bytes, call.context.map_or(0, |context| u64::from(context.0) + 1));
        (self.id, self.start) = (call.id, call.start.0);
    }

    fn take(&mut self, bytes: &mut &[u8], location: LocationId) -> Option<Call> {
        let id = varint::take_difference(bytes, self.id)?;
        let parent = varint::take_difference(bytes, id)?;
        let start = varint::take_difference(bytes, self.start)?;
        (self.id, self.start) = (id, start);
        let ending = *Ending::ALL.get(usize::try_from(varint::take(bytes)?).ok()?)?;
        Some(Call {
            location,
            id,
            parent,
            start: Timestamp(start),
            duration: if ending == Ending::Unseen { None } else { Some(varint::take(bytes)?) },
            child: varint::take(bytes)?,
            region: RegionId(varint::take(bytes)?.try_into().ok()?),
            depth: varint::take(bytes)?.try_into().ok()?,
            ending,
            call_site: match varint::take(bytes)? {
                0 => None,
                next => Some(CallSiteId((next - 1).try_into().ok()?)),
            },
            context: match varint::take(bytes)? {
                0 => None,
                next => Some(ContextId((next - 1).try_into().ok()?)),
            },
        })
    }
}

/// Where large temporary files go: not `/tmp`, which may be memory.
fn folder() -> PathBuf {
    std::env::var_os("TMPDIR").map_or_else(|| PathBuf::from("/var/tmp"), PathBuf::from)
}

/// A file without a name.
pub(super) fn temporary() -> io::Result<File> {
    tempfile::tempfile_in(folder()).map_err(named("create"))
}

pub(super) fn named(action: &'static str) -> impl FnOnce(io::Error) -> io::Error {
    move |error| {
        let folder = folder();
        io::Error::new(error.kind(), format!("failed to {action} a temporary file in `{}`: {error}", folder.display()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;

    use super::*;

    fn call(location: u32, id: u64, noise: u64) -> Call {
        let ending = Ending::ALL[(noise % 4) as usize];
        Call {
            location: LocationId(location),
            region: RegionId(noise as u32),
            id,
            parent: noise.rotate_left(7),
            depth: (noise >> 40) as u32,
            start: Timestamp(noise),
            duration: (ending != Ending::Unseen).then_some(noise.rotate_left(19)),
            child: noise >> 30,
            ending,
            call_site: noise.is_multiple_of(3).then_some(CallSiteId((noise >> 20) as u32)),
            context: noise.is_multiple_of(5).then_some(ContextId((noise >> 24) as u32)),
        }
    }

    proptest! {
        #[test]
        fn any_calls_come_back_sorted(
            batches in prop::collection::vec(
                prop::collection::vec((1..4_u32, any::<u64>(), any::<u64>()), 0..600), 0..6),
            metrics in 0..3_usize,
        ) {
            let mut spooler = Spooler::new(metrics).unwrap();
            let mut expected = Vec::new();
            for batch in &batches {
                let calls: Vec<Call> = batch.iter().map(|&(location, id, noise)| call(location, id, noise)).collect();
                let readings: Vec<Reading> = (0..calls.len() * metrics)
                    .map(|n| Reading { inclusive: calls[n / metrics].id ^ n as u64, child: n as u64 })
                    .collect();
                let batch = Batch::measured(calls, metrics, readings);
                spooler.add(&batch).unwrap();
                expected.extend((0..batch.len()).map(|index| Measured {
                    call: batch[index],
                    readings: batch.readings(index).into(),
                    values: None,
                }));
            }
            expected.sort_by_key(|measured| (measured.call.location, measured.call.id));
            let spool = spooler.finish().unwrap();
            let found: Vec<Measured> =
                spool.locations().flat_map(|location| spool.calls(location)).map(Result::unwrap).collect();
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn runs_wait_until_they_are_due() {
        let mut spooler = Spooler::new(0).unwrap();
        for batch in 0..50 {
            let calls: Vec<Call> = (0..1000).map(|n| call(1, batch * 1000 + n, n)).collect();
            spooler.add(&Batch::from(calls)).unwrap();
        }
        let spool = spooler.finish().unwrap();
        let mut sorted = spool.calls(LocationId(1));
        let mut seen = 0;
        while let Some(call) = sorted.next() {
            assert_eq!(call.unwrap().call.id, seen);
            assert!(sorted.open.len() <= 1);
            seen += 1;
        }
        assert_eq!(seen, 50_000);
    }
}
