//! What must be known before the programs are loaded, and what they have room for.

use std::os::fd::OwnedFd;

use rtrace_model::words;

use crate::wire::{CountCode, Limit};

words! {
    /// How probes are attached; the better ones first.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    Mechanism {
        /// Many sites per link (Linux 6.6).
        Multi = "uprobe.multi",
        /// One perf event per site (Linux 5.15).
        Single = "uprobe",
    }
}

/// Counters that a recording may have.
pub const MAX_COUNTERS: usize = Limit::RT_COUNTERS.0 as usize;

/// Words of values that a call may have.
pub const MAX_WORDS: usize = Limit::RT_WORDS.0 as usize;

/// Operations that may fetch the values of a region's calls.
pub const MAX_FETCHES: usize = Limit::RT_FETCHES.0 as usize;

/// Counters to which values of a region's calls may be added.
pub const MAX_SUMS: usize = Limit::RT_SUMS.0 as usize;

/// Variables that a recording may watch.
pub const MAX_WATCHES: usize = Limit::RT_WATCHES.0 as usize;

/// Where a counter is read at each enter and exit.
#[derive(Debug)]
pub enum Counter {
    /// A performance event of every CPU on line, by number, open for all processes and not inherited.
    Event(Vec<(u32, OwnedFd)>),
    /// What the kernel knows of a thread without an event.
    Kernel(CountCode),
    /// A sum over values of calls, as their [programs](crate::Programs::set_program) say.
    Values,
    /// Accesses to a variable, [`MAX_WATCHES`] at most, behind all other counters; see
    /// [`Programs::watch`](crate::Programs::watch).
    Accesses {
        /// The variable's size in bytes: 1, 2, 4 or 8.
        size: u8,
        /// Whether its value after each access is recorded; the accesses must be writes then.
        values: bool,
    },
}

impl Counter {
    pub(crate) fn code(&self) -> CountCode {
        match self {
            Counter::Event(_) => CountCode::RT_COUNT_EVENT,
            Counter::Kernel(code) => *code,
            Counter::Values => CountCode::RT_COUNT_VALUES,
            Counter::Accesses { .. } => CountCode::RT_COUNT_ACCESSES,
        }
    }
}

/// What must be known before loading.
#[derive(Clone, Copy, Debug)]
pub struct LoadOptions<'a> {
    /// How probes will be attached.
    pub mechanism: Mechanism,
    /// Size of each CPU's ring in bytes; rounded up to a power of two of at least a page.
    pub ring_bytes: u32,
    /// Whether children of traced processes are traced from their first instruction.
    pub follow_children: bool,
    /// Whether calls are folded by call path, and how; `None`: every call leaves as a record.
    pub profile: Option<ProfileOptions>,
    /// What is counted on every call, [`MAX_COUNTERS`] at most.
    pub counters: &'a [Counter],
    /// Whether regions can be [throttled](crate::Programs::throttle) instead of recorded.
    pub is_governed: bool,
    /// Words of values in the record of a call whose region has a program, [`MAX_WORDS`] at most; 0: none has.
    pub words: u32,
    /// Return addresses of a call's context, [`MAX_LEVELS`](crate::MAX_LEVELS) at most; 0: calls have no contexts.
    pub levels: u32,
    /// Whether the programs do the instructions that cookies [name](crate::wire::step_cookie), where they
    /// [may](crate::may_step).
    pub steps: bool,
}

impl LoadOptions<'_> {
    /// For calls of rtrace itself: nothing beside them, and room for few.
    pub const fn plain(mechanism: Mechanism) -> LoadOptions<'static> {
        LoadOptions {
            mechanism,
            ring_bytes: 0,
            follow_children: false,
            profile: None,
            counters: &[],
            is_governed: false,
            words: 0,
            levels: 0,
            steps: false,
        }
    }
}

/// How calls are folded by call path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProfileOptions {
    /// Call paths that can be told apart at a time, those of each thread counted apart. An entry
    /// takes about 500 bytes.
    pub max_paths: u32,
    /// Calls of at least so many nanoseconds leave as records, too, and so do those that made one
    /// that does; `None`: none does.
    pub written_from: Option<u64>,
}
