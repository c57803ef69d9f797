//! The list of programs, `tests/zoo/zoo.toml`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use crate::common::target::TESTS;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    program: Vec<Program>,
}

/// A program, and what is expected. In all commands `$HERE` is the folder of the list, and `$OUT` that of the program,
/// where it is built and runs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    pub name: String,
    /// What it is there for.
    pub about: String,
    /// Debian packages beside a C and a C++ compiler.
    #[serde(default)]
    pub packages: Vec<String>,
    /// A shell script that builds it.
    pub build: Option<String>,
    pub command: Vec<String>,
    /// What is traced: the arguments of `--lib`.
    pub lib: Vec<String>,
    /// The arguments of `--func`.
    #[serde(default)]
    pub func: Vec<String>,
    /// Further options of rtrace.
    #[serde(default)]
    pub options: Vec<String>,
    #[serde(default = "all_ways")]
    pub ways: Vec<Way>,
    /// Runs of each way, for what goes wrong now and then.
    #[serde(default = "once")]
    pub times: u32,
    /// rtrace must refuse to trace it, with this in its message.
    pub refused: Option<String>,
    /// What rtrace says of the recording must contain this.
    pub marked: Option<String>,
    /// It is known to differ, and why.
    pub limit: Option<String>,
    /// No call is left by a jump or an exception.
    #[serde(default)]
    pub returns: bool,
    /// Percentage of its calls that must be timed.
    pub timed: Option<f64>,
    /// It need not call what is traced.
    #[serde(default)]
    pub idle: bool,
    /// A shell script that runs between start and attach, with the process id in `$PID` and rtrace in `$RTRACE`.
    pub between: Option<String>,
    /// What else looks at the process: a shell script with the process id in `$PID` and rtrace in `$RTRACE`.
    pub observer: Option<String>,
    /// What the observer prints when it is ready.
    pub observing: Option<String>,
    /// A program that runs beside, keeps to the same rules, and must not notice anything.
    #[serde(default)]
    pub bystander: Vec<String>,
}

/// How a program comes to be traced.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    Attach,
    Run,
}

fn all_ways() -> Vec<Way> {
    vec![Way::Attach, Way::Run]
}

fn once() -> u32 {
    1
}

/// The programs of these names, or all.
pub fn choose(names: &[String]) -> Result<Vec<Program>> {
    let path = here().join("zoo.toml");
    let text = fs::read_to_string(&path).with_context(|| format!("failed to read `{}`", path.display()))?;
    let List { program } = toml::from_str(&text).with_context(|| format!("failed to parse `{}`", path.display()))?;
    if let Some(name) = names.iter().find(|&name| program.iter().all(|program| program.name != *name)) {
        let known: Vec<&str> = program.iter().map(|program| program.name.as_str()).collect();
        bail!("failed to find `{name}` in the zoo: it has {}", known.join(", "));
    }
    Ok(program.into_iter().filter(|program| names.is_empty() || names.contains(&program.name)).collect())
}

fn here() -> PathBuf {
    Path::new(TESTS).join("zoo")
}

impl Program {
    /// The command that runs it.
    pub fn command(&self, folder: &Path) -> Command {
        command(&self.command, folder)
    }

    /// The words that select what of it is traced, and how.
    pub fn selection(&self, folder: &Path) -> Vec<String> {
        let options = |name: &'static str, values: &[String]| -> Vec<String> {
            values.iter().flat_map(|value| [name.to_owned(), replaced(value, folder)]).collect()
        };
        [options("--lib", &self.lib), options("--func", &self.func), self.options.clone()].concat()
    }
}

/// A command of the list.
pub fn command(words: &[String], folder: &Path) -> Command {
    let mut words = words.iter().map(|word| replaced(word, folder));
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words).current_dir(folder);
    command
}

/// A shell that runs a script of the list.
pub fn shell(script: &str, folder: &Path, pid: Option<u32>) -> Command {
    let mut shell = Command::new("bash");
    shell.args(["-euc", script]).current_dir(folder).env("HERE", here()).env("OUT", folder);
    shell.env("RTRACE", env!("CARGO_BIN_EXE_rtrace"));
    if let Some(pid) = pid {
        shell.env("PID", pid.to_string());
    }
    shell
}

fn replaced(word: &str, folder: &Path) -> String {
    word.replace("$HERE", &here().to_string_lossy()).replace("$OUT", &folder.to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_can_be_read_and_its_names_are_distinct() {
        let programs = choose(&[]).expect("it is well formed");
        for (place, program) in programs.iter().enumerate() {
            assert!(programs[..place].iter().all(|other| other.name != program.name), "{}", program.name);
            let expectations = [&program.refused, &program.marked, &program.limit].into_iter().flatten();
            assert!(expectations.count() <= 1, "{}", program.name);
            assert!(program.times > 0 && !program.ways.is_empty(), "{}", program.name);
        }
        assert!(choose(&["unicorn".to_owned()]).is_err());
    }
}
