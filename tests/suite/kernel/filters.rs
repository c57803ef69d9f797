//! A suggested filter, read back: it leaves out what it names, and nothing else.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

use crate::common::recording::Recording;
use crate::common::rtrace;
use crate::common::skip::Turn;
use crate::common::sources::{self, DEFINED};
use crate::common::target;

/// Calls of `solve_step`; all others are called once.
const ROUNDS: usize = 50_000;

/// Records the program; gives the directory.
fn trace(folder: &Path, options: &[&str], directory: &str) -> PathBuf {
    let library = folder.join("libwork.so").display().to_string();
    let mut all = vec!["--lib".to_owned(), library];
    all.extend(options.iter().map(|&option| option.to_owned()));
    let directory = folder.join(directory);
    rtrace::record(&all, Command::new(folder.join("program")).arg(ROUNDS.to_string()), &directory);
    directory
}

/// Records the program; gives the functions that were probed.
fn record(folder: &Path, options: &[&str], directory: &str) -> BTreeSet<String> {
    let recording = Recording::open(&trace(folder, options, directory));
    recording.regions().iter().map(|region| region.name.clone()).collect()
}

fn report(folder: &Path, options: &[&str]) -> Output {
    rtrace::command().current_dir(folder).args(["report", "first"]).args(options).output().unwrap()
}

#[test]
fn what_is_suggested_is_left_out_and_nothing_else() {
    let Some(_turn) = Turn::take() else { return };
    let folder = TempDir::new().unwrap();
    sources::build(folder.path());
    let before = record(folder.path(), &[], "first");
    let all: BTreeSet<String> = DEFINED.map(|(name, _)| name).into_iter().chain(["plain"]).map(str::to_owned).collect();
    assert!(before.is_superset(&all), "{before:?}");

    let written = report(folder.path(), &["--suggest-filter=short.filter"]);
    let said = String::from_utf8(written.stderr).unwrap();
    assert!(written.status.success() && written.stdout.is_empty(), "{said}");
    assert!(said.starts_with("rtrace: leaving out 1 function saves 50,000 of 50,0"), "{said}");
    let text = fs::read_to_string(folder.path().join("short.filter")).unwrap();
    assert!(text.contains("  # solve_step (libwork.so): 50,000 calls, "), "{text}");
    let printed = report(folder.path(), &["--suggest-filter"]);
    assert_eq!(String::from_utf8(printed.stdout).unwrap(), text);

    let filter = folder.path().join("short.filter").display().to_string();
    let after = record(folder.path(), &["--filter", &filter], "second");
    let left_out: Vec<_> = before.difference(&after).cloned().collect();
    assert_eq!(left_out, ["solve_step"]);
    assert!(after.is_subset(&before));

    let rest = rtrace::command().current_dir(folder.path()).args(["report", "second", "--suggest-filter"]).output();
    let rest = rest.unwrap();
    assert!(rest.status.success() && rest.stdout.is_empty());
    let said = String::from_utf8(rest.stderr).unwrap();
    assert!(said.starts_with("rtrace: no function is worth leaving out"), "{said}");
}

#[test]
fn only_what_a_function_calls_is_recorded() {
    let Some(_turn) = Turn::take() else { return };
    let folder = TempDir::new().unwrap();
    sources::build(folder.path());
    let all = Recording::open(&trace(folder.path(), &[], "all"));
    let inside = Recording::open(&trace(folder.path(), &["--within", "wave_run"], "inside"));
    let called = |recording: &Recording| -> BTreeSet<String> {
        let calls = recording.calls_by_region();
        let called = recording.regions().iter().filter(|region| calls.get(&region.id).is_some_and(|&calls| calls > 0));
        called.map(|region| region.name.clone()).collect()
    };
    let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(called(&inside), names(&["wave_run", "wave::spread(int)", "int weigh<int>(int)"]));
    let recorded = inside.summary().calls;
    assert_eq!((recorded, inside.summary().outside), (3, all.summary().calls - 3));
    assert!(inside.summary().is_complete(), "{}", inside.summary());
    let said = inside.summary().to_string();
    assert!(said.contains("50,0") && said.contains(" calls outside of --within"), "{said}");

    // The function is asked for by that alone, and what it calls by --func.
    let options = ["--within", "wave_run", "--func", "*weigh*"];
    let some = Recording::open(&trace(folder.path(), &options, "some"));
    assert_eq!(called(&some), names(&["wave_run", "int weigh<int>(int)"]));
    assert_eq!((some.summary().calls, some.regions().len(), some.summary().outside), (2, 2, 0));

    let mut refused = rtrace::command();
    refused.args(["run", "--lib", "libwork.so", "--within", "nothing", "--", "./program", "1"]);
    let refused = refused.current_dir(folder.path()).env("LD_LIBRARY_PATH", folder.path()).output().unwrap();
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(refused.status.code() == Some(1) && said.contains("--within"), "{said}");
}

/// 40 rounds on two CPUs in turn, or on one where there is no other: each calls `shown` once, which calls `hidden` ten times.
const INNER: [&str; 2] = [
    r#"
static __attribute__((noinline)) int twice(int x) { __asm__ volatile("" : "+r"(x)); return x * 2; }
__attribute__((visibility("hidden"), noinline)) int hidden(int x) { return twice(x) + 1; }
int shown(int x) { for (int i = 0; i < 10; i++) x = hidden(x); return x; }
"#,
    r#"
#define _GNU_SOURCE
#include <sched.h>
int shown(int x);
int main(void)
{
	for (int i = 0; i < 40; i++) {
		cpu_set_t set;
		CPU_ZERO(&set);
		CPU_SET(i % 2, &set);
		sched_setaffinity(0, sizeof(set), &set);
		shown(i);
	}
	return 0;
}
"#,
];

fn inner() -> PathBuf {
    let library: &[&str] = &["-O1", "-shared", "-fPIC"];
    target::compile_texts(&[(INNER[0], "libinner.so", library), (INNER[1], "inner", &["-O1"])]).join("inner")
}

#[test]
fn functions_that_a_library_does_not_export_are_traced_if_asked_for() {
    let Some(_turn) = Turn::take() else { return };
    let program = inner();
    let calls = |options: &[&str]| {
        let options: Vec<String> = ["--lib", "libinner.so"].iter().chain(options).map(|&s| s.to_owned()).collect();
        let (_, recording) = rtrace::run(&options, &Command::new(&program));
        assert!(recording.summary().is_complete(), "{}", recording.summary());
        let of = |name: &str| {
            let region = recording.regions().iter().find(|region| region.name == name)?;
            Some(recording.calls_by_region().get(&region.id).copied().unwrap_or(0))
        };
        ["shown", "hidden", "twice"].map(of)
    };
    assert_eq!(calls(&[]), [Some(40), None, None]);
    assert_eq!(calls(&["--static"]), [Some(40), Some(400), Some(400)]);
    assert_eq!(calls(&["--static", "--func", "lib:libinner.so:t*"]), [None, None, Some(400)]);
}

#[test]
fn calls_have_the_cpus_on_which_they_began_and_ended() {
    let Some(_turn) = Turn::take() else { return };
    let program = inner();
    let scratch = TempDir::new().unwrap();
    let directory = scratch.path().join("trace");
    let options = ["--lib", "libinner.so", "--args", "shown(cpu, last=>cpu, numa_node)"].map(str::to_owned);
    rtrace::record(&options, &Command::new(&program), &directory);
    let rows = |by: &str| -> Vec<(String, u64)> {
        let mut report = rtrace::command();
        let report = report.arg("report").arg(&directory).args(["--by", by, "--json"]).output().unwrap();
        let report: Value = serde_json::from_slice(&report.stdout).unwrap();
        let row = |row: &Value| (row["value"].to_string(), row["calls"].as_u64().unwrap());
        report["rows"].as_array().unwrap().iter().map(row).collect()
    };
    // The program is on the CPU that it has chosen last, which stays where it may not choose.
    let expected = match std::thread::available_parallelism().unwrap().get() {
        1 => vec![("0".to_owned(), 40)],
        _ => vec![("0".to_owned(), 20), ("1".to_owned(), 20)],
    };
    for by in ["arg:cpu", "arg:last"] {
        let mut found = rows(by);
        found.sort();
        assert_eq!(found, expected, "{by}");
    }
    assert_eq!(rows("arg:numa_node").iter().map(|(_, calls)| calls).sum::<u64>(), 40);
}

/// Of each 100 rounds, half leave `gate` by a return and half by a jump, past `leaf` and onto it.
const JUMPS: &str = r#"
#include <setjmp.h>
static jmp_buf place;
__attribute__((noinline)) int leaf(int x) { __asm__ volatile("" : "+r"(x)); return x + 1; }
__attribute__((noinline)) int gate(int x) { leaf(1); if (x) longjmp(place, 1); return leaf(2) + 1; }
int main(void)
{
	for (volatile int i = 0; i < 100; i++) {
		leaf(3);
		if (!setjmp(place))
			gate(i % 2);
		else
			leaf(4);
		leaf(5);
	}
	return 0;
}
"#;

#[test]
fn what_follows_a_jump_out_of_a_function_is_outside_of_it() {
    let Some(_turn) = Turn::take() else { return };
    let program = target::compile_texts(&[(JUMPS, "jumps_out", &["-O1"])]).join("jumps_out");
    for options in [&["--within", "gate"][..], &["--within", "gate", "--stacks"]] {
        let options: Vec<String> =
            ["--lib", "exe", "--func", "leaf"].iter().chain(options).map(|&s| s.to_owned()).collect();
        let (_, recording) = rtrace::run(&options, &Command::new(&program));
        let summary = recording.summary();
        assert_eq!((summary.calls, summary.outside, summary.unwound), (100 + 150, 250, 50), "{summary}");
        assert!(summary.is_complete(), "{summary}");
    }
}

#[test]
fn only_an_older_suggestion_is_replaced() {
    let Some(_turn) = Turn::take() else { return };
    let folder = TempDir::new().unwrap();
    sources::build(folder.path());
    record(folder.path(), &[], "first");
    let write = || report(folder.path(), &["--suggest-filter=mine"]);
    assert!(write().status.success() && write().status.success());
    fs::write(folder.path().join("mine"), "# A filter of mine\n").unwrap();
    let refused = write();
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("failed to create `mine`: it exists"), "{said}");
    assert_eq!(fs::read_to_string(folder.path().join("mine")).unwrap(), "# A filter of mine\n");
}
