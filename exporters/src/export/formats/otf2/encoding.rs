//! How OTF2 3.0 lays out its files, as libotf2's `OTF2_Buffer.h` defines it.
//!
//! A file is a sequence of chunks of one size, of which the last may be shorter. A chunk begins with
//! a header: identifier, byte order, numbers of its first and last event. Records follow: identifier,
//! length (which those of one number, as enters and leaves, have not), data; then zeros up to the chunk's end. Times are
//! records of their own and hold for the events after them. Integers are a byte that counts the
//! bytes that follow, least significant first; 0 and the largest value are one byte, 0x00 and 0xff.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use rtrace_model::Timestamp;

use crate::Size;
use crate::export::destination::named;

/// Sizes of chunks in bytes; those of libotf2.
pub(super) const EVENT_CHUNK: usize = 1 << 20;
pub(super) const DEFINITION_CHUNK: usize = 4 << 20;

const END_OF_BUFFER: u8 = 1;
const END_OF_FILE: u8 = 2;
const CHUNK_HEADER: u8 = 3;
const TIMESTAMP: u8 = 5;

/// Identifiers of event records.
pub(super) const ENTER: u8 = 12;
pub(super) const LEAVE: u8 = 13;
pub(super) const MPI_SEND: u8 = 14;
pub(super) const MPI_ISEND: u8 = 15;
pub(super) const MPI_ISEND_COMPLETE: u8 = 16;
pub(super) const MPI_IRECV_REQUEST: u8 = 17;
pub(super) const MPI_RECV: u8 = 18;
pub(super) const MPI_IRECV: u8 = 19;
pub(super) const MPI_REQUEST_CANCELLED: u8 = 21;
pub(super) const MPI_COLLECTIVE_BEGIN: u8 = 22;
pub(super) const MPI_COLLECTIVE_END: u8 = 23;
pub(super) const RMA_WIN_CREATE: u8 = 35;
pub(super) const RMA_WIN_DESTROY: u8 = 36;
pub(super) const RMA_COLLECTIVE_BEGIN: u8 = 37;
pub(super) const RMA_COLLECTIVE_END: u8 = 38;
pub(super) const RMA_REQUEST_LOCK: u8 = 40;
pub(super) const RMA_RELEASE_LOCK: u8 = 43;
pub(super) const RMA_PUT: u8 = 46;
pub(super) const RMA_GET: u8 = 47;
pub(super) const RMA_ATOMIC: u8 = 48;
pub(super) const RMA_OP_COMPLETE_BLOCKING: u8 = 49;
pub(super) const RMA_OP_COMPLETE_NON_BLOCKING: u8 = 50;
pub(super) const RMA_OP_COMPLETE_REMOTE: u8 = 52;
pub(super) const THREAD_FORK: u8 = 53;
pub(super) const THREAD_JOIN: u8 = 54;
pub(super) const IO_CREATE_HANDLE: u8 = 69;
pub(super) const IO_DESTROY_HANDLE: u8 = 70;
pub(super) const IO_OPERATION_BEGIN: u8 = 75;
pub(super) const IO_OPERATION_ISSUED: u8 = 77;
pub(super) const IO_OPERATION_COMPLETE: u8 = 78;
pub(super) const NON_BLOCKING_COLLECTIVE_REQUEST: u8 = 85;
pub(super) const NON_BLOCKING_COLLECTIVE_COMPLETE: u8 = 86;
pub(super) const METRIC: u8 = 31;
pub(super) const PARAMETER_STRING: u8 = 32;
pub(super) const PARAMETER_INT: u8 = 33;

const LITTLE_ENDIAN: u8 = b'B';

/// Where in a chunk the number of its last event stands.
const LAST_EVENT: std::ops::Range<usize> = 10..18;

/// Bytes of a record beside its data: identifier and length.
const RECORD_HEAD: usize = 10;

/// Longest text in bytes, far below a chunk.
const LONGEST_TEXT: usize = 1 << 20;

/// Bytes as records have them: a number that is not known is the largest.
pub(super) fn bytes(size: Size) -> u64 {
    match size {
        Size::Exact(bytes) | Size::Posted(bytes) => bytes,
        Size::Unknown => u64::MAX,
    }
}

/// The data of one record.
#[derive(Debug, Default)]
pub(super) struct OtfRecord(Vec<u8>);

impl From<&[u8]> for OtfRecord {
    fn from(data: &[u8]) -> OtfRecord {
        OtfRecord(data.to_owned())
    }
}

impl OtfRecord {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn byte(&mut self, value: u8) -> &mut OtfRecord {
        self.0.push(value);
        self
    }

    pub(super) fn int(&mut self, value: u32) -> &mut OtfRecord {
        self.compressed(&value.to_le_bytes())
    }

    pub(super) fn long(&mut self, value: u64) -> &mut OtfRecord {
        self.compressed(&value.to_le_bytes())
    }

    /// Appends a signed integer: negative ones take all their bytes.
    pub(super) fn signed(&mut self, value: i64) -> &mut OtfRecord {
        let bytes = value.to_le_bytes();
        let size = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        self.0.push(size as u8);
        self.0.extend(&bytes[..size]);
        self
    }

    /// Appends a text with the zero that ends it, without control characters.
    pub(super) fn text(&mut self, text: &str) -> &mut OtfRecord {
        let text = rtrace_model::escape(text);
        let end = (0..=LONGEST_TEXT.min(text.len())).rfind(|&end| text.is_char_boundary(end));
        self.0.extend(&text.as_bytes()[..end.unwrap_or(0)]);
        self.byte(0)
    }

    fn compressed(&mut self, bytes: &[u8]) -> &mut OtfRecord {
        match bytes.iter().rposition(|&byte| byte != 0) {
            None => self.0.push(0x00),
            Some(_) if bytes.iter().all(|&byte| byte == 0xff) => self.0.push(0xff),
            Some(last) => {
                self.0.push(last as u8 + 1);
                self.0.extend(&bytes[..=last]);
            }
        }
        self
    }

    /// The record as it stands in a file.
    fn put(&self, kind: u8, bytes: &mut Vec<u8>) {
        bytes.push(kind);
        match u8::try_from(self.0.len()) {
            Ok(length) if length < u8::MAX => bytes.push(length),
            _ => {
                bytes.push(u8::MAX);
                bytes.extend((self.0.len() as u64).to_le_bytes());
            }
        }
        bytes.extend(&self.0);
    }
}

/// A file of chunks.
pub(super) struct Chunks {
    file: File,
    path: PathBuf,
    chunk: Vec<u8>,
    size: usize,
    events: u64,
    time: u64,
}

impl Chunks {
    pub(super) fn create(path: &Path, size: usize) -> io::Result<Chunks> {
        let file = File::create_new(path).map_err(named("create", path))?;
        let mut chunks = Chunks { file, path: path.to_owned(), chunk: Vec::new(), size, events: 0, time: 0 };
        chunks.begin();
        Ok(chunks)
    }

    /// Writes an event, with a record that says more of it.
    pub(super) fn event(
        &mut self,
        time: Timestamp,
        kind: u8,
        event: &OtfRecord,
        attributes: Option<(u8, &OtfRecord)>,
    ) -> io::Result<()> {
        let Timestamp(time) = time;
        let more = attributes.map_or(0, |(_, record)| record.0.len() + RECORD_HEAD);
        if self.make_room(event.0.len() + RECORD_HEAD + more)? {
            self.stamp(time);
        }
        if time > self.time || time == 0 {
            self.stamp(time);
        }
        self.events += 1;
        if let Some((kind, attributes)) = attributes {
            attributes.put(kind, &mut self.chunk);
        }
        match kind {
            ENTER | LEAVE | MPI_ISEND_COMPLETE | MPI_IRECV_REQUEST | MPI_REQUEST_CANCELLED => {
                self.chunk.push(kind);
                self.chunk.extend(&event.0);
            }
            _ => event.put(kind, &mut self.chunk),
        }
        Ok(())
    }

    pub(super) fn definition(&mut self, kind: u8, record: &OtfRecord) -> io::Result<()> {
        self.make_room(record.0.len() + RECORD_HEAD)?;
        record.put(kind, &mut self.chunk);
        Ok(())
    }

    /// Completes the file; returns the number of its events.
    pub(super) fn finish(mut self) -> io::Result<u64> {
        self.chunk.extend([END_OF_FILE, END_OF_BUFFER]);
        self.write_out()?;
        Ok(self.events)
    }

    /// Begins another chunk where so many bytes, a time and the two final bytes do not fit; whether
    /// that was needed.
    fn make_room(&mut self, bytes: usize) -> io::Result<bool> {
        if self.chunk.len() + bytes + 9 + 2 < self.size {
            return Ok(false);
        }
        self.chunk.resize(self.size, 0);
        self.write_out()?;
        self.begin();
        Ok(true)
    }

    fn begin(&mut self) {
        self.chunk.clear();
        self.chunk.extend([CHUNK_HEADER, LITTLE_ENDIAN]);
        self.chunk.extend((self.events + 1).to_le_bytes());
        self.chunk.extend(0_u64.to_le_bytes());
    }

    fn stamp(&mut self, time: u64) {
        self.time = time;
        self.chunk.push(TIMESTAMP);
        self.chunk.extend(time.to_le_bytes());
    }

    fn write_out(&mut self) -> io::Result<()> {
        self.chunk[LAST_EVENT].copy_from_slice(&self.events.to_le_bytes());
        self.file.write_all(&self.chunk).map_err(named("write", &self.path))
    }
}

/// What the file says that names an archive.
pub(super) struct Anchor {
    pub(super) machine: String,
    pub(super) creator: String,
    pub(super) description: String,
    pub(super) properties: Vec<(String, String)>,
    pub(super) locations: u64,
    pub(super) definitions: u64,
    /// Tells archives apart.
    pub(super) id: u64,
}

pub(super) fn anchor(path: &Path, anchor: &Anchor) -> io::Result<()> {
    const POSIX_FILES: u8 = 1;
    const NOT_COMPRESSED: u8 = 1;
    let mut record = OtfRecord(vec![CHUNK_HEADER, LITTLE_ENDIAN]);
    // Formats of this file and of the others, then the version of the library that is followed.
    record.text("OTF2").byte(3).byte(2).byte(3).byte(0).byte(2);
    record.0.extend((EVENT_CHUNK as u64).to_le_bytes());
    record.0.extend((DEFINITION_CHUNK as u64).to_le_bytes());
    record.byte(POSIX_FILES).byte(NOT_COMPRESSED);
    record.0.extend(anchor.locations.to_le_bytes());
    record.0.extend(anchor.definitions.to_le_bytes());
    record.text(&anchor.machine).text(&anchor.creator).text(&anchor.description);
    record.0.extend((anchor.properties.len() as u32).to_le_bytes());
    for (name, value) in &anchor.properties {
        record.text(name).text(value);
    }
    record.0.extend(anchor.id.to_le_bytes());
    let (snapshots, thumbnails) = (0_u32, 0_u32);
    record.0.extend(snapshots.to_le_bytes());
    record.0.extend(thumbnails.to_le_bytes());
    record.byte(END_OF_FILE).byte(END_OF_BUFFER).byte(0);
    let mut file = BufWriter::new(File::create_new(path).map_err(named("create", path))?);
    file.write_all(&record.0).and_then(|()| file.flush()).map_err(named("write", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_take_the_bytes_they_need() {
        let mut record = OtfRecord::default();
        record.int(0).int(1).int(0x1234).int(u32::MAX).long(u64::MAX).long(1 << 40).signed(0).signed(-3);
        let expected = [&[0, 1, 1, 2, 0x34, 0x12, 0xff, 0xff, 6, 0, 0, 0, 0, 0, 1, 0, 8, 0xfd][..], &[0xff; 7]];
        assert_eq!(record.0, expected.concat());
    }

    #[test]
    fn long_records_have_long_lengths() {
        let (mut short, mut long) = (Vec::new(), Vec::new());
        OtfRecord(vec![7; 254]).put(9, &mut short);
        OtfRecord(vec![7; 255]).put(9, &mut long);
        assert_eq!(short[..3], [9, 254, 7]);
        assert_eq!(long[..11], [9, 255, 255, 0, 0, 0, 0, 0, 0, 0, 7]);
    }
}
