//! What is made of a recording while a program runs: figures that are served, and windows that are written.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::ptr;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rtrace_exporters::Trace;
use rtrace_model::{Call, Ending, histogram_bucket};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::common::recording::{Recording, names};
use crate::common::rtrace;
use crate::common::skip::Turn;
use crate::common::target::{Flavour, Target};
use crate::common::tries::in_one_of_some_tries;

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

/// `shapes nested` in a shell, which is there when the program has made all its calls.
struct Recorded {
    recorder: Child,
    said: BufReader<ChildStderr>,
    address: String,
}

impl Recorded {
    fn start(options: &[&str], directory: &Path) -> Recorded {
        let target = Target::build("shapes", Flavour::Cet);
        let mut recorder = rtrace::command();
        recorder
            .args(["run", "--no-tui", "--listen", "0"])
            .args(options)
            .args(target.selection())
            .arg("-o")
            .arg(directory);
        recorder.args(["--", "sh", "-c", "\"$0\" nested >/dev/null; cat"]).arg(&target.program);
        let mut recorder = recorder.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(recorder.stderr.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        let address = line.trim_end().strip_prefix("rtrace: metrics are at http://");
        let address = address.and_then(|address| address.strip_suffix("/metrics")).unwrap_or_else(|| panic!("{line}"));
        Recorded { recorder, said, address: address.to_owned() }
    }

    /// What is served once all calls are made.
    fn scrape_all(&self) -> String {
        wait(|| {
            let text = scrape(&self.address);
            let calls = by_function(&text, "rtrace_calls_total", "").values().sum::<f64>();
            (calls >= 5_000.0).then_some(text)
        })
    }

    /// Lets the shell end; what rtrace said.
    fn finish(mut self) -> String {
        drop(self.recorder.stdin.take());
        let mut text = String::new();
        self.said.read_to_string(&mut text).unwrap();
        assert!(self.recorder.wait().unwrap().success(), "{text}");
        text
    }
}

fn wait<T>(mut until: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(value) = until() {
            return value;
        }
        assert!(begin.elapsed() < PATIENCE, "it does not come");
        sleep(Duration::from_millis(50));
    }
}

#[test]
fn what_is_served_is_what_is_recorded() {
    let Some(_turn) = Turn::take() else { return };
    let folder = TempDir::new().unwrap();
    let directory = folder.path().join("trace");
    let recorded = Recorded::start(&[], &directory);
    let (text, address) = (recorded.scrape_all(), recorded.address.clone());
    recorded.finish();
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

/// The window of that number, once it is written.
fn window(directory: &Path, number: u32) -> PathBuf {
    let path = directory.join(format!("window-{number:04}"));
    wait(|| Trace::open(&path).ok().filter(|trace| trace.summary().is_some()));
    path
}

#[test]
fn what_is_kept_becomes_a_trace_when_somebody_asks() {
    let Some(_turn) = Turn::take() else { return };
    // The program may have ended before rtrace looks at what it maps: then its call sites have no names.
    in_one_of_some_tries(5, || {
        ask_for_what_is_kept().then_some(()).ok_or_else(|| "rtrace did not see what the program mapped".to_owned())
    });
}

/// Returns whether rtrace saw what the program mapped.
fn ask_for_what_is_kept() -> bool {
    let folder = TempDir::new().unwrap();
    let directory = folder.path().join("windows");
    let recorded = Recorded::start(&["--keep", "1m", "--keep-after", "100ms", "--trigger", "leaf > 1h"], &directory);
    recorded.scrape_all();
    assert!(!directory.join("window-0001/trace.json").exists());
    kill_process(Pid::from_child(&recorded.recorder), Signal::USR1).unwrap();
    // All that was recorded so far: it passes the same checks as any recording.
    let recording = Recording::open(&window(&directory, 1));
    assert_eq!(recording.summary().calls, 5_000);
    let said = recorded.finish();
    assert!(said.contains("rtrace: 1 trigger met, 1 window saved; "), "{said}");
    assert!(said.contains(" (SIGUSR1)"), "{said}");
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
    let report = rtrace::command().arg("report").arg(&directory).output().unwrap();
    let note = "a window of a longer recording, around `SIGUSR1`: calls before and after were not kept";
    assert!(String::from_utf8(report.stdout).unwrap().contains(note));
    let recording = Recording::open(&window(&directory, 1));
    let sites = recording.call_sites();
    let mut in_files = sites.iter().filter(|site| site.file.is_some()).peekable();
    let is_seen = in_files.peek().is_some();
    assert!(in_files.all(|site| site.function.is_some()), "{sites:?}");
    is_seen
}

#[test]
fn a_trigger_writes_what_was_around_it() {
    let Some(_turn) = Turn::take() else { return };
    let folder = TempDir::new().unwrap();
    let directory = folder.path().join("windows");
    let recorded = Recorded::start(&["--keep", "1m", "--trigger", "middle > 1ns", "--windows", "1"], &directory);
    let window = window(&directory, 1);
    let said = recorded.finish();
    let ends = said.find("1 window written: the recording ends (--windows)");
    assert!(said.find(" (middle > 1ns: middle took ").is_some_and(|written| Some(written) < ends), "{said}");
    let trace = Trace::open(&window).unwrap();
    let asked = trace.header().window.clone().unwrap();
    assert_eq!((asked.number, asked.trigger.as_str(), asked.is_cut), (1, "middle > 1ns", false));
    let calls: Vec<Call> = trace.calls().flat_map(|batch| batch.unwrap().into_calls()).collect();
    let met = calls.iter().find(|call| (Some(call.location), Some(call.id)) == (asked.location, asked.call));
    assert_eq!(met.map(|call| (call.known_until(), call.duration > Some(1))), Some((asked.time, true)));
    let (begin, end) = (trace.header().begin.monotonic, trace.summary().unwrap().end.monotonic);
    assert!(calls.iter().all(|call| call.known_until() >= begin && call.known_until() <= end));
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

/// A terminal may go while a key has come in part, which the library that reads keys waits for.
#[test]
fn a_list_ends_with_its_terminal() {
    let Some(_turn) = Turn::take() else { return };
    for keys in [&b""[..], b"\x1b[", b"\xc3"] {
        let (mut own, mut others) = (-1, -1);
        // SAFETY: the call writes two descriptors, and has nothing to read.
        let opened = unsafe { libc::openpty(&mut own, &mut others, ptr::null_mut(), ptr::null(), ptr::null()) };
        assert_eq!(opened, 0);
        // SAFETY: both were opened just now.
        let (own, terminal) = unsafe { (File::from_raw_fd(own), OwnedFd::from_raw_fd(others)) };
        // Else the command would keep its terminal from going.
        fcntl_setfd(&own, FdFlags::CLOEXEC).unwrap();
        let terminals = || Stdio::from(terminal.try_clone().unwrap());
        let mut command = rtrace::command();
        command.arg("attach").env("TERM", "xterm").stdin(terminals()).stdout(terminals()).stderr(terminals());
        let mut child = command.spawn().unwrap();
        drop((command, terminal));
        let mut shown = [0; 1 << 16];
        let read = (&own).read(&mut shown).unwrap();
        assert!(read > 0, "the list is drawn");
        (&own).write_all(keys).unwrap();
        sleep(Duration::from_millis(300));
        drop(own);
        let asked = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if asked.elapsed() > PATIENCE {
                child.kill().unwrap();
                panic!("after {keys:?} it still runs");
            }
            sleep(Duration::from_millis(20));
        };
        assert_eq!(status.code(), Some(1), "{keys:?}");
    }
}
