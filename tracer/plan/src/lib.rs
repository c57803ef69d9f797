//! Decides what is probed, and where; attaches nothing.
//!
//! Every site is judged here, before anything is attached: it is an instruction of the function that each call
//! executes once, and the kernel takes a probe on it. What cannot be probed soundly is refused with a
//! reason. Returns are seen where they arrive: [`rtrace_code::arrival`] says where, for each return address that is met.

mod capture;
mod deny;
mod entries;
mod filter;
pub mod jump;
pub mod pattern;
mod planner;
mod reason;
mod selector;
#[cfg(test)]
mod tests;
mod usdt;
mod wildcard;

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use rtrace_code::copies::Registers;
use rtrace_code::instruction::{Emulation, SiteCost};
use rtrace_code::parallel;
use rtrace_code::returning::Returning;
use rtrace_code::stub::Stub;
use rtrace_code::tails::Tails;
use rtrace_model::{ExitPolicy, Jump, Library, Region, RegionId};
use rtrace_symbolizer::parts::{self, FileParts};
use rtrace_symbolizer::{Exports, Function, Image, Sources, Stamp, Symbol, Uses, demangle, ifunc};

pub use self::capture::{Capture, Captures};
pub use self::filter::{Filter, FilterError, LARGEST_FILTER};
pub use self::pattern::{Pattern, PatternError};
use self::planner::Planner;
pub use self::reason::Reason;
pub use self::selector::{SelectedFunction, Selector, SourcePattern};

/// What is probed.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Library by library, in the order of the sources.
    pub libraries: Vec<PlannedLibrary>,
}

/// What is probed in one library.
#[derive(Clone, Debug)]
pub struct PlannedLibrary {
    /// The library.
    pub library: Library,
    /// The path by which its probes are attached.
    pub attach_path: PathBuf,
    /// Which content of it was looked at.
    pub stamp: Option<Stamp>,
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
    pub entry: EntrySite,
    /// Why its calls are not timed, whatever was asked for.
    pub untimed: Option<Reason>,
    /// Which functions they may end in.
    pub tails: Tails,
    /// Whether it may come back to its first instruction without being called again.
    pub laps: bool,
    /// Whether functions of its library leave their callers in a way that no probe sees, as `raise` of OCaml.
    pub abandons: bool,
    /// How it returns.
    pub returning: Returning,
    /// Whether it may return what one that it calls has returned, because it only returns then; told only where values
    /// are fetched.
    pub passes_on: bool,
    /// Whether calls are recorded only within those of some functions, of which it is one.
    pub opens: bool,
    /// How control leaves others by it, if it does.
    pub jump: Option<Jump>,
    /// The values of its calls that are fetched.
    pub capture: Option<Arc<Capture>>,
    /// The stub at which calls may be seen instead, or why there can be none; `None` where no stubs
    /// are asked for, and where the entry site is cheap anyway.
    pub stub: Option<Result<Stub, Reason>>,
    /// Of a marked place within a function: offset in the file, in bytes, of the counter by which the program knows that
    /// somebody looks; 0 if it has none.
    pub marker: Option<u64>,
}

impl PlannedRegion {
    /// Whether its calls never return.
    pub fn never_returns(&self) -> bool {
        self.region.symbols.iter().any(|name| jump::never_returns(&name.symbol))
    }

    /// Whether its probe stays, whatever it costs: without its calls, those of others would be misunderstood.
    pub fn is_needed(&self) -> bool {
        self.opens || self.jump.is_some()
    }

    /// Its stub, if it has one.
    pub fn stub(&self) -> Option<&Stub> {
        self.stub.as_ref()?.as_ref().ok()
    }
}

/// An instruction at which calls are seen to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntrySite {
    /// Offset of the instruction in the file, in bytes: the region's first one, or one that always follows it.
    pub file_offset: u64,
    /// What a hit costs.
    pub cost: SiteCost,
    /// Words of 8 bytes from the stack pointer up to the slot of the return address.
    pub words: u32,
    /// Where what the first instruction finds in the registers is, as far as it is fetched. A site that is
    /// single-stepped leaves them where they are: a stub may stand for it.
    pub registers: Registers,
}

/// A function that is not probed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Its preferred name, not escaped.
    pub name: String,
    /// Why.
    pub reason: Reason,
}

/// What the user wants.
#[derive(Clone, Debug, Default)]
pub struct PlanOptions {
    /// Only functions that one of these selects; all, where there is none.
    pub include: Vec<Selector>,
    /// No function that one of these selects.
    pub exclude: Vec<Selector>,
    /// No function that these rules leave out.
    pub filter: Option<Arc<Filter>>,
    /// No function whose code is known to have fewer bytes.
    pub min_size: u64,
    /// Functions of libraries that are loaded later are asked for though these do not export them.
    pub statics: bool,
    /// Only calls are recorded within those of functions that one of these selects; all, where there is none. These
    /// functions are asked for, too.
    pub within: Vec<Selector>,
    /// How calls are seen to end.
    pub exit: ExitPolicy,
    /// What is done without a single step.
    pub emulated: Emulation,
    /// Accesses to variables are counted: none may come before the site of its call's enter.
    pub keeps_accesses: bool,
    /// Contexts of calls are recorded: the frame pointer must be the caller's at the site of its call's enter.
    pub keeps_frame: bool,
    /// The program leaves calls by jumps of its own, of which no probe tells.
    pub leaves_frames: bool,
    /// Stubs are made for functions that must be single-stepped.
    pub stubs: bool,
}

impl PlanOptions {
    /// Whether a function is asked for.
    pub fn selects(&self, function: &SelectedFunction<'_>) -> bool {
        if self.opens(function) {
            return true;
        }
        // Nobody who asks for all functions means places within them.
        let is_any = self.include.is_empty() && !pattern::is_of_marker(function.name);
        let included = is_any || self.include.iter().any(|selector| selector.selects(function));
        included
            && function.size.is_none_or(|size| size >= self.min_size)
            && !self.exclude.iter().any(|selector| selector.selects(function))
            && self.filter.as_ref().is_none_or(|filter| filter.admits(function))
    }

    /// Whether calls within those of the function are recorded, while others are not.
    fn opens(&self, function: &SelectedFunction<'_>) -> bool {
        self.within.iter().any(|selector| selector.selects(function))
    }

    /// The name by which people see a function: that by which they have asked for it.
    fn name_of(&self, function: &Function) -> String {
        let names = self.include.iter().filter_map(Selector::names);
        let shown = function.shown();
        let mut asked: Vec<&Symbol> = Vec::new();
        for pattern in names {
            if pattern.matches(&function.name) || pattern.matches(&shown) {
                return shown;
            }
            asked.extend(function.symbols.iter().find(|symbol| selector::is_named(pattern, symbol)));
        }
        match asked.first() {
            Some(symbol) if symbol.name != function.symbols[0].name => demangle(&symbol.name),
            _ => shown,
        }
    }

    /// Whether it takes the source files of functions to decide.
    pub fn needs_sources(&self) -> bool {
        self.include.iter().chain(&self.exclude).any(Selector::is_of_source)
            || self.filter.as_ref().is_some_and(|filter| filter.has_files())
    }
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
    /// What the files around it do with its functions.
    pub uses: Uses,
    /// Implementations of its IFUNCs, where a process has chosen some.
    pub ifuncs: Vec<ifunc::Resolved>,
    /// Where its code is not the file's any more in a process that is to be traced.
    pub altered: FileParts,
    /// What is fetched of calls of its functions.
    pub captures: Captures,
    /// In which source files its functions are defined, where that was asked for and is known.
    pub sources: Option<Sources>,
}

impl LibrarySource {
    /// A library of which everything is planned, and nothing fetched. `ifuncs`: as a process has chosen them.
    pub fn new(
        library: Library,
        attach_path: PathBuf,
        image: Arc<Image>,
        exports: Exports,
        ifuncs: Vec<ifunc::Resolved>,
    ) -> LibrarySource {
        let (uses, altered, captures, sources) = (Uses::default(), Vec::new(), Captures::default(), None);
        LibrarySource { library, attach_path, image, exports, uses, ifuncs, altered, captures, sources }
    }

    /// What a function is selected by, if its code is at this address.
    pub fn subject<'a>(&'a self, function: &'a Function, address: u64) -> SelectedFunction<'a> {
        let source = self.sources.as_ref().and_then(|sources| sources.of(address));
        self.own(SelectedFunction::new(function, source))
    }

    /// The same for a symbol that is taken for no function.
    pub fn symbol<'a>(&'a self, name: &'a str) -> SelectedFunction<'a> {
        self.own(SelectedFunction::named(name))
    }

    fn own<'a>(&'a self, function: SelectedFunction<'a>) -> SelectedFunction<'a> {
        SelectedFunction { library: Some(self.file_name()), is_of_program: self.image.is_executable(), ..function }
    }

    /// Whether this part of the file is not what a process executes; `relocated`: parts to which the dynamic linker writes.
    fn is_altered(&self, part: &Range<u64>, relocated: &[Range<u64>]) -> bool {
        parts::overlaps_beside(&self.altered, part, relocated)
    }

    fn file_name(&self) -> &str {
        self.library.path.rsplit('/').next().unwrap_or_default()
    }

    /// Where code of its functions begins, in the file's own terms.
    pub fn addresses(&self) -> impl Iterator<Item = u64> {
        let Exports { functions, untyped, .. } = &self.exports;
        let own = functions.iter().chain(untyped).map(|function| function.address);
        own.chain(self.ifuncs.iter().map(|resolved| resolved.address))
    }
}

/// Plans all probes. Region ids count up from `first_region`.
pub fn plan(sources: &[LibrarySource], options: &PlanOptions, first_region: RegionId) -> Plan {
    let mut libraries = parallel::map(sources, |source| plan_library(source, options));
    let regions = libraries.iter_mut().flat_map(|library| &mut library.regions);
    regions.zip(first_region.0..).for_each(|(planned, id)| planned.region.id = RegionId(id));
    Plan { libraries }
}

fn plan_library(source: &LibrarySource, options: &PlanOptions) -> PlannedLibrary {
    let (regions, refused) = Planner::new(source, options).plan();
    let (attach_path, stamp) = (source.attach_path.clone(), source.image.stamp());
    PlannedLibrary { library: source.library.clone(), attach_path, stamp, regions, refused }
}
