//! Lists to choose from on a terminal: processes, then the libraries of some.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use rtrace::record::overhead::cpu_time;
use rtrace::sampling::{self, Sampled};
use rtrace::target::names::{self, NamedProcess};
use rtrace::target::privilege;
use rtrace_model::counted;
use rtrace_tui::{Align, PickEntries, PickEntry, Question, pick};

use super::cpu_time;
use super::libs::{self, Offer, Survey};

/// For how long it is sampled where CPU time is spent.
const SAMPLE: Duration = Duration::from_secs(1);

/// Lets the user choose processes, those first that have used most CPU time.
///
/// # Errors
/// The terminal cannot be used.
pub fn process(stop: &AtomicBool) -> anyhow::Result<Option<Vec<u32>>> {
    let mut processes = names::all();
    processes.retain(|process| privilege::check_process(process.pid).is_ok());
    let time = |process: &NamedProcess| cpu_time(process.pid).unwrap_or(0);
    let mut timed: Vec<(u64, NamedProcess)> = processes.into_iter().map(|process| (time(&process), process)).collect();
    timed.sort_by_key(|(time, process)| (std::cmp::Reverse(*time), process.pid));
    let entry = |(key, (time, process)): (usize, &(u64, NamedProcess))| {
        let name = process.name().to_owned();
        let cells =
            vec![process.pid.to_string(), format!("{:.1}", *time as f64 / 1e9), name, process.command_line.join(" ")];
        PickEntry { key, cells }
    };
    let entries: Vec<PickEntry> = timed.iter().enumerate().map(entry).collect();
    let note = format!("{} that you may trace", counted(entries.len() as u64, "process"));
    let mut known = Some(PickEntries { entries, note });
    let question = Question {
        title: "rtrace  which process?",
        columns: &[("PID", 8, Align::Right), ("CPU s", 9, Align::Right), ("NAME", 20, Align::Left)],
        last: "COMMAND",
        does: "choose",
    };
    let picked = pick(question, stop, &mut || known.take()).context("failed to show the list of processes")?;
    Ok(picked.map(|keys| keys.into_iter().map(|key| timed[key].1.pid).collect()))
}

/// Lets the user choose libraries; meanwhile it is sampled where the processes spend CPU time.
///
/// # Errors
/// The terminal cannot be used.
pub fn libraries(
    pids: &[u32],
    survey: &Survey,
    target: &str,
    stop: &AtomicBool,
) -> anyhow::Result<Option<Vec<String>>> {
    let choices = survey.choices(None);
    let names: Vec<String> = choices.iter().map(|choice| choice.name.clone()).collect();
    let title = format!("rtrace  which libraries of {target}?");
    let question = Question {
        title: &title,
        columns: &[("LIBRARY", 28, Align::Left), (cpu_time::COLUMN, 9, Align::Right), ("FUNCTIONS", 9, Align::Right)],
        last: "PATH",
        does: "record",
    };
    let mut known = Some(entries(&names, &choices, None, "sampling CPU time …".to_owned()));
    let (is_over, (sender, receiver)) = (AtomicBool::new(false), channel());
    let picked = thread::scope(|scope| {
        scope.spawn(|| {
            // Nobody may wait for it any more.
            let _ = sender.send(sampling::sample(pids, SAMPLE, &is_over));
        });
        let picked = pick(question, stop, &mut || {
            let told = receiver.try_recv().ok().map(|sampled| match sampled {
                Ok(sampled) => entries(&names, &survey.choices(Some(&sampled)), Some(&sampled), note(&sampled)),
                Err(error) => entries(&names, &choices, None, format!("{error:#}")),
            });
            told.or_else(|| known.take())
        });
        is_over.store(true, Ordering::Relaxed);
        picked
    });
    let picked = picked.context("failed to show the list of libraries")?;
    Ok(picked.map(|keys| keys.into_iter().map(|key| names[key].clone()).collect()))
}

/// Where else than in libraries CPU time is spent, and how right the shares are.
fn note(sampled: &Sampled) -> String {
    let elsewhere = cpu_time::elsewhere(sampled);
    let elsewhere = elsewhere.map(|(name, samples, _)| format!("{name} {}, ", cpu_time::share(sampled, samples)));
    format!("{}{}", elsewhere.collect::<String>(), cpu_time::basis(sampled))
}

/// Each with its place among `names` as key.
fn entries(names: &[String], choices: &[Offer], sampled: Option<&Sampled>, note: String) -> PickEntries {
    let entry = |choice: &Offer| {
        let key = names.iter().position(|name| *name == choice.name)?;
        let share = sampled.zip(choice.samples).map(|(sampled, samples)| cpu_time::share(sampled, samples));
        let cells = vec![choice.name.clone(), share.unwrap_or_default(), libs::functions(choice), choice.path.clone()];
        Some(PickEntry { key, cells })
    };
    PickEntries { entries: choices.iter().filter_map(entry).collect(), note }
}
