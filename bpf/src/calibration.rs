//! What tracing a call costs on this machine: measured on functions of this program itself, by the
//! programs that record.
//!
//! Two costs matter. The *inner* one lies between the two time stamps of a call: it makes the call
//! itself look longer. The whole of a call's tracing makes all its callers look longer. Either is a
//! median, because the machine does other things, too.
//!
//! The same call costs more or less with what runs around it, by about a tenth. So the whole is
//! measured twice, called in a loop from a function without probes and from one that is traced: it
//! is given as the middle of both, with the distance to them as its uncertainty.

use std::arch::global_asm;
use std::time::Instant;

use crate::self_test::own_code;
use crate::wire::{PolicyCode, Step, entry_cookie, step_cookie};
use crate::{Counter, Error, LoadOptions, Mechanism, Probes, Programs, Records, Role, Scope, Site};

/// Loops per kind of site and caller, and calls in each.
const LOOPS: usize = 50;
const CALLS: u64 = 10;

/// Room for the records of all loops.
const RING_BYTES: u32 = 1 << 18;

const POLICIES: [PolicyCode; 3] =
    [PolicyCode::RT_POLICY_URETPROBE, PolicyCode::RT_POLICY_RET_SITE, PolicyCode::RT_POLICY_ENTRY_ONLY];

/// Region of the caller with a probe, after those of the functions.
const CALLER: u32 = 3 * POLICIES.len() as u32;

/// Bytes from one copy of a function to the next.
const COPY: usize = 64;

// Functions of which each instruction is known: entries that kernels emulate and single-step, and one
// that our programs do, a copy for each policy, and callers, of which the second gets a probe.
global_asm!(
    ".pushsection .text.rtrace_calibration, \"ax\", @progbits",
    ".hidden rtrace_emulated, rtrace_stepped, rtrace_written, rtrace_caller",
    ".global rtrace_emulated, rtrace_stepped, rtrace_written, rtrace_caller",
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
    "ret",
    ".p2align 6",
    ".endr",
    "rtrace_caller:",
    ".rept 2",
    "push rbx",
    "push r12",
    "push r13",
    "mov rbx, rdi",
    "mov r12, rsi",
    "2: call rbx",
    "dec r12",
    "jnz 2b",
    "pop r13",
    "pop r12",
    "pop rbx",
    "ret",
    ".p2align 6",
    ".endr",
    ".popsection"
);

unsafe extern "C" {
    safe fn rtrace_emulated();
    safe fn rtrace_stepped();
    safe fn rtrace_written();
    safe fn rtrace_caller();
}

/// A loop that calls a function so many times, at least once.
type Caller = extern "C" fn(function: usize, times: u64);

/// The callers without and with a probe.
fn callers() -> [Caller; 2] {
    let bare = rtrace_caller as *const () as usize;
    // SAFETY: both copies take a function and a number.
    [bare, bare + COPY].map(|code| unsafe { std::mem::transmute::<usize, Caller>(code) })
}

/// What tracing one call costs, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallCost {
    /// Whether the kernel single-steps the instruction at the entry.
    pub single_stepped: bool,
    /// Whether the programs do it themselves.
    pub written: bool,
    /// How the exit is seen: `RT_POLICY_URETPROBE`, `RT_POLICY_RET_SITE` (at a `ret`) or
    /// `RT_POLICY_ENTRY_ONLY`.
    pub policy: PolicyCode,
    /// The part between the time stamps.
    pub inner: u64,
    /// All of it.
    pub whole: u64,
    /// How far `whole` is from either of its measurements.
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
    exit: usize,
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
            (rtrace_emulated as *const () as usize, 2, Entry::Emulated),
            (rtrace_stepped as *const () as usize, 4, Entry::SingleStepped),
            (rtrace_written as *const () as usize, 4, Entry::Written),
        ];
        let mut subjects = Vec::new();
        for (first, exit, entry) in kinds {
            for (function, policy) in (first..).step_by(COPY).zip(POLICIES) {
                let region = subjects.len() as u32;
                subjects.push(Subject { region, function, exit: function + exit, entry, policy });
            }
        }
        subjects
    }
}

/// Measures all kinds of sites, of calls that count as those of the recording will; `steps`: the programs
/// do instructions themselves, as they [may](crate::may_step).
///
/// # Errors
/// The kernel refuses programs or probes, or this program's code is not found.
pub fn calibrate(mechanism: Mechanism, counters: &[Counter], steps: bool) -> Result<Calibration, Error> {
    let options = LoadOptions {
        mechanism,
        ring_bytes: RING_BYTES,
        follow_children: false,
        profile: None,
        counters,
        is_governed: false,
        steps,
    };
    let programs = Programs::load(&options)?;
    programs.trace(std::process::id())?;
    let mut subjects = Subject::all();
    subjects.retain(|subject| steps || subject.entry != Entry::Written);
    let bare: Vec<u64> = subjects.iter().map(|subject| median(time_loops(subject.function))).collect();
    let probes = place(&programs, &subjects, steps)?;
    programs.arm();
    let costs = subjects.iter().zip(bare).map(|(subject, bare)| measure(&programs, subject, bare));
    let costs = costs.collect::<Result<_, _>>()?;
    Ok(Calibration { costs, _probes: probes, _programs: programs })
}

fn measure(programs: &Programs, subject: &Subject, bare: u64) -> Result<CallCost, Error> {
    let [_, caller] = callers();
    let alone = median(time_loops(subject.function)).saturating_sub(bare);
    let mut reader = programs.reader()?;
    reader.read(&mut Records::default())?;
    for _ in 0..LOOPS {
        caller(subject.function, CALLS);
    }
    let mut records = Records::default();
    reader.read(&mut records)?;
    let of = |region| records.calls.iter().filter(move |call| call.region == region);
    let inner = median(of(subject.region).map(|call| call.duration.saturating_sub(bare)).collect());
    let outer = median(of(CALLER).map(|call| call.duration.saturating_sub(call.child) / CALLS).collect());
    // An enter alone has no time stamps that the function itself lies between.
    let outside = if subject.policy == PolicyCode::RT_POLICY_ENTRY_ONLY { bare } else { 0 };
    let nested = inner + outer.saturating_sub(outside);
    Ok(CallCost {
        single_stepped: subject.entry == Entry::SingleStepped,
        written: subject.entry == Entry::Written,
        policy: subject.policy,
        inner,
        whole: alone.midpoint(nested),
        spread: alone.abs_diff(nested).div_ceil(2),
    })
}

/// Places all probes: exits first, and few links, since each takes the kernel a while to remove.
fn place(programs: &Programs, subjects: &[Subject], steps: bool) -> Result<Vec<Probes>, Error> {
    let no_code = || Error::Decode { what: "the mapping of rtrace's own code", bytes: 0 };
    let (path, _) = own_code(rtrace_caller as *const () as usize).ok_or_else(no_code)?;
    let site = |code: usize, cookie: u64, step: Option<Step>| {
        let (_, file_offset) = own_code(code).ok_or_else(no_code)?;
        Ok(Site { file_offset, cookie: step.map_or(cookie, |step| step_cookie(cookie, step, file_offset)) })
    };
    let entry = |subject: &Subject| {
        let step = (subject.entry == Entry::Written).then_some(Step::Landing);
        site(subject.function, entry_cookie(subject.region, subject.policy), step)
    };
    let exit = |subject: &Subject| site(subject.exit, u64::from(subject.region), steps.then_some(Step::Return));
    let is_hooked = |subject: &&Subject| subject.policy == PolicyCode::RT_POLICY_URETPROBE;
    let has_exit = |subject: &&Subject| subject.policy == PolicyCode::RT_POLICY_RET_SITE;
    let [_, caller] = callers();
    let caller = site(caller as *const () as usize, entry_cookie(CALLER, PolicyCode::RT_POLICY_URETPROBE), None);

    let exits: Vec<Site> = subjects.iter().filter(has_exit).map(exit).collect::<Result<_, _>>()?;
    let hooked: Vec<Site> = subjects.iter().filter(is_hooked).map(entry).chain([caller]).collect::<Result<_, _>>()?;
    let others: Vec<Site> =
        subjects.iter().filter(|subject| !is_hooked(subject)).map(entry).collect::<Result<_, _>>()?;
    let scope = Scope::Processes(&[std::process::id()]);
    [(Role::Exit, exits), (Role::EnterAndReturn, hooked), (Role::Enter, others)]
        .into_iter()
        .map(|(role, sites)| programs.attach(role, &path, scope, &sites))
        .collect()
}

/// Nanoseconds of a call from a caller without probes, in each of some loops.
fn time_loops(function: usize) -> Vec<u64> {
    let [caller, _] = callers();
    let time_loop = |_| {
        let begin = Instant::now();
        caller(function, CALLS);
        begin.elapsed().as_nanos() as u64 / CALLS
    };
    (0..LOOPS).map(time_loop).collect()
}

fn median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}
