//! Calls folded in the kernel: the same counts, trees and times as from single calls.

use std::path::Path;

use rtrace_exporters::Trace;
use rtrace_model::Ending;

use crate::common::profile::check_against_records;
use crate::common::scenario::Scenario;
use crate::common::skip::Turn;
use crate::common::target::{Flavour, Target};
use crate::common::{profile, rtrace, truth};

fn profiled(program: &'static str, scenario: &'static str) -> Scenario {
    Scenario::new(program, scenario).option("--mode").option("profile")
}

/// Calls are folded, and have a record of their own, too.
fn all_recorded(program: &'static str, scenario: &'static str) -> Scenario {
    Scenario::new(program, scenario).option("--min-duration").option("0ns")
}

fn has_no_records(directory: &Path) {
    assert_eq!(Trace::open(directory).unwrap().calls().map(|batch| batch.unwrap().len()).sum::<usize>(), 0);
}

#[test]
fn nested() {
    profiled("shapes", "nested").run_folded(has_no_records);
}

#[test]
fn recursion_deeper_than_the_kernel_follows_returns() {
    profiled("shapes", "recursion").run_folded(has_no_records);
}

#[test]
fn mutual_recursion() {
    profiled("shapes", "mutual").run_folded(has_no_records);
}

#[test]
fn four_threads_at_once() {
    profiled("threads", "parallel").run_folded(has_no_records);
}

#[test]
fn pthread_exit_inside_a_call() {
    profiled("threads", "exit").run_folded(has_no_records);
}

#[test]
fn longjmp_over_calls() {
    profiled("jumps", "long_jumps").run_folded(has_no_records);
}

#[test]
fn exceptions_forty_calls_deep() {
    profiled("exceptions", "deep").run_folded(has_no_records);
}

/// A thread's paths are given back when it has ended: two entries serve three threads.
#[test]
fn entries_of_ended_threads_are_used_again() {
    let scenario = profiled("threads", "paced").option("--max-paths").option("2");
    scenario.run_folded(has_no_records);
}

#[test]
fn calls_by_more_paths_than_there_is_room_for_are_lost() {
    let Some(_turn) = Turn::take() else { return };
    let target = Target::build("shapes", Flavour::Cet);
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("trace");
    let options = ["--mode", "profile", "--max-paths", "2"].map(str::to_owned);
    let output = rtrace::record(&[target.selection(), options.into()].concat(), &target.command("nested"), &directory);
    assert!(output.status.success());
    let trace = Trace::open(&directory).unwrap();
    let kept = trace.profile().iter().map(|path| path.calls).sum::<u64>();
    let summary = trace.summary().unwrap();
    assert_eq!((trace.profile().len(), kept, summary.lost()), (2, 2000, 3000), "{summary}");
    assert!(summary.to_string().contains("too many call paths: 3,000"), "{summary}");
}

#[test]
fn times_are_those_of_the_records() {
    for (program, scenario) in [("shapes", "nested"), ("threads", "parallel"), ("jumps", "long_jumps")] {
        all_recorded(program, scenario).run_folded(check_against_records);
    }
}

#[test]
fn counts_are_those_of_the_records() {
    let counters = "page-faults,context-switches,task-clock,cpu-clock";
    for (program, scenario) in [("shapes", "nested"), ("threads", "parallel"), ("jumps", "long_jumps")] {
        all_recorded(program, scenario).option("--counters").option(counters).run_folded(check_against_records);
    }
}

#[test]
fn counted_without_records() {
    profiled("shapes", "nested").option("--counters").option("page-faults,task-clock").run_folded(|directory| {
        has_no_records(directory);
        let trace = Trace::open(directory).unwrap();
        assert!(trace.profile().iter().all(|path| path.counts.len() == 2));
        let on_cpu: u64 = trace.profile().iter().map(|path| path.counts[1].exclusive).sum();
        let time: u64 = trace.profile().iter().map(|path| path.exclusive).sum();
        assert!(on_cpu > 0 && on_cpu <= time, "{on_cpu} of {time}");
    });
}

/// The rows of a report by their names; of those by function, thread, library or process without the percentiles, and
/// without what tracing took and the shares, which are of the rest: that two calls share a return is known of single
/// calls alone.
fn report(directory: &Path, by: &str) -> Vec<Vec<String>> {
    let arguments = ["--by", by, "--sort", "name", "--format", "csv"];
    let output = rtrace::command().arg("report").arg(directory).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let titles: Vec<&str> = text.lines().next().unwrap().split(',').collect();
    let is_percentile = |title: &str| title.strip_prefix('p').is_some_and(|rest| rest.starts_with(char::is_numeric));
    let is_of_tracing =
        |title: &str| ["_corrected_ns", "_error_ns", "_tracing", "share"].iter().any(|end| title.ends_with(end));
    let is_left_out = |title: &str| is_percentile(title) || is_of_tracing(title);
    let kept: Vec<bool> = titles.iter().map(|title| !is_left_out(title)).collect();
    let row = |line: &str| line.split(',').zip(&kept).filter(|(_, kept)| **kept).map(|(cell, _)| cell.into()).collect();
    text.lines().map(row).collect()
}

#[test]
fn reports_are_those_of_the_records() {
    for (program, scenario) in [("shapes", "recursion"), ("threads", "parallel"), ("jumps", "long_jumps")] {
        all_recorded(program, scenario).run_folded(|directory| {
            let reports = || ["function", "tree", "thread", "library", "process"].map(|by| report(directory, by));
            let folded = reports();
            std::fs::remove_file(directory.join("profile.parquet")).unwrap();
            assert_eq!(folded, reports());
        });
    }
}

/// A recording without lost calls keeps what they add up to, and every report of these sums is that of the calls.
#[test]
fn reports_of_what_calls_add_up_to_are_those_of_the_calls() {
    let report = |directory: &Path, by: &str| {
        let arguments = ["--by", by, "--format", "json"];
        let output = rtrace::command().arg("report").arg(directory).args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    for (program, scenario) in [("shapes", "recursion"), ("threads", "parallel"), ("jumps", "long_jumps")] {
        Scenario::new(program, scenario).run_to_trace(|directory| {
            let all = ["function", "tree", "thread", "library", "process", "caller", "callpath"];
            let reports = || all.map(|by| report(directory, by));
            let of_sums = reports();
            std::fs::remove_file(directory.join("folded.parquet")).unwrap();
            assert_eq!(of_sums, reports());
        });
    }
}

#[test]
fn calls_shorter_than_the_least_duration_are_folded() {
    Scenario::new("shapes", "nested").option("--min-duration").option("1h").run_folded(has_no_records);
}

/// Of `visit*5(visit*2(leaf))` one inner call in each outer one sleeps.
#[test]
fn long_calls_are_recorded_with_their_callers() {
    let scenario = Scenario::new("shapes", "pauses").option("--min-duration").option("20ms");
    scenario.run_folded(|directory| {
        let trace = Trace::open(directory).unwrap();
        let mut calls: Vec<_> = trace.calls().flat_map(|batch| batch.unwrap().into_calls()).collect();
        calls.sort_unstable_by_key(|call| call.id);
        // The first one that sleeps returns through a place that is not known yet.
        assert!((9..=10).contains(&calls.len()), "{calls:?}");
        for pair in calls[calls.len() - 8..].chunks(2) {
            assert_eq!((pair[0].depth, pair[1].depth, pair[1].parent), (0, 1, pair[0].id));
            assert!(pair.iter().all(|call| call.ending == Ending::Returned && call.duration >= Some(20_000_000)));
        }
    });
}

#[test]
fn a_program_that_is_attached_to_and_left() {
    let Some(_turn) = Turn::take() else { return };
    let target = Target::build("shapes", Flavour::Cet);
    let mut waiting = rtrace::Waiting::start(&mut target.command("nested"));
    let options = ["--mode", "profile"].map(str::to_owned);
    let attached = rtrace::Attached::start(waiting.pid(), &[target.selection(), options.into()].concat());
    waiting.go();
    let traced = waiting.finish();
    let folder = attached.leave();
    let told = truth::trees(&traced.stdout).into_iter().map(|(thread, calls)| (thread, calls.paths())).collect();
    assert_eq!(profile::open(&folder.path().join("trace")), told);
}
