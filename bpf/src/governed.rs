//! Regions whose calls are not recorded for a time, and what is counted of them in windows.

use std::num::NonZeroU32;
use std::sync::atomic::Ordering;

use libbpf_rs::{MapCore as _, MapFlags};

use crate::skeleton::rtrace::OpenRtraceSkel;
use crate::wire::{CountedKey, CountedRecord, bytes_of};
use crate::{Error, Programs};

/// Regions that can be throttled. 8 bytes each.
const REGIONS: u32 = 1 << 18;

/// Entries of counted calls: by thread and region. 36 bytes each, and 64 more when in use.
const COUNTED: u32 = 1 << 18;

/// Calls of one region on one thread that were counted in windows.
#[derive(Clone, Copy, Debug)]
pub struct Counted {
    /// Where they are counted.
    pub place: u32,
    /// Which.
    pub key: CountedKey,
    /// How many so far.
    pub calls: u64,
}

/// Entries of counted calls that there are.
pub(crate) fn counts(is_governed: bool) -> usize {
    if is_governed { COUNTED as usize } else { 1 }
}

pub(crate) fn configure(open: &mut OpenRtraceSkel) -> libbpf_rs::Result<()> {
    open.maps.rodata_data.as_mut().expect("the programs have read-only data").governed = true;
    open.maps.throttled.set_max_entries(REGIONS)?;
    open.maps.counts.set_max_entries(COUNTED)?;
    open.maps.count_places.set_max_entries(COUNTED)?;
    open.maps.free_counts.set_max_entries(COUNTED)
}

impl Programs {
    /// From now on the region's calls are not recorded; a hit of its probe costs so many nanoseconds.
    ///
    /// # Errors
    /// [`Error::Kernel`] for a region beyond those that can be throttled.
    pub fn throttle(&self, region: u32, cost: NonZeroU32) -> Result<(), Error> {
        self.set_throttled(region, cost.get())
    }

    /// From now on the region's calls are recorded again.
    ///
    /// # Errors
    /// As for [`throttle`](Programs::throttle).
    pub fn restore(&self, region: u32) -> Result<(), Error> {
        self.set_throttled(region, 0)
    }

    fn set_throttled(&self, region: u32, cost: u32) -> Result<(), Error> {
        let updated = self.skel.maps.throttled.update(&region.to_ne_bytes(), &cost.to_ne_bytes(), MapFlags::ANY);
        updated.map_err(Error::kernel("set how a region is recorded"))
    }

    /// Nanoseconds that the hits of throttled regions cost so far.
    ///
    /// # Errors
    /// [`Error::Kernel`].
    pub fn throttled_cost(&self) -> Result<u64, Error> {
        let sums = self.skel.maps.throttled_cost.lookup_percpu(&0_u32.to_ne_bytes(), MapFlags::ANY);
        let sums = sums.map_err(Error::kernel("read what hits of throttled functions cost"))?;
        Ok(sums.into_iter().flatten().map(count_of).sum())
    }

    /// Opens or closes a window: while it is open, hits of throttled regions are counted. Before recording begins, those
    /// of all regions are, among the [entries](Programs::entries).
    pub fn set_window(&self, is_open: bool) {
        self.shared.window_is_open.store(is_open.into(), Ordering::SeqCst);
    }

    /// All calls that were counted in windows.
    pub fn counted_calls(&self) -> Vec<Counted> {
        let used = self.shared.counts_used.load(Ordering::SeqCst);
        let counted = (0..used).map_while(|place| Some((place, self.counts.at(place as usize)?)));
        let counted = counted.map(|(place, entry)| {
            // SAFETY: the entry is in the mapping. What the kernel side writes meanwhile is one number at a time.
            let (calls, key) =
                unsafe { ((&raw const (*entry).calls).read_volatile(), (&raw const (*entry).key).read_volatile()) };
            Counted { place, key, calls }
        });
        counted.filter(|counted| counted.calls > 0).collect()
    }

    /// Frees these counts, whose threads have ended.
    ///
    /// # Errors
    /// [`Error::Kernel`].
    pub fn forget_counted<'a>(&self, mut counted: impl Iterator<Item = &'a Counted>) -> Result<(), Error> {
        let maps = &self.skel.maps;
        let forget = |Counted { place, key, .. }: &Counted| {
            maps.count_places.delete(bytes_of(key))?;
            maps.counts.update(&place.to_ne_bytes(), bytes_of(&CountedRecord::default()), MapFlags::ANY)?;
            maps.free_counts.update(&[], &place.to_ne_bytes(), MapFlags::ANY)
        };
        counted.try_for_each(forget).map_err(Error::kernel("forget counted calls"))
    }
}

fn count_of(value: Vec<u8>) -> u64 {
    value.try_into().map_or(0, u64::from_ne_bytes)
}
