//! Plans one library: chooses among its functions, and decides on each.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use foldhash::{HashMap, HashSet};
use rtrace_model::{ExitPolicy, Region, RegionId, SymbolName, escape};
use rtrace_symbolizer::{Function, Symbol, ifunc};

use super::closed::{self, Closed};
use super::deny::{self, Denial};
use super::entries::{self, Entries};
use super::exits::{self, Exits, FunctionCode, Leave, Unprovable};
use super::instruction::Handling;
use super::recursion::Recursion;
use super::stub;
use super::text::Text;
use super::{
    Choice, Condition, Exit, Hazards, LibrarySource, Options, Pattern, PlannedRegion, Refusal, Site, SiteCost,
};
use crate::parallel;

/// A function that was asked for: one address of code.
struct Candidate {
    name: String,
    symbols: Vec<Symbol>,
    address: u64,
    size: u64,
}

/// A function on which all is decided but where its enter is seen.
struct Draft {
    file_offset: u64,
    candidate: Candidate,
    exit: Exit,
    choice: Choice,
}

/// A function on which all is decided.
struct Placed {
    draft: Draft,
    entry: Site,
}

impl Placed {
    /// Has its return hooked. The kernel looks for the return address after our program, which therefore
    /// leaves instructions to it that move the stack pointer.
    fn hook(&mut self) {
        self.draft.exit = Exit::Uretprobe;
        if let SiteCost::Written(step) = self.entry.cost
            && step.moves_stack()
        {
            self.entry.cost = SiteCost::SingleStep;
        }
    }
}

/// Plans one library.
pub struct Planner<'a> {
    source: &'a LibrarySource,
    text: Text<'a>,
    hazards: &'a Hazards,
    options: &'a Options,
    recursion: OnceLock<Recursion>,
    closed: OnceLock<Closed>,
    /// Exits of the functions that were followed, by address.
    followed: Mutex<HashMap<u64, Result<Arc<Exits>, Unprovable>>>,
    refused: Vec<Refusal>,
}

impl<'a> Planner<'a> {
    /// Plans for `source`, in programs with these hazards.
    pub fn new(source: &'a LibrarySource, hazards: &'a Hazards, options: &'a Options) -> Planner<'a> {
        let exported = source.exports.functions.iter().map(|function| function.address);
        let chosen = source.ifuncs.iter().map(|resolved| resolved.address);
        let text = Text::new(&source.image, exported.chain(chosen).collect());
        Planner {
            source,
            text,
            hazards,
            options,
            recursion: OnceLock::new(),
            closed: OnceLock::new(),
            followed: Mutex::default(),
            refused: Vec::new(),
        }
    }

    /// The regions, sorted by file offset with ids from 0, and what is not probed.
    pub fn plan(mut self) -> (Vec<PlannedRegion>, Vec<Refusal>) {
        let candidates: Vec<(u64, Candidate)> = self.candidates().into_iter().collect();
        let decided = parallel::map(&candidates, |(_, candidate)| self.decide(candidate));
        let mut drafts = Vec::with_capacity(candidates.len());
        for ((file_offset, candidate), decided) in candidates.into_iter().zip(decided) {
            match decided {
                Ok((choice, exit)) => drafts.push(Draft { file_offset, candidate, exit, choice }),
                Err(reason) => self.refuse(candidate.name, reason),
            }
        }
        self.unshare(&mut drafts);
        let entries = self.entries(&drafts);
        let mut placed = Vec::with_capacity(drafts.len());
        for (draft, entry) in drafts.into_iter().zip(entries) {
            match entry {
                Ok(entry) => placed.push(Placed { draft, entry }),
                Err(reason) => self.refuse(draft.candidate.name, reason),
            }
        }
        separate(&mut placed);
        let mut regions: Vec<_> = (0..).map(RegionId).zip(placed).map(|(id, placed)| self.region(id, placed)).collect();
        if self.options.stubs {
            self.add_stubs(&mut regions);
        }
        (regions, self.refused)
    }

    /// How the exit of a function is seen and what decided that, or why it is not probed.
    fn decide(&self, candidate: &Candidate) -> Result<(Choice, Exit), &'static str> {
        let denial = deny::denial(&candidate.symbols);
        if let Some(Denial::Probe(reason)) = denial {
            return Err(reason);
        }
        let choice = self.choice(candidate, denial);
        Ok((choice, self.or_instant(candidate, self.exit(candidate, denial, choice))))
    }

    /// Gives stubs to the functions that must be single-stepped. The program's own functions are not
    /// called through the dynamic linker.
    fn add_stubs(&self, regions: &mut [PlannedRegion]) {
        let image = &self.source.image;
        let stepped = regions.iter_mut().filter(|planned| planned.entry.cost == SiteCost::SingleStep);
        for planned in stepped {
            let addresses = image.address(planned.region.file_offset).zip(image.address(planned.entry.file_offset));
            planned.stub = addresses.map(|(entry, site)| match image.is_executable() {
                true => Err("it is the program's own, and not called through the dynamic linker"),
                false => stub::of(&self.text, entry, site),
            });
        }
        let functions = regions.iter().filter_map(|planned| Some(planned.stub()?.address)).collect();
        let reached = stub::reached_directly(&self.text, &functions);
        for stub in regions.iter_mut().filter_map(|planned| planned.stub.as_mut()?.as_mut().ok()) {
            stub.has_other_callers = reached.contains(&stub.address);
        }
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
        let mut implementations: HashMap<usize, Vec<&ifunc::Resolved>> = HashMap::default();
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

    /// Returns that functions share are not seen early: one's calls would hit the other's probe.
    fn unshare(&self, drafts: &mut [Draft]) {
        let mut users: HashMap<u64, usize> = HashMap::default();
        for draft in drafts.iter().filter(|draft| !draft.exit.sites().is_empty()) {
            let Ok(exits) = self.exits(&draft.candidate) else { continue };
            exits.leaves.iter().for_each(|leave| *users.entry(leave.address).or_default() += 1);
        }
        for draft in drafts.iter_mut().filter(|draft| !draft.exit.sites().is_empty()) {
            let Ok(exits) = self.exits(&draft.candidate) else { continue };
            if exits.leaves != exits.early && exits.leaves.iter().any(|leave| users[&leave.address] > 1) {
                draft.exit = self.ret_sites(&exits.leaves);
            }
        }
    }

    /// The site of each function's enter, or why there is none.
    fn entries(&self, drafts: &[Draft]) -> Vec<Result<Site, &'static str>> {
        // A call that is over where it begins takes no time: it does where times were asked for.
        let may_end = |site: &&Site| site.condition.is_some() && self.options.exit.is_none();
        let offset = |site: &Site| site.file_offset;
        let exits = drafts.iter().flat_map(|draft| draft.exit.sites()).filter(|site| !may_end(site));
        let entries = self.entry_sites(exits.map(offset).collect());
        let ends: Vec<Vec<u64>> =
            drafts.iter().map(|draft| draft.exit.sites().iter().filter(may_end).map(offset).collect()).collect();
        let functions = drafts.iter().zip(&ends).map(|(draft, ends)| entries::Function {
            code: self.code(&draft.candidate),
            is_hooked: draft.exit == Exit::Uretprobe,
            ends,
        });
        entries.sites(&functions.collect::<Vec<_>>())
    }

    /// Where enters may be seen, in a library with these sites of exits.
    fn entry_sites(&self, exits: HashSet<u64>) -> Entries<'_> {
        Entries {
            text: &self.text,
            emulated: self.options.emulated,
            keeps_accesses: self.options.keeps_accesses,
            exits,
        }
    }

    /// The policy where nothing speaks against it: what the options demand; by default a uretprobe
    /// where nothing in the program can unwind through it.
    fn policy(&self) -> ExitPolicy {
        self.options.exit.unwrap_or(match self.hazards.any() {
            None => ExitPolicy::Uretprobe,
            Some(_) => ExitPolicy::RetSite,
        })
    }

    /// What decides how the exit of a function is seen.
    fn choice(&self, candidate: &Candidate, denial: Option<Denial>) -> Choice {
        if self.options.exit.is_some() || denial.is_some() {
            return Choice::Common;
        }
        let hookable = match self.hazards.any() {
            None => Choice::Common,
            Some(_) if self.is_closed(candidate) => Choice::Closed,
            Some(_) => return Choice::Common,
        };
        if self.calls_itself(candidate) {
            Choice::CallsItself
        } else if self.entry_sites(HashSet::default()).is_dear_only_hooked(self.code(candidate)) {
            Choice::Unhooked
        } else {
            hookable
        }
    }

    fn calls_itself(&self, candidate: &Candidate) -> bool {
        self.recursion.get_or_init(|| Recursion::of(&self.text)).contains(candidate.address)
    }

    fn is_closed(&self, candidate: &Candidate) -> bool {
        let may_be_hooked = self.options.can_refuse_hooks && self.hazards.spare_closed_functions();
        may_be_hooked && self.closed.get_or_init(|| self.closed()).contains(candidate.address)
    }

    fn closed(&self) -> Closed {
        let exports = &self.source.exports.functions;
        let denied = exports.iter().filter(|function| deny::denial(&function.symbols).is_some());
        let library = closed::Library {
            text: &self.text,
            binding: &self.source.binding,
            sizes: exports.iter().map(|function| (function.address, function.size)).collect(),
            special: denied.map(|function| function.address).collect(),
        };
        let wanted = exports.iter().filter(|function| self.wants(|pattern| pattern.selects(function)));
        let chosen = self.source.ifuncs.iter().map(|resolved| resolved.address);
        Closed::among(&library, wanted.map(|function| function.address).chain(chosen).collect())
    }

    /// How the exit is seen, as far as the function itself allows it.
    fn exit(&self, candidate: &Candidate, denial: Option<Denial>, choice: Choice) -> Exit {
        match (self.policy(), denial, choice) {
            (_, Some(Denial::Exit(reason) | Denial::Probe(reason)), _) => Exit::EntryOnly(reason.to_owned()),
            (ExitPolicy::EntryOnly, ..) => Exit::EntryOnly("its exit was not asked for".to_owned()),
            (_, _, Choice::CallsItself) => match self.seen(candidate) {
                Exit::EntryOnly(_) => Exit::Uretprobe,
                exit => exit,
            },
            (_, _, Choice::Closed) => match self.seen_on_leaving(candidate) {
                exit @ Exit::RetSites(_) if exit.is_cheap() => exit,
                _ => Exit::Uretprobe,
            },
            (_, _, Choice::Unhooked) => match self.seen(candidate) {
                exit @ Exit::RetSites(_) if !exit.is_dear() => exit,
                _ => Exit::Uretprobe,
            },
            (ExitPolicy::Uretprobe, None, Choice::Common) => Exit::Uretprobe,
            (ExitPolicy::Uretprobe | ExitPolicy::RetSite | ExitPolicy::Instant, ..) => self.seen(candidate),
        }
    }

    /// Its exits where they are cheapest to see. What comes between a site and the `ret` is then not part
    /// of the call.
    fn seen(&self, candidate: &Candidate) -> Exit {
        let is_early = self.options.exit.is_none() && !self.options.keeps_accesses && !self.options.emulated.steps;
        match self.exits(candidate) {
            Ok(exits) if is_early => self.ret_sites(&exits.early),
            _ => self.seen_on_leaving(candidate),
        }
    }

    /// Its exits at the instructions that leave it.
    fn seen_on_leaving(&self, candidate: &Candidate) -> Exit {
        match self.exits(candidate) {
            Ok(exits) => self.ret_sites(&exits.leaves),
            Err(unprovable) => Exit::EntryOnly(unprovable.to_string()),
        }
    }

    /// One probe for enter and exit, where a call takes so little that two would only measure each other.
    fn or_instant(&self, candidate: &Candidate, exit: Exit) -> Exit {
        // A jump to another function leaves a hooked one when that returns.
        let must_return = match &exit {
            _ if self.options.exit.is_some() => return exit,
            Exit::RetSites(_) => false,
            Exit::Uretprobe => true,
            Exit::Instant | Exit::EntryOnly(_) => return exit,
        };
        let is_instant = |exits: Arc<Exits>| {
            let is_kept = self.options.keeps_accesses && exits.accesses_memory;
            exits.is_brief && !is_kept && (exits.returns || !must_return)
        };
        let extent = self.text.extent(candidate.address, candidate.size);
        let is_small = extent.is_some_and(|extent| extent.end - extent.start <= exits::MOST_BRIEF);
        if is_small && self.exits(candidate).is_ok_and(is_instant) { Exit::Instant } else { exit }
    }

    fn exits(&self, candidate: &Candidate) -> Result<Arc<Exits>, Unprovable> {
        if let Some(known) = self.closed.get().and_then(|closed| closed.exits(candidate.address)) {
            return Ok(Arc::clone(known));
        }
        let followed = || self.followed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = followed().get(&candidate.address) {
            return known.clone();
        }
        let exits = exits::find(&self.code(candidate)).map(Arc::new);
        followed().insert(candidate.address, exits.clone());
        exits
    }

    fn code(&self, candidate: &Candidate) -> FunctionCode<'_> {
        FunctionCode { text: &self.text, entry: candidate.address, size: candidate.size }
    }

    fn ret_sites(&self, leaves: &[Leave]) -> Exit {
        let site = |leave: &Leave| {
            Some(Site {
                file_offset: self.source.image.file_offset(leave.address)?,
                cost: match self.options.emulated.handling(self.text.instruction_bytes(leave.address)?) {
                    Handling::Emulated => SiteCost::Emulated,
                    Handling::Written(step) => SiteCost::Written(step),
                    Handling::SingleStep | Handling::Refused(_) => SiteCost::SingleStep,
                },
                words: leave.words,
                condition: leave.condition.map(Condition),
            })
        };
        match leaves.iter().map(site).collect::<Option<Vec<Site>>>() {
            Some(sites) => Exit::RetSites(sites),
            None => Exit::EntryOnly("one of its exits is not in the file".to_owned()),
        }
    }

    fn region(&self, id: RegionId, Placed { draft, entry }: Placed) -> PlannedRegion {
        let Draft { file_offset, candidate, exit, choice } = draft;
        let symbol_name = |symbol: Symbol| SymbolName { symbol: symbol.name, version: symbol.version };
        let region = Region {
            id,
            library: self.source.library.id,
            name: candidate.name,
            symbols: candidate.symbols.into_iter().map(symbol_name).collect(),
            file_offset,
            size: candidate.size,
            exit: exit.policy(),
            exit_cost: exit.cost(),
            single_stepped: entry.cost == SiteCost::SingleStep,
            written: matches!(entry.cost, SiteCost::Written(_)),
            stub: false,
        };
        PlannedRegion { region, entry, exit, choice, stub: None }
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
/// region: the exits of the later of two regions that share one are not observed, or by a uretprobe
/// where that is harmless.
fn separate(placed: &mut [Placed]) {
    let entries: HashSet<u64> = placed.iter().map(|placed| placed.entry.file_offset).collect();
    let mut taken: HashMap<u64, String> = HashMap::default();
    for placed in placed {
        let own_entry = placed.entry.file_offset;
        if let Exit::RetSites(sites) = &mut placed.draft.exit
            && let Some(own) = sites.iter().position(|site| site.file_offset == own_entry && site.condition.is_some())
        {
            placed.entry.condition = sites.remove(own).condition;
        }
        let sites = placed.draft.exit.sites();
        if matches!(sites, [Site { file_offset, condition: None, .. }] if *file_offset == own_entry) {
            placed.draft.exit = Exit::Instant;
            continue;
        }
        let reason = if sites.iter().any(|site| site.file_offset == own_entry) {
            Some("its first instruction leaves it".to_owned())
        } else if sites.iter().any(|site| entries.contains(&site.file_offset)) {
            Some("one of its exits is the entry of another function".to_owned())
        } else {
            let other = sites.iter().find_map(|site| taken.get(&site.file_offset));
            other.map(|other| format!("it shares an exit with `{}`", escape(other)))
        };
        match reason {
            Some(reason) => match placed.draft.choice {
                Choice::CallsItself | Choice::Closed | Choice::Unhooked if placed.entry.words == 0 => placed.hook(),
                _ => placed.draft.exit = Exit::EntryOnly(reason),
            },
            None => taken.extend(sites.iter().map(|site| (site.file_offset, placed.draft.candidate.name.clone()))),
        }
    }
}
