//! A program that works when it is told to, and how much CPU time that takes it.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::running::Running;

/// Longest time to wait for a program to be started.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often a program works to show how quick it is.
pub const WORKS: u32 = 5;

/// A program that reads work from its standard input and says `done` after it.
pub struct Worker {
    running: Running,
    /// The process that works.
    pid: u32,
    /// What makes it work once.
    work: String,
}

impl Worker {
    /// Starts it, and lets it work once to be warm. `work` ends in a line break.
    pub fn start(command: &mut Command, work: &str) -> Result<Worker> {
        let running = Running::listen(command, |child| child.stdout.take())?;
        let pid = running.pid();
        Worker::warm(running, pid, work)
    }

    /// Starts a tracer that starts it: `program`, as a child of its own.
    pub fn start_traced(tracer: &mut Command, program: &Path, work: &str) -> Result<Worker> {
        let running = Running::listen(tracer.stderr(Stdio::null()), |child| child.stdout.take())?;
        let pid = child_with(running.pid(), program)?;
        Worker::warm(running, pid, work)
    }

    fn warm(running: Running, pid: u32, work: &str) -> Result<Worker> {
        let mut subject = Worker { running, pid, work: work.to_owned() };
        subject.work()?;
        Ok(subject)
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Lets it end by itself, and waits for that.
    pub fn end(self) -> Result<()> {
        self.running.go_on()?.end().map(drop)
    }

    /// From now on it is to work so.
    pub fn set_work(&mut self, work: &str) {
        work.clone_into(&mut self.work);
    }

    /// Lets it work once; gives the CPU time of all its threads, in nanoseconds.
    pub fn work(&mut self) -> Result<f64> {
        let before = cpu_time(self.pid())?;
        self.answer()?;
        Ok(cpu_time(self.pid())? - before)
    }

    /// Lets it work some times; gives the CPU time of the quickest, in nanoseconds. On a machine that is shared
    /// the others were held up, for parts of a second, by what no tracer did.
    pub fn quickest(&mut self) -> Result<f64> {
        let times: Vec<f64> = (0..WORKS).map(|_| self.work()).collect::<Result<_>>()?;
        Ok(times.into_iter().fold(f64::INFINITY, f64::min))
    }

    /// Lets it work once; gives the line that it says before it is done, or nothing.
    pub fn answer(&mut self) -> Result<String> {
        self.running.tell(&self.work)?;
        let mut before = String::new();
        loop {
            match self.running.next_line("done")? {
                "done" => return Ok(before),
                line => line.trim().clone_into(&mut before),
            }
        }
    }
}

/// The child of a process that executes this program.
fn child_with(pid: u32, program: &Path) -> Result<u32> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let start = Instant::now();
    loop {
        let children = fs::read_to_string(&path).with_context(|| format!("failed to read `{path}`"))?;
        let executes = |child: &&str| fs::read_link(format!("/proc/{child}/exe")).is_ok_and(|path| path == program);
        if let Some(child) = children.split_whitespace().find(executes) {
            return child.parse().with_context(|| format!("failed to understand `{path}`"));
        }
        if start.elapsed() > PATIENCE {
            bail!("failed to see process {pid} start `{}` within {PATIENCE:?}", program.display());
        }
        sleep(Duration::from_millis(10));
    }
}

/// CPU time that a process has used, those of its threads that have ended included.
fn cpu_time(pid: u32) -> Result<f64> {
    let mut clock = 0;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: both write to variables of ours.
    let read = unsafe {
        libc::clock_getcpuclockid(pid.cast_signed(), &raw mut clock) == 0
            && libc::clock_gettime(clock, &raw mut time) == 0
    };
    if !read {
        bail!("failed to read the CPU time of process {pid}");
    }
    Ok(time.tv_sec as f64 * 1e9 + time.tv_nsec as f64)
}
