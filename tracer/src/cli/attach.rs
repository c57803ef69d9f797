//! `rtrace attach`: traces running processes.

use std::io::{IsTerminal as _, stderr};
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;

use anyhow::Context as _;
use rtrace::recorder::Subject;
use rtrace::{plan as planning, privilege, target, watch};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::Outcome;
use super::args::Attach;
use super::message::{Hint as _, tell};
use super::record::{
    Session, check_processes, completeness, conclude, counters, how_to_record, mechanism, plan_and_load, plan_options,
    samplers,
};

/// Records until the time is over, the processes have ended, or the user says so.
///
/// Processes that end before their probes are in place are left out, with a word on each.
pub fn attach(options: &Attach) -> anyhow::Result<Outcome> {
    check_processes(&options.pids)?;
    let name = program(options.pids.first().copied().unwrap_or_default());
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("failed to handle signals")?;
    }
    let mut pids = options.pids.clone();
    loop {
        let mut is_armed = false;
        let recorded = record(options, &pids, &name, &stop, || is_armed = true);
        let Err(error) = recorded else { return recorded };
        let (living, ended): (Vec<u32>, Vec<u32>) =
            pids.iter().partition(|&&pid| privilege::check_process(pid).is_ok());
        if is_armed || ended.is_empty() {
            return Err(error);
        }
        if living.is_empty() {
            return Err(anyhow::anyhow!(
                "failed to trace {}: ended before its probes were in place",
                describe(&name, &options.pids)
            ))
            .hint("start it with rtrace, which then has it wait for its probes: rtrace run … -- COMMAND");
        }
        for pid in ended {
            tell!("process {pid} ended before its probes were in place: nothing of it is recorded");
        }
        pids = living;
    }
}

/// Records the processes; `armed` is called once all of them are.
fn record(
    options: &Attach,
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
    let watches = watch::of_processes(&recording.watches, &options.selection.libraries, pids)?;
    let (counters, watches) = counters(recording, &options.selection, watches)?;
    let (mechanism, plan_options) = able?;
    let plan_options = planning::Options { keeps_accesses: !watches.watches.is_empty(), ..plan_options };
    let subject = Subject::Processes(pids);
    let how = how_to_record(recording, subject, mechanism, &plan_options, &counters, &watches);
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
