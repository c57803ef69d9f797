//! `rtrace attach`: traces running processes.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context as _;
use rtrace::recorder::{Options, Subject};
use rtrace::{plan as planning, target, watch};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::Outcome;
use super::args::Attach;
use super::record::{
    Session, check_processes, completeness, conclude, counters, mechanism, plan, plan_options, samplers,
};

/// Records until the time is over, the processes have ended, or the user says so.
pub fn attach(options: &Attach) -> anyhow::Result<Outcome> {
    check_processes(&options.pids)?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("failed to handle signals")?;
    }
    let target = target::of_processes(&options.pids, &options.selection.libraries)?;
    let recording = &options.recording;
    let watches = watch::of_processes(&recording.watches, &options.selection.libraries, &options.pids)?;
    let (counters, watches) = counters(recording, &options.selection, watches)?;
    let mechanism = mechanism()?;
    let plan_options = planning::Options {
        keeps_accesses: !watches.watches.is_empty(),
        ..plan_options(&options.selection, Some(mechanism), options.pids.len(), recording.follow(false))
    };
    let plan = plan(target, &plan_options);
    let pid = options.pids.first().copied().unwrap_or_default();
    let name = program(pid);
    let directory = recording.directory(&name, pid);
    let summary = Session {
        plan: &plan,
        libraries: &options.selection.libraries,
        options: Options {
            steps: plan_options.emulated.steps,
            subject: Subject::Processes(&options.pids),
            mechanism,
            ring_bytes: recording.buffer,
            follow: recording.follow(false),
            profile: recording.profile(),
            fold: &recording.fold,
            duration: recording.duration,
            budget: recording.budget,
            counters: &counters,
            watches: &watches,
            stubs: None,
        },
        plan_options,
        samplers: samplers(recording, &counters, &watches)?,
        directory: &directory,
        sinks: &recording.sinks,
        target: &describe(&name, &options.pids),
        live: !recording.no_tui,
        stop: &stop,
    }
    .record(|| Ok(()))
    // A process that ended meanwhile is the true cause of whatever failed.
    .or_else(|error| check_processes(&options.pids).and(Err(error)))?;
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
