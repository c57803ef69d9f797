//! Every file that any process maps executable, and every program that one executes, with the time, as the kernel tells
//! it.
//!
//! An event of no counter (`dummy`) on each CPU carries the kernel's records of mappings and of names, which an exec
//! sets. They come through one ring per CPU in the layout of `perf_event_open(2)`.

use std::ffi::OsStr;
use std::io;
use std::ops::Range;
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

/// Where a record has its process, and that of a mapping the addresses, the offset in the file, the major and minor numbers
/// of the device, the inode, what is permitted with whether it is shared, and the begin of the path.
const PID_AT: usize = 8;
const START_AT: usize = 16;
const LENGTH_AT: usize = 24;
const OFFSET_AT: usize = 32;
const DEVICE_AT: usize = 40;
const INODE_AT: usize = 48;
const PROTECTION_AT: usize = 64;
const PATH_AT: usize = 72;

/// Bytes of the time at the end of each record.
const TIME_BYTES: usize = 8;

/// A file that a process mapped executable, or that it mapped before, with other permissions than it had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeMapping {
    /// The process, as rtrace's process-id namespace numbers it.
    pub pid: u32,
    /// When.
    pub time: Timestamp,
    /// The file's path as the process sees it.
    pub path: PathBuf,
    /// Device and inode of the file, as the kernel numbers them; 0 where there is no file.
    pub file: (u64, u64),
    /// Where.
    pub addresses: Range<u64>,
    /// Where in the file it begins, in bytes.
    pub offset: u64,
    /// The process may write there, too, or shares it with the file: the kernel takes no probes there.
    pub takes_no_probes: bool,
}

/// What becomes of the code of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CodeChange {
    /// More is mapped.
    Mapped(CodeMapping),
    /// All is gone that was mapped: the process executes a program, which is mapped next.
    Executed {
        /// The process.
        pid: u32,
        /// When.
        time: Timestamp,
    },
}

impl CodeChange {
    /// The process.
    pub fn pid(&self) -> u32 {
        match self {
            CodeChange::Mapped(CodeMapping { pid, .. }) | CodeChange::Executed { pid, .. } => *pid,
        }
    }

    /// What is mapped, if it is that.
    pub fn mapped(&self) -> Option<&CodeMapping> {
        match self {
            CodeChange::Mapped(mapping) => Some(mapping),
            CodeChange::Executed { .. } => None,
        }
    }

    /// When.
    pub fn time(&self) -> Timestamp {
        match self {
            CodeChange::Mapped(CodeMapping { time, .. }) | CodeChange::Executed { time, .. } => *time,
        }
    }
}

/// What the kernel has told of all processes.
#[derive(Debug, Default)]
pub struct MappingRecords {
    /// The files that were mapped.
    pub mappings: Vec<CodeMapping>,
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

    /// By this somebody can wait for records while somebody else reads them.
    ///
    /// # Errors
    /// There are too many descriptors.
    pub fn doorbell(&self) -> io::Result<Doorbell> {
        self.rings.iter().map(|ring| ring.event.try_clone()).collect::<io::Result<_>>().map(Doorbell)
    }

    /// What has changed since the last call, by time, and how many records the kernel had to drop.
    pub fn read(&mut self) -> (Vec<CodeChange>, u64) {
        let (mut changes, mut lost) = (Vec::new(), 0);
        for ring in &mut self.rings {
            ring.read(|kind, misc, body| match kind {
                PERF_RECORD_MMAP2 => changes.extend(parse(body).map(CodeChange::Mapped)),
                PERF_RECORD_COMM if misc & PERF_RECORD_MISC_COMM_EXEC != 0 => changes.extend(executed(body)),
                PERF_RECORD_LOST => lost += number(body, 16).unwrap_or(1),
                _ => {}
            });
        }
        changes.sort_by_key(CodeChange::time);
        (changes, lost)
    }
}

/// Rings when there are records.
pub struct Doorbell(Vec<OwnedFd>);

impl Doorbell {
    /// Waits until there are records, but not longer than `limit`.
    pub fn wait(&self, limit: Duration) {
        let mut descriptors: Vec<PollFd<'_>> = self.0.iter().map(|event| PollFd::new(event, PollFlags::IN)).collect();
        let limit = Timespec::try_from(limit).ok();
        // Whatever ends the waiting, the rings are looked at next.
        let _ = poll(&mut descriptors, limit.as_ref());
    }
}

fn number(record: &[u8], offset: usize) -> Option<u64> {
    let bytes = record.get(offset..offset + 8)?;
    bytes.try_into().ok().map(u64::from_ne_bytes)
}

/// Reads a record of a mapping, its header of 8 bytes included.
fn parse(record: &[u8]) -> Option<CodeMapping> {
    let word = |offset: usize| Some(u32::from_ne_bytes(record.get(offset..offset + 4)?.try_into().ok()?));
    let pid = word(PID_AT)?;
    let end = record.len().checked_sub(TIME_BYTES)?;
    let path = record.get(PATH_AT..end)?.split(|&byte| byte == 0).next()?;
    let time = Timestamp(number(record, end)?);
    let file = (libc::makedev(word(DEVICE_AT)?, word(DEVICE_AT + 4)?), number(record, INODE_AT)?);
    let is_writable = word(PROTECTION_AT)? & libc::PROT_WRITE.cast_unsigned() != 0;
    let takes_no_probes = is_writable || word(PROTECTION_AT + 4)? & libc::MAP_SHARED.cast_unsigned() != 0;
    let (start, offset) = (number(record, START_AT)?, number(record, OFFSET_AT)?);
    let addresses = start..start.checked_add(number(record, LENGTH_AT)?)?;
    let path = PathBuf::from(OsStr::from_bytes(path));
    Some(CodeMapping { pid, time, path, file, addresses, offset, takes_no_probes })
}

/// Reads a record of the new name of a process that executes a program.
fn executed(record: &[u8]) -> Option<CodeChange> {
    let pid = u32::from_ne_bytes(record.get(PID_AT..PID_AT + 4)?.try_into().ok()?);
    Some(CodeChange::Executed { pid, time: Timestamp(number(record, record.len().checked_sub(TIME_BYTES)?)?) })
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
        let event = super::open(attributes, super::PerfSubject::Cpu(cpu))?;
        let flags = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at an address that the kernel chooses.
        let pages = unsafe { mmap(ptr::null_mut(), PAGE_BYTES + RING_BYTES, flags.0, flags.1, event.as_fd(), 0)? };
        let pages = NonNull::new(pages.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Ring { event, pages, record: Vec::new() })
    }

    /// Shows every record with its kind, and what else its header says.
    fn read(&mut self, mut show: impl FnMut(u32, u32, &[u8])) {
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
            let misc = u32::from(u16::from_ne_bytes([header[4], header[5]]));
            let size = usize::from(u16::from_ne_bytes([header[6], header[7]]));
            if size < 8 {
                break;
            }
            self.copy(at, size);
            show(kind, misc, &self.record);
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
        record[16..40].copy_from_slice(&[0x7000_u64, 0x2000, 0x1000].map(u64::to_ne_bytes).concat());
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
        let (time, addresses) = (Timestamp(99), 0x7000..0x9000);
        let path = "/lib/libz.so.1".into();
        let mapping = CodeMapping { pid: 7, time, path, file, addresses, offset: 0x1000, takes_no_probes: false };
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
        mappings.doorbell().unwrap().wait(Duration::from_secs(1));
        let (seen, lost) = mappings.read();
        assert_eq!(lost, 0);
        let program = seen.iter().position(|change| match change {
            CodeChange::Mapped(mapping) => mapping.path.ends_with("true"),
            CodeChange::Executed { .. } => false,
        });
        let program = program.unwrap_or_else(|| panic!("{seen:?}"));
        let executed =
            |change: &CodeChange| matches!(change, CodeChange::Executed { pid, .. } if *pid == seen[program].pid());
        assert!(seen[..program].iter().any(executed), "a program is executed before it is mapped: {seen:?}");
    }
}
