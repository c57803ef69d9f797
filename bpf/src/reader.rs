//! Emptying the rings.
//!
//! The programs never wake the reader, because a wake-up costs the traced thread more than the
//! probe itself: whoever reads does so on a timer.

use std::cell::RefCell;
use std::rc::Rc;

use libbpf_rs::{MapCore, RingBuffer, RingBufferBuilder};

use crate::wire::{self, AccessRecord, CallRecord, EventRecord, ReadingRecord, Record, ValuesRecord};
use crate::{Error, Programs};

/// What the rings held.
#[derive(Debug, Default)]
pub struct Records {
    /// Calls that ended.
    pub calls: Vec<CallRecord>,
    /// What they counted: one reading per counter for each call.
    pub readings: Vec<ReadingRecord>,
    /// The values that some have, each with the place of its call among `calls`, in their order.
    pub values: Vec<(usize, ValuesRecord)>,
    /// What happened beside them.
    pub events: Vec<EventRecord>,
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
        self.accesses.clear();
        self.bad_records = 0;
    }
}

/// Reads the rings of all CPUs.
pub struct Reader<'a> {
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
    pub fn reader(&self) -> Result<Reader<'_>, Error> {
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
        let events = single(&self.skel.maps.events, &pass, |pass| &mut pass.events);
        let accesses = single(&self.skel.maps.accesses, &pass, |pass| &mut pass.accesses);
        Ok(Reader {
            calls: calls.build().map_err(error("map the rings of calls"))?,
            events: events.map_err(error("map the ring of events"))?,
            accesses: accesses.map_err(error("map the ring of values"))?,
            pass,
        })
    }
}

/// A ring of records of one kind.
fn single<'a, T: Record + 'a>(
    ring: &'a dyn MapCore,
    pass: &Rc<RefCell<Records>>,
    place: fn(&mut Records) -> &mut Vec<T>,
) -> libbpf_rs::Result<RingBuffer<'a>> {
    let pass = Rc::clone(pass);
    let take = move |bytes: &[u8]| {
        let pass = &mut *pass.borrow_mut();
        match wire::decode(bytes) {
            Ok(record) => place(pass).push(record),
            Err(_) => pass.bad_records += 1,
        }
        0
    };
    let mut builder = RingBufferBuilder::new();
    builder.add(ring, take)?;
    builder.build()
}

impl Reader<'_> {
    /// Exchanges what `records` holds for what the rings hold.
    ///
    /// # Errors
    /// [`Error::Kernel`] if a ring cannot be read.
    pub fn read(&mut self, records: &mut Records) -> Result<(), Error> {
        records.clear();
        self.events.consume().map_err(Error::kernel("read the ring of events"))?;
        self.accesses.consume().map_err(Error::kernel("read the ring of values"))?;
        self.calls.consume().map_err(Error::kernel("read the rings of calls"))?;
        std::mem::swap(records, &mut self.pass.borrow_mut());
        Ok(())
    }
}
