//! `cargo xtask zoo [NAME…]`: programs of many kinds, untraced and traced, must do and say the same.
//!
//! What a program is and what is expected of rtrace stands in `tests/zoo/zoo.toml`. A program prints `ready`, with its
//! process id if the process started is not the one to trace, reads a line, works, and prints what does not change from
//! run to run. Lines `truth FUNCTION CALLS [LEFT]` tell what it has called, and how many of the calls a jump or an
//! exception left.

mod figures;
mod list;
mod process;
mod traced;
mod verdict;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use self::list::{Program, Way};
use self::process::Ran;
use self::verdict::Row;
use crate::packages;
use crate::process as commands;
use crate::running::Running;

/// Lets the programs of these names run, or all, and prints what came of it; all: also writes `docs/zoo.md`.
///
/// # Errors
/// A name that is not in the list; something is not as expected.
pub fn run(names: &[String], rtrace: Option<PathBuf>) -> Result<()> {
    let programs = list::choose(names)?;
    if !packages::is_root() {
        bail!("failed to trace the programs of the zoo\n\nhint: run it as root");
    }
    packages::require(&[packages::BUILD, &["g++"]].concat())?;
    let rtrace = rtrace.map_or_else(build_rtrace, |path| path.canonicalize().context("failed to find rtrace"))?;
    let mut rows = Vec::new();
    for program in &programs {
        let of_program = keep(program, &rtrace);
        of_program.iter().for_each(|row| println!("{row}"));
        rows.extend(of_program);
    }
    if names.is_empty() {
        let path = crate::root().join("docs/zoo.md");
        fs::write(&path, verdict::page(&programs, &rows)?)
            .with_context(|| format!("failed to write `{}`", path.display()))?;
    }
    match rows.iter().filter(|row| row.differs()).count() {
        0 => Ok(()),
        differing => bail!("failed to find all as expected: {differing} of {} differ", rows.len()),
    }
}

fn build_rtrace() -> Result<PathBuf> {
    commands::run(&mut commands::cargo(&["build", "--package", "rtrace"]))?;
    Ok(commands::target_directory().join("debug/rtrace"))
}

/// Where a program is built and runs.
fn folder(name: &str) -> PathBuf {
    commands::target_directory().join("zoo").join(name)
}

/// What came of one program: a row for each way, or one if it could not be built.
fn keep(program: &Program, rtrace: &Path) -> Vec<Row> {
    let folder = folder(&program.name);
    let untraced = prepare(program, &folder).and_then(|()| untraced(program, &folder));
    let untraced = match untraced {
        Ok(untraced) => untraced,
        Err(error) => return vec![Row::impossible(program, &format!("{error:#}"))],
    };
    program.ways.iter().map(|&way| compare(program, way, &folder, rtrace, &untraced)).collect()
}

/// Installs what the program needs, and builds it in `folder`.
fn prepare(program: &Program, folder: &Path) -> Result<()> {
    let packages: Vec<&str> = program.packages.iter().map(String::as_str).collect();
    packages::require(&packages)?;
    fs::create_dir_all(folder).with_context(|| format!("failed to create `{}`", folder.display()))?;
    match &program.build {
        Some(script) => commands::output(&mut list::shell(script, folder, None)).map(drop),
        None => Ok(()),
    }
}

/// Twice: what is not the same untraced need not be the same traced.
fn untraced(program: &Program, folder: &Path) -> Result<Ran> {
    let once = || -> Result<Ran> { Running::start(&mut program.command(folder))?.go_on()?.finish() };
    let (first, second) = (once()?, once()?);
    match second.unlike(&first) {
        Some(difference) => bail!("failed to run it twice alike: {difference}"),
        None => Ok(first),
    }
}

/// Traces the program, as often as it is wanted or until it differs.
fn compare(program: &Program, way: Way, folder: &Path, rtrace: &Path, untraced: &Ran) -> Row {
    let once = |_| {
        let traced = match way {
            Way::Attach => traced::attach(program, folder, rtrace),
            Way::Run => traced::run(program, folder, rtrace),
        };
        match traced {
            Ok(traced) => verdict::of(program, way, untraced, &traced),
            Err(error) => Row::failed(program, way, &format!("{error:#}")),
        }
    };
    let mut rows = (0..program.times).map(once);
    let first = rows.next().expect("at least once");
    if first.differs() { first } else { rows.find(Row::differs).unwrap_or(first) }
}
