//! The live view on a terminal, as people use it.

use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rtrace_exporters::Trace;
use rtrace_model::Ending;
use serde_json::Value;
use tempfile::TempDir;

use crate::common::recording::Recording;
use crate::common::rtrace::Waiting;
use crate::common::skip::Turn;
use crate::common::target::{Flavour, Target};
use crate::common::terminal::{Terminal, quoted};

fn rtrace(arguments: &str) -> String {
    format!("{} {arguments}", quoted(Path::new(env!("CARGO_BIN_EXE_rtrace"))))
}

fn attach(target: &Target, pid: u32, trace: &Path) -> String {
    let options: Vec<String> = target.selection().iter().map(|word| quoted(Path::new(word))).collect();
    rtrace(&format!("attach -p {pid} {} -o {}", options.join(" "), quoted(trace)))
}

/// A program whose recording is viewed on a terminal; it has gone on.
struct Viewed {
    terminal: Terminal,
    _folder: TempDir,
    trace: PathBuf,
    waiting: Waiting,
    _target: Target,
    _turn: Turn,
}

impl Viewed {
    /// `before`: what the terminal runs first. `None`, with the reason printed, where that is not possible.
    fn start(mode: &str, (columns, rows): (u16, u16), before: &str) -> Option<Viewed> {
        let turn = Turn::take()?;
        let target = Target::build("processes", Flavour::Cet);
        let mut waiting = Waiting::start(&mut target.command(mode));
        let folder = TempDir::new().unwrap();
        let trace = folder.path().join("trace");
        let attach = attach(&target, waiting.pid(), &trace);
        let terminal = Terminal::start(columns, rows, &format!("{before}{attach}"))?;
        terminal.wait_for("recording");
        waiting.go();
        Some(Viewed { terminal, _folder: folder, trace, waiting, _target: target, _turn: turn })
    }
}

#[test]
fn a_call_that_blocks_is_seen_while_it_blocks_and_the_record_is_whole() {
    let Some(viewed) = Viewed::start("blocks", (120, 40), "") else { return };
    let Viewed { waiting, trace, terminal, .. } = viewed;
    let functions = terminal.wait_for("leaf");
    assert!(functions.contains(" 1 call ") && functions.contains("0 lost"), "{functions}");
    terminal.press("3");
    let threads = terminal.wait_for(" visit\n");
    assert!(threads.contains("in right now"), "{threads}");

    terminal.resize(20, 5);
    terminal.press("1");
    terminal.wait_for("leaf");
    terminal.resize(120, 40);
    for (key, text) in [("2", "call path"), ("4", "last 1.0 s"), ("5", "callers"), ("6", "armed")] {
        terminal.press(key);
        terminal.wait_for(text);
    }
    terminal.press("q");
    terminal.wait_for("What becomes of the recording?");
    terminal.press("s");
    let end = terminal.wait_for("status 0");
    assert!(end.contains("2 calls to") && end.contains("1 still running at the end"), "{end}");

    let told = waiting.finish();
    assert!(told.status.success());
    let recording = Recording::open(&trace);
    assert_eq!(recording.calls().filter(|call| call.ending == Ending::Open).count(), 1);
}

#[test]
fn a_stored_trace_has_the_same_views() {
    let Some(_turn) = Turn::take() else { return };
    let target = Target::build("shapes", Flavour::Cet);
    let folder = TempDir::new().unwrap();
    let trace = folder.path().join("trace");
    let counters = ["--counters", "task-clock,page-faults"].map(str::to_owned);
    crate::common::rtrace::record(&[&target.selection()[..], &counters].concat(), &target.command("nested"), &trace);
    let recording = Recording::open(&trace);
    let Some(terminal) = Terminal::start(100, 30, &rtrace(&format!("tui {}", quoted(&trace)))) else { return };
    assert_eq!(recording.summary().calls, 5_000);
    terminal.wait_for(" 5,000 calls");
    let screen = terminal.wait_for("task-clock ms");
    let report =
        crate::common::rtrace::command().arg("report").arg(&trace).args(["--format", "json"]).output().unwrap();
    assert_same_figures(&screen, &serde_json::from_slice(&report.stdout).unwrap());
    terminal.press("2");
    terminal.wait_for("call path, all threads");
    terminal.press("]");
    terminal.wait_for("to ");
    terminal.press("q");
    terminal.wait_for("status 0");
}

/// The row of each function of the report is on the screen: calls, exclusive time in milliseconds, page faults.
fn assert_same_figures(screen: &str, report: &Value) {
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 3);
    for row in rows {
        let function = row["function"].as_str().unwrap();
        let line = screen.lines().find(|line| line.ends_with(&format!(" {function}"))).expect("it has a row");
        let shown: Vec<&str> = line.split_whitespace().map(|word| word.trim_start_matches('!')).collect();
        let milliseconds = format!("{:.2}", row["exclusive_ns"].as_f64().unwrap() / 1e6);
        let faults = row["page-faults_exclusive"].to_string();
        let calls = shown[0].replace(',', "");
        assert_eq!(calls, row["calls"].to_string(), "{screen}");
        assert!(shown[2] == milliseconds && shown[shown.len() - 2] == faults, "{milliseconds} {faults}: {screen}");
    }
}

#[test]
fn a_program_that_ends_leaves_its_last_figures_and_a_clean_terminal() {
    let Some(viewed) = Viewed::start("calls_on", (80, 24), "echo before; ") else { return };
    let Viewed { mut waiting, trace, terminal, .. } = viewed;
    waiting.feed(&[b'x'; 100]);
    terminal.wait_for("500 calls");
    terminal.press("Space");
    terminal.wait_for("PAUSED");
    waiting.feed(&[b'x'; 20]);
    sleep(Duration::from_secs(1));
    assert!(terminal.screen().contains("500 calls"), "it stands still");
    terminal.press("Space");
    terminal.wait_for("600 calls");
    terminal.press("4");
    terminal.wait_for("last 1.0 s");
    assert!(waiting.finish().status.success());
    terminal.wait_for("recording ended, q quits");
    terminal.press("1");
    terminal.wait_for("600 calls");
    terminal.press("q");
    let end = terminal.wait_for("status 0");
    assert!(end.starts_with("before\nrtrace: 600 calls to"), "{end}");
    assert_eq!(Recording::open(&trace).calls().count(), 600);
}

#[test]
fn a_recording_goes_on_without_its_view() {
    let Some(viewed) = Viewed::start("calls_on", (80, 24), "") else { return };
    let Viewed { mut waiting, trace, terminal, .. } = viewed;
    waiting.feed(&[b'x'; 100]);
    terminal.wait_for("500 calls");
    terminal.press("q");
    terminal.press("l");
    terminal.wait_for("goes on; Ctrl-C ends it");
    waiting.feed(&[b'x'; 20]);
    assert!(waiting.finish().status.success());
    let end = terminal.wait_for("status 0");
    assert!(end.contains("600 calls to"), "{end}");
    assert_eq!(Recording::open(&trace).calls().count(), 600);
}

#[test]
fn a_recording_is_deleted_where_the_user_says_so() {
    let Some(viewed) = Viewed::start("calls_on", (80, 24), "") else { return };
    let Viewed { waiting, trace, terminal, .. } = viewed;
    terminal.press("q");
    terminal.press("d");
    terminal.wait_for("What becomes of the recording?");
    assert!(trace.exists());
    terminal.press("D");
    let end = terminal.wait_for("status 0");
    assert!(end.contains("trace deleted, as you asked"), "{end}");
    assert!(!trace.exists());
    assert!(waiting.finish().status.success());
}

#[test]
fn a_terminal_that_goes_ends_the_recording_well() {
    let Some(viewed) = Viewed::start("calls_on", (80, 24), "") else { return };
    let Viewed { mut waiting, trace, terminal, .. } = viewed;
    waiting.feed(&[b'x'; 100]);
    terminal.wait_for("500 calls");
    drop(terminal);
    let start = Instant::now();
    while Trace::open(&trace).unwrap().summary().is_none() {
        assert!(start.elapsed() < Duration::from_secs(30), "the recording goes on without a terminal");
        sleep(Duration::from_millis(50));
    }
    assert_eq!(Recording::open(&trace).calls().count(), 500);
    assert!(waiting.finish().status.success());
}
