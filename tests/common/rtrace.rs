//! Runs of the rtrace binary.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rtrace_exporters::Trace;
use rtrace_model::EventKind;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::launch::under;
use super::recording::Recording;

/// What `rtrace attach` is told that must record all calls.
pub const ALL_CALLS: [&str; 2] = ["--budget", "none"];

const USUAL_START: Duration = Duration::from_millis(50);
const PATIENCE: Duration = Duration::from_secs(60);

/// The binary under test, without the configuration of whoever runs the tests.
pub fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rtrace"));
    command.env("XDG_CONFIG_HOME", "/nonexistent");
    command
}

/// Runs `program` under `rtrace run` with `options`; gives what both printed, and the trace.
pub fn run(options: &[String], program: &Command) -> (Output, Recording) {
    let folder = TempDir::new().unwrap();
    let directory = trace_directory(&folder);
    let output = record(options, program, &directory);
    (output, Recording::open(&directory))
}

/// Runs `program` under `rtrace run` with `options`; the trace goes to `directory`.
pub fn record(options: &[String], program: &Command, directory: &Path) -> Output {
    let mut rtrace = command();
    rtrace.args(["run", "--no-tui"]).args(options).arg("-o").arg(directory).arg("--");
    let output = under(rtrace, program);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(directory.join("trace.json").exists(), "rtrace left no trace of {program:?}:\n{complaint}");
    output
}

fn trace_directory(folder: &TempDir) -> PathBuf {
    folder.path().join("trace")
}

/// What `rtrace` says that refuses to do this.
pub fn refuses(arguments: &[&str]) -> String {
    let output = command().args(arguments).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    said
}

/// A program that waits for a line before it does anything.
pub struct Waiting {
    child: Child,
}

/// How often as slow as it may be the machine is now, by how long it takes to start rtrace; 1 where it is fast enough.
pub fn slowness() -> u32 {
    let start = Instant::now();
    assert!(command().arg("--version").output().unwrap().status.success());
    (start.elapsed().as_nanos() / USUAL_START.as_nanos()).try_into().map_or(u32::MAX, |slower: u32| slower.max(1))
}

impl Waiting {
    /// Starts `program` with `wait` as last argument, and waits until it is ready.
    pub fn start(program: &mut Command) -> Waiting {
        let mut child =
            program.arg("wait").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let line = read_line(&mut child);
        assert!(line.starts_with("ready "), "{program:?} said `{line}`");
        Waiting { child }
    }

    /// The next line that it prints.
    pub fn line(&mut self) -> String {
        read_line(&mut self.child)
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Lets it go on.
    pub fn go(&mut self) {
        self.feed(b"\n");
    }

    /// Writes to its standard input.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.child.stdin.as_mut().expect("it is piped").write_all(bytes).unwrap();
    }

    /// Whether it runs.
    pub fn runs(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Closes its standard input and waits for its end.
    pub fn finish(self) -> Output {
        self.child.wait_with_output().unwrap()
    }
}

fn read_line(child: &mut Child) -> String {
    let mut line = String::new();
    // A buffer of one byte, so that nothing behind the line is taken.
    BufReader::with_capacity(1, child.stdout.as_mut().expect("it is piped")).read_line(&mut line).unwrap();
    line
}

/// A running `rtrace attach`.
pub struct Attached {
    rtrace: Child,
    folder: TempDir,
}

impl Attached {
    /// Attaches to `pid` and returns when calls are recorded: all of them, unless the options name a limit, or exclude one.
    pub fn start(pid: u32, options: &[String]) -> Attached {
        let decides = |option: &String| ["--budget", "--keep"].contains(&option.as_str());
        match options.iter().any(decides) {
            true => Attached::as_told(pid, options),
            false => Attached::as_told(pid, &[options, &ALL_CALLS.map(str::to_owned)].concat()),
        }
    }

    /// The same with these options, and no others.
    pub fn as_told(pid: u32, options: &[String]) -> Attached {
        let folder = TempDir::new().unwrap();
        let mut rtrace = command();
        rtrace.args(["attach", "--no-tui", "-p", &pid.to_string()]).args(options);
        rtrace.arg("-o").arg(trace_directory(&folder));
        rtrace.stdin(Stdio::null()).stderr(Stdio::piped());
        let mut attached = Attached { rtrace: rtrace.spawn().expect("rtrace starts"), folder };
        attached.wait_until_armed();
        attached
    }

    fn wait_until_armed(&mut self) {
        let start = Instant::now();
        while !armed(&trace_directory(&self.folder)) {
            let has_ended = self.rtrace.try_wait().unwrap().is_some();
            if has_ended && armed(&trace_directory(&self.folder)) {
                return;
            }
            if has_ended || start.elapsed() > PATIENCE {
                let _ = self.rtrace.kill();
                let mut complaint = String::new();
                self.rtrace.stderr.take().expect("it is piped").read_to_string(&mut complaint).unwrap();
                panic!("rtrace does not record:\n{complaint}");
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// rtrace's process id.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.rtrace)
    }

    /// Waits until rtrace has told of such an event.
    pub fn wait_for(&self, is_such: impl Fn(&EventKind) -> bool) {
        let start = Instant::now();
        while !has_told(&trace_directory(&self.folder), &is_such) {
            assert!(start.elapsed() < PATIENCE, "rtrace does not tell of it");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Stops rtrace; none of its threads runs when this returns.
    pub fn stop(&self) {
        kill_process(self.pid(), Signal::STOP).expect("rtrace runs");
        let start = Instant::now();
        while !threads_are_stopped(self.rtrace.id()) {
            assert!(start.elapsed() < PATIENCE, "rtrace does not stop");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Lets rtrace go on that was stopped.
    pub fn go_on(&self) {
        kill_process(self.pid(), Signal::CONT).expect("rtrace is stopped");
    }

    /// Sends rtrace what Ctrl-C sends.
    pub fn interrupt(&self) {
        kill_process(self.pid(), Signal::INT).expect("rtrace runs until it is told to end");
    }

    /// Waits until rtrace ends by itself; gives what it printed, and the trace.
    pub fn finish(self) -> (Output, Recording) {
        let output = self.rtrace.wait_with_output().unwrap();
        let directory = trace_directory(&self.folder);
        let has_ended = Trace::open(&directory).is_ok_and(|trace| trace.summary().is_some());
        assert!(has_ended, "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
        (output, Recording::open(&directory))
    }

    /// Waits until rtrace ends by itself; gives the folder in which the directory `trace` is left.
    pub fn leave(mut self) -> TempDir {
        assert!(self.rtrace.wait().unwrap().success());
        self.folder
    }

    /// Kills rtrace; gives the folder in which the directory `trace` is left.
    pub fn kill(mut self) -> TempDir {
        self.rtrace.kill().unwrap();
        self.rtrace.wait().unwrap();
        self.folder
    }
}

fn threads_are_stopped(pid: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("it is there");
    // One that has ended meanwhile does not run.
    let states = threads.filter_map(|thread| fs::read_to_string(thread.ok()?.path().join("stat")).ok());
    states.into_iter().all(|stat| stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" T")))
}

fn armed(directory: &Path) -> bool {
    has_told(directory, |event| *event == EventKind::Armed)
}

fn has_told(directory: &Path, is_such: impl Fn(&EventKind) -> bool) -> bool {
    let Ok(trace) = Trace::open(directory) else { return false };
    trace.events().flatten().flatten().any(|event| is_such(&event.kind))
}
