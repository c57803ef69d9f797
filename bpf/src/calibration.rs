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
use crate::wire::{PolicyCode, entry_cookie, exit_cookie};
use crate::{Error, LoadOptions, Mechanism, Probes, Programs, Records, Role, Scope, Site};

/// Loops per kind of site and caller, and calls in each.
const LOOPS: usize = 50;
const CALLS: u64 = 10;

/// Regions of the functions.
const MEASURED: u32 = 0;
const CALLER: u32 = 1;

/// Room for the records of all loops.
const RING_BYTES: u32 = 1 << 18;

// Functions of which each instruction is known: entries that kernels emulate and single-step.
global_asm!(
    ".pushsection .text.rtrace_calibration, \"ax\", @progbits",
    ".p2align 6",
    ".hidden rtrace_emulated, rtrace_emulated_exit, rtrace_stepped, rtrace_stepped_exit, rtrace_caller",
    ".global rtrace_emulated, rtrace_emulated_exit, rtrace_stepped, rtrace_stepped_exit, rtrace_caller",
    "rtrace_emulated: push rbp",
    "pop rbp",
    "rtrace_emulated_exit: ret",
    ".p2align 6",
    "rtrace_stepped: xor eax, eax",
    "test eax, eax",
    "rtrace_stepped_exit: ret",
    ".p2align 6",
    "rtrace_caller: push rbx",
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
    ".popsection"
);

unsafe extern "C" {
    safe fn rtrace_emulated();
    safe fn rtrace_emulated_exit();
    safe fn rtrace_stepped();
    safe fn rtrace_stepped_exit();
    /// Calls the function so many times, at least once.
    safe fn rtrace_caller(function: extern "C" fn(), times: u64);
}

/// What tracing one call costs, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallCost {
    /// Whether the kernel single-steps the instruction at the entry.
    pub single_stepped: bool,
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

/// A function to probe.
struct Subject {
    function: extern "C" fn(),
    exit: extern "C" fn(),
    single_stepped: bool,
}

/// Measures all kinds of sites.
///
/// # Errors
/// The kernel refuses programs or probes, or this program's code is not found.
pub fn calibrate(mechanism: Mechanism) -> Result<Vec<CallCost>, Error> {
    let options =
        LoadOptions { mechanism, ring_bytes: RING_BYTES, follow_children: false, profile: None, counters: &[] };
    let programs = Programs::load(&options)?;
    programs.trace(std::process::id())?;
    let subjects = [
        Subject { function: rtrace_emulated, exit: rtrace_emulated_exit, single_stepped: false },
        Subject { function: rtrace_stepped, exit: rtrace_stepped_exit, single_stepped: true },
    ];
    let policies = [PolicyCode::RT_POLICY_URETPROBE, PolicyCode::RT_POLICY_RET_SITE, PolicyCode::RT_POLICY_ENTRY_ONLY];
    let mut costs = Vec::new();
    for subject in &subjects {
        let bare = median(time_loops(subject.function));
        for policy in policies {
            costs.push(measure(&programs, subject, policy, bare)?);
        }
    }
    Ok(costs)
}

fn measure(programs: &Programs, subject: &Subject, policy: PolicyCode, bare: u64) -> Result<CallCost, Error> {
    let mut reader = programs.reader()?;
    let probes = place(programs, subject, policy)?;
    programs.arm();
    let alone = median(time_loops(subject.function)).saturating_sub(bare);
    let hooked = entry_cookie(CALLER, PolicyCode::RT_POLICY_URETPROBE);
    let caller = attach(programs, Role::EnterAndReturn, rtrace_caller as *const (), hooked)?;
    for _ in 0..LOOPS {
        rtrace_caller(subject.function, CALLS);
    }
    programs.disarm();
    drop((probes, caller));
    let mut records = Records::default();
    reader.read(&mut records)?;
    let of = |region| records.calls.iter().filter(move |call| call.region == region);
    let inner = median(of(MEASURED).map(|call| call.duration.saturating_sub(bare)).collect());
    let outer = median(of(CALLER).map(|call| call.duration.saturating_sub(call.child) / CALLS).collect());
    // An enter alone has no time stamps that the function itself lies between.
    let outside = if policy == PolicyCode::RT_POLICY_ENTRY_ONLY { bare } else { 0 };
    let nested = inner + outer.saturating_sub(outside);
    Ok(CallCost {
        single_stepped: subject.single_stepped,
        policy,
        inner,
        whole: alone.midpoint(nested),
        spread: alone.abs_diff(nested).div_ceil(2),
    })
}

fn place(programs: &Programs, subject: &Subject, policy: PolicyCode) -> Result<Vec<Probes>, Error> {
    let (function, exit) = (subject.function as *const (), subject.exit as *const ());
    let entry = entry_cookie(MEASURED, policy);
    match policy {
        PolicyCode::RT_POLICY_URETPROBE => Ok(vec![attach(programs, Role::EnterAndReturn, function, entry)?]),
        PolicyCode::RT_POLICY_RET_SITE => {
            let exit = attach(programs, Role::Exit, exit, exit_cookie(MEASURED, None))?;
            Ok(vec![exit, attach(programs, Role::Enter, function, entry)?])
        }
        _ => Ok(vec![attach(programs, Role::Enter, function, entry)?]),
    }
}

fn attach(programs: &Programs, role: Role, code: *const (), cookie: u64) -> Result<Probes, Error> {
    let own = own_code(code as usize);
    let (path, file_offset) = own.ok_or(Error::Decode { what: "the mapping of rtrace's own code", bytes: 0 })?;
    programs.attach(role, &path, Scope::Processes(&[std::process::id()]), &[Site { file_offset, cookie }])
}

/// Nanoseconds of a call from a caller without probes, in each of some loops.
fn time_loops(function: extern "C" fn()) -> Vec<u64> {
    let time_loop = |_| {
        let begin = Instant::now();
        rtrace_caller(function, CALLS);
        begin.elapsed().as_nanos() as u64 / CALLS
    };
    (0..LOOPS).map(time_loop).collect()
}

fn median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}
