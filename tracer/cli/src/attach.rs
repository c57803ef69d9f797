//! `rtrace attach`: traces running processes.

use std::io::{IsTerminal as _, stderr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rtrace::record::guard::Guard;
use rtrace::session::{self, FoundTarget, TracedProgram};
use rtrace::target;
use rtrace::target::Target;
use rtrace::target::descendants;
use rtrace::target::names;
use rtrace::target::privilege::{self, shell_quote};
use rtrace::target::proc_files::comm;
use rtrace_model::{Percent, counted};
use rtrace_plan::LibrarySource;

use super::args::Attach;
use super::libs::{self, Survey};
use super::message::{Hint as _, tell};
use super::record::{Show, completeness, record, say_unknown_sources};
use super::{Outcome, interrupt, pick, processes};

/// What tracing may take of the CPU time of running programs, unless another limit is named: whoever uses them did not ask for
/// it.
const DEFAULT_BUDGET: Percent = Percent(15_000);

/// Children of the processes named may end while a recording is prepared: after so many times none are prepared for,
/// and all get their probes as those do that come later.
const MOST_ATTEMPTS: u32 = 3;

/// Records until the time is over, the processes have ended, or the user says so.
///
/// Processes that end before their probes are in place are left out, with a word on each.
pub fn attach(options: &Attach) -> anyhow::Result<Outcome> {
    let guard = Guard::start()?;
    let is_interactive = !options.recording.no_tui && rtrace_tui::is_possible();
    let stop = Arc::new(AtomicBool::new(false));
    interrupt::handle(&stop)?;
    let chosen = match processes(options, is_interactive, &stop)? {
        AttachChoice::Made(pids) => pids,
        AttachChoice::None(outcome) => return Ok(outcome),
    };
    let chosen = living(chosen);
    session::check(&chosen)?;
    let mut how = options.recording.options(&options.selection, false, Some(DEFAULT_BUDGET))?;
    how.groups = processes::groups(&options.processes)?;
    if !how.groups.is_empty() {
        how.follow = true;
        tell!("processes that join later are recorded, too, unless they end within 100 ms");
    }
    if how.libraries.is_empty() {
        how.libraries = match libraries(&chosen, is_interactive, &stop)? {
            AttachChoice::Made(libraries) => libraries,
            AttachChoice::None(outcome) => return Ok(outcome),
        };
    }
    let name = comm(chosen.first().copied().unwrap_or_default());
    let mut named = chosen.clone();
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
        let runs = |pid: &u32| !privilege::has_ended(*pid);
        let (living, ended): (Vec<u32>, Vec<u32>) = named.iter().partition(|&pid| runs(pid));
        if is_armed || pids.iter().all(runs) {
            return Err(error);
        }
        if living.is_empty() {
            return Err(anyhow::anyhow!(
                "failed to trace {}: ended before its probes were in place",
                describe(&name, &chosen)
            ))
            .hint("let rtrace start it, so that it waits for its probes: rtrace run … -- COMMAND");
        }
        for pid in ended {
            tell!("process {pid} ended before its probes were in place: none of its calls are recorded");
        }
        named = living;
    }
}

/// Those that run, with a word on each of the others; all if none does. A list may be some time old.
fn living(chosen: Vec<u32>) -> Vec<u32> {
    let does_not_run = |pid: &&u32| {
        let checked = privilege::check_process(**pid);
        matches!(checked, Err(privilege::Error::NoProcess(_) | privilege::Error::NoMemory { .. }))
    };
    let (ended, living): (Vec<u32>, Vec<u32>) = chosen.iter().partition(does_not_run);
    if living.is_empty() {
        return chosen;
    }
    for pid in ended {
        tell!("process {pid} has ended, or is a kernel thread: it is left out");
    }
    living
}

/// What the user chose, or how it ends if that is nothing.
enum AttachChoice<T> {
    Made(T),
    None(Outcome),
}

impl<T> AttachChoice<T> {
    /// `None` if the user has left a list.
    fn of(made: Option<T>) -> AttachChoice<T> {
        made.map_or(AttachChoice::None(Outcome::Complete), AttachChoice::Made)
    }
}

/// The processes that are meant.
fn processes(options: &Attach, is_interactive: bool, stop: &AtomicBool) -> anyhow::Result<AttachChoice<Vec<u32>>> {
    match (options.processes.is_empty(), is_interactive) {
        (true, true) => {
            session::check(&[])?;
            pick::process(stop).map(AttachChoice::of)
        }
        (true, false) => {
            let remedy = "rtrace attach NAME --lib LIB, or rtrace attach -p PID --lib LIB; on a terminal, \
                          `rtrace attach` shows lists to choose from";
            Ok(AttachChoice::None(super::usage("failed to attach: no process is named", remedy)))
        }
        (false, _) => {
            // Without privileges no process is in reach: that is to be said, and not of the first of them.
            session::check(&[])?;
            processes::find(&options.processes).map(AttachChoice::Made)
        }
    }
}

/// Lets the user choose libraries, or shows which there are.
fn libraries(pids: &[u32], is_interactive: bool, stop: &AtomicBool) -> anyhow::Result<AttachChoice<Vec<String>>> {
    let target = describe(&comm(pids.first().copied().unwrap_or_default()), pids);
    if is_interactive {
        // Of large programs that takes seconds.
        tell!("looking at the libraries of {target}");
    }
    let survey = Survey::of(pids)?;
    let choices = survey.choices(None);
    let Some(first) = libs::suggestion(&choices) else {
        return Err(anyhow::anyhow!("failed to find functions in the libraries of {target}"));
    };
    if is_interactive {
        let chosen = AttachChoice::of(pick::libraries(pids, &survey, &target, stop)?);
        if let AttachChoice::Made(libraries) = &chosen {
            let libraries: Vec<String> = libraries.iter().map(|name| format!(" --lib {}", shell_quote(name))).collect();
            let pids = pids.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
            tell!("the same again: rtrace attach -p {pids}{}", libraries.concat());
        }
        return Ok(chosen);
    }
    let words = std::env::args_os().skip(1).map(|word| shell_quote(&word));
    let line: Vec<String> = words.chain([libs::option(first)]).collect();
    let table = libs::table(&choices, None, None);
    let missing = format!("failed to attach to {target}: no library is named; it has these\n\n{}", table.trim_end());
    let hint = format!("rtrace {}\n`rtrace libs --sample` shows which of them use CPU time", line.join(" "));
    Ok(AttachChoice::None(super::usage(&missing, hint)))
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
    let found = FoundTarget::find(guard, how, TracedProgram::Running(pids))?;
    say_unknown_sources(found.without_sources());
    found.remarks().iter().for_each(|remark| tell!("{remark}"));
    if !how.follow {
        hint_at_children(pids, found.target());
    }
    let ready = found.plan()?.start()?;
    let regions: usize = ready.plan().libraries.iter().map(|library| library.regions.len()).sum();
    let recorded = record(ready, show, |_| {
        armed();
        if !stderr().is_terminal() && !show.stop.load(Ordering::Relaxed) {
            tell!("recording {} of {}", counted(regions as u64, "function"), show.target);
        }
        Ok(())
    })?;
    recorded.conclude(show.directory)?;
    Ok(completeness(&recorded.summary, &options.recording))
}

fn describe(name: &str, pids: &[u32]) -> String {
    format!("{name} ({})", names::list(pids))
}
