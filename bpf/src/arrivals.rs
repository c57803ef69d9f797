//! What user space tells the kernel side about return addresses, and hears about them.

use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};

use libbpf_rs::{ErrorKind, MapCore, MapFlags, RingBuffer, RingBufferBuilder};

use crate::error::is_errno;
use crate::wire::{
    self, ArrivalCode, ArrivalKey, ArrivalRecord, BehindBit, CodeChangeRecord, ContextKey, NO_REGION, OPENS, PrimedKey,
    QuestionRecord, Record, SiteHitsRecord, TailKey, UntimedKey, bytes_of,
};
use crate::{Error, Programs};

/// Return sites whose hits are counted, at most; ids of others are taken to be counted by nobody.
pub const MAX_SITES: u32 = 1 << 18;

/// The kernel's own numbering of devices, `MINORBITS` of include/linux/kdev_t.h.
const MINOR_BITS: u32 = 20;

/// Entries written by one system call.
const BATCH: usize = 8192;

/// When a probe that is there again was last taken out: calls that entered before may have returned unseen, and those
/// that entered until it came back are in doubt by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Since(u32);

impl Since {
    /// At that time of `CLOCK_MONOTONIC`, in nanoseconds, rounded up.
    pub fn new(time: u64) -> Since {
        let bits = (1 << wire::Limit::RT_SINCE_BITS.0) - 1;
        Since(((time >> wire::Limit::RT_SINCE_SHIFT.0) as u32 & bits).max(1))
    }
}

/// What is known of the code behind a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Behind {
    /// How its function may get control back from a call without its return.
    pub back: Back,
    /// All calls that return there enter the same traced function.
    pub is_fixed: bool,
}

/// How a function may get control back from a call without its return.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Back {
    /// It does not.
    #[default]
    Never,
    /// By jumps that probes see.
    Caught,
    /// By others, too.
    Lands,
    /// By others, which may come to the return address of the call, too: nobody knows when the call ended.
    Joined,
}

impl Behind {
    fn bits(self) -> u32 {
        let back = match self.back {
            Back::Never => 0,
            Back::Caught => BehindBit::RT_BEHIND_CATCHES.0,
            Back::Lands => BehindBit::RT_BEHIND_LANDS.0,
            Back::Joined => BehindBit::RT_BEHIND_JOINED.0,
        };
        back | if self.is_fixed { BehindBit::RT_BEHIND_FIXED.0 } else { 0 }
    }
}

/// What is known of a return address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrivalRule {
    /// A probe detects returns to it.
    Placed {
        /// What is known of the code there.
        behind: Behind,
        /// When it was last taken out; none where it never was.
        since: Option<Since>,
        /// Bytes from the return address to the probe; none where nothing returns to it, and there is none.
        distance: Option<u8>,
    },
    /// The code there only returns.
    Skip {
        /// So many words above lies the caller's own return address.
        words: u32,
        /// All calls that return there enter the same traced function.
        is_fixed: bool,
    },
    /// No probe can be placed.
    Impossible,
    /// The probe was taken out because it cost too much. The kernel side asks again after this many calls from
    /// there; never where it is 0. It may count less where several threads call at once.
    Dropped {
        /// Calls.
        after: u32,
    },
}

impl ArrivalRule {
    fn record(self) -> ArrivalRecord {
        let distance = match self {
            ArrivalRule::Placed { distance: Some(distance), .. } => distance.into(),
            _ => wire::Limit::RT_NO_PROBE.0,
        };
        let (kind, words) = match self {
            ArrivalRule::Placed { behind, since, .. } => {
                let since = since.map_or(0, |Since(since)| since << BehindBit::RT_BEHIND_BITS.0);
                (ArrivalCode::RT_ARRIVAL_PLACED, since | behind.bits())
            }
            ArrivalRule::Skip { words, is_fixed } => {
                (ArrivalCode::RT_ARRIVAL_SKIP, words | u32::from(is_fixed) << wire::Limit::RT_SKIP_FIXED_BIT.0)
            }
            ArrivalRule::Impossible => (ArrivalCode::RT_ARRIVAL_IMPOSSIBLE, 0),
            ArrivalRule::Dropped { after } => (ArrivalCode::RT_ARRIVAL_DROPPED, after),
        };
        ArrivalRecord { kind, words, distance }
    }
}

/// A return address in a file, as one process maps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FilePlace {
    /// Device of the file, as `stat` gives it.
    pub device: u64,
    /// Inode of the file.
    pub inode: u64,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// The process.
    pub pid: u32,
}

impl FilePlace {
    /// The place that a record means; none where it means nothing in a file.
    pub fn of(record: &PrimedKey) -> Option<FilePlace> {
        let PrimedKey { inode, offset, device, pid } = *record;
        let device = libc::makedev(device >> MINOR_BITS, device & ((1 << MINOR_BITS) - 1));
        (inode != 0).then_some(FilePlace { device, inode, offset, pid })
    }

    fn key(&self) -> PrimedKey {
        let (major, minor) = (libc::major(self.device), libc::minor(self.device));
        PrimedKey { inode: self.inode, offset: self.offset, device: major << MINOR_BITS | minor, pid: self.pid }
    }
}

impl Programs {
    /// Tells the kernel side about return addresses of an address space. Calls from those for which there is no room have
    /// no duration.
    ///
    /// # Errors
    /// [`Error::Kernel`].
    pub fn set_arrivals(&self, space: u32, arrivals: &[(u64, ArrivalRule)]) -> Result<(), Error> {
        let pairs = arrivals.iter().map(|&(address, arrival)| {
            let key = ArrivalKey { address, space, ..ArrivalKey::default() };
            (key, arrival.record())
        });
        write_fitting(&self.skel.maps.arrivals, pairs).map_err(Error::kernel("describe return addresses"))
    }

    /// Tells the kernel side about return addresses that it has not met yet. It asks about those for which there
    /// is no room.
    ///
    /// # Errors
    /// [`Error::Kernel`].
    pub fn prime(&self, arrivals: &[(FilePlace, ArrivalRule)]) -> Result<(), Error> {
        let pairs = arrivals.iter().map(|(place, arrival)| (place.key(), arrival.record()));
        write_fitting(&self.skel.maps.primed, pairs).map_err(Error::kernel("describe return addresses of a file"))
    }

    /// Lets the kernel side know nothing of a place and its addresses, each with its space, so that it asks when
    /// it next meets one.
    ///
    /// # Errors
    /// [`Error::Kernel`].
    pub fn forget_arrival(&self, place: FilePlace, addresses: &[(u32, u64)]) -> Result<(), Error> {
        let error = || Error::kernel("forget a return address");
        // First, as what is primed becomes known of an address that is not.
        forget(&self.skel.maps.primed, &place.key()).map_err(error())?;
        for &(space, address) in addresses {
            let key = ArrivalKey { address, space, ..ArrivalKey::default() };
            forget(&self.skel.maps.arrivals, &key).map_err(error())?;
            forget(&self.skel.maps.arrival_places, &key).map_err(error())?;
        }
        Ok(())
    }

    /// Lets the kernel side know nothing of the code that a process had at these addresses: something else is there now.
    /// Returns the number of its space, if the process is traced.
    ///
    /// # Errors
    /// [`Error::Kernel`], [`Error::Decode`].
    pub fn forget_code(&self, pid: u32, addresses: &Range<u64>) -> Result<Option<u32>, Error> {
        let Some(space) = self.space(pid)? else { return Ok(None) };
        let maps = &self.skel.maps;
        for map in [&maps.arrivals, &maps.arrival_places, &maps.rules] {
            let of_code = |key: &ArrivalKey| key.space == space && addresses.contains(&key.address);
            forget_all(map, of_code)?;
        }
        // A context of the same addresses is another one.
        forget_all(&maps.context_ids, |key: &ContextKey| key.space == space)?;
        Ok(Some(space))
    }

    /// Tells the kernel side which regions end in a jump to which others.
    ///
    /// # Errors
    /// [`Error::Kernel`] if the table is full.
    pub fn set_tail_calls(&self, tails: impl Iterator<Item = (u32, u32)>) -> Result<(), Error> {
        let pairs = tails.map(|(from, to)| (TailKey { from, to }, MapNumber(1)));
        write_all(&self.skel.maps.tails, pairs).map_err(Error::kernel("describe tail calls"))
    }

    /// Tells the kernel side how regions return, as [`pops_number`](wire::pops_number) has it.
    ///
    /// # Errors
    /// [`Error::Kernel`] if the table is full.
    pub fn set_pops(&self, numbers: impl Iterator<Item = (u32, u32)>) -> Result<(), Error> {
        let pairs = numbers.map(|(from, number)| (TailKey { from, to: NO_REGION }, MapNumber(number)));
        write_all(&self.skel.maps.tails, pairs).map_err(Error::kernel("describe how functions return"))
    }

    /// Tells the kernel side within the calls of which regions others are recorded.
    ///
    /// # Errors
    /// [`Error::Kernel`] if the table is full.
    pub fn set_openers(&self, regions: impl Iterator<Item = u32>) -> Result<(), Error> {
        let pairs = regions.map(|from| (TailKey { from, to: OPENS }, MapNumber(1)));
        write_all(&self.skel.maps.tails, pairs).map_err(Error::kernel("say within which functions calls are recorded"))
    }

    /// From now on calls are recorded only within those of the regions that [open](Programs::set_openers), and these.
    pub fn record_within(&self) {
        self.shared.within.store(1, std::sync::atomic::Ordering::SeqCst);
    }

    /// A reader of the return addresses of which nothing is known.
    ///
    /// # Errors
    /// [`Error::Kernel`] if the ring cannot be mapped.
    pub fn questions(&self) -> Result<Tidings<'_, QuestionRecord>, Error> {
        Tidings::read(&self.skel.maps.questions)
    }

    /// A reader of what threads are about to do to code. There may be several: each takes what no other one has taken, as long
    /// as they do so in turn.
    ///
    /// # Errors
    /// [`Error::Kernel`] if the ring cannot be mapped.
    pub fn code_changes(&self) -> Result<Tidings<'_, CodeChangeRecord>, Error> {
        Tidings::read(&self.skel.maps.code_changes)
    }

    /// Tells the kernel side when this site was last taken out, before it is placed.
    ///
    /// # Errors
    /// [`Error::Kernel`].
    pub fn set_since(&self, site: u32, Since(since): Since) -> Result<(), Error> {
        let hits = SiteHitsRecord { since: since.into(), ..SiteHitsRecord::default() };
        let action = "describe a return site";
        match site < MAX_SITES {
            true => self.skel.maps.site_hits.update(&site.to_ne_bytes(), bytes_of(&hits), MapFlags::ANY),
            false => Ok(()),
        }
        .map_err(Error::kernel(action))
    }

    /// Hits of return sites that the kernel single-stepped.
    pub fn stepped_returns(&self) -> u64 {
        self.shared.stepped_returns.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Nanoseconds that threads have waited for probes: at return addresses that they met, and in children.
    pub fn waited(&self) -> u64 {
        self.shared.waited.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Calls without a duration so far, by region and reason.
    ///
    /// # Errors
    /// [`Error::Kernel`], [`Error::Decode`].
    pub fn untimed(&self) -> Result<Vec<(UntimedKey, u64)>, Error> {
        let map = &self.skel.maps.untimed;
        let mut untimed = Vec::new();
        for key in map.keys() {
            let value = map.lookup(&key, MapFlags::ANY).map_err(Error::kernel("look up untimed calls"))?;
            if let Some(Ok(count)) = value.map(|bytes| bytes.try_into().map(u64::from_ne_bytes)) {
                untimed.push((wire::decode(&key)?, count));
            }
        }
        Ok(untimed)
    }
}

/// A number, as a value of a map.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct MapNumber(u32);

// SAFETY: a transparent wrapper of an integer.
unsafe impl wire::Record for MapNumber {
    const NAME: &'static str = "a number";
}

/// Removes an entry, if it is there.
pub(crate) fn forget(map: &impl MapCore, key: &impl wire::Record) -> libbpf_rs::Result<()> {
    match map.delete(bytes_of(key)) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        deleted => deleted,
    }
}

/// Removes all entries whose keys are meant.
fn forget_all<K: wire::Record>(map: &impl MapCore, is_meant: impl Fn(&K) -> bool) -> Result<(), Error> {
    // None is left out because another one was removed meanwhile.
    let keys: Vec<Vec<u8>> = map.keys().collect();
    for bytes in keys {
        let key = wire::decode(&bytes)?;
        if is_meant(&key) {
            forget(map, &key).map_err(Error::kernel("forget code"))?;
        }
    }
    Ok(())
}

pub(crate) fn write_all<K: wire::Record, V: wire::Record>(
    map: &impl MapCore,
    mut pairs: impl Iterator<Item = (K, V)>,
) -> libbpf_rs::Result<()> {
    loop {
        let (mut keys, mut values, mut count) = (Vec::new(), Vec::new(), 0);
        for (key, value) in pairs.by_ref().take(BATCH) {
            keys.extend_from_slice(bytes_of(&key));
            values.extend_from_slice(bytes_of(&value));
            count += 1;
        }
        if count == 0 {
            return Ok(());
        }
        map.update_batch(&keys, &values, count, MapFlags::ANY, MapFlags::ANY)?;
    }
}

/// Writes all that there is room for; what is there already has room.
fn write_fitting<K: wire::Record, V: wire::Record>(
    map: &impl MapCore,
    pairs: impl Iterator<Item = (K, V)>,
) -> libbpf_rs::Result<()> {
    let is_full = |error: &libbpf_rs::Error| is_errno(error, libc::E2BIG);
    let pairs: Vec<_> = pairs.collect();
    for batch in pairs.chunks(BATCH) {
        match write_all(map, batch.iter().copied()) {
            // The kernel has left out all behind the first one that has no room.
            Err(error) if is_full(&error) => {
                for (key, value) in batch {
                    map.update(bytes_of(key), bytes_of(value), MapFlags::ANY).or_else(|error| {
                        match is_full(&error) {
                            true => Ok(()),
                            false => Err(error),
                        }
                    })?;
                }
            }
            written => written?,
        }
    }
    Ok(())
}

/// What the kernel side tells in a ring of its own.
pub struct Tidings<'a, R> {
    ring: RingBuffer<'a>,
    pending: std::rc::Rc<std::cell::RefCell<Vec<R>>>,
}

impl<R> AsFd for Tidings<'_, R> {
    /// It can be read while there are some.
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring keeps its descriptor open.
        unsafe { BorrowedFd::borrow_raw(self.ring.epoll_fd()) }
    }
}

impl<'a, R: Record + 'a> Tidings<'a, R> {
    fn read(map: &'a dyn MapCore) -> Result<Tidings<'a, R>, Error> {
        let pending = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
        let filled = std::rc::Rc::clone(&pending);
        let mut builder = RingBufferBuilder::new();
        let take = move |bytes: &[u8]| {
            filled.borrow_mut().extend(wire::decode::<R>(bytes).ok());
            0
        };
        builder.add(map, take).map_err(Error::kernel("map a ring"))?;
        let ring = builder.build().map_err(Error::kernel("map a ring"))?;
        Ok(Tidings { ring, pending })
    }

    /// What there is.
    ///
    /// # Errors
    /// [`Error::Kernel`] if the ring cannot be read.
    pub fn take(&mut self) -> Result<Vec<R>, Error> {
        self.ring.consume().map_err(Error::kernel("read a ring"))?;
        Ok(std::mem::take(&mut *self.pending.borrow_mut()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use libbpf_rs::libbpf_sys::bpf_map_create_opts;
    use libbpf_rs::{MapHandle, MapType};

    use super::*;

    #[test]
    fn what_is_in_a_full_table_is_still_changed() {
        let options = bpf_map_create_opts { sz: size_of::<bpf_map_create_opts>() as u64, ..Default::default() };
        let Ok(map) = MapHandle::create(MapType::Hash, Some("rt_full"), 4, 4, 2, &options) else {
            return println!("skipped: no maps can be made here");
        };
        let write = |pairs: &[(u32, u32)]| {
            write_fitting(&map, pairs.iter().map(|&(key, value)| (MapNumber(key), MapNumber(value)))).unwrap();
        };
        let read = |key: u32| map.lookup(&key.to_ne_bytes(), MapFlags::ANY).unwrap();
        write(&[(1, 1), (2, 1)]);
        write(&[(3, 2), (2, 2), (4, 2), (1, 2)]);
        assert_eq!([1, 2].map(read), [Some(2_u32.to_ne_bytes().to_vec()), Some(2_u32.to_ne_bytes().to_vec())]);
        assert_eq!([3, 4].map(read), [None, None]);
    }
}
