//! Two made-up traces compared.
#![allow(clippy::unwrap_used, reason = "tests")]

use rtrace_model::{Call, Sink, Summary, Timestamp};
use tempfile::TempDir;

use super::*;
use crate::testing::{script, writer};

/// A trace of `calls`.
fn trace(calls: Vec<Call>) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer(folder.path());
    writer.calls(&calls.into()).unwrap();
    writer.finish(&Summary::default()).unwrap();
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
    (String::from_utf8(out).unwrap(), regression)
}

#[test]
fn slower_new_and_gone_functions_are_told() {
    let (text, regression) = compare(calls(100, "b"), calls(150, "c"), &DiffOptions::default());
    let rows: Vec<&str> = text.split("\n\n").nth(1).unwrap().lines().collect();
    assert_eq!(
        rows,
        [
            "calls A  calls B  exclusive A  exclusive B    change   p50 A   p50 B   p99 A   p99 B  B slower  verdict  library    function",
            "   1000     1000    99.997 us   149.997 us   +50.0 %  100 ns  150 ns  100 ns  150 ns   100.0 %  slower   libone.so  a",
            "      1        0         3 ns         0 ns  -100.0 %    3 ns       -    3 ns       -         -  gone     libone.so  b",
            "      0        1         0 ns         3 ns         -       -    3 ns       -    3 ns         -  new      libone.so  c",
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
    assert!(text.contains("rows left out: 2") && !text.contains("gone"), "{text}");
}
