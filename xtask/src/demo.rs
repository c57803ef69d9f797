//! `cargo xtask demo`: from a clone to a trace of a running program that was not prepared for it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Result, bail, ensure};

use crate::running::Running;
use crate::{files, packages, process};

/// How long the program would run if it were not ended.
const SECONDS: &str = "20";

/// Builds rtrace, traces an FFTW program for three seconds, shows the result, and checks that the
/// program computed what it computes untraced.
pub fn run() -> Result<()> {
    packages::require(&[packages::BUILD, packages::DEMO].concat())?;
    let rtrace = process::release()?;
    let folder = files::folder(process::target_directory().join("demo"))?;
    let program = compile(&folder)?;
    let untraced = process::output(Command::new(&program).arg("1"))?;

    println!("\nA program that transforms data on several threads runs; nothing of it was prepared:");
    let mut command = Command::new(&program);
    println!("$ {} &", process::shown(command.arg(SECONDS)));
    let running = Running::listen(&mut command, |child| child.stdout.take())?;
    sleep(Duration::from_secs(1));
    let trace = files::removed(folder.join("fftw.rtrace"))?;
    process::run(
        Command::new(&rtrace)
            .args(["attach", "-p", &running.pid().to_string(), "--lib", "libfftw3.so"])
            .args(["--no-tui", "--duration", "3s", "-o"])
            .arg(&trace),
    )?;
    let traced = end(running)?;

    println!("\nThe functions that took most time:");
    process::run(Command::new(&rtrace).arg("report").arg(&trace).args(["--limit", "15"]))?;
    println!("\nWho called whom:");
    process::run(Command::new(&rtrace).arg("report").arg(&trace).args(["--by", "tree", "--limit", "30"]))?;
    say_where(&rtrace, &trace);

    if traced != untraced {
        bail!("failed to leave the program as it was: it printed `{}`, untraced `{}`", traced.trim(), untraced.trim());
    }
    println!("The program computed the same as untraced: {}", traced.trim());
    Ok(())
}

fn compile(folder: &Path) -> Result<PathBuf> {
    let program = folder.join("fftw_demo");
    let source = crate::root().join("tests/targets/fftw_demo.c");
    process::run(
        Command::new("gcc").args(["-O2", "-o"]).arg(&program).arg(source).args(["-lfftw3", "-lm", "-pthread"]),
    )?;
    Ok(program)
}

fn say_where(rtrace: &Path, trace: &Path) {
    let (rtrace, trace) = (rtrace.display(), trace.display());
    println!("\nThe trace is a folder of Parquet files: {trace}. Open it with");
    println!("    {rtrace} report {trace} --by thread");
    println!(
        "    {rtrace} info {trace} --sql >demo.sql; duckdb -init demo.sql -c \"select function, count(*) from calls group by all\""
    );
    println!("    python3 -c \"import pyarrow.dataset as d; print(d.dataset('{trace}/calls').head(10))\"\n");
}

/// Asks the program to finish its round, and gives what it prints.
fn end(running: Running) -> Result<String> {
    running.terminate();
    let (lines, status) = running.end()?;
    ensure!(status.success(), "failed to keep the program alive: it ended with {status}");
    Ok(lines.into_iter().map(|line| line + "\n").collect())
}
