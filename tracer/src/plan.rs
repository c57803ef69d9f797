//! Decides what is probed, where, and how its exit is seen; attaches nothing.
//!
//! Every site is judged here, before anything is attached: it is an instruction of the function,
//! the kernel takes a probe on it, and the way its exit is seen cannot harm the program. What
//! cannot be probed soundly is refused with a reason, or its exit is not observed, with a reason.

mod binding;
mod closed;
mod deny;
mod entries;
mod exits;
pub mod hazards;
mod instruction;
pub mod pattern;
mod planner;
mod recursion;
pub mod stub;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod text;

use std::path::PathBuf;
use std::sync::Arc;

use rtrace_bpf::wire::Step;
use rtrace_model::{ExitCost, ExitPolicy, Library, Region, RegionId};
use rtrace_symbolizer::{Exports, Image, ifunc};

pub use self::binding::Binding;
pub use self::hazards::Hazards;
pub use self::instruction::Emulation;
pub use self::pattern::{Pattern, PatternError};
use self::planner::Planner;
use self::stub::Stub;
pub(crate) use self::text::Addresses;
use crate::parallel;

/// What is probed.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Library by library, in the order of the sources.
    pub libraries: Vec<PlannedLibrary>,
    /// What ruled out replaced return addresses, if anything did.
    pub hazards: Hazards,
}

/// What is probed in one library.
#[derive(Clone, Debug)]
pub struct PlannedLibrary {
    /// The library.
    pub library: Library,
    /// The path by which its probes are attached.
    pub attach_path: PathBuf,
    /// Its regions, sorted by file offset; their ids count up in this order.
    pub regions: Vec<PlannedRegion>,
    /// Functions that were asked for and are not probed.
    pub refused: Vec<Refusal>,
}

/// One region with its sites.
#[derive(Clone, Debug)]
pub struct PlannedRegion {
    /// The region.
    pub region: Region,
    /// Where its calls are seen to begin.
    pub entry: Site,
    /// How they are seen to end.
    pub exit: Exit,
    /// What decided that.
    pub choice: Choice,
    /// The stub at which calls may be seen instead, or why there can be none; `None` where no stubs
    /// are asked for, and where the entry site is cheap anyway.
    pub stub: Option<Result<Stub, &'static str>>,
}

/// What decides how the exit of a region is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// What holds for all: the options, and the hazards of the program.
    Common,
    /// Nothing can unwind through it, whatever else in the program may: its return can be hooked.
    Closed,
    /// Its return could be hooked, but it may call itself, and the kernel hooks only so many
    /// returns at a time: its exits are probed instead, where they are known.
    CallsItself,
    /// Its return could be hooked, but its enter would then be single-stepped: its exits are probed
    /// instead, where they are known and none is.
    Unhooked,
}

impl PlannedRegion {
    /// Its stub, if it has one.
    pub fn stub(&self) -> Option<&Stub> {
        self.stub.as_ref()?.as_ref().ok()
    }
}

/// An instruction at which calls are seen to begin or to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// Offset of the instruction in the file, in bytes.
    ///
    /// Of an enter: the region's first one, or one that always follows it. Of an exit: one through
    /// which control leaves the region, or a jump from which it certainly comes to such a one.
    pub file_offset: u64,
    /// What a hit costs.
    pub cost: SiteCost,
    /// Words from the stack pointer up to the return address.
    pub words: u32,
    /// At a conditional jump: the call is over only if this condition holds; where it has begun here, it
    /// is then over at once.
    pub condition: Option<Condition>,
}

impl Site {
    /// An instruction to which the stack pointer is not moved.
    pub fn new(file_offset: u64, cost: SiteCost) -> Site {
        Site { file_offset, cost, words: 0, condition: None }
    }
}

/// What a hit of a site costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SiteCost {
    /// The kernel emulates the instruction: cheap.
    Emulated,
    /// Our program does the instruction: nearly as cheap.
    Written(Step),
    /// The kernel executes it in a single step: dear.
    SingleStep,
}

/// How a region's exit is seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exit {
    /// By a replaced return address.
    Uretprobe,
    /// By probes on all instructions that leave the function, or on jumps that lead there; none where it
    /// never returns.
    RetSites(Vec<Site>),
    /// By the probe that sees the enter: calls take a few nanoseconds.
    Instant,
    /// Not at all, for this reason.
    EntryOnly(String),
}

impl Exit {
    /// The policy without its sites or reason.
    pub fn policy(&self) -> ExitPolicy {
        match self {
            Exit::Uretprobe => ExitPolicy::Uretprobe,
            Exit::RetSites(_) => ExitPolicy::RetSite,
            Exit::Instant => ExitPolicy::Instant,
            Exit::EntryOnly(_) => ExitPolicy::EntryOnly,
        }
    }

    /// What hits of its sites cost.
    pub fn cost(&self) -> ExitCost {
        let stepped = self.sites().iter().filter(|site| site.cost == SiteCost::SingleStep).count();
        match self.sites().len() {
            _ if stepped == 0 => ExitCost::Emulated,
            sites if stepped == sites => ExitCost::SingleStepped,
            _ => ExitCost::Either,
        }
    }

    /// Whether all hits of its sites are emulated.
    fn is_cheap(&self) -> bool {
        self.sites().iter().all(|site| site.cost == SiteCost::Emulated)
    }

    /// Whether a hit of one of its sites is dear.
    fn is_dear(&self) -> bool {
        self.sites().iter().any(|site| site.cost == SiteCost::SingleStep)
    }

    /// The sites of the exits, where they have some.
    pub fn sites(&self) -> &[Site] {
        match self {
            Exit::RetSites(sites) => sites,
            Exit::Uretprobe | Exit::Instant | Exit::EntryOnly(_) => &[],
        }
    }
}

/// A condition on the flags, 0 to 15 as in the encoding of conditional jumps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition(pub u8);

/// A function that is not probed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Its preferred name, not escaped.
    pub name: String,
    /// Why.
    pub reason: String,
}

/// What the user wants.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Only functions that one of these selects; all, where there is none.
    pub include: Vec<Pattern>,
    /// No function that one of these selects.
    pub exclude: Vec<Pattern>,
    /// How exits are to be seen, where that is possible and safe for the function itself.
    pub exit: Option<ExitPolicy>,
    /// What is done without a single step.
    pub emulated: Emulation,
    /// On this kernel a probe on a five-byte nop kills forked children.
    pub nop5_kills_children: bool,
    /// The kernel side can refuse to hook the return of a single call.
    pub can_refuse_hooks: bool,
    /// Why this kernel may end programs at hooked returns, if it does.
    pub kernel_hazard: Option<String>,
    /// Children are traced too, whatever programs they run.
    pub children: bool,
    /// Accesses to variables are counted: none may come before the site of its call's enter.
    pub keeps_accesses: bool,
    /// Stubs are made for functions that must be single-stepped.
    pub stubs: bool,
}

/// A library to plan for.
#[derive(Debug)]
pub struct LibrarySource {
    /// The library.
    pub library: Library,
    /// The path by which its probes are attached.
    pub attach_path: PathBuf,
    /// Its file.
    pub image: Arc<Image>,
    /// Its functions.
    pub exports: Exports,
    /// Implementations of its IFUNCs, where a process has chosen some.
    pub ifuncs: Vec<ifunc::Resolved>,
    /// Where its calls by name lead.
    pub binding: Binding,
}

/// Plans all probes. Region ids count up from `first_region`.
pub fn plan(sources: &[LibrarySource], mut hazards: Hazards, options: &Options, first_region: RegionId) -> Plan {
    hazards.kernel.clone_from(&options.kernel_hazard);
    if !options.children {
        hazards.programs = None;
    }
    let mut libraries = parallel::map(sources, |source| plan_library(source, &hazards, options));
    let regions = libraries.iter_mut().flat_map(|library| &mut library.regions);
    regions.zip(first_region.0..).for_each(|(planned, id)| planned.region.id = RegionId(id));
    Plan { libraries, hazards }
}

fn plan_library(source: &LibrarySource, hazards: &Hazards, options: &Options) -> PlannedLibrary {
    let (regions, refused) = Planner::new(source, hazards, options).plan();
    PlannedLibrary { library: source.library.clone(), attach_path: source.attach_path.clone(), regions, refused }
}
