//! `rtrace run` without a library: runs a command, says what it took as `time -v` does, and what to trace next.

use std::cmp::Reverse;
use std::io;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rtrace::sampling::{self, SampledCommand};
use rtrace::session::failed_to_run;
use rtrace::target::command::{ProcessTotals, Waiting, shell_status, wait_with_totals};
use rtrace::target::privilege::shell_quote;
use rtrace::target::user::User;
use rtrace_model::{escape, format_ns, grouped};
use rtrace_symbolizer::modules::Module;
use rtrace_symbolizer::soname;

use super::args::Run;
use super::columns::TextColumns;
use super::command_signals::Interrupts;
use super::libs::{PROGRAM, name_of};
use super::message::tell;
use super::{Outcome, cpu_time};

/// Libraries that are shown at most.
const MOST_SHOWN: usize = 8;

/// What a command took, and for how long it ran.
type CommandEnd = io::Result<(ProcessTotals, Duration)>;

/// Runs the command; records no call.
pub fn run(options: &Run) -> anyhow::Result<Outcome> {
    let user = options.user.as_deref().map(User::named).transpose()?;
    let waiting = Waiting::spawn(&options.command, None, false, user.as_ref())
        .with_context(|| failed_to_run(&options.command))?;
    let pid = waiting.pid();
    let _interrupts = Interrupts::handle(pid, Arc::default())?;
    let has_ended = Arc::new(AtomicBool::new(false));
    let (mut waiting, mut ending) = (Some(waiting), None);
    let mut start = || -> anyhow::Result<()> {
        let Some(waiting) = waiting.take() else { return Ok(()) };
        let begun = Instant::now();
        let child = waiting.release().with_context(|| failed_to_run(&options.command))?;
        ending = Some(wait(child, begun, Arc::clone(&has_ended)));
        Ok(())
    };
    let sampled = sampling::sample_command(pid, &mut start, &has_ended);
    // Where nothing can be sampled the command has not begun.
    start()?;
    let ended = ending.map(|ending| ending.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
    let Some(ended) = ended else { return sampled.map(|_| Outcome::Unable) };
    let (totals, time) = ended.context("failed to wait for the command")?;
    eprint!("{}", table(&totals, time));
    match sampled {
        Ok(sampled) => suggest(options, &sampled),
        Err(error) => tell!("it is not known where it spent CPU time: {error:#}"),
    }
    tell!("no call was recorded, as no library is named: --lib LIBRARY records the calls to one");
    Ok(Outcome::Command(shell_status(totals.status)))
}

fn wait(child: Child, begun: Instant, has_ended: Arc<AtomicBool>) -> JoinHandle<CommandEnd> {
    thread::spawn(move || {
        let totals = wait_with_totals(child);
        let time = begun.elapsed();
        has_ended.store(true, Ordering::Relaxed);
        Ok((totals?, time))
    })
}

/// A line for each figure. Those of children are in it as far as somebody has waited for them.
fn table(totals: &ProcessTotals, time: Duration) -> String {
    let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let cpu = totals.user + totals.system;
    let of_one = cpu.as_secs_f64() / time.as_secs_f64().max(f64::MIN_POSITIVE) * 100.0;
    let mut columns = TextColumns::new(["", "command and children"], 1, |_| false);
    let mut add = |name: &str, value: String| columns.add([name.to_owned(), value]);
    add("wall time", format_ns(ns(time)));
    let (user, system) = (format_ns(ns(totals.user)), format_ns(ns(totals.system)));
    add("CPU time", format!("{user} user, {system} system ({of_one:.0} % of one CPU)"));
    add("peak memory", format!("{} KiB in one process", grouped(totals.peak_kib)));
    add("page faults", format!("{} minor, {} major", grouped(totals.minor_faults), grouped(totals.major_faults)));
    let (own, others) = (grouped(totals.voluntary), grouped(totals.involuntary));
    add("context switches", format!("{own} voluntary, {others} involuntary"));
    if let Some(io) = totals.io {
        add("system calls", format!("{} bytes read, {} written", grouped(io.read), grouped(io.written)));
        add("storage", format!("{} bytes read, {} written", grouped(io.from_storage), grouped(io.to_storage)));
    }
    columns.text(super::terminal_columns())
}

/// Says where the command spent CPU time, and which line records the calls there.
fn suggest(options: &Run, SampledCommand { sampled, modules, program }: &SampledCommand) {
    let paths: Vec<_> = modules.iter().map(|module| (&*module.path, soname(&module.path))).collect();
    let file = |(place, module): (usize, &Module)| {
        let id = (module.device, module.inode);
        let name = if *program == Some(id) { PROGRAM.to_owned() } else { name_of(place, &paths) };
        (name, sampled.of_file(id))
    };
    let mut files: Vec<(String, u64)> = modules.iter().enumerate().map(file).collect();
    files.retain(|(_, samples)| *samples > 0);
    files.sort_by_key(|(_, samples)| Reverse(*samples));
    files.truncate(MOST_SHOWN);
    let best = files.first().map(|(name, _)| name.clone());
    let elsewhere = cpu_time::elsewhere(sampled).map(|(name, samples, _)| (name.to_owned(), samples));
    if sampled.samples() > 0 {
        let mut columns = TextColumns::new(["--lib", cpu_time::COLUMN], 0, |place| place == 1);
        for (name, samples) in files.into_iter().chain(elsewhere) {
            columns.add([escape(&name).into_owned(), cpu_time::share(sampled, samples)]);
        }
        eprint!("\n{}", columns.text(super::terminal_columns()));
    }
    tell!("{}", cpu_time::basis(sampled));
    if let Some(library) = best {
        let mut words = options.command.iter().map(shell_quote);
        let first = words.next().unwrap_or_default();
        // A line that would not be one again cannot be pasted.
        let rest: Vec<String> = words.map(|word| if word.contains('\n') { "…".to_owned() } else { word }).collect();
        let command = [&[first], &*rest].concat().join(" ");
        tell!("to trace where most of it is: rtrace run --lib {} -- {command}", shell_quote(&library));
    }
}
