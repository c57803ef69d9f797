//! What is done at once when chosen functions enter or leave: a command is run, or a text written to a file.
//!
//! The program never waits for it: the kernel side only wakes a thread here. A command that still runs is not started
//! again, which is counted.

use std::collections::HashMap;
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
        format!("{}:{}", self.function.text(), if self.moment == ENTER { "enter" } else { "leave" })
    }

    /// What came of it so far.
    pub fn outcome(&self) -> ActionOutcome {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Does it; `running`: its command's process.
    fn act(&self, region: &Region, moment: &MomentRecord, user: Option<&User>, running: &mut Option<Child>) {
        let still_runs = running.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)));
        let acted = match &self.what {
            Deed::Run(_) if still_runs => None,
            Deed::Run(command) => {
                let mut shell = user::shell(command, user);
                shell.stdin(Stdio::null()).env("RTRACE_FUNCTION", &region.name);
                shell.env("RTRACE_PID", moment.pid.to_string()).env("RTRACE_TID", moment.tid.to_string());
                Some(shell.spawn().map(|child| *running = Some(child)))
            }
            Deed::Write { file, text } => Some(std::fs::write(file, text)),
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
            let is_meant = |&place: &usize| self.actions[place].function.matches(&region.name);
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
        running.into_iter().flatten().for_each(|mut child| drop(child.try_wait()));
        Ok(())
    }
}
