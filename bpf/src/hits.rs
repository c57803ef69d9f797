//! Hits of return sites, read where the kernel side counts them.

use libbpf_rs::{MapCore as _, MapFlags};

use crate::mapped::Mapped;
use crate::wire::{self, HitTimes, SiteHitsRecord};
use crate::{Error, MAX_SITES, Programs};

/// The hits of all return sites, in memory that is shared with the kernel side.
pub struct SiteHits(Mapped<SiteHitsRecord>);

impl Programs {
    /// The hits of return sites.
    ///
    /// # Errors
    /// [`Error::Kernel`] if their table cannot be mapped.
    pub fn site_hits(&self) -> Result<SiteHits, Error> {
        let hits = Mapped::of(&self.skel.maps.site_hits, MAX_SITES as usize);
        hits.map(SiteHits).map_err(Error::kernel("map the hits of return sites"))
    }

    /// What the programs took so far at some of the hits that were recorded.
    ///
    /// # Errors
    /// [`Error::Kernel`], [`Error::Decode`].
    pub fn hit_times(&self) -> Result<HitTimes, Error> {
        let of_cpus = self.skel.maps.hit_times.lookup_percpu(&0_u32.to_ne_bytes(), MapFlags::ANY);
        let of_cpus = of_cpus.map_err(Error::kernel("read what hits take"))?;
        let mut sum = HitTimes::default();
        for of_cpu in of_cpus.into_iter().flatten() {
            let times: HitTimes = wire::decode(&of_cpu)?;
            sum.enters += times.enters;
            sum.enter_time += times.enter_time;
            sum.returns += times.returns;
            sum.return_time += times.return_time;
        }
        Ok(sum)
    }

    /// What they took while [the cost of calls was measured](Programs::calibrate) whose returns are detected at sites;
    /// none before.
    pub fn calm_hit_times(&self) -> Option<HitTimes> {
        self.calm.get().copied()
    }
}

impl SiteHits {
    /// Those of the sites with ids from 0 on below `sites`, each as it is when its turn comes.
    pub fn read(&self, sites: u32) -> impl Iterator<Item = SiteHitsRecord> {
        let of = |hits: *const SiteHitsRecord| {
            // SAFETY: the entry is in the mapping. What the kernel side writes meanwhile is one number at a time.
            unsafe {
                SiteHitsRecord {
                    matched: (&raw const (*hits).matched).read_volatile(),
                    unmatched: (&raw const (*hits).unmatched).read_volatile(),
                    spent: (&raw const (*hits).spent).read_volatile(),
                    since: (&raw const (*hits).since).read_volatile(),
                }
            }
        };
        (0..sites as usize).map_while(|site| self.0.at(site)).map(of)
    }
}
