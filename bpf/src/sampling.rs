//! Where processes spend CPU time, found by clocks that interrupt the CPUs. No code of the processes is touched.

use std::cell::RefCell;
use std::collections::HashSet;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use libbpf_rs::{Link, MapCore as _, MapFlags, RingBuffer, RingBufferBuilder};

use crate::namespace;
use crate::skeleton::sampling::{SamplingSkel, SamplingSkelBuilder};
use crate::wire::{self, PlaceKey};
use crate::{Error, Rest, clock};

/// Entries that are read by one system call.
const BATCH: u32 = 1024;
/// Bytes of the samples with stacks that are not taken yet: some 250, as many as two CPUs take at 999 a second in 0.1 s.
const STACK_BYTES: u32 = 8 << 20;

/// What is kept of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleDetail {
    /// Where it was: those of one place are counted together.
    Place,
    /// Each for itself, with its time.
    Time,
    /// The same with its stack.
    Stack,
}

/// How samples are taken.
#[derive(Clone, Copy, Debug)]
pub struct SamplingSetup {
    /// Processes that are sampled at a time, at most.
    pub processes: u32,
    /// Whether their children are sampled, too, and what these start.
    pub with_children: bool,
    /// Different places that are noted until they are taken, at most.
    pub places: u32,
    /// What is kept of each.
    pub detail: SampleDetail,
}

/// What the clocks found.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    /// Each place with the number of samples there.
    pub places: Vec<(PlaceKey, u64)>,
    /// Those with their stacks, from the place in code of the process on.
    pub stacks: Vec<(PlaceKey, Rest)>,
    /// Samples so far for which there was no room.
    pub lost: u64,
}

/// Clocks that tick.
pub struct Sampling<'a> {
    skel: &'a SamplingSkel<'a>,
    links: Vec<Link>,
    processes: HashSet<u32>,
    batch: u32,
    stacks: Option<(RingBuffer<'a>, TakenStacks)>,
}

/// Samples with stacks, or why one could not be read.
type TakenStacks = Rc<RefCell<Vec<Result<(PlaceKey, Rest), Error>>>>;

/// Notes where processes are whenever one of the `clocks` ticks, as long as `meanwhile` takes. The clocks are
/// performance events of one CPU each, which do not run yet.
///
/// # Errors
/// [`Error::Kernel`] where the kernel takes no such program, and what `meanwhile` says.
pub fn sample<T>(
    setup: SamplingSetup,
    clocks: Vec<OwnedFd>,
    meanwhile: impl FnOnce(Sampling<'_>) -> Result<T, Error>,
) -> Result<T, Error> {
    let error = || Error::kernel("run a BPF program at the clocks of the CPUs");
    let mut storage = MaybeUninit::uninit();
    let mut open = SamplingSkelBuilder::default().open(&mut storage).map_err(error())?;
    let constants = open.maps.rodata_data.as_mut().expect("the program has read-only data");
    constants.id_namespace = namespace::of_ids();
    constants.with_children = setup.with_children.into();
    constants.keeps_time = (setup.detail != SampleDetail::Place).into();
    constants.keeps_stacks = (setup.detail == SampleDetail::Stack).into();
    if setup.detail == SampleDetail::Stack {
        open.maps.stacks.set_max_entries(STACK_BYTES).map_err(error())?;
    }
    open.maps.processes.set_max_entries(setup.processes).map_err(error())?;
    open.maps.places.set_max_entries(setup.places).map_err(error())?;
    let skel = open.load().map_err(error())?;
    let links = clock::started(clocks, &skel.progs.note_place)?;
    let stacks = match setup.detail {
        SampleDetail::Stack => Some(stack_ring(&skel).map_err(Error::kernel("map the ring of sampled stacks"))?),
        SampleDetail::Place | SampleDetail::Time => None,
    };
    meanwhile(Sampling { skel: &skel, links, processes: HashSet::new(), batch: BATCH.min(setup.places), stacks })
}

fn stack_ring<'s>(skel: &'s SamplingSkel<'_>) -> libbpf_rs::Result<(RingBuffer<'s>, TakenStacks)> {
    let taken = TakenStacks::default();
    let filled = Rc::clone(&taken);
    let mut builder = RingBufferBuilder::new();
    builder.add(&skel.maps.stacks, move |bytes| {
        filled.borrow_mut().push(wire::take::<PlaceKey>(bytes).map(|(place, rest)| (place, Rest::of_sample(rest))));
        0
    })?;
    Ok((builder.build()?, taken))
}

impl Sampling<'_> {
    /// Samples these processes from now on, and no others.
    ///
    /// # Errors
    /// [`Error::Kernel`] where there is no room for them.
    pub fn follow(&mut self, processes: &[u32]) -> Result<(), Error> {
        let error = || Error::kernel("choose the processes that are sampled");
        let processes: HashSet<u32> = processes.iter().copied().collect();
        let map = &self.skel.maps.processes;
        for ended in self.processes.difference(&processes) {
            map.delete(&ended.to_ne_bytes()).map_err(error())?;
        }
        for new in processes.difference(&self.processes) {
            map.update(&new.to_ne_bytes(), &[1], MapFlags::ANY).map_err(error())?;
        }
        self.processes = processes;
        Ok(())
    }

    /// The processes that are sampled; of children, those that were met.
    pub fn met(&self) -> Vec<u32> {
        let number = |key: Vec<u8>| Some(u32::from_ne_bytes(key.try_into().ok()?));
        self.skel.maps.processes.keys().filter_map(number).collect()
    }

    /// The samples since the last call.
    ///
    /// # Errors
    /// [`Error::Kernel`] where they cannot be read, [`Error::Decode`].
    pub fn take(&self) -> Result<Samples, Error> {
        let error = Error::kernel("read where the clocks found the processes");
        let maps = &self.skel.maps;
        let places = maps.places.lookup_and_delete_batch(self.batch, MapFlags::ANY, MapFlags::ANY).map_err(error)?;
        let place = |(key, count): (Vec<u8>, Vec<u8>)| {
            let count = count.try_into().map(u64::from_ne_bytes).unwrap_or_default();
            wire::decode(&key).map(|place: PlaceKey| (place, count))
        };
        let places = places.map(place).collect::<Result<_, _>>()?;
        let mut stacks = Vec::new();
        if let Some((ring, taken)) = &self.stacks {
            ring.consume().map_err(Error::kernel("read the ring of sampled stacks"))?;
            stacks = taken.take().into_iter().collect::<Result<_, _>>()?;
        }
        Ok(Samples { places, stacks, lost: maps.bss_data.as_deref().expect("the program has data").lost })
    }

    /// Stops the clocks, and gives the samples since the last call.
    ///
    /// # Errors
    /// As [`take`](Sampling::take).
    pub fn end(mut self) -> Result<Samples, Error> {
        self.links.clear();
        self.take()
    }
}
