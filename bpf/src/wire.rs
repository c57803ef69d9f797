//! The byte format: the only place that knows layouts.
//!
//! The record types come from the BTF of the compiled programs, so they cannot drift from
//! `include/rtrace.h`. Times are nanoseconds of `CLOCK_MONOTONIC`.

use crate::Error;
pub use crate::skeleton::rtrace::types::{
    rt_access as AccessRecord, rt_call as CallRecord, rt_cookie as CookieBit, rt_count as CountCode,
    rt_counted_calls as CountedCallsRecord, rt_counted_key as CountedKey, rt_ending as EndingCode,
    rt_event as EventRecord, rt_event_kind as EventKindCode, rt_limit as Limit, rt_location as LocationRecord,
    rt_loss as LossCode, rt_loss_key as LossKey, rt_moment as MomentRecord, rt_open_call as OpenCallRecord,
    rt_open_thread as OpenThreadRecord, rt_path as PathRecord, rt_path_counts as PathCounts, rt_path_key as PathKey,
    rt_policy as PolicyCode, rt_reading as ReadingRecord, rt_sighting as SightingRecord, rt_state as StateRecord,
    rt_step as StepCode, rt_traced as TracedCode,
};

/// The region of a loss whose region is not known.
pub const NO_REGION: u32 = u32::MAX;

/// Plain records: any bytes of their size are a value of them.
///
/// # Safety
/// The type must be `repr(C)` or `repr(transparent)` and made of integers alone.
pub unsafe trait Record: Copy {
    /// What messages call it.
    const NAME: &'static str;
}

macro_rules! records {
    ($($record:ty => $name:literal),* $(,)?) => {
        $(
            // SAFETY: generated from BTF as `repr(C)` with integer fields only.
            unsafe impl Record for $record {
                const NAME: &'static str = $name;
            }
        )*
    };
}

records! {
    AccessRecord => "an access",
    CallRecord => "a call",
    CountedCallsRecord => "counted calls",
    CountedKey => "a key of the counted calls",
    EventRecord => "an event",
    LocationRecord => "a location",
    LossKey => "a key of the losses",
    OpenCallRecord => "a call that still runs",
    OpenThreadRecord => "a thread with open calls",
    PathKey => "a key of the call paths",
    PathCounts => "the counts of a call path",
    PathRecord => "a call path",
    ReadingRecord => "a reading",
    SightingRecord => "a sighting",
    StateRecord => "the state of a region",
}

/// Reads a record from the front of `bytes` and returns it with the rest.
///
/// # Errors
/// [`Error::Decode`] if there are too few bytes.
pub fn take<T: Record>(bytes: &[u8]) -> Result<(T, &[u8]), Error> {
    let size = size_of::<T>();
    let Some((front, rest)) = bytes.split_at_checked(size) else {
        return Err(Error::Decode { what: T::NAME, bytes: bytes.len() });
    };
    // SAFETY: `front` holds `size_of::<T>()` bytes, and any bytes are a value of a `Record`.
    let record = unsafe { front.as_ptr().cast::<T>().read_unaligned() };
    Ok((record, rest))
}

/// Reads a record that fills `bytes`.
///
/// # Errors
/// [`Error::Decode`] if the size differs.
pub fn decode<T: Record>(bytes: &[u8]) -> Result<T, Error> {
    match take(bytes)? {
        (record, []) => Ok(record),
        _ => Err(Error::Decode { what: T::NAME, bytes: bytes.len() }),
    }
}

/// Reads `count` readings from the front of `bytes` to the end of `readings`, and returns the rest.
///
/// # Errors
/// [`Error::Decode`] if there are too few bytes.
pub fn take_readings<'a>(
    mut bytes: &'a [u8],
    count: usize,
    readings: &mut Vec<ReadingRecord>,
) -> Result<&'a [u8], Error> {
    for _ in 0..count {
        let (reading, rest) = take(bytes)?;
        readings.push(reading);
        bytes = rest;
    }
    Ok(bytes)
}

/// A record as the kernel side has it.
pub(crate) fn bytes_of<T: Record>(record: &T) -> &[u8] {
    // SAFETY: a `Record` is plain memory without padding of its own (integers that fill it).
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(record).cast(), size_of::<T>()) }
}

/// The thread name in a record, up to its NUL.
pub fn comm(bytes: &[i8]) -> String {
    let bytes: Vec<u8> = bytes.iter().take_while(|&&byte| byte != 0).map(|&byte| byte.cast_unsigned()).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The attach cookie of an entry site.
pub fn entry_cookie(region: u32, policy: PolicyCode) -> u64 {
    u64::from(region) | u64::from(policy.0) << CookieBit::RT_COOKIE_POLICY.0
}

/// The attach cookie of an entry site at which calls are only counted.
pub fn count_cookie(region: u32) -> u64 {
    entry_cookie(region, PolicyCode::RT_POLICY_ENTRY_ONLY) | 1 << CookieBit::RT_COOKIE_COUNT.0
}

/// The attach cookie of a site at a conditional jump, where the call is over under this x86 condition
/// code.
pub fn conditional_cookie(cookie: u64, condition: u8) -> u64 {
    cookie | 1 << CookieBit::RT_COOKIE_CONDITIONAL.0 | u64::from(condition & 15) << CookieBit::RT_COOKIE_CONDITION.0
}

/// The attach cookie of a site at which the return address is so many words above the stack pointer,
/// at the most [`MOST_WORDS`]. The programs must not [do](step_cookie) its instruction.
pub fn deep_cookie(cookie: u64, words: u32) -> u64 {
    cookie | u64::from(words) << CookieBit::RT_COOKIE_DEPTH.0
}

/// The most that a cookie can tell of the stack.
pub const MOST_WORDS: u32 = (1 << (u64::BITS - CookieBit::RT_COOKIE_DEPTH.0)) - 1;

/// An instruction that the programs do themselves where the kernel lets them
/// [write registers](crate::may_step).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// `endbr64`, which does nothing.
    Landing,
    /// `ret`.
    Return,
    /// `sub $8n, %rsp`, in its shortest form.
    Frame {
        /// n: how many words the stack pointer moves.
        words: u8,
    },
}

impl Step {
    /// Whether the stack pointer moves. The kernel would then look for the return address elsewhere, so
    /// that where it hooks the return, it executes the instruction itself.
    pub fn moves_stack(self) -> bool {
        self != Step::Landing
    }
}

/// The attach cookie of a site at this offset of its file whose instruction the programs do.
pub fn step_cookie(cookie: u64, step: Step, file_offset: u64) -> u64 {
    let (code, words) = match step {
        Step::Landing => (StepCode::RT_STEP_LANDING, 0),
        Step::Return => (StepCode::RT_STEP_RETURN, 0),
        Step::Frame { words } => (StepCode::RT_STEP_FRAME, words),
    };
    cookie
        | u64::from(code.0) << CookieBit::RT_COOKIE_STEP.0
        | u64::from(words) << CookieBit::RT_COOKIE_FRAME.0
        | file_offset << CookieBit::RT_COOKIE_PLACE.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_a_wrong_size_are_refused() {
        let call = CallRecord { id: 7, duration: 9, ..CallRecord::default() };
        let bytes = bytes_of(&call).to_vec();
        assert_eq!(decode::<CallRecord>(&bytes).expect("whole").duration, 9);
        for len in 0..bytes.len() {
            assert!(decode::<CallRecord>(&bytes[..len]).is_err());
        }
        let longer = [bytes.as_slice(), &[0]].concat();
        assert!(decode::<CallRecord>(&longer).is_err());
        assert_eq!(take::<CallRecord>(&longer).expect("whole").1, [0]);
    }

    #[test]
    fn cookies_keep_region_and_site_apart() {
        assert_eq!(entry_cookie(u32::MAX, PolicyCode::RT_POLICY_ENTRY_ONLY), 0x2_ffff_ffff);
        assert_eq!(conditional_cookie(5, 0xf), 0xf20_0000_0005);
        assert_eq!(deep_cookie(conditional_cookie(5, 0xf), MOST_WORDS), 0xffff_ff20_0000_0005);
        assert_eq!(step_cookie(5, Step::Return, 0x1234), 0x2340_0008_0000_0005);
        assert_eq!(step_cookie(0, Step::Frame { words: 0xff }, 0xf_ffff), 0xffff_f00c_0000_0000);
        assert_eq!(step_cookie(0, Step::Landing, 0x1000), 0x4_0000_0000);
    }
}
