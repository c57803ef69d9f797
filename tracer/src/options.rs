//! What is recorded, and how.

use std::sync::Arc;
use std::time::Duration;

use rtrace_bpf::ProfileOptions;
use rtrace_model::{ExitPolicy, Percent};
use rtrace_plan::{Filter, Selector};
use rtrace_signatures::Request;

use crate::actions::RegionAction;
use crate::target::cgroups::Cgroup;
use crate::target::user::User;
use crate::watch;

/// What is recorded, and how; by default each call of all exported functions, in the processes named and no others,
/// until they end.
#[derive(Clone, Debug)]
pub struct Options {
    /// Names, paths or globs of the libraries; `exe` is the program itself. At least one.
    pub libraries: Vec<String>,
    /// Functions to trace, by symbol, demangled name or source file; all if there are none.
    pub functions: Vec<Selector>,
    /// Functions not to trace.
    pub exclude: Vec<Selector>,
    /// Rules that leave functions out.
    pub filter: Option<Arc<Filter>>,
    /// Bytes of code that a function has at least, if its size is known.
    pub min_size: u64,
    /// Whether functions are traced that a library does not export, where symbols name them.
    pub statics: bool,
    /// Functions within whose calls others are recorded; everywhere if there are none.
    pub within: Vec<Selector>,
    /// How returns are detected.
    pub exit: ExitPolicy,
    /// What is counted on every call, by the names of `perf list`.
    pub counters: Vec<String>,
    /// Which arguments and results are recorded, if some are.
    pub values: Option<Request>,
    /// Return addresses of each call's context at most; 0: calls have none.
    pub levels: u32,
    /// Variables whose accesses are counted on every call.
    pub watches: Vec<watch::Name>,
    /// Whether a command gets stubs for functions that are expensive to probe.
    pub stubs: bool,
    /// Whether calls are folded by call path, and which of them are recorded one by one then.
    pub profile: Option<ProfileOptions>,
    /// The part of the programs' CPU time that tracing may take.
    pub budget: Option<Percent>,
    /// When to stop, from arming on.
    pub duration: Option<Duration>,
    /// Whether children are recorded too, and so are those that the processes named have already.
    pub follow: bool,
    /// Control groups: the processes that join them are recorded, too. Takes `follow`.
    pub groups: Vec<Cgroup>,
    /// Whether children are missing that are not recorded: nobody has asked for that.
    pub lacks_children: bool,
    /// Whether the recording ends with the processes named, though children of theirs go on.
    pub ends_with_first: bool,
    /// Samples of CPU time that each CPU takes in a second of work; none if it is absent.
    pub sampling: Option<u32>,
    /// Whether processes and machine are measured once a second.
    pub samples: bool,
    /// What is done when functions enter or leave.
    pub actions: Vec<RegionAction>,
    /// Commands that write further metrics.
    pub plugins: Vec<String>,
    /// As whom a command runs, if not as we do.
    pub user: Option<User>,
    /// As whom plug-ins run, if not as we do.
    pub helper_user: Option<User>,
    /// Size of each CPU's ring in bytes; rounded up to a power of two of at least a page.
    pub ring_bytes: u32,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            libraries: Vec::new(),
            functions: Vec::new(),
            exclude: Vec::new(),
            filter: None,
            min_size: 0,
            statics: false,
            within: Vec::new(),
            exit: ExitPolicy::ReturnSite,
            counters: Vec::new(),
            values: None,
            levels: 0,
            watches: Vec::new(),
            stubs: false,
            profile: None,
            budget: None,
            duration: None,
            follow: false,
            groups: Vec::new(),
            lacks_children: false,
            ends_with_first: false,
            sampling: None,
            samples: false,
            actions: Vec::new(),
            plugins: Vec::new(),
            user: None,
            helper_user: None,
            ring_bytes: 8 << 20,
        }
    }
}

impl Options {
    /// Whether the recording goes on when the processes named have ended, until their children have.
    pub fn outlasts_first(&self) -> bool {
        self.follow && !self.ends_with_first
    }
}
