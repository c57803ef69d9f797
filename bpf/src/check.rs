//! What the kernel side counts about itself, so that a recording can be checked.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};

use libbpf_rs::libbpf_sys::{bpf_prog_get_info_by_fd, bpf_prog_info};
use libbpf_rs::skel::Skel as _;
use libbpf_rs::{MapCore as _, MapFlags};

use crate::wire::Limit;
use crate::{Error, Programs};

/// Sums by which each CPU counts entries, 8 bytes each: that of a region is its id, modulo this number. Where regions
/// are governed by these counts, hardly two should share one.
pub(crate) const fn entry_sums(is_governed: bool) -> u32 {
    if is_governed { 1 << 16 } else { Limit::RT_CHECKED.0 }
}

impl Programs {
    /// Calls that were to be recorded so far, whatever became of them, in sums of regions: that of a region is its
    /// id, modulo their number. Exact after [`disarm`](Programs::disarm).
    pub fn entries(&self) -> Vec<u64> {
        self.first_entries(usize::MAX)
    }

    /// The first sums of these.
    pub fn first_entries(&self, most: usize) -> Vec<u64> {
        let sums = entry_sums(self.is_governed()) as usize;
        (0..sums.min(most)).map(|sum| self.entries_of(sum)).collect()
    }

    /// The sum that a region shares.
    pub fn entries_of(&self, region: usize) -> u64 {
        let sums = entry_sums(self.is_governed()) as usize;
        (region % sums..self.entries_seen.len()).step_by(sums).map(|place| self.entries_at(place)).sum()
    }

    fn entries_at(&self, place: usize) -> u64 {
        // SAFETY: the entry is in the mapping, which lives as long as the programs.
        self.entries_seen.at(place).map_or(0, |count| unsafe { count.read_volatile() })
    }

    /// Begins to count entries from 0. None may come meanwhile.
    ///
    /// # Errors
    /// [`Error::Kernel`].
    pub fn forget_entries(&self) -> Result<(), Error> {
        let map = &self.skel.maps.entries_seen;
        let mut counted = (0..self.entries_seen.len()).filter(|&place| self.entries_at(place) > 0);
        counted
            .try_for_each(|place| map.update(&(place as u32).to_ne_bytes(), &0_u64.to_ne_bytes(), MapFlags::ANY))
            .map_err(Error::kernel("begin to count entries"))
    }

    /// How often the kernel did not run one of the programs though it was its turn, because a program was running on
    /// that CPU already.
    ///
    /// Where two programs see the same, both must have been left out: there have been no more such times than the fewer
    /// of theirs. Ends of threads do not count, as calls of threads whose end was not seen are missing from the sums of
    /// [`entries`](Programs::entries). Nor does code that is made writable, which loses no calls.
    ///
    /// # Errors
    /// [`Error::Kernel`].
    pub fn runs_missed(&self) -> Result<u64, Error> {
        self.fewest_runs_missed().map_err(Error::kernel("ask which runs of programs were missed"))
    }

    fn fewest_runs_missed(&self) -> libbpf_rs::Result<u64> {
        let mut fewest: HashMap<Vec<u8>, u64> = HashMap::new();
        for program in self.skel.object().progs().filter(|program| program.autoload()) {
            let name = program.name().as_encoded_bytes();
            let of_first = name.strip_suffix(b"_again").unwrap_or(name);
            if !matches!(of_first, b"rt_exit_task" | b"rt_lock" | b"rt_mprotect" | b"rt_pkey_mprotect") {
                let missed = runs_missed(program.as_fd())?;
                fewest.entry(of_first.to_vec()).and_modify(|fewest| *fewest = missed.min(*fewest)).or_insert(missed);
            }
        }
        Ok(fewest.into_values().sum())
    }
}

fn runs_missed(program: BorrowedFd<'_>) -> libbpf_rs::Result<u64> {
    let mut info = bpf_prog_info::default();
    let mut size = size_of::<bpf_prog_info>() as u32;
    // SAFETY: `info` has the size that the kernel is told.
    let result = unsafe { bpf_prog_get_info_by_fd(program.as_raw_fd(), &raw mut info, &raw mut size) };
    if result != 0 {
        return Err(io::Error::last_os_error().into());
    }
    Ok(info.recursion_misses)
}
