//! The tracers that are compared, each attached to a program while it works.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

use super::subject::Worker;
use crate::running::Running;
use crate::{files, process};

/// What is traced of a program.
#[derive(Clone, Default)]
pub struct BenchSelection {
    /// Libraries, as one names them to rtrace.
    pub libraries: Vec<String>,
    /// The file of the library that bpftrace probes.
    pub file: PathBuf,
    /// Symbols of its functions; for rtrace all, where there is none.
    pub functions: Vec<String>,
    /// More options of rtrace.
    pub options: Vec<String>,
}

/// What rtrace recorded.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecordedCalls {
    /// Calls in the trace.
    pub calls: u64,
    /// Calls that are known to be missing.
    pub lost: u64,
    /// Size of the files with the calls and their values.
    pub bytes: u64,
}

impl RecordedCalls {
    /// What the trace in a folder says of itself.
    pub fn of(trace: &Path) -> Result<RecordedCalls> {
        let summary = summary(trace)?;
        let count = |value: &serde_json::Value| value.as_u64().context("failed to understand the trace's summary");
        let calls = count(&summary["calls"])?;
        let losses = summary["losses"].as_array().context("failed to understand the trace's summary")?;
        let lost = losses.iter().map(|loss| count(&loss["count"])).sum::<Result<u64>>()?;
        let mut bytes = 0;
        for folder in ["calls", "values"].map(|name| trace.join(name)).iter().filter(|folder| folder.exists()) {
            for entry in fs::read_dir(folder).context("failed to list the trace")? {
                bytes += entry.and_then(|entry| entry.metadata()).context("failed to look at the trace")?.len();
            }
        }
        Ok(RecordedCalls { calls, lost, bytes })
    }
}

/// What the end of a trace says of it.
fn summary(trace: &Path) -> Result<serde_json::Value> {
    let text = fs::read_to_string(trace.join("trace.json")).context("failed to read the trace")?;
    let mut trace: serde_json::Value = serde_json::from_str(&text).context("failed to read the trace")?;
    Ok(trace["summary"].take())
}

/// The programs that trace.
pub struct Tools {
    /// What is measured.
    pub rtrace: PathBuf,
    /// Places probes that do nothing.
    pub nothing: PathBuf,
    /// Where traces are written, one at a time.
    pub trace: PathBuf,
}

impl Tools {
    /// rtrace, recording to [`Tools::trace`].
    pub fn rtrace(&self, pid: u32, selection: &BenchSelection) -> Result<Running> {
        let mut command = self.recording("attach", selection)?;
        command.args(["-p", &pid.to_string()]);
        if !selection.options.iter().any(|option| option == "--budget") {
            command.args(["--budget", "none"]);
        }
        let mut rtrace = Running::listen(command.stderr(Stdio::piped()), |child| child.stderr.take())?;
        rtrace.wait_for("rtrace: recording ")?;
        Ok(rtrace)
    }

    /// A program of its own under rtrace, with stubs for what must be single-stepped.
    pub fn stubs(&self, selection: &BenchSelection, program: &Path, work: &str) -> Result<Worker> {
        let mut command = self.recording("run", selection)?;
        Worker::start_traced(command.arg("--stubs").arg("--").arg(program), program, work)
    }

    /// A recording to [`Tools::trace`], which is empty then.
    fn recording(&self, verb: &str, selection: &BenchSelection) -> Result<Command> {
        files::removed(self.trace.clone())?;
        let mut command = Command::new(&self.rtrace);
        command.args([verb, "--no-tui", "-o"]).arg(&self.trace);
        for library in &selection.libraries {
            command.args(["--lib", library]);
        }
        for function in &selection.functions {
            command.args(["--func", function]);
        }
        command.args(&selection.options);
        Ok(command)
    }

    /// What rtrace has recorded, after its end.
    pub fn recorded(&self, rtrace: Running) -> Result<RecordedCalls> {
        end(rtrace)?;
        self.stored()
    }

    /// What rtrace has recorded, by what it stored at its end.
    pub fn stored(&self) -> Result<RecordedCalls> {
        RecordedCalls::of(&self.trace)
    }

    /// What the end of [`Tools::trace`] says of it.
    pub fn summary(&self) -> Result<serde_json::Value> {
        summary(&self.trace)
    }

    /// A report of [`Tools::trace`]: by row, what stands in each column.
    pub fn report(&self, options: &[&str]) -> Result<Vec<HashMap<String, String>>> {
        let mut report = Command::new(&self.rtrace);
        report.arg("report").arg(&self.trace).args(options).args(["--format", "csv"]);
        let report = process::output(&mut report)?;
        let mut lines = report.lines();
        let columns: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
        // Only the last one, a function, may have commas of its own.
        let row = |line: &str| columns.iter().zip(line.splitn(columns.len(), ',')).map(owned).collect();
        Ok(lines.map(row).collect())
    }

    /// What rtrace plans for the library of a selection.
    fn plan(&self, pid: u32, selection: &BenchSelection) -> Result<serde_json::Value> {
        let mut plan = Command::new(&self.rtrace);
        plan.args(["plan", "-p", &pid.to_string(), "--format", "json"]);
        for library in &selection.libraries {
            plan.args(["--lib", library]);
        }
        for function in &selection.functions {
            plan.args(["--func", function]);
        }
        let mut plan: serde_json::Value = serde_json::from_str(&process::output(&mut plan)?)?;
        Ok(plan["libraries"][0].take())
    }

    /// The file of the library of a selection, as the process sees it.
    pub fn file(&self, pid: u32, selection: &BenchSelection) -> Result<PathBuf> {
        let library = self.plan(pid, selection)?;
        Ok(library["path"].as_str().context("failed to read the plan")?.into())
    }

    /// The sites of rtrace's probes, as [`Tools::nothing`] takes them.
    pub fn sites(&self, pid: u32, selection: &BenchSelection) -> Result<Vec<String>> {
        let library = self.plan(pid, selection)?;
        let functions = library["functions"].as_array().context("failed to read the plan")?;
        let mut sites = BTreeSet::new();
        for function in functions {
            sites.extend(function["entry_site"].as_u64().map(|entry| entry.to_string()));
        }
        Ok(sites.into_iter().collect())
    }

    /// Programs that do nothing, at these sites of a file.
    pub fn nothing(&self, pid: u32, file: &Path, sites: &[String]) -> Result<Running> {
        Running::start(Command::new(&self.nothing).arg(pid.to_string()).arg(file).args(sites))
    }

    /// bpftrace, counting calls and adding up times of each function.
    pub fn bpftrace(&self, pid: u32, selection: &BenchSelection) -> Result<Running> {
        let file = selection.file.display();
        let mut program = String::new();
        for (number, function) in selection.functions.iter().enumerate() {
            let f = format!("f{number}");
            write!(
                program,
                "uprobe:{file}:{function} {{ @{f}[tid] = nsecs; }} \
                 uretprobe:{file}:{function} /@{f}[tid]/ {{ @n_{f} = count(); @t_{f} = sum(nsecs - @{f}[tid]); \
                 delete(@{f}[tid]); }} "
            )
            .expect("a string takes everything");
        }
        // Nothing is printed before all probes are in.
        program.push_str("interval:ms:100 { printf(\"ready\\n\"); }");
        let mut command = Command::new("bpftrace");
        Running::start(command.env("BPFTRACE_MAX_PROBES", "4096").args(["-p", &pid.to_string(), "-e", &program]))
    }
}

/// Asks a tracer to end, and waits for that.
pub fn end(tracer: Running) -> Result<()> {
    tracer.interrupt();
    tracer.end().map(drop)
}

fn owned((column, value): (&&str, &str)) -> (String, String) {
    ((*column).to_owned(), value.to_owned())
}
