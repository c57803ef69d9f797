//! What tracing a call costs on this machine: measured on functions of this program itself, by the
//! programs that record.
//!
//! Two costs matter. The *inner* one lies between the two time stamps of a call: it makes the call
//! itself look longer. The whole of a call's tracing makes all its callers look longer. Both are
//! medians, because the machine does other things, too.

use std::arch::global_asm;
use std::time::Instant;

use crate::self_test::own_code;
use crate::wire::{PolicyCode, entry_cookie, exit_cookie};
use crate::{AttachTarget, Error, LoadOptions, Mechanism, Probes, Programs, Role, Site};

/// Timed loops per kind of site, and calls in each.
const LOOPS: usize = 25;
const CALLS: usize = 10;

/// Room for the records of all loops.
const RING_BYTES: u32 = 1 << 17;

// Functions of which each instruction is known: entries that kernels emulate and single-step.
global_asm!(
    ".pushsection .text.rtrace_calibration, \"ax\", @progbits",
    ".p2align 6",
    ".hidden rtrace_emulated, rtrace_emulated_exit, rtrace_stepped, rtrace_stepped_exit",
    ".global rtrace_emulated, rtrace_emulated_exit, rtrace_stepped, rtrace_stepped_exit",
    "rtrace_emulated: push rbp",
    "pop rbp",
    "rtrace_emulated_exit: ret",
    ".p2align 6",
    "rtrace_stepped: xor eax, eax",
    "test eax, eax",
    "rtrace_stepped_exit: ret",
    ".popsection"
);

unsafe extern "C" {
    safe fn rtrace_emulated();
    safe fn rtrace_emulated_exit();
    safe fn rtrace_stepped();
    safe fn rtrace_stepped_exit();
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
    /// How far `whole` was from its median in half of the measurements, at the most.
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
    let options = LoadOptions { mechanism, ring_bytes: RING_BYTES, follow_children: false, profile: None };
    let programs = Programs::load(&options)?;
    programs.trace(std::process::id())?;
    let subjects = [
        Subject { function: rtrace_emulated, exit: rtrace_emulated_exit, single_stepped: false },
        Subject { function: rtrace_stepped, exit: rtrace_stepped_exit, single_stepped: true },
    ];
    let policies = [PolicyCode::RT_POLICY_URETPROBE, PolicyCode::RT_POLICY_RET_SITE, PolicyCode::RT_POLICY_ENTRY_ONLY];
    let mut costs = Vec::new();
    for subject in &subjects {
        let bare = median(&mut time_loops(subject.function));
        for policy in policies {
            costs.push(measure(&programs, subject, policy, bare)?);
        }
    }
    Ok(costs)
}

fn measure(programs: &Programs, subject: &Subject, policy: PolicyCode, bare: u64) -> Result<CallCost, Error> {
    let probes = place(programs, subject, policy)?;
    let mut reader = programs.reader()?;
    programs.arm();
    // The first calls make what the thread and its stack need.
    (subject.function)();
    (subject.function)();
    let mut loops = time_loops(subject.function);
    programs.disarm();
    drop(probes);
    let mut calls = Vec::new();
    reader.read(&mut calls, &mut Vec::new())?;
    let mut durations: Vec<u64> = calls.iter().map(|call| call.duration).collect();
    let whole = median(&mut loops);
    let mut distances: Vec<u64> = loops.iter().map(|&time| time.abs_diff(whole)).collect();
    Ok(CallCost {
        single_stepped: subject.single_stepped,
        policy,
        inner: median(&mut durations).saturating_sub(bare),
        whole: whole.saturating_sub(bare),
        spread: median(&mut distances),
    })
}

fn place(programs: &Programs, subject: &Subject, policy: PolicyCode) -> Result<Vec<Probes>, Error> {
    let site = |code: extern "C" fn(), cookie| {
        let (path, file_offset) = own_code(code as usize)?;
        Some((path, Site { file_offset, cookie }))
    };
    let missing = || Error::Decode { what: "rtrace's own code in `/proc/self/maps`", bytes: 0 };
    let (path, entry) = site(subject.function, entry_cookie(0, policy)).ok_or_else(missing)?;
    let (_, exit) = site(subject.exit, exit_cookie(0, None)).ok_or_else(missing)?;
    let target = AttachTarget { path: &path, pid: Some(std::process::id()) };
    let roles: &[(Role, Site)] = match policy {
        PolicyCode::RT_POLICY_URETPROBE => &[(Role::EnterAndReturn, entry)],
        PolicyCode::RT_POLICY_RET_SITE => &[(Role::Exit, exit), (Role::Enter, entry)],
        _ => &[(Role::Enter, entry)],
    };
    roles.iter().map(|&(role, site)| programs.attach(role, target, &[site])).collect()
}

/// Nanoseconds per call, of each loop.
fn time_loops(function: extern "C" fn()) -> Vec<u64> {
    let time_loop = |_| {
        let begin = Instant::now();
        for _ in 0..CALLS {
            std::hint::black_box(function)();
        }
        (begin.elapsed().as_nanos() / CALLS as u128) as u64
    };
    (0..LOOPS).map(time_loop).collect()
}

fn median(values: &mut [u64]) -> u64 {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}
