//! Emptying the rings.
//!
//! The programs never wake the reader, because a wake-up costs the traced thread more than the
//! probe itself: whoever reads does so on a timer.

use std::cell::RefCell;
use std::rc::Rc;

use libbpf_rs::{MapCore, RingBuffer, RingBufferBuilder};

use crate::wire::{self, AccessRecord, CallRecord, CallWords, EventKindCode, EventRecord, ReadingRecord};
use crate::{Error, Programs};

/// What the rings held.
#[derive(Debug, Default)]
pub struct Records {
    /// Calls that ended.
    pub calls: Vec<CallRecord>,
    /// What they counted: one reading per counter for each call.
    pub readings: Vec<ReadingRecord>,
    /// The values that some have, each with the place of its call among `calls`, in their order.
    pub values: Vec<(usize, CallWords)>,
    /// What happened beside them. Where a program was executed, with its command line, each word ended by a null; it is
    /// empty if it is too long.
    pub events: Vec<(EventRecord, Vec<u8>)>,
    /// Forks of processes that may have made some of the calls; they are among the events of the next records.
    pub forks: Vec<EventRecord>,
    /// What watched variables held after accesses.
    pub accesses: Vec<AccessRecord>,
    /// Number of records that could not be understood.
    pub bad_records: u64,
}

impl Records {
    fn take_call(&mut self, bytes: &[u8], counters: usize, words: usize) -> Result<(), Error> {
        let (call, rest) = wire::take(bytes)?;
        let Some((readings, values)) = rest.split_at_checked(counters * size_of::<ReadingRecord>()) else {
            return Err(Error::Decode { what: "the readings of a call", bytes: rest.len() });
        };
        if !values.is_empty() {
            self.values.push((self.calls.len(), wire::take_values(values, words)?));
        }
        wire::take_readings(readings, counters, &mut self.readings)?;
        self.calls.push(call);
        Ok(())
    }

    /// Memory that the records take.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.calls)
            + size_of_val(&*self.readings)
            + size_of_val(&*self.values)
            + size_of_val(&*self.events)
            + size_of_val(&*self.accesses)
    }

    fn clear(&mut self) {
        self.calls.clear();
        self.readings.clear();
        self.values.clear();
        self.events.clear();
        self.forks.clear();
        self.accesses.clear();
        self.bad_records = 0;
    }
}

/// Reads the rings of all CPUs.
pub struct RingReader<'a> {
    calls: RingBuffer<'a>,
    events: RingBuffer<'a>,
    accesses: RingBuffer<'a>,
    pass: Rc<RefCell<Records>>,
}

impl Programs {
    /// A reader of all records.
    ///
    /// # Errors
    /// [`Error::Kernel`] if the rings cannot be mapped.
    pub fn reader(&self) -> Result<RingReader<'_>, Error> {
        let pass = Rc::new(RefCell::new(Records::default()));
        let error = Error::kernel;
        let mut calls = RingBufferBuilder::new();
        for (_, ring) in &self.rings {
            let pass = Rc::clone(&pass);
            let (counters, words) = (self.counters(), self.words());
            let take = move |bytes: &[u8]| {
                let pass = &mut *pass.borrow_mut();
                pass.bad_records += u64::from(pass.take_call(bytes, counters, words).is_err());
                0
            };
            calls.add(ring, take).map_err(error("map a ring of calls"))?;
        }
        let events = single(&self.skel.maps.events, &pass, |pass| &mut pass.events, take_event);
        let accesses = single(&self.skel.maps.accesses, &pass, |pass| &mut pass.accesses, wire::decode);
        Ok(RingReader {
            calls: calls.build().map_err(error("map the rings of calls"))?,
            events: events.map_err(error("map the ring of events"))?,
            accesses: accesses.map_err(error("map the ring of values"))?,
            pass,
        })
    }
}

/// An event with the command line that may be behind it.
fn take_event(bytes: &[u8]) -> Result<(EventRecord, Vec<u8>), Error> {
    let (event, rest) = wire::take(bytes)?;
    let Some((length, arguments)) = rest.split_first_chunk() else { return Ok((event, Vec::new())) };
    let length = usize::try_from(u64::from_ne_bytes(*length)).unwrap_or(usize::MAX);
    Ok((event, arguments.get(..length).unwrap_or_default().to_vec()))
}

/// A ring of records of one kind.
fn single<'a, T: 'a>(
    ring: &'a dyn MapCore,
    pass: &Rc<RefCell<Records>>,
    place: fn(&mut Records) -> &mut Vec<T>,
    decode: fn(&[u8]) -> Result<T, Error>,
) -> libbpf_rs::Result<RingBuffer<'a>> {
    let pass = Rc::clone(pass);
    let take = move |bytes: &[u8]| {
        let pass = &mut *pass.borrow_mut();
        match decode(bytes) {
            Ok(record) => place(pass).push(record),
            Err(_) => pass.bad_records += 1,
        }
        0
    };
    let mut builder = RingBufferBuilder::new();
    builder.add(ring, take)?;
    builder.build()
}

impl RingReader<'_> {
    /// Exchanges what `records` holds for what the rings hold. The end of a thread comes behind all its calls, and the
    /// fork of a process not behind any.
    ///
    /// # Errors
    /// [`Error::Kernel`] if a ring cannot be read.
    pub fn read(&mut self, records: &mut Records) -> Result<(), Error> {
        records.clear();
        self.events.consume().map_err(Error::kernel("read the ring of events"))?;
        self.accesses.consume().map_err(Error::kernel("read the ring of values"))?;
        self.calls.consume().map_err(Error::kernel("read the rings of calls"))?;
        let until = self.pass.borrow().events.len();
        self.events.consume().map_err(Error::kernel("read the ring of events"))?;
        let mut pass = self.pass.borrow_mut();
        std::mem::swap(records, &mut pass);
        if !records.calls.is_empty() {
            pass.events = records.events.split_off(until);
            let forks = pass.events.iter().map(|(event, _)| event);
            records.forks.extend(forks.filter(|event| event.kind == EventKindCode::RT_EVENT_FORK));
        }
        Ok(())
    }
}
