//! What the kernel side counts about itself, so that a recording can be checked.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};

use libbpf_rs::libbpf_sys::{bpf_prog_get_info_by_fd, bpf_prog_info};
use libbpf_rs::skel::Skel as _;
use libbpf_rs::{MapCore as _, MapFlags};

use crate::wire::Limit;
use crate::{Error, Programs};

/// Sums by which entries are counted: that of a region is its id, modulo this number.
pub const ENTRY_SUMS: usize = Limit::RT_CHECKED.0 as usize;

impl Programs {
    /// Calls that were to be recorded so far, whatever became of them, in [`ENTRY_SUMS`] sums of regions. Exact
    /// after [`disarm`](Programs::disarm).
    ///
    /// # Errors
    /// [`Error::Kernel`].
    pub fn entries(&self) -> Result<Vec<u64>, Error> {
        let mut sums = vec![0; ENTRY_SUMS];
        for (place, count) in self.entries_by_place()? {
            sums[place as usize % ENTRY_SUMS] += count;
        }
        Ok(sums)
    }

    /// Begins to count entries from 0. None may come meanwhile.
    pub(crate) fn forget_entries(&self) -> Result<(), Error> {
        let map = &self.skel.maps.entries_seen;
        let mut counted = self.entries_by_place()?.into_iter().filter(|&(_, count)| count > 0);
        counted
            .try_for_each(|(place, _)| map.update(&place.to_ne_bytes(), &0_u64.to_ne_bytes(), MapFlags::ANY))
            .map_err(Error::kernel("begin to count entries"))
    }

    fn entries_by_place(&self) -> Result<Vec<(u32, u64)>, Error> {
        let entries = self
            .skel
            .maps
            .entries_seen
            .lookup_batch(Limit::RT_CHECKED.0, MapFlags::ANY, MapFlags::ANY)
            .map_err(Error::kernel("read how many calls entered"))?;
        let number = |(place, count): (Vec<u8>, Vec<u8>)| {
            Some((u32::from_ne_bytes(place.try_into().ok()?), u64::from_ne_bytes(count.try_into().ok()?)))
        };
        Ok(entries.filter_map(number).collect())
    }

    /// How often the kernel did not run one of the programs though it was its turn, because a program was running on
    /// that CPU already.
    ///
    /// # Errors
    /// [`Error::Kernel`].
    pub fn runs_missed(&self) -> Result<u64, Error> {
        let programs = self.skel.object().progs().filter(|program| program.autoload());
        let missed = programs.map(|program| runs_missed(program.as_fd()));
        missed.sum::<libbpf_rs::Result<u64>>().map_err(Error::kernel("ask which runs of programs were missed"))
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
