//! What tracing a call costs on this machine: measured on functions of this program itself, by the
//! programs that record.
//!
//! Two costs matter. The *inner* one lies between the two time stamps of a call: it makes the call
//! itself look longer. The whole of a call's tracing makes all its callers look longer. Either is taken
//! from sums over many calls, so it is a mean: single steps take longer now and then, of which a median
//! knows nothing. What took more than twice the median was interrupted, and does not count.
//!
//! The same call costs more or less with what runs around it, by about a tenth. So the whole is
//! measured twice, called in a loop from a function that is traced, as are all callers that are made
//! to look longer, and from one without probes. The former is given, with half of the distance to the
//! latter as its uncertainty.

use std::arch::global_asm;
use std::time::Instant;

use crate::self_test::own_code;
use crate::wire::{PolicyCode, ReturnSite, Step, TailsCode, entry_cookie, step_cookie};
use crate::{Arrival, Counter, Error, LoadOptions, Mechanism, Probes, Programs, Records, Role, Site};

/// Loops per kind of site and caller, and calls in each.
const LOOPS: usize = 60;
const CALLS: u64 = 10;

/// Room for the records of all loops.
const RING_BYTES: u32 = 1 << 18;

/// How the return of a subject is detected.
const POLICIES: [PolicyCode; 3] =
    [PolicyCode::RT_POLICY_RETURN_SITE, PolicyCode::RT_POLICY_URETPROBE, PolicyCode::RT_POLICY_ENTRY_ONLY];

/// Region of the caller with a probe, after those of the functions.
const CALLER: u32 = 3 * POLICIES.len() as u32;

/// Bytes from one copy of a function to the next.
const COPY: usize = 64;

// Functions of which each instruction is known: entries that kernels emulate and single-step, and one
// that our programs do, a copy for each way to detect the return, and callers, of which every second gets a
// probe, and the first two get return sites. What the callers return to is an instruction that kernels emulate.
global_asm!(
    ".pushsection .text.rtrace_calibration, \"ax\", @progbits",
    ".hidden rtrace_emulated, rtrace_stepped, rtrace_written, rtrace_caller, rtrace_outer",
    ".hidden rtrace_arrival, rtrace_outer_arrival",
    ".global rtrace_emulated, rtrace_stepped, rtrace_written, rtrace_caller, rtrace_outer",
    ".global rtrace_arrival, rtrace_outer_arrival",
    ".p2align 6",
    "rtrace_emulated:",
    ".rept 3",
    "push rbp",
    "pop rbp",
    "ret",
    ".p2align 6",
    ".endr",
    "rtrace_stepped:",
    ".rept 3",
    "xor eax, eax",
    "test eax, eax",
    "ret",
    ".p2align 6",
    ".endr",
    "rtrace_written:",
    ".rept 3",
    "endbr64",
    "nop",
    "ret",
    ".p2align 6",
    ".endr",
    "rtrace_caller:",
    ".rept 4",
    "push rbx",
    "push r12",
    "push r13",
    "mov rbx, rdi",
    "mov r12, rsi",
    "2: call rbx",
    "jmp 3f",
    "3: dec r12",
    "jnz 2b",
    "pop r13",
    "pop r12",
    "pop rbx",
    "ret",
    ".p2align 6",
    ".endr",
    // Where the first caller's calls return to; those of the next a copy further.
    ".set rtrace_arrival, rtrace_caller + 13",
    "rtrace_outer:",
    "push rbp",
    "call rdx",
    "rtrace_outer_arrival:",
    "jmp 2f",
    "2: pop rbp",
    "ret",
    ".popsection"
);

unsafe extern "C" {
    safe fn rtrace_emulated();
    safe fn rtrace_stepped();
    safe fn rtrace_written();
    safe fn rtrace_caller();
    safe fn rtrace_arrival();
    safe fn rtrace_outer(function: usize, times: u64, caller: Caller);
    safe fn rtrace_outer_arrival();
}

/// A loop that calls a function that many times, at least once.
type Caller = extern "C" fn(function: usize, times: u64);

/// The callers without and with a probe, of functions whose return is detected so.
fn callers(policy: PolicyCode) -> [Caller; 2] {
    let first = if policy == PolicyCode::RT_POLICY_RETURN_SITE { 0 } else { 2 };
    let bare = rtrace_caller as *const () as usize + first * COPY;
    // SAFETY: all copies take a function and a number.
    [bare, bare + COPY].map(|code| unsafe { std::mem::transmute::<usize, Caller>(code) })
}

/// What tracing one call costs, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallCost {
    /// Whether the kernel single-steps the instruction at the entry.
    pub single_stepped: bool,
    /// Whether the programs do it themselves.
    pub written: bool,
    /// How the return is detected.
    pub policy: PolicyCode,
    /// The part between the time stamps.
    pub inner: u64,
    /// All of it.
    pub whole: u64,
    /// Half of what `whole` differs by where the caller is not traced.
    pub spread: u64,
}

/// What was measured, and the probes that it was measured with: to take them out takes a while.
pub struct Calibration {
    /// What calls cost, by kind of site.
    pub costs: Vec<CallCost>,
    _probes: Vec<Probes>,
    _programs: Programs,
}

/// A function to probe.
struct Subject {
    region: u32,
    function: usize,
    entry: Entry,
    policy: PolicyCode,
}

/// Who does the instruction at an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    Emulated,
    SingleStepped,
    Written,
}

impl Subject {
    fn all() -> Vec<Subject> {
        let kinds = [
            (rtrace_emulated as *const () as usize, Entry::Emulated),
            (rtrace_stepped as *const () as usize, Entry::SingleStepped),
            (rtrace_written as *const () as usize, Entry::Written),
        ];
        let mut subjects = Vec::new();
        for (first, entry) in kinds {
            for (function, policy) in (first..).step_by(COPY).zip(POLICIES) {
                let region = subjects.len() as u32;
                subjects.push(Subject { region, function, entry, policy });
            }
        }
        subjects
    }
}

/// Measures all kinds of sites, of calls that count as those of the recording will; `steps`: the programs
/// do instructions themselves, as they [may](crate::may_step); `hooks`: returns may be hooked.
///
/// # Errors
/// The kernel refuses programs or probes, or this program's code is not found.
pub fn calibrate(mechanism: Mechanism, counters: &[Counter], steps: bool, hooks: bool) -> Result<Calibration, Error> {
    let options = LoadOptions {
        mechanism,
        hooks,
        ring_bytes: RING_BYTES,
        follow_children: false,
        ended_calls_only: true,
        profile: None,
        counters,
        is_governed: false,
        steps,
    };
    let programs = Programs::load(&options)?;
    let space = programs.trace(std::process::id())?;
    let mut subjects = Subject::all();
    subjects.retain(|subject| steps || subject.entry != Entry::Written);
    subjects.retain(|subject| hooks || subject.policy != PolicyCode::RT_POLICY_URETPROBE);
    let bare: Vec<u64> = subjects.iter().map(|subject| mean(&time_loops(subject))).collect();
    let probes = place(&programs, &subjects, steps)?;
    programs.set_arrivals(
        space,
        &arrivals().map(|address| (address as u64, Arrival::Placed { catches: false, since: None })),
    )?;
    programs.arm();
    let costs = subjects.iter().zip(bare).map(|(subject, bare)| measure(&programs, subject, bare));
    let costs = costs.collect::<Result<_, _>>()?;
    Ok(Calibration { costs, _probes: probes, _programs: programs })
}

fn measure(programs: &Programs, subject: &Subject, bare: u64) -> Result<CallCost, Error> {
    let [_, caller] = callers(subject.policy);
    let alone = mean(&time_loops(subject)).saturating_sub(bare);
    let mut reader = programs.reader()?;
    reader.read(&mut Records::default())?;
    for _ in 0..LOOPS {
        rtrace_outer(subject.function, CALLS, caller);
    }
    let mut records = Records::default();
    reader.read(&mut records)?;
    let of = |region| records.calls.iter().filter(move |call| call.region == region);
    let inner: Vec<u64> = of(subject.region).map(|call| call.duration.saturating_sub(bare)).collect();
    let outer: Vec<u64> = of(CALLER).map(|call| call.duration.saturating_sub(call.child) / CALLS).collect();
    let (inner, outer) = (mean(&inner), mean(&outer));
    // An enter alone has no time stamps that the function itself lies between.
    let outside = if subject.policy == PolicyCode::RT_POLICY_ENTRY_ONLY { bare } else { 0 };
    let nested = inner + outer.saturating_sub(outside);
    Ok(CallCost {
        single_stepped: subject.entry == Entry::SingleStepped,
        written: subject.entry == Entry::Written,
        policy: subject.policy,
        inner,
        whole: nested,
        spread: alone.abs_diff(nested).div_ceil(2),
    })
}

/// Where calls by the first callers, and of a caller with a probe, return to.
fn arrivals() -> [usize; 3] {
    let inner = rtrace_arrival as *const () as usize;
    [inner, inner + COPY, rtrace_outer_arrival as *const () as usize]
}

/// Places all probes in few links, since each takes the kernel a while to remove.
fn place(programs: &Programs, subjects: &[Subject], steps: bool) -> Result<Vec<Probes>, Error> {
    let no_code = || Error::Decode { what: "the mapping of rtrace's own code", bytes: 0 };
    let (path, _) = own_code(rtrace_caller as *const () as usize).ok_or_else(no_code)?;
    let site = |code: usize, cookie: u64, step: Option<Step>| {
        let (_, file_offset) = own_code(code).ok_or_else(no_code)?;
        Ok(Site { file_offset, cookie: step.map_or(cookie, |step| step_cookie(cookie, step, file_offset)) })
    };
    let cookie = |region, policy| entry_cookie(region, policy, TailsCode::RT_TAILS_NEVER);
    let entry = |subject: &Subject| {
        let step = (steps && subject.entry == Entry::Written).then_some(Step::Landing);
        site(subject.function, cookie(subject.region, subject.policy), step)
    };
    let hooked = |subject: &&Subject| subject.policy == PolicyCode::RT_POLICY_URETPROBE;
    let caller = |of| {
        let [_, caller] = callers(of);
        site(caller as *const () as usize, cookie(CALLER, PolicyCode::RT_POLICY_RETURN_SITE), None)
    };
    let callers = [PolicyCode::RT_POLICY_RETURN_SITE, PolicyCode::RT_POLICY_ENTRY_ONLY].map(caller);
    let arrival = ReturnSite { distance: 0, words: 0, is_fixed: false, is_stepped: false, only_returns: false };

    let returns: Vec<Site> =
        arrivals().into_iter().map(|address| site(address, arrival.cookie(0), None)).collect::<Result<_, _>>()?;
    let hooks: Vec<Site> = subjects
        .iter()
        .filter(hooked)
        .map(|subject| site(subject.function, subject.region.into(), None))
        .collect::<Result<_, _>>()?;
    let entries: Vec<Site> = subjects.iter().map(entry).chain(callers).collect::<Result<_, _>>()?;
    let pid = std::process::id();
    [(Role::Return, returns), (Role::HookedReturn, hooks), (Role::Enter, entries)]
        .into_iter()
        .filter(|(_, sites)| !sites.is_empty())
        .map(|(role, sites)| programs.attach(role, &path, &[pid], &sites))
        .collect()
}

/// Nanoseconds of a call from a caller without probes, in each of some loops.
fn time_loops(subject: &Subject) -> Vec<u64> {
    let [caller, _] = callers(subject.policy);
    let time_loop = |_| {
        let begin = Instant::now();
        caller(subject.function, CALLS);
        begin.elapsed().as_nanos() as u64 / CALLS
    };
    (0..LOOPS).map(time_loop).collect()
}

/// Parts into which what was measured is divided, by time.
const PARTS: usize = 5;

/// The mean of what was not interrupted, in a calm part of the time: rtrace itself does other things
/// meanwhile, which make it look dearer. The calmest of all is so by chance, too, so it is the next.
fn mean(values: &[u64]) -> u64 {
    let parts = values.chunks(values.len().div_ceil(PARTS).max(1));
    let mut means: Vec<u64> = parts.map(uninterrupted).collect();
    means.sort_unstable();
    means.get(1).or(means.first()).copied().unwrap_or(0)
}

fn uninterrupted(values: &[u64]) -> u64 {
    let mut values = values.to_vec();
    values.sort_unstable();
    let median = values[values.len() / 2];
    values.retain(|&value| value <= 2 * median);
    values.iter().sum::<u64>() / (values.len() as u64).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_knows_what_takes_longer_but_not_what_was_interrupted() {
        assert_eq!(uninterrupted(&[100, 1_000_000, 100, 140, 100]), 110);
        assert_eq!(uninterrupted(&[0, 900, 0, 0]), 0);
        assert_eq!(mean(&[]), 0);
    }

    #[test]
    fn a_calm_part_counts() {
        assert_eq!(mean(&[150, 150, 120, 120, 100, 102, 140, 160, 110, 112]), 111);
        assert_eq!(mean(&[7]), 7);
    }
}
