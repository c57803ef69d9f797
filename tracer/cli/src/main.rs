//! The command line: reads it, lets one verb act, and turns what came of it into an exit status.
//!
//! Standard output is data, standard error is talk. Rust ignores SIGPIPE, so a reader that has
//! gone is a failed write, and that is no failure of ours.

mod args;
mod attach;
mod clean;
mod columns;
mod command_signals;
mod completions;
mod config;
mod counters;
mod cpu_time;
mod derive;
mod diff;
mod doctor;
mod export;
mod info;
mod interrupt;
mod libs;
mod man;
mod message;
mod pick;
mod plan;
mod plan_table;
mod plan_values;
mod processes;
mod progress;
mod record;
mod report;
mod run;
mod screen;
mod shortage;
mod signatures;
mod silence;
mod spinner;
mod totals;
mod trace_host;
mod tui;

use std::io::Write;
use std::process::ExitCode;

use anyhow::Context;
use args::{Cli, Verb};
use message::Hint as _;

#[global_allocator]
static ALLOCATOR: shortage::Allocator = shortage::Allocator;

/// What came of a verb that did its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All is well.
    Complete,
    /// The answer is no: this machine cannot trace, there is a regression.
    Unable,
    /// Something is missing on the command line.
    Usage,
    /// The record is not complete, and `--strict` was given.
    Incomplete,
    /// The traced command ended with this status, or 128 + signal.
    Command(u8),
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> ExitCode {
        ExitCode::from(match outcome {
            Outcome::Complete => 0,
            Outcome::Unable => 1,
            Outcome::Usage => 2,
            Outcome::Incomplete => 3,
            Outcome::Command(status) => status,
        })
    }
}

/// Runs rtrace and returns its exit status.
fn main() -> ExitCode {
    shortage::handle_missing_threads();
    shortage::handle_file_limit();
    let words = match config::complete(std::env::args_os().collect()) {
        Ok(words) => words,
        Err(error) => {
            message::print(&error, false);
            return Outcome::Usage.into();
        }
    };
    let cli = match args::read(words) {
        Ok(cli) => cli,
        Err(usage) => {
            // Nobody is left to tell when the terminal has gone.
            let _ = usage.print();
            return ExitCode::from(u8::try_from(usage.exit_code()).unwrap_or(2));
        }
    };
    let acted = act(&cli);
    rtrace_bpf::end_tries();
    match acted {
        Ok(outcome) => outcome.into(),
        Err(error) if message::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            message::print(&error, cli.verbose);
            ExitCode::FAILURE
        }
    }
}

fn act(cli: &Cli) -> anyhow::Result<Outcome> {
    rtrace_bpf::set_verbose(cli.verbose);
    match &cli.verb {
        Verb::Attach(options) => attach::attach(options),
        Verb::Run(options) => run::run(options, cli.verbose),
        Verb::Libs(options) => libs::libs(options),
        Verb::Plan(options) => plan::plan(options, cli.verbose),
        Verb::Report(options) => report::report(options),
        Verb::Tui(options) => tui::tui(options),
        Verb::Export(options) => export::export(options),
        Verb::Clean(options) => clean::clean(options),
        Verb::Counters(options) => counters::counters(options),
        Verb::Signatures(options) => signatures::signatures(options),
        Verb::Diff(options) => diff::diff(options),
        Verb::Info(options) => info::info(options),
        Verb::Doctor(options) => doctor::doctor(options),
        Verb::Completions(options) => completions::completions(options),
        Verb::Man(options) => man::man(options),
    }
}

/// Says that a verb needs something, and how to give it.
fn usage(missing: &str, remedy: impl std::fmt::Display) -> Outcome {
    let missing = Err::<(), _>(anyhow::anyhow!("{missing}")).hint(remedy);
    missing.unwrap_or_else(|error| message::print(&error, false));
    Outcome::Usage
}

/// Writes data to standard output.
fn print(data: &[u8]) -> anyhow::Result<()> {
    let mut output = std::io::stdout().lock();
    output.write_all(data).and_then(|()| output.flush()).context("failed to write to standard output")
}

/// Columns of the terminal that shows standard output, if one does: elsewhere nothing is cut.
fn terminal_columns() -> Option<u16> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    Some(size.ws_col).filter(|&columns| columns > 0)
}
