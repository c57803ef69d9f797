//! Lists to choose from on a terminal: processes, then the libraries of some.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use rtrace::guard::Guard;
use rtrace::named::{self, Process};
use rtrace::overhead::cpu_time;
use rtrace::privilege;
use rtrace_model::{counted, grouped};
use rtrace_tui::{Align, Entries, Entry, Question, pick};

use super::libs::{Choice, Survey};

/// Calls are counted for so long: each costs the program 1 us or more meanwhile.
const SAMPLE: Duration = Duration::from_millis(300);

/// Lets the user choose processes, those first that have used most CPU time.
///
/// # Errors
/// The terminal cannot be used.
pub fn process(stop: &AtomicBool) -> anyhow::Result<Option<Vec<u32>>> {
    let mut processes = named::all();
    processes.retain(|process| privilege::check_process(process.pid).is_ok());
    let time = |process: &Process| cpu_time(process.pid).unwrap_or(0);
    let mut timed: Vec<(u64, Process)> = processes.into_iter().map(|process| (time(&process), process)).collect();
    timed.sort_by_key(|(time, process)| (std::cmp::Reverse(*time), process.pid));
    let entry = |(key, (time, process)): (usize, &(u64, Process))| {
        let name = process.name().to_owned();
        let cells =
            vec![process.pid.to_string(), format!("{:.1}", *time as f64 / 1e9), name, process.command_line.join(" ")];
        Entry { key, cells }
    };
    let entries: Vec<Entry> = timed.iter().enumerate().map(entry).collect();
    let note = format!("{} that you may trace", counted(entries.len() as u64, "process"));
    let mut known = Some(Entries { entries, note });
    let question = Question {
        title: "rtrace  which process?",
        columns: &[("PID", 8, Align::Right), ("CPU s", 9, Align::Right), ("NAME", 20, Align::Left)],
        last: "COMMAND",
        does: "choose",
    };
    let picked = pick(question, stop, &mut || known.take()).context("failed to show the list of processes")?;
    Ok(picked.map(|keys| keys.into_iter().map(|key| timed[key].1.pid).collect()))
}

/// Lets the user choose libraries; calls are counted meanwhile.
///
/// # Errors
/// The terminal cannot be used.
pub fn libraries(
    guard: &Guard,
    survey: &Survey<'_>,
    target: &str,
    stop: &AtomicBool,
) -> anyhow::Result<Option<Vec<String>>> {
    let choices = survey.choices(None);
    let names: Vec<String> = choices.iter().map(|choice| choice.name.clone()).collect();
    let title = format!("rtrace  which libraries of {target}?");
    let question = Question {
        title: &title,
        columns: &[
            ("LIBRARY", 28, Align::Left),
            ("FUNCTIONS", 9, Align::Right),
            ("CALLS/S", 10, Align::Right),
            ("RUN TIME", 9, Align::Right),
        ],
        last: "PATH",
        does: "record",
    };
    let mut known = Some(entries(&names, &choices, "counting calls …".to_owned()));
    let (is_over, (sender, receiver)) = (AtomicBool::new(false), channel());
    let picked = thread::scope(|scope| {
        scope.spawn(|| {
            let counted = survey.sample(guard, SAMPLE, &is_over).map(|sampled| survey.choices(Some(&sampled)));
            // Nobody may wait for it any more.
            let _ = sender.send(counted);
        });
        let picked = pick(question, stop, &mut || {
            let counted = receiver.try_recv().ok().map(|counted| match counted {
                Ok(choices) => {
                    entries(&names, &choices, "RUN TIME: what tracing all its functions would add".to_owned())
                }
                Err(error) => entries(&names, &choices, format!("calls were not counted: {error:#}")),
            });
            counted.or_else(|| known.take())
        });
        is_over.store(true, Ordering::Relaxed);
        picked
    });
    let picked = picked.context("failed to show the list of libraries")?;
    Ok(picked.map(|keys| keys.into_iter().map(|key| names[key].clone()).collect()))
}

/// Each with its place among `names` as key.
fn entries(names: &[String], choices: &[Choice], note: String) -> Entries {
    let entry = |choice: &Choice| {
        let key = names.iter().position(|name| *name == choice.name)?;
        let load = match choice.load {
            Some((rate, overhead)) if rate > 0.0 => [grouped(rate.round() as u64), overhead.short()],
            Some(_) => ["0".to_owned(), String::new()],
            None => [String::new(), String::new()],
        };
        let [rate, overhead] = load;
        let functions = grouped(choice.functions as u64);
        Some(Entry { key, cells: vec![choice.name.clone(), functions, rate, overhead, choice.path.clone()] })
    };
    Entries { entries: choices.iter().filter_map(entry).collect(), note }
}
