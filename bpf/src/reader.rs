//! Emptying the rings.
//!
//! The programs never wake the reader, because a wake-up costs the traced thread more than the
//! probe itself: whoever reads does so on a timer.

use std::cell::RefCell;
use std::rc::Rc;

use libbpf_rs::{RingBuffer, RingBufferBuilder};

use crate::wire::{self, CallRecord, EventRecord};
use crate::{Error, Programs};

/// What one pass over the rings yields.
#[derive(Default)]
struct Pass {
    calls: Vec<CallRecord>,
    events: Vec<EventRecord>,
    bad_records: u64,
}

/// Reads the rings of all CPUs.
pub struct Reader<'a> {
    calls: RingBuffer<'a>,
    events: RingBuffer<'a>,
    pass: Rc<RefCell<Pass>>,
}

impl Programs {
    /// A reader of all records.
    ///
    /// # Errors
    /// [`Error::Kernel`] if the rings cannot be mapped.
    pub fn reader(&self) -> Result<Reader<'_>, Error> {
        let pass = Rc::new(RefCell::new(Pass::default()));
        let error = Error::kernel;
        let mut calls = RingBufferBuilder::new();
        for ring in &self.rings {
            let pass = Rc::clone(&pass);
            let take = move |bytes: &[u8]| {
                let pass = &mut *pass.borrow_mut();
                match wire::decode(bytes) {
                    Ok(call) => pass.calls.push(call),
                    Err(_) => pass.bad_records += 1,
                }
                0
            };
            calls.add(ring, take).map_err(error("map a ring of calls"))?;
        }
        let mut events = RingBufferBuilder::new();
        let event_pass = Rc::clone(&pass);
        let take = move |bytes: &[u8]| {
            let pass = &mut *event_pass.borrow_mut();
            match wire::decode(bytes) {
                Ok(event) => pass.events.push(event),
                Err(_) => pass.bad_records += 1,
            }
            0
        };
        events.add(&self.skel.maps.events, take).map_err(error("map the ring of events"))?;
        Ok(Reader {
            calls: calls.build().map_err(error("map the rings of calls"))?,
            events: events.build().map_err(error("map the ring of events"))?,
            pass,
        })
    }
}

impl Reader<'_> {
    /// Moves what the rings hold to the end of `calls` and `events`; returns how many records
    /// could not be understood.
    ///
    /// # Errors
    /// [`Error::Kernel`] if a ring cannot be read.
    pub fn read(&mut self, calls: &mut Vec<CallRecord>, events: &mut Vec<EventRecord>) -> Result<u64, Error> {
        self.events.consume().map_err(Error::kernel("read the ring of events"))?;
        self.calls.consume().map_err(Error::kernel("read the rings of calls"))?;
        let mut pass = self.pass.borrow_mut();
        calls.append(&mut pass.calls);
        events.append(&mut pass.events);
        Ok(std::mem::take(&mut pass.bad_records))
    }
}
