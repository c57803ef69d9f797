//! One recording from load to detach.
//!
//! load → attach → arm → read → disarm → drain → detach → finish. Nothing is recorded before
//! `arm`, so a slow attach leaves no half-traced beginning; after `disarm` nothing changes, so what
//! is read last is all there is. Probes are gone before the sinks finish: a full disk does not keep
//! them in the traced program.

mod governing;
mod notice;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rtrace_bpf::{LoadOptions, Mechanism, Observer, Programs};
use rtrace_code::arrival::Keeps;
use rtrace_code::instruction::Emulation;
use rtrace_model::{
    CallCost, Definition, Event, EventKind, ExitPolicy, Item, Library, MetricId, Region, Sink, Summary, Timestamp,
    name_apart, text_of_os,
};
use rtrace_plan::Plan;
use rtrace_symbolizer::lines::Lines;
use rtrace_symbolizer::modules::{self, Module};

use self::governing::{Governing, overhead_metric, tell_overhead};
use self::notice::Notice;
use crate::counters::Counters;
use crate::host;
use crate::options::Options;
use crate::record::admission::{self, Limit};
use crate::record::attach::{self, Admitted, Attachment, detach};
use crate::record::calibration::calibrate;
use crate::record::callers::{self, CallerFile, Executed, TracedFunctions};
use crate::record::contexts::{ContextTables, Contexts, FoundContexts};
use crate::record::family::{BlindChild, Followed, Overwritten};
use crate::record::gate::Gate;
use crate::record::governor::{Governor, GovernorContext};
use crate::record::guard::Guard;
use crate::record::inspection::Inspection;
use crate::record::jump_candidates;
use crate::record::late_loads::{LateLoad, LateLoadFeed, LateLoads, MissedLibrary};
use crate::record::pipeline::Pipeline;
use crate::record::returns::{Exchange, ReturnSites, TIME_AHEAD};
use crate::record::source::{Change, Drained, Kinds, Rings, Source};
use crate::record::values::{Captured, Prepared};
use crate::samples::Samplers;
use crate::samples::plugin::Trouble;
use crate::stubs::Stubs;
use crate::target::address_spaces::AddressSpaces;
use crate::target::presence::Presence;
use crate::target::{code, descendants, memory, privilege, translators};
use crate::watch::{self, HeldProcess, Watches, Watching};

/// Time between two looks at what was read from the rings, and what else has happened.
const READ_PERIOD: Duration = Duration::from_millis(5);

/// Time between two ticks of the sinks.
const TICK_PERIOD: Duration = Duration::from_secs(1);

/// Time between two snapshots at the calls that run.
const SNAPSHOT_PERIOD: Duration = Duration::from_millis(250);

/// Whose calls are recorded.
#[derive(Clone, Copy, Debug)]
pub enum Subject<'a> {
    /// Running processes.
    Processes(&'a [u32]),
    /// A process that waits to execute the command to trace.
    Command(u32),
}

impl Subject<'_> {
    /// The processes that are named.
    pub fn pids(&self) -> &[u32] {
        match self {
            Subject::Processes(pids) => pids,
            Subject::Command(pid) => std::slice::from_ref(pid),
        }
    }
}

/// How to record, and with what.
#[derive(Clone, Copy, Debug)]
pub struct Setup<'a> {
    /// What was asked for.
    pub how: &'a Options,
    /// Whose calls.
    pub subject: Subject<'a>,
    /// Who may look at the result, unless he may look at every process.
    pub observer: Option<Observer>,
    /// How probes are attached.
    pub mechanism: Mechanism,
    /// What the kernel and the programs do without a single step, as plans were told.
    pub emulated: Emulation,
    /// What is counted on every call.
    pub counters: &'a Counters,
    /// The variables that are watched, whose accesses are the last of the counters.
    pub watches: &'a Watches,
    /// Words of values that a call has at most; 0 where none has any.
    pub words: u32,
    /// What is read of them when it returns.
    pub at_return: Keeps,
    /// The stubs that the command gets; their sites are of the plan's regions.
    pub stubs: Option<&'a Stubs>,
    /// Who puts things in order if this process is killed.
    pub guard: &'a Guard,
    /// The words of the command, as they were asked for.
    pub command: &'a [OsString],
    /// The files that the command will load, in the order of the dynamic linker.
    pub command_files: &'a [PathBuf],
}

/// What goes on beside the calls.
pub struct Extras {
    /// Looks out for libraries that are loaded later.
    pub late_loads: LateLoads,
    /// Measures processes and machine; ids of its metrics follow those of the counters.
    pub samplers: Samplers,
}

/// The kernel side, ready for probes.
pub struct Loaded {
    programs: Programs,
    /// What a call costs here; empty where that is not known.
    costs: Vec<CallCost>,
}

/// Makes the kernel side ready, for which it need not be known what is probed. A command that is traced has been
/// started: its limits stay.
///
/// # Errors
/// The kernel refuses the programs.
pub fn load(setup: &Setup<'_>) -> Result<Loaded, rtrace_bpf::Error> {
    let load = LoadOptions {
        mechanism: setup.mechanism,
        ring_bytes: setup.how.ring_bytes,
        follow_children: setup.how.follow,
        profile: setup.how.profile,
        counters: &setup.counters.sources,
        is_governed: setup.how.budget.is_some(),
        words: setup.words,
        levels: setup.how.levels,
        steps: setup.emulated.steps,
    };
    let first_kept = host::first_kept_descriptor();
    let mut programs = Programs::load(&load)?;
    programs.keep_descriptors(first_kept);
    let costs = calibrate(&programs, setup.emulated.steps);
    // What calibration calls has no contexts worth having.
    programs.walk_stacks();
    setup.observer.into_iter().for_each(|observer| programs.guard(observer));
    Ok(Loaded { programs, costs })
}

/// Records until one of the reasons to stop: `stop` is set, the duration is over, every process named and every
/// child that is followed has ended, or a sink fails.
///
/// `armed` is called once calls are being recorded.
///
/// # Errors
/// The kernel refuses probes, a process named has ended before it was to be recorded, or a
/// sink fails; probes are gone in any case.
pub fn record(
    loaded: Loaded,
    plan: &Plan,
    setup: &Setup<'_>,
    extras: Extras,
    sinks: Vec<Box<dyn Sink>>,
    stop: &AtomicBool,
    armed: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<Summary> {
    let Loaded { mut programs, costs } = loaded;
    programs.keep_journal(setup.guard.journal()?);
    let Extras { late_loads, mut samplers } = extras;
    let of_calls = setup.counters.metrics.iter().chain(setup.watches.metrics());
    let mut metrics: Vec<_> = of_calls.chain(samplers.metrics()).cloned().collect();
    let next_metric = MetricId(u32::try_from(metrics.len()).expect("metrics are few"));
    let (governing, inbox, outbox) = Governing::new(next_metric, setup.subject.pids());
    let captured = Captured::default();
    let spaces = AddressSpaces::default();
    let followed = Followed::new(&programs, setup.subject.pids(), setup.how.everywhere, spaces.history().clone());
    let mut recording = Recording {
        programs: &programs,
        followed: &followed,
        setup,
        pids: setup.subject.pids().to_vec(),
        attachments: Vec::new(),
        libraries: Vec::new(),
        regions: 0,
        refused: 0,
        blind_windows: 0,
        overwritten: 0,
        unprobed: Vec::new(),
        inspection: Inspection::new(),
        costs: &costs,
        notice: Notice::default(),
        overhead: next_metric,
        captured: &captured,
        governing: setup.how.budget.map(|_| &governing),
    };
    let late = recording.choose_processes()?;
    let keeps = Keeps { accesses: !setup.watches.watches.is_empty(), ..setup.at_return };
    let mut return_sites =
        ReturnSites::new(&programs, setup.emulated, keeps, plan, late_loads.patterns(), spaces.share())?;
    return_sites.place_ahead_at_most(memory::room_for_return_sites(setup.subject.pids(), memory::of_entries(plan))?);
    let tables = (programs.levels() > 0).then(|| ContextTables::read_ahead(recording.pids.clone()));
    let admit = |limit| admission::admit(&programs, plan, setup.subject.pids(), limit);
    let admitted = recording.limit().map(admit).transpose().context("failed to attach")?;
    recording.prime(&admission::within(plan, admitted.as_ref()), &mut return_sites).context("failed to attach")?;
    let gate = recording.gate();
    let executed = if uses_return_sites(plan) { Executed::new(&plan.libraries) } else { Executed::default() };
    let attachment = recording.attach(plan, setup.stubs, admitted.as_ref())?;
    attachment.check(recording.named()).context("failed to attach")?;
    attachment.check_unchanged()?;
    setup.subject.pids().iter().try_for_each(|&pid| return_sites.drop_changed(pid))?;
    recording.join_family(late, &mut return_sites)?;
    let pipeline = Pipeline::start(sinks);
    recording.all_run()?;
    metrics.push(overhead_metric(next_metric));
    let (are_over, exchange) = (AtomicBool::new(false), Exchange::default());
    let found = FoundContexts::default();
    let (drained, mut return_sites) = std::thread::scope(|scope| {
        let answering = scope.spawn(|| {
            let answered = return_sites.answer(&followed, gate, executed, &exchange, &are_over);
            (answered, return_sites)
        });
        let walking = tables.map(|tables| {
            let contexts = Contexts::new(&programs, &found, tables, spaces.share());
            scope.spawn(|| contexts.walk(&are_over))
        });
        let recorded = (|| {
            let feed = late_loads
                .start(scope, spaces.history(), &recording.pids, &programs)
                .context("failed to watch for new libraries")?;
            let begin = |recording: &mut Recording<'_>| {
                let (mechanism, budget) = (setup.mechanism.name(), setup.how.budget);
                pipeline.send(Item::Begin(host::header(mechanism, budget, setup.command, costs.clone())));
                pipeline.send(Item::Define(metrics.into_iter().map(Definition::Metric).collect()));
                recording.announce(&pipeline, plan, attachment);
                let governor = setup.how.budget.map(|budget| {
                    let (programs, costs, exchange, followed) = (&programs, &costs, &exchange, &followed);
                    Governor::new(GovernorContext {
                        programs,
                        followed,
                        costs,
                        budget,
                        inbox,
                        outbox,
                        living: &governing.living,
                        exchange,
                    })
                });
                move |is_over: Arc<AtomicBool>| governor.map(|governor| scope.spawn(move || governor.run(&is_over)))
            };
            let rings = Rings::read(scope, &programs)?;
            let heard = Heard { feed, rings, contexts: &found, spaces: &spaces };
            recording.read_until_stopped(&pipeline, heard, begin, &mut samplers, stop, armed)
        })();
        are_over.store(true, Ordering::Relaxed);
        let (answered, return_sites) = joined(answering);
        let walked = walking.map_or(Ok(()), |walking| joined(walking));
        let ended = answered.and(walked).map_err(anyhow::Error::from);
        (recorded.and_then(|summary| ended.map(|()| summary)), return_sites)
    });
    let inspected = recording.tell_overwritten_at_end(&pipeline, &mut return_sites);
    followed.end();
    recording.tell_blind_windows(&pipeline);
    let return_summary = return_sites.summary();
    let Recording { regions, refused, blind_windows, overwritten, attachments, .. } = recording;
    detach(return_sites.into_probes().into_iter().chain(followed.into_probes()).collect());

    let Drained { summary: drained, mut call_sites, calls } = drained?;
    inspected?;
    call_sites.add_contexts(found.take());
    // All threads are done that may have told something.
    call_sites.tick();
    pipeline.send(Item::Define(call_sites.announce()));
    let Options { follow, lacks_children, .. } = setup.how;
    let untraced_children = if *follow { 0 } else { drained.untraced_children };
    let lacks_children = *lacks_children && untraced_children > 0;
    let summary = Summary { regions, refused, blind_windows, overwritten, return_sites: return_summary, ..drained };
    let summary = Summary { untraced_children, lacks_children, ..summary };
    let lines = Lines::default();
    pipeline.send(Item::Define(call_sites.named(&lines)));
    pipeline.send(Item::Define(attachments.iter().flat_map(|attachment| attachment.located(&calls, &lines)).collect()));
    pipeline.finish(summary.clone())?;
    Ok(summary)
}

/// What other threads tell of a recording.
struct Heard<'a> {
    feed: LateLoadFeed,
    rings: Rings,
    contexts: &'a FoundContexts,
    spaces: &'a AddressSpaces,
}

/// What a thread gives, or its panic.
fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// A recording under way.
struct Recording<'a> {
    programs: &'a Programs,
    followed: &'a Followed<'a>,
    setup: &'a Setup<'a>,
    /// The processes that it begins with.
    pids: Vec<u32>,
    /// Those that were announced.
    libraries: Vec<Library>,
    attachments: Vec<Attachment>,
    regions: u64,
    refused: u64,
    blind_windows: u64,
    overwritten: u64,
    /// Libraries that get no probes any more, since that was told.
    unprobed: Vec<MissedLibrary>,
    inspection: Inspection,
    /// What a call costs here.
    costs: &'a [CallCost],
    notice: Notice,
    /// What it tells of.
    overhead: MetricId,
    captured: &'a Captured,
    /// Present where there is a budget.
    governing: Option<&'a Governing>,
}

impl<'a> Recording<'a> {
    /// Lets the kernel side know whom to record. Gives the descendants of the processes named that came before it
    /// knew of their parents, and that are none of them.
    fn choose_processes(&self) -> anyhow::Result<Vec<u32>> {
        match self.setup.subject {
            Subject::Processes(pids) => pids.iter().try_for_each(|&pid| self.programs.trace(pid).map(drop))?,
            Subject::Command(pid) => self.programs.trace_from_exec(pid)?,
        }
        let mut late = Vec::new();
        let mut new = self.unknown_descendants()?;
        // The kernel side reports forks of known processes, so this loop ends.
        while !new.is_empty() {
            late.extend(self.trace_running(new)?);
            new = self.unknown_descendants()?;
        }
        Ok(late)
    }

    fn unknown_descendants(&self) -> Result<Vec<u32>, rtrace_bpf::Error> {
        let mut unknown = Vec::new();
        if !self.setup.how.follow {
            return Ok(unknown);
        }
        for pid in descendants::of(self.named()) {
            if self.programs.space(pid)?.is_none() && privilege::check_process(pid).is_ok() {
                unknown.push(pid);
            }
        }
        Ok(unknown)
    }

    /// Of one that ended before the kernel side knew of it, that would never hear of its end.
    fn trace_running(&self, mut pids: Vec<u32>) -> Result<Vec<u32>, rtrace_bpf::Error> {
        for &pid in &pids {
            self.programs.trace(pid)?;
        }
        for ended in pids.extract_if(.., |pid| privilege::has_ended(*pid)) {
            self.programs.forget(ended)?;
        }
        Ok(pids)
    }

    /// Places probes in the processes that joined those named while these were being prepared.
    fn join_family(&mut self, late: Vec<u32>, return_sites: &mut ReturnSites<'_>) -> Result<(), rtrace_bpf::Error> {
        for &pid in &late {
            let parent = descendants::parent_of(pid);
            self.followed.adopt(pid, parent.unwrap_or(0), host::now())?;
            if let Some(parent) = parent {
                return_sites.take_in(pid, parent)?;
            }
        }
        // What happened before the recording is not part of it.
        drop(self.followed.take_blind());
        self.pids.extend(late);
        Ok(())
    }

    /// A process that had ended before the kernel side knew of it is never told to have ended, and
    /// its files may be out of reach.
    fn all_run(&self) -> Result<(), privilege::Error> {
        self.named().iter().try_for_each(|&pid| privilege::check_process(pid))
    }

    fn any_runs(&self) -> Result<(), privilege::Error> {
        let mut checks = self.named().iter().map(|&pid| privilege::check_process(pid));
        checks.find(Result::is_ok).unwrap_or_else(|| self.all_run())
    }

    /// The processes that ran before the recording.
    fn named(&self) -> &'a [u32] {
        match self.setup.subject {
            Subject::Processes(pids) => pids,
            Subject::Command(_) => &[],
        }
    }

    /// Places the return sites of direct calls.
    fn prime(&self, plan: &Plan, return_sites: &mut ReturnSites<'_>) -> Result<(), rtrace_bpf::Error> {
        if !uses_return_sites(plan) {
            return Ok(());
        }
        let traced = TracedFunctions::of(&plan.libraries);
        let (pids, files): (&[u32], Vec<CallerFile>) = match &self.setup.subject {
            Subject::Processes(pids) => (pids, callers::of_processes(pids, &traced)),
            Subject::Command(pid) => {
                let files = callers::loadable(self.setup.command_files);
                (std::slice::from_ref(pid), callers::of_command(&files, &traced))
            }
        };
        let modules: Vec<Module> =
            self.named().iter().flat_map(|&pid| modules::of_process(pid).unwrap_or_default()).collect();
        return_sites.avoid(code::by_file(&modules));
        let time = TIME_AHEAD / u32::try_from(pids.len()).unwrap_or(u32::MAX).max(1);
        for &pid in pids {
            let jumps = match self.setup.subject {
                Subject::Processes(_) => {
                    jump_candidates::among_modules(modules.iter().filter(|module| module.pid == pid))
                }
                Subject::Command(_) => jump_candidates::among_files(self.setup.command_files),
            };
            return_sites.see_jumps(pid, &jumps)?;
            return_sites.prime(pid, &files, time)?;
        }
        Ok(())
    }

    /// The gate for what the command executes, where the system allows one.
    fn gate(&self) -> Option<Gate> {
        match self.setup.subject {
            Subject::Command(pid) if self.setup.how.follow && !self.setup.how.everywhere => Gate::of(pid).ok(),
            _ => None,
        }
    }

    /// The budget, if there is one, with what it takes to keep it.
    fn limit(&self) -> Option<Limit<'a>> {
        let (costs, processes, follow) = (self.costs, self.followed.pids().len(), self.setup.how.follow);
        self.setup.how.budget.map(|budget| Limit { costs, budget, processes, follow })
    }

    fn attach(&self, plan: &Plan, stubs: Option<&Stubs>, admitted: Option<&Admitted>) -> anyhow::Result<Attachment> {
        let Setup { counters, at_return, .. } = self.setup;
        let words = self.programs.words();
        let prepared = Prepared { words, metrics: &counters.metrics, at_return: *at_return };
        self.captured.add(self.programs, plan, &prepared)?;
        let attachment = self
            .followed
            .attach(|pids| attach::attach(self.programs, plan, pids, stubs, admitted))
            .context("failed to attach")?;
        for region in attachment.regions.iter().filter(|region| self.is_folded(region)) {
            self.programs.set_level(region.id.0, None)?;
        }
        Ok(attachment)
    }

    fn is_folded(&self, region: &Region) -> bool {
        let mut names = [&region.name].into_iter().chain(region.symbols.iter().map(|name| &name.symbol));
        names.any(|name| self.setup.how.fold.iter().any(|pattern| pattern.matches(name)))
    }

    /// Tells the sinks what calls will refer to, and what was left out.
    fn announce(&mut self, pipeline: &Pipeline, plan: &Plan, mut attachment: Attachment) {
        let before = self.libraries.len();
        self.libraries.extend(plan.libraries.iter().map(|planned| planned.library.clone()));
        // Others may be told apart from these only now.
        let renamed = name_apart(&mut self.libraries).into_iter().filter(|&place| place < before);
        let defined = renamed.chain(before..self.libraries.len()).map(|place| self.libraries[place].clone());
        pipeline.send(Item::Define(defined.map(Definition::Library).collect()));
        pipeline.send(Item::Define(attachment.regions.iter().cloned().map(Definition::Region).collect()));
        pipeline.send(Item::Define(self.captured.columns(plan)));
        self.captured.take_missing().into_iter().for_each(|kind| emit_event(pipeline, kind));
        self.regions += attachment.regions.len() as u64;
        for (index, planned) in plan.libraries.iter().enumerate() {
            let library = &planned.library;
            let regions = attachment.regions.iter().filter(|region| region.library == library.id).count() as u64;
            emit_event(pipeline, EventKind::Attached { library: library.path.clone(), regions });
            let by_kernel = attachment.refused.iter().filter(|(of, _)| *of == index).map(|(_, refusal)| refusal);
            for refusal in planned.refused.iter().chain(by_kernel) {
                self.refused += 1;
                let (library, region) = (library.path.clone(), refusal.name.clone());
                emit_event(pipeline, EventKind::Refused { library, region, reason: refusal.reason.to_string() });
            }
        }
        match self.governing {
            Some(governing) => governing.adopt(attachment.hand_over()),
            None => self.notice.learn(self.programs, self.costs, &attachment.regions),
        }
        self.attachments.push(attachment);
    }

    /// `begin` tells the sinks that a recording begins, and gives what starts its governor. Until then a failure
    /// leaves no trace behind.
    fn read_until_stopped<'scope, G>(
        &mut self,
        pipeline: &Pipeline,
        heard: Heard<'_>,
        begin: impl FnOnce(&mut Self) -> G,
        samplers: &mut Samplers,
        stop: &AtomicBool,
        armed: impl FnOnce() -> anyhow::Result<()>,
    ) -> anyhow::Result<Drained>
    where
        G: FnOnce(Arc<AtomicBool>) -> Option<ScopedJoinHandle<'scope, Result<Timestamp, rtrace_bpf::Error>>>,
    {
        let Setup { how, counters, watches, .. } = self.setup;
        let Heard { feed, rings, contexts, spaces } = heard;
        let mut watching = Watching::new(self.programs, watches, self.setup.how.follow);
        let held = self.begin_watching(&mut watching)?;
        self.any_runs()?;
        let govern = begin(self);
        let is_folded = how.profile.is_some();
        let kinds = Kinds { metrics: &counters.metrics, watches, captured: self.captured, contexts, spaces };
        let mut source = Source::new(self.programs, rings, kinds, is_folded, pipeline, &self.pids);
        self.programs.arm();
        emit_event(pipeline, EventKind::Armed);
        let released = armed().and_then(|()| match held {
            Some(held) => watching.begin_held(held).map_err(anyhow::Error::from),
            None => Ok(()),
        });
        let is_over = Arc::new(AtomicBool::new(false));
        let governor = govern(Arc::clone(&is_over));
        let ahead = host::run_first();
        let read = self.read(pipeline, &mut source, &feed, &mut watching, samplers, &|| {
            released.is_err() || stop.load(Ordering::Relaxed) || pipeline.has_failed()
        });
        is_over.store(true, Ordering::Relaxed);
        let mut disarmed = None;
        if let Some(governor) = governor {
            while !governor.is_finished() {
                thread::sleep(READ_PERIOD);
                source.pass()?;
                let (living, ended) = (source.living(), source.take_ended());
                self.governing.inspect(|governing| governing.tell(living, ended));
            }
            disarmed = Some(governor.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
        }
        read?;
        self.programs.disarm()?;
        drop(ahead);
        let time = disarmed.unwrap_or_else(host::now);
        pipeline.send(Item::Event(Event { time, pid: None, tid: None, kind: EventKind::Disarmed }));
        for kind in watching.finish()? {
            emit_event(pipeline, kind);
        }
        source.pass()?;
        let missed = feed.finish(source.living(), self.begun(&mut source));
        for MissedLibrary { library, since } in missed.into_iter().chain(std::mem::take(&mut self.unprobed)) {
            self.blind_windows += 1;
            emit_event(pipeline, EventKind::BlindWindow { library, since });
        }
        if let Some(governing) = self.governing {
            governing.hear(pipeline, &mut source)?;
        }
        pipeline.send(Item::Samples(samplers.sample(&source.living())));
        samplers.stop();
        listen(pipeline, samplers);
        let ids = self.attachments.iter().flat_map(|attachment| &attachment.regions).map(|region| region.id);
        let drained = source.drain(ids.max().map_or(0, |last| last.index() + 1));
        released?;
        Ok(drained?)
    }

    /// Hands on what happens until it `is_over`, or nothing more can happen.
    fn read(
        &mut self,
        pipeline: &Pipeline,
        source: &mut Source<'_>,
        feed: &LateLoadFeed,
        watching: &mut Watching<'_>,
        samplers: &mut Samplers,
        is_over: &dyn Fn() -> bool,
    ) -> anyhow::Result<()> {
        let pids = self.setup.subject.pids();
        let begin = Instant::now();
        pipeline.send(Item::Samples(samplers.sample(pids)));
        let (mut ticks, mut snapshots) = (0, 0);
        while !is_over() {
            thread::sleep(READ_PERIOD);
            source.pass()?;
            listen(pipeline, samplers);
            if source.has_other_processes() {
                self.followed.keep(&source.living());
                feed.set_processes(source.living(), self.begun(source));
            }
            self.tell_blind_windows(pipeline);
            let overwritten = self.inspection.go_on(self.followed, pids)?;
            self.tell_overwritten(pipeline, overwritten);
            for late_load in feed.found() {
                self.join(pipeline, &late_load)?;
            }
            let changes = source.changes();
            for &(pid, time, _) in changes.iter().filter(|(_, _, change)| *change == Change::Executed) {
                // What waits at no gate is looked at only now.
                if translators::of_executable(pid).is_some() {
                    self.followed.leave(pid, time);
                }
            }
            follow(pipeline, watching, changes, feed.mapped());
            if begin.elapsed() >= TICK_PERIOD * (ticks + 1) {
                ticks += 1;
                pipeline.send(Item::Samples(samplers.sample(&source.living())));
                source.tick()?;
                if self.governing.is_none()
                    && let Some(overhead) =
                        self.notice.look(self.programs, source.calls_by_region(), &source.living())?
                {
                    tell_overhead(pipeline, self.overhead, overhead.in_percent());
                    if let Some(percent) = self.notice.worth_saying(overhead) {
                        emit_event(pipeline, EventKind::Slowdown { percent });
                    }
                }
            }
            let ended = source.take_ended();
            if let Some(governing) = self.governing {
                governing.tell(source.living(), ended);
                governing.hear(pipeline, source)?;
            }
            if pipeline.wants_running() && begin.elapsed() >= SNAPSHOT_PERIOD * (snapshots + 1) {
                snapshots += 1;
                source.snapshot()?;
            }
            let has_ended = self.setup.how.duration.is_some_and(|duration| begin.elapsed() >= duration);
            if has_ended || self.all_have_ended(source) {
                break;
            }
        }
        Ok(())
    }

    /// Children that have begun of late, if they are recorded.
    fn begun(&self, source: &mut Source<'_>) -> Vec<u32> {
        let begun = source.take_begun();
        if self.setup.how.follow { begun } else { Vec::new() }
    }

    /// The kernel side knows which processes are left, though events may be lost.
    fn all_have_ended(&self, source: &Source<'_>) -> bool {
        match self.setup.how.outlasts_first() {
            true => !self.programs.traces_any(),
            false => self.setup.subject.pids().iter().all(|&pid| source.has_ended(pid)),
        }
    }

    /// What children called before their probes were in place is not on record.
    fn tell_blind_windows(&mut self, pipeline: &Pipeline) {
        for BlindChild { pid, library, since } in self.followed.take_blind() {
            self.blind_windows += 1;
            let kind = EventKind::BlindWindow { library: library.path, since };
            emit_event_in(pipeline, pid, kind);
        }
    }

    /// Tells which probes the processes have overwritten.
    fn tell_overwritten(&mut self, pipeline: &Pipeline, overwritten: Vec<Overwritten>) {
        if overwritten.iter().all(|overwritten| overwritten.offsets.is_empty()) {
            return;
        }
        let regions = self.attachments.iter().flat_map(|attachment| &attachment.regions);
        let regions: BTreeMap<_, _> =
            regions.map(|region| ((region.library, region.file_offset), &region.name)).collect();
        for Overwritten { pid, library, offsets } in overwritten {
            self.overwritten += offsets.len() as u64;
            for offset in offsets {
                let region = regions.range((library.id, 0)..=(library.id, offset)).next_back();
                let region = region.map(|(_, name)| (*name).clone());
                emit_event_in(
                    pipeline,
                    pid,
                    EventKind::Overwritten { library: library.path.clone(), region, sites: 1 },
                );
            }
        }
    }

    /// The same for return sites, and for what is found when the recording ends.
    fn tell_overwritten_at_end(
        &mut self,
        pipeline: &Pipeline,
        return_sites: &mut ReturnSites<'_>,
    ) -> Result<(), rtrace_bpf::Error> {
        let overwritten = self.inspection.finish(self.followed, self.setup.subject.pids())?;
        self.tell_overwritten(pipeline, overwritten);
        let gone = return_sites.overwritten(self.followed)?.into_iter();
        for Presence { pid, path, absent, .. } in gone.filter_map(|gone| self.inspection.learn(gone)) {
            let (library, sites) = (text_of_os(&path).into_owned(), absent.len() as u64);
            self.overwritten += sites;
            emit_event_in(pipeline, pid, EventKind::Overwritten { library, region: None, sites });
        }
        Ok(())
    }

    /// Watches the variables of running processes, or takes hold of the command that will have them.
    fn begin_watching(&self, watching: &mut Watching<'_>) -> Result<Option<HeldProcess>, watch::Error> {
        match self.setup.subject {
            Subject::Processes(_) if watching.is_wanted() => watching.begin(&self.pids).map(|()| None),
            Subject::Command(pid) if watching.is_wanted() => {
                let audit = self.setup.stubs.map(Stubs::identity).transpose();
                audit.and_then(|audit| HeldProcess::take(pid, audit)).map(Some).map_err(watch::Error::Hold)
            }
            _ => Ok(None),
        }
    }

    /// Places probes in libraries that were loaded meanwhile. What they were called until now is
    /// not on record.
    fn join(&mut self, pipeline: &Pipeline, late_load: &LateLoad) -> anyhow::Result<()> {
        let is_shortage = |error: &anyhow::Error| {
            error.downcast_ref::<rtrace_bpf::Error>().is_some_and(rtrace_bpf::Error::is_shortage)
        };
        let attachment = match self.attach(&late_load.plan, None, self.limit().map(Limit::unknown).as_ref()) {
            Ok(attachment) => Some(attachment),
            // What is recorded already goes on to be.
            Err(error) if is_shortage(&error) => None,
            Err(error) => return Err(error),
        };
        for planned in &late_load.plan.libraries {
            let library = planned.library.path.clone();
            self.blind_windows += 1;
            emit_event(pipeline, EventKind::BlindWindow { library, since: late_load.since });
        }
        // A process may map it where the kernel takes no probes.
        let pids = self.followed.inspected(self.setup.subject.pids());
        let has_probes = attachment.as_ref().is_some_and(|attachment| attachment.check(&pids).is_ok());
        if let Some(attachment) = attachment {
            self.announce(pipeline, &late_load.plan, attachment);
        }
        if !has_probes {
            let paths = late_load.plan.libraries.iter().map(|planned| planned.library.path.clone());
            self.unprobed.extend(paths.map(|library| MissedLibrary { library, since: host::now() }));
        }
        Ok(())
    }
}

fn uses_return_sites(plan: &Plan) -> bool {
    let mut regions = plan.libraries.iter().flat_map(|library| &library.regions);
    regions.any(|planned| planned.region.exit == ExitPolicy::ReturnSite)
}

/// Watches variables where the processes' memory has become another.
fn follow(
    pipeline: &Pipeline,
    watching: &mut Watching<'_>,
    changes: Vec<(u32, Timestamp, Change)>,
    mapped: impl Iterator<Item = (u32, Timestamp)>,
) {
    if !watching.is_wanted() {
        return;
    }
    let tell = |pid: u32, told: Vec<EventKind>| {
        for kind in told {
            pipeline.send(Item::Event(Event { time: host::now(), pid: Some(pid), tid: None, kind }));
        }
    };
    for (pid, time, change) in changes {
        match change {
            Change::Forked { child } => tell(child, watching.forked(pid, child, time)),
            Change::Executed => tell(pid, watching.executed(pid, time)),
            Change::Withheld => watching.withhold(pid),
        }
    }
    for (pid, time) in mapped {
        tell(pid, watching.mapped(pid, time));
    }
}

/// Hands on what the metric plug-ins say.
fn listen(pipeline: &Pipeline, samplers: &mut Samplers) {
    let (samples, troubles) = samplers.heard();
    pipeline.send(Item::Samples(samples));
    for Trouble { command, problem } in troubles {
        emit_event(pipeline, EventKind::Plugin { command, problem });
    }
}

fn emit_event(pipeline: &Pipeline, kind: EventKind) {
    pipeline.send(Item::Event(Event { time: host::now(), pid: None, tid: None, kind }));
}

fn emit_event_in(pipeline: &Pipeline, pid: u32, kind: EventKind) {
    pipeline.send(Item::Event(Event { time: host::now(), pid: Some(pid), tid: None, kind }));
}
