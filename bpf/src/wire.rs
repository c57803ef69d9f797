//! The byte format: the only place that knows layouts.
//!
//! The record types come from the BTF of the compiled programs, so they cannot drift from
//! `kernel/wire/rtrace.h`. Times are nanoseconds of `CLOCK_MONOTONIC`.

use rtrace_model::{HeldBytes, Jump, MOST_MOVED, MOST_WORDS, Step, text_of};

use crate::Error;
pub use crate::skeleton::rtrace::types::{
    rt_access as AccessRecord, rt_arrival as ArrivalRecord, rt_arrival_key as ArrivalKey,
    rt_arrival_kind as ArrivalCode, rt_behind as BehindBit, rt_call as CallRecord, rt_call_count as CountedRecord,
    rt_code_change as CodeChangeRecord, rt_context as ContextRecord, rt_context_end as ContextEnd,
    rt_context_key as ContextKey, rt_context_number as ContextNumber, rt_cookie as CookieBit, rt_count as CountCode,
    rt_counted_key as CountedKey, rt_ending as EndingCode, rt_event as EventRecord, rt_event_kind as EventKindCode,
    rt_fetch as FetchRecord, rt_fetch_flag as FetchFlag, rt_fetch_op as FetchCode, rt_hit_times as HitTimes,
    rt_jump as JumpCode, rt_limit as Limit, rt_location as LocationRecord, rt_loss as LossCode, rt_loss_key as LossKey,
    rt_moment as MomentRecord, rt_moment_kind as MomentCode, rt_open_call as OpenCallRecord,
    rt_open_thread as OpenThreadRecord, rt_path as PathRecord, rt_path_counts as PathCounts, rt_path_key as PathKey,
    rt_policy as PolicyCode, rt_primed_key as PrimedKey, rt_process as ProcessRecord, rt_program as ProgramRecord,
    rt_python as PythonRecord, rt_python_frame as PythonFrameRecord, rt_question as QuestionRecord,
    rt_question_kind as QuestionCode, rt_reading as ReadingRecord, rt_return_cookie as ReturnBit,
    rt_rule as RuleRecord, rt_rule_kind as RuleCode, rt_saved as SavedCode, rt_site_hits as SiteHitsRecord,
    rt_stack as StackRecord, rt_stack_key as StackCode, rt_step as StepCode, rt_sum as SumRecord,
    rt_tail_key as TailKey, rt_tails as TailsCode, rt_traced as TracedCode, rt_unlinked as UnlinkedBit,
    rt_untimed_key as UntimedKey, rt_untimed_reason as UntimedCode, rt_values as ValuesRecord,
};
pub use crate::skeleton::sampling::types::rt_place as PlaceKey;

/// The region of a loss whose region is not known.
pub const NO_REGION: u32 = u32::MAX;
/// `RT_OPENS`.
pub const OPENS: u32 = u32::MAX - 1;
/// `RT_ANYWHERE`.
pub const ANYWHERE: u32 = u32::MAX - 2;

/// `RT_NOT_THERE`.
pub const NOT_THERE: u16 = Limit::RT_NOT_THERE.0 as u16;
/// `MIX_LOW`.
pub const MIX_LOW: u64 = 0x9e37_79b9_7f4a_7c15;

/// The number of the context of a call that has none.
pub const NO_CONTEXT: u32 = ContextNumber::RT_CONTEXT_NONE.0;

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
    ArrivalKey => "a key of the return addresses",
    ArrivalRecord => "a return address",
    CallRecord => "a call",
    CodeChangeRecord => "a change of code",
    ContextKey => "a key of the contexts",
    ContextRecord => "a context",
    CountedKey => "a key of the counted calls",
    CountedRecord => "counted calls",
    EventRecord => "an event",
    HitTimes => "what hits took",
    LocationRecord => "a location",
    LossKey => "a key of the losses",
    MomentRecord => "a moment of a call",
    OpenCallRecord => "a call that still runs",
    OpenThreadRecord => "a thread with open calls",
    PathKey => "a key of the call paths",
    PathCounts => "the counts of a call path",
    PathRecord => "a call path",
    PlaceKey => "a place where CPU time is spent",
    PrimedKey => "a key of the return addresses in files",
    ProcessRecord => "a process",
    ProgramRecord => "a program that fetches values",
    PythonRecord => "where an interpreter has what",
    QuestionRecord => "a return address that was met",
    ReadingRecord => "a reading",
    RuleRecord => "a rule of a return address",
    SiteHitsRecord => "the hits of a return site",
    TailKey => "a key of the tail calls",
    UntimedKey => "a key of the untimed calls",
    ValuesRecord => "the values of a call",
}

/// The values of a call.
#[derive(Clone, Debug, Default)]
pub struct CallWords {
    /// Those that any call has.
    pub values: ValuesRecord,
    /// Lists that were read when it returned; empty if there are none.
    pub lists: Box<[u64]>,
}

impl CallWords {
    /// So many words from that place on. Lists follow the others.
    pub fn words(&self, first: usize, count: usize) -> Option<&[u64]> {
        let own = self.values.word.len();
        let (all, first) = if first < own { (&self.values.word[..], first) } else { (&*self.lists, first - own) };
        all.get(first..first + count)
    }

    /// The number of the call's context.
    pub fn context(&self) -> u32 {
        self.values.context as u32
    }
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

/// Reads the context and the values in the record of a call: as many words as the programs were loaded for, or none.
///
/// # Errors
/// [`Error::Decode`] if there are others.
pub fn take_values(bytes: &[u8], words: usize) -> Result<CallWords, Error> {
    const LISTED: usize = Limit::RT_LISTED.0 as usize;
    let mut values = ValuesRecord::default();
    let mut found = bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().expect("eight bytes")));
    if ![8, (1 + words) * 8, (1 + words + LISTED) * 8].contains(&bytes.len()) || words > values.word.len() {
        return Err(Error::Decode { what: ValuesRecord::NAME, bytes: bytes.len() });
    }
    let head = found.next().unwrap_or_default();
    (values.failed, values.context) = (head as u32, head >> 32);
    values.has = u8::from(words > 0 && bytes.len() > 8);
    for (place, word) in values.word[..words].iter_mut().zip(&mut found) {
        *place = word;
    }
    Ok(CallWords { values, lists: found.collect() })
}

/// A record as the kernel side has it.
pub(crate) fn bytes_of<T: Record>(record: &T) -> &[u8] {
    // SAFETY: a `Record` is plain memory without padding of its own (integers that fill it).
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(record).cast(), size_of::<T>()) }
}

/// The thread name in a record, up to its NUL.
pub fn comm(bytes: &[i8]) -> String {
    let bytes: Vec<u8> = bytes.iter().take_while(|&&byte| byte != 0).map(|&byte| byte.cast_unsigned()).collect();
    text_of(&bytes).into_owned()
}

/// The attach cookie of an entry site.
pub fn entry_cookie(region: u32, policy: PolicyCode, tails: TailsCode) -> u64 {
    u64::from(region)
        | u64::from(policy.0) << CookieBit::RT_COOKIE_POLICY.0
        | u64::from(tails.0) << CookieBit::RT_COOKIE_TAILS.0
}

/// The same of a function that may come back to its first instruction without being called again.
pub fn laps_cookie(cookie: u64) -> u64 {
    cookie | 1 << CookieBit::RT_COOKIE_LAPS.0
}

/// The same of a function that does not return by a plain `ret`: the table says how.
pub fn pops_cookie(cookie: u64) -> u64 {
    cookie | 1 << CookieBit::RT_COOKIE_POPS.0
}

/// What the table says of a function: the words that it takes off the stack, whether it writes to the slot of its return
/// address, and whether nothing tells its returns.
pub fn pops_number(words: u32, overwrites: bool, is_unknown: bool) -> u32 {
    words.min(Limit::RT_POPS_MAX.0)
        | if overwrites { Limit::RT_POPS_OVERWRITES.0 } else { 0 }
        | if is_unknown { Limit::RT_POPS_UNKNOWN.0 } else { 0 }
}

/// The attach cookie of a stub's site, for the calls of that of its function.
pub fn stub_cookie(cookie: u64) -> u64 {
    cookie | 1 << CookieBit::RT_COOKIE_STUB.0
}

/// Where a stub stores the low half of a vector register, in bytes from the slot of the return address. Behind the words
/// that probes of Linux write to which replace a nop by a call, and within the 128 bytes that signal handlers leave alone.
pub fn vector_slot(number: u8) -> i8 {
    -40 - 8 * (number & 7).cast_signed()
}

/// The attach cookie of an entry site, by whose function control leaves others without a return.
pub fn jump_cookie(cookie: u64, jump: Jump) -> u64 {
    let code = match jump {
        Jump::Longjmp => JumpCode::RT_JUMP_LONGJMP,
        Jump::Unwind => JumpCode::RT_JUMP_UNWIND,
    };
    cookie | u64::from(code.0) << CookieBit::RT_COOKIE_JUMP.0
}

/// The attach cookie of a site where such a function enters whose calls are not recorded.
pub fn untraced_jump_cookie(jump: Jump) -> u64 {
    jump_cookie(1 << CookieBit::RT_COOKIE_UNTRACED.0, jump)
}

/// The attach cookie of a site at which the return address is so many words above the stack pointer,
/// at most [`MOST_WORDS`]. The programs must not [do](step_cookie) its instruction.
pub fn deep_cookie(cookie: u64, words: u32) -> u64 {
    cookie | u64::from(words) << CookieBit::RT_COOKIE_DEPTH.0
}

const _: () = assert!(MOST_WORDS == (1 << (u64::BITS - CookieBit::RT_COOKIE_DEPTH.0)) - 1);
const _: () = assert!(MOST_MOVED == (1 << (u64::BITS - ReturnBit::RT_RETURN_WORDS.0 - 1)) - 1);

/// Where a return site is, and what is known of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReturnSite {
    /// Bytes from the return address to the probed instruction.
    pub distance: u8,
    /// Words by which the stack pointer has moved from there to here: up where positive. Within
    /// [`MOST_MOVED`] of 0.
    pub words: i32,
    /// All calls that return there enter the same traced function.
    pub is_fixed: bool,
    /// The kernel single-steps the instruction.
    pub is_stepped: bool,
    /// The code there only returns.
    pub only_returns: bool,
    /// Where the result is: 4 or 8 bytes of a register that is not the stack pointer.
    pub result: Option<HeldBytes>,
    /// Memory may not be as the function left it.
    pub is_stored: bool,
}

/// The number of the stack pointer, which never holds a result.
const NO_REGISTER: u8 = 4;

impl ReturnSite {
    /// Whether a cookie can hold it.
    pub fn fits(&self) -> bool {
        self.words.unsigned_abs() <= MOST_MOVED
    }

    /// Its attach cookie; `id` is below [`MAX_SITES`](crate::MAX_SITES).
    pub fn cookie(&self, id: u32) -> u64 {
        let HeldBytes { register, bytes } = self.result.unwrap_or(HeldBytes { register: NO_REGISTER, bytes: 0 });
        u64::from(id)
            | u64::from(register) << ReturnBit::RT_RETURN_RESULT.0
            | u64::from(bytes < 8) << ReturnBit::RT_RETURN_NARROW.0
            | u64::from(self.is_stored) << ReturnBit::RT_RETURN_STORED.0
            | u64::from(self.distance) << ReturnBit::RT_RETURN_DISTANCE.0
            | u64::from(self.is_fixed) << ReturnBit::RT_RETURN_FIXED.0
            | u64::from(self.only_returns) << ReturnBit::RT_RETURN_ONLY.0
            | u64::from(self.is_stepped) << ReturnBit::RT_RETURN_STEPPED.0
            | (i64::from(self.words) << ReturnBit::RT_RETURN_WORDS.0).cast_unsigned()
    }
}

/// The attach cookie of a site at this offset of its file whose instruction the programs do, where they
/// [may](crate::may_step).
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
        let (policy, tails) = (PolicyCode::RT_POLICY_ENTRY_ONLY, TailsCode::RT_TAILS_ANYWHERE);
        assert_eq!(entry_cookie(u32::MAX, policy, tails), 0x41_ffff_ffff);
        assert_eq!(deep_cookie(5, MOST_WORDS), 0xffff_f000_0000_0005);
        assert_eq!(step_cookie(5, Step::Return, 0x1234), 0x2340_0008_0000_0005);
        assert_eq!(step_cookie(0, Step::Frame { words: 0xff }, 0xf_ffff), 0xffff_f00c_0000_0000);
        assert_eq!(step_cookie(0, Step::Landing, 0x1000), 0x4_0000_0000);
        let site =
            ReturnSite { distance: 0xff, words: -2, is_fixed: true, only_returns: true, ..ReturnSite::default() };
        assert_eq!(site.cookie(7), 0xfffc_95ff_0000_0007);
        assert!(site.fits() && !ReturnSite { words: 1 << 14, ..site }.fits());
        let site =
            ReturnSite { result: Some(HeldBytes { register: 15, bytes: 4 }), is_stored: true, ..ReturnSite::default() };
        assert_eq!(site.cookie(0), 0x1_f800_0000_0000);
        let site = ReturnSite { result: Some(HeldBytes { register: 0, bytes: 8 }), words: 1, ..ReturnSite::default() };
        assert_eq!(site.cookie(0), 0x2_0000_0000_0000);
    }
}
