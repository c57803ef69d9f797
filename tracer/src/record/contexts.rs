//! Contexts of calls: goes on with walks for which the kernel side knows no rule, and answers with the rules.
//!
//! A rule is known for as long as its code is mapped. What the processes map is looked at from time to time, and as soon
//! as something else is mapped where there was something; for a few milliseconds, code that was loaded where other code
//! was may be unwound by the rules of the latter.

use std::collections::HashMap as Map;
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use foldhash::{HashMap, HashMapExt as _, HashSet};
use rtrace_bpf::wire::ContextEnd;
use rtrace_bpf::{Error, Programs, PythonStack, Rest, Walked};
use rtrace_model::{CallerFrame, CallerStack, ContextEnding, Timestamp, UnwindRule};
use rtrace_symbolizer::address_space::FileId;
use rtrace_symbolizer::modules::{self, Module};
use rtrace_symbolizer::{Image, UnwindTables};

use crate::host;
use crate::record::standby::Standby;
use crate::target::address_spaces::{self, AddressSpaces};
use crate::target::python::{Interpreters, Python, PythonLine};

/// Longest wait for a context, and so for the end.
const PATIENCE: Duration = Duration::from_millis(20);

/// Time between two looks at what processes map.
const LOOK_PERIOD: Duration = Duration::from_millis(250);

/// The same for a command that has begun less than a second ago: it loads its interpreter.
const FIRST_PERIOD: Duration = Duration::from_millis(5);
const FIRST_TIME: Duration = Duration::from_secs(1);

/// Longest time that the first call in an address space waits until somebody has looked for an interpreter there, and a call
/// until there is room for its context.
const LONGEST_WAIT: Duration = Duration::from_millis(20);

/// Contexts that were found, and not yet handed on.
#[derive(Debug, Default)]
pub struct FoundContexts(Mutex<FoundSoFar>);

/// Those since they were last taken.
#[derive(Debug, Default)]
pub struct FoundSoFar {
    /// The contexts.
    pub contexts: Vec<FoundContext>,
    /// Records that could not be understood.
    pub bad_records: u64,
}

/// A context by places.
#[derive(Debug)]
pub struct FoundContext {
    /// Its number.
    pub id: u32,
    /// The process.
    pub pid: u32,
    /// The number of its address space.
    pub space: u32,
    /// When it was found.
    pub time: Timestamp,
    /// The places, the innermost first.
    pub places: Vec<ContextPlace>,
    /// Whether there are more.
    pub ending: ContextEnding,
}

/// A place in a function that led to a call.
#[derive(Clone, Debug)]
pub enum ContextPlace {
    /// A return address.
    Address(u64),
    /// A line of a Python function, in place of the return address in the interpreter.
    Python(Arc<PythonLine>),
}

impl FoundContexts {
    /// Those since the last call.
    pub fn take(&self) -> FoundSoFar {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds some.
    pub(super) fn add(&self, contexts: Vec<FoundContext>, bad_records: u64) {
        let mut found = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        found.contexts.extend(contexts);
        found.bad_records += bad_records;
    }
}

/// The unwind tables of a file; none where it cannot be read.
type OfFile = Option<UnwindTables>;

/// The unwind tables of files.
#[derive(Debug)]
pub struct ContextTables {
    known: Map<FileId, OfFile>,
    /// Files that are read ahead, or were.
    asked: HashSet<FileId>,
    reader: Sender<(FileId, OfFile)>,
    read_ahead: Receiver<(FileId, OfFile)>,
}

impl ContextTables {
    /// Reads those of all files that the processes execute ahead.
    pub fn read_ahead(pids: &[u32]) -> ContextTables {
        let mut tables = ContextTables::as_needed();
        tables.ahead(pids.iter().flat_map(|&pid| modules::of_process(pid).unwrap_or_default()));
        tables
    }

    /// Reads none before it is needed.
    pub(super) fn as_needed() -> ContextTables {
        let (reader, read_ahead) = channel();
        ContextTables { known: Map::new(), asked: own_program(), reader, read_ahead }
    }

    /// Reads those of these files on a thread of its own, which nobody waits for. Reading takes tens of milliseconds for a
    /// large library: after the first call from there, many more would have no context meanwhile.
    fn ahead(&mut self, modules: impl Iterator<Item = Module>) {
        let modules: Vec<Module> = modules.filter(|module| self.asked.insert(file_of(module))).collect();
        let reader = self.reader.clone();
        let read = move || {
            host::run_as_usual();
            host::run_anywhere();
            for module in modules {
                if reader.send((file_of(&module), open(&module))).is_err() {
                    break;
                }
            }
        };
        thread::spawn(read);
    }

    /// Those of a file; none where it cannot be read.
    pub(super) fn of(&mut self, module: &Module) -> Option<&UnwindTables> {
        let file = file_of(module);
        if !self.known.contains_key(&file) {
            self.known.extend(self.read_ahead.try_iter());
        }
        self.known.entry(file).or_insert_with(|| host::usually(|| open(module))).as_ref()
    }
}

/// What a command is until it executes its program: to look for an interpreter there takes longer than to start one.
fn own_program() -> HashSet<FileId> {
    modules::executable(std::process::id()).ok().map(|own| (own.device, own.inode)).into_iter().collect()
}

fn file_of(module: &Module) -> FileId {
    (module.device, module.inode)
}

fn open(module: &Module) -> OfFile {
    Image::open(&module.open_path()).ok().map(|image| UnwindTables::of(&image))
}

/// What is known of an address space.
struct Space {
    pid: u32,
    modules: Vec<Module>,
    rules: HashMap<u64, UnwindRule>,
    python: Option<Python>,
}

impl Space {
    fn of(pid: u32) -> Space {
        Space { pid, modules: Vec::new(), rules: HashMap::new(), python: None }
    }

    /// The file at an address, and the offset in it.
    fn find(&self, address: u64) -> Option<(&Module, u64)> {
        address_spaces::find(&self.modules, address)
    }
}

/// Finds contexts.
pub struct Contexts<'a> {
    programs: &'a Programs,
    found: &'a FoundContexts,
    /// The processes that were there first.
    pids: &'a [u32],
    spaces: HashMap<u32, Space>,
    tables: ContextTables,
    interpreters: Interpreters,
    /// By this others tell that something else is mapped.
    mapped: AddressSpaces,
}

impl<'a> Contexts<'a> {
    /// None yet.
    pub fn new(
        programs: &'a Programs,
        found: &'a FoundContexts,
        pids: &'a [u32],
        tables: ContextTables,
        mapped: AddressSpaces,
    ) -> Contexts<'a> {
        let interpreters = own_program().into_iter().map(|file| (file, None)).collect();
        Contexts { programs, found, pids, spaces: HashMap::new(), tables, interpreters, mapped }
    }

    /// Finds contexts until `is_over`, and then those that are left.
    ///
    /// # Errors
    /// The ring or a table of the programs cannot be used.
    pub fn walk(mut self, is_over: &AtomicBool) -> Result<(), Error> {
        // Threads may wait inside the kernel for an interpreter, or for room: then nobody else of their CPU runs.
        let _ahead = host::run_at_once();
        let mut ring = self.programs.contexts()?;
        let standby = Standby::beside(ring.as_fd());
        let begun = Instant::now();
        self.look(true)?;
        self.programs.wait_for_contexts(LONGEST_WAIT.as_nanos() as u64);
        let mut look_at = begun;
        loop {
            let is_last = is_over.load(Ordering::Relaxed);
            let is_first_time = begun.elapsed() < FIRST_TIME;
            if !is_last {
                let patience = if is_first_time { FIRST_PERIOD } else { PATIENCE };
                standby.sleep(|| _ = host::wait([ring.as_fd()], Some(patience)));
            }
            let (walked, bad_records) = ring.take()?;
            let (questions, walked): (Vec<Walked>, Vec<Walked>) = walked.into_iter().partition(|walked| walked.id == 0);
            let is_empty = questions.is_empty() && walked.is_empty() && bad_records == 0;
            questions.into_iter().for_each(|question| self.answer(question.pid, question.space));
            if self.mapped.was_any_forgotten() {
                self.look(false)?;
            }
            let found = walked.into_iter().map(|walked| self.finish(walked)).collect();
            self.found.add(found, bad_records);
            if is_last && is_empty {
                self.programs.wait_for_contexts(0);
                return Ok(());
            }
            if Instant::now() >= look_at {
                self.look(false)?;
                look_at = Instant::now() + if is_first_time { FIRST_PERIOD } else { LOOK_PERIOD };
            }
        }
    }

    /// A thread waits until it is known whether its process has an interpreter.
    fn answer(&mut self, pid: u32, space: u32) {
        self.spaces.entry(space).or_insert_with(|| Space::of(pid));
        self.learn(space, modules::of_process(pid).unwrap_or_default(), true);
    }

    fn finish(&mut self, walked: Walked) -> FoundContext {
        let (id, pid, space) = (walked.id, walked.pid, walked.space);
        let mut walk = StackWalk { addresses: walked.addresses, interprets: walked.interprets, python: walked.python };
        let mut end = walked.end;
        if let Some(rest) = walked.rest {
            let mut rules = Vec::new();
            let levels = self.programs.levels() as usize;
            end = walk.go_on(&rest, levels, |address| self.rule(pid, space, address, &mut rules));
            self.programs.set_rules(space, &rules);
        }
        let python = self.spaces.get_mut(&space).and_then(|space| space.python.as_mut());
        let (places, ending) = walk.places(ending_of(end), python);
        FoundContext { id, pid, space, time: host::now(), places, ending }
    }

    /// What a process maps has become known; `is_asked`: a thread waits for an interpreter, or none is loaded later.
    fn learn(&mut self, space: u32, modules: Vec<Module>, is_asked: bool) {
        let Some(known) = self.spaces.get_mut(&space) else { return };
        if known.python.is_none() {
            known.python = Python::of(known.pid, &modules, &mut self.interpreters);
            let python = known.python.as_ref().map(Python::record);
            if python.is_some() || is_asked {
                self.programs.set_python(space, python);
            }
        }
        known.modules.clone_from(&modules);
        self.tables.ahead(modules.into_iter());
    }

    /// How the frame is left to which a call returns at this address; those that are looked up are added to `new`.
    fn rule(&mut self, pid: u32, space: u32, address: u64, new: &mut Vec<(u64, UnwindRule)>) -> UnwindRule {
        let known = self.spaces.entry(space).or_insert_with(|| Space::of(pid));
        if let Some(&rule) = known.rules.get(&address) {
            // The kernel side may have had no room for it.
            new.push((address, rule));
            return rule;
        }
        if known.find(address).is_none() {
            match modules::of_process(pid) {
                Ok(modules) => self.learn(space, modules, false),
                // The process has ended: nothing can be said of the address.
                Err(_) => return UnwindRule::Unknown,
            }
        }
        let Contexts { spaces, tables, .. } = self;
        let known = spaces.get_mut(&space).expect("it was met above");
        let rule = known.find(address).map_or(UnwindRule::Unknown, |(module, offset)| {
            tables.of(module).map_or(UnwindRule::Unknown, |tables| tables.rule(offset))
        });
        known.rules.insert(address, rule);
        new.push((address, rule));
        rule
    }

    /// Forgets the rules of code that is not mapped any more; `is_first`: what the processes execute is loaded.
    fn look(&mut self, is_first: bool) -> Result<(), Error> {
        // A command has another space once it executes its program.
        for &pid in self.pids {
            if let Some(space) = self.programs.space(pid)? {
                self.spaces.entry(space).or_insert_with(|| Space::of(pid));
            }
        }
        let (mut ended, mut changed) = (Vec::new(), Vec::new());
        for (&space, known) in &mut self.spaces {
            let modules = modules::of_process(known.pid).unwrap_or_default();
            if modules.is_empty() {
                ended.push(space);
            }
            if modules == known.modules && !modules.is_empty() {
                continue;
            }
            let place = |modules: &[Module], address| {
                address_spaces::find(modules, address).map(|(module, offset)| (module.device, module.inode, offset))
            };
            let is_gone = |address: u64| place(&known.modules, address) != place(&modules, address);
            let gone: HashSet<u64> = known.rules.keys().copied().filter(|&address| is_gone(address)).collect();
            self.programs.forget_rules(space, gone.iter().copied())?;
            known.rules.retain(|address, _| !gone.contains(address));
            changed.push((space, modules));
        }
        changed.into_iter().for_each(|(space, modules)| self.learn(space, modules, is_first));
        ended.iter().for_each(|space| drop(self.spaces.remove(space)));
        Ok(())
    }
}

/// A walk through a stack.
pub(super) struct StackWalk {
    addresses: Vec<u64>,
    interprets: Vec<bool>,
    python: Option<PythonStack>,
}

impl StackWalk {
    /// One that has come by these addresses, of which none is known to be of an interpreter.
    pub(super) fn new(addresses: Vec<u64>) -> StackWalk {
        StackWalk { interprets: vec![false; addresses.len() + 1], addresses, python: None }
    }

    /// The addresses of the walk, the innermost first.
    pub(super) fn into_addresses(self) -> Vec<u64> {
        self.addresses
    }

    /// The places of the walk; `python`: what is known of the interpreter by now.
    fn places(self, ending: ContextEnding, python: Option<&mut Python>) -> (Vec<ContextPlace>, ContextEnding) {
        let addresses = self.addresses.iter().map(|&address| ContextPlace::Address(address));
        let is_late = ending == ContextEnding::Complete && python.is_some() && self.python.is_none();
        let Some((python, stack)) = python.zip(self.python) else {
            return (addresses.collect(), if is_late { ContextEnding::NotYetKnown } else { ending });
        };
        let (mut runs, mut places) = (stack.runs.into_iter().peekable(), Vec::new());
        for (address, interprets) in std::iter::once(None).chain(addresses.map(Some)).zip(self.interprets) {
            let Some(run) = runs.next_if(|_| interprets) else {
                places.extend(address);
                continue;
            };
            places.extend(run.frames.into_iter().map(|frame| ContextPlace::Python(python.line(frame))));
            if run.is_cut {
                return (places, ContextEnding::Cut);
            }
        }
        let is_cut = ending == ContextEnding::Complete && stack.is_cut;
        (places, if is_cut { ContextEnding::Cut } else { ending })
    }

    /// Goes on with a walk as the kernel side does (`step_up` in `context.bpf.h`), by these rules.
    pub(super) fn go_on(&mut self, rest: &Rest, levels: usize, mut rule: impl FnMut(u64) -> UnwindRule) -> ContextEnd {
        let StackWalk { addresses, interprets, python } = self;
        let calls = python.iter().flat_map(|python| python.runs.iter().skip(python.passed).map(|run| run.call));
        let mut calls = calls.peekable();
        let Rest { mut word, mut sp, mut bp, limit, .. } = *rest;
        let is_over = if limit == 0 { ContextEnd::RT_CONTEXT_COMPLETE } else { ContextEnd::RT_CONTEXT_BROKEN };
        // Where the copy ends, the next call of the kind gets further.
        let unread = |address: u64| match rest.ends_before(address) {
            true => ContextEnd::RT_CONTEXT_ASKED,
            false => ContextEnd::RT_CONTEXT_UNREADABLE,
        };
        loop {
            let (stack, frame) = match rule(word) {
                UnwindRule::Up(stack, frame) => (stack, frame),
                UnwindRule::Outermost => return is_over,
                UnwindRule::Signal => return ContextEnd::RT_CONTEXT_SIGNAL,
                UnwindRule::Unknown => return ContextEnd::RT_CONTEXT_UNDESCRIBED,
            };
            let above = |base: u64, offset: i32| base.wrapping_add_signed(offset.into());
            let caller = match (stack, bp) {
                (CallerStack::AboveStack(offset), _) => above(sp, offset),
                (_, None) => return ContextEnd::RT_CONTEXT_UNDESCRIBED,
                (CallerStack::AboveFrame(offset), Some(bp)) => above(bp, offset),
                (CallerStack::StoredAboveFrame(offset), Some(bp)) => match rest.word_at(above(bp, offset)) {
                    Some(caller) => caller,
                    None => return unread(above(bp, offset)),
                },
            };
            if caller <= sp || !caller.is_multiple_of(8) {
                return ContextEnd::RT_CONTEXT_BROKEN;
            }
            if calls.next_if(|call| (sp..caller).contains(call)).is_some() {
                interprets[addresses.len()] = true;
            }
            let slot = caller - 8;
            if limit != 0 && slot >= limit {
                return if slot == limit { ContextEnd::RT_CONTEXT_COMPLETE } else { ContextEnd::RT_CONTEXT_BROKEN };
            }
            let Some(next) = rest.word_at(slot) else { return unread(slot) };
            bp = match (frame, bp) {
                (CallerFrame::Untouched, bp) => bp,
                (CallerFrame::AboveStack(offset), _) => rest.word_at(above(caller, offset)),
                (CallerFrame::AboveFrame(offset), Some(bp)) => rest.word_at(above(bp, offset)),
                (CallerFrame::AboveFrame(_), None) | (CallerFrame::Nowhere, _) => None,
            };
            (sp, word) = (caller, next);
            match word {
                0 => return is_over,
                _ if addresses.len() >= levels => return ContextEnd::RT_CONTEXT_CUT,
                _ => {
                    addresses.push(word);
                    interprets.push(false);
                }
            }
        }
    }
}

pub(super) fn ending_of(end: ContextEnd) -> ContextEnding {
    match end {
        ContextEnd::RT_CONTEXT_COMPLETE => ContextEnding::Complete,
        ContextEnd::RT_CONTEXT_CUT => ContextEnding::Cut,
        ContextEnd::RT_CONTEXT_ASKED => ContextEnding::NotYetKnown,
        ContextEnd::RT_CONTEXT_UNDESCRIBED => ContextEnding::NotDescribed,
        ContextEnd::RT_CONTEXT_UNREADABLE => ContextEnding::NotReadable,
        ContextEnd::RT_CONTEXT_SIGNAL => ContextEnding::Signal,
        _ => ContextEnding::Contradicted,
    }
}
