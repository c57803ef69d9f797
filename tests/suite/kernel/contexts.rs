//! Which untraced functions led to calls, compared with what gdb says of the same calls.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use rtrace_exporters::TraceSet;
use rtrace_model::{Call, CallSite, Context, ContextEnding};
use tempfile::TempDir;

use crate::common::rtrace;
use crate::common::skip::{Turn, installed};
use crate::common::tries::in_one_of_some_tries;

/// Calls that are compared.
const SAMPLES: usize = 200;

/// A frame: function, file and line, as far as they are known.
type Frame = (String, Option<String>);

/// Compiles a program without frame pointers.
fn compile(folder: &Path, compiler: &str, source: &str, flags: &[&str]) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/targets").join(source);
    let mut command = Command::new(compiler);
    command.args(["-O2", "-g", "-fomit-frame-pointer", "-o", "program"]).args(flags).arg(source);
    assert!(command.current_dir(folder).status().unwrap().success());
}

/// The recorded calls of the program, by ID, and what they refer to.
fn record(folder: &Path, options: &[&str]) -> (TraceSet, Vec<Call>) {
    let directory = folder.join("trace");
    let all = ["--lib", "libc.so.6", "--func", "getppid"].iter().chain(options).map(|&option| option.to_owned());
    rtrace::record(&all.collect::<Vec<_>>(), &Command::new(folder.join("program")), &directory);
    let trace = TraceSet::open(&directory).unwrap();
    let mut calls: Vec<Call> = trace.calls().flat_map(|batch| batch.unwrap().into_calls()).collect();
    calls.sort_by_key(|call| call.id);
    (trace, calls)
}

/// A name without what tools write differently: scopes, template arguments, parameters and results.
fn bare(name: &str) -> String {
    let (mut plain, mut depth) = (String::new(), 0);
    for c in name.replace("operator()", "operator").chars() {
        match c {
            '<' => depth += 1,
            '>' => depth -= 1,
            '(' if depth == 0 => break,
            c if depth == 0 => plain.push(c),
            _ => {}
        }
    }
    let plain = plain.trim();
    plain.rsplit([' ', ':']).next().unwrap_or(plain).to_owned()
}

fn place(file: &str, line: u32) -> String {
    format!("{}:{line}", file.rsplit('/').next().unwrap_or(file))
}

/// The frames of a call from its caller up to `main`, the innermost first.
fn recorded(trace: &TraceSet, call: &Call) -> (Vec<Frame>, ContextEnding) {
    let context: &Context = trace.context(call.context.expect("it has a context")).unwrap();
    let mut frames = Vec::new();
    for id in call.call_site.iter().chain(&context.sites) {
        let site: &CallSite = trace.call_site(*id).unwrap();
        let mut at = site.source.clone();
        let told = |at: &Option<rtrace_model::SourceLine>| at.as_ref().map(|at| place(&at.file, at.line));
        for inlined in site.inlined.iter().rev() {
            frames.push((bare(&inlined.function), told(&std::mem::replace(&mut at, inlined.called_at.clone()))));
        }
        frames.push((site.function.as_deref().map(bare).unwrap_or_default(), told(&at)));
        if site.function.as_deref() == Some("main") {
            break;
        }
    }
    (frames, context.ending)
}

/// What gdb prints at these calls of `getppid`, which are in order: the frames above its own, up to `main`.
fn told_by_gdb(folder: &Path, calls: &[u64]) -> Vec<Vec<Frame>> {
    let mut script = "set pagination off\nset width 0\nset print frame-arguments none\nset breakpoint pending on\n\
                      set debuginfod enabled off\nbreak main\nrun\nbreak getppid\n"
        .to_owned();
    let mut before = 0;
    for &call in calls {
        script += &format!("ignore 2 {}\ncontinue\necho @@\\n\nbt\n", call - before - 1);
        before = call;
    }
    script += "kill\n";
    std::fs::write(folder.join("script"), script).unwrap();
    let gdb = Command::new("gdb").args(["-nx", "-batch", "-x", "script", "./program"]).current_dir(folder).output();
    let text = String::from_utf8_lossy(&gdb.unwrap().stdout).into_owned();
    let frame = |line: &str| {
        let rest = line.strip_prefix('#')?.split_once(' ')?.1.trim_start();
        let rest = rest.strip_prefix("0x").and_then(|rest| Some(rest.split_once(" in ")?.1)).unwrap_or(rest);
        let at = rest.rsplit_once(" at ").and_then(|(_, at)| at.rsplit_once(':'));
        Some((bare(rest), at.map(|(file, line)| place(file, line.trim().parse().unwrap_or(0)))))
    };
    text.split("@@\n").skip(1).map(|stop| stop.lines().filter_map(frame).skip(1).collect()).collect()
}

/// Compares random calls of a program; those of which less is known must be few, and say so.
fn compare(compiler: &str, source: &str, functions: &[&str]) {
    let Some(_turn) = Turn::take().filter(|_| installed(&[compiler, "gdb"])) else { return };
    let folder = TempDir::new().unwrap();
    compile(folder.path(), compiler, source, &[]);
    let (trace, calls) = record(folder.path(), &["--stacks"]);
    assert!(
        calls.iter().zip(1..).all(|(call, id)| call.id == id && call.context.is_some()),
        "calls or contexts are missing"
    );
    let mut state = 7_u64;
    let mut chosen = std::collections::BTreeSet::new();
    while chosen.len() < SAMPLES {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        chosen.insert((state >> 33) % calls.len() as u64 + 1);
    }
    let chosen: Vec<u64> = chosen.into_iter().collect();
    let told = told_by_gdb(folder.path(), &chosen);
    assert_eq!(told.len(), SAMPLES, "gdb stopped at each");
    // gdb also tells functions of the C library that have ended in a jump, where debug information lets it infer that.
    let own = |frames: &[Frame]| -> Vec<Frame> {
        frames.iter().filter(|(name, _)| functions.contains(&name.as_str())).cloned().collect()
    };
    let mut complete = 0;
    for (&id, told) in chosen.iter().zip(&told) {
        assert_eq!(told.last().map(|(name, _)| name.as_str()), Some("main"), "{told:?}");
        let (found, ending) = recorded(&trace, &calls[id as usize - 1]);
        let (found, told) = (own(&found), own(told));
        if ending == ContextEnding::Complete {
            complete += 1;
            assert_eq!(found.len(), told.len(), "call {id}: {found:?} {told:?}");
        }
        for (found, told) in found.iter().zip(&told) {
            assert_eq!(found.0, told.0, "call {id}");
            // gdb names the line of an inlined function of a header where `addr2line` names that of the call.
            if told.1.as_ref().is_some_and(|at| at.starts_with("contexts.")) {
                assert_eq!(found.1, told.1, "call {id}");
            }
        }
    }
    assert!(complete >= SAMPLES * 9 / 10, "only {complete} are complete");
}

#[test]
fn contexts_in_c_are_those_that_gdb_tells() {
    let functions = ["ask", "leaf", "large", "variable", "aligned", "crowded", "compare", "sorts", "descend", "main"];
    compare("gcc", "contexts.c", &functions);
}

#[test]
fn contexts_in_cpp_are_those_that_gdb_tells() {
    compare("g++", "contexts.cpp", &["ask", "make", "fail", "visit", "operator", "sorts", "main"]);
}

#[test]
fn contexts_that_are_cut_or_not_described_say_so() {
    let Some(_turn) = Turn::take().filter(|_| installed(&["gcc"])) else { return };
    let folder = TempDir::new().unwrap();
    compile(folder.path(), "gcc", "contexts.c", &[]);
    let (trace, calls) = record(folder.path(), &["--stacks=2"]);
    let most = trace.contexts().iter().map(|context| context.sites.len()).max();
    assert_eq!(most, Some(2));
    assert!(
        trace.contexts().iter().all(|context| (context.ending == ContextEnding::Complete) <= (context.sites.len() < 2))
    );
    assert!(calls.iter().all(|call| call.context.is_some()));
    // No unwind tables: nothing is known of whoever called the program's functions.
    compile(folder.path(), "gcc", "contexts.c", &["-fno-asynchronous-unwind-tables", "-fno-unwind-tables"]);
    std::fs::remove_dir_all(folder.path().join("trace")).unwrap();
    let (trace, calls) = record(folder.path(), &["--stacks"]);
    let ending = |call: &Call| trace.context(call.context.unwrap()).unwrap().ending;
    assert!(!calls.is_empty() && calls.iter().all(|call| ending(call) == ContextEnding::NotDescribed));
    assert!(trace.contexts().iter().all(|context| context.sites.is_empty()));
}

/// Calls `crc32` from five places, 100 times each until all ways through the interpreter are known, and 2,000 times more.
const SCRIPT: &str = "import sys, time, zlib
if sys.argv[-1] == 'wait':
    print('ready 0', flush=True); sys.stdin.readline()
data = b'x' * 16
class Solver:
    def step(self, n):
        for _ in range(n):
            zlib.crc32(data)
            (lambda: zlib.crc32(data))()
def deep(n):
    return zlib.crc32(data) if n == 0 else deep(n - 1)
def lazy(n):
    for _ in range(n):
        yield zlib.crc32(
            data)
for n in 100, 2000:
    Solver().step(n)
    sum(lazy(n))
    for _ in range(n):
        deep(10)
    sum(map(zlib.crc32, [data] * n))
    time.sleep(3)
";

/// Calls from each place at the beginning, which may be late, and in all.
const FIRST_CALLS: usize = 100;
const ALL_CALLS: usize = 2100;

/// The functions with their lines that lead to them.
fn lines_of_script() -> Vec<String> {
    let deep = format!("{}<module>:20", "deep:11 ".repeat(11));
    let places = ["Solver.step.<locals>.<lambda>:9 Solver.step:9 <module>:17", "Solver.step:8 <module>:17"];
    let others = ["lazy:14 <module>:18", deep.as_str(), "<module>:21"];
    places.into_iter().chain(others).map(str::to_owned).collect()
}

#[test]
fn calls_of_python_have_the_lines_that_made_them() {
    let Some(_turn) = Turn::take().filter(|_| installed(&["python3"])) else { return };
    let folder = TempDir::new().unwrap();
    let script = folder.path().join("fit.py");
    std::fs::write(&script, SCRIPT).unwrap();
    let runs =
        |name: &&str| Command::new(name).args(["-c", "import zlib"]).output().is_ok_and(|ran| ran.status.success());
    for python in ["python3", "python3.11", "python3.12", "python3.13", "python3.14"].into_iter().filter(runs) {
        for attaches in [true, false] {
            in_one_of_some_tries(TRIES, || compare_lines(python, attaches, &script));
        }
    }
}

/// How often a way may be learnt late: then up to 1,700 of the later calls come before it is known.
const TRIES: usize = 5;

fn compare_lines(python: &str, attaches: bool, script: &Path) -> Result<(), String> {
    let options = ["--lib", "libz.so.1", "--func", "crc32", "--stacks"].map(str::to_owned);
    let mut command = Command::new(python);
    command.arg(script);
    let folder = TempDir::new().unwrap();
    let directory = folder.path().join("trace");
    let left;
    let trace = if attaches {
        let mut program = rtrace::Waiting::start(&mut command);
        let attached = rtrace::Attached::start(program.pid(), &options);
        program.go();
        program.finish();
        left = attached.leave();
        TraceSet::open(&left.path().join("trace")).unwrap()
    } else {
        rtrace::record(&options, &command, &directory);
        TraceSet::open(&directory).unwrap()
    };
    let (mut lines, mut late) = (BTreeMap::<String, usize>::new(), 0_usize);
    for call in trace.calls().flat_map(|batch| batch.unwrap().into_calls()) {
        let context = call.context.map(|context| trace.context(context).unwrap());
        let Some(context) = context.filter(|context| context.ending != ContextEnding::NotYetKnown) else {
            late += 1;
            continue;
        };
        let sites = context.sites.iter().map(|&site| trace.call_site(site).unwrap());
        let interpreted = sites.filter(|site| site.is_interpreted()).map(|site| {
            let source = site.source.as_ref().unwrap();
            assert_eq!(Path::new(&source.file), script);
            format!("{}:{}", site.function.as_deref().unwrap(), source.line)
        });
        *lines.entry(interpreted.collect::<Vec<_>>().join(" ")).or_insert(0) += 1;
    }
    println!("{python}, attached: {attaches}: {late} calls came before the way to them was known");
    let (seen, places): (BTreeSet<_>, BTreeSet<_>) =
        (lines.keys().cloned().collect(), lines_of_script().into_iter().collect());
    assert!(seen.is_subset(&places), "{python}, attached: {attaches}: {seen:?}");
    assert_eq!(lines.values().sum::<usize>() + late, 5 * ALL_CALLS);
    let are_known = seen == places && lines.values().all(|calls| (ALL_CALLS - FIRST_CALLS..=ALL_CALLS).contains(calls));
    if are_known { Ok(()) } else { Err(format!("{python}, attached: {attaches}: {lines:?}")) }
}

/// Its first call comes long after the command began. The code that calls is freed soon, and the next is in its place.
const FREED: &str = "import zlib
for n in range(1, 201):
    exec(compile('\\n' * (n - 1) + 'zlib.crc32(b\"x\")', f'f{n}', 'exec'))
";

#[test]
fn calls_of_python_code_that_is_freed_have_no_lines_of_other_code() {
    let Some(_turn) = Turn::take().filter(|_| installed(&["python3"])) else { return };
    let folder = TempDir::new().unwrap();
    let script = folder.path().join("freed.py");
    std::fs::write(&script, FREED).unwrap();
    in_one_of_some_tries(TRIES, || compare_freed(&script));
}

fn compare_freed(script: &Path) -> Result<(), String> {
    let options = ["--lib", "libz.so.1", "--func", "crc32", "--stacks"].map(str::to_owned);
    let mut command = Command::new("sh");
    command.args(["-c", &format!("sleep 1.2; exec python3 {}", script.display())]);
    let directory = TempDir::new().unwrap();
    rtrace::record(&options, &command, &directory.path().join("trace"));
    let trace = TraceSet::open(&directory.path().join("trace")).unwrap();
    let mut calls: Vec<Call> = trace.calls().flat_map(|batch| batch.unwrap().into_calls()).collect();
    calls.sort_by_key(|call| call.start);
    let mut late = 0;
    for (call, line) in calls.iter().zip(1..) {
        let context = trace.context(call.context.expect("it has a context")).unwrap();
        let mut sites = context.sites.iter().map(|&site| trace.call_site(site).unwrap());
        match sites.find(|site| site.is_interpreted()).and_then(|site| site.source.as_ref()) {
            Some(source) if source.line == 0 => assert_eq!(source.file, "(unknown code)"),
            Some(source) => assert_eq!((&*source.file, source.line), (&*format!("f{line}"), line)),
            None => late += 1,
        }
    }
    assert_eq!(calls.len(), 200);
    if late == 0 { Ok(()) } else { Err(format!("{late} calls came before the interpreter was known")) }
}
