//! Reports of folded calls are those of the calls themselves.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use rtrace_exporters::{Destination, TraceSet};
use rtrace_model::{
    Base, Batch, Call, CallCost, CallSite, CallSiteId, ClockAnchor, Definition, Ending, ExitPolicy, FoldedPath, Header,
    Loss, LossReason, Metric, MetricId, PathProfile, Reading, RegionId, Scope, Sink, Span, Summary, Timestamp,
};

use crate::testing::{nested, script, writer};
use crate::{By, DiffOptions, Error, Format, Histogram, Options, Sort, diff, html, run};

const EVERY_BY: [By; 8] =
    [By::Function, By::Tree, By::Thread, By::Library, By::Process, By::Caller, By::Callpath, By::Callsite];

/// A call: its thread, how much deeper or less deep than the one before, its function, how it ended, how long it ran
/// by itself, and where it was called from.
type Made = (u32, usize, u8, u8, u64, u8);

fn made() -> impl Strategy<Value = Vec<Made>> {
    let duration = prop_oneof![Just(0), 1..2_000_u64, 1..10_000_000_000_u64];
    prop::collection::vec((1..3_u32, 0..6_usize, 0..6_u8, any::<u8>(), duration, any::<u8>()), 0..150)
}

fn calls(made: &[Made]) -> Vec<Call> {
    let mut calls = Vec::new();
    for thread in 1..3 {
        let own: Vec<&Made> = made.iter().filter(|made| made.0 == thread).collect();
        let mut text = format!("thread {thread}\n");
        let (mut clock, mut next) = (0, 0);
        while next < own.len() {
            (clock, next) = lines(&own, next, 0, clock, &mut text);
        }
        let mut of_thread = script(&text);
        for call in &mut of_thread {
            let &&(_, _, _, ending, _, site) = &own[call.id as usize - 1];
            if call.is_timed() {
                call.ending =
                    [Ending::Returned, Ending::Returned, Ending::Unwound, Ending::Open][usize::from(ending % 4)];
            }
            call.call_site = (site % 5 > 0).then_some(CallSiteId(u32::from(site % 5)));
        }
        calls.extend(of_thread);
    }
    calls
}

/// Writes the line of a call and those of its callees; returns when it ends, and what comes next.
fn lines(own: &[&Made], place: usize, depth: usize, begin: u64, text: &mut String) -> (u64, usize) {
    let &&(_, _, function, ending, duration, _) = &own[place];
    let (mut below, mut clock, mut next) = (String::new(), begin + duration / 2, place + 1);
    while own.get(next).is_some_and(|made| made.1 > depth) {
        (clock, next) = lines(own, next, depth + 1, clock, &mut below);
    }
    let end = clock + duration / 2;
    let told = if ending % 7 == 0 { "?".to_owned() } else { end.to_string() };
    let name = char::from(b'a' + function);
    text.push_str(&format!("{:depth$}{name} {begin} {told}\n{below}", ""));
    (end, next)
}

fn store(directory: &Path, calls: &[Call]) {
    let mut writer = writer(directory);
    let cost = |single_stepped| CallCost {
        single_stepped,
        written: false,
        exit: ExitPolicy::ReturnSite,
        inner: 10,
        whole: 37,
        spread: 3,
    };
    let header = Header { calibration: vec![cost(false), cost(true)], host: "box".into(), ..Header::default() };
    writer.begin(&header).unwrap();
    for (id, name, unit) in [(0, "task-clock", "s"), (1, "page-faults", "#")] {
        let (exponent, base, scope, span) =
            (if id == 0 { -9 } else { 0 }, Base::Decimal, Scope::Call, Span::SinceStart);
        let (name, unit) = (name.to_owned(), unit.to_owned());
        writer
            .define(&Definition::Metric(Metric { id: MetricId(id), name, unit, base, exponent, scope, span }))
            .unwrap();
    }
    for id in 1..5 {
        // Two call sites in one function.
        let function = Some(format!("untraced{}", id / 2));
        let (file, offset) = (Some("/bin/prog".to_owned()), u64::from(id));
        let site = CallSite { id: CallSiteId(id), file, offset, function, ..CallSite::default() };
        writer.define(&Definition::CallSite(site)).unwrap();
    }
    let reading =
        |call: &Call, part| Reading { inclusive: call.duration.unwrap_or(0) / part, child: call.child / part };
    let readings = calls.iter().flat_map(|call| [2, 700].map(|part| reading(call, part))).collect();
    writer.calls(&Batch::measured(calls.to_vec(), 2, readings)).unwrap();
    let end = ClockAnchor { monotonic: Timestamp(1_000_000_000_000), realtime_ns: 0 };
    let losses = vec![Loss { reason: LossReason::RingFull, region: Some(RegionId(1)), count: 3 }];
    writer.finish(&Summary { calls: calls.len() as u64, losses, end, ..Summary::default() }).unwrap();
}

/// All that is said of a trace.
fn told(directory: &Path) -> Vec<String> {
    let mut told = Vec::new();
    let mut say = |what: String, write: &dyn Fn(&mut Vec<u8>) -> Result<(), Error>| {
        let mut out = Vec::new();
        match write(&mut out) {
            Ok(()) => told.push(format!("{what}: {}", String::from_utf8(out).unwrap())),
            Err(error) => told.push(format!("{what}: {error}")),
        }
    };
    for by in &EVERY_BY {
        let by = || by.clone();
        for (sort, histogram, limit) in [
            (Sort::Exclusive, None, None),
            (Sort::Inclusive, None, None),
            (Sort::Calls, Some(Histogram::Durations), None),
            (Sort::P99, None, Some(3)),
            (Sort::Calls, None, Some(3)),
        ] {
            let options = Options { by: by(), sort, histogram, limit, format: Format::Json, ..Options::default() };
            say(format!("{options:?}"), &|out| run(directory, &options, out));
        }
        let options = DiffOptions { by: by(), format: Format::Json, ..DiffOptions::default() };
        say(format!("{options:?}"), &|out| diff(directory, directory, &options, out).map(drop));
    }
    told.push(page(directory));
    told
}

/// The page of a trace without what is said of its size, which is not the same without the sums.
fn page(directory: &Path) -> String {
    let page = directory.with_extension("html");
    html(directory, None, None, &Destination::Path { path: page.clone(), force: true, owner: None }).unwrap();
    let page = fs::read_to_string(page).unwrap();
    let is_size = |part: &&str| part.starts_with("\"bytes\":") || part.starts_with("\"bytes_per_call\":");
    page.split(',').filter(|part| !is_size(part)).collect::<Vec<_>>().join(",")
}

/// Compares what is said with and without the sums of the traces in these directories.
fn compare(directory: &Path, members: &[&Path]) {
    let folded = told(directory);
    for member in members {
        fs::remove_file(member.join("folded.parquet")).unwrap();
    }
    folded.into_iter().zip(told(directory)).for_each(|(folded, walked)| assert_same(&folded, &walked));
}

fn assert_same(folded: &str, walked: &str) {
    if folded != walked {
        let place = folded.bytes().zip(walked.bytes()).position(|(a, b)| a != b).unwrap_or_default();
        let near = |text: &str| text.chars().skip(place.saturating_sub(200)).take(400).collect::<String>();
        let what: String = folded.chars().take(80).collect();
        panic!("{what}\nfolded: {}\nwalked: {}", near(folded), near(walked));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    #[test]
    fn folded_calls_say_what_calls_say(made in made()) {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("trace");
        store(&directory, &calls(&made));
        compare(&directory, &[&directory]);
    }

    #[test]
    fn several_traces_as_one_say_it_too(first in made(), second in made(), third in made(), with_profile: bool) {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("job");
        fs::create_dir(&directory).unwrap();
        let members = ["rank-0", "rank-1", "rank-2"].map(|name| directory.join(name));
        store(&members[0], &calls(&first));
        store(&members[1], &calls(&second));
        store(&members[2], &calls(&third));
        // One without the sums, as an older one, or with a profile in their place.
        let sums = TraceSet::open(&members[2]).unwrap().folded(true).paths;
        fs::remove_file(members[2].join("folded.parquet")).unwrap();
        if with_profile {
            fs::remove_dir_all(&members[2]).unwrap();
            let mut writer = writer(&members[2]);
            let profile: Vec<PathProfile> = sums.into_iter().map(|path| path.profile).collect();
            writer.profile(&profile).unwrap();
            writer.finish(&Summary::default()).unwrap();
        }
        compare(&directory, &[&members[0], &members[1]]);
    }
}

/// Calls of functions that do not call themselves, on two threads, some of which were not timed.
fn many() -> Vec<Call> {
    let shape: Vec<(u32, usize)> =
        (0..30_000).map(|place| (1 + place / 6 % 2, [0, 0, 0, 1, 2, 3][place as usize % 6])).collect();
    let mut calls = nested(&shape);
    for call in &mut calls {
        call.region = RegionId(call.depth);
        call.call_site = (call.id % 7 > 0).then_some(CallSiteId(1 + call.id as u32 % 4));
        if call.id % 97 == 0 {
            (call.duration, call.ending) = (None, Ending::Unseen);
        }
    }
    calls
}

#[test]
fn a_page_of_many_calls_is_the_same_whether_it_reads_them_or_not() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("trace");
    store(&directory, &many());
    assert!(is_folded(&directory));
    let of_sums = page(&directory);
    fs::remove_file(directory.join("folded.parquet")).unwrap();
    assert_same(&of_sums, &page(&directory));
}

#[test]
fn a_page_knows_which_calls_are_within_others_from_the_same_place() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("trace");
    let mut calls = many();
    calls.iter_mut().for_each(|call| call.region = RegionId(call.depth % 2));
    store(&directory, &calls);
    let page = page(&directory);
    let data: serde_json::Value =
        serde_json::from_str(page.split("id=\"data\">").nth(1).unwrap().split("</script>").next().unwrap()).unwrap();
    let rows = data["sites"]["rows"].as_array().unwrap();
    let calls: u64 = rows.iter().map(|row| row[2].as_u64().unwrap()).sum();
    assert_eq!(calls, 30_000);
    assert!(rows.iter().all(|row| row[4].is_null() == row[5].is_null()));
    fs::remove_file(directory.join("folded.parquet")).unwrap();
    assert_same(&page, &self::page(&directory));
}

fn is_folded(directory: &Path) -> bool {
    TraceSet::open(directory).unwrap().folded(true).paths.iter().any(|path| path.detail.is_some())
}

#[test]
fn many_calls_have_the_same_percentiles() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("trace");
    // Of `a` some, of `b` as many as are told apart, of `c` more.
    let line = |place: u64| {
        let function = ["a", "b", "b", "c", "c", "c", "c", "c"][(place * 7 % 8) as usize];
        let (begin, length) = (place * 1_000_000, 10 + place * place % 999_983);
        let callee = if place.is_multiple_of(3) {
            format!("  d {} {}\n   e {} {}\n", begin + 1, begin + 9, begin + 5, begin + 9)
        } else {
            String::new()
        };
        format!(" {function} {begin} {}\n{callee}", begin + length)
    };
    let text: String = (0..3_000).map(line).collect();
    store(&directory, &script(&format!("thread 1\n{text}")));
    assert!(is_folded(&directory));
    compare(&directory, &[&directory]);
}

/// Sums that say something else than the calls show which of the two a report is of.
#[test]
fn sums_are_read_where_they_are_of_the_calls() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("trace");
    let other = folder.path().join("other");
    store(&directory, &script("thread 1\n a 0 100\n  b 10 20\n b 200 300"));
    store(&other, &script("thread 1\n a 0 100\n  c 10 20\n c 200 300"));
    let first = |by| {
        let mut out = Vec::new();
        run(
            &directory,
            &Options { by, sort: Sort::Calls, limit: Some(1), format: Format::Csv, ..Options::default() },
            &mut out,
        )
        .unwrap();
        String::from_utf8(out).unwrap().contains(",libone.so,c")
    };
    assert!(!first(By::Function));
    fs::copy(other.join("folded.parquet"), directory.join("folded.parquet")).unwrap();
    assert!(first(By::Function), "the sums were not read");
    assert!(first(By::Callsite), "the sums were not read");
    let more = folder.path().join("more");
    store(&more, &script("thread 1\n c 0 100\n c 110 120\n c 200 300\n c 400 500"));
    fs::copy(more.join("folded.parquet"), directory.join("folded.parquet")).unwrap();
    assert!(!first(By::Function), "the sums are of other calls");
    fs::write(directory.join("folded.parquet"), "PAR1").unwrap();
    assert!(!first(By::Function), "the sums cannot be read");
}

#[test]
fn a_trace_that_is_not_finished_or_not_complete_has_no_sums() {
    let folder = tempfile::tempdir().unwrap();
    let unfinished = folder.path().join("unfinished");
    let mut recording = writer(&unfinished);
    recording.calls(&script("thread 1\n a 0 100").into()).unwrap();
    drop(recording);
    let incomplete = folder.path().join("incomplete");
    let mut calls = script("thread 1\n a 0 100\n  b 10 60\n   c 20 50");
    calls.retain(|call| call.depth != 1);
    store(&incomplete, &calls);
    let aggregated = folder.path().join("aggregated");
    let mut writer = writer(&aggregated);
    writer.calls(&script("thread 1\n a 0 100").into()).unwrap();
    let complete = folder.path().join("complete");
    store(&complete, &script("thread 1\n a 0 100"));
    let profile: Vec<FoldedPath> = TraceSet::open(&complete).unwrap().folded(true).paths;
    writer.profile(&[profile[0].profile.clone()]).unwrap();
    writer.finish(&Summary::default()).unwrap();
    for directory in [unfinished, incomplete, aggregated] {
        assert!(!is_folded(&directory) && !directory.join("folded.parquet").exists(), "{directory:?}");
    }
    assert!(is_folded(&complete));
}
