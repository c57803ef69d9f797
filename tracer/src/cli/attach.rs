//! `rtrace attach`: traces running processes.

use std::io::{IsTerminal as _, stderr};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rtrace::guard::Guard;
use rtrace::session::{self, Found, Program};
use rtrace::target::Target;
use rtrace::{descendants, privilege, target};
use rtrace_plan::LibrarySource;

use super::Outcome;
use super::args::Attach;
use super::interrupt;
use super::message::{Hint as _, tell};
use super::record::{Show, completeness, record, say_hazard, say_unknown_sources};

/// Children of the processes named may end while a recording is prepared: after so many times none are prepared for,
/// and all get their probes as those do that come later.
const MOST_ATTEMPTS: u32 = 3;

/// Records until the time is over, the processes have ended, or the user says so.
///
/// Processes that end before their probes are in place are left out, with a word on each.
pub fn attach(options: &Attach) -> anyhow::Result<Outcome> {
    let guard = Guard::start()?;
    session::check(&options.pids)?;
    let how = options.recording.options(&options.selection, false)?;
    say_hazard(&how);
    let name = program(options.pids.first().copied().unwrap_or_default());
    let stop = Arc::new(AtomicBool::new(false));
    interrupt::handle(&stop)?;
    let mut named = options.pids.clone();
    let mut attempts = 0;
    loop {
        let mut is_armed = false;
        attempts += 1;
        let pids = if how.follow && attempts <= MOST_ATTEMPTS { family(&named) } else { named.clone() };
        let show = Show {
            directory: &options.recording.directory(&name, pids.first().copied().unwrap_or_default()),
            sinks: &options.recording.sinks,
            keep: &options.recording.keep,
            listen: options.recording.listen,
            target: &describe(&name, &pids),
            live: !options.recording.no_tui,
            stop: &stop,
        };
        let recorded = record_processes(options, &how, &guard, &pids, &show, || is_armed = true);
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

/// The processes named, and the children that they have already.
fn family(named: &[u32]) -> Vec<u32> {
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
fn record_processes(
    options: &Attach,
    how: &session::Options,
    guard: &Guard,
    pids: &[u32],
    show: &Show<'_>,
    armed: impl FnOnce() + Send,
) -> anyhow::Result<Outcome> {
    let found = Found::find(guard, how, Program::Running(pids))?;
    say_unknown_sources(found.without_sources());
    if !how.follow {
        hint_at_children(pids, found.target());
    }
    let ready = found.plan()?.start()?;
    let regions: usize = ready.plan().libraries.iter().map(|library| library.regions.len()).sum();
    let recorded = record(ready, show, |_| {
        armed();
        if !stderr().is_terminal() {
            tell!("recording {regions} functions of {}", show.target);
        }
        Ok(())
    })?;
    recorded.conclude(show.directory);
    Ok(completeness(&recorded.summary, &options.recording))
}

fn describe(name: &str, pids: &[u32]) -> String {
    let list: Vec<String> = pids.iter().map(u32::to_string).collect();
    format!("{name} ({})", list.join(", "))
}

fn program(pid: u32) -> String {
    let comm = std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    String::from_utf8_lossy(&comm).trim_end().to_owned()
}
