//! What `--budget` promises of a tight loop: that it is slowed down by no more, soon and for good, and
//! that the number of calls is still known.
//!
//! The program counts its calls, and tells each quarter of a second what one takes of its CPU time. In a
//! round it runs untraced, with a budget from its begin to its end, and untraced again.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Error, Result, ensure};

use super::figures::{Goal, Ratios};
use super::tracer::{self, BenchSelection};
use super::{Bench, BenchLine, compile};
use crate::running::Running;

/// The budget in percent, and how wrong an estimate may be.
const PERCENT: f64 = 5.0;

/// How long the program runs, untraced and traced.
const UNTRACED_SECONDS: &str = "1.5";
const TRACED_SECONDS: &str = "6";

/// Milliseconds until the slowdown has settled.
const SETTLED: f64 = 2_000.0;

/// What the program says of itself.
#[derive(Default)]
struct ProgramAnswer {
    /// At the end of each quarter of a second: milliseconds since the begin, and nanoseconds of a call.
    rates: Vec<(f64, f64)>,
    /// Calls of the function in the loop.
    calls: f64,
}

impl Bench {
    /// The function of 50 ns in a tight loop.
    pub(super) fn budget(&self) -> Result<Vec<BenchLine>> {
        let program = compile("budget", &["-pthread"], &[], &self.folder)?;
        let selection = BenchSelection {
            libraries: vec!["exe".to_owned()],
            functions: ["hot", "rare*"].map(str::to_owned).into(),
            options: vec!["--budget".to_owned(), format!("{PERCENT}%")],
            ..BenchSelection::default()
        };
        let (mut slowdowns, mut highest) = (Vec::new(), Vec::new());
        let (mut natives, mut noise, mut within) = (Vec::new(), Vec::new(), 0);
        for _ in 0..self.rounds {
            let untraced_once = || Ok::<_, Error>(ProgramAnswer::of(start(&program, UNTRACED_SECONDS)?)?.after(0.0));
            let mut untraced = untraced_once()?;
            let run = start(&program, TRACED_SECONDS)?;
            let rtrace = self.tools.rtrace(run.pid(), &selection)?;
            let told = ProgramAnswer::of(run)?;
            tracer::end(rtrace)?;
            untraced.extend(untraced_once()?);
            let native = mean(&untraced);
            let percent = |time: f64| (time / native - 1.0) * 100.0;
            slowdowns.push(percent(mean(&told.after(SETTLED))));
            highest.push(percent(highest_half_second(&told.after(SETTLED))));
            noise.push(percent(highest_half_second(&untraced)));
            natives.push(native);
            within += u32::from(self.calls_of("hot")? <= told.calls);
        }
        let line = |what: &str, ratios, remark| BenchLine {
            what: what.to_owned(),
            unit: "%",
            ratios: Ratios(ratios),
            goal: Some(Goal(PERCENT)),
            remark,
        };
        let rounds = self.rounds;
        Ok(vec![
            line(
                "slowdown of a tight loop by `--budget 5%`, after 2 s",
                slowdowns,
                format!("of a function that takes {:.0} ns untraced", Ratios(natives).median()),
            ),
            line(
                "its highest half-second after that",
                highest,
                format!(
                    "untraced, the highest is {:.1} % above the mean; what is said of the number of its calls was \
                     true in {within} of {rounds} rounds",
                    Ratios(noise).median()
                ),
            ),
        ])
    }

    /// Calls of a function in the last trace, at least.
    fn calls_of(&self, function: &str) -> Result<f64> {
        let report = self.tools.report(&[])?;
        let row = report.iter().find(|row| row["function"] == function);
        let row = row.with_context(|| format!("failed to find `{function}` in the report"))?;
        // What is not known is empty.
        let figure = |column: &str| match row[column].as_str() {
            "" => Ok(0.0),
            figure => figure.parse::<f64>().with_context(|| format!("failed to read `{column}`")),
        };
        let exact = figure("calls")? + figure("counted")?;
        Ok(exact + figure("estimated")? - figure("estimated_margin")?)
    }
}

/// Starts the program, which waits.
fn start(program: &Path, seconds: &str) -> Result<Running> {
    Running::start(Command::new(program).args(["1", seconds]))
}

impl ProgramAnswer {
    /// Lets the program work, to its end.
    fn of(program: Running) -> Result<ProgramAnswer> {
        let (lines, _) = program.go_on()?.end()?;
        let mut told = ProgramAnswer::default();
        for line in &lines {
            let words: Vec<&str> = line.split(' ').collect();
            let number = |word: &str| word.parse::<f64>().with_context(|| format!("failed to understand `{line}`"));
            match words[..] {
                ["rate", time, rate] => told.rates.push((number(time)?, number(rate)?)),
                ["truth", "hot", calls] => told.calls = number(calls)?,
                _ => {}
            }
        }
        ensure!(!told.rates.is_empty(), "failed to let the program work: it has ended");
        Ok(told)
    }

    /// The times of calls in all quarters that began so many milliseconds after the begin.
    fn after(&self, milliseconds: f64) -> Vec<f64> {
        let ends = self.rates.iter().map(|&(end, _)| end);
        let begins = std::iter::once(0.0).chain(ends);
        self.rates.iter().zip(begins).filter(|(_, begin)| *begin >= milliseconds).map(|(&(_, time), _)| time).collect()
    }
}

fn mean(times: &[f64]) -> f64 {
    times.iter().sum::<f64>() / times.len() as f64
}

/// The mean of the two quarters in a row in which a call took longest.
fn highest_half_second(times: &[f64]) -> f64 {
    times.windows(2).map(mean).fold(0.0, f64::max)
}
