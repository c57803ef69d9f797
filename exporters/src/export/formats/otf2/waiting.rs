//! Records that wait in a temporary file until their thread is written: those of each thread in the order in which they
//! were added, a block in memory.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;

use rtrace_model::LocationId;

use super::super::super::{spool, varint};
use super::encoding::OtfRecord;

/// Bytes of a location that are in memory.
const BLOCK: usize = 16 << 10;

/// A record of a call.
#[derive(Debug)]
pub(super) struct WaitingRecord {
    /// Whether it belongs to the call's return; else to its beginning.
    pub(super) at_exit: bool,
    pub(super) kind: u8,
    pub(super) record: OtfRecord,
}

/// The records of all locations.
pub(super) struct WaitingRecords {
    file: File,
    written: u64,
    locations: HashMap<LocationId, Waiting>,
    /// Those of the location that is read.
    block: Vec<u8>,
    at: usize,
    rest: Waiting,
}

/// The records of one location.
#[derive(Default)]
struct Waiting {
    /// Where blocks begin in the file, and their bytes.
    blocks: VecDeque<(u64, usize)>,
    /// What is behind these.
    last: Vec<u8>,
}

impl WaitingRecords {
    pub(super) fn new() -> io::Result<WaitingRecords> {
        let (locations, rest) = (HashMap::new(), Waiting::default());
        Ok(WaitingRecords { file: spool::temporary()?, written: 0, locations, block: Vec::new(), at: 0, rest })
    }

    pub(super) fn add(
        &mut self,
        location: LocationId,
        call: u64,
        at_exit: bool,
        kind: u8,
        record: &OtfRecord,
    ) -> io::Result<()> {
        let of_location = self.locations.entry(location).or_default();
        let bytes = &mut of_location.last;
        varint::put(bytes, call);
        bytes.extend([at_exit.into(), kind, record.bytes().len() as u8]);
        bytes.extend(record.bytes());
        if bytes.len() >= BLOCK {
            self.file.write_all(bytes).map_err(spool::named("write"))?;
            of_location.blocks.push_back((self.written, bytes.len()));
            self.written += bytes.len() as u64;
            bytes.clear();
        }
        Ok(())
    }

    /// What is read next are the records of this location, from the first one on.
    pub(super) fn select(&mut self, location: LocationId) {
        self.rest = self.locations.remove(&location).unwrap_or_default();
        self.block.clear();
        self.at = 0;
    }

    /// The next record, if it is one of this call.
    pub(super) fn next(&mut self, call: u64) -> io::Result<Option<WaitingRecord>> {
        if self.at == self.block.len() {
            self.refill()?;
        }
        let mut bytes = &self.block[self.at..];
        if bytes.is_empty() || varint::take(&mut bytes) != Some(call) {
            return Ok(None);
        }
        let [at_exit, kind, length, ..] = *bytes else { return Err(io::ErrorKind::InvalidData.into()) };
        let end = 3 + usize::from(length);
        let record = OtfRecord::from(bytes.get(3..end).ok_or(io::ErrorKind::InvalidData)?);
        self.at = self.block.len() - bytes.len() + end;
        Ok(Some(WaitingRecord { at_exit: at_exit != 0, kind, record }))
    }

    fn refill(&mut self) -> io::Result<()> {
        self.at = 0;
        match self.rest.blocks.pop_front() {
            Some((begin, bytes)) => {
                self.block.resize(bytes, 0);
                self.file.read_exact_at(&mut self.block, begin).map_err(spool::named("read"))
            }
            None => {
                self.block = std::mem::take(&mut self.rest.last);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn each_thread_has_its_records_in_their_order_whatever_their_number() {
        let mut waiting = WaitingRecords::new().unwrap();
        let record = |number: u64| {
            let mut record = OtfRecord::default();
            record.long(number);
            record
        };
        for number in 0..10_000 {
            // Some calls have none, some two.
            for at_exit in [false, true].into_iter().take(number as usize % 3) {
                waiting.add(LocationId(number as u32 % 2), number, at_exit, 7, &record(number)).unwrap();
            }
        }
        assert!(waiting.written > 2 * BLOCK as u64);
        for location in [1, 0, 2] {
            waiting.select(LocationId(location));
            for call in (0..10_000).filter(|call| call % 2 == u64::from(location)) {
                for at_exit in [false, true].into_iter().take(call as usize % 3) {
                    let found = waiting.next(call).unwrap().unwrap();
                    assert_eq!((found.at_exit, found.kind, found.record.bytes()), (at_exit, 7, record(call).bytes()));
                }
                assert!(waiting.next(call).unwrap().is_none(), "{call}");
            }
        }
    }
}
