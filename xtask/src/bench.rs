//! `cargo xtask bench`: what tracing costs the traced program, beside bpftrace doing the same job.
//!
//! A round lets one program work untraced, with each tracer in turn, and only ratios within a round
//! are compared: the machine's speed drifts more than the tracers differ. Time is CPU time of the
//! traced process. What a goal asks for and is not reached is said so.

mod figures;
mod start;
mod subject;
mod tracer;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use self::figures::{Goal, Ratios};
use self::subject::Subject;
use self::tracer::{Recorded, Selection, Tools};
use crate::{packages, process};

/// bpftrace takes and leaves each function's probes one by one, so of each library both tracers
/// probe only the functions that the program calls most.
const FUNCTIONS: usize = 20;

/// A line of the table.
struct Line {
    what: String,
    /// Against what.
    against: &'static str,
    ratios: Ratios,
    /// None where nothing is asked for.
    goal: Option<Goal>,
    remark: String,
}

/// Measures everything, prints it and writes `docs/benchmarks.md`.
pub fn run(rounds: u32) -> Result<()> {
    packages::require(&[packages::BUILD, packages::BENCH].concat())?;
    process::run(&mut process::cargo(&["build", "--release", "--package", "rtrace"]))?;
    process::run(&mut process::cargo(&["build", "--release", "--package", "rtrace-bpf", "--example", "nothing"]))?;
    let release = process::target_directory().join("release");
    let folder = process::target_directory().join("bench");
    fs::create_dir_all(&folder).with_context(|| format!("failed to create `{}`", folder.display()))?;
    let bench = Bench {
        tools: Tools {
            rtrace: release.join("rtrace"),
            nothing: release.join("examples/nothing"),
            trace: folder.join("trace"),
        },
        program: compile("bench", &folder)?,
        pauses: compile("pauses", &folder)?,
        statements: statements(&folder)?,
        rounds,
    };
    let start = Instant::now();
    let mut lines = bench.tight_loop()?;
    lines.extend(bench.counters()?);
    for library in LIBRARIES {
        lines.extend(bench.library(library)?);
    }
    lines.extend(bench.many_functions()?);
    let page = page(&lines, rounds)?;
    println!("\n{page}\nmeasured in {:.0} s", start.elapsed().as_secs_f64());
    let path = crate::root().join("docs/benchmarks.md");
    fs::create_dir_all(path.parent().expect("it lies in a folder")).context("failed to create `docs`")?;
    fs::write(&path, page).with_context(|| format!("failed to write `{}`", path.display()))
}

fn compile(name: &str, folder: &Path) -> Result<PathBuf> {
    let program = folder.join(name);
    let source = crate::root().join(format!("tests/targets/{name}.c"));
    let mut compiler = Command::new("gcc");
    compiler.args(["-O2", "-rdynamic", "-pthread", "-fopenmp", "-o"]).arg(&program).arg(source);
    process::run(compiler.args(["-lfftw3", "-lm"]))?;
    Ok(program)
}

/// A file of SQL that fills a table and asks about it.
fn statements(folder: &Path) -> Result<PathBuf> {
    let path = folder.join("statements.sql");
    let mut text = "create table if not exists t(a integer primary key, b text, c real);\ndelete from t;\n".to_owned();
    for number in 0..500 {
        writeln!(text, "insert into t values({number}, 'text {}', {}.5);", number * 7 % 101, number % 13)
            .expect("a string takes everything");
    }
    text.push_str("select count(*), sum(c) from t where b like '%7%';\n.print done\n");
    fs::write(&path, text).with_context(|| format!("failed to write `{}`", path.display()))?;
    Ok(path)
}

/// A library in a program that uses it.
struct Library {
    name: &'static str,
    program: Program,
    /// How much of what bpftrace adds rtrace may add.
    goal: f64,
    /// Whether the size of the trace has a goal.
    sized: bool,
    /// Whether it is traced by stubs too; its program is one of ours.
    stubs: bool,
}

/// The programs beside our own.
#[derive(Clone, Copy)]
enum Program {
    Python,
    Sqlite,
    /// Ours, with this work.
    Own(&'static str),
}

const LIBRARIES: &[Library] = &[
    Library { name: "libz.so.1", program: Program::Python, goal: 0.5, sized: true, stubs: false },
    Library { name: "libfftw3.so.3", program: Program::Own("fftw 1 100\n"), goal: 0.5, sized: true, stubs: false },
    Library { name: "libsqlite3.so.0", program: Program::Sqlite, goal: 0.5, sized: false, stubs: false },
    Library { name: "libgomp.so.1", program: Program::Own("gomp 1 20000\n"), goal: 0.2, sized: false, stubs: true },
];

const PYTHON: &str = "import sys, zlib
text = b'some text that is packed ' * 40
for line in sys.stdin:
    for i in range(2000):
        packed = zlib.compress(text, 6)
        zlib.crc32(packed)
        zlib.adler32(zlib.decompress(packed))
    print('done', flush=True)";

/// Kinds of counters, with some that every machine has.
const COUNTERS: &[(&str, &str)] = &[
    ("a counter that the kernel keeps for a thread", "page-faults"),
    ("the time on a CPU", "task-clock"),
    ("an event of each CPU", "cpu-clock"),
    ("two events of each CPU", "cpu-clock,alignment-faults"),
    (
        "eight counters",
        "task-clock,page-faults,minor-faults,major-faults,context-switches,cpu-migrations,cpu-clock,alignment-faults",
    ),
];

struct Bench {
    tools: Tools,
    program: PathBuf,
    /// It says how long it was held up.
    pauses: PathBuf,
    statements: PathBuf,
    rounds: u32,
}

impl Bench {
    /// The cost of a call where only the tracer works, and how it grows with threads.
    fn tight_loop(&self) -> Result<Vec<Line>> {
        const ONE: &str = "loop 1 200000\n";
        let mut subject = Subject::start(&mut Command::new(&self.program), ONE)?;
        let pid = subject.pid();
        let selection = Selection {
            libraries: vec!["exe".to_owned()],
            file: self.program.clone(),
            functions: vec!["pushes".to_owned()],
            ..Selection::default()
        };
        let sites = self.entry_sites(pid, &selection)?;
        let (mut floor, mut peer, mut two, mut many) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut lost = 0;
        for _ in 0..self.rounds {
            let untraced = subject.work()?;
            let nothing = self.tools.nothing(pid, &self.program, &sites)?;
            let least = subject.work()? - untraced;
            // It ends when its input does.
            drop(nothing);
            let bpftrace = self.tools.bpftrace(pid, &selection)?;
            let by_peer = subject.work()? - untraced;
            bpftrace.end()?;
            let rtrace = self.tools.rtrace(pid, &selection)?;
            let ours = subject.work()? - untraced;
            subject.set_work("loop 2 100000\n");
            let on_two = subject.work()? - untraced;
            subject.set_work("loop 64 3125\n");
            let on_many = subject.work()? - untraced;
            subject.set_work(ONE);
            lost += self.tools.recorded(rtrace)?.lost;
            floor.push(ours / least);
            peer.push(ours / by_peer);
            two.push(on_two / ours);
            many.push(on_many / ours);
        }
        let line = |what: &str, against, ratios, most: Option<f64>, remark: String| Line {
            what: what.to_owned(),
            against,
            ratios: Ratios(ratios),
            goal: most.map(Goal),
            remark,
        };
        Ok(vec![
            line("function with push, tight loop", "empty session program", floor, Some(1.25), String::new()),
            line("function with push, tight loop", "bpftrace", peer, None, String::new()),
            line(
                "two threads in a tight loop",
                "one thread",
                two,
                Some(1.15),
                format!("{lost} calls lost in all rounds"),
            ),
            line("64 threads in a tight loop", "one thread", many, Some(1.1), String::new()),
        ])
    }

    /// What each kind of counter adds to a call.
    fn counters(&self) -> Result<Vec<Line>> {
        const CALLS: f64 = 200_000.0;
        let mut subject = Subject::start(&mut Command::new(&self.program), "loop 1 200000\n")?;
        let mut selection = Selection {
            libraries: vec!["exe".to_owned()],
            functions: vec!["pushes".to_owned()],
            ..Selection::default()
        };
        let mut traced = |counters: &str| -> Result<f64> {
            counters.clone_into(&mut selection.counters);
            let rtrace = self.tools.rtrace(subject.pid(), &selection)?;
            let time = subject.work()?;
            self.tools.recorded(rtrace)?;
            Ok(time / CALLS)
        };
        let mut added = vec![Vec::new(); COUNTERS.len()];
        for _ in 0..self.rounds {
            let without = traced("")?;
            for (rounds, (_, names)) in added.iter_mut().zip(COUNTERS) {
                rounds.push(traced(names)? - without);
            }
        }
        let line = |(rounds, (what, names)): (Vec<f64>, &(&str, &str))| Line {
            what: format!("added to a call by {what}"),
            against: "a nanosecond",
            ratios: Ratios(rounds),
            goal: None,
            remark: format!("`--counters {names}`"),
        };
        Ok(added.into_iter().zip(COUNTERS).map(line).collect())
    }

    /// The functions of a library in a program that uses it.
    fn library(&self, library: &Library) -> Result<Vec<Line>> {
        let mut subject = self.start(library.program)?;
        let pid = subject.pid();
        let selection = self.most_called(&mut subject, library.name)?;
        let (mut ratios, mut costs, mut sizes, mut by_stubs) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut recorded = Recorded::default();
        for _ in 0..self.rounds {
            let untraced = subject.work()?;
            let bpftrace = self.tools.bpftrace(pid, &selection)?;
            let by_peer = subject.work()? - untraced;
            bpftrace.end()?;
            let rtrace = self.tools.rtrace(pid, &selection)?;
            let ours = subject.work()? - untraced;
            recorded = self.tools.recorded(rtrace)?;
            ratios.push(ours / by_peer);
            costs.push(ours / recorded.calls as f64);
            sizes.push(recorded.bytes as f64 / recorded.calls as f64);
            if let (true, Program::Own(work)) = (library.stubs, library.program) {
                let mut subject = self.tools.stubs(&selection, &self.program, work)?;
                by_stubs.push((subject.work()? - untraced) / by_peer);
                self.tools.told(&subject.end()?)?;
            }
        }
        let remark = format!(
            "{} calls of {} functions, {} ns each, {} lost",
            recorded.calls,
            selection.functions.len(),
            Ratios(costs).median().round(),
            recorded.lost
        );
        let mut lines = vec![Line {
            what: format!("time added to calls of {}", library.name),
            against: "bpftrace",
            ratios: Ratios(ratios),
            goal: Some(Goal(library.goal)),
            remark,
        }];
        if library.sized {
            lines.push(Line {
                what: format!("bytes on disk per call of {}", library.name),
                against: "a byte",
                ratios: Ratios(sizes),
                goal: Some(Goal(8.0)),
                remark: String::new(),
            });
        }
        if !by_stubs.is_empty() {
            lines.push(Line {
                what: format!("time added to calls of {} by `run --stubs`", library.name),
                against: "bpftrace",
                ratios: Ratios(by_stubs),
                goal: Some(Goal(library.goal)),
                remark: String::new(),
            });
        }
        Ok(lines)
    }

    fn start(&self, program: Program) -> Result<Subject> {
        match program {
            Program::Python => Subject::start(Command::new("/usr/bin/python3").args(["-u", "-c", PYTHON]), "go\n"),
            Program::Sqlite => {
                let work = format!(".read '{}'\n", self.statements.display());
                Subject::start(Command::new("/usr/bin/sqlite3").args(["-batch", ":memory:"]), &work)
            }
            Program::Own(work) => Subject::start(&mut Command::new(&self.program), work),
        }
    }

    /// The functions of a library that the program calls most.
    fn most_called(&self, subject: &mut Subject, library: &str) -> Result<Selection> {
        let all = Selection { libraries: vec![library.to_owned()], ..Selection::default() };
        let attached = self.tools.rtrace(subject.pid(), &all)?;
        subject.work()?;
        self.tools.recorded(attached)?;
        let mut report = Command::new(&self.tools.rtrace);
        report.arg("report").arg(&self.tools.trace).args(["--format", "csv"]);
        let report = process::output(&mut report)?;
        let mut functions: Vec<(u64, &str)> = report
            .lines()
            .skip(1)
            .filter_map(|line| Some((line.split(',').next()?.parse().ok()?, line.rsplit(',').next()?)))
            .collect();
        functions.sort_unstable_by_key(|&(calls, _)| std::cmp::Reverse(calls));
        let functions: Vec<String> = functions.iter().take(FUNCTIONS).map(|(_, name)| (*name).to_owned()).collect();
        if functions.is_empty() {
            bail!("failed to see a call of `{library}`");
        }
        Ok(Selection { file: mapped(subject.pid(), library)?, functions, ..all })
    }

    /// File offsets of the entry sites.
    fn entry_sites(&self, pid: u32, selection: &Selection) -> Result<Vec<u64>> {
        let mut plan = Command::new(&self.tools.rtrace);
        plan.args(["plan", "-p", &pid.to_string(), "--lib", "exe", "--format", "json"]);
        for function in &selection.functions {
            plan.args(["--func", function]);
        }
        let plan: serde_json::Value = serde_json::from_str(&process::output(&mut plan)?)?;
        let functions = plan["libraries"][0]["functions"].as_array().context("failed to read the plan")?;
        Ok(functions.iter().filter_map(|function| function["entry_site"].as_u64()).collect())
    }
}

/// The file that a process maps under this name.
fn mapped(pid: u32, library: &str) -> Result<PathBuf> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).context("failed to read what the program maps")?;
    let stem = library.split(".so").next().unwrap_or(library);
    let paths = maps.lines().filter_map(|line| line.split_whitespace().nth(5)).map(PathBuf::from);
    let is_it = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(stem));
    paths.into_iter().find(is_it).with_context(|| format!("failed to find `{library}` in process {pid}"))
}

fn page(lines: &[Line], rounds: u32) -> Result<String> {
    let kernel = process::output(Command::new("uname").arg("-r"))?;
    let bpftrace = process::output(Command::new("bpftrace").arg("--version"))?;
    let mut page = format!(
        "# Benchmarks\n\nWritten by `cargo xtask bench` on Linux {}, with {}: the median of {rounds} paired rounds, and \
         the lowest and highest round. Times are CPU time that the tracer adds to the traced process; bpftrace counts \
         calls and adds up times per function, and rtrace records each call. Of each library both probe the {FUNCTIONS} \
         functions that are called most.\n\n| what | against | ratio | rounds | goal | |\n|---|---|---|---|---|---|\n",
        kernel.trim(),
        bpftrace.trim()
    );
    for Line { what, against, ratios, goal, remark } in lines {
        let (lowest, highest) = ratios.range();
        let median = ratios.median();
        let goal = goal.as_ref().map_or_else(String::new, |goal| format!("{goal}: {}", goal.verdict(median)));
        writeln!(page, "| {what} | {against} | {median:.2} | {lowest:.2} to {highest:.2} | {goal} | {remark} |")?;
    }
    Ok(page)
}
