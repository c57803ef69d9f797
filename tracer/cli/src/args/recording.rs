//! How long, how, and into which directory calls are recorded.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use clap::{Args, value_parser};
use rtrace::actions::RegionAction;
use rtrace::rank;
use rtrace::session::Options;
use rtrace::target::privilege;
use rtrace::target::user::{self, User};
use rtrace::watch;
use rtrace_bpf::{MAX_LEVELS, ProfileOptions};
use rtrace_model::Percent;

use super::address::parse_address;
use super::choice::{MODE, Mode, one_of};
use super::names::{Names, parse_counters};
use super::quantity::{Budget, parse_budget, parse_buffer_size, parse_duration, parse_time};
use super::{Keep, SelectionArgs, ValuesArgs};

/// The options of the verbs that record.
#[derive(Debug, Args)]
#[command(next_help_heading = "Recording")]
pub struct RecordingArgs {
    /// Directory for the trace [default: PROGRAM-PID-DATE-TIME.rtrace]
    ///
    /// rtrace creates it; an existing directory must be empty. Under sudo it belongs to the user who called sudo. Under
    /// mpirun or srun, each rank writes to a subdirectory (rank-0000, rank-0001, …), and `rtrace report DIR` reads all
    /// ranks as one trace; the default is then PROGRAM-JOB.rtrace.
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,

    /// Stop recording after this time, such as 500ms, 2s or 1m
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    duration: Option<Duration>,

    /// What to record
    ///
    /// Counts and times of a profile are as exact as those of a trace. A profile does not grow with time, and loses no
    /// calls at any call rate. It saves space, not time: a call costs the program about the same.
    #[arg(long, value_name = "MODE", default_value = "trace", value_parser = one_of(MODE))]
    mode: Mode,

    /// Record only calls that take at least this long, and their callers; aggregate the others
    ///
    /// rtrace aggregates the others in a profile, so counts and times stay exact.
    #[arg(long, value_name = "TIME", value_parser = parse_time, conflicts_with = "mode")]
    min_duration: Option<Duration>,

    /// Limit tracing overhead to this share of the programs' CPU time, such as 5% [default: 15% for attach, none for run]
    ///
    /// `none` records every call at any cost. Otherwise rtrace throttles the functions that cost most: they have
    /// probes only for some milliseconds at a time. From these windows it derives a lower bound of their calls, and an upper
    /// bound where that is possible. All other functions stay exact. Every change is an event in the trace. `attach`
    /// counts calls for some seconds before it records, and places no probes at functions that would cost too much.
    /// With --keep, there is no limit. Under `run`, children are not traced unless --follow is given;
    /// if there are any, the recording is incomplete.
    #[arg(long, value_name = "PERCENT", value_parser = parse_budget)]
    budget: Option<Budget>,

    /// Maximum number of call paths in a profile, counted per thread
    ///
    /// Each takes about 500 bytes. Calls on further call paths are counted as lost.
    #[arg(long, value_name = "NUMBER", default_value_t = 1 << 16, value_parser = value_parser!(u32).range(1..=1 << 24))]
    max_paths: u32,

    /// Show a progress line instead of the dashboard
    ///
    /// `run` always does, because the output of the command would disturb the dashboard.
    #[arg(long)]
    pub no_tui: bool,

    /// Trace child processes, too [default for run]
    ///
    /// With `attach`, this includes existing children. Recording continues until the last process ends.
    #[arg(long, overrides_with = "no_follow")]
    follow: bool,

    /// Stop recording when the command's first process ends (`attach`: the named processes)
    ///
    /// For programs that leave a background process running.
    #[arg(long)]
    first: bool,

    /// Trace only the named processes [default for attach]
    #[arg(long, overrides_with = "follow")]
    no_follow: bool,

    /// Counters to read on every call (at most 8), separated by commas
    ///
    /// Use the names of `perf list`, such as task-clock, page-faults, cycles, instructions:u, LLC-load-misses, r01c2,
    /// msr/tsc/ or sched:sched_switch. `rtrace counters` lists those that work here.
    #[arg(long, value_name = "LIST", value_parser = parse_counters, default_value = "", hide_default_value = true)]
    counters: Names,

    /// Record which untraced functions led to each call, up to LEVELS of them
    ///
    /// rtrace walks the stack by the unwind tables of the program and its libraries; they need no frame pointers. Trees
    /// then begin with `main`. Costs about 0.2 µs per level and call. Aggregated calls have no context.
    #[arg(
        long, value_name = "LEVELS", num_args = 0..=1, require_equals = true, default_missing_value = "64",
        value_parser = value_parser!(u32).range(1..=i64::from(MAX_LEVELS)), conflicts_with = "mode"
    )]
    stacks: Option<u32>,

    /// Count accesses to this global variable on every call; up to 4 times
    ///
    /// [LIB:]SYMBOL[+OFFSET/SIZE][:w|rw][:unsigned|signed|float], such as `errors`, `libz.so:errors:rw` or
    /// `exe:ns::total:w:float`. SYMBOL is a variable of 1, 2, 4 or 8 bytes in the program or in a traced library; of an array
    /// or structure, `exe:grid+16/8` is the part of 8 bytes from byte 16 on. With attach, `0x55e0c2a0/8` is 8 bytes at an address. `w` counts writes, `rw` reads
    /// and writes. With a type, rtrace also records the value after each write. Uses hardware watchpoints; each access
    /// costs a few microseconds.
    #[arg(long = "watch", value_name = "VARIABLE")]
    watches: Vec<watch::Name>,

    /// Sample where the programs spend CPU time, so many times a second on each CPU, such as 99
    ///
    /// With a budget, 99 is the default. Calls stay exact; samples say what runs between and within them, in all code. `rtrace report --by cpu` shows them, and
    /// each report says which part of the CPU time is in which library.
    #[arg(long, value_name = "HERTZ", value_parser = value_parser!(u32).range(1..=1_000), conflicts_with = "keep")]
    sampling: Option<u32>,

    /// Sample memory, CPU time and I/O of the processes once a second [default]
    ///
    /// Also energy and CPU frequency of the machine, if it reports them.
    #[arg(long, overrides_with = "no_sample_metrics")]
    sample_metrics: bool,

    /// Do not sample processes and machine
    #[arg(long, overrides_with = "sample_metrics")]
    no_sample_metrics: bool,

    /// Record the values that this command writes to its stdout; may be repeated
    ///
    /// `docs/metrics.md` describes the format of a line. rtrace starts the command before recording and ends it
    /// afterwards.
    #[arg(long = "metric-plugin", value_name = "CMD")]
    metric_plugins: Vec<String>,

    /// Size of each CPU's ring buffer, rounded up to a power of two
    ///
    /// A larger buffer absorbs longer bursts of calls. Calls that find it full are counted as lost.
    #[arg(long, value_name = "SIZE", default_value = "8M", value_parser = parse_buffer_size)]
    buffer: u32,

    /// Stream calls live to a command's stdin (Arrow IPC); may be repeated
    ///
    /// A shell runs the command. If it is too slow, or ends, it misses calls; the recording is never delayed. The
    /// dashboard is off, because the command may use the terminal.
    #[arg(long = "sink", value_name = "CMD")]
    pub sinks: Vec<String>,

    /// Act at once when a function enters or leaves; may be repeated
    ///
    /// FUNC is a name, a glob or a /regex/ of functions that are traced. ACTION is a command, which a shell runs, or `>FILE TEXT`,
    /// which writes a line to a file. The command has RTRACE_FUNCTION, RTRACE_PID and RTRACE_TID in its environment, and is not
    /// started while it still runs. The program does not wait; each such moment costs it some microseconds.
    #[arg(long = "on", num_args = 2, value_names = ["FUNC:enter|leave", "ACTION"])]
    on: Vec<String>,

    /// Serve calls, durations and losses of each function for Prometheus: http://ADDRESS/metrics
    ///
    /// A port alone listens on 127.0.0.1, where every user of this machine can read the figures. `docs/prometheus.md` has
    /// the metrics, a configuration to scrape them, and queries.
    #[arg(long, value_name = "[IP:]PORT", value_parser = parse_address)]
    pub listen: Option<SocketAddr>,

    /// Run sinks and metric plug-ins as this user [default under sudo: the user who called sudo]
    #[arg(long, value_name = "NAME")]
    helper_user: Option<String>,

    /// Exit with status 3 if calls were lost or may be missing
    ///
    /// Calls skipped by --budget do not count as lost.
    #[arg(long)]
    pub strict: bool,

    // These have a heading of their own, which what follows them would get, too.
    /// Which values of calls.
    #[command(flatten)]
    values: ValuesArgs,

    /// What is kept until something happens.
    #[command(flatten)]
    pub keep: Keep,
}

impl RecordingArgs {
    /// What is recorded, and how; `follow`: whether children are traced unasked, `budget`: the limit of the overhead if
    /// none is named.
    pub fn options(&self, selection: &SelectionArgs, follow: bool, budget: Option<Percent>) -> anyhow::Result<Options> {
        let is_limited = self.keep.keep.is_none();
        let budget = self.budget.map_or(budget.filter(|_| is_limited), |Budget(budget)| budget);
        Ok(Options {
            counters: self.counters.0.clone(),
            watches: self.watches.clone(),
            values: self.values.request(),
            levels: self.stacks.unwrap_or(0),
            profile: self.profile(),
            budget,
            duration: self.duration,
            follow: self.follow(follow),
            lacks_children: follow && !self.follow(follow) && !self.no_follow,
            ends_with_first: self.first,
            sampling: self.sampling,
            samples: self.sample_metrics || !self.no_sample_metrics,
            actions: self.actions()?,
            plugins: self.metric_plugins.clone(),
            helper_user: self.helper_user()?,
            ring_bytes: Some(self.buffer),
            ..selection.options()?
        })
    }

    fn actions(&self) -> anyhow::Result<Vec<RegionAction>> {
        let action = |pair: &[String]| RegionAction::parse(&pair[0], &pair[1]).map_err(anyhow::Error::msg);
        self.on.chunks_exact(2).map(action).collect::<Result<_, _>>().context("failed to read --on")
    }

    /// As whom sinks and plug-ins run, if not as rtrace does.
    pub fn helper_user(&self) -> Result<Option<User>, user::Error> {
        match &self.helper_user {
            Some(name) => User::named(name).map(Some),
            None => Ok(privilege::invoker().map(User::of)),
        }
    }

    /// Whether child processes are traced, where `default` is what the verb does unasked.
    fn follow(&self, default: bool) -> bool {
        // A budget controls the probes of the processes that were there at the beginning.
        self.follow || (default && !self.no_follow && !self.is_limited())
    }

    /// Whether child processes are left out only because of the budget.
    pub fn leaves_children(&self, options: &Options) -> bool {
        self.is_limited() && !options.follow && !self.no_follow
    }

    /// Whether a limit of the overhead is named.
    fn is_limited(&self) -> bool {
        self.budget.is_some_and(|Budget(budget)| budget.is_some())
    }

    /// How calls are folded, if they are.
    fn profile(&self) -> Option<ProfileOptions> {
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX - 1);
        let is_folded = self.mode == Mode::Profile || self.min_duration.is_some();
        let written_from = self.min_duration.map(nanoseconds);
        is_folded.then_some(ProfileOptions { max_paths: self.max_paths, written_from })
    }

    /// The directory asked for, or one named after the program, its process and the local time; of
    /// a rank the one in it, or in one named after the program and the job.
    pub fn directory(&self, program: &str, pid: u32) -> PathBuf {
        let rank = rank::from_environment();
        let job = rank.as_ref().and_then(|rank| rank.job.as_deref());
        let directory = self.output.clone().unwrap_or_else(|| match job {
            Some(job) => PathBuf::from(format!("{}-{}.rtrace", file_name(program), file_name(job))),
            None => PathBuf::from(directory_name(program, pid, &local_time(SystemTime::now()))),
        });
        match &rank {
            Some(rank) => directory.join(rank::directory_name(rank)),
            None => directory,
        }
    }
}

/// The name without what means something in paths and to shells.
fn file_name(name: &str) -> String {
    name.chars()
        .enumerate()
        .map(|(index, c)| match c {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '_' => c,
            '-' | '.' | '+' if index > 0 => c,
            _ => '_',
        })
        .collect()
}

fn directory_name(program: &str, pid: u32, time: &libc::tm) -> String {
    let program = file_name(program);
    format!(
        "{program}-{pid}-{:04}{:02}{:02}-{:02}{:02}{:02}.rtrace",
        i64::from(time.tm_year) + 1900,
        time.tm_mon + 1,
        time.tm_mday,
        time.tm_hour,
        time.tm_min,
        time.tm_sec
    )
}

fn local_time(instant: SystemTime) -> libc::tm {
    let seconds = instant.duration_since(UNIX_EPOCH).map_or(0, |since_epoch| since_epoch.as_secs());
    let seconds = libc::time_t::try_from(seconds).unwrap_or(0);
    // SAFETY: `tm` is plain data, for which zeros are valid.
    let mut time: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are valid for the call, and `localtime_r` keeps neither.
    unsafe { libc::localtime_r(&raw const seconds, &raw mut time) };
    time
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evening() -> libc::tm {
        // SAFETY: `tm` is plain data, for which zeros are valid.
        let mut time: libc::tm = unsafe { std::mem::zeroed() };
        (time.tm_year, time.tm_mon, time.tm_mday) = (125, 0, 2);
        (time.tm_hour, time.tm_min, time.tm_sec) = (21, 4, 5);
        time
    }

    #[test]
    fn directories_are_named_after_program_process_and_time() {
        assert_eq!(directory_name("fft-demo", 4711, &evening()), "fft-demo-4711-20250102-210405.rtrace");
    }

    #[test]
    fn program_names_cannot_leave_the_folder_or_look_like_options() {
        assert_eq!(directory_name("../x", 1, &evening()), "_._x-1-20250102-210405.rtrace");
        assert_eq!(directory_name("-rf\n", 1, &evening()), "_rf_-1-20250102-210405.rtrace");
    }
}
