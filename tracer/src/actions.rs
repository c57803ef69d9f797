//! What is done at once when chosen functions enter or leave: a command is run, or a text written to a file.
//!
//! The program never waits for it: the kernel side only wakes a thread here. A command that still runs is not started
//! again, which is counted.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rtrace_bpf::wire::MomentRecord;
use rtrace_bpf::{ENTER, Error, LEAVE, Programs};
use rtrace_model::Region;
use rtrace_plan::Pattern;

use crate::host;
use crate::target::user::{self, User};

/// Longest wait for the end.
const PATIENCE: Duration = Duration::from_millis(50);

/// Delays that are kept of an action.
const MOST_DELAYS: usize = 1 << 16;

/// Something to do when a function enters or leaves.
#[derive(Clone, Debug)]
pub struct RegionAction {
    function: Pattern,
    moment: u32,
    what: Deed,
    outcome: Arc<Mutex<ActionOutcome>>,
}

#[derive(Clone, Debug)]
enum Deed {
    Run(String),
    Write { file: String, text: String },
}

/// What came of an action.
#[derive(Clone, Debug, Default)]
pub struct ActionOutcome {
    /// How often it was done.
    pub done: u64,
    /// How often its command ended with an error, as far as it has ended.
    pub failed: u64,
    /// How often it was not, as its command still ran.
    pub skipped: u64,
    /// Moments of all actions that came faster than rtrace took them.
    pub missed: u64,
    /// What went wrong last.
    pub error: Option<String>,
    /// Nanoseconds from the moment to the end of the write, or to the start of the command's process; of the first ones.
    pub delays: Vec<u64>,
}

impl RegionAction {
    /// `on`: function and moment, as `solve:enter`; `what`: a command for the shell, or `>FILE TEXT`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(on: &str, what: &str) -> Result<RegionAction, String> {
        let (function, moment) = match on.rsplit_once(':') {
            Some((function, "enter")) => (function, ENTER),
            Some((function, "leave")) => (function, LEAVE),
            _ => return Err(format!("`{on}` does not end in `:enter` or `:leave`")),
        };
        let function = function.parse().map_err(|error| format!("`{function}` is no pattern: {error}"))?;
        let what = match what.strip_prefix('>') {
            None => Deed::Run(what.to_owned()),
            Some(write) => match write.trim_start().split_once(' ') {
                Some((file, text)) => Deed::Write { file: file.to_owned(), text: format!("{text}\n") },
                None => return Err(format!("`{what}` has no text behind the name of the file")),
            },
        };
        Ok(RegionAction { function, moment, what, outcome: Arc::default() })
    }

    /// What it is for, as it was asked for.
    pub fn text(&self) -> String {
        format!("{}:{}", self.pattern(), if self.moment == ENTER { "enter" } else { "leave" })
    }

    /// Whether it is for this function, by any of its names.
    pub fn is_about(&self, region: &Region) -> bool {
        let mut names = [&region.name].into_iter().chain(region.symbols.iter().map(|name| &name.symbol));
        names.any(|name| self.function.matches(name))
    }

    /// The functions that it is for, as they were asked for.
    pub fn pattern(&self) -> String {
        self.function.text()
    }

    /// What came of it so far.
    pub fn outcome(&self) -> ActionOutcome {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether its command still runs; one that has ended is done with.
    fn still_runs(&self, running: &mut Option<Child>) -> bool {
        let Some(Ok(ended)) = running.as_mut().map(Child::try_wait) else { return false };
        let Some(status) = ended else { return true };
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner).failed += u64::from(!status.success());
        *running = None;
        false
    }

    /// Does it; `running`: its command's process.
    fn act(&self, region: &Region, moment: &MomentRecord, user: Option<&User>, running: &mut Option<Child>) {
        let acted = match &self.what {
            Deed::Run(_) if self.still_runs(running) => None,
            Deed::Run(command) => {
                let mut shell = user::shell(command, user);
                shell.stdin(Stdio::null()).env("RTRACE_FUNCTION", &region.name);
                shell.env("RTRACE_PID", moment.pid.to_string()).env("RTRACE_TID", moment.tid.to_string());
                // A command is not ahead of the program: only what starts it is.
                Some(host::usually(|| shell.spawn()).map(|child| *running = Some(child)))
            }
            Deed::Write { file, text } => Some(write(file, text)),
        };
        let delay = host::now().0.saturating_sub(moment.time);
        let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        match acted {
            None => outcome.skipped += 1,
            Some(Err(error)) => outcome.error = Some(error.to_string()),
            Some(Ok(())) => {
                outcome.done += 1;
                if outcome.delays.len() < MOST_DELAYS {
                    outcome.delays.push(delay);
                }
            }
        }
    }
}

/// Writes to a file; a pipe that nobody reads is an error, and no reason to wait.
fn write(file: &str, text: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).custom_flags(libc::O_NONBLOCK);
    options.open(file)?.write_all(text.as_bytes())
}

/// The actions of a recording.
pub struct Actions<'a> {
    programs: &'a Programs,
    actions: &'a [RegionAction],
    user: Option<&'a User>,
    /// Functions with actions, each with the places of these.
    regions: Mutex<HashMap<u32, (Region, Vec<usize>)>>,
}

impl<'a> Actions<'a> {
    /// These actions; commands run as `user`, if not as we do.
    pub fn new(programs: &'a Programs, actions: &'a [RegionAction], user: Option<&'a User>) -> Actions<'a> {
        Actions { programs, actions, user, regions: Mutex::default() }
    }

    /// Acts on those of these functions that are meant, too.
    ///
    /// # Errors
    /// There is no room for more.
    pub fn choose(&self, regions: &[Region]) -> Result<(), Error> {
        for region in regions {
            let is_meant = |&place: &usize| self.actions[place].is_about(region);
            let places: Vec<usize> = (0..self.actions.len()).filter(is_meant).collect();
            let moments = places.iter().fold(0, |moments, &place| moments | self.actions[place].moment);
            if moments != 0 {
                let mut regions = self.regions.lock().unwrap_or_else(PoisonError::into_inner);
                regions.insert(region.id.0, (region.clone(), places));
                drop(regions);
                self.programs.act_on(region.id, moments)?;
            }
        }
        Ok(())
    }

    /// Acts until `is_over`.
    ///
    /// # Errors
    /// The ring cannot be read.
    pub fn run(&self, is_over: &AtomicBool) -> Result<(), Error> {
        let _ahead = host::run_first();
        let mut running: Vec<Option<Child>> = self.actions.iter().map(|_| None).collect();
        let missed = self.programs.act(
            PATIENCE,
            || is_over.load(Ordering::Relaxed),
            |moment| {
                let regions = self.regions.lock().unwrap_or_else(PoisonError::into_inner);
                let Some((region, places)) = regions.get(&moment.region) else { return };
                for &place in places.iter().filter(|&&place| self.actions[place].moment & moment.kind != 0) {
                    self.actions[place].act(region, &moment, self.user, &mut running[place]);
                }
            },
        )?;
        for action in self.actions {
            action.outcome.lock().unwrap_or_else(PoisonError::into_inner).missed = missed;
        }
        // Who was started last may end by itself.
        for (action, child) in self.actions.iter().zip(&mut running) {
            action.still_runs(child);
        }
        Ok(())
    }
}
