//! A budget: what is hot is throttled, what is rare stays exact, and what is said of both is true.

use std::collections::BTreeMap;
use std::path::Path;

use rtrace_exporters::Trace;
use rtrace_model::{Ending, EventKind, Level, Missed};

use crate::common::rtrace::{self, Attached, Waiting};
use crate::common::skip::Turn;
use crate::common::target::{Flavour, Target};

/// Calls of a function.
#[derive(Debug, Default, PartialEq)]
struct Calls {
    recorded: u64,
    counted: u64,
    /// Further ones, where the budget has left some out.
    missed: Option<Missed>,
}

fn options(budget: Option<&str>) -> Vec<String> {
    let functions = ["--lib", "exe", "--func", "hot", "--func", "rare*"].into_iter();
    functions.chain(budget.into_iter().flat_map(|budget| ["--budget", budget])).map(str::to_owned).collect()
}

/// What the program says it did, by function.
fn truth(stdout: &[u8]) -> BTreeMap<String, u64> {
    let text = String::from_utf8_lossy(stdout).into_owned();
    let pair = |line: &str| {
        let (name, calls) = line.strip_prefix("truth ")?.split_once(' ')?;
        Some((name.to_owned(), calls.parse().unwrap()))
    };
    text.lines().filter_map(pair).collect()
}

fn calls(trace: &Trace) -> BTreeMap<String, Calls> {
    let name = |region| trace.region(region).unwrap().name.clone();
    let mut calls: BTreeMap<String, Calls> = BTreeMap::new();
    for call in trace.calls().flat_map(|batch| batch.unwrap().into_calls()) {
        calls.entry(name(call.region)).or_default().recorded += 1;
    }
    for estimate in trace.estimates() {
        let calls = calls.entry(name(estimate.region)).or_default();
        calls.counted += estimate.counted;
        *calls.missed.get_or_insert_default() += estimate.missed();
    }
    calls
}

/// A budget is a part of the time for which a program runs, so where other programs take that from it
/// even what is rare costs too much. A program that ran for less of the time than this tells nothing.
const ENOUGH_PERCENT: u64 = 60;
const TRIES: usize = 4;

fn record(threads: &str, budget: &str) -> Option<(BTreeMap<String, u64>, tempfile::TempDir)> {
    let _turn = Turn::take()?;
    let recorded =
        (0..TRIES).map(|_| try_to_record(threads, budget)).find(|(truth, _)| truth["share"] >= ENOUGH_PERCENT);
    if recorded.is_none() {
        println!("not here: other programs leave this one less than {ENOUGH_PERCENT} % of the time");
    }
    recorded
}

fn try_to_record(threads: &str, budget: &str) -> (BTreeMap<String, u64>, tempfile::TempDir) {
    let target = Target::build("budget", Flavour::Exporting);
    let mut command = target.command(threads);
    command.arg("4");
    let mut waiting = Waiting::start(&mut command);
    let attached = Attached::start(waiting.pid(), &options(Some(budget)));
    waiting.go();
    let output = waiting.finish();
    (truth(&output.stdout), attached.leave())
}

fn open(folder: &Path) -> Trace {
    Trace::open(&folder.join("trace")).unwrap()
}

#[test]
fn a_hot_function_is_throttled_and_rare_ones_stay_exact() {
    for threads in ["1", "2"] {
        let Some((truth, folder)) = record(threads, "5%") else { return };
        let trace = open(folder.path());
        let calls = calls(&trace);
        for rare in ["rare", "rare_inner"] {
            assert_eq!(calls[rare], Calls { recorded: truth[rare], ..Calls::default() }, "{calls:?}");
        }
        let endings = trace.calls().flat_map(|batch| batch.unwrap().into_calls());
        let is_rare = |region| trace.region(region).unwrap().name.starts_with("rare");
        assert!(endings.filter(|call| is_rare(call.region)).all(|call| call.ending == Ending::Returned));
        let Calls { recorded, counted, missed } = calls["hot"];
        let (exact, told) = (recorded + counted, truth["hot"]);
        assert!(exact < told / 2 && counted > 0, "{told}: {calls:?}");
        let missed = missed.expect("some are missing");
        // An interval of 95 % is wrong one time of twenty; three times as wide a one never is.
        let distance = (exact + missed.estimated).abs_diff(told);
        let is_right =
            if missed.has_unknown { exact + missed.estimated <= told } else { distance <= 3 * missed.margin };
        assert!(missed.estimated > 0 && is_right, "{told}: {calls:?}");
        println!("{} of {told} estimated, {} beside the truth, margin {}", missed.estimated, distance, missed.margin);
        let level = |kind: &EventKind| match kind {
            EventKind::Level { name, from: Level::Full, to, .. } if name == "hot" => Some(*to),
            _ => None,
        };
        let levels: Vec<Level> =
            trace.events().flat_map(Result::unwrap).filter_map(|event| level(&event.kind)).collect();
        assert!(levels.contains(&Level::Off), "{levels:?}");
        let summary = trace.summary().unwrap();
        assert_eq!((summary.lost(), summary.missed), (0, Some(missed)), "{summary}");
        // What follows, until the probes of throttled functions are gone, is not recorded.
        let disarmed = trace.events().flat_map(Result::unwrap).find(|event| event.kind == EventKind::Disarmed);
        assert_eq!(disarmed.map(|event| event.time), Some(summary.end.monotonic));
    }
}

/// What is called too often before the recording gets no probe, in none of the processes.
#[test]
fn what_is_hot_before_is_never_recorded() {
    let Some(_turn) = Turn::take() else { return };
    let target = Target::build("budget", Flavour::Exporting);
    let mut waiting = [(); 2].map(|()| Waiting::start(target.command("1").arg("12")));
    waiting.iter_mut().for_each(Waiting::go);
    std::thread::sleep(std::time::Duration::from_millis(300));
    let second = ["-p".to_owned(), waiting[1].pid().to_string()];
    let attached = Attached::as_told(waiting[0].pid(), &[&options(None)[..], &second].concat());
    let truths = waiting.map(|program| truth(&program.finish().stdout));
    let folder = attached.leave();
    let trace = open(folder.path());
    let calls = calls(&trace);
    let hot: u64 = truths.iter().map(|truth| truth["hot"]).sum();
    assert!(calls["hot"].recorded < hot / 20, "of {hot}: {calls:?}");
    if truths.iter().all(|truth| truth["share"] >= ENOUGH_PERCENT) {
        assert_eq!(calls["hot"].recorded, 0, "{calls:?}");
        assert!(calls["hot"].missed.is_some(), "{calls:?}");
        assert!(calls["hot"].counted > 0, "{calls:?}");
    }
    assert_eq!(calls["rare"].counted, 0, "{calls:?}");
    assert!(calls["rare"].recorded > 100, "{calls:?}");
    assert!(!trace.summary().unwrap().is_complete());
}

/// What is called only while probes are placed costs as much then as what is called later, and nobody had looked at it.
#[test]
fn what_is_hot_only_while_probes_are_placed_is_throttled_from_the_beginning() {
    let Some(_turn) = Turn::take() else { return };
    let target = Target::build("placed", Flavour::Exporting);
    let waiting = Waiting::start(&mut target.command(""));
    let selection = ["--lib", "exe", "--func", "hot", "--func", "quiet_*", "--budget", "5%"].map(str::to_owned);
    let attached = Attached::start(waiting.pid(), &selection);
    let calls = truth(&waiting.finish().stdout)["hot"];
    let folder = attached.leave();
    let trace = open(folder.path());
    assert!(calls > 0, "it is not called");
    let throttled = trace.events().flat_map(Result::unwrap).filter_map(|event| match event.kind {
        EventKind::Level { name, to: Level::Off, .. } => Some(name),
        _ => None,
    });
    assert_eq!(throttled.collect::<Vec<_>>(), ["hot"]);
    assert!(!trace.summary().unwrap().is_complete());
}

/// A budget that is never reached changes nothing: that of `attach` by default does not in a program that calls little.
#[test]
fn within_the_budget_all_is_exact() {
    let Some(_turn) = Turn::take() else { return };
    let target = Target::build("shapes", Flavour::Cet);
    let mut waiting = Waiting::start(&mut target.command("pauses"));
    let attached = Attached::as_told(waiting.pid(), &target.selection());
    waiting.go();
    let output = waiting.finish();
    let (_, recording) = attached.finish();
    let told = crate::common::truth::trees(&output.stdout);
    assert_eq!(recording.trees_as(&told), told);
}

#[test]
fn without_a_budget_a_slowdown_is_said_once() {
    let Some(_turn) = Turn::take() else { return };
    let target = Target::build("budget", Flavour::Exporting);
    let folder = tempfile::tempdir().unwrap();
    let mut command = target.command("1");
    command.arg("3");
    let directory = folder.path().join("trace");
    let mut rtrace = rtrace::command();
    rtrace.args(["run", "--no-tui"]).args(options(None)).arg("-o").arg(&directory).arg("--");
    rtrace.arg(command.get_program()).args(command.get_args()).stdin(std::process::Stdio::piped());
    let mut child = rtrace.stderr(std::process::Stdio::piped()).stdout(std::process::Stdio::null()).spawn().unwrap();
    std::io::Write::write_all(child.stdin.as_mut().unwrap(), b"\n").unwrap();
    let output = child.wait_with_output().unwrap();
    let talk = String::from_utf8_lossy(&output.stderr);
    assert_eq!(talk.matches("--budget 5%").count(), 1, "{talk}");
    assert!(Trace::open(&directory).unwrap().estimates().is_empty());
}
