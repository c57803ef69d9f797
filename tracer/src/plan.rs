//! Decides what is probed, where, and how its exit is seen; attaches nothing.
//!
//! Every site is judged here, before anything is attached: it is an instruction of the function,
//! the kernel takes a probe on it, and the way its exit is seen cannot harm the program. What
//! cannot be probed soundly is refused with a reason, or its exit is not observed, with a reason.

mod deny;
mod exits;
pub mod hazards;
mod instruction;
pub mod pattern;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod text;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;

use rtrace_model::{ExitPolicy, Library, Region, RegionId, SymbolName, escape};
use rtrace_symbolizer::{Exports, Function, Image, Symbol, ifunc};

use self::deny::Denial;
use self::exits::FunctionCode;
pub use self::hazards::Hazards;
use self::instruction::{Handling, NOP5, handling};
pub use self::pattern::{Pattern, PatternError};
use self::text::Text;

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
    pub entry: EntrySite,
    /// How they are seen to end.
    pub exit: Exit,
}

impl PlannedRegion {
    /// Whether its first instruction is its only exit: one site sees its calls begin and end.
    pub fn is_left_at_once(&self) -> bool {
        let own = |site: &ExitSite| site.file_offset == self.entry.file_offset && site.condition.is_none();
        matches!(self.exit.sites(), [site] if own(site))
    }
}

/// The site of a region's enter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntrySite {
    /// Offset of the instruction in the file, in bytes.
    pub file_offset: u64,
    /// What a hit costs.
    pub cost: SiteCost,
}

/// What a hit of a site costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SiteCost {
    /// The kernel emulates the instruction: cheap.
    Emulated,
    /// The kernel executes it in a single step: dear.
    SingleStep,
}

/// How a region's exit is seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exit {
    /// By a replaced return address.
    Uretprobe,
    /// By probes on all instructions that leave the function; none where it never returns.
    RetSites(Vec<ExitSite>),
    /// Not at all, for this reason.
    EntryOnly(String),
}

impl Exit {
    /// The policy without its sites or reason.
    pub fn policy(&self) -> ExitPolicy {
        match self {
            Exit::Uretprobe => ExitPolicy::Uretprobe,
            Exit::RetSites(_) => ExitPolicy::RetSite,
            Exit::EntryOnly(_) => ExitPolicy::EntryOnly,
        }
    }

    /// The sites of the exits, where they have some.
    pub fn sites(&self) -> &[ExitSite] {
        match self {
            Exit::RetSites(sites) => sites,
            Exit::Uretprobe | Exit::EntryOnly(_) => &[],
        }
    }
}

/// An instruction through which control leaves a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExitSite {
    /// Offset of the instruction in the file, in bytes.
    pub file_offset: u64,
    /// What a hit costs.
    pub cost: SiteCost,
    /// Of a conditional jump out of the function: the exit happens only if this condition holds.
    pub condition: Option<Condition>,
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
    /// On this kernel a probe on a five-byte nop kills forked children.
    pub nop5_kills_children: bool,
}

/// A library to plan for.
#[derive(Debug)]
pub struct LibrarySource {
    /// The library.
    pub library: Library,
    /// The path by which its probes are attached.
    pub attach_path: PathBuf,
    /// Its file.
    pub image: Image,
    /// Its functions.
    pub exports: Exports,
    /// Implementations of its IFUNCs, where a process has chosen some.
    pub ifuncs: Vec<ifunc::Resolved>,
}

/// Plans all probes. Region ids count up from `first_region`.
pub fn plan(sources: Vec<LibrarySource>, hazards: Hazards, options: &Options, first_region: RegionId) -> Plan {
    let mut next = first_region;
    let libraries = sources
        .into_iter()
        .map(|source| {
            let planned = Planner::new(&source, &hazards, options).plan(next);
            next.0 += planned.0.len() as u32;
            let (regions, refused) = planned;
            PlannedLibrary { library: source.library, attach_path: source.attach_path, regions, refused }
        })
        .collect();
    Plan { libraries, hazards }
}

/// A function that was asked for: one address of code.
struct Candidate {
    name: String,
    symbols: Vec<Symbol>,
    address: u64,
    size: u64,
}

/// Plans one library.
struct Planner<'a> {
    source: &'a LibrarySource,
    text: Text<'a>,
    hazards: &'a Hazards,
    options: &'a Options,
    refused: Vec<Refusal>,
}

impl<'a> Planner<'a> {
    fn new(source: &'a LibrarySource, hazards: &'a Hazards, options: &'a Options) -> Planner<'a> {
        let exported = source.exports.functions.iter().map(|function| function.address);
        let chosen = source.ifuncs.iter().map(|resolved| resolved.address);
        let text = Text::new(&source.image, exported.chain(chosen).collect());
        Planner { source, text, hazards, options, refused: Vec::new() }
    }

    fn plan(mut self, first: RegionId) -> (Vec<PlannedRegion>, Vec<Refusal>) {
        let candidates = self.candidates();
        let mut regions = Vec::with_capacity(candidates.len());
        for (file_offset, candidate) in candidates {
            match self.entry(file_offset, &candidate) {
                Ok(entry) => {
                    let exit = self.exit(&candidate);
                    let id = RegionId(first.0 + regions.len() as u32);
                    let region = self.region(id, candidate, file_offset, exit.policy());
                    regions.push(PlannedRegion { region, entry, exit });
                }
                Err(reason) => self.refuse(candidate.name, reason),
            }
        }
        separate(&mut regions);
        (regions, self.refused)
    }

    fn refuse(&mut self, name: String, reason: impl Into<String>) {
        self.refused.push(Refusal { name, reason: reason.into() });
    }

    /// The functions that are asked for, by file offset.
    fn candidates(&mut self) -> BTreeMap<u64, Candidate> {
        let source = self.source;
        for refused in &source.exports.refused {
            if self.wants(|pattern| pattern.matches(&refused.name)) {
                self.refuse(refused.name.clone(), refused.reason.to_string());
            }
        }
        let mut implementations: HashMap<usize, Vec<&ifunc::Resolved>> = HashMap::new();
        for resolved in &source.ifuncs {
            implementations.entry(resolved.function).or_default().push(resolved);
        }
        let mut candidates = BTreeMap::new();
        for (index, function) in source.exports.functions.iter().enumerate() {
            if !self.wants(|pattern| pattern.selects(function)) {
                continue;
            }
            if !function.ifunc {
                add(&mut candidates, function, function.file_offset, function.address, function.size);
                continue;
            }
            let resolved = implementations.get(&index).map_or(&[][..], Vec::as_slice);
            let mut found = false;
            for resolved in resolved {
                if let Some(file_offset) = source.image.file_offset(resolved.address) {
                    add(&mut candidates, function, file_offset, resolved.address, resolved.size);
                    found = true;
                }
            }
            if !found {
                self.refuse(function.name.clone(), "an IFUNC whose implementation is known only in a running process");
            }
        }
        candidates
    }

    fn wants(&self, matches: impl Fn(&Pattern) -> bool) -> bool {
        let included = self.options.include.is_empty() || self.options.include.iter().any(&matches);
        included && !self.options.exclude.iter().any(matches)
    }

    /// The site of the enter, or why there is none.
    fn entry(&self, file_offset: u64, candidate: &Candidate) -> Result<EntrySite, &'static str> {
        if let Some(Denial::Probe(reason)) = deny::denial(&candidate.symbols) {
            return Err(reason);
        }
        let bytes = self.text.instruction_bytes(candidate.address).ok_or("its first bytes are no instruction")?;
        if bytes == NOP5 && self.options.nop5_kills_children {
            return Err("on this kernel a probe on the nop that it begins with kills forked children");
        }
        match handling(bytes) {
            Handling::Emulated => Ok(EntrySite { file_offset, cost: SiteCost::Emulated }),
            Handling::SingleStep => Ok(EntrySite { file_offset, cost: SiteCost::SingleStep }),
            Handling::Refused(reason) => Err(reason),
        }
    }

    /// How the exit is seen: as the options demand, as far as the function itself allows it; by
    /// default by a uretprobe where nothing in the program can unwind through it.
    fn exit(&self, candidate: &Candidate) -> Exit {
        let denial = deny::denial(&candidate.symbols);
        if let Some(Denial::Exit(reason) | Denial::Probe(reason)) = denial {
            return Exit::EntryOnly(reason.to_owned());
        }
        let policy = self.options.exit.unwrap_or(match self.hazards.any() {
            None => ExitPolicy::Uretprobe,
            Some(_) => ExitPolicy::RetSite,
        });
        match (policy, denial) {
            (ExitPolicy::EntryOnly, _) => Exit::EntryOnly("its exit was not asked for".to_owned()),
            (ExitPolicy::Uretprobe, None) => Exit::Uretprobe,
            _ => self.ret_sites(candidate),
        }
    }

    fn ret_sites(&self, candidate: &Candidate) -> Exit {
        let code = FunctionCode { text: &self.text, entry: candidate.address, size: candidate.size };
        let leaves = match exits::find(&code) {
            Ok(leaves) => leaves,
            Err(unprovable) => return Exit::EntryOnly(unprovable.to_string()),
        };
        let site = |leave: &exits::Leave| {
            Some(ExitSite {
                file_offset: self.source.image.file_offset(leave.address)?,
                cost: match handling(self.text.instruction_bytes(leave.address)?) {
                    Handling::Emulated => SiteCost::Emulated,
                    Handling::SingleStep | Handling::Refused(_) => SiteCost::SingleStep,
                },
                condition: leave.condition.map(Condition),
            })
        };
        match leaves.iter().map(site).collect::<Option<Vec<ExitSite>>>() {
            Some(sites) => Exit::RetSites(sites),
            None => Exit::EntryOnly("one of its exits is not in the file".to_owned()),
        }
    }

    fn region(&self, id: RegionId, candidate: Candidate, file_offset: u64, exit: ExitPolicy) -> Region {
        let symbol_name = |symbol: Symbol| SymbolName { symbol: symbol.name, version: symbol.version };
        Region {
            id,
            library: self.source.library.id,
            name: candidate.name,
            symbols: candidate.symbols.into_iter().map(symbol_name).collect(),
            file_offset,
            size: candidate.size,
            exit,
        }
    }
}

/// Adds the names of `function` to what is at this address.
fn add(candidates: &mut BTreeMap<u64, Candidate>, function: &Function, file_offset: u64, address: u64, size: u64) {
    candidates
        .entry(file_offset)
        .and_modify(|candidate| candidate.symbols.extend(function.symbols.iter().cloned()))
        .or_insert_with(|| Candidate { name: function.name.clone(), symbols: function.symbols.clone(), address, size });
}

/// Sees to it that each site serves one region and one purpose, because a site tells only one
/// region: the exits of the later of two regions that share one are not observed.
fn separate(regions: &mut [PlannedRegion]) {
    let entries: HashSet<u64> = regions.iter().map(|planned| planned.entry.file_offset).collect();
    let mut taken: HashMap<u64, String> = HashMap::new();
    for planned in regions {
        let sites = planned.exit.sites();
        let own_entry = planned.entry.file_offset;
        let reason = if planned.is_left_at_once() {
            None
        } else if sites.iter().any(|site| site.file_offset == own_entry) {
            Some("its first instruction leaves it".to_owned())
        } else if sites.iter().any(|site| entries.contains(&site.file_offset)) {
            Some("one of its exits is the entry of another function".to_owned())
        } else {
            let other = sites.iter().find_map(|site| taken.get(&site.file_offset));
            other.map(|other| format!("it shares an exit with `{}`", escape(other)))
        };
        match reason {
            Some(reason) => {
                planned.exit = Exit::EntryOnly(reason);
                planned.region.exit = ExitPolicy::EntryOnly;
            }
            None => taken.extend(sites.iter().map(|site| (site.file_offset, planned.region.name.clone()))),
        }
    }
}
