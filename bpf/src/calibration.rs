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
use std::panic::resume_unwind;
use std::thread;
use std::time::Instant;

use rtrace_model::Step;

use crate::self_test::own_code;
use crate::wire::{PolicyCode, ReturnSite, TailsCode, entry_cookie, step_cookie};
use crate::{ArrivalRule, Behind, Error, MAX_SITES, Probes, Programs, Records, RingReader, Role, Site};

/// Loops per kind of site and caller, with fewer of what takes long, and calls in each.
const LOOPS: usize = 60;
const LONG_LOOPS: usize = 20;
const CALLS: u64 = 10;

/// The first of the regions that are measured: one to which no table of a recording reaches.
const REGIONS: u32 = 1 << 30;

/// How the return of a subject is detected.
const POLICIES: [PolicyCode; 2] = [PolicyCode::RT_POLICY_RETURN_SITE, PolicyCode::RT_POLICY_ENTRY_ONLY];

/// Place of the caller with a probe among the regions, after the functions.
const CALLER: usize = 3 * POLICIES.len();

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
    ".rept 2",
    "push rbp",
    "pop rbp",
    "ret",
    ".p2align 6",
    ".endr",
    "rtrace_stepped:",
    ".rept 2",
    "xor eax, eax",
    "test eax, eax",
    "ret",
    ".p2align 6",
    ".endr",
    "rtrace_written:",
    ".rept 2",
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
    safe fn rtrace_outer(function: usize, times: u64, caller: CallLoop);
    safe fn rtrace_outer_arrival();
}

/// A loop that calls a function that many times, at least once.
type CallLoop = extern "C" fn(function: usize, times: u64);

/// The callers without and with a probe, of functions whose return is detected so.
fn callers(policy: PolicyCode) -> [CallLoop; 2] {
    let first = if policy == PolicyCode::RT_POLICY_RETURN_SITE { 0 } else { 2 };
    let bare = rtrace_caller as *const () as usize + first * COPY;
    // SAFETY: all copies take a function and a number.
    [bare, bare + COPY].map(|code| unsafe { std::mem::transmute::<usize, CallLoop>(code) })
}

/// What tracing one call costs, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeasuredCost {
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

/// A function to probe.
struct CalibratedFunction {
    /// Its place among the regions.
    place: usize,
    function: usize,
    entry: EntryMethod,
    policy: PolicyCode,
}

/// Who does the instruction at an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EntryMethod {
    Emulated,
    SingleStepped,
    BpfEmulated,
}

impl CalibratedFunction {
    fn loops(&self) -> usize {
        if self.entry == EntryMethod::SingleStepped { LONG_LOOPS } else { LOOPS }
    }

    fn all() -> Vec<CalibratedFunction> {
        let kinds = [
            (rtrace_emulated as *const () as usize, EntryMethod::Emulated),
            (rtrace_stepped as *const () as usize, EntryMethod::SingleStepped),
            (rtrace_written as *const () as usize, EntryMethod::BpfEmulated),
        ];
        let mut subjects = Vec::new();
        for (first, entry) in kinds {
            for (function, policy) in (first..).step_by(COPY).zip(POLICIES) {
                subjects.push(CalibratedFunction { place: subjects.len(), function, entry, policy });
            }
        }
        subjects
    }
}

impl Programs {
    /// Measures all kinds of sites, of calls that count and leave as those of the recording will; `steps`: the
    /// programs do instructions themselves, as they [may](crate::may_step).
    /// Must be over before anything else is traced, and nothing of it is left then. Takes some ten milliseconds.
    ///
    /// # Errors
    /// The kernel refuses probes, or this program's code is not found.
    pub fn calibrate(&self, steps: bool) -> Result<Vec<MeasuredCost>, Error> {
        // What the kernel side keeps of a thread goes with it.
        thread::scope(|scope| {
            let measured = scope.spawn(|| self.calibrate_on_this_thread(steps)).join();
            measured.unwrap_or_else(|panic| resume_unwind(panic))
        })
    }

    fn calibrate_on_this_thread(&self, steps: bool) -> Result<Vec<MeasuredCost>, Error> {
        let mut subjects = CalibratedFunction::all();
        subjects.retain(|subject| steps || subject.entry != EntryMethod::BpfEmulated);
        let bare = subjects.iter().map(|subject| Ok(mean(&time_loops(subject, || Ok(()))?)));
        let bare: Vec<u64> = bare.collect::<Result<_, Error>>()?;
        let probes = place(self, &subjects, steps)?;
        let space = self.trace(std::process::id())?;
        let arrivals = arrivals().map(|address| address as u64);
        let placed = ArrivalRule::Placed { behind: Behind::default(), since: None, distance: Some(0) };
        let costs = self.set_arrivals(space, &arrivals.map(|address| (address, placed))).and_then(|()| {
            self.arm();
            let mut sums = MeasuredSums::new(self)?;
            let measured = |(subject, bare)| {
                let cost = measure(&mut sums, subject, bare)?;
                // The first one is that of the most calls: an emulated entry and a return site.
                if self.calm.get().is_none() {
                    let _ = self.calm.set(self.hit_times()?);
                }
                Ok(cost)
            };
            subjects.iter().zip(bare).map(measured).collect()
        });
        self.switch_off()?;
        // It takes the kernel a while, for which nobody has to wait.
        thread::spawn(|| drop(probes));
        self.forget_process(std::process::id(), space, &arrivals)?;
        costs
    }
}

/// What calls have taken so far, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
struct MeasuredSum {
    inclusive: u64,
    exclusive: u64,
}

/// What the calls of all regions have taken so far.
struct MeasuredSums<'a> {
    programs: &'a Programs,
    reader: RingReader<'a>,
    sums: [MeasuredSum; CALLER + 1],
}

impl MeasuredSums<'_> {
    fn new(programs: &Programs) -> Result<MeasuredSums<'_>, Error> {
        Ok(MeasuredSums { programs, reader: programs.reader()?, sums: Default::default() })
    }

    /// Until now.
    fn read(&mut self) -> Result<[MeasuredSum; CALLER + 1], Error> {
        let mut records = Records::default();
        self.reader.read(&mut records)?;
        if self.programs.is_profiled() {
            self.sums = Default::default();
            for (_, path, _) in self.programs.paths()? {
                self.add(path.region, path.inclusive, path.exclusive);
            }
        } else {
            for call in &records.calls {
                self.add(call.region, call.duration, call.duration.saturating_sub(call.child));
            }
        }
        Ok(self.sums)
    }

    fn add(&mut self, region: u32, inclusive: u64, exclusive: u64) {
        if let Some(sum) = region.checked_sub(REGIONS).and_then(|place| self.sums.get_mut(place as usize)) {
            sum.inclusive += inclusive;
            sum.exclusive += exclusive;
        }
    }
}

fn measure(sums: &mut MeasuredSums<'_>, subject: &CalibratedFunction, bare: u64) -> Result<MeasuredCost, Error> {
    let [_, caller] = callers(subject.policy);
    let alone = mean(&time_loops(subject, || sums.read().map(drop))?).saturating_sub(bare);
    let mut before = sums.read()?;
    let (mut inner, mut outer) = (Vec::new(), Vec::new());
    for _ in 0..subject.loops() {
        rtrace_outer(subject.function, CALLS, caller);
        let after = sums.read()?;
        let inclusive = after[subject.place].inclusive - before[subject.place].inclusive;
        inner.push((inclusive / CALLS).saturating_sub(bare));
        outer.push((after[CALLER].exclusive - before[CALLER].exclusive) / CALLS);
        before = after;
    }
    let (inner, outer) = (mean(&inner), mean(&outer));
    // An enter alone has no time stamps that the function itself lies between.
    let outside = if subject.policy == PolicyCode::RT_POLICY_ENTRY_ONLY { bare } else { 0 };
    let nested = inner + outer.saturating_sub(outside);
    Ok(MeasuredCost {
        single_stepped: subject.entry == EntryMethod::SingleStepped,
        written: subject.entry == EntryMethod::BpfEmulated,
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
fn place(programs: &Programs, subjects: &[CalibratedFunction], steps: bool) -> Result<Vec<Probes>, Error> {
    let no_code = || Error::Decode { what: "the mapping of rtrace's own code", bytes: 0 };
    let (path, _) = own_code(rtrace_caller as *const () as usize).ok_or_else(no_code)?;
    let site = |code: usize, cookie: u64, step: Option<Step>| {
        let (_, file_offset) = own_code(code).ok_or_else(no_code)?;
        Ok(Site::new(file_offset, step.map_or(cookie, |step| step_cookie(cookie, step, file_offset))))
    };
    let cookie = |place, policy| entry_cookie(REGIONS + place as u32, policy, TailsCode::RT_TAILS_NEVER);
    let entry = |subject: &CalibratedFunction| {
        let step = (steps && subject.entry == EntryMethod::BpfEmulated).then_some(Step::Landing);
        site(subject.function, cookie(subject.place, subject.policy), step)
    };
    let caller = |of| {
        let [_, caller] = callers(of);
        site(caller as *const () as usize, cookie(CALLER, PolicyCode::RT_POLICY_RETURN_SITE), None)
    };
    let callers = [PolicyCode::RT_POLICY_RETURN_SITE, PolicyCode::RT_POLICY_ENTRY_ONLY].map(caller);
    let arrival = ReturnSite::default();

    let returns: Vec<Site> = arrivals()
        .into_iter()
        .map(|address| site(address, arrival.cookie(MAX_SITES - 1), None))
        .collect::<Result<_, _>>()?;
    let entries: Vec<Site> = subjects.iter().map(entry).chain(callers).collect::<Result<_, _>>()?;
    let pid = std::process::id();
    [(Role::Return, returns), (Role::Enter, entries)]
        .into_iter()
        .map(|(role, sites)| programs.attach(role, &path, &[pid], &sites))
        .collect()
}

/// Nanoseconds of a call from a caller without probes, in each of some loops; `between` them is not timed.
fn time_loops(subject: &CalibratedFunction, mut between: impl FnMut() -> Result<(), Error>) -> Result<Vec<u64>, Error> {
    let [caller, _] = callers(subject.policy);
    let time_loop = |_| {
        let begin = Instant::now();
        caller(subject.function, CALLS);
        let time = begin.elapsed().as_nanos() as u64 / CALLS;
        between().map(|()| time)
    };
    (0..subject.loops()).map(time_loop).collect()
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
