//! How true the corrected times of reports are, of functions whose bodies take a known time.
//!
//! The program calls each function in turns with a copy that is not traced, and times that: a machine
//! beside others is not as fast all the time, so what was measured before or after would not be the truth.
//! What else runs would be in the one and not in the other, so the program has a CPU of its own as far as
//! the scheduler can give it one.

use std::collections::HashMap;
use std::process::Command;
use std::thread::{available_parallelism, sleep};
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::figures::{Goal, Ratios};
use super::subject::Worker;
use super::tracer::{self, BenchSelection};
use super::{Bench, BenchLine, compile};

/// Functions of the program, with how often each is called.
const FUNCTIONS: [(&str, u32); 7] = [
    ("pushing_short", 10_000),
    ("pushing_long", 4_000),
    ("stepped_short", 10_000),
    ("stepped_long", 4_000),
    ("calling_short", 10_000),
    ("calling_long", 4_000),
    (CALLEE, 10_000),
];

/// What the calling functions call.
const CALLEE: &str = "callee";

/// Recordings, by rtrace's options.
const RECORDINGS: [&[&str]; 2] = [&[], &["--mode", "profile"]];

/// A line of the table.
struct CorrectedCase {
    what: &'static str,
    /// The function with the short and the one with the long body begin so.
    functions: &'static str,
    /// Which of the recordings.
    recording: usize,
}

const KINDS: [CorrectedCase; 4] = [
    CorrectedCase { what: "a return site", functions: "pushing", recording: 0 },
    CorrectedCase { what: "its entry single-stepped", functions: "stepped", recording: 0 },
    CorrectedCase { what: "a traced call in it", functions: "calling", recording: 0 },
    CorrectedCase { what: "its calls aggregated by `--mode profile`", functions: "pushing", recording: 1 },
];

const BODIES: [(&str, &str); 2] = [("1 us", "short"), ("10 us", "long")];

/// The most that a corrected time may be off, in percent.
const MOST: f64 = 5.0;

/// Within this time a return site is placed.
const PAUSE: Duration = Duration::from_millis(200);

/// Nanoseconds of a call, by function.
type Times = HashMap<&'static str, f64>;

/// What the report says of a call, in nanoseconds.
#[derive(Clone, Copy, Default)]
struct Reported {
    recorded: f64,
    /// Corrected, and its error; none where the report does not correct.
    corrected: Option<(f64, f64)>,
}

/// Of one round and function.
struct RoundTimes {
    truth: f64,
    reported: Reported,
}

impl Bench {
    /// Exclusive times of functions with bodies of 1 and 10 microseconds.
    pub(super) fn corrected(&self) -> Result<Vec<BenchLine>> {
        let program = compile("spin", &[], &[], &self.folder)?;
        let last_cpu = available_parallelism().context("failed to count CPUs")?.get() - 1;
        let mut placed = Command::new("chrt");
        placed.args(["--fifo", "10", "taskset", "--cpu-list", &last_cpu.to_string()]).arg(&program);
        let mut subject = Worker::start(&mut placed, "callee 1 10000\n")?;
        let mut outcomes: HashMap<(usize, &str), Vec<RoundTimes>> = HashMap::new();
        for _ in 0..self.rounds {
            for (recording, options) in RECORDINGS.into_iter().enumerate() {
                let (truth, reported) = self.reported(&mut subject, options)?;
                for (name, _) in FUNCTIONS {
                    let outcome = RoundTimes { truth: truth[name], reported: reported[name] };
                    outcomes.entry((recording, name)).or_default().push(outcome);
                }
            }
        }
        let mut lines = Vec::new();
        for kind in KINDS {
            for (length, body) in BODIES {
                let function = format!("{}_{body}", kind.functions);
                lines.push(line(&kind, length, &outcomes[&(kind.recording, function.as_str())]));
            }
        }
        Ok(lines)
    }

    /// Exclusive times of all functions in a recording, and of their copies.
    fn reported(&self, subject: &mut Worker, options: &[&str]) -> Result<(Times, HashMap<&'static str, Reported>)> {
        let selection = BenchSelection {
            libraries: vec!["exe".to_owned()],
            functions: FUNCTIONS.map(|(name, _)| name.to_owned()).into(),
            options: options.iter().map(|&option| option.to_owned()).collect(),
            ..BenchSelection::default()
        };
        let rtrace = self.tools.rtrace(subject.pid(), &selection)?;
        // All functions are called from one place, whose return site is placed when it is first met.
        subject.set_work(&format!("{CALLEE} 1 1000\n"));
        subject.answer()?;
        sleep(PAUSE);
        let truth = truth(subject)?;
        tracer::end(rtrace)?;
        let report = self.tools.report(&[])?;
        let mut reported = HashMap::new();
        for (name, _) in FUNCTIONS {
            let row = report.iter().find(|row| row["function"] == name);
            let row = row.with_context(|| format!("failed to find `{name}` in the report"))?;
            let figure =
                |column: &str| row[column].parse::<f64>().with_context(|| format!("failed to read `{column}`"));
            let calls = figure("timed")?;
            let corrected = match row["exclusive_corrected_ns"].as_str() {
                "" => None,
                _ => Some((figure("exclusive_corrected_ns")? / calls, figure("exclusive_error_ns")? / calls)),
            };
            reported.insert(name, Reported { recorded: figure("exclusive_ns")? / calls, corrected });
        }
        Ok((truth, reported))
    }
}

fn line(kind: &CorrectedCase, length: &str, outcomes: &[RoundTimes]) -> BenchLine {
    let median = |figures: Vec<f64>| Ratios(figures).median();
    let truth = median(outcomes.iter().map(|outcome| outcome.truth).collect());
    let recorded = median(outcomes.iter().map(|outcome| outcome.reported.recorded).collect());
    let corrected: Vec<_> =
        outcomes.iter().filter_map(|outcome| Some((outcome.truth, outcome.reported.corrected?))).collect();
    if corrected.len() < outcomes.len() {
        return BenchLine {
            what: format!("recorded time of {length}, {}", kind.what),
            unit: "× untraced",
            ratios: Ratios(outcomes.iter().map(|outcome| outcome.reported.recorded / outcome.truth).collect()),
            goal: None,
            remark: format!(
                "{truth:.0} ns untraced, {recorded:.0} recorded; not corrected in {} of {} rounds",
                outcomes.len() - corrected.len(),
                outcomes.len()
            ),
        };
    }
    let is_true = |(truth, (corrected, error)): &&(f64, (f64, f64))| (corrected - truth).abs() <= *error;
    BenchLine {
        what: format!("error of the corrected time of {length}, {}", kind.what),
        unit: "%",
        ratios: Ratios(
            corrected.iter().map(|(truth, (corrected, _))| (corrected / truth - 1.0).abs() * 100.0).collect(),
        ),
        goal: Some(Goal(MOST)),
        remark: format!(
            "{truth:.0} ns untraced, {recorded:.0} recorded, {:.0} corrected, stated uncertainty {:.0}; true in {} of {} rounds",
            median(corrected.iter().map(|(_, (corrected, _))| *corrected).collect()),
            median(corrected.iter().map(|(_, (_, error))| *error).collect()),
            corrected.iter().filter(is_true).count(),
            corrected.len()
        ),
    }
}

/// The time of a call of each function's copy, without the function that it calls.
fn truth(subject: &mut Worker) -> Result<Times> {
    let mut times = times(subject)?;
    let callee = times[CALLEE];
    for calling in ["calling_short", "calling_long"] {
        times.entry(calling).and_modify(|time| *time -= callee);
    }
    Ok(times)
}

/// Calls all functions and their copies, and gives the time of a copy.
fn times(subject: &mut Worker) -> Result<Times> {
    let mut times = Times::new();
    for (name, calls) in FUNCTIONS {
        subject.set_work(&format!("{name} 1 {calls}\n"));
        let answer = subject.answer()?;
        let took = answer.strip_prefix("took ").and_then(|time| time.parse::<f64>().ok());
        let took = took.with_context(|| format!("failed to understand `{answer}`"))?;
        times.insert(name, took / f64::from(calls));
    }
    Ok(times)
}
