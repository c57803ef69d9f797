//! One recording from load to detach.
//!
//! load → attach → arm → read → disarm → drain → detach → finish. Nothing is recorded before
//! `arm`, so a slow attach leaves no half-traced beginning; after `disarm` nothing changes, so what
//! is read last is all there is. Probes are gone before the sinks finish: a full disk does not keep
//! them in the traced program.

mod announcements;
mod governing;
mod members;
mod notice;
mod read_loop;
mod setup;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::SystemTime;

use anyhow::Context as _;
use rtrace_bpf::Programs;
use rtrace_code::arrival::Keeps;
use rtrace_model::{CallCost, Definition, EventKind, ExitPolicy, Header, Item, MetricId, Summary};
use rtrace_plan::Plan;
use rtrace_symbolizer::lines::Lines;
use rtrace_symbolizer::modules::{self, Module};

use self::announcements::Announcements;
use self::governing::{Governing, overhead_metrics};
use self::members::{Members, trace_running};
use self::notice::Notice;
use self::read_loop::{AtWork, CostWatch, Over, ReadLoop};
pub use self::setup::{Extras, Loaded, Setup, Subject, load};
use crate::actions::Actions;
use crate::host;
use crate::options::Options;
use crate::record::admission;
use crate::record::attach::{self, Admitted, Attachment, detach, detach_slowly};
use crate::record::callers::{self, CallerFile, Executed, TracedFunctions};
use crate::record::contexts::{ContextTables, Contexts, FoundContexts};
use crate::record::cpu_clock::CpuClock;
use crate::record::family::Followed;
use crate::record::fuse::Fuse;
use crate::record::gate::Gate;
use crate::record::governor::{Governor, GovernorContext};
use crate::record::jump_candidates;
use crate::record::limit::Limit;
use crate::record::pauses::Pauses;
use crate::record::pipeline::Pipeline;
use crate::record::returns::{Exchange, ReturnSites, TIME_AHEAD};
use crate::record::sample_stacks::SampleStacks;
use crate::record::source::{Drained, Kinds, Rings, Source};
use crate::record::values::{Captured, Prepared};
use crate::record::writers::{Stoppers, Writers};
use crate::stubs::Stubs;
use crate::target::address_spaces::AddressSpaces;
use crate::target::{code, descendants, memory, privilege};
use crate::watch::{self, HeldProcess, Watching};

/// Samples of CPU time that each CPU takes in a second of work where a budget may leave calls without a record.
const WITHIN_BUDGET: u32 = 99;

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
    stop: &AtomicBool,
    armed: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<Summary> {
    let Loaded { mut programs, costs } = loaded;
    programs.keep_journal(setup.guard.journal()?);
    let writers =
        Writers::new(&programs, setup.how.budget.is_some()).context("failed to watch for code that changes")?;
    std::thread::scope(|scope| {
        let stoppers = writers.stop_all(scope);
        record_guarded((&programs, costs), (&writers, stoppers), plan, setup, extras, stop, armed)
    })
}

/// The same while threads are stopped that change code in which there are probes.
fn record_guarded(
    (programs, costs): (&Programs, Vec<CallCost>),
    (writers, stoppers): (&Writers<'_>, Stoppers<'_, '_>),
    plan: &Plan,
    setup: &Setup<'_>,
    extras: Extras,
    stop: &AtomicBool,
    armed: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<Summary> {
    let Extras { late_loads, mut samplers, sinks } = extras;
    let began = SystemTime::now();
    let of_calls = setup.counters.metrics.iter().chain(setup.watches.metrics());
    let mut metrics: Vec<_> = of_calls.chain(samplers.metrics()).cloned().collect();
    let next_metric = MetricId(u32::try_from(metrics.len()).expect("metrics are few"));
    let (governing, inbox, outbox) = Governing::new(next_metric, setup.subject.pids());
    let captured = Captured::default();
    let spaces = AddressSpaces::default();
    let (named, history) = (setup.subject.pids(), spaces.history().clone());
    let followed = Followed::new(programs, named, history, writers.children());
    let actions = Actions::new(programs, &setup.how.actions, setup.how.helper_user.as_ref());
    let mut recording = Recording {
        programs,
        followed: &followed,
        setup,
        pids: setup.subject.pids().to_vec(),
        costs: &costs,
        overhead: next_metric,
        captured: &captured,
        actions: &actions,
        stop,
    };
    let late = recording.choose_processes()?;
    let keeps = Keeps { accesses: !setup.watches.watches.is_empty(), ..setup.at_return };
    let mut return_sites =
        ReturnSites::new(programs, setup.emulated, keeps, plan, late_loads.patterns(), spaces.share(), writers)?;
    return_sites.place_ahead_at_most(memory::room_for_return_sites(setup.subject.pids(), memory::of_entries(plan))?);
    let tables = (programs.levels() > 0).then(|| ContextTables::read_ahead(&recording.pids));
    let admit = |limit| admission::admit(programs, plan, setup.subject.pids(), limit);
    let admitted = recording.limit().map(admit).transpose().context("failed to attach")?;
    recording.prime(&admission::within(plan, admitted.as_ref()), &mut return_sites).context("failed to attach")?;
    let gate = recording.gate();
    let executed = if uses_return_sites(plan) { Executed::new(&plan.libraries) } else { Executed::default() };
    let fused = recording.limit().filter(|_| !recording.named().is_empty());
    let mut attachment = recording.attach(plan, setup.stubs, admitted.as_ref(), fused)?;
    attachment.check(recording.named()).context("failed to attach")?;
    attachment.check_unchanged()?;
    setup.subject.pids().iter().try_for_each(|&pid| return_sites.drop_changed(pid))?;
    recording.join_family(late, &mut return_sites)?;
    let pipeline = Pipeline::start(sinks);
    recording.all_run()?;
    metrics.extend(overhead_metrics(next_metric));
    let recording = recording;
    let mut announcements = Announcements::new(&pipeline);
    let (are_over, governor_is_over, exchange) = (AtomicBool::new(false), AtomicBool::new(false), Exchange::default());
    let found = FoundContexts::default();
    let (drained, mut return_sites) = std::thread::scope(|scope| {
        let over = Over(&are_over);
        let answering = scope.spawn(|| {
            let answered = return_sites.answer(&followed, gate, executed, &exchange, &are_over);
            (answered, return_sites)
        });
        let walking = tables.map(|tables| {
            let contexts = Contexts::new(programs, &found, &recording.pids, tables, spaces.share());
            scope.spawn(|| contexts.walk(&are_over))
        });
        let acting = (!setup.how.actions.is_empty()).then(|| scope.spawn(|| actions.run(&are_over)));
        let recorded = (|| {
            let feed = late_loads
                .start(scope, spaces.history(), &recording.pids, recording.named(), programs)
                .context("failed to watch for new libraries")?;
            let rings = Rings::read(scope, programs)?;
            let mut watching = Watching::new(programs, setup.watches, setup.how.follow);
            let held = recording.begin_watching(&mut watching)?;
            recording.any_runs()?;
            let stacks = (programs.levels() > 0).then(|| SampleStacks::new(programs, &found));
            let start_clock = |hertz, stacks| CpuClock::start(scope, hertz, recording.pids.clone(), stacks);
            let cpu_clock = match (setup.how.sampling, setup.how.budget) {
                (Some(hertz), _) => Some((hertz, start_clock(hertz, stacks)?)),
                // What says where functions stand of which calls are left out: what was not asked for may fail.
                (None, Some(_)) => start_clock(WITHIN_BUDGET, None).ok().map(|clock| (WITHIN_BUDGET, clock)),
                (None, None) => None,
            };
            let (sampling, cpu_clock) = cpu_clock.unzip();
            // Until here a failure leaves no trace behind.
            let (mechanism, budget) = (setup.mechanism.name(), setup.how.budget);
            let header = host::header(mechanism, budget, setup.command, costs.clone());
            pipeline.send(Item::Begin(Header { sampling, ..header }));
            pipeline.send(Item::Define(metrics.into_iter().map(Definition::Metric).collect()));
            let cost = match budget {
                Some(_) => CostWatch::Governor(&governing),
                None => CostWatch::Notice(Notice::new()),
            };
            cost.learn(&mut attachment);
            actions.choose(&attachment.regions)?;
            announcements.announce(plan, &captured, attachment);
            let kinds = Kinds {
                metrics: &setup.counters.metrics,
                watches: setup.watches,
                captured: &captured,
                contexts: &found,
                spaces: &spaces,
            };
            let source = Source::new(programs, rings, kinds, setup.how.profile.is_some(), &pipeline, &recording.pids);
            programs.arm();
            announcements.event(EventKind::Armed);
            let released = armed().and_then(|()| match held {
                Some(held) => watching.begin_held(held).map_err(anyhow::Error::from),
                None => Ok(()),
            });
            let governor = budget.map(|budget| {
                let governor = Governor::new(GovernorContext {
                    programs,
                    followed: &followed,
                    costs: &costs,
                    budget,
                    inbox,
                    outbox,
                    living: &governing.living,
                    exchange: &exchange,
                });
                let is_over = &governor_is_over;
                AtWork { thread: scope.spawn(|| governor.run(is_over)), over: Over(is_over) }
            });
            let (recording, pipeline, announcements, samplers) =
                (&recording, &pipeline, &mut announcements, &mut samplers);
            let unprobed = Vec::new();
            let members = Members::new(programs, &followed, &setup.how.groups);
            let read_loop = ReadLoop {
                recording,
                pipeline,
                announcements,
                source,
                feed,
                watching,
                samplers,
                cpu_clock,
                cost,
                members,
                unprobed,
            };
            let has_ended = || answering.is_finished() || walking.as_ref().is_some_and(ScopedJoinHandle::is_finished);
            read_loop.read_all(released, governor, &|| stop.load(Ordering::Relaxed) || has_ended())
        })();
        drop(over);
        let (answered, return_sites) = joined(answering);
        let walked = walking.map_or(Ok(()), |walking| joined(walking));
        let acted = acting.map_or(Ok(()), |acting| joined(acting));
        let ended = answered.and(walked).and(acted).map_err(anyhow::Error::from);
        (recorded.and_then(|summary| ended.map(|()| summary)), return_sites)
    });
    let inspected = announcements.inspect_last(&followed, &mut return_sites);
    followed.end();
    announcements.blind_children(&followed);
    let (return_summary, stepped, in_vain) = (return_sites.summary(), return_sites.stepped(), return_sites.in_vain());
    // What is hit goes first: a process waits at each hit while others are taken out.
    let pids = followed.inspected();
    let entries = followed.into_probes().into_iter().rev();
    let probes = return_sites.into_probes().into_iter().chain(entries).collect();
    match setup.how.budget {
        Some(_) => detach_slowly(probes, &pids, Pauses::at_end()),
        None => detach(probes),
    }
    stoppers.end()?;

    let Drained { summary: drained, mut call_sites, calls } = drained?;
    inspected?;
    call_sites.add_contexts(found.take());
    // All threads are done that may have told something.
    call_sites.tick();
    pipeline.send(Item::Define(call_sites.announce()));
    let Options { follow, lacks_children, .. } = setup.how;
    let untraced_children = if *follow { 0 } else { drained.untraced_children };
    let lacks_children = *lacks_children && untraced_children > 0;
    let hits_in_vain = announcements.hits_in_vain(&in_vain, &calls);
    let summary = Summary { return_sites: return_summary, hits_in_vain, untraced_children, lacks_children, ..drained };
    let summary = announcements.summarized(summary);
    let lines = Lines::since(began);
    pipeline.send(Item::Define(call_sites.named(&lines, &stepped)));
    pipeline.send(Item::Define(announcements.located(&calls, &lines)));
    lines.unread().into_iter().for_each(|file| announcements.event(EventKind::NoLines { file }));
    pipeline.finish(summary.clone())?;
    Ok(summary)
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
    /// What a call costs here.
    costs: &'a [CallCost],
    /// The metric of what tracing costs.
    overhead: MetricId,
    captured: &'a Captured,
    actions: &'a Actions<'a>,
    /// Set once nobody waits for it any more.
    stop: &'a AtomicBool,
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
            late.extend(trace_running(self.programs, new)?);
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
        // A command does not run yet.
        let pauses = self.limit().filter(|_| !self.named().is_empty()).map(Limit::pauses);
        for &pid in pids {
            let jumps = match self.setup.subject {
                Subject::Processes(_) => {
                    jump_candidates::among_modules(modules.iter().filter(|module| module.pid == pid))
                }
                Subject::Command(_) => jump_candidates::among_files(self.setup.command_files),
            };
            return_sites.see_jumps(pid, &jumps)?;
            return_sites.prime(pid, &files, time, pauses)?;
        }
        Ok(())
    }

    /// The gate for what the command executes, where the system allows one.
    fn gate(&self) -> Option<Gate> {
        match self.setup.subject {
            Subject::Command(pid) if self.setup.how.follow => Gate::of(pid).ok(),
            _ => None,
        }
    }

    /// The budget, if there is one, with what it takes to keep it.
    fn limit(&self) -> Option<Limit<'a>> {
        let (costs, processes, follow) = (self.costs, self.followed.pids().len(), self.setup.how.follow);
        self.setup.how.budget.map(|budget| Limit { costs, budget, processes, follow, stop: self.stop })
    }

    /// Places the entry probes. `fused`: nothing is recorded yet, and what costs more than that meanwhile goes at once.
    fn attach(
        &self,
        plan: &Plan,
        stubs: Option<&Stubs>,
        admitted: Option<&Admitted>,
        fused: Option<Limit<'_>>,
    ) -> anyhow::Result<Attachment> {
        let Setup { counters, at_return, .. } = self.setup;
        let words = self.programs.words();
        let prepared = Prepared { words, metrics: &counters.metrics, at_return: *at_return };
        self.captured.add(self.programs, plan, &prepared)?;
        self.followed
            .attach(|pids| {
                let fuse = fused.map(|limit| Fuse::new(self.programs, limit, pids));
                attach::attach(self.programs, plan, pids, stubs, admitted, fuse)
            })
            .context("failed to attach")
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
}

fn uses_return_sites(plan: &Plan) -> bool {
    let mut regions = plan.libraries.iter().flat_map(|library| &library.regions);
    regions.any(|planned| planned.region.exit == ExitPolicy::ReturnSite)
}
