//! Where processes spend CPU time, found by clocks that interrupt the CPUs. No code of the processes is touched.

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, IntoRawFd as _, OwnedFd};

use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use libbpf_rs::{MapCore as _, MapFlags};

use crate::Error;
use crate::namespace;
use crate::skeleton::sampling::SamplingSkelBuilder;
use crate::wire::{self, PlaceKey};

/// Entries that are read by one system call.
const BATCH: u32 = 1024;

/// What the clocks found.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    /// Each place with the number of samples there.
    pub places: Vec<(PlaceKey, u64)>,
    /// Samples of further places, for which there was no room.
    pub lost: u64,
}

/// Notes where `processes` are whenever one of the `clocks` ticks, as long as `meanwhile` takes. The clocks are
/// performance events of one CPU each, which do not run yet; there is room for so many different places.
///
/// # Errors
/// [`Error::Kernel`] where the kernel takes no such program, [`Error::Decode`].
pub fn sample(processes: &[u32], room: u32, clocks: Vec<OwnedFd>, meanwhile: impl FnOnce()) -> Result<Samples, Error> {
    let error = || Error::kernel("run a BPF program at the clocks of the CPUs");
    let mut storage = MaybeUninit::uninit();
    let mut open = SamplingSkelBuilder::default().open(&mut storage).map_err(error())?;
    let constants = open.maps.rodata_data.as_mut().expect("the program has read-only data");
    constants.id_namespace = namespace::of_ids();
    open.maps.processes.set_max_entries(u32::try_from(processes.len()).unwrap_or(u32::MAX)).map_err(error())?;
    open.maps.places.set_max_entries(room).map_err(error())?;
    let skel = open.load().map_err(error())?;
    for process in processes {
        skel.maps.processes.update(&process.to_ne_bytes(), &[1], MapFlags::ANY).map_err(error())?;
    }
    let attach = |clock: OwnedFd| {
        let link = skel.progs.note_place.attach_perf_event(clock.as_raw_fd())?;
        // The link closes it.
        let _ = clock.into_raw_fd();
        Ok(link)
    };
    let links = clocks.into_iter().map(attach).collect::<libbpf_rs::Result<Vec<_>>>().map_err(error())?;
    meanwhile();
    drop(links);
    let read = || Error::kernel("read where the clocks found the processes");
    let places = skel.maps.places.lookup_batch(BATCH.min(room), MapFlags::ANY, MapFlags::ANY).map_err(read())?;
    let place = |(key, count): (Vec<u8>, Vec<u8>)| {
        let count = count.try_into().map(u64::from_ne_bytes).unwrap_or_default();
        wire::decode(&key).map(|place: PlaceKey| (place, count))
    };
    let places = places.map(place).collect::<Result<_, _>>()?;
    Ok(Samples { places, lost: skel.maps.bss_data.as_deref().expect("the program has data").lost })
}
