//! The zoo: programs of many kinds, untraced and traced, must do and say the same.
//!
//! What a program is and what is expected of rtrace stands in `tests/zoo/zoo.toml`. A program prints `ready`, with its
//! process id if the process started is not the one to trace, reads a line, works, and prints what does not change from
//! run to run. Lines `truth FUNCTION CALLS [LEFT]` tell what it has called, and how many of the calls a jump or an
//! exception left.

mod figures;
mod list;
mod ran;
mod traced;
mod verdict;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use anyhow::{Context as _, Result, bail};

use self::list::{Program, Way};
use self::ran::Ran;
use self::verdict::Row;
use crate::common::running::Running;
use crate::common::skip::Turn;
use crate::common::target::TESTS;

/// All of them, which writes `docs/zoo.md`, or those that `ZOO` names; each way `ZOO_TIMES` times, or as its entry says.
#[test]
#[ignore = "it takes long; `cargo xtask zoo` runs it"]
fn programs_do_and_say_the_same() {
    let Some(_turn) = Turn::take() else { return };
    let names: Vec<String> = env::var("ZOO").unwrap_or_default().split_whitespace().map(str::to_owned).collect();
    let programs = list::choose(&names).unwrap();
    let mut rows = Vec::new();
    for program in &programs {
        let of_program = keep(program);
        of_program.iter().for_each(|row| println!("{row}"));
        rows.extend(of_program);
    }
    if names.is_empty() {
        fs::write(Path::new(TESTS).join("../docs/zoo.md"), verdict::page(&programs, &rows)).unwrap();
    }
    let differing = rows.iter().filter(|row| row.differs()).count();
    assert!(differing == 0, "{differing} of {} differ", rows.len());
}

/// Where a program is built and runs.
fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("zoo").join(name)
}

/// What a command prints, which must succeed.
fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("failed to start {command:?}"))?;
    if !output.status.success() {
        bail!("failed to run {command:?}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// What came of one program: a row for each way, or one if it could not be built.
fn keep(program: &Program) -> Vec<Row> {
    let folder = folder(&program.name);
    let untraced = prepare(program, &folder).and_then(|()| untraced(program, &folder));
    let untraced = match untraced {
        Ok(untraced) => untraced,
        Err(error) => {
            let why = format!("{error:#}; packages: {}", program.packages.join(" "));
            return vec![Row::impossible(program, &why)];
        }
    };
    program.ways.iter().map(|&way| compare(program, way, &folder, &untraced)).collect()
}

/// Builds it in `folder`.
fn prepare(program: &Program, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("failed to create `{}`", folder.display()))?;
    match &program.build {
        Some(script) => output(&mut list::shell(script, folder, None)).map(drop),
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
fn compare(program: &Program, way: Way, folder: &Path, untraced: &Ran) -> Row {
    let once = |_| {
        let traced = match way {
            Way::Attach => traced::attach(program, folder),
            Way::Run => traced::run(program, folder),
        };
        match traced {
            Ok(traced) => verdict::of(program, way, untraced, &traced),
            Err(error) => Row::failed(program, way, &format!("{error:#}")),
        }
    };
    let times = env::var("ZOO_TIMES").ok().and_then(|times| times.parse().ok()).unwrap_or(program.times);
    let mut rows = (0..times).map(once);
    let first = rows.next().expect("at least once");
    if first.differs() { first } else { rows.find(Row::differs).unwrap_or(first) }
}
