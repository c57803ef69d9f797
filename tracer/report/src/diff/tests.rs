//! Two made-up traces compared.
#![allow(clippy::unwrap_used, reason = "tests")]

use rtrace_exporters::TraceWriter;
use rtrace_model::{
    Call, CallCost, ClockAnchor, Definition, ExitPolicy, Header, Process, RegionId, Sink, Summary, Timestamp,
};
use tempfile::TempDir;

use super::*;
use crate::testing::{script, writer};

/// A trace of `calls`.
fn trace(calls: Vec<Call>) -> TempDir {
    lasting(calls, 0, &[])
}

/// A trace of `calls` in so many nanoseconds, of a command that has ended if there are words.
fn lasting(calls: Vec<Call>, duration: u64, command: &[&str]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer(folder.path());
    let command: Vec<String> = command.iter().map(|&word| word.to_owned()).collect();
    writer.begin(&Header { command, ..Header::default() }).unwrap();
    let ended = Process {
        pid: 70,
        parent: None,
        start: Timestamp(0),
        end: Some(Timestamp(duration)),
        executable: "/usr/bin/prog".into(),
        command_line: Vec::new(),
        exit_code: Some(0),
        rank: None,
    };
    writer.define(&Definition::Process(ended)).unwrap();
    writer.calls(&calls.into()).unwrap();
    let end = ClockAnchor { monotonic: Timestamp(duration), realtime_ns: 0 };
    writer.finish(&Summary { end, ..Summary::default() }).unwrap();
    folder
}

/// `a` a thousand times for so long, and `other` in one call of it.
fn calls(duration: u64, other: &str) -> Vec<Call> {
    let nested = script(&format!("thread 1\n a 0 {duration}\n  {other} 1 4"));
    let more = (3..=1_001).map(|id| {
        let one = nested.iter().find(|call| call.parent == 0).unwrap();
        Call { id, child: 0, start: Timestamp(id * 1_000), ..*one }
    });
    nested.iter().copied().chain(more).collect()
}

fn compare(before: Vec<Call>, after: Vec<Call>, options: &DiffOptions) -> (String, bool) {
    let (before, after) = (trace(before), trace(after));
    let mut out = Vec::new();
    let regression = diff(before.path(), after.path(), options, &mut out).unwrap();
    (String::from_utf8(out).unwrap(), !regression.is_empty())
}

#[test]
fn slower_new_and_gone_functions_are_told() {
    let (text, regression) = compare(calls(100, "b"), calls(150, "c"), &DiffOptions::default());
    let rows: Vec<&str> = text.split("\n\n").nth(1).unwrap().lines().collect();
    assert_eq!(
        rows,
        [
            "calls A  calls B  excl. A ns  excl. B ns  change %  p50 A ns  p50 B ns  p99 A ns  p99 B ns  P(B > A) %  verdict  library    function",
            "   1000     1000       99997      149997     +50.0       100       150       100       150       100.0  slower   libone.so  a",
            "      1        0           3           0    -100.0         3         -         3         -           -  gone     libone.so  b",
            "      0        1           0           3         -         -         3         -         3           -  new      libone.so  c",
        ]
    );
    assert!(!regression, "nobody asked");
}

#[test]
fn call_paths_are_told_apart() {
    let options = DiffOptions { by: By::Callpath, format: Format::Csv, ..DiffOptions::default() };
    let (text, _) = compare(calls(100, "b"), calls(100, "a"), &options);
    let rows: Vec<&str> =
        text.lines().map(|line| line.split_once(",libone.so,").map_or("", |(_, rest)| rest)).collect();
    assert_eq!(rows, ["", "a,a", "b,a", "a,"]);
}

#[test]
fn a_regression_is_slower_calls_or_more_of_them() {
    let with = |before, after, limit| {
        let options = DiffOptions { regression: Some(limit), ..DiffOptions::default() };
        compare(before, after, &options).1
    };
    assert!(with(calls(100, "b"), calls(150, "b"), 0.2));
    assert!(!with(calls(100, "b"), calls(150, "b"), 0.6));
    assert!(!with(calls(150, "b"), calls(100, "b"), 0.2));
    let twice = || calls(100, "b").into_iter().flat_map(|call| [call, Call { id: call.id + 5_000, parent: 0, ..call }]);
    assert!(with(calls(100, "b"), twice().collect(), 0.2));
    // One long call takes more time, and proves nothing.
    let mut outlier = calls(100, "b");
    outlier.last_mut().unwrap().duration = Some(1_000_000);
    assert!(!with(calls(100, "b"), outlier, 0.2));
}

#[test]
fn small_rows_can_be_left_out() {
    let options = DiffOptions { min: Some(Min::Share(0.5)), ..DiffOptions::default() };
    let (text, _) = compare(calls(100, "b"), calls(150, "c"), &options);
    assert!(text.contains("2 more rows") && !text.contains("gone"), "{text}");
}

/// Of the first row: what a column says.
fn first(before: &TempDir, after: &TempDir, options: DiffOptions) -> (serde_json::Value, bool) {
    let mut out = Vec::new();
    let options = DiffOptions { format: Format::Json, ..options };
    let regression = diff(before.path(), after.path(), &options, &mut out).unwrap();
    (serde_json::from_slice(&out).unwrap(), !regression.is_empty())
}

#[test]
fn recordings_of_different_length_are_compared_per_second() {
    let half = || calls(100, "b").into_iter().filter(|call| call.id <= 501).collect::<Vec<Call>>();
    let (long, short) = (lasting(calls(100, "b"), 2_000_000_000, &[]), lasting(half(), 1_000_000_000, &[]));
    let limit = || DiffOptions { regression: Some(0.1), ..DiffOptions::default() };
    let (value, regression) = first(&short, &long, limit());
    assert!(value["per_second"] == true && !regression);
    let a = value["rows"].as_array().unwrap().iter().find(|row| row["function"] == "a").unwrap();
    assert_eq!((a["calls_a"].as_u64(), a["calls_b"].as_u64()), (Some(500), Some(1_000)));
    assert_eq!((a["calls_a_per_s"].as_f64(), a["calls_b_per_s"].as_f64()), (Some(500.0), Some(500.0)));
    assert_eq!((a["exclusive_a_ns_per_s"].as_u64(), a["verdict"].as_str()), (Some(49_997), Some("same")));
    assert!(a["change"].as_f64().unwrap().abs() < 0.001);
    // Calls that take twice as long are a regression, though half as many fit into a second.
    let slow = lasting(calls(200, "b"), 4_000_000_000, &[]);
    let (value, regression) = first(&long, &slow, limit());
    assert!(regression);
    assert_eq!(value["rows"][0]["verdict"], "slower, fewer calls");
}

#[test]
fn commands_are_compared_as_they_are_however_long_they_took() {
    let (before, after) =
        (lasting(calls(100, "b"), 1_000_000_000, &["prog"]), lasting(calls(200, "b"), 2_000_000_000, &["prog"]));
    let (value, _) = first(&before, &after, DiffOptions::default());
    assert_eq!(value["per_second"], false);
    assert_eq!(value["a"]["command"], serde_json::json!(["prog"]));
    assert_eq!(
        (&value["rows"][0]["verdict"], &value["rows"][0]["calls_b_per_s"]),
        (&"slower".into(), &serde_json::Value::Null)
    );
}

#[test]
fn times_that_are_the_cost_of_tracing_are_marked() {
    let cost = CallCost {
        single_stepped: false,
        written: false,
        exit: ExitPolicy::ReturnSite,
        inner: 40,
        whole: 60,
        spread: 1,
    };
    let of = |duration| {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = writer(folder.path());
        writer.begin(&Header { calibration: vec![cost], ..Header::default() }).unwrap();
        writer.calls(&calls(duration, "b").into()).unwrap();
        writer.finish(&Summary::default()).unwrap();
        folder
    };
    let (before, after) = (of(100), of(1_000));
    let mut out = Vec::new();
    diff(before.path(), after.path(), &DiffOptions::default(), &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    let row: Vec<&str> = text.lines().find(|line| line.ends_with(" a")).unwrap().split_whitespace().collect();
    assert!(row[2].ends_with('!') && !row[3].ends_with('!'), "{text}");
    assert!(
        text.contains("! more than 30 % of this time is the cost of tracing (2 rows): what differs may be"),
        "{text}"
    );
}

#[test]
fn times_are_not_compared_where_returns_were_detected_differently() {
    let before = trace(calls(100, "b"));
    let after = tempfile::tempdir().unwrap();
    let mut writer = writer(after.path());
    let trace = crate::testing::definitions();
    let a = trace.region(RegionId(0)).unwrap();
    writer.define(&Definition::Region(rtrace_model::Region { exit: ExitPolicy::EntryOnly, ..a.clone() })).unwrap();
    writer.calls(&calls(200, "b").into()).unwrap();
    writer.finish(&Summary::default()).unwrap();
    let (value, regression) = first(&before, &after, DiffOptions { regression: Some(0.1), ..DiffOptions::default() });
    let a = value["rows"].as_array().unwrap().iter().find(|row| row["function"] == "a").unwrap();
    assert_eq!(
        (&a["verdict"], &a["change"], &a["p_b_greater"]),
        (&"timed differently".into(), &serde_json::Value::Null, &serde_json::Value::Null)
    );
    assert!(!regression);
    let note = "not compared by time, because A and B probe the functions in different ways: 1 row";
    assert!(value["notes"].as_array().unwrap().iter().any(|of| of == note), "{value}");
}

#[test]
fn a_place_in_another_build_is_another_function() {
    let of = |build: &str| {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = writer(folder.path());
        let trace = crate::testing::definitions();
        let library = trace.libraries()[0].clone();
        let region = trace.region(RegionId(0)).unwrap().clone();
        let name = format!("a@{:#x}", region.file_offset);
        let build_id = Some(build.to_owned());
        writer.define(&Definition::Library(rtrace_model::Library { build_id, ..library })).unwrap();
        writer.define(&Definition::Region(rtrace_model::Region { name, ..region })).unwrap();
        writer.calls(&calls(100, "b").into()).unwrap();
        writer.finish(&Summary::default()).unwrap();
        folder
    };
    let (before, again, after) = (of("0123456789"), of("0123456789"), of("ffff456789"));
    let verdict = |after| {
        let value = first(&before, after, DiffOptions::default()).0;
        let is_a = |row: &&serde_json::Value| row["function"].as_str().unwrap().contains("[build 01234567]");
        value["rows"].as_array().unwrap().iter().find(is_a).unwrap()["verdict"].clone()
    };
    assert_eq!([verdict(&again), verdict(&after)], ["same", "not traced in B"]);
}

#[test]
fn a_function_without_probe_in_one_trace_is_not_new_there() {
    let only = |functions: &[u32]| {
        let folder = tempfile::tempdir().unwrap();
        let trace = crate::testing::definitions();
        let mut writer = TraceWriter::create(folder.path(), None).unwrap();
        writer.begin(&Header::default()).unwrap();
        writer.define(&Definition::Library(trace.libraries()[0].clone())).unwrap();
        for &id in functions {
            writer.define(&Definition::Region(trace.region(RegionId(id)).unwrap().clone())).unwrap();
        }
        let called = calls(100, "b").into_iter().filter(|call| functions.contains(&call.region.0) && call.region.0 < 2);
        writer.calls(&called.collect::<Vec<Call>>().into()).unwrap();
        writer.finish(&Summary::default()).unwrap();
        folder
    };
    // Function c is traced in both and called in none, b only in the second.
    let (before, after) = (only(&[0, 2]), only(&[0, 1, 2]));
    let b = |before: &TempDir, after: &TempDir| {
        let gate = DiffOptions { regression: Some(0.1), ..DiffOptions::default() };
        let (value, regression) = first(before, after, gate);
        assert!(!regression, "{value}");
        value["rows"].as_array().unwrap().iter().find(|row| row["function"] == "b").unwrap().clone()
    };
    let row = b(&before, &after);
    assert_eq!((&row["verdict"], &row["calls_b"]), (&"not traced in A".into(), &1.into()));
    assert!([&row["calls_a"], &row["exclusive_a_ns"], &row["change"]].iter().all(|value| value.is_null()), "{row}");
    assert_eq!(b(&after, &before)["verdict"], "not traced in B");
}
