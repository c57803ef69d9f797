//! The call-path profile: calls that the programs fold instead of sending them one by one.
//!
//! Each entry of the table has one writer, its thread, so it can be read at any time; what is read
//! while the thread runs may lack its last call in some of the sums.

use libbpf_rs::{MapCore, MapFlags};

use crate::skeleton::rtrace::OpenRtraceSkel;
use crate::wire::{self, PathCounts, PathKey, PathRecord, bytes_of};
use crate::{Error, ProfileOptions, Programs};

/// Entries read by one system call.
const BATCH: u32 = 1024;

pub(crate) fn configure(
    open: &mut OpenRtraceSkel,
    options: &ProfileOptions,
    is_counted: bool,
) -> libbpf_rs::Result<()> {
    let data = open.maps.rodata_data.as_mut().expect("the programs have read-only data");
    data.profiled = true;
    data.written_from = options.written_from.unwrap_or(u64::MAX);
    // The first entry of the table is not in use.
    open.maps.paths.set_max_entries(options.max_paths.saturating_add(1))?;
    if is_counted {
        open.maps.path_counts.set_max_entries(options.max_paths.saturating_add(1))?;
    }
    open.maps.path_ids.set_max_entries(options.max_paths)?;
    open.maps.free_paths.set_max_entries(options.max_paths)
}

impl Programs {
    /// All call paths with their ids, and what their calls counted; ids are used again once [forgotten](Programs::forget_path).
    ///
    /// # Errors
    /// [`Error::Kernel`], [`Error::Decode`].
    pub fn paths(&self) -> Result<Vec<(u32, PathRecord, PathCounts)>, Error> {
        let used = self.paths_used();
        if used == 0 {
            return Ok(Vec::new());
        }
        let maps = &self.skel.maps;
        let mut counts = Vec::new();
        if self.counters() > 0 {
            for (_, (_, value)) in (0..=used).zip(all_of(&maps.path_counts)?) {
                counts.push(wire::decode(&value)?);
            }
        }
        let mut paths = Vec::new();
        for (id, (_, value)) in (0..=used).zip(all_of(&maps.paths)?) {
            let path: PathRecord = wire::decode(&value)?;
            if path.location != 0 {
                paths.push((id, path, counts.get(id as usize).copied().unwrap_or_default()));
            }
        }
        Ok(paths)
    }

    /// Gives the entry of a call path back. Its location must have ended.
    ///
    /// # Errors
    /// [`Error::Kernel`].
    pub fn forget_path(&self, id: u32, path: &PathRecord) -> Result<(), Error> {
        let error = |source| Error::Kernel { action: "forget a call path", source };
        let maps = &self.skel.maps;
        let key = PathKey { location: path.location, parent: path.parent, region: path.region };
        let empty = PathRecord::default();
        maps.path_ids.delete(bytes_of(&key)).map_err(error)?;
        if self.counters() > 0 {
            let nothing = PathCounts::default();
            maps.path_counts.update(&id.to_ne_bytes(), bytes_of(&nothing), MapFlags::ANY).map_err(error)?;
        }
        maps.paths.update(&id.to_ne_bytes(), bytes_of(&empty), MapFlags::ANY).map_err(error)?;
        maps.free_paths.update(&[], &id.to_ne_bytes(), MapFlags::ANY).map_err(error)
    }
}

/// The entries of an array, in order.
fn all_of<M: MapCore>(map: &M) -> Result<impl Iterator<Item = (Vec<u8>, Vec<u8>)>, Error> {
    map.lookup_batch(BATCH.min(map.max_entries()), MapFlags::ANY, MapFlags::ANY)
        .map_err(Error::kernel("read the call paths"))
}
