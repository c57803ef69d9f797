//! What is said of the machine, its clocks, and its scheduler.

use std::ffi::{OsStr, OsString, c_int};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::OnceLock;
use std::time::Duration;

use rtrace_model::{CallCost, ClockAnchor, Header, Percent, Timestamp, text_of};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

use crate::rank;

/// Now, on the machine's `CLOCK_MONOTONIC`: the clock of all records.
pub fn now() -> Timestamp {
    of_machine(Timestamp(nanoseconds(ClockId::Monotonic)))
}

/// A time that a program in rtrace's time namespace has read of `CLOCK_MONOTONIC`, on the machine's: the kernel adds
/// the namespace's offset to what programs read, and never to what its own records say.
pub fn of_machine(Timestamp(time): Timestamp) -> Timestamp {
    static ADDED: OnceLock<i64> = OnceLock::new();
    let added = *ADDED.get_or_init(|| {
        // Kernels without time namespaces have no such file.
        std::fs::read_to_string("/proc/self/timens_offsets").map_or(0, |offsets| added_to_monotonic(&offsets))
    });
    Timestamp(time.saturating_add_signed(added.saturating_neg()))
}

/// Nanoseconds, from the text of `/proc/PID/timens_offsets`.
fn added_to_monotonic(offsets: &str) -> i64 {
    let of_line = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let is_meant = words.next()? == "monotonic";
        let (seconds, nanoseconds): (i64, i64) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        is_meant.then(|| seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds))
    };
    offsets.lines().find_map(of_line).unwrap_or(0)
}

/// When something happened so many nanoseconds after the machine's start, as `/proc` tells: that counts suspended time,
/// and the offsets of rtrace's time namespace, as `CLOCK_BOOTTIME` does.
pub fn since_boot(time: u64) -> Timestamp {
    let age = nanoseconds(ClockId::Boottime).saturating_sub(time);
    Timestamp(now().0.saturating_sub(age))
}

/// Both clocks at one instant: of a few pairs of readings the one taken fastest.
pub fn clock_anchor() -> ClockAnchor {
    let readings = (0..8).map(|_| {
        let before = now().0;
        let realtime_ns = nanoseconds(ClockId::Realtime);
        let took = now().0 - before;
        (took, ClockAnchor { monotonic: Timestamp(before + took / 2), realtime_ns })
    });
    readings.min_by_key(|&(took, _)| took).map(|(_, anchor)| anchor).unwrap_or_default()
}

/// Both clocks at an instant a short time ago.
pub fn clock_anchor_at(time: Timestamp) -> ClockAnchor {
    let now = clock_anchor();
    let realtime_ns = now.realtime_ns.saturating_sub(now.monotonic.0.saturating_sub(time.0));
    ClockAnchor { monotonic: time, realtime_ns }
}

/// The header of a recording that begins now; `command`: the words of the command, if one is recorded.
pub fn header(mechanism: &str, budget: Option<Percent>, command: &[OsString], calibration: Vec<CallCost>) -> Header {
    let system = rustix::system::uname();
    let text = |word: &OsStr| text_of(word.as_bytes()).into_owned();
    Header {
        budget,
        rtrace_version: env!("CARGO_PKG_VERSION").to_owned(),
        host: system.nodename().to_string_lossy().into_owned(),
        kernel: system.release().to_string_lossy().into_owned(),
        cpus: cpus_on_line(),
        command_line: std::env::args_os().map(|word| text(&word)).collect(),
        command: command.iter().map(|word| text(word)).collect(),
        mechanism: mechanism.to_owned(),
        begin: clock_anchor(),
        boot_id: boot_id(),
        rank: rank::from_environment(),
        calibration,
        sampling: None,
        window: None,
    }
}

/// Lets the calling thread run before the traced program's until what is given goes, as far as rtrace may do
/// so. On a machine that is busy the rings would fill up before their reader runs: 64 threads on two CPUs lost
/// up to 31 % of their calls. It takes no more time for that, as there is no more to read.
pub fn run_first() -> Priority {
    let before = Priority::of_thread();
    // Without the privilege calls may be lost, which is counted.
    set_nice(HIGHEST_PRIORITY);
    before
}

/// The same for a thread that others wait for inside the kernel: it runs as soon as it can, under a real-time policy
/// where that is allowed. By its nice value alone, the scheduler lets who runs finish a time slice first.
pub fn run_at_once() -> Priority {
    let before = run_first();
    set_policy(libc::SCHED_FIFO, 1);
    before
}

/// The same for a thread that nobody else of these may keep waiting.
pub fn run_before_all() -> Priority {
    let before = run_first();
    set_policy(libc::SCHED_FIFO, 2);
    before
}

/// Lets the calling thread run like those that never were ahead: it has the priority of the one that started it.
pub fn run_as_usual() {
    set_policy(libc::SCHED_OTHER, 0);
    set_nice(usual_nice());
}

/// Lets the calling thread run mostly when nobody else wants to, for the rest of its life: where no CPU is idle, loading the programs
/// kept a server from half of its requests for 0.4 s.
pub fn run_behind() {
    set_nice(usual_nice().saturating_add(BEHIND));
}

/// Does what takes long without being ahead of others.
pub fn usually<T>(work: impl FnOnce() -> T) -> T {
    let _ahead = Priority::of_thread();
    run_as_usual();
    work()
}

/// Lets the calling thread run on all CPUs that rtrace may use, also if the one that started it may not.
pub fn run_anywhere() {
    if let Some(cpus) = allowed_cpus() {
        // Else it stays where it is.
        let _ = sched_setaffinity(None, &cpus);
    }
}

/// Every other CPU that rtrace may use, and those between them; none where there is no choice.
pub fn halves_of_cpus() -> Option<[CpuSet; 2]> {
    let allowed = allowed_cpus().filter(|allowed| allowed.count() > 1)?;
    let mut halves = [CpuSet::new(), CpuSet::new()];
    let cpus = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu));
    cpus.enumerate().for_each(|(number, cpu)| halves[number % 2].set(cpu));
    Some(halves)
}

/// Waits until one of these can be read, for so long at most; returns whether that is so. A signal may make the wait shorter.
pub fn wait<'a>(descriptors: impl IntoIterator<Item = BorrowedFd<'a>>, patience: Option<Duration>) -> bool {
    let of_descriptor = |descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN);
    let mut descriptors: Vec<_> = descriptors.into_iter().map(of_descriptor).collect();
    let patience = patience.and_then(|patience| Timespec::try_from(patience).ok());
    poll(&mut descriptors, patience.as_ref()).is_ok_and(|count| count > 0)
}

/// The CPUs that rtrace may use: those of the first thread that ever asks.
pub fn allowed_cpus() -> Option<CpuSet> {
    static ALLOWED: OnceLock<Option<CpuSet>> = OnceLock::new();
    *ALLOWED.get_or_init(|| sched_getaffinity(None).ok())
}

fn set_policy(policy: c_int, priority: c_int) {
    // SAFETY: the structure is as the call expects it, which only reads it.
    unsafe { libc::sched_setscheduler(0, policy, &libc::sched_param { sched_priority: priority }) };
}

fn set_nice(nice: i32) {
    let _ = rustix::process::setpriority_process(None, nice);
}

/// The nice value of the calling thread.
fn nice() -> i32 {
    rustix::process::getpriority_process(None).unwrap_or(0)
}

/// That of the first thread that ever asks.
fn usual_nice() -> i32 {
    static USUAL: OnceLock<i32> = OnceLock::new();
    *USUAL.get_or_init(nice)
}

/// Files that rtrace may open where it can choose that itself: sites of many processes are some ten thousand.
const MOST_FILES: u64 = 1 << 18;

/// So many descriptors are kept, where there are many.
const MOST_KEPT: usize = 64;

/// Lets rtrace open as many files as it may, and returns how many: each program, map and link of the kernel side is one,
/// and on kernels that link sites one by one each site. What was started before keeps the limit that it got.
pub fn allow_descriptors() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = limit.maximum.map(|maximum| maximum.max(MOST_FILES));
    // Without the privilege the limit ends where it is; some recordings then fail, with an error that says so.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: raised, maximum: raised })
        .or_else(|_| setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }));
    let allowed = getrlimit(Resource::Nofile).current;
    allowed.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
}

/// The number of the first descriptor that is kept for what is not a probe: files of traces, and of processes.
pub fn first_kept_descriptor() -> usize {
    let allowed = allow_descriptors();
    allowed - (allowed / 4).min(MOST_KEPT)
}

/// The nice value of what runs first under the default policy (sched(7)).
const HIGHEST_PRIORITY: i32 = -20;

/// What is added to the nice value of who runs behind others.
const BEHIND: i32 = 5;

/// The calling thread runs first as long as this is there. Probes are not taken out meanwhile: the program would
/// wait longer for what the kernel locks for that.
#[must_use]
pub struct Priority {
    policy: c_int,
    nice: i32,
}

impl Priority {
    fn of_thread() -> Priority {
        usual_nice();
        // SAFETY: takes and gives a number.
        let policy = unsafe { libc::sched_getscheduler(0) };
        Priority { policy, nice: nice() }
    }
}

impl Drop for Priority {
    fn drop(&mut self) {
        set_policy(self.policy, c_int::from(self.policy != libc::SCHED_OTHER));
        set_nice(self.nice);
    }
}

/// The processes that run now, threads of the kernel among them.
pub fn processes() -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Of the machine, not those that this process is bound to, as launchers do.
fn cpus_on_line() -> u32 {
    // SAFETY: takes and gives a number.
    let cpus = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    u32::try_from(cpus).unwrap_or(1)
}

/// What the kernel calls this start of the machine.
fn boot_id() -> Option<String> {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok().map(|id| id.trim_end().to_owned())
}

fn nanoseconds(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_time_namespace_adds_is_taken_off() {
        let added = |seconds: &str, nanoseconds: &str| {
            added_to_monotonic(&format!("monotonic  {seconds}  {nanoseconds}\nboottime  5  7\n"))
        };
        assert_eq!(added("86400", "3"), 86_400_000_000_003);
        assert_eq!(added("-2", "500000000"), -1_500_000_000, "nanoseconds always count up");
        assert_eq!((added("0", "0"), added("x", "0"), added_to_monotonic("")), (0, 0, 0));
    }

    #[test]
    fn a_process_that_has_just_begun_is_not_old() {
        let begun = since_boot(nanoseconds(ClockId::Boottime));
        assert!(now().since(begun) < 1_000_000_000 && begun.since(now()) < 1_000_000_000);
    }
}
