//! Reads the input as each of the records that the kernel side sends.

#![no_main]

use std::fmt::Debug;
use std::hint::black_box;

use libfuzzer_sys::fuzz_target;
use rtrace_bpf::wire::{
    self, CallRecord, EventRecord, LocationRecord, LossKey, OpenThreadRecord, Record, comm, decode, take,
};

fuzz_target!(|bytes: &[u8]| {
    read::<CallRecord>(bytes);
    read::<EventRecord>(bytes);
    read::<LossKey>(bytes);
    if let Some(location) = read::<LocationRecord>(bytes) {
        assert!(comm(&location.comm).chars().count() <= location.comm.len());
    }
    let mut rest = bytes;
    while let Some(thread) = read::<OpenThreadRecord>(rest) {
        rest = after_calls(&rest[size_of::<OpenThreadRecord>()..], thread.frames);
    }
});

/// A record fills the front of the bytes, and nothing else is one.
fn read<T: Record + Debug>(bytes: &[u8]) -> Option<T> {
    assert_eq!(decode::<T>(bytes).is_ok(), bytes.len() == size_of::<T>());
    let Ok((record, rest)) = take::<T>(bytes) else {
        assert!(bytes.len() < size_of::<T>());
        return None;
    };
    assert_eq!(rest, &bytes[size_of::<T>()..]);
    black_box(format!("{record:?}"));
    Some(record)
}

/// What follows this number of calls, as far as they are there.
fn after_calls(mut bytes: &[u8], calls: u32) -> &[u8] {
    for _ in 0..calls {
        let Ok((_, rest)) = wire::take::<CallRecord>(bytes) else { break };
        bytes = rest;
    }
    bytes
}
