//! Figures that are served while a program runs.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rtrace_model::{Ending, histogram_bucket};
use tempfile::TempDir;

use crate::common::recording::{Recording, names};
use crate::common::rtrace;
use crate::common::skip::Turn;
use crate::common::target::{Flavour, Target};

const PATIENCE: Duration = Duration::from_secs(60);

/// What is served at an address such as `127.0.0.1:9464`.
fn scrape(address: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// The values of a sample by function; of a bucket's the one with that bound.
fn by_function(text: &str, sample: &str, bound: &str) -> BTreeMap<String, f64> {
    let lines = text.lines().filter_map(|line| line.strip_prefix(sample)?.strip_prefix('{'));
    let lines = lines.filter(|line| bound.is_empty() || line.starts_with(&format!("le=\"{bound}\"")));
    let value = |line: &str| {
        let function = line.split("function=\"").nth(1)?.split('"').next()?;
        Some((function.to_owned(), line.rsplit(' ').next()?.parse().ok()?))
    };
    lines.filter_map(value).collect()
}

#[test]
fn what_is_served_is_what_is_recorded() {
    let Some(_turn) = Turn::take() else { return };
    let folder = TempDir::new().unwrap();
    let directory = folder.path().join("trace");
    let target = Target::build("shapes", Flavour::Cet);
    let mut recorder = rtrace::command();
    recorder.args(["run", "--no-tui", "--listen", "0"]).args(target.selection()).arg("-o").arg(&directory);
    // The shell is there when the program has made all its calls.
    recorder.args(["--", "sh", "-c", "\"$0\" nested >/dev/null; cat"]).arg(&target.program);
    let mut recorder = recorder.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(recorder.stderr.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    let address = line.trim_end().strip_prefix("rtrace: metrics are at http://").unwrap_or_else(|| panic!("{line}"));
    let address = address.strip_suffix("/metrics").unwrap();
    let begin = Instant::now();
    let text = loop {
        let text = scrape(address);
        if by_function(&text, "rtrace_calls_total", "").values().sum::<f64>() >= 5_000.0 {
            break text;
        }
        assert!(begin.elapsed() < PATIENCE, "{text}");
        sleep(Duration::from_millis(50));
    };
    drop(recorder.stdin.take());
    assert!(recorder.wait().unwrap().success());
    assert!(TcpStream::connect(address).is_err(), "it serves no more");

    let recording = Recording::open(&directory);
    let names = names(recording.regions());
    let (mut calls, mut timed, mut short) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    for call in recording.calls() {
        let name = &names[&call.region];
        *calls.entry(name.clone()).or_insert(0.0) += 1.0;
        let duration = call.duration.filter(|_| call.ending != Ending::Open);
        *timed.entry(name.clone()).or_insert(0.0) += if duration.is_some() { 1.0 } else { 0.0 };
        let is_short = duration.is_some_and(|duration| histogram_bucket(duration) <= 13);
        *short.entry(name.clone()).or_insert(0.0) += if is_short { 1.0 } else { 0.0 };
    }
    assert_eq!(by_function(&text, "rtrace_calls_total", ""), calls);
    assert_eq!(by_function(&text, "rtrace_call_duration_seconds_count", ""), timed);
    assert_eq!(by_function(&text, "rtrace_call_duration_seconds_bucket", "0.000008191"), short);
}

#[test]
fn a_port_that_is_taken_is_said_before_anything_runs() {
    let Some(_turn) = Turn::take() else { return };
    let owner = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = owner.local_addr().unwrap().port().to_string();
    let folder = TempDir::new().unwrap();
    let (directory, witness) = (folder.path().join("trace"), folder.path().join("witness"));
    let mut recorder: Command = rtrace::command();
    recorder.args(["run", "--lib", "libc.so.6", "--func", "free", "--listen", &port, "-o"]).arg(&directory);
    let output = recorder.args(["--", "touch"]).arg(&witness).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.starts_with(&format!("rtrace: failed to listen on `127.0.0.1:{port}`: Address already in use")),
        "{said}"
    );
    assert!(!directory.exists() && !witness.exists(), "{said}");
}
