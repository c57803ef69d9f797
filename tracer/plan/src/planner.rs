//! Plans one library: chooses among its functions, and decides on each.

use std::cell::LazyCell;
use std::collections::BTreeMap;

use foldhash::{HashMap, HashSet};
use rtrace_code::instruction::{LONGEST, SiteCost};
use rtrace_code::line::Intact;
use rtrace_code::proof::Proof;
use rtrace_code::restarting::{self, Restarts};
use rtrace_code::returning::{self, Returning};
use rtrace_code::stub::Stub;
use rtrace_code::tails::Tails;
use rtrace_code::text::{FunctionCode, Text};
use rtrace_code::{arrival, parallel, stub, tails};
use rtrace_model::{ExitPolicy, Region, RegionId, SymbolName};
use rtrace_symbolizer::{Function, GoCode, Symbol, ifunc};

use super::entries::Entries;
use super::jump::{self, JumpFunctions};
use super::reason::Reason;
use super::{EntrySite, LibrarySource, PlanOptions, PlannedRegion, Refusal, deny, usdt};
use rtrace_symbolizer::parts::FileParts;

/// A function that was asked for: one address of code.
struct FunctionCandidate {
    name: String,
    symbols: Vec<Symbol>,
    file_offset: u64,
    code: FunctionCode,
    opens: bool,
}

/// A function with where its enter is seen.
type ProbedFunction = (FunctionCandidate, EntrySite);

/// How the calls of a function end.
struct CallEnds {
    tails: Tails,
    returning: Returning,
    passes_on: bool,
}

/// Plans one library.
pub struct Planner<'a> {
    source: &'a LibrarySource,
    text: Text<'a>,
    go: Option<GoCode>,
    /// Parts of the file to which the dynamic linker writes, sorted.
    relocated: FileParts,
    options: &'a PlanOptions,
    /// Addresses of marked places, sorted.
    markers: Vec<u64>,
    refused: Vec<Refusal>,
}

impl<'a> Planner<'a> {
    /// Plans for `source`.
    pub fn new(source: &'a LibrarySource, options: &'a PlanOptions) -> Planner<'a> {
        let exported = source.exports.functions.iter().map(|function| function.address);
        let chosen = source.ifuncs.iter().map(|resolved| resolved.address);
        let text = Text::new(&source.image, exported.chain(chosen).collect());
        let relocated = text.verbatim().by_offset(&source.image).relocated().to_vec();
        let go = source.image.go_code();
        let mut markers: Vec<u64> = source.exports.markers.iter().map(|marker| marker.place.address).collect();
        markers.sort_unstable();
        Planner { source, text, go, relocated, options, markers, refused: Vec::new() }
    }

    /// The regions, sorted by file offset with ids from 0, and what is not probed.
    pub fn plan(mut self) -> (Vec<PlannedRegion>, Vec<Refusal>) {
        let (candidates, refused) = self.candidates();
        self.refused = refused;
        let candidates: Vec<FunctionCandidate> = candidates.into_values().collect();
        let codes: Vec<FunctionCode> = candidates.iter().map(|candidate| candidate.code).collect();
        let jumps = jump::of(&self.source.image);
        let keeps = |address: u64| self.keeps(address);
        let wants_stub = |address| !self.vectors(address).is_empty();
        let is_of_go = |address| self.is_of_go(address);
        let entries = self.entries(&jumps, &keeps, &wants_stub, &is_of_go);
        let sites = entries.sites(&codes);
        let mut probed = Vec::with_capacity(candidates.len());
        for (candidate, entry) in candidates.into_iter().zip(sites) {
            match (self.denied(&candidate, entry.as_ref().ok()), entry) {
                (None, Ok(entry)) => probed.push((candidate, entry)),
                (Some(reason), _) | (None, Err(reason)) => self.refuse(candidate.name, reason),
            }
        }
        let laps = parallel::map(&probed, |(candidate, _)| self.laps(candidate.code));
        let probed = self.countable(probed.into_iter().zip(laps).collect());
        // The C library's own ways are seen.
        let abandons = self.options.leaves_frames || jumps.is_empty() && self.any_abandons(&probed);
        let ends = self.ends(&probed);
        let planned = probed.into_iter().zip(ends);
        let planned = planned.map(|(probed, ends)| self.region(probed, ends, abandons, &jumps));
        let mut regions: Vec<_> = planned.collect();
        self.add_markers(&mut regions, &jumps);
        make_names_unique(&mut regions);
        if self.options.stubs {
            self.add_stubs(&mut regions);
        }
        if self.source.exports.is_empty() {
            self.refuse(self.source.library.path.clone(), Reason::NoExports);
        }
        (regions, self.refused)
    }

    /// Why a function is not probed, whatever its code looks like; `entry`: where its enter would be seen.
    fn denied(&self, candidate: &FunctionCandidate, entry: Option<&EntrySite>) -> Option<Reason> {
        let begins_program = self.source.image.entry() == Some(candidate.code.entry);
        let end = entry.map_or(candidate.file_offset, |entry| entry.file_offset) + LONGEST as u64;
        let is_altered = self.source.is_altered(&(candidate.file_offset..end), &self.relocated);
        let by_code = begins_program.then_some(Reason::NotCalled).or(is_altered.then_some(Reason::Altered));
        deny::reason(&candidate.symbols).or(by_code)
    }

    /// Whether a function may come back to its first instruction without another call.
    fn laps(&self, code: FunctionCode) -> bool {
        !self.is_of_go(code.entry) && restarting::restarts(&self.text, code) == Restarts::ByJump
    }

    /// Those of these functions whose calls can be counted: only a return tells a call from another lap of a loop.
    fn countable(&mut self, probed: Vec<(ProbedFunction, bool)>) -> Vec<(ProbedFunction, bool)> {
        if self.options.exit == ExitPolicy::ReturnSite {
            return probed;
        }
        let (refused, kept): (Vec<_>, Vec<_>) = probed.into_iter().partition(|&(_, laps)| laps);
        refused.into_iter().for_each(|((candidate, _), _)| self.refuse(candidate.name, Reason::Laps));
        kept
    }

    /// Whether one of these functions leaves its callers with a stack pointer of others, or other code of the file does.
    fn any_abandons(&self, probed: &[(ProbedFunction, bool)]) -> bool {
        parallel::map(probed, |((candidate, _), _)| tails::abandons(&self.text, candidate.code)).contains(&true)
            || tails::leaves_frames(&self.source.image)
    }

    /// How the calls of each of these functions end; with whether it may do laps.
    fn ends(&self, probed: &[(ProbedFunction, bool)]) -> Vec<CallEnds> {
        let entries: HashSet<u64> = probed.iter().map(|((candidate, _), _)| candidate.code.entry).collect();
        let tails = parallel::map(probed, |((candidate, _), _)| match self.is_of_go(candidate.code.entry) {
            true => Tails::Never,
            false => tails::of(&self.text, candidate.code, |address| entries.contains(&address)),
        });
        let returning = self.returning(probed, &tails);
        let passing_on = self.passing_on(probed);
        let ends = tails.into_iter().zip(returning).zip(passing_on);
        ends.map(|((tails, returning), passes_on)| CallEnds { tails, returning, passes_on }).collect()
    }

    /// How these functions return, themselves or by what they end in.
    fn returning(&self, probed: &[(ProbedFunction, bool)], tails: &[Tails]) -> Vec<Returning> {
        let own = parallel::map(probed, |((candidate, _), _)| returning::of(&self.text, candidate.code));
        let offsets = probed.iter().map(|((candidate, _), _)| candidate.file_offset);
        let by_offset: HashMap<u64, Returning> = offsets.zip(own.iter().map(|own| own.unwrap_or_default())).collect();
        let of_tails = |tails: &Tails| match tails {
            Tails::To(tails) => tails.iter().filter_map(|tail| by_offset.get(tail)).max().copied(),
            Tails::Never | Tails::Anywhere => None,
        };
        own.iter().zip(tails).map(|(own, tails)| own.or_else(|| of_tails(tails)).unwrap_or_default()).collect()
    }

    /// Which of these functions may return what one that they call has returned.
    fn passing_on(&self, probed: &[(ProbedFunction, bool)]) -> Vec<bool> {
        if self.source.captures.is_empty() {
            return vec![false; probed.len()];
        }
        parallel::map(probed, |((candidate, _), _)| {
            let code = self.text.extent(candidate.code).and_then(|extent| self.text.code(&extent));
            code.is_none_or(arrival::passes_on)
        })
    }

    /// Adds the marked places that are asked for, and numbers the regions anew.
    fn add_markers(&mut self, regions: &mut Vec<PlannedRegion>, jumps: &JumpFunctions) {
        let taken = regions.iter().map(|planned| planned.entry.file_offset).collect();
        let entries = self.entries(jumps, &|_| Intact::default(), &|_| false, &|_| false);
        let (places, refused) = usdt::plan(self.source, self.options, &self.text, &entries, &taken);
        regions.extend(places);
        regions.sort_by_key(|planned| planned.region.file_offset);
        regions.iter_mut().zip(0..).for_each(|(planned, id)| planned.region.id = RegionId(id));
        self.refused.extend(refused);
    }

    /// Gives stubs to the functions that must be single-stepped, and to those of which vector registers are fetched. The
    /// program's own functions are not called through the dynamic linker.
    fn add_stubs(&self, regions: &mut [PlannedRegion]) {
        let image = &self.source.image;
        for planned in regions.iter_mut() {
            let vectors =
                image.address(planned.region.file_offset).map(|entry| self.vectors(entry)).unwrap_or_default();
            if planned.entry.cost != SiteCost::SingleStep && vectors.is_empty() {
                continue;
            }
            let addresses = image.address(planned.region.file_offset).zip(image.address(planned.entry.file_offset));
            planned.stub = addresses.map(|(entry, site)| match image.is_executable() {
                true => Err(Reason::ProgramsOwn),
                // A function has one program for its values, which finds registers in one place each.
                false if !planned.entry.registers.are_unmoved() => Err(Reason::MovedArguments),
                false => stub::of(&self.text, entry, site).map(|stub| Stub { vectors, ..stub }).map_err(Reason::from),
            });
        }
        let functions = regions.iter().filter_map(|planned| Some(planned.stub()?.address)).collect();
        let reached = stub::reached_directly(&self.text, &functions);
        for stub in regions.iter_mut().filter_map(|planned| planned.stub.as_mut()?.as_mut().ok()) {
            stub.has_other_callers = reached.contains(&stub.address);
        }
    }

    fn refuse(&mut self, name: String, reason: Reason) {
        self.refused.push(Refusal { name, reason });
    }

    /// The functions that are asked for, by file offset, and those that cannot be probed whatever their code is.
    fn candidates(&self) -> (BTreeMap<u64, FunctionCandidate>, Vec<Refusal>) {
        let source = self.source;
        let (mut candidates, mut refused) = (BTreeMap::new(), Vec::new());
        for symbol in &source.exports.refused {
            if self.options.selects(&source.symbol(&symbol.name)) {
                refused.push(Refusal { name: symbol.name.clone(), reason: Reason::Symbol(symbol.reason) });
            }
        }
        let mut implementations: HashMap<usize, Vec<&ifunc::Resolved>> = HashMap::default();
        for resolved in &source.ifuncs {
            implementations.entry(resolved.function).or_default().push(resolved);
        }
        let proof = LazyCell::new(|| Proof::of(&self.text, &source.uses));
        let typed = source.exports.functions.iter().enumerate().map(|(index, function)| (Some(index), function));
        for (index, function) in source.exports.untyped.iter().map(|function| (None, function)).chain(typed) {
            let is_wanted = |address| self.options.selects(&source.subject(function, address));
            if !function.ifunc {
                if !is_wanted(function.address) {
                    continue;
                }
                let code = FunctionCode { entry: function.address, size: function.size };
                if self.is_code(function, index.is_some(), &proof) {
                    let opens = self.options.opens(&source.subject(function, function.address));
                    self.add(&mut candidates, function, function.file_offset, code, opens);
                } else {
                    refused.push(Refusal { name: function.shown(), reason: Reason::MayBeData });
                }
                continue;
            }
            let resolved = index.and_then(|index| implementations.get(&index)).map_or(&[][..], Vec::as_slice);
            let mut found = false;
            for resolved in resolved {
                if let Some(file_offset) = source.image.file_offset(resolved.address) {
                    found = true;
                    if is_wanted(resolved.address) {
                        let code = FunctionCode { entry: resolved.address, size: resolved.size };
                        let opens = self.options.opens(&source.subject(function, resolved.address));
                        self.add(&mut candidates, function, file_offset, code, opens);
                    }
                }
            }
            if !found && is_wanted(function.address) {
                refused.push(Refusal { name: function.shown(), reason: Reason::Ifunc });
            }
        }
        (candidates, refused)
    }

    /// Adds the names of `function` to what is at this address.
    fn add(
        &self,
        candidates: &mut BTreeMap<u64, FunctionCandidate>,
        function: &Function,
        file_offset: u64,
        code: FunctionCode,
        opens: bool,
    ) {
        candidates
            .entry(file_offset)
            .and_modify(|candidate| {
                candidate.symbols.extend(function.symbols.iter().cloned());
                candidate.opens |= opens;
            })
            .or_insert_with(|| FunctionCandidate {
                name: self.options.name_of(function),
                symbols: function.symbols.clone(),
                file_offset,
                code,
                opens,
            });
    }

    /// Whether something proves that code is at the address of a function's symbol, or, where that says so (`is_typed`),
    /// whether it reads as a function and as nothing else.
    fn is_code<'p>(
        &self,
        function: &Function,
        is_typed: bool,
        proof: &LazyCell<Proof<'p>, impl FnOnce() -> Proof<'p>>,
    ) -> bool {
        let is_framed =
            || self.text.frame_at(function.address).is_some_and(|(_, frame)| frame.start == function.address);
        let code = FunctionCode { entry: function.address, size: function.size };
        let names = || function.symbols.iter().map(|symbol| symbol.name.as_str());
        is_typed && (is_framed() || self.is_of_go(function.address))
            || proof.is_called(function.address, names())
            || is_typed && proof.reads_as_function(code, names())
    }

    /// Where enters are seen.
    fn entries<'s>(
        &'s self,
        jumps: &'s JumpFunctions,
        keeps: &'s (dyn Fn(u64) -> Intact + Sync),
        wants_stub: &'s (dyn Fn(u64) -> bool + Sync),
        is_of_go: &'s (dyn Fn(u64) -> bool + Sync),
    ) -> Entries<'s> {
        let (emulated, markers) = (self.options.emulated, &self.markers);
        Entries { text: &self.text, emulated, keeps, wants_stub, jumps, is_of_go, markers }
    }

    /// What must be as it was where the entry of the function at this address is seen.
    fn keeps(&self, address: u64) -> Intact {
        let keeps = self.source.captures.get(&address).map(|capture| capture.keeps()).unwrap_or_default();
        Intact { accesses: self.options.keeps_accesses, frame: self.options.keeps_frame, ..keeps }
    }

    /// The vector registers from which values of the function at this address are fetched, which a stub would store.
    fn vectors(&self, address: u64) -> Vec<u8> {
        let capture = self.source.captures.get(&address).filter(|_| self.options.stubs);
        capture.map(|capture| capture.vectors()).unwrap_or_default()
    }

    /// Whether the function that begins at this address is Go's.
    fn is_of_go(&self, address: u64) -> bool {
        self.go.as_ref().is_some_and(|go| match go {
            GoCode::Range(range) => range.contains(&address),
            GoCode::Unframed => self.text.frame_at(address).is_none(),
        })
    }

    fn region(
        &self,
        ((candidate, entry), laps): (ProbedFunction, bool),
        CallEnds { tails, returning, passes_on }: CallEnds,
        abandons: bool,
        jumps: &JumpFunctions,
    ) -> PlannedRegion {
        let FunctionCandidate { name, symbols, file_offset, code, opens } = candidate;
        let symbol_name = |symbol: Symbol| SymbolName { symbol: symbol.name, version: symbol.version };
        let untimed = self.is_of_go(code.entry).then_some(Reason::MovingStacks);
        let exit = if untimed.is_some() { ExitPolicy::EntryOnly } else { self.options.exit };
        let capture = self.source.captures.get(&code.entry).cloned();
        let region = Region {
            id: RegionId(0),
            library: self.source.library.id,
            name,
            symbols: symbols.into_iter().map(symbol_name).collect(),
            file_offset,
            size: code.size,
            exit,
            single_stepped: entry.cost == SiteCost::SingleStep,
            written: matches!(entry.cost, SiteCost::BpfEmulated(_)),
            stub: false,
            source_file: None,
            source_line: None,
            event: capture.as_ref().and_then(|capture| capture.signature.event),
        };
        let jump = jumps.get(&code.entry).copied();
        // Where its return is not detected, nobody would know when it is over.
        let opens = opens && exit == ExitPolicy::ReturnSite;
        PlannedRegion {
            region,
            entry,
            untimed,
            tails,
            laps,
            returning,
            abandons,
            passes_on,
            opens,
            jump,
            capture,
            stub: None,
            marker: None,
        }
    }
}

/// Tells regions of one name apart that are of different symbols. Implementations of one IFUNC are the same function.
fn make_names_unique(regions: &mut [PlannedRegion]) {
    let mut of_name: HashMap<String, HashSet<Vec<SymbolName>>> = HashMap::default();
    for Region { name, symbols, .. } in regions.iter().map(|planned| &planned.region) {
        of_name.entry(name.clone()).or_default().insert(symbols.clone());
    }
    for Region { name, file_offset, .. } in regions.iter_mut().map(|planned| &mut planned.region) {
        if of_name[name].len() > 1 {
            name.push_str(&format!("@{file_offset:#x}"));
        }
    }
}
