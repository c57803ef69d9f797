//! What is recorded, and how.

use std::time::Duration;

use rtrace_bpf::ProfileOptions;
use rtrace_model::Percent;
use rtrace_plan::PlanOptions;
use rtrace_signatures::Request;

use crate::actions::RegionAction;
use crate::target::cgroups::Cgroup;
use crate::target::user::User;
use crate::watch;

/// What is recorded, and how; by default each call of all exported functions, in the processes named and no others,
/// until they end.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Names, paths or globs of the libraries; `exe` is the program itself. At least one.
    pub libraries: Vec<String>,
    /// Which of their functions, and how their returns are detected. What else is in it follows from the other options.
    pub plan: PlanOptions,
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
    /// Size of each CPU's ring in bytes, rounded up to a power of two of at least a page; 8 MiB if none is named.
    pub ring_bytes: Option<u32>,
}

impl Options {
    /// Whether the recording goes on when the processes named have ended, until their children have.
    pub fn outlasts_first(&self) -> bool {
        self.follow && !self.ends_with_first
    }
}
