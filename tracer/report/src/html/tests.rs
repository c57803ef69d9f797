//! Pages in a real browser: what they show is what the report says, and names from programs stay texts.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use rtrace_exporters::{Destination, TraceWriter};
use rtrace_model::{
    Call, ClockAnchor, Definition, Ending, Event, EventKind, HISTOGRAM_BUCKETS, LocationId, Loss, LossReason, PathId,
    PathProfile, RegionId, Sink, Summary, Timestamp, ValueBatch, ValueColumn, ValueType, Values,
};
use serde_json::Value;

use super::*;
use crate::testing::{nested, region, script, writer};
use crate::{By, Format, Options, run};

/// Names that would end a script, an attribute or a text, or run something.
const HOSTILE: [&str; 3] = [
    "</script><script>document.title='owned'</script>",
    "\"><img src=x onerror=\"document.title='owned'\">",
    "<!--'&amp;\u{1b}[31m\u{202e}",
];

/// The rows of a table in the page: figures by name, as texts; empty where a figure is not known.
type Rows = Vec<BTreeMap<String, String>>;

fn define_hostile(writer: &mut TraceWriter) {
    for (id, name) in HOSTILE.into_iter().enumerate() {
        writer.define(&Definition::Region(region(id as u32, name.into()))).unwrap();
    }
}

fn page(directory: &Path, part: Option<Part>) -> String {
    let path = directory.join("page.html");
    let force = is_page(&path);
    html(directory, part, None, &Destination::Path { path: path.clone(), force, owner: None }).unwrap();
    fs::read_to_string(path).unwrap()
}

fn data(page: &str) -> Value {
    let data = page.split("id=\"data\">").nth(1).unwrap().split("</script>").next().unwrap();
    serde_json::from_str(data).unwrap()
}

/// The page as the browser has built it, and what it complained of; nothing where there is no browser.
fn browsed(directory: &Path, fragment: &str) -> Option<(String, String)> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let is_there = |name: &&&str| Command::new(name).arg("--version").output().is_ok();
    let Some(browser) = names.iter().find(is_there) else {
        println!("skipped: there is no chromium");
        return None;
    };
    let profile = tempfile::tempdir().unwrap();
    let output = Command::new("timeout")
        .args(["120", browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args(["--enable-logging=stderr", "--virtual-time-budget=5000", "--window-size=1400,900", "--dump-dom"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("file://{}#{fragment}", directory.join("page.html").display()))
        .output()
        .unwrap();
    let dom = String::from_utf8(output.stdout).unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let complaints: Vec<&str> = said.lines().filter(|line| line.contains("CONSOLE")).collect();
    // The document's own text is no part of what was drawn.
    let drawn = dom.split("<script type=\"application/json\"").next().unwrap().to_owned();
    assert!(dom.contains("data-ready=\"true\""), "the scripts did not come to their end: {}", complaints.join("\n"));
    Some((drawn, complaints.join("\n")))
}

/// The part of a page between the begin of an element with that attribute and the next `end`.
fn part<'a>(dom: &'a str, attribute: &str, end: &str) -> &'a str {
    let begin = dom.find(attribute).unwrap_or_else(|| panic!("{attribute} is not there"));
    let part = &dom[begin..];
    &part[..part.find(end).unwrap()]
}

/// The rows of a part, each with its id.
fn rows(part: &str) -> Rows {
    let attribute = |text: &str, name: &str| {
        let from = text.find(&format!(" {name}=\""))? + name.len() + 3;
        Some(text[from..].split('"').next()?.to_owned())
    };
    let row = |row: &str| {
        let head = row.split('>').next().unwrap();
        let mut figures: BTreeMap<String, String> = row
            .split("<td")
            .skip(1)
            .filter_map(|cell| {
                let head = &cell[..cell.find('>')?];
                Some((attribute(head, "data-key")?, attribute(head, "data-value")?))
            })
            .collect();
        figures.insert("id".to_owned(), attribute(head, "data-id").unwrap_or_default());
        figures
    };
    part.split("<tr").skip(1).filter(|text| text.contains("<td")).map(row).collect()
}

fn report(directory: &Path, by: By, histogram: bool, part: Option<Part>) -> Vec<Value> {
    let mut out = Vec::new();
    let histogram = histogram.then_some(crate::Histogram::Durations);
    let options = Options { by, histogram, part, format: Format::Json, ..Options::default() };
    run(directory, &options, &mut out).unwrap();
    let report: Value = serde_json::from_slice(&out).unwrap();
    report["rows"].as_array().unwrap().clone()
}

/// Compares figures; those of the report that a table of the page does not show are left out.
fn assert_same(page: &BTreeMap<String, String>, report: &Value) {
    let mut compared = 0;
    for (key, value) in page {
        let Some(expected) = report.get(key).filter(|_| !matches!(key.as_str(), "function" | "share")) else {
            continue;
        };
        let expected = match expected {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            // Parts of a whole have six decimals there, and more here.
            Value::Number(number) if number.is_f64() => {
                let (page, report) = (value.parse::<f64>().unwrap(), number.as_f64().unwrap());
                assert!((page - report).abs() <= 5e-7, "{key}: {page} is not {report}");
                compared += 1;
                continue;
            }
            number => number.to_string(),
        };
        assert_eq!(*value, expected, "{key} in {page:?}");
        compared += 1;
    }
    assert!(compared >= 3, "{page:?} has little in common with {report}");
}

/// Compares all tables of a page with the report's.
fn compare(directory: &Path, of: Option<Part>) {
    let page = page(directory, of);
    let names = data(&page)["names"].as_array().unwrap().clone();
    let name = |id: &str| names[id.parse::<usize>().unwrap()][0].as_str().unwrap().to_owned();
    let Some((dom, complaints)) = browsed(directory, "function=0") else { return };
    assert_eq!(complaints, "");
    assert!(!dom.contains("<title>owned") && !dom.contains("<img"), "a name was taken for markup");

    let functions = rows(part(&dom, "id=\"functions\"", "</section>"));
    let expected = report(directory, By::Function, false, of);
    assert_eq!(functions.len(), expected.len());
    for row in &functions {
        let same = |of: &&Value| of["function"] == *name(&row["id"]);
        assert_same(row, expected.iter().find(same).unwrap());
    }
    for (table, by, key) in [("threads", By::Thread, "tid"), ("processes", By::Process, "pid")] {
        let shown = rows(part(&dom, &format!("data-table=\"{table}\""), "</table>"));
        let expected = report(directory, by, false, of);
        assert_eq!(shown.len(), expected.len());
        for row in &shown {
            let same = |of: &&Value| of[key].as_u64() == row[key].parse().ok();
            assert_same(row, expected.iter().find(same).unwrap());
        }
    }
    let tree = report(directory, By::Tree, false, of);
    let in_page = data(&page)["tree"]["rows"].as_array().unwrap().clone();
    assert_eq!(in_page.len(), tree.len());
    let shown = rows(part(&dom, "id=\"tree\"", "</section>"));
    assert!(!shown.is_empty());
    for row in &shown {
        let of_page = &in_page[row["id"].parse::<usize>().unwrap()];
        let figures = ["calls", "inclusive_ns", "exclusive_ns"].map(|key| row[key].clone());
        let is_same = |of: &Value| {
            let text = |key: &str| if of[key].is_null() { String::new() } else { of[key].to_string() };
            of["function"] == *name(&of_page[1].to_string())
                && ["calls", "inclusive_ns", "exclusive_ns"].map(text) == figures
        };
        assert!(tree.iter().any(is_same), "{row:?}");
    }

    // The details are of the first function of the page.
    let chosen = names[0][0].as_str().unwrap();
    let of_pairs = report(directory, By::Caller, false, of);
    let called_by = of_pairs.iter().filter(|pair| pair["function"] == chosen).count();
    let callers = rows(part(&dom, "data-table=\"callers\"", "</table>"));
    assert_eq!(callers.len(), called_by);
    for row in &callers {
        let caller = if row["id"].starts_with('-') { Value::Null } else { name(&row["id"]).into() };
        let same = |of: &&Value| of["function"] == chosen && of["caller"] == caller;
        assert_same(row, of_pairs.iter().find(same).unwrap());
    }
    let buckets = report(directory, By::Function, true, of);
    for bucket in buckets.iter().filter(|bucket| bucket["function"] == chosen) {
        let bar = format!("data-from=\"{}\" data-value=\"{}\"", bucket["from_ns"], bucket["calls"]);
        assert!(dom.contains(&bar), "{bar}");
    }
}

#[test]
fn a_page_shows_what_the_report_says_whatever_functions_are_called() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer(folder.path());
    define_hostile(&mut writer);
    let mut calls = script(
        "thread 1
         a 0 900000
          b 10 60000
           a 20 50000
          c 70000 ?
           d 70100 75000
         e 1000000 ?
         thread 2
         b 0 100
         d 200 7000000",
    );
    calls[0].ending = Ending::Unwound;
    writer.calls(&calls.into()).unwrap();
    let lost = Loss { reason: LossReason::RingFull, region: Some(RegionId(1)), count: 2 };
    let kind =
        EventKind::Refused { library: "/l</script>".into(), region: HOSTILE[0].into(), reason: HOSTILE[1].into() };
    writer.event(&Event { time: Timestamp(3_000), pid: None, tid: None, kind }).unwrap();
    let end = ClockAnchor { monotonic: Timestamp(8_000_000), realtime_ns: 0 };
    let summary = Summary { calls: 8, locations: 2, regions: 6, losses: vec![lost], end, ..Summary::default() };
    writer.finish(&summary).unwrap();
    compare(folder.path(), None);
}

#[test]
fn a_page_of_a_part_shows_what_the_report_says_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer(folder.path());
    define_hostile(&mut writer);
    let calls = script(
        "thread 1
         a 0 9000
          b 1000 2000
           c 1100 1200
          b 3000 5000
          c 6000 ?
         thread 2
         d 2500 4500
          b 2600 2700
         e 5500 8000",
    );
    let summary = Summary {
        calls: calls.len() as u64,
        losses: vec![Loss { reason: LossReason::RingFull, region: Some(RegionId(1)), count: 2 }],
        end: ClockAnchor { monotonic: Timestamp(10_000), realtime_ns: 0 },
        ..Summary::default()
    };
    writer.calls(&calls.into()).unwrap();
    writer.event(&Event { time: Timestamp(1_500), pid: Some(1), tid: None, kind: EventKind::Disarmed }).unwrap();
    writer.event(&Event { time: Timestamp(4_000), pid: Some(2), tid: None, kind: EventKind::Disarmed }).unwrap();
    writer.finish(&summary).unwrap();
    let part = Part { from: Some(2_000), to: Some(6_000) };
    for part in [part, Part { to: None, ..part }, Part { from: None, ..part }] {
        compare(folder.path(), Some(part));
    }
    let data = data(&page(folder.path(), Some(part)));
    assert_eq!([&data["from_ns"], &data["length_ns"], &data["calls"]["seen"]], [2_000, 4_000, 4]);
    // Lane, start and duration of each: they stand where they were in the recording.
    let calls = data["calls"]["rows"].as_array().unwrap();
    let shown: Vec<_> = calls.chunks(6).map(|call| (call[0].as_u64(), call[1].as_u64(), call[3].as_u64())).collect();
    assert_eq!(shown[0], (Some(0), Some(3_000), Some(2_000)));
    assert_eq!(shown[2..], [(Some(1), Some(2_500), Some(2_000)), (Some(1), Some(100), Some(100))]);
    // Of the first thread 2 us from 3 us on, of the second 2 us from 2.5 us on.
    let lanes = &data["lanes"];
    let width = lanes["width"].as_u64().unwrap();
    let busy = |lane: usize| -> u64 {
        lanes["lanes"][lane]["busy"].as_array().unwrap().iter().map(|part| part.as_u64().unwrap() * width / 1_000).sum()
    };
    assert_eq!([0, 1].map(busy), [2_000, 2_000]);
    let first = lanes["lanes"][1]["busy"].as_array().unwrap().iter().position(|part| *part != 0).unwrap() as u64;
    assert_eq!(first, 500 / width);
    assert_eq!(data["incidents"]["lost"], json!([]));
    let events = data["incidents"]["events"].as_array().unwrap();
    assert_eq!(events.iter().map(|event| &event[0]).collect::<Vec<_>>(), [4_000]);
    let told = |place: usize| data["verdicts"][place][1].as_str().unwrap().to_owned();
    assert!(told(0).starts_with("Only calls that ended between 2.000 us and 6.000 us"), "{}", told(0));
    assert!(told(1).starts_with("All of the recording: ") && told(1).contains(" Incomplete: "), "{}", told(1));
    let behind = Some(Part { from: Some(20_000), to: None });
    let path = folder.path().join("behind.html");
    let written =
        html(folder.path(), behind, None, &Destination::Path { path: path.clone(), force: false, owner: None });
    assert!(matches!(written, Err(Error::PartBehindEnd(_))) && !path.exists());
}

/// A metric of calls.
fn metric(id: u32, name: &str, unit: &str) -> Definition {
    let (base, scope, span) = (rtrace_model::Base::Decimal, rtrace_model::Scope::Call, rtrace_model::Span::SinceStart);
    let (id, name, unit) = (rtrace_model::MetricId(id), name.to_owned(), unit.to_owned());
    Definition::Metric(rtrace_model::Metric { id, name, unit, base, exponent: 0, scope, span })
}

#[test]
fn a_roofline_has_the_functions_below_the_peaks() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer(folder.path());
    define_hostile(&mut writer);
    writer.define(&metric(0, "flops", "flop")).unwrap();
    writer.define(&metric(1, "operand_bytes", "B")).unwrap();
    // 8 operations per nanosecond and 4 per byte; of the other function none are known.
    let readings = [800, 200, 0, 0].map(|inclusive| rtrace_model::Reading { inclusive, child: 0 });
    let calls = script("thread 1\n a 0 100\n b 200 300");
    writer.calls(&rtrace_model::Batch::measured(calls, 2, readings.to_vec())).unwrap();
    writer.finish(&Summary::default()).unwrap();
    let rates = |one, all| rtrace_model::PeakRates { one, all };
    let peaks = Peaks {
        host: "<b>box".to_owned(),
        cpus: 2,
        gigaflops: rates(16.0, 32.0),
        gigabytes: rates(10.0, 15.0),
        operations: "counted".to_owned(),
        bytes: "moved".to_owned(),
    };
    let path = folder.path().join("page.html");
    for peaks in [None, Some(&peaks)] {
        let destination = Destination::Path { path: path.clone(), force: peaks.is_some(), owner: None };
        html(folder.path(), None, peaks, &destination).unwrap();
        let data = data(&fs::read_to_string(&path).unwrap());
        assert_eq!(data["roofline"].as_array().unwrap().len(), 1);
        assert_eq!([&data["roofline"][0][1], &data["roofline"][0][2]], [8.0, 4.0]);
        let Some((dom, complaints)) = browsed(folder.path(), "") else { continue };
        assert_eq!(complaints, "");
        let is_drawn = dom.contains("data-table=\"roofline\"");
        assert_eq!(is_drawn, peaks.is_some());
        if is_drawn {
            let table = part(&dom, "data-table=\"roofline\"", "</table>");
            // Of 16 and of 32 GF/s: memory would allow 40 and 60.
            assert!(table.contains("<td>8</td><td>4</td><td>50 %</td><td>25 %</td>"), "{table}");
        }
    }
}

#[test]
fn the_same_is_true_of_folded_calls() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer(folder.path());
    let path = |path, parent: u32, calls: u64, inclusive, exclusive| {
        let mut histogram = [0; HISTOGRAM_BUCKETS];
        histogram[7] = calls;
        PathProfile {
            path: PathId(path),
            parent: (parent > 0).then_some(PathId(parent)),
            region: RegionId(path - 1),
            location: LocationId(1),
            calls,
            timed: calls,
            inclusive,
            exclusive,
            min: Some(70),
            max: Some(127),
            histogram,
            ..PathProfile::default()
        }
    };
    writer.profile(&[path(1, 0, 10, 1_000, 400), path(2, 1, 6, 600, 600)]).unwrap();
    writer.finish(&Summary { calls: 16, folded: 16, ..Summary::default() }).unwrap();
    compare(folder.path(), None);
}

#[test]
fn a_page_shows_the_values_that_calls_had() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer(folder.path());
    let column = |position, name: &str, value_type, c_type: &str, at_exit| {
        Definition::ValueColumn(ValueColumn {
            region: RegionId(0),
            position,
            name: name.to_owned(),
            value_type,
            c_type: c_type.to_owned(),
            unit: (name == "n").then(|| "B".to_owned()),
            role: None,
            at_exit,
            source: String::new(),
        })
    };
    writer.define(&column(0, "n", ValueType::Integer, "int", false)).unwrap();
    writer.define(&column(1, HOSTILE[1], ValueType::Text, "char *", false)).unwrap();
    writer.define(&column(2, "result", ValueType::Integer, "void *", true)).unwrap();
    writer.calls(&script("thread 1\n a 0 100\n a 200 900\n a 1000 1010\n b 2000 2001").into()).unwrap();
    let texts = [Some(HOSTILE[0]), Some(HOSTILE[0]), None].map(|text| text.map(str::to_owned));
    let columns = vec![
        Values::Integer(vec![Some(7), Some(-3), Some(7)]),
        Values::Text(texts.to_vec()),
        Values::Integer(vec![Some(0x7f00_1234), Some(0), None]),
    ];
    let calls = (1..=3).map(|id| (LocationId(1), id)).collect();
    writer.values(&[ValueBatch { region: RegionId(0), calls, columns }]).unwrap();
    writer.finish(&Summary { calls: 4, ..Summary::default() }).unwrap();
    let values = data(&page(folder.path(), None))["calls"]["values"].clone();
    let told = &values["functions"][0];
    assert_eq!(told[1], 3);
    assert_eq!(told[2][0], json!(["n", "B", false, 3, [-3.0, 7.0, 11.0], 2, [["7", 2], ["-3", 1]]]));
    assert_eq!((&told[2][1][3], &told[2][2][4]), (&json!(2), &Json::Null));
    assert_eq!(values["calls"].as_array().unwrap().len(), 3);
    let Some((dom, complaints)) = browsed(folder.path(), "function=0") else { return };
    assert_eq!(complaints, "");
    assert!(!dom.contains("<title>owned") && !dom.contains("<img"), "a value was taken for markup");
    let shown = part(&dom, "data-table=\"values\"", "</dl>");
    for text in ["-3 to 7, sum 11", "0x7f001234", "not known of 1 call<"] {
        assert!(shown.contains(text), "{text} in {shown}");
    }
    assert!(dom.contains("n 7 B, ") && dom.contains(" → result 0x7f001234"), "{dom}");
}

#[test]
fn a_recording_without_calls_is_a_page_that_says_so() {
    let folder = tempfile::tempdir().unwrap();
    writer(folder.path()).finish(&Summary::default()).unwrap();
    assert!(page(folder.path(), None).contains("No call was recorded"));
    let Some((dom, complaints)) = browsed(folder.path(), "") else { return };
    assert_eq!(complaints, "");
    assert!(!dom.contains("id=\"timeline\"") && dom.contains("id=\"plan\""));
}

#[test]
fn what_is_said_in_sentences_is_what_happened() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer(folder.path());
    writer.calls(&script("thread 1\n a 0 900\n b 900 1000").into()).unwrap();
    let losses = vec![Loss { reason: LossReason::TooDeep, region: None, count: 7 }];
    writer.finish(&Summary { calls: 2, losses, ..Summary::default() }).unwrap();
    let said = data(&page(folder.path(), None))["verdicts"].to_string();
    for sentence in
        ["Incomplete: 7 calls lost (too deep: 7).", "a took 90 % of the traced time by itself; with b, it is 100 %."]
    {
        assert!(said.contains(sentence), "{said}");
    }
    let folder = tempfile::tempdir().unwrap();
    let mut whole = crate::testing::writer(folder.path());
    whole.calls(&script("thread 1\n a 0 900").into()).unwrap();
    whole.finish(&Summary { calls: 1, ..Summary::default() }).unwrap();
    let said = data(&page(folder.path(), None))["verdicts"].to_string();
    assert!(said.contains("Complete: no calls lost.") && !said.contains("Incomplete"), "{said}");
}

#[test]
fn a_page_is_no_larger_than_it_may_be() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer(folder.path());
    // Every function has a name of its own that is as long as names may be.
    for id in 0..6_000 {
        let name = format!("{id:05}{}", "é<".repeat(400));
        writer.define(&Definition::Region(region(id, name))).unwrap();
    }
    let shape: Vec<(u32, usize)> = (0..40_000).map(|call| (1 + call % 2, (call % 3 == 0).into())).collect();
    let calls: Vec<Call> = nested(&shape)
        .into_iter()
        .enumerate()
        .map(|(id, call)| Call { region: RegionId(id as u32 % 6_000), ..call })
        .collect();
    writer.calls(&calls.into()).unwrap();
    writer.finish(&Summary::default()).unwrap();
    let page = page(folder.path(), None);
    assert!(page.len() <= MOST_BYTES, "{} bytes", page.len());
    let data = data(&page);
    let shown = data["functions"]["rows"].as_array().unwrap().len() as u64;
    assert!(shown > 100);
    assert_eq!(shown + data["functions"]["left_out"].as_u64().unwrap(), 6_000, "what is left out is said");
}

#[test]
fn another_file_is_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    writer(folder.path()).finish(&Summary::default()).unwrap();
    page(folder.path(), None);
    page(folder.path(), None);
    let path = folder.path().join("other.html");
    fs::write(&path, "mine").unwrap();
    let force = is_page(&path);
    let error =
        html(folder.path(), None, None, &Destination::Path { path: path.clone(), force, owner: None }).unwrap_err();
    assert!(error.to_string().ends_with("it exists"), "{error}");
    assert_eq!(fs::read_to_string(path).unwrap(), "mine");
}
