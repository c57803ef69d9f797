//! A program of the zoo under rtrace.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context as _, Result, bail};

use super::figures::Figures;
use super::list::{self, Program};
use super::ran::{Ran, Truths, is_talk, told};
use crate::common::rtrace;
use crate::common::running::Running;

/// What came of a program that was traced.
#[derive(Clone, Debug)]
pub struct Traced {
    pub ran: Ran,
    pub truths: Truths,
    /// What rtrace said, or rtrace and the program.
    pub said: Vec<String>,
    /// How rtrace ended, where that is not how the program did.
    pub rtrace: Option<ExitStatus>,
    /// None where there is no trace.
    pub figures: Option<Figures>,
    /// What a program beside did, if it did not do what it does undisturbed.
    pub disturbed: Option<String>,
}

/// Traces the program from its first instruction.
pub fn run(program: &Program, folder: &Path) -> Result<Traced> {
    let trace = empty(folder)?;
    let companion = Companion::start(program, folder)?;
    let mut command = recorder("run", program, folder, &trace);
    let plain = program.command(folder);
    command.arg("--").arg(plain.get_program()).args(plain.get_args());
    let errors = folder.join("stderr");
    command.stderr(fs::File::create(&errors).with_context(|| format!("failed to create `{}`", errors.display()))?);
    let running = Running::listen(&mut command, |child| child.stdout.take())?.go_on()?;
    let (lines, status) = running.end()?;
    let said = String::from_utf8_lossy(&fs::read(&errors).context("failed to read what rtrace said")?).into_owned();
    let disturbed = companion.finish()?;
    Ok(Traced {
        truths: told(&lines),
        ran: Ran { stdout: lines.into_iter().filter(|line| !is_talk(line)).collect(), status },
        said: said.lines().map(str::to_owned).collect(),
        rtrace: None,
        figures: figures(&trace)?,
        disturbed,
    })
}

/// Attaches to the program when it is ready, and lets it work then.
pub fn attach(program: &Program, folder: &Path) -> Result<Traced> {
    let trace = empty(folder)?;
    let companion = Companion::start(program, folder)?;
    let running = Running::start(&mut program.command(folder))?;
    if let Some(script) = &program.between {
        super::output(&mut list::shell(script, folder, Some(running.pid())))?;
    }
    let observer = observe(program, folder, running.pid())?;
    let mut command = recorder("attach", program, folder, &trace);
    command.args(["--budget", "none", "-p", &running.pid().to_string()]).stderr(Stdio::piped());
    let mut recording = Running::listen(&mut command, |child| child.stderr.take())?;
    // Where it refuses, that is heard at its end.
    let _ = recording.wait_for("recording ");
    let (lines, status) = running.go_on()?.end()?;
    if let Some(observer) = observer {
        observer.interrupt();
        observer.end().context("of the observer")?;
    }
    let disturbed = companion.finish()?;
    let (said, of_rtrace) = recording.end().context("of rtrace")?;
    Ok(Traced {
        truths: told(&lines),
        ran: Ran { stdout: lines.into_iter().filter(|line| !is_talk(line)).collect(), status },
        said,
        rtrace: Some(of_rtrace),
        figures: figures(&trace)?,
        disturbed,
    })
}

fn recorder(verb: &str, program: &Program, folder: &Path, trace: &Path) -> Command {
    let mut command = rtrace::command();
    command.args([verb, "--no-tui", "-o"]).arg(trace).args(program.selection(folder)).current_dir(folder);
    command
}

fn observe(program: &Program, folder: &Path, pid: u32) -> Result<Option<Running>> {
    let Some(script) = &program.observer else { return Ok(None) };
    let mut shell = list::shell(&format!("exec 2>&1; {script}"), folder, Some(pid));
    let mut observer = Running::listen(&mut shell, |child| child.stdout.take())?;
    if let Some(text) = &program.observing {
        observer.wait_for(text).context("of the observer")?;
    }
    Ok(Some(observer))
}

/// A program that is not to notice anything, and what it does undisturbed.
struct Companion(Option<(Running, Ran)>);

impl Companion {
    fn start(program: &Program, folder: &Path) -> Result<Companion> {
        if program.bystander.is_empty() {
            return Ok(Companion(None));
        }
        let start = || Running::start(&mut list::command(&program.bystander, folder));
        let undisturbed = start()?.go_on()?.finish()?;
        Ok(Companion(Some((start()?, undisturbed))))
    }

    fn finish(self) -> Result<Option<String>> {
        let Some((running, undisturbed)) = self.0 else { return Ok(None) };
        let ran = running.go_on()?.finish()?;
        Ok(ran.unlike(&undisturbed).map(|difference| format!("beside: {difference}")))
    }
}

/// The place of the trace, where nothing is.
fn empty(folder: &Path) -> Result<PathBuf> {
    let trace = folder.join("trace");
    match fs::remove_dir_all(&trace) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            bail!("failed to remove `{}`: {error}", trace.display())
        }
        _ => Ok(trace),
    }
}

fn figures(trace: &Path) -> Result<Option<Figures>> {
    let has_trace = trace.join("trace.json").exists();
    has_trace.then(|| Figures::of(trace)).transpose()
}
