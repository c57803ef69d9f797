//! `rtrace attach`: traces running processes.

use std::io::{IsTerminal as _, stderr};
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;

use anyhow::Context as _;
use rtrace::guard::Guard;
use rtrace::recorder::Subject;
use rtrace::target::Target;
use rtrace::{descendants, privilege, target, watch};
use rtrace_plan as planning;
use rtrace_plan::LibrarySource;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::Outcome;
use super::args::Attach;
use super::message::{Hint as _, tell};
use super::record::{
    Session, check_processes, completeness, conclude, counters, how_to_record, mechanism, plan_and_load, plan_options,
    samplers,
};

/// Children of the processes named may end while a recording is prepared: after so many times none are prepared for,
/// and all get their probes as those do that come later.
const MOST_ATTEMPTS: u32 = 3;

/// Records until the time is over, the processes have ended, or the user says so.
///
/// Processes that end before their probes are in place are left out, with a word on each.
pub fn attach(options: &Attach) -> anyhow::Result<Outcome> {
    let guard = Guard::start()?;
    check_processes(&options.pids)?;
    let name = program(options.pids.first().copied().unwrap_or_default());
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("failed to handle signals")?;
    }
    let mut named = options.pids.clone();
    let mut attempts = 0;
    loop {
        let mut is_armed = false;
        attempts += 1;
        let pids = if attempts <= MOST_ATTEMPTS { family(options, &named) } else { named.clone() };
        let recorded = record(options, &guard, &pids, &name, &stop, || is_armed = true);
        let Err(error) = recorded else { return recorded };
        let runs = |pid: &u32| privilege::check_process(*pid).is_ok();
        let (living, ended): (Vec<u32>, Vec<u32>) = named.iter().partition(|&pid| runs(pid));
        if is_armed || pids.iter().all(runs) {
            return Err(error);
        }
        if living.is_empty() {
            return Err(anyhow::anyhow!(
                "failed to trace {}: ended before its probes were in place",
                describe(&name, &options.pids)
            ))
            .hint("let rtrace start it, so that it waits for its probes: rtrace run … -- COMMAND");
        }
        for pid in ended {
            tell!("process {pid} ended before its probes were in place: none of its calls are recorded");
        }
        named = living;
    }
}

/// The processes named, and where children are followed, those that they have already.
fn family(options: &Attach, named: &[u32]) -> Vec<u32> {
    if !options.recording.follow(false) {
        return named.to_vec();
    }
    let mut family = named.to_vec();
    for pid in descendants::of(named) {
        match privilege::check_process(pid) {
            Ok(()) => family.push(pid),
            Err(error @ privilege::Error::Denied { .. }) => tell!("{error}: its calls are not recorded"),
            Err(_) => {}
        }
    }
    family
}

/// Says that there are children whose calls are not recorded, as nobody has asked for them.
fn hint_at_children(pids: &[u32], target: &Target) {
    let children = descendants::of(pids);
    let users = |source: &LibrarySource| children.iter().filter(|&&pid| target::maps(pid, &source.library)).count();
    let most = target.libraries.iter().map(|source| (users(source), source)).max_by_key(|(users, _)| *users);
    if let Some((count, source)) = most.filter(|&(count, _)| count > 0) {
        let whose = if let [pid] = pids { format!("process {pid} has") } else { "these processes have".to_owned() };
        let those = if count == 1 { "1 child that maps".to_owned() } else { format!("{count} children that map") };
        tell!("{whose} {those} {}; --follow traces children, too", source.library.path);
    }
}

/// Records the processes; `armed` is called once all of them are.
fn record(
    options: &Attach,
    guard: &Guard,
    pids: &[u32],
    name: &str,
    stop: &AtomicBool,
    armed: impl FnOnce() + Send,
) -> anyhow::Result<Outcome> {
    let recording = &options.recording;
    let (target, able) = thread::scope(|scope| {
        let finding = scope.spawn(|| target::of_processes(pids, &options.selection.libraries));
        let able = mechanism().map(|mechanism| {
            let follow = recording.follow(false);
            (mechanism, plan_options(&options.selection, Some(mechanism), pids.len(), follow))
        });
        (finding.join().unwrap_or_else(|panic| resume_unwind(panic)), able)
    });
    let target = target?;
    if !recording.follow(false) {
        hint_at_children(pids, &target);
    }
    let watches = watch::of_processes(&recording.watches, &options.selection.libraries, pids)?;
    let (counters, watches) = counters(recording, &options.selection, watches)?;
    let (mechanism, plan_options) = able?;
    let plan_options = planning::Options { keeps_accesses: !watches.watches.is_empty(), ..plan_options };
    let subject = Subject::Processes(pids);
    let how = how_to_record(recording, guard, subject, mechanism, &plan_options, &counters, &watches)?;
    let (plan, loaded) = plan_and_load(target, &plan_options, &how);
    let directory = recording.directory(name, pids.first().copied().unwrap_or_default());
    let shown = describe(name, pids);
    let summary = Session {
        loaded,
        plan: &plan,
        libraries: &options.selection.libraries,
        options: how,
        plan_options,
        samplers: samplers(recording, &counters, &watches)?,
        directory: &directory,
        sinks: &recording.sinks,
        helper_user: recording.helper_user()?,
        target: &shown,
        live: !recording.no_tui,
        stop,
    }
    .record(|| {
        armed();
        if !stderr().is_terminal() {
            let regions: usize = plan.libraries.iter().map(|library| library.regions.len()).sum();
            tell!("recording {regions} functions of {shown}");
        }
        Ok(())
    })?;
    conclude(&summary, &directory);
    Ok(completeness(&summary, recording))
}

fn describe(name: &str, pids: &[u32]) -> String {
    let list: Vec<String> = pids.iter().map(u32::to_string).collect();
    format!("{name} ({})", list.join(", "))
}

fn program(pid: u32) -> String {
    let comm = std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    String::from_utf8_lossy(&comm).trim_end().to_owned()
}
