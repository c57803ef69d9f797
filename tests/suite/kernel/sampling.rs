//! Looks at where CPU time is spent: they find what a program knows of itself, and change nothing in it.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::thread;

use rtrace_symbolizer::modules;
use serde_json::Value;
use tempfile::TempDir;

use crate::common::rtrace;
use crate::common::skip::Turn;
use crate::common::target;

/// Each turn of the loop takes as long as any other, wherever it is. A probe on the first instruction is not in the loop.
const SPIN: &str = r#"
#define SPIN(name)                                                      \
	__attribute__((noinline, aligned(64))) void name(long turns)    \
	{                                                               \
		__asm__ volatile("nop\n1: dec %0\n\tjnz 1b" : "+r"(turns)); \
	}
"#;

/// Forever: of 100 turns 40 and 20 in two functions of a library, 25 in another library, and 15 in code that it makes.
/// How long that takes is different each time, so that no clock keeps step with it.
const MAIN: &str = r#"
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
void forty(long turns);
void twenty(long turns);
void quarter(long turns);
int main(void)
{
	/* The loop: dec rdi; jnz back; ret. */
	static const unsigned char loop[] = {0x48, 0xff, 0xcf, 0x75, 0xfb, 0xc3};
	void *memory = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	void (*made)(long turns);
	unsigned long number = 1;

	memcpy(memory, loop, sizeof(loop));
	memcpy(&made, &memory, sizeof(made));
	puts("ready");
	fflush(stdout);
	for (;;) {
		number = number * 6364136223846793005 + 1442695040888963407;
		long unit = 5000 + (number >> 33) % 10000;
		forty(40 * unit);
		twenty(20 * unit);
		quarter(25 * unit);
		made(15 * unit);
	}
}
"#;

/// What the program knows of itself.
const IN_FIRST: f64 = 0.60;
const IN_FORTY: f64 = 0.40;
const IN_TWENTY: f64 = 0.20;
const IN_SECOND: f64 = 0.25;
const IN_MADE: f64 = 0.15;

/// The program, until this goes.
struct Spinning {
    child: Child,
    folder: PathBuf,
}

impl Spinning {
    /// Where it and its libraries are.
    fn compile() -> PathBuf {
        let source = |functions: &str| format!("{SPIN}{functions}");
        let (first, second) = (source("SPIN(forty) SPIN(twenty)"), source("SPIN(quarter)"));
        let library: &[&str] = &["-O2", "-shared", "-fPIC"];
        let texts = [(&*first, "libfirst.so", library), (&second, "libsecond.so", library), (MAIN, "spins", &["-O2"])];
        target::compile_texts(&texts)
    }

    fn start() -> Spinning {
        let folder = Spinning::compile();
        let mut child = Command::new(folder.join("spins")).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Spinning { child, folder }
    }

    fn pid(&self) -> String {
        self.child.id().to_string()
    }

    fn library(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    /// The code of its files, as it is in its memory now.
    fn code(&self) -> Vec<u8> {
        let memory = File::open(format!("/proc/{}/mem", self.child.id())).unwrap();
        let mut code = Vec::new();
        for module in modules::of_process(self.child.id()).unwrap() {
            for mapping in module.mappings.iter().filter(|mapping| mapping.executable) {
                let from = code.len();
                code.resize(from + usize::try_from(mapping.length()).unwrap(), 0);
                memory.read_exact_at(&mut code[from..], mapping.start).unwrap();
            }
        }
        code
    }
}

impl Drop for Spinning {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn rtrace(arguments: &[&str]) -> Output {
    let output = rtrace::command().args(arguments).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_slice(&rtrace(arguments).stdout).unwrap()
}

fn named<'v>(list: &'v Value, key: &str, name: &str) -> &'v Value {
    let mut values = list.as_array().unwrap().iter();
    values
        .find(|value| value[key].as_str().is_some_and(|text| text.ends_with(name)))
        .unwrap_or_else(|| panic!("{list:#}"))
}

/// The shares that may come of one that is true: 4 standard deviations of so many samples to both sides, 1 in 15,000; and
/// one in 100 that the kernel may take for itself.
fn around(truth: f64, samples: u64) -> Range<f64> {
    let deviation = 4.0 * (truth * (1.0 - truth) / samples as f64).sqrt();
    truth * 0.99 - deviation..truth + deviation
}

fn check(share: &Value, truth: f64, all: u64, list: &Value) {
    let share = share.as_f64().unwrap();
    assert!(around(truth, all).contains(&share), "{share} of {all} samples for {truth}: {list:#}");
}

#[test]
fn libraries_and_functions_come_by_the_cpu_time_that_they_use() {
    let Some(_turn) = Turn::take() else { return };
    let (one, other) = (Spinning::start(), Spinning::start());
    let pids = format!("{},{}", one.pid(), other.pid());
    let list = json(&["libs", "-p", &pids, "--sample=2s", "--json"]);
    let sampled = |list: &Value, what: &str| list["sampled"][what].as_u64().unwrap();
    let all = sampled(&list, "samples");
    assert!(all >= 100 && sampled(&list, "lost") + sampled(&list, "unknown") == 0, "{list:#}");
    assert_eq!(
        (&list["libraries"][0]["library"], &list["libraries"][1]["library"]),
        (&"libfirst.so".into(), &"libsecond.so".into())
    );
    check(&list["libraries"][0]["cpu_share"], IN_FIRST, all, &list);
    check(&list["libraries"][1]["cpu_share"], IN_SECOND, all, &list);
    let made = sampled(&list, "no_file") as f64 / all as f64;
    assert!(around(IN_MADE, all).contains(&made), "{made}: {list:#}");
    let samples = list["libraries"].as_array().unwrap().iter().map(|library| library["samples"].as_u64().unwrap());
    assert_eq!(samples.sum::<u64>() + sampled(&list, "no_file") + sampled(&list, "kernel"), all, "{list:#}");

    let (first, second) = (one.library("libfirst.so"), one.library("libsecond.so"));
    let plan = json(&["plan", "-p", &pids, "--lib", &first, "--lib", &second, "--sample", "2s", "--format", "json"]);
    let all = sampled(&plan, "samples");
    let functions = &named(&plan["libraries"], "path", "libfirst.so")["functions"];
    check(&named(functions, "name", "forty")["cpu_share"], IN_FORTY, all, &plan);
    check(&named(functions, "name", "twenty")["cpu_share"], IN_TWENTY, all, &plan);
    let functions = &named(&plan["libraries"], "path", "libsecond.so")["functions"];
    check(&named(functions, "name", "quarter")["cpu_share"], IN_SECOND, all, &plan);
}

#[test]
fn a_command_without_a_library_is_summed_up_with_what_to_trace() {
    let Some(_turn) = Turn::take() else { return };
    let program = Spinning::compile().join("spins");
    // It is ended after a second of CPU time.
    let limited = ["run", "--", "prlimit", "--cpu=1", program.to_str().unwrap()];
    let output = rtrace::command().args(limited).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), &*output.stdout), (Some(128 + libc::SIGKILL), &b"ready\n"[..]), "{said}");
    let words = |name: &str| -> Vec<&str> {
        said.lines()
            .find(|line| line.starts_with(name))
            .unwrap_or_else(|| panic!("{said}"))
            .split_whitespace()
            .collect()
    };
    let share = words("libfirst.so")[1].parse::<f64>().unwrap() / 100.0;
    let samples = words("rtrace: ")[1].parse().unwrap_or(500);
    // Rounded to a thousandth.
    let around = around(IN_FIRST, samples);
    assert!((around.start - 0.001..around.end + 0.001).contains(&share), "{said}");
    let cpu: f64 = words("CPU time")[2].parse().unwrap();
    let seconds = if words("CPU time")[3] == "ms" { cpu / 1e3 } else { cpu };
    assert!((0.9..1.2).contains(&seconds), "{said}");
    assert!(said.contains("rtrace run --lib libfirst.so -- prlimit --cpu=1 "), "{said}");
    assert!(said.contains("no call was recorded"), "{said}");
}

#[test]
fn a_recording_has_exact_calls_beside_samples_of_all_code() {
    let Some(_turn) = Turn::take() else { return };
    let program = Spinning::compile().join("spins");
    let folder = TempDir::new().unwrap();
    let trace = folder.path().join("trace").display().to_string();
    // It executes another program, and has ended when its samples are named.
    let options = ["run", "--lib", "libsecond.so", "--sampling", "997", "-o", &trace, "--"];
    let limited = ["prlimit", "--cpu=2", program.to_str().unwrap()];
    let output = rtrace::command().args(options).args(limited).stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(128 + libc::SIGKILL), "{}", String::from_utf8_lossy(&output.stderr));
    let report = json(&["report", &trace, "--by", "cpu", "--json"]);
    let rows = report["rows"].as_array().unwrap();
    let sum = |key: &str, name: &str| -> u64 {
        rows.iter().filter(|row| row[key] == name).map(|row| row["samples"].as_u64().unwrap()).sum()
    };
    // Tracing takes time, in the kernel.
    let all = rows.iter().map(|row| row["samples"].as_u64().unwrap()).sum::<u64>() - sum("function", "(kernel)");
    assert!(all > 200, "{report:#}");
    for (key, name, truth) in [
        ("function", "forty", IN_FORTY),
        ("function", "twenty", IN_TWENTY),
        ("function", "quarter", IN_SECOND),
        ("library", "(no file)", IN_MADE),
    ] {
        let share = sum(key, name) as f64 / all as f64;
        assert!(around(truth, all).contains(&share), "{share} of {all} samples for {name}: {report:#}");
    }
    let calls = |name: &str| &named(&report["rows"], "function", name)["calls"];
    let recorded = json(&["report", &trace, "--json"]);
    assert_eq!(calls("quarter"), &named(&recorded["rows"], "function", "quarter")["calls"]);
    assert!(calls("quarter").as_u64().unwrap() > 100 && calls("forty").is_null(), "{report:#}");
    assert!(recorded["notes"].to_string().contains("% in libfirst.so"), "{recorded:#}");
}

#[test]
fn what_led_to_samples_is_known_and_stands_beside_calls() {
    let Some(_turn) = Turn::take() else { return };
    let program = Spinning::compile().join("spins");
    let folder = TempDir::new().unwrap();
    let trace = folder.path().join("trace").display().to_string();
    let options = ["run", "--lib", "libsecond.so", "--stacks", "--sampling", "499", "-o", &trace, "--"];
    let limited = ["prlimit", "--cpu=2", program.to_str().unwrap()];
    let output = rtrace::command().args(options).args(limited).stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(128 + libc::SIGKILL), "{}", String::from_utf8_lossy(&output.stderr));
    let tree = json(&["report", &trace, "--by", "tree", "--json"]);
    let (rows, main) = (&tree["rows"], &named(&tree["rows"], "function", "main (spins)"));
    let sampled = |name: &str| {
        let row = named(rows, "function", &format!("{name} (libfirst.so) [sampled]"));
        assert_eq!((&row["parent"], &row["calls"]), (&main["node"], &Value::Null), "{tree:#}");
        row["inclusive_ns"].as_u64().unwrap()
    };
    // The last samples of a process that has ended have no stacks: the share is one of those that have.
    let (forty, twenty) = (sampled("forty"), sampled("twenty"));
    let samples = (forty + twenty) * 499 / 1_000_000_000;
    let share = forty as f64 / (forty + twenty) as f64;
    assert!(samples > 100 && around(IN_FORTY / IN_FIRST, samples).contains(&share), "{share} of {samples}: {tree:#}");
    // What traced calls took is known exactly, and is in no sample.
    let calls = named(rows, "function", "quarter");
    assert!(calls["calls"].as_u64().unwrap() > 100 && calls["parent"] == main["node"], "{tree:#}");
    assert!(!rows.to_string().contains("quarter (libsecond.so) [sampled]"), "{tree:#}");
    let folded = String::from_utf8(rtrace(&["export", &trace, "--format", "folded", "-o", "-"]).stdout).unwrap();
    let of_forty = folded.lines().find(|line| line.contains(";main (spins);forty (libfirst.so) [sampled] "));
    assert!(of_forty.is_some_and(|line| line.ends_with(&format!(" {forty}"))), "{folded}");
}

#[test]
fn a_look_leaves_the_code_as_it_is() {
    let Some(_turn) = Turn::take() else { return };
    let spinning = Spinning::start();
    let (pid, untouched) = (spinning.pid(), spinning.code());
    let library = spinning.library("libfirst.so");
    let changes = |arguments: &[&str]| {
        thread::scope(|scope| {
            let look = scope.spawn(|| rtrace(arguments));
            let (mut looks, mut changes) = (0, 0);
            while !look.is_finished() {
                looks += 1;
                changes += usize::from(spinning.code() != untouched);
            }
            look.join().unwrap();
            assert!(looks > 10, "{looks}");
            changes
        })
    };
    assert_eq!(changes(&["libs", "-p", &pid, "--sample=500ms"]), 0);
    assert_eq!(changes(&["plan", "-p", &pid, "--lib", &library, "--sample", "500ms"]), 0);
    // Probes would have been seen.
    let folder = TempDir::new().unwrap();
    let trace = folder.path().join("trace").display().to_string();
    let options = ["attach", "-p", &pid, "--lib", &library, "--duration", "500ms", "--no-tui", "-o", &trace];
    assert!(changes(&options) > 0);
}

#[test]
fn a_command_is_sampled_with_its_children() {
    let Some(_turn) = Turn::take() else { return };
    // Two seconds of CPU time, but not in the shell that the command is.
    let burn = "import time\nwhile time.process_time() < 2: sum(range(100000))";
    let output = rtrace::command().args(["run", "--", "sh", "-c", &format!("python3 -c '{burn}'; true")]).output();
    let output = output.unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let samples = said.lines().find_map(|line| line.strip_prefix("rtrace: ")?.split_once(" samples of CPU time in"));
    let samples: f64 = samples.expect(&said).0.replace(',', "").parse().unwrap();
    assert!((1500.0..2600.0).contains(&samples), "{said}");
    // The interpreter is a program or a library.
    let shares = said.lines().filter(|line| line.contains("python3") && line.ends_with('%'));
    let share: f64 = shares.filter_map(|line| line.split_whitespace().nth_back(1)?.parse::<f64>().ok()).sum();
    assert!(share > 50.0, "{said}");
}
