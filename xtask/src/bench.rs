//! `cargo xtask bench`: what tracing costs the traced program, beside bpftrace doing the same job.
//!
//! A round lets one program work untraced, with each tracer in turn, and only ratios within a round
//! are compared: the machine's speed drifts more than the tracers differ. Time is CPU time of the
//! traced process, the least of a few times in a row. What a goal asks for and is not reached is said so.

mod budget;
mod figures;
mod library;
mod mkl;
mod programs;
mod start;
mod subject;
mod tracer;
mod values;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::Result;

use self::figures::{Goal, Ratios};
use self::library::FUNCTIONS;
use self::subject::{WORKS, Worker};
use self::tracer::{BenchSelection, Tools};
use crate::{files, packages, process};

/// What can be measured alone, by name.
pub const PARTS: [&str; 7] = ["loop", "counters", "values", "libraries", "programs", "many", "budget"];

/// A line of the table.
struct BenchLine {
    what: String,
    /// Of the value: a unit, or what it is a multiple of.
    unit: &'static str,
    /// Empty where it could not be measured; the remark says why.
    ratios: Ratios,
    /// None where nothing is asked for.
    goal: Option<Goal>,
    remark: String,
}

/// Measures these parts and prints them; without any, measures all and writes `docs/benchmarks.md`.
pub fn run(rounds: u32, parts: &[String]) -> Result<()> {
    packages::require(&[packages::BUILD, packages::BENCH].concat())?;
    let rtrace = process::release()?;
    process::run(&mut process::cargo(&["build", "--release", "--package", "rtrace-bpf", "--example", "nothing"]))?;
    let folder = files::folder(process::target_directory().join("bench"))?;
    let bench = Bench {
        tools: Tools {
            nothing: rtrace.with_file_name("examples").join("nothing"),
            rtrace,
            trace: folder.join("trace"),
        },
        program: compile("bench", &["-pthread", "-fopenmp"], &["-lfftw3", "-lm"], &folder)?,
        pauses: compile("pauses", &[], &[], &folder)?,
        folder,
        rounds,
    };
    let start = Instant::now();
    let mut lines = Vec::new();
    for part in PARTS.into_iter().filter(|part| parts.is_empty() || parts.iter().any(|wanted| wanted == part)) {
        lines.extend(match part {
            "loop" => bench.tight_loop()?,
            "counters" => bench.counters()?,
            "values" => bench.values()?,
            "libraries" => bench.libraries()?,
            "programs" => bench.programs()?,
            "many" => bench.many_functions()?,
            _ => bench.budget()?,
        });
    }
    let page = page(&lines, rounds)?;
    println!("\n{page}\nmeasured in {:.0} s", start.elapsed().as_secs_f64());
    if !parts.is_empty() {
        return Ok(());
    }
    files::write(&crate::root().join("docs/benchmarks.md"), page)
}

/// Compiles one of the programs of the tests; `libraries` as the linker wants them.
fn compile(name: &str, options: &[&str], libraries: &[&str], folder: &Path) -> Result<PathBuf> {
    let program = folder.join(name);
    let source = crate::root().join("tests/targets").join(name).with_extension("c");
    let mut compiler = Command::new("gcc");
    compiler.args(["-O2", "-rdynamic"]).args(options).arg("-o").arg(&program).arg(source);
    process::run(compiler.args(libraries))?;
    Ok(program)
}

/// Kinds of counters, with some that every machine has.
const COUNTERS: &[(&str, &str)] = &[
    ("a per-thread counter", "page-faults"),
    ("the CPU time", "task-clock"),
    ("a per-CPU event", "cpu-clock"),
    ("two per-CPU events", "cpu-clock,alignment-faults"),
    (
        "eight counters",
        "task-clock,page-faults,minor-faults,major-faults,context-switches,cpu-migrations,cpu-clock,alignment-faults",
    ),
];

struct Bench {
    tools: Tools,
    program: PathBuf,
    /// It says for how long it was held up.
    pauses: PathBuf,
    /// Where programs and traces lie.
    folder: PathBuf,
    rounds: u32,
}

impl Bench {
    /// A function of the program that begins with a push.
    fn pushes(&self) -> BenchSelection {
        BenchSelection {
            libraries: vec!["exe".to_owned()],
            file: self.program.clone(),
            functions: vec!["pushes".to_owned()],
            ..BenchSelection::default()
        }
    }

    /// The cost of a call where only the tracer works, and how it grows with threads: that of programs that
    /// do nothing does, too, as far as CPUs share what they work with.
    fn tight_loop(&self) -> Result<Vec<BenchLine>> {
        // One thread, two and many, which make so many calls together: so many that it does not matter what a
        // thread costs that begins.
        const CALLS: f64 = 400_000.0;
        const LOOPS: [&str; 3] = ["loop 1 400000\n", "loop 2 200000\n", "loop 64 6250\n"];
        let mut subject = Worker::start(&mut Command::new(&self.program), LOOPS[0])?;
        let pid = subject.pid();
        let mut work = |without: [f64; 3]| -> Result<[f64; 3]> {
            let mut times = [0.0; 3];
            for ((time, of_loop), without) in times.iter_mut().zip(LOOPS).zip(without) {
                subject.set_work(of_loop);
                *time = subject.quickest()? - without;
            }
            Ok(times)
        };
        let selection = self.pushes();
        let sites = self.tools.sites(pid, &selection)?;
        let (mut floor, mut peer, mut two, mut many) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (mut of_nothing, mut of_call) = (Vec::new(), Vec::new());
        let (mut floor_of_two, mut floor_of_many) = (Vec::new(), Vec::new());
        let mut lost = 0;
        for _ in 0..self.rounds {
            let untraced = work([0.0; 3])?;
            let nothing = self.tools.nothing(pid, &self.program, &sites)?;
            let least = work(untraced)?;
            drop(nothing);
            let bpftrace = self.tools.bpftrace(pid, &selection)?;
            let by_peer = work(untraced)?;
            tracer::end(bpftrace)?;
            let rtrace = self.tools.rtrace(pid, &selection)?;
            let ours = work(untraced)?;
            lost += self.tools.recorded(rtrace)?.lost;
            floor.push(ours[0] / least[0]);
            of_call.push(ours[0] / CALLS);
            of_nothing.push(least[0] / CALLS);
            peer.push(ours[0] / by_peer[0]);
            two.push(ours[1] / ours[0]);
            many.push(ours[2] / ours[0]);
            floor_of_two.push(least[1] / least[0]);
            floor_of_many.push(least[2] / least[0]);
        }
        let line = |what: &str, unit, ratios, most: Option<f64>, remark: String| BenchLine {
            what: what.to_owned(),
            unit,
            ratios: Ratios(ratios),
            goal: most.map(Goal),
            remark,
        };
        let floor_of = |ratios| format!("empty programs: {:.2}", Ratios(ratios).median());
        let of_one =
            format!("{:.0} ns a call, empty program {:.0}", Ratios(of_call).median(), Ratios(of_nothing).median());
        let of_two =
            format!("{}; {lost} calls lost in all rounds, including those of 64 threads", floor_of(floor_of_two));
        Ok(vec![
            line("function with push, tight loop", "× empty program", floor, Some(1.25), of_one),
            line("function with push, tight loop", "× bpftrace", peer, None, String::new()),
            line("two threads in a tight loop", "× one thread", two, Some(1.15), of_two),
            line("64 threads in a tight loop", "× one thread", many, Some(1.1), floor_of(floor_of_many)),
        ])
    }

    /// What each kind of counter adds to a call.
    fn counters(&self) -> Result<Vec<BenchLine>> {
        const CALLS: f64 = 200_000.0;
        let mut subject = Worker::start(&mut Command::new(&self.program), "loop 1 200000\n")?;
        let mut selection = self.pushes();
        let mut traced = |counters: &str| -> Result<f64> {
            selection.options = ["--counters", counters].map(str::to_owned).into();
            let rtrace = self.tools.rtrace(subject.pid(), &selection)?;
            let time = subject.quickest()?;
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
        let line = |(rounds, (what, names)): (Vec<f64>, &(&str, &str))| BenchLine {
            what: format!("added per call by {what}"),
            unit: "ns",
            ratios: Ratios(rounds),
            goal: None,
            remark: format!("`--counters {names}`"),
        };
        Ok(added.into_iter().zip(COUNTERS).map(line).collect())
    }
}

fn page(lines: &[BenchLine], rounds: u32) -> Result<String> {
    let kernel = process::output(Command::new("uname").arg("-r"))?;
    let bpftrace = process::output(Command::new("bpftrace").arg("--version"))?;
    let cpus = files::read(Path::new("/proc/cpuinfo"))?;
    let cpu = cpus.lines().find(|line| line.starts_with("model name")).and_then(|line| line.split_once(": "));
    let mut page = format!(
        "# Benchmarks\n\nWritten by `cargo xtask bench` on Linux {}, {}, with {}. Values are the median of {rounds} paired \
         rounds; `rounds` has the lowest and the highest. In each round the process works {WORKS} times untraced and \
         {WORKS} times with each tracer, and the fastest run counts. Times are the CPU time that a tracer adds to the \
         traced process. bpftrace counts calls and sums up times per function; rtrace records each call. For each \
         library, both probe the {FUNCTIONS} functions that are called most. The floor is the cost of empty BPF \
         programs at rtrace's entry sites, in the unit of the value. In what is added to a call it has the return \
         sites, too: as many hits as there were, each at what an empty program costs at an instruction that the kernel \
         emulates, or single-steps.\n\n\
         | what | value | unit | rounds | goal | |\n|---|---|---|---|---|---|\n",
        kernel.trim(),
        cpu.map_or("a CPU without a name", |(_, name)| name),
        bpftrace.trim()
    );
    for BenchLine { what, unit, ratios, goal, remark } in lines {
        if ratios.0.is_empty() {
            let goal = goal.as_ref().map_or_else(String::new, ToString::to_string);
            writeln!(page, "| {what} | not measured | {unit} | | {goal} | {remark} |")?;
            continue;
        }
        let (lowest, highest) = ratios.range();
        let median = ratios.median();
        let goal = goal.as_ref().map_or_else(String::new, |goal| format!("{goal}: {}", goal.verdict(median)));
        writeln!(page, "| {what} | {median:.2} | {unit} | {lowest:.2} to {highest:.2} | {goal} | {remark} |")?;
    }
    Ok(page)
}
