//! Everything a developer of rtrace runs: `cargo xtask <task>`.

mod archive;
mod arrows;
mod bench;
mod counts;
mod demo;
mod dependencies;
mod dist;
mod files;
mod fuzz;
mod lines;
mod lint;
mod modules;
mod names;
mod packages;
mod process;
mod python;
#[path = "../../tests/common/running.rs"]
mod running;
mod screens;
mod test;
mod tidy;
mod vm;
mod zoo;

use std::path::Path;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Everything a developer of rtrace runs
#[derive(Debug, Parser)]
#[command(name = "cargo xtask")]
struct Xtask {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Build rtrace and trace a running FFTW program with it
    Demo,
    /// Take the pictures of the HTML page in docs/screens, of what `demo` recorded
    Screens,
    /// Install what the tests need and run them all, as root with those that trace
    Test {
        /// Fail if a test is skipped because something that could be installed is missing
        #[arg(long)]
        strict: bool,
    },
    /// Run what CI runs: lint, then test
    Ci,
    /// Check the sources: form, licences, Rust version, warnings, documents, fuzz targets, rebuilds
    Lint {
        /// Checks to run; all if none is given
        #[arg(value_parser = clap::builder::PossibleValuesParser::new(lint::names()))]
        checks: Vec<String>,
    },
    /// Check the form of all source files, and which package imports which
    Tidy,
    /// Count lines of code by package, product and tests apart
    Lines,
    /// Search for inputs that break what reads foreign files, and the shadow stack
    Fuzz {
        /// What to break; all in turn if it is not given
        #[arg(value_parser = clap::builder::PossibleValuesParser::new(fuzz::TARGETS))]
        target: Option<String>,
        /// Time for each
        #[arg(long, default_value_t = 60)]
        seconds: u64,
    },
    /// Measure what tracing costs, beside bpftrace, and write docs/benchmarks.md
    Bench {
        /// Paired runs of each measurement
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
        rounds: u32,
        /// What to measure, and only print; all if none is given
        #[arg(value_parser = clap::builder::PossibleValuesParser::new(bench::PARTS))]
        parts: Vec<String>,
    },
    /// Build what users install: a static binary, packages, a container image
    Dist(dist::DistOptions),
    /// Run the tests that trace on kernels of other releases of Debian and Ubuntu, emulated
    Vm {
        /// Versions, as in tests/vm/kernels.toml; all if none is given
        kernels: Vec<String>,
        /// Part of the names of the tests to run; may be repeated [default: those of the list]
        #[arg(long = "test", value_name = "NAME")]
        tests: Vec<String>,
    },
    /// Compare programs of many kinds untraced and traced, and write docs/zoo.md
    Zoo {
        /// Runs of each program and way, until one differs [default: once, or as its entry says]
        #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
        times: Option<u32>,
        /// Names in tests/zoo/zoo.toml, and only print; all if none is given
        programs: Vec<String>,
    },
}

fn main() -> ExitCode {
    let result = match Xtask::parse().task {
        Task::Demo => demo::run(),
        Task::Screens => screens::run(),
        Task::Test { strict } => test::run(strict),
        Task::Ci => lint::run(&[]).and_then(|()| test::run(true)),
        Task::Lint { checks } => lint::run(&checks),
        Task::Tidy => tidy::run(),
        Task::Lines => lines::run(),
        Task::Fuzz { target, seconds } => fuzz::run(target.as_deref(), seconds),
        Task::Bench { rounds, parts } => bench::run(rounds, &parts),
        Task::Dist(options) => dist::run(&options),
        Task::Vm { kernels, tests } => vm::run(&kernels, &tests),
        Task::Zoo { times, programs } => zoo::run(&programs, times),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The folder of the workspace.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace")
}
