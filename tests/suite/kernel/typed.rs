//! Command lines as people type them: processes by name, libraries to choose from, recordings of nothing.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::common::recording::Recording;
use crate::common::rtrace::{self, Waiting};
use crate::common::skip::{Turn, installed};
use crate::common::target::{Flavour, TRUTH_FUNCTIONS, Target};
use crate::common::terminal::{Terminal, quoted};

/// A program that calls `outer` for each byte that it reads, started under a name that nobody else has.
fn named(name: &str) -> (Target, Waiting) {
    let target = Target::build("processes", Flavour::Cet);
    let waiting = Waiting::start(target.command("calls_on").arg0(name));
    (target, waiting)
}

fn unique(test: &str) -> String {
    format!("rt-{test}-{}", std::process::id())
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_name_stands_for_all_processes_that_have_it() {
    let Some(_turn) = Turn::take() else { return };
    let name = unique("several");
    let (target, first) = named(&name);
    let (_, second) = named(&format!("/nowhere/{name}"));
    let (folder, mut waiting) = (TempDir::new().unwrap(), [first, second]);
    let trace = folder.path().join("trace");
    let mut command = rtrace::command();
    command.args(["attach", &name, "--no-tui"]).args(rtrace::ALL_CALLS).args(target.selection()).arg("-o").arg(&trace);
    let mut rtrace = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut reader = BufReader::new(rtrace.stderr.take().unwrap());
    let mut text = String::new();
    while !text.contains("recording ") {
        assert!(reader.read_line(&mut text).unwrap() > 0, "{text}");
    }
    let pids = waiting.each_ref().map(Waiting::pid);
    let listed = format!("2 processes are named {name}: {}, {}\n", pids[0].min(pids[1]), pids[0].max(pids[1]));
    assert!(text.contains(&listed), "{text}");
    for (program, bytes) in waiting.iter_mut().zip([10, 30]) {
        program.go();
        program.feed(&vec![b'x'; bytes]);
    }
    assert!(waiting.into_iter().all(|program| program.finish().status.success()));
    reader.read_to_string(&mut text).unwrap();
    assert!(rtrace.wait().unwrap().success(), "{text}");
    let recording = Recording::open(&trace);
    assert_eq!(recording.calls().count(), 40 * 5, "{text}");
}

#[test]
fn without_a_library_there_is_a_list_and_the_line_that_would_record() {
    let Some(_turn) = Turn::take() else { return };
    let name = unique("list");
    let (_target, waiting) = named(&name);
    let output = rtrace::command().args(["attach", "--name", &name]).stdin(Stdio::null()).output().unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(2), &b""[..]), "{}", said(&output));
    let text = said(&output);
    for part in ["no library is named", "--lib ", "libtruth.so", "libc.so.6", "FUNCTIONS"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let line = text.lines().find_map(|line| line.strip_prefix("hint: rtrace ")).unwrap_or_else(|| panic!("{text}"));
    assert_eq!(line, format!("attach --name {name} --lib exe"), "the program has functions of its own");
    let line = line.replace("--lib exe", "--lib libtruth.so");
    let folder = TempDir::new().unwrap();
    let trace = folder.path().join("trace");
    let mut command = rtrace::command();
    command.args(line.split(' ')).args(["--duration", "100ms", "--no-tui", "-o"]).arg(&trace);
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let text = said(&output);
    assert!(text.contains(") called none of the traced functions of "), "{text}");
    assert!(text.contains(&format!("`rtrace libs -p {} --sample`", waiting.pid())), "{text}");
}

fn libraries(options: &[&str]) -> Value {
    let output = rtrace::command().args(["libs", "--json"]).args(options).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn library<'v>(list: &'v Value, name: &str) -> &'v Value {
    let mut libraries = list["libraries"].as_array().unwrap().iter();
    libraries.find(|library| library["library"] == name).unwrap_or_else(|| panic!("{name}: {list:#}"))
}

#[test]
fn libs_counts_functions_and_says_that_nobody_uses_cpu_time() {
    let Some(_turn) = Turn::take() else { return };
    let name = unique("libs");
    let (target, mut waiting) = named(&name);
    let list = libraries(&[&name]);
    let truth = library(&list, "libtruth.so");
    assert_eq!(truth["functions"], TRUTH_FUNCTIONS.len());
    assert_eq!(truth["path"], target.library.unwrap().display().to_string());
    assert!(truth["samples"].is_null() && list["sampled"].is_null(), "{list:#}");

    let idle = libraries(&["-p", &waiting.pid().to_string(), "--sample=200ms"]);
    let truth = library(&idle, "libtruth.so");
    assert!(truth["samples"] == 0 && truth["cpu_share"].is_null() && idle["sampled"]["samples"] == 0, "{idle:#}");
    waiting.go();
    assert!(waiting.finish().status.success());
}

#[test]
fn a_command_that_never_loads_the_library_is_said_not_to() {
    let Some(_turn) = Turn::take() else { return };
    if !installed(&["gzip"]) {
        return;
    }
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("file"), "text").unwrap();
    let record = |library: &str, name: &str| {
        let mut command = rtrace::command();
        command.current_dir(folder.path()).args(["run", "--lib", library, "-o", name, "--", "gzip", "-kf", "file"]);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
        said(&output)
    };
    let text = record("libz.so", "a");
    assert!(
        text.contains("rtrace: nothing was recorded: gzip (") && text.contains(" never loaded libz.so\n"),
        "{text}"
    );
    assert!(text.contains("it loaded libc.so.6") && text.contains("`--lib libc.so.6` would record"), "{text}");
    let text = record("libc.so.6", "b");
    assert!(!text.contains("nothing was recorded"), "what is suggested records something: {text}");
}

#[test]
fn what_was_loaded_and_not_called_is_not_said_to_be_missing() {
    let Some(_turn) = Turn::take() else { return };
    let target = Target::build("processes", Flavour::Cet);
    let folder = TempDir::new().unwrap();
    let mut command = rtrace::command();
    command
        .args(["run", "-o"])
        .arg(folder.path().join("trace"))
        .args(target.selection())
        .arg("--")
        .arg(&target.program);
    let output = command.arg("calls_on").stdin(Stdio::null()).output().unwrap();
    let text = said(&output);
    assert!(text.contains("called none of the traced functions of ") && !text.contains("never loaded"), "{text}");
}

#[test]
fn lists_on_a_terminal_lead_to_a_recording() {
    let Some(_turn) = Turn::take() else { return };
    let name = unique("pick");
    let (_target, mut waiting) = named(&name);
    let folder = TempDir::new().unwrap();
    let trace = folder.path().join("trace");
    let binary = quoted(Path::new(env!("CARGO_BIN_EXE_rtrace")));
    let attach = format!("{binary} attach --no-config -o {}", quoted(&trace));
    let Some(terminal) = Terminal::start(120, 30, &attach) else { return };
    terminal.wait_for("which process?");
    name.chars().for_each(|letter| terminal.press(&letter.to_string()));
    terminal.wait_for(&format!("filter: {name}"));
    terminal.press("Enter");
    terminal.wait_for("which libraries of processes (");
    terminal.wait_for("the processes were idle");
    "truth".chars().for_each(|letter| terminal.press(&letter.to_string()));
    terminal.wait_for("filter: truth");
    terminal.press("Enter");
    terminal.wait_for("recording");
    waiting.go();
    waiting.feed(&[b'x'; 100]);
    terminal.wait_for("500 calls");
    assert!(waiting.finish().status.success());
    terminal.wait_for("recording ended");
    terminal.press("q");
    let end = terminal.wait_for("status 0");
    assert!(end.contains("the same again: rtrace attach -p ") && end.contains(" --lib libtruth.so"), "{end}");
    assert_eq!(Recording::open(&trace).calls().count(), 500);
}

#[test]
fn who_leaves_a_list_records_nothing() {
    let Some(_turn) = Turn::take() else { return };
    let folder = TempDir::new().unwrap();
    let binary = quoted(Path::new(env!("CARGO_BIN_EXE_rtrace")));
    let attach = format!("cd {} && {binary} attach --no-config", quoted(folder.path()));
    let Some(terminal) = Terminal::start(60, 12, &attach) else { return };
    terminal.wait_for("which process?");
    terminal.press("Escape");
    terminal.wait_for("status 0");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// Children of rtrace have its name until they execute another program.
#[test]
fn rtrace_never_traces_itself() {
    let Some(_turn) = Turn::take() else { return };
    let link = TempDir::new().unwrap();
    let name = unique("self");
    let path = link.path().join(&name);
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_rtrace"), &path).unwrap();
    let output = Command::new(path).args(["--no-config", "attach", &name, "--lib", "libc.so.6"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains(&format!("failed to find a process named `{name}`")), "{}", said(&output));
}
