//! `cargo xtask soak`: rtrace attaches to servers under load again and again, and is ended or killed.
//!
//! What must be true: no request fails, and the code of the server is its files' again, at once where rtrace has ended
//! and within a second where it was killed, whatever it was doing.

mod code;
mod servers;

use std::fs;
use std::hash::{BuildHasher as _, RandomState};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use self::code::{CodeReader, family};
use self::servers::{KINDS, Requests, SoakServer};
use crate::bench::tracer::RecordedCalls;
use crate::packages;
use crate::process;
use crate::running::Running;

/// Longest time until the code is the files' again after a kill.
const PROMISE: Duration = Duration::from_secs(1);

/// How long the code is waited for at most.
const PATIENCE: Duration = Duration::from_secs(60);

/// Longest time to record in a cycle, in milliseconds.
const LONGEST: u64 = 500;

/// What rtrace says of a process that has ended since it was listed, whether its parent has seen that or not.
const HAS_ENDED: [&str; 2] = [": no such process", ": it is a kernel thread or has ended"];

/// How long attaching and ending are taken to last before one has been seen to.
const FIRST_GUESS: Duration = Duration::from_secs(1);

#[derive(Debug, clap::Args)]
pub struct SoakOptions {
    /// Cycles of each server
    #[arg(long, default_value_t = 250)]
    cycles: u32,
    /// Cycles of each server that end by kill -9
    #[arg(long, default_value_t = 13)]
    kills: u32,
    /// The servers, one after another; all if none is given
    #[arg(long = "server", value_name = "NAME", value_parser = KINDS.map(|kind| kind.name))]
    servers: Vec<String>,
    /// The rtrace to use [default: built from these sources]
    #[arg(long, value_name = "PATH")]
    rtrace: Option<PathBuf>,
}

/// What came of the cycles of a server.
struct CycleSums {
    cycles: u32,
    kills: u32,
    calls: u64,
    lost: u64,
    /// Longest times until the code was that of the files, after an end and after a kill.
    after_end: Duration,
    after_kill: Duration,
    /// Of attaching and of ending, as the last cycles took.
    attaching: Duration,
    ending: Duration,
    /// What was not as promised.
    faults: u32,
}

/// Soaks servers, and prints what came of it.
///
/// # Errors
/// Something was not as promised.
pub fn run(options: &SoakOptions) -> Result<()> {
    packages::require_root("trace servers")?;
    packages::require(&[packages::BUILD, packages::SOAK].concat())?;
    let rtrace = match &options.rtrace {
        Some(path) => path.canonicalize().context("failed to find rtrace")?,
        None => process::release()?,
    };
    let folder = Folder(std::env::temp_dir().join(format!("rtrace-soak-{}", std::process::id())));
    let mut faults = 0;
    for kind in &KINDS {
        if options.servers.is_empty() || options.servers.iter().any(|name| name == kind.name) {
            let server = SoakServer::start(kind, folder.0.join(kind.name))?;
            faults += soak(&server, options, &rtrace, &folder.0.join("trace"))?;
            server.end()?;
        }
    }
    match faults {
        0 => Ok(()),
        faults => bail!("failed to keep what is promised, {faults} times"),
    }
}

/// What is in it goes with it.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        // Whoever cannot remove it finds it among the temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs the cycles of a server under load; gives how many faults there were.
fn soak(server: &SoakServer, options: &SoakOptions, rtrace: &Path, trace: &Path) -> Result<u32> {
    let (ends, requests, mut sums, mut code) =
        (AtomicBool::new(false), Mutex::default(), CycleSums::new(), CodeReader::default());
    let (client, name) = (&server.client, server.client.kind.name);
    scope(|scope| {
        scope.spawn(|| client.load(&ends, &requests));
        for cycle in 0..options.cycles {
            // Spread over all cycles, those with the first the last.
            let is_kill = (cycle + 1) * options.kills / options.cycles > cycle * options.kills / options.cycles;
            if let Err(error) = sums.cycle(server, &mut code, rtrace, trace, is_kill) {
                sums.faults += 1;
                eprintln!("{name}, cycle {cycle}: {error:#}");
            }
            let _ = fs::remove_dir_all(trace);
        }
        ends.store(true, Relaxed);
    });
    let Requests { made, failed } = requests.into_inner().expect("nothing panics meanwhile");
    let CycleSums { cycles, kills, calls, lost, after_end, after_kill, mut faults, .. } = sums;
    println!(
        "{name}: {cycles} cycles, {kills} by kill -9; {made} requests, {failed} failed; code is the files' after {} ms, \
         {} ms after a kill; {calls} calls recorded, {lost} lost; load {}",
        after_end.as_millis(),
        after_kill.as_millis(),
        load_average()
    );
    if failed > 0 {
        faults += 1;
    }
    if !client.is_right() {
        faults += 1;
        println!("{name}: what it stores is not what was asked for");
    }
    Ok(faults)
}

impl CycleSums {
    fn new() -> CycleSums {
        let (attaching, ending) = (FIRST_GUESS, FIRST_GUESS);
        let (after_end, after_kill) = (Duration::ZERO, Duration::ZERO);
        CycleSums { cycles: 0, kills: 0, calls: 0, lost: 0, after_end, after_kill, attaching, ending, faults: 0 }
    }

    /// Attaches to all processes of a server, records, and ends.
    fn cycle(
        &mut self,
        server: &SoakServer,
        code: &mut CodeReader,
        rtrace: &Path,
        trace: &Path,
        is_kill: bool,
    ) -> Result<()> {
        let name = server.client.kind.name;
        self.cycles += 1;
        let phase = ["attaching", "recording", "ending"][random(3) as usize];
        let mut recording;
        let processes = loop {
            let begin = Instant::now();
            let family = family(server.pid());
            recording = attach(server.pid(), &family, rtrace, trace)?;
            if is_kill && phase == "attaching" {
                sleep(part(self.attaching));
                break family.len();
            }
            match recording.wait_for("recording ") {
                Err(error) if HAS_ENDED.iter().any(|said| error.to_string().ends_with(said)) => (),
                heard => {
                    heard?;
                    self.attaching = begin.elapsed();
                    sleep(Duration::from_millis(random(LONGEST)));
                    break family.len();
                }
            }
        };
        if is_kill && phase == "ending" {
            recording.interrupt();
            sleep(part(self.ending));
        }
        if is_kill {
            let killed = Instant::now();
            recording.kill();
            let changed = code.changed(&family(server.pid()));
            let took = become_the_files(server, code, killed)?;
            println!(
                "{name}: killed while {phase}, {processes} processes, {} pages changed in {}; the files' after {} ms; load {}",
                changed.values().sum::<usize>(),
                changed.len(),
                took.as_millis(),
                load_average()
            );
            self.kills += 1;
            self.after_kill = self.after_kill.max(took);
            if took > PROMISE {
                bail!("failed to see the code become the files' within {PROMISE:?} after a kill: {took:?}");
            }
            return Ok(());
        }
        let asked = Instant::now();
        recording.interrupt();
        let (said, status) = recording.end()?;
        let ended = Instant::now();
        self.ending = ended - asked;
        let changed = code.changed(&family(server.pid()));
        self.after_end = self.after_end.max(become_the_files(server, code, ended)?);
        if !status.success() {
            bail!("failed to record: {}", said.join(" / "));
        }
        let RecordedCalls { calls, lost, .. } = RecordedCalls::of(trace)?;
        self.calls += calls;
        self.lost += lost;
        if !changed.is_empty() {
            bail!("failed to find the code as in the files after the end: {changed:?}");
        }
        Ok(())
    }
}

/// Starts rtrace for the processes of a server.
fn attach(server: u32, family: &[u32], rtrace: &Path, trace: &Path) -> Result<Running> {
    let pids: Vec<String> = family.iter().map(u32::to_string).collect();
    let mut command = Command::new(rtrace);
    command.args(["attach", "--no-tui", "--no-config", "-p", &pids.join(","), "-o"]).arg(trace);
    for library in code::libraries(server) {
        command.args(["--lib", library]);
    }
    Running::listen(command.stderr(Stdio::piped()), |child| child.stderr.take())
}

/// Waits until the code of all processes is that of the files: the time since then.
fn become_the_files(server: &SoakServer, code: &mut CodeReader, since: Instant) -> Result<Duration> {
    loop {
        let changed = code.changed(&family(server.pid()));
        let took = since.elapsed();
        match changed.is_empty() {
            true => return Ok(took),
            false if took > PATIENCE => bail!("failed to see the code become the files': {changed:?}"),
            false => sleep(Duration::from_millis(5)),
        }
    }
}

/// A number below this one, or 0.
fn random(below: u64) -> u64 {
    RandomState::new().hash_one(0) % below.max(1)
}

/// A part of a time.
fn part(of: Duration) -> Duration {
    Duration::from_micros(random(of.as_micros() as u64))
}

/// Of the last minute.
fn load_average() -> String {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split_whitespace().next().unwrap_or("unknown").to_owned()
}
