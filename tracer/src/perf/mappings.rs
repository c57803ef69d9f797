//! Every file that any process maps executable and every exec, with the time, as the kernel tells it.
//!
//! An event of no counter (`dummy`) on each CPU carries the kernel's records of mappings and of names, which an exec
//! sets. They come
//! through one ring per CPU in the layout of `perf_event_open(2)`.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use perf_event_open_sys::bindings::{
    PERF_COUNT_SW_DUMMY, PERF_RECORD_COMM, PERF_RECORD_LOST, PERF_RECORD_MISC_COMM_EXEC, PERF_RECORD_MMAP2,
    PERF_SAMPLE_TIME, PERF_TYPE_SOFTWARE, perf_event_attr, perf_event_mmap_page,
};
use rtrace_model::Timestamp;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Bytes of each CPU's ring: room for some hundred records between two looks.
const RING_BYTES: usize = 64 * 1024;

const PAGE_BYTES: usize = 4096;

/// Where a record of a mapping has the major and minor numbers of the device, the inode, and the begin of the path.
const DEVICE_AT: usize = 40;
const INODE_AT: usize = 48;
const PATH_AT: usize = 72;

/// Bytes of the time at the end of each record.
const TIME_BYTES: usize = 8;

/// A file that a process mapped executable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The process, as rtrace's process-id namespace numbers it.
    pub pid: u32,
    /// When.
    pub time: Timestamp,
    /// The file's path as the process sees it.
    pub path: PathBuf,
    /// Device and inode of the file, as the kernel numbers them; 0 where there is no file.
    pub file: (u64, u64),
}

/// What the kernel has told since the last time.
#[derive(Debug, Default)]
pub struct Told {
    /// The files that were mapped.
    pub mappings: Vec<Mapping>,
    /// The processes that began to execute a program, whose mappings follow, and when.
    pub executed: Vec<(u32, Timestamp)>,
    /// How many records the kernel had to drop.
    pub lost: u64,
}

/// The records of all CPUs.
pub struct Mappings {
    rings: Vec<Ring>,
}

impl Mappings {
    /// Begins to listen.
    ///
    /// # Errors
    /// The kernel does not permit it.
    pub fn open(cpus: &[u32]) -> io::Result<Mappings> {
        let rings = cpus.iter().map(|&cpu| Ring::open(cpu)).collect::<io::Result<_>>()?;
        Ok(Mappings { rings })
    }

    /// Waits until there are records, but not longer than `limit`.
    pub fn wait(&self, limit: Duration) {
        let mut descriptors: Vec<PollFd<'_>> =
            self.rings.iter().map(|ring| PollFd::new(&ring.event, PollFlags::IN)).collect();
        let limit = Timespec::try_from(limit).ok();
        // Whatever ends the waiting, the rings are looked at next.
        let _ = poll(&mut descriptors, limit.as_ref());
    }

    /// What was told since the last call.
    pub fn read(&mut self) -> Told {
        let mut told = Told::default();
        for ring in &mut self.rings {
            ring.read(|kind, body| match kind {
                PERF_RECORD_MMAP2 => told.mappings.extend(parse(body)),
                PERF_RECORD_COMM => told.executed.extend(parse_exec(body)),
                PERF_RECORD_LOST => told.lost += number(body, 16).unwrap_or(1),
                _ => {}
            });
        }
        told
    }
}

fn number(record: &[u8], offset: usize) -> Option<u64> {
    let bytes = record.get(offset..offset + 8)?;
    bytes.try_into().ok().map(u64::from_ne_bytes)
}

/// Reads a record of a mapping, its header of 8 bytes included.
fn parse(record: &[u8]) -> Option<Mapping> {
    let word = |offset: usize| Some(u32::from_ne_bytes(record.get(offset..offset + 4)?.try_into().ok()?));
    let pid = word(8)?;
    let end = record.len().checked_sub(TIME_BYTES)?;
    let path = record.get(PATH_AT..end)?.split(|&byte| byte == 0).next()?;
    let time = Timestamp(number(record, end)?);
    let file = (libc::makedev(word(DEVICE_AT)?, word(DEVICE_AT + 4)?), number(record, INODE_AT)?);
    Some(Mapping { pid, time, path: PathBuf::from(OsStr::from_bytes(path)), file })
}

/// Reads a record of a name, its header of 8 bytes included; none if no exec has set it.
fn parse_exec(record: &[u8]) -> Option<(u32, Timestamp)> {
    let flags = u16::from_ne_bytes(record.get(4..6)?.try_into().ok()?);
    let pid = u32::from_ne_bytes(record.get(8..12)?.try_into().ok()?);
    let time = Timestamp(number(record, record.len().checked_sub(TIME_BYTES)?)?);
    (u32::from(flags) & PERF_RECORD_MISC_COMM_EXEC != 0).then_some((pid, time))
}

/// The event of one CPU with its ring.
struct Ring {
    event: OwnedFd,
    pages: NonNull<perf_event_mmap_page>,
    record: Vec<u8>,
}

// SAFETY: the mapping belongs to this value alone and is not tied to a thread.
unsafe impl Send for Ring {}

impl Ring {
    fn open(cpu: u32) -> io::Result<Ring> {
        let mut attributes = perf_event_attr {
            type_: PERF_TYPE_SOFTWARE,
            config: u64::from(PERF_COUNT_SW_DUMMY),
            sample_type: u64::from(PERF_SAMPLE_TIME),
            clockid: libc::CLOCK_MONOTONIC,
            ..perf_event_attr::default()
        };
        attributes.__bindgen_anon_2.wakeup_watermark = 1;
        attributes.set_watermark(1);
        attributes.set_mmap(1);
        attributes.set_mmap2(1);
        attributes.set_comm(1);
        attributes.set_comm_exec(1);
        attributes.set_sample_id_all(1);
        attributes.set_use_clockid(1);
        let event = super::open(attributes, super::Subject::Cpu(cpu))?;
        let flags = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at an address that the kernel chooses.
        let pages = unsafe { mmap(ptr::null_mut(), PAGE_BYTES + RING_BYTES, flags.0, flags.1, event.as_fd(), 0)? };
        let pages = NonNull::new(pages.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Ring { event, pages, record: Vec::new() })
    }

    /// Shows every record with its kind.
    fn read(&mut self, mut show: impl FnMut(u32, &[u8])) {
        let page = self.pages.as_ptr();
        // SAFETY: both are aligned fields of the mapped page, which the kernel changes atomically.
        let (head, tail) = unsafe {
            (AtomicU64::from_ptr(&raw mut (*page).data_head), AtomicU64::from_ptr(&raw mut (*page).data_tail))
        };
        let end = head.load(Ordering::Acquire);
        let mut at = tail.load(Ordering::Relaxed);
        while at < end {
            let header = self.copy(at, 8);
            let kind = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]);
            let size = usize::from(u16::from_ne_bytes([header[6], header[7]]));
            if size < 8 {
                break;
            }
            self.copy(at, size);
            show(kind, &self.record);
            at += size as u64;
        }
        tail.store(end, Ordering::Release);
    }

    /// Copies bytes of the ring, which may go on at its begin.
    fn copy(&mut self, position: u64, length: usize) -> &[u8] {
        let begin = (position % RING_BYTES as u64) as usize;
        let first = length.min(RING_BYTES - begin);
        self.record.resize(length, 0);
        // SAFETY: the ring follows the first page of the mapping; both parts lie inside it, and the
        // kernel does not write what is between tail and head.
        unsafe {
            let ring = self.pages.as_ptr().cast::<u8>().add(PAGE_BYTES);
            ptr::copy_nonoverlapping(ring.add(begin), self.record.as_mut_ptr(), first);
            ptr::copy_nonoverlapping(ring, self.record.as_mut_ptr().add(first), length - first);
        }
        &self.record
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this size, and nothing refers to it any more.
        let _ = unsafe { munmap(self.pages.as_ptr().cast(), PAGE_BYTES + RING_BYTES) };
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn record(path: &[u8], pid: u32, time: u64) -> Vec<u8> {
        let mut record = vec![0; PATH_AT];
        record[8..12].copy_from_slice(&pid.to_ne_bytes());
        record[40..48].copy_from_slice(&[8_u32, 1].map(u32::to_ne_bytes).concat());
        record[48..56].copy_from_slice(&12_u64.to_ne_bytes());
        record.extend(path);
        record.resize(record.len().next_multiple_of(8), 0);
        record.extend(time.to_ne_bytes());
        record
    }

    #[test]
    fn a_record_names_process_time_and_file() {
        let bytes = record(b"/lib/libz.so.1\0", 7, 99);
        let file = (libc::makedev(8, 1), 12);
        let mapping = Mapping { pid: 7, time: Timestamp(99), path: "/lib/libz.so.1".into(), file };
        assert_eq!(parse(&bytes), Some(mapping));
        for length in 0..PATH_AT + 8 {
            assert_eq!(parse(&bytes[..length]), None);
        }
    }

    #[test]
    fn a_mapping_of_our_own_is_told() {
        let mut mappings = match Mappings::open(&[0]) {
            Ok(mappings) => mappings,
            Err(error) => return println!("skipped: performance events of other processes: {error}"),
        };
        let run = std::process::Command::new("taskset").args(["-c", "0", "true"]).status();
        if !run.is_ok_and(|status| status.success()) {
            return println!("skipped: no taskset to run a program on one CPU");
        }
        mappings.wait(Duration::from_secs(1));
        let Told { mappings: seen, executed, lost } = mappings.read();
        assert_eq!(lost, 0);
        let is_it = |mapping: &&Mapping| mapping.path.ends_with("true");
        let mapping = seen.iter().find(is_it).unwrap_or_else(|| panic!("{seen:?}"));
        let is_before = |(pid, time): &(u32, Timestamp)| *pid == mapping.pid && *time <= mapping.time;
        assert!(executed.iter().any(is_before), "{executed:?}");
    }
}
