//! Hits of return sites, read where the kernel side counts them.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::ptr::{self, NonNull};

use libbpf_rs::ErrorExt as _;

use crate::wire::SiteHitsRecord;
use crate::{Error, MAX_SITES, Programs};

/// The hits of all return sites, in memory that is shared with the kernel side.
pub struct SiteHits {
    first: NonNull<SiteHitsRecord>,
}

// SAFETY: the memory is not bound to a thread, and is only read here, each number at once.
unsafe impl Send for SiteHits {}

impl Programs {
    /// The hits of return sites.
    ///
    /// # Errors
    /// [`Error::Kernel`] if their table cannot be mapped.
    pub fn site_hits(&self) -> Result<SiteHits, Error> {
        let descriptor = self.skel.maps.site_hits.as_fd().as_raw_fd();
        // SAFETY: a new mapping, which nobody else knows.
        let start = unsafe { libc::mmap(ptr::null_mut(), LENGTH, libc::PROT_READ, libc::MAP_SHARED, descriptor, 0) };
        let mapped = NonNull::new(start.cast()).filter(|_| start != libc::MAP_FAILED);
        let first = mapped.ok_or_else(|| libbpf_rs::Error::from(io::Error::last_os_error()));
        let first = first.context("mmap failed").map_err(Error::kernel("map the hits of return sites"))?;
        Ok(SiteHits { first })
    }
}

const LENGTH: usize = MAX_SITES as usize * size_of::<SiteHitsRecord>();

impl SiteHits {
    /// Those of the sites with ids from 0 on below `sites`, now.
    pub fn read(&self, sites: u32) -> Vec<SiteHitsRecord> {
        let of = |site: u32| {
            // SAFETY: the site is in the mapping. What the kernel side writes meanwhile is one number at a time.
            unsafe {
                let hits = self.first.as_ptr().add(site as usize);
                SiteHitsRecord {
                    matched: (&raw const (*hits).matched).read_volatile(),
                    unmatched: (&raw const (*hits).unmatched).read_volatile(),
                    since: (&raw const (*hits).since).read_volatile(),
                }
            }
        };
        (0..sites.min(MAX_SITES)).map(of).collect()
    }
}

impl Drop for SiteHits {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nobody refers to it any more.
        unsafe { libc::munmap(self.first.as_ptr().cast(), LENGTH) };
    }
}
