//! Regions whose calls are counted for a time instead of being recorded, and what is counted of them.

use std::sync::atomic::Ordering;

use libbpf_rs::{MapCore as _, MapFlags};

use crate::skeleton::rtrace::OpenRtraceSkel;
use crate::wire::{self, CountedCallsRecord, CountedKey, bytes_of};
use crate::{Error, Programs};

/// Regions that can be counted apart from the others. 24 bytes each.
const REGIONS: u32 = 1 << 18;

/// Entries of counted calls: by thread, region and return address. 1.5 KiB each, when in use.
const COUNTED: u32 = 1 << 16;

/// Entries read by one system call.
const BATCH: u32 = 4096;

/// Calls of one region on one thread that were only counted, made from one place.
#[derive(Clone, Copy, Debug)]
pub struct Counted {
    /// Which.
    pub key: CountedKey,
    /// How many so far, and what was seen of the first ones in the last window.
    pub calls: CountedCallsRecord,
}

pub(crate) fn configure(open: &mut OpenRtraceSkel) -> libbpf_rs::Result<()> {
    open.maps.rodata_data.as_mut().expect("the programs have read-only data").governed = true;
    open.maps.counting.set_max_entries(REGIONS)?;
    open.maps.enters.set_max_entries(REGIONS)?;
    open.maps.counted_calls.set_max_entries(COUNTED)
}

impl Programs {
    /// From now on hits at the region's entry are listened to by the probe that counts, if
    /// `is_counted`, else by the one that records.
    ///
    /// # Errors
    /// [`Error::Kernel`] for a region beyond those that can be counted apart.
    pub fn set_counted(&self, region: u32, is_counted: bool) -> Result<(), Error> {
        let updated =
            self.skel.maps.counting.update(&region.to_ne_bytes(), &u32::from(is_counted).to_ne_bytes(), MapFlags::ANY);
        updated.map_err(Error::kernel("set how a region is recorded"))
    }

    /// Begins a window: of each thread, region and place the first calls that are counted from now
    /// on are looked at. Returns its number.
    pub fn begin_window(&self) -> u32 {
        self.shared.window.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Enters seen so far of the regions from 0 on below `regions`, recorded or counted.
    ///
    /// # Errors
    /// [`Error::Kernel`].
    pub fn enters(&self, regions: u32) -> Result<Vec<u64>, Error> {
        let map = &self.skel.maps.enters;
        let entries = map
            .lookup_batch(BATCH.min(map.max_entries()), MapFlags::ANY, MapFlags::ANY)
            .map_err(Error::kernel("read how often regions are entered"))?;
        let counts = entries.take(regions as usize);
        Ok(counts.map(|(_, count)| count.try_into().map_or(0, u64::from_ne_bytes)).collect())
    }

    /// All calls that were only counted.
    ///
    /// # Errors
    /// [`Error::Kernel`], [`Error::Decode`].
    pub fn counted_calls(&self) -> Result<Vec<Counted>, Error> {
        let entries = self
            .skel
            .maps
            .counted_calls
            .lookup_batch(BATCH, MapFlags::ANY, MapFlags::ANY)
            .map_err(Error::kernel("read counted calls"))?;
        entries.map(|(key, calls)| Ok(Counted { key: wire::decode(&key)?, calls: wire::decode(&calls)? })).collect()
    }

    /// Frees what was counted under these keys, whose threads have ended.
    ///
    /// # Errors
    /// [`Error::Kernel`].
    pub fn forget_counted<'a>(&self, mut keys: impl Iterator<Item = &'a CountedKey>) -> Result<(), Error> {
        let map = &self.skel.maps.counted_calls;
        keys.try_for_each(|key| map.delete(bytes_of(key))).map_err(Error::kernel("forget counted calls"))
    }
}
