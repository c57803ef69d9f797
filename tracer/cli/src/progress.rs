//! The line of progress of a recording without a live view, and what it waits for.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use indicatif::{HumanCount, ProgressBar, ProgressStyle};
use rtrace::flight::WindowLog;
use rtrace::host;
use rtrace_model::{
    Definition, Event, EventKind, Item, LocationId, PathId, Process, Sink, SinkError, Timestamp, slowdown,
};

use super::message::tell;

/// How long the others may take to end when the first have, before that is worth a line, in nanoseconds.
const PATIENCE_NS: u64 = 1_000_000_000;

/// The exit code of a process that was killed by SIGKILL.
const KILLED: i32 = 128 + 9;

/// Of those that are waited for, so many are named.
const NAMED: usize = 4;

/// The processes that a recording waits for when those have ended that it is about.
pub struct Lingering {
    /// Those that it is about, of which some run.
    first: Vec<u32>,
    is_command: bool,
    running: BTreeMap<u32, Process>,
    /// When the last of the first ended.
    since: Option<Timestamp>,
    is_said: bool,
}

impl Lingering {
    /// Those of these processes, the first of which may be a command that we have started.
    pub fn of(first: Vec<u32>, is_command: bool) -> Lingering {
        Lingering { first, is_command, running: BTreeMap::new(), since: None, is_said: false }
    }

    fn learn(&mut self, process: &Process) {
        match process.end {
            None => _ = self.running.insert(process.pid, process.clone()),
            Some(end) => {
                self.running.remove(&process.pid);
                self.first.retain(|&pid| pid != process.pid);
                if self.first.is_empty() {
                    self.since.get_or_insert(end);
                }
            }
        }
    }

    /// What is waited for, the first time that this has been so for long.
    fn notice(&mut self, now: Timestamp) -> Option<String> {
        let is_long = self.since.is_some_and(|since| now.since(since) >= PATIENCE_NS);
        if self.is_said || !is_long || self.running.is_empty() {
            return None;
        }
        self.is_said = true;
        let whose = if self.is_command { "the command has" } else { "the named processes have" };
        let count = self.running.len();
        let run = if count == 1 { "runs" } else { "run" };
        let named = self.running.values().take(NAMED).map(named);
        let more = (count > NAMED).then(|| "…".to_owned());
        let list: Vec<String> = named.chain(more).collect();
        let list = list.join(", ");
        let rest = if self.is_command { "its processes" } else { "their children" };
        Some(format!("{whose} ended; {count} of {rest} still {run} ({list}); Ctrl-C ends the recording"))
    }
}

fn named(process: &Process) -> String {
    format!("{} {}", process.pid, process.name()).trim_end().to_owned()
}

/// How many processes the kernel has killed since the machine started because memory ran out.
fn killed_for_memory() -> Option<u64> {
    let statistics = std::fs::read_to_string("/proc/vmstat").ok()?;
    statistics.lines().find_map(|line| line.strip_prefix("oom_kill ")?.parse().ok())
}

/// A sink that counts, on standard error; silent where that is no terminal.
pub struct Progress {
    bar: ProgressBar,
    /// Calls with a record.
    recorded: u64,
    /// Calls by call path, where they are folded; they include those with a record.
    paths: HashMap<(LocationId, PathId), u64>,
    lost: u64,
    lingering: Option<Lingering>,
    /// The first process that was killed, and how many had been for lack of memory when the recording began.
    killed: Option<Process>,
    killed_before: Option<u64>,
    /// Whether that was said of a program.
    is_withheld: bool,
    /// Has what is to be said of windows.
    windows: Option<WindowLog>,
}

impl Progress {
    /// A line about the recording of `target`, which is a description for people; `lingering`: what may keep it going.
    pub fn new(target: &str, lingering: Option<Lingering>, windows: Option<WindowLog>) -> Progress {
        let bar = ProgressBar::new_spinner().with_prefix(rtrace_model::escape(target).into_owned());
        bar.set_style(
            ProgressStyle::with_template("{spinner} {prefix}: {msg}, {elapsed}").expect("the template is valid"),
        );
        bar.set_message("attaching");
        bar.enable_steady_tick(Duration::from_millis(250));
        let (paths, killed, killed_before) = (HashMap::new(), None, killed_for_memory());
        Progress { bar, recorded: 0, paths, lost: 0, lingering, killed, killed_before, is_withheld: false, windows }
    }

    fn show(&self) {
        let calls = if self.paths.is_empty() { self.recorded } else { self.paths.values().sum() };
        self.bar.set_message(format!("{} calls, {} lost", HumanCount(calls), HumanCount(self.lost)));
    }

    fn learn(&mut self, process: &Process) {
        if let Some(lingering) = &mut self.lingering {
            lingering.learn(process);
        }
        if process.exit_code == Some(KILLED) {
            self.killed.get_or_insert_with(|| process.clone());
        }
    }

    fn happened(&mut self, event: &Event) {
        match &event.kind {
            EventKind::Loss(loss) => self.lost += loss.count,
            EventKind::Armed => self.show(),
            EventKind::Withheld { program } if !std::mem::replace(&mut self.is_withheld, true) => {
                self.bar.suspend(|| {
                    tell!("program {program} has privileges that you do not have: run rtrace as root to record it");
                })
            }
            EventKind::Slowdown { percent } => self.bar.suspend(|| {
                tell!("{}", slowdown(*percent));
            }),
            _ => {}
        }
    }

    fn tell_news(&mut self) {
        self.show();
        if let Some(notice) = self.lingering.as_mut().and_then(|lingering| lingering.notice(host::now())) {
            self.bar.suspend(|| tell!("{notice}"));
        }
        for news in self.windows.iter().flat_map(WindowLog::take_news) {
            self.bar.suspend(|| tell!("{news}"));
        }
    }

    fn end(&mut self) {
        self.bar.finish_and_clear();
        if let Some(killed) = self.killed.take().filter(|_| killed_for_memory() > self.killed_before) {
            tell!("process {} was killed (SIGKILL), as memory ran out", rtrace_model::escape(&named(&killed)));
        }
    }
}

impl Sink for Progress {
    fn take(&mut self, item: &Item) -> Result<(), SinkError> {
        match item {
            Item::Define(definitions) => {
                for definition in definitions {
                    if let Definition::Process(process) = definition {
                        self.learn(process);
                    }
                }
            }
            Item::Calls(batch) => self.recorded += batch.len() as u64,
            Item::Profile(paths) => {
                self.paths.extend(paths.iter().map(|path| ((path.location, path.path), path.calls)));
            }
            Item::Event(event) => self.happened(event),
            Item::Tick => self.tell_news(),
            Item::Finish(_) => self.end(),
            _ => {}
        }
        Ok(())
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, end: Option<u64>) -> Process {
        Process {
            pid,
            parent: None,
            start: Timestamp(0),
            end: end.map(Timestamp),
            executable: "/bin/sleep".to_owned(),
            command_line: Vec::new(),
            exit_code: None,
            rank: None,
        }
    }

    #[test]
    fn what_is_waited_for_is_said_once_when_it_takes_long() {
        let mut lingering = Lingering::of(vec![1], true);
        for pid in 1..=3 {
            lingering.learn(&process(pid, None));
        }
        assert_eq!(lingering.notice(Timestamp(9 * PATIENCE_NS)), None, "the command runs");
        lingering.learn(&process(1, Some(7)));
        assert_eq!(lingering.notice(Timestamp(PATIENCE_NS)), None, "it is not long ago");
        let said = "the command has ended; 2 of its processes still run (2 sleep, 3 sleep); Ctrl-C ends the recording";
        assert_eq!(lingering.notice(Timestamp(PATIENCE_NS + 7)).as_deref(), Some(said));
        assert_eq!(lingering.notice(Timestamp(9 * PATIENCE_NS)), None);
    }

    #[test]
    fn one_is_one_and_of_many_some_are_named() {
        let mut lingering = Lingering::of(vec![1, 2], false);
        lingering.learn(&process(1, Some(7)));
        lingering.learn(&process(3, None));
        assert_eq!(lingering.notice(Timestamp(9 * PATIENCE_NS)), None, "one of two runs");
        lingering.learn(&process(2, Some(7)));
        let said = lingering.notice(Timestamp(9 * PATIENCE_NS)).unwrap_or_default();
        assert!(
            said.starts_with("the named processes have ended; 1 of their children still runs (3 sleep);"),
            "{said}"
        );
        lingering.is_said = false;
        for pid in 4..9 {
            lingering.learn(&process(pid, None));
        }
        let said = lingering.notice(Timestamp(9 * PATIENCE_NS)).unwrap_or_default();
        assert!(said.contains("6 of their children still run (3 sleep, 4 sleep, 5 sleep, 6 sleep, …);"), "{said}");
    }
}
