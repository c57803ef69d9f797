//! What happened beside the calls.

use serde::{Deserialize, Serialize};

use crate::{Level, Loss, Overhead, RegionId, Timestamp, Untimed};

/// How people are told of a slowdown by so many percent.
pub fn slowdown(percent: u32) -> String {
    let overhead = Overhead::percent(f64::from(percent));
    format!("tracing makes the programs about {overhead}; --budget 5% would keep that low")
}

/// Something that happened at one time, to one process or to the recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// When.
    pub time: Timestamp,
    /// The process concerned, if one is.
    pub pid: Option<u32>,
    /// The thread concerned, if one is.
    pub tid: Option<u32>,
    /// What.
    pub kind: EventKind,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "event")]
pub enum EventKind {
    /// The process made a child.
    Fork {
        /// The child's process id.
        child: u32,
    },
    /// The process runs another program from here on.
    Exec {
        /// The program's path.
        executable: String,
    },
    /// Nothing of the process is recorded from here on, until it runs a program that may be: who records it could
    /// not ptrace it.
    Withheld {
        /// The program's path, or what it was called by; `?` where it ended too soon to tell.
        program: String,
    },
    /// The process ended.
    Exit {
        /// The exit code, or 128 + signal.
        code: i32,
    },
    /// Probes were placed in a library.
    Attached {
        /// Path of the library.
        library: String,
        /// Number of regions.
        regions: u64,
    },
    /// Calls may be missing: the library was mapped from `since` until this event without probes.
    BlindWindow {
        /// Path of the library.
        library: String,
        /// The earliest time from which calls may be missing.
        since: Timestamp,
    },
    /// When the recording ended, the process had other code where a probe had been placed: it has written over it.
    /// From an unknown time on, calls are missing, or their returns.
    Overwritten {
        /// Path of the file.
        library: String,
        /// The preferred name of the region whose calls are missing; none where returns are, which arrive there.
        region: Option<String>,
        /// Number of probes.
        sites: u64,
    },
    /// A region was left out.
    Refused {
        /// Path of the library.
        library: String,
        /// The region's preferred name.
        region: String,
        /// Why.
        reason: String,
    },
    /// Values of a region's calls are not recorded, though they were asked for.
    NoValues {
        /// Path of the library.
        library: String,
        /// The region's preferred name.
        region: String,
        /// Why.
        reason: String,
    },
    /// Source lines of a file are missing: its debug information cannot be read.
    NoLines {
        /// Path of the file.
        file: String,
    },
    /// Recording began.
    Armed,
    /// Recording ended.
    Disarmed,
    /// From here on a counter's readings are estimates: at times its hardware counted something else,
    /// for which they are scaled up, or a switch of threads was not told, around which counts are left
    /// out.
    Estimated {
        /// The metric's name.
        metric: String,
    },
    /// A program that provides metrics ended, or said what cannot be understood.
    Plugin {
        /// Its command line.
        command: String,
        /// What came of it.
        problem: String,
    },
    /// The budget makes calls of a region be recorded otherwise from here on.
    Level {
        /// The region.
        region: RegionId,
        /// Its preferred name.
        name: String,
        /// How they were.
        from: Level,
        /// How they are.
        to: Level,
    },
    /// Tracing slows the program down more than most would want, and no budget was given.
    Slowdown {
        /// By how much its time is longer, in percent, as estimated: an [`Overhead`].
        percent: u32,
    },
    /// A variable is watched in the process from here on, but could be accessed since an earlier time.
    Watched {
        /// The counter's name.
        variable: String,
        /// When the process had the variable.
        since: Timestamp,
    },
    /// Accesses to a variable are not counted, in one process or, if none is named, at all.
    Unwatched {
        /// The counter's name.
        variable: String,
        /// Why.
        reason: String,
    },
    /// More calls or events are missing: their number since the last event of this reason and region.
    Loss(Loss),
    /// More calls were not timed: their number since the last event of this reason and region.
    Untimed(Untimed),
}

impl EventKind {
    /// The word used in columns and reports.
    pub const fn name(&self) -> &'static str {
        match self {
            EventKind::Fork { .. } => "fork",
            EventKind::Exec { .. } => "exec",
            EventKind::Withheld { .. } => "withheld",
            EventKind::Exit { .. } => "exit",
            EventKind::Attached { .. } => "attached",
            EventKind::BlindWindow { .. } => "blind_window",
            EventKind::Overwritten { .. } => "overwritten",
            EventKind::Refused { .. } => "refused",
            EventKind::NoValues { .. } => "no_values",
            EventKind::NoLines { .. } => "no_lines",
            EventKind::Armed => "armed",
            EventKind::Disarmed => "disarmed",
            EventKind::Estimated { .. } => "estimated",
            EventKind::Plugin { .. } => "plugin",
            EventKind::Level { .. } => "level",
            EventKind::Slowdown { .. } => "slowdown",
            EventKind::Watched { .. } => "watched",
            EventKind::Unwatched { .. } => "unwatched",
            EventKind::Loss(_) => "loss",
            EventKind::Untimed(_) => "untimed",
        }
    }
}
