//! How long, how, and into which directory calls are recorded.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Args, value_parser};
use rtrace::user::{self, User};
use rtrace::{privilege, rank, watch};
use rtrace_bpf::ProfileOptions;
use rtrace_model::Percent;
use rtrace_plan::Pattern;

use super::choice::{MODE, one_of};
use super::names::{Names, parse_counters};
use super::quantity::{parse_budget, parse_buffer_size, parse_duration};

/// What is recorded of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// A record of its own.
    #[default]
    Trace,
    /// It is folded into its call path.
    Profile,
}

/// The options of the verbs that record.
#[derive(Debug, Args)]
#[command(next_help_heading = "Recording")]
pub struct Recording {
    /// Directory to write the trace to [default: PROGRAM-PID-DATE-TIME.rtrace]
    ///
    /// It is created and must not hold anything yet. Under sudo it belongs to the invoking user.
    /// Started by mpirun or srun, each rank writes into a directory of its own in it, rank-0000 and
    /// so on; DIR opens as one trace [default then: PROGRAM-JOB.rtrace].
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,

    /// Stop recording after this time, such as 500ms, 2s or 1m
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub duration: Option<Duration>,

    /// What is recorded of a call
    ///
    /// A profile is as exact as a trace, takes as little space after a day as after a second, and
    /// loses nothing however many calls there are.
    #[arg(long, value_name = "MODE", default_value = "trace", value_parser = one_of(MODE))]
    mode: Mode,

    /// Record only calls that took at least this time, and their callers; count the others
    ///
    /// The others are folded into a profile, so that counts and times stay exact.
    #[arg(long, value_name = "TIME", value_parser = parse_duration, conflicts_with = "mode")]
    min_duration: Option<Duration>,

    /// Fold calls of these functions: a name, a glob or a /regex/; may be repeated
    ///
    /// For functions that are called too often to be looked at one by one. Counts and times stay
    /// exact. A call that made a recorded one is recorded, too.
    #[arg(long, value_name = "PATTERN", conflicts_with = "mode")]
    pub fold: Vec<Pattern>,

    /// Keep what tracing takes below this part of the programs' CPU time, such as 5%
    ///
    /// Functions that cost most then have probes for a thousandth of a second now and then only, from
    /// which it is told how many calls there were at least, and at most where that is known; the
    /// others stay exact. Every change is an event of the trace.
    #[arg(long, value_name = "PERCENT", value_parser = parse_budget)]
    pub budget: Option<Percent>,

    /// Call paths that a profile tells apart at a time, counted per thread
    ///
    /// One takes about 500 bytes. Calls by further ones are counted as lost.
    #[arg(long, value_name = "NUMBER", default_value_t = 1 << 16, value_parser = value_parser!(u32).range(1..=1 << 24))]
    max_paths: u32,

    /// Show a line of progress instead of the live view
    ///
    /// `run` always does, as the command's own output would run through a live view.
    #[arg(long)]
    pub no_tui: bool,

    /// Trace child processes too [default for run]
    ///
    /// With `attach` also those that there are already. The recording goes on until the last of them has ended.
    #[arg(long, overrides_with = "no_follow")]
    follow: bool,

    /// Stop recording when the command's first process has ended, or with `attach` those named
    ///
    /// For programs that leave a process behind which never ends.
    #[arg(long)]
    pub first: bool,

    /// Place probes in every process that maps the libraries, so that children miss no call
    ///
    /// Without this, each process has probes of its own. With `run`, a program that a child executes waits for
    /// them; a child that executes none, and any child with `attach`, misses the calls that it makes in its
    /// first tens of milliseconds. With it, all other programs that use the libraries become slower.
    #[arg(long, conflicts_with = "budget")]
    pub everywhere: bool,

    /// Trace only the processes named [default for attach]
    #[arg(long, overrides_with = "follow")]
    no_follow: bool,

    /// Count these on every call, 8 at the most: names of `perf list`, separated by commas
    ///
    /// Such as task-clock, page-faults, cycles, instructions:u, LLC-load-misses, r01c2, msr/tsc/ or
    /// sched:sched_switch; `rtrace counters` lists what works here.
    #[arg(long, value_name = "LIST", value_parser = parse_counters, default_value = "", hide_default_value = true)]
    pub counters: Names,

    /// Count accesses to this global variable on every call; up to 4 times
    ///
    /// [LIB:]SYMBOL[:w|rw][:unsigned|signed|float], of the program or of a traced library: writes, or
    /// with `rw` reads and writes. Such as `errors`, `libz.so:errors:rw`, `exe:ns::total:w:float`. With
    /// its type named, its value after each write is recorded, too. The hardware's breakpoints
    /// tell: an access costs the program some microseconds, and the variable has 1, 2, 4 or 8 bytes.
    #[arg(long = "watch", value_name = "VARIABLE")]
    pub watches: Vec<watch::Name>,

    /// Measure memory, CPU time and I/O of the processes once a second [default]
    ///
    /// And energy and frequency of the machine, where it shows them.
    #[arg(long, overrides_with = "no_sample_metrics")]
    sample_metrics: bool,

    /// Measure nothing beside the calls
    #[arg(long, overrides_with = "sample_metrics")]
    no_sample_metrics: bool,

    /// Record the values that this command writes on its standard output; may be repeated
    ///
    /// `docs/metrics.md` describes its lines. It is started before the recording and ended after it.
    #[arg(long = "metric-plugin", value_name = "CMD")]
    pub metric_plugins: Vec<String>,

    /// Size of each CPU's ring buffer, rounded up to a power of two
    ///
    /// A larger buffer survives longer bursts. Calls that find it full are counted as lost.
    #[arg(long, value_name = "SIZE", default_value = "8M", value_parser = parse_buffer_size)]
    pub buffer: u32,

    /// Feed the calls while they happen to a program, as an Arrow stream on its standard input; may
    /// be repeated
    ///
    /// CMD is for the shell. A program that is too slow, or ends, misses calls and holds nothing up.
    /// There is no live view then, as the program may use the terminal.
    #[arg(long = "sink", value_name = "CMD")]
    pub sinks: Vec<String>,

    /// Run sinks and metric plug-ins as this user [default under sudo: who called it]
    #[arg(long, value_name = "NAME")]
    helper_user: Option<String>,

    /// Exit with status 3 when calls were lost, or may be missing
    ///
    /// Calls that --budget leaves without a record are not lost.
    #[arg(long)]
    pub strict: bool,
}

impl Recording {
    /// Whether processes and machine are measured beside the calls.
    pub fn sample_metrics(&self) -> bool {
        self.sample_metrics || !self.no_sample_metrics
    }

    /// As whom sinks and plug-ins run, if not as rtrace does.
    pub fn helper_user(&self) -> Result<Option<User>, user::Error> {
        match &self.helper_user {
            Some(name) => User::named(name).map(Some),
            None => Ok(privilege::invoker().map(User::of)),
        }
    }

    /// Whether child processes are traced, where `default` is what the verb does unasked.
    pub fn follow(&self, default: bool) -> bool {
        // A budget controls the probes of the processes that were there at the beginning.
        self.follow || (default && !self.no_follow && self.budget.is_none())
    }

    /// How calls are folded, if they are.
    pub fn profile(&self) -> Option<ProfileOptions> {
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX - 1);
        let (is_traced, max_paths) = (self.mode == Mode::Trace, self.max_paths);
        if is_traced && self.min_duration.is_none() && self.fold.is_empty() {
            return None;
        }
        let written_from = is_traced.then(|| self.min_duration.map_or(0, nanoseconds));
        Some(ProfileOptions { max_paths, written_from })
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
