#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use rtrace_model::{
    Base, Call, Definition, Ending, Estimate, Event, EventKind, HISTOGRAM_BUCKETS, Header, Level, Library, LibraryId,
    LocationId, Loss, LossReason, Metric, MetricId, Overhead, PathId, PathProfile, Region, RegionId, Sample, Scope,
    Span, Timestamp, histogram_bucket,
};

use super::*;

fn library(id: u32, path: &str) -> Definition {
    let path = path.to_owned();
    Definition::Library(Library { id: LibraryId(id), path, apart: None, build_id: None, device: 0, inode: 0 })
}

fn region(id: u32, name: &str) -> Definition {
    Definition::Region(Region { id: RegionId(id), name: name.to_owned(), ..Region::default() })
}

fn call(region: u32, duration: Option<u64>) -> Call {
    let ending = if duration.is_some() { Ending::Returned } else { Ending::Unseen };
    Call { region: RegionId(region), duration, ending, ..Call::default() }
}

fn event(kind: EventKind) -> Event {
    Event { time: Timestamp(0), pid: None, tid: None, kind }
}

/// A sink that knows `work` of `libone.so` as region 0.
fn sink(is_folded: bool) -> OpenMetrics {
    let mut sink = OpenMetrics::listen((Ipv4Addr::LOCALHOST, 0).into(), is_folded).unwrap();
    sink.define(&library(0, "/usr/lib/libone.so")).unwrap();
    sink.define(&region(0, "work")).unwrap();
    sink
}

fn ask(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn scrape(sink: &OpenMetrics) -> String {
    let answer = ask(sink.address(), "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains("application/openmetrics-text"), "{head}");
    assert!(body.ends_with("\n# EOF\n"), "{body}");
    body.to_owned()
}

/// The value of a sample, by its name and labels.
fn value(text: &str, sample: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
    line.map(|value| value.parse().unwrap())
}

const WORK: &str = "function=\"work\",library=\"libone.so\"";

fn at_most(text: &str, bound: &str) -> Option<f64> {
    value(text, &format!("rtrace_call_duration_seconds_bucket{{le=\"{bound}\",{WORK}}}"))
}

#[test]
fn calls_are_counted_by_function_and_duration() {
    let mut sink = sink(false);
    assert_eq!(value(&scrape(&sink), "rtrace_up"), Some(0.0));
    sink.begin(&Header::default()).unwrap();
    let open = Call { ending: Ending::Open, ..call(0, Some(5_000)) };
    let calls = vec![call(0, Some(0)), call(0, Some(1_023)), call(0, Some(1_024)), call(0, None), open];
    sink.calls(&calls.into()).unwrap();
    sink.calls(&vec![call(0, Some(u64::MAX / 2))].into()).unwrap();
    let text = scrape(&sink);
    assert_eq!(value(&text, "rtrace_up"), Some(1.0));
    assert_eq!(value(&text, &format!("rtrace_calls_total{{{WORK}}}")), Some(6.0));
    assert_eq!(value(&text, &format!("rtrace_untimed_calls_total{{{WORK}}}")), Some(1.0));
    assert_eq!(value(&text, &format!("rtrace_call_duration_seconds_count{{{WORK}}}")), Some(4.0));
    let bounds = ["1.27e-7", "5.11e-7", "0.000001023", "0.000002047", "17.179869183", "+Inf"];
    assert_eq!(bounds.map(|bound| at_most(&text, bound).unwrap()), [1.0, 1.0, 2.0, 3.0, 3.0, 4.0]);
    assert!(value(&text, "process_cpu_seconds_total") > Some(0.0));
    assert!(value(&text, "process_resident_memory_bytes") > Some(1e6));
}

#[test]
fn hostile_names_stay_in_their_labels() {
    let mut sink = sink(false);
    sink.define(&library(0, "/tmp/a\"} 1\n.so")).unwrap();
    sink.define(&region(1, "f\\\"\n\u{1b}[31m\u{202e}ü")).unwrap();
    sink.calls(&vec![call(1, Some(1)), call(9, Some(1)), call(u32::MAX, None)].into()).unwrap();
    let text = scrape(&sink);
    let labels = r#"{function="f\\\"\\x0a\\x1b[31m\\u{202e}ü",library="a\"} 1\\x0a.so"}"#;
    assert_eq!(value(&text, &format!("rtrace_calls_total{labels}")), Some(1.0), "{text}");
    let unknown = r#"rtrace_calls_total{function="[unknown]",library="[unknown]"}"#;
    assert_eq!(value(&text, unknown), Some(2.0));
}

#[test]
fn functions_of_one_name_are_one_series() {
    let mut sink = sink(false);
    sink.define(&region(1, "work")).unwrap();
    sink.calls(&vec![call(0, Some(1)), call(1, Some(2))].into()).unwrap();
    let text = scrape(&sink);
    assert_eq!(text.matches(&format!("rtrace_calls_total{{{WORK}}}")).count(), 1);
    assert_eq!(value(&text, &format!("rtrace_calls_total{{{WORK}}}")), Some(2.0));
}

fn path(calls: u64, inclusive: u64) -> PathProfile {
    let mut histogram = [0; HISTOGRAM_BUCKETS];
    histogram[histogram_bucket(1_000)] = calls - 1;
    PathProfile {
        path: PathId(1),
        region: RegionId(0),
        location: LocationId(1),
        calls,
        timed: calls - 1,
        unseen: 1,
        inclusive,
        exclusive: inclusive,
        min: Some(1_000),
        max: Some(1_000),
        histogram,
        ..PathProfile::default()
    }
}

#[test]
fn aggregated_calls_count_once_and_never_backwards() {
    let mut sink = sink(true);
    sink.profile(&[path(3, 2_000)]).unwrap();
    // The same calls, where some have a record, too.
    sink.calls(&vec![call(0, Some(1_000))].into()).unwrap();
    sink.profile(&[path(5, 4_000)]).unwrap();
    sink.profile(&[path(2, 1_000)]).unwrap();
    sink.profile(&[PathProfile { path: PathId(2), ..path(2, 1_000) }]).unwrap();
    let text = scrape(&sink);
    assert_eq!(value(&text, &format!("rtrace_calls_total{{{WORK}}}")), Some(7.0));
    assert_eq!(value(&text, &format!("rtrace_untimed_calls_total{{{WORK}}}")), Some(2.0));
    assert_eq!(value(&text, &format!("rtrace_call_duration_seconds_sum{{{WORK}}}")), Some(5e-6));
    assert_eq!(at_most(&text, "5.11e-7"), Some(0.0));
    assert_eq!(at_most(&text, "0.000001023"), Some(5.0));
}

#[test]
fn what_is_missing_is_counted_and_what_is_unknown_absent() {
    let mut sink = sink(false);
    let text = scrape(&sink);
    assert_eq!(value(&text, "rtrace_lost_total{reason=\"ring_full\"}"), Some(0.0));
    assert!(!text.contains("throttled"), "{text}");
    for count in [2, 3] {
        let loss = Loss { reason: LossReason::RingFull, region: Some(RegionId(0)), count };
        sink.event(&event(EventKind::Loss(loss))).unwrap();
    }
    let to_off = EventKind::Level { region: RegionId(0), name: "work".into(), from: Level::Full, to: Level::Off };
    sink.event(&event(to_off)).unwrap();
    let estimate = Estimate { region: RegionId(0), estimated: Some(5), margin: Some(1), ..Estimate::default() };
    sink.estimates(&[estimate, Estimate { location: LocationId(1), ..estimate }]).unwrap();
    let text = scrape(&sink);
    assert_eq!(value(&text, "rtrace_lost_total{reason=\"ring_full\"}"), Some(5.0));
    assert_eq!(value(&text, &format!("rtrace_throttled{{{WORK}}}")), Some(1.0));
    assert_eq!(value(&text, &format!("rtrace_throttled_calls{{{WORK}}}")), Some(10.0));
    // One thread has called it more often than is known.
    sink.estimates(&[Estimate { margin: None, counted: 2, ..estimate }]).unwrap();
    let text = scrape(&sink);
    assert_eq!(value(&text, &format!("rtrace_throttled_calls{{{WORK}}}")), None);
    assert_eq!(value(&text, &format!("rtrace_throttled_calls_min{{{WORK}}}")), Some(11.0));
}

#[test]
fn the_overhead_is_absent_until_it_was_measured() {
    let mut sink = sink(false);
    assert_eq!(value(&scrape(&sink), "rtrace_overhead_ratio"), None);
    let (name, unit) = (Overhead::METRIC.to_owned(), "#".to_owned());
    let (base, scope, span) = (Base::Decimal, Scope::Node, Span::Point);
    sink.define(&Definition::Metric(Metric { id: MetricId(7), name, unit, base, exponent: -2, scope, span })).unwrap();
    let sample = |metric, value| Sample { metric: MetricId(metric), time: Timestamp(9), instance: 0, value };
    sink.samples(&[sample(7, 9.0), sample(7, 12.5), sample(8, 3.0)]).unwrap();
    sink.samples(&[sample(8, 4.0)]).unwrap();
    assert_eq!(value(&scrape(&sink), "rtrace_overhead_ratio"), Some(0.125));
}

#[test]
fn other_requests_are_refused() {
    let sink = sink(false);
    for (request, answer) in [
        ("HEAD /metrics?x=1 HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK"),
        ("GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 404 Not Found"),
        ("POST /metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 405 Method Not Allowed"),
        ("what\r\n\r\n", "HTTP/1.1 400 Bad Request"),
        ("GET /metrics SPDY/3\r\n\r\n", "HTTP/1.1 400 Bad Request"),
    ] {
        let said = ask(sink.address(), request);
        assert_eq!(said.lines().next(), Some(answer), "{request}");
    }
    let mut endless = TcpStream::connect(sink.address()).unwrap();
    let sent = (0..1_000).try_for_each(|_| endless.write_all(&[b'x'; 1_000]));
    let answer = endless.read(&mut [0]);
    assert!(sent.is_err() || answer.as_ref().map_or(true, |&count| count == 0), "{answer:?}");
}

#[test]
fn who_does_not_read_holds_nobody_up() {
    let mut sink = sink(false);
    let name = "x".repeat(10_000);
    (1..200).for_each(|id| sink.define(&region(id, &format!("{name}{id}"))).unwrap());
    sink.calls(&(1..200).map(|id| call(id, Some(1))).collect::<Vec<_>>().into()).unwrap();
    let silent = TcpStream::connect(sink.address()).unwrap();
    let slow = TcpStream::connect(sink.address()).unwrap();
    (&slow).write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    (&slow).read_exact(&mut [0; 100]).unwrap();
    // It is being answered, with more than the system keeps for it.
    let begin = Instant::now();
    sink.calls(&vec![call(0, Some(1))].into()).unwrap();
    assert!(begin.elapsed() < Duration::from_millis(500), "{:?}", begin.elapsed());
    assert!(value(&scrape(&sink), &format!("rtrace_calls_total{{{WORK}}}")).is_some());
    let address = sink.address();
    let begin = Instant::now();
    drop(sink);
    assert!(begin.elapsed() < Duration::from_secs(3), "{:?}", begin.elapsed());
    assert!(TcpStream::connect(address).is_err());
    drop((silent, slow));
}

#[test]
fn a_port_has_one_owner_and_is_free_afterwards() {
    let first = sink(false);
    let taken = OpenMetrics::listen(first.address(), false).err().unwrap();
    assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
    let address = first.address();
    scrape(&first);
    drop(first);
    OpenMetrics::listen(address, false).unwrap();
}

#[test]
fn too_many_at_once_are_turned_away_and_later_ones_served() {
    let sink = sink(false);
    let idle: Vec<TcpStream> = (0..8).map(|_| TcpStream::connect(sink.address()).unwrap()).collect();
    thread::sleep(Duration::from_millis(100));
    let mut one_more = TcpStream::connect(sink.address()).unwrap();
    let _ = one_more.write_all(b"GET /metrics HTTP/1.1\r\n\r\n");
    let mut answer = Vec::new();
    let _ = one_more.read_to_end(&mut answer);
    assert!(answer.is_empty());
    drop(idle);
    thread::sleep(Duration::from_millis(100));
    scrape(&sink);
}
