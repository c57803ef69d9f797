//! `rtrace libs`: which libraries processes have mapped, and what there is to trace in them. `attach` shows the same
//! where no library was named.

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::ensure;
use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Row, Table};
use rtrace::guard::Guard;
use rtrace::named;
use rtrace::privilege::{self, shell_quote};
use rtrace::sampling::{self, Sampled};
use rtrace::session::{self, Options, Program};
use rtrace_model::{Overhead, RegionId, escape, grouped};
use rtrace_plan as plan;
use rtrace_plan::Plan;
use rtrace_symbolizer::{select, soname};
use serde_json::{Value, json};

use super::args::Libs;
use super::message::Hint as _;
use super::plan_table::{Costs, Prediction};
use super::{Outcome, print, processes, terminal_columns};

/// What stands for the program itself.
pub const PROGRAM: &str = "exe";

/// Fewer functions than this are no program of one's own: what an interpreter exports, for example.
const WORTH_TRACING: usize = 50;

/// Libraries that every program has, and that few mean.
const COMMON: [&str; 6] =
    ["libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1", "libpthread.so.0", "ld-linux-x86-64.so.2"];

/// A library that can be chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// What `--lib` takes for it alone.
    pub name: String,
    /// Its file, as the processes see it.
    pub path: String,
    /// Functions that would be probed.
    pub functions: usize,
    /// Functions that would not be.
    pub refused: usize,
    /// Calls per second, and what tracing them would cost, where that was counted.
    pub load: Option<(f64, Overhead)>,
}

/// The libraries of processes, with what is needed to count calls.
pub struct Survey<'a> {
    pids: &'a [u32],
    how: Options,
    plan: Plan,
    names: Vec<String>,
}

impl<'a> Survey<'a> {
    /// Looks at what the processes map. Nothing is changed in them.
    ///
    /// # Errors
    /// One of them cannot be looked at, or must not be traced.
    pub fn of(pids: &'a [u32]) -> anyhow::Result<Survey<'a>> {
        let how = Options { libraries: vec!["*".to_owned(), PROGRAM.to_owned()], ..Options::default() };
        // A thread of the kernel has no libraries, and no memory.
        pids.iter().try_for_each(|&pid| privilege::check_process(pid))?;
        let program = Program::Running(pids);
        let target = program.target(&how.libraries)?;
        let options = session::plan_options(&how, session::mechanism().ok(), program);
        let plan = plan::plan(&target.libraries, &options, RegionId(0));
        let programs: HashSet<(u64, u64)> = pids.iter().filter_map(|pid| program_of(*pid)).collect();
        let files: Vec<_> = target
            .libraries
            .iter()
            .map(|source| (Path::new(&source.library.path), soname(&source.attach_path)))
            .collect();
        let name = |(place, source): (usize, &plan::LibrarySource)| match programs
            .contains(&(source.library.device, source.library.inode))
        {
            true => PROGRAM.to_owned(),
            false => name_of(place, &files),
        };
        let names = target.libraries.iter().enumerate().map(name).collect();
        Ok(Survey { pids, how, plan, names })
    }

    /// Counts calls for a while; sooner over if `stop` is set.
    ///
    /// # Errors
    /// The kernel refuses programs or probes.
    pub fn sample(&self, guard: &Guard, duration: Duration, stop: &AtomicBool) -> anyhow::Result<Sampled> {
        session::check(self.pids)?;
        let mechanism = session::mechanism()?;
        let emulated = session::plan_options(&self.how, Some(mechanism), Program::Running(self.pids)).emulated;
        sampling::sample(&self.plan, guard, self.pids, mechanism, emulated, duration, stop)
    }

    /// All libraries that have functions: the program first, then as they are called, or by name.
    pub fn choices(&self, sampled: Option<&Sampled>) -> Vec<Choice> {
        let costs = sampled.map(|_| self.costs());
        let prediction = sampled.zip(costs.as_ref()).map(|(sampled, costs)| Prediction::of(&self.plan, sampled, costs));
        let load = |regions: &[plan::PlannedRegion]| {
            let prediction = prediction.as_ref()?;
            Some((regions.iter().map(|planned| prediction.rate(planned)).sum(), prediction.sum(regions.iter())))
        };
        let choice = |(library, name): (&plan::PlannedLibrary, &String)| Choice {
            name: name.clone(),
            path: library.library.path.clone(),
            functions: library.regions.len(),
            refused: library.refused.len(),
            load: load(&library.regions),
        };
        let mut choices: Vec<Choice> = self.plan.libraries.iter().zip(&self.names).map(choice).collect();
        choices.retain(|choice| choice.functions + choice.refused > 0);
        let rate = |choice: &Choice| choice.load.map_or(0.0, |(rate, _)| rate);
        choices.sort_by(|a, b| {
            let by_name = || (a.name != PROGRAM, &a.name).cmp(&(b.name != PROGRAM, &b.name));
            rate(b).total_cmp(&rate(a)).then_with(by_name)
        });
        choices
    }

    fn costs(&self) -> Costs {
        let mechanism = session::mechanism().ok();
        let steps = session::plan_options(&self.how, mechanism, Program::Running(self.pids)).emulated.steps;
        Costs::here(mechanism, steps)
    }
}

/// Device and inode of the program of a process.
fn program_of(pid: u32) -> Option<(u64, u64)> {
    let metadata = std::fs::metadata(format!("/proc/{pid}/exe")).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

/// The shortest word that stands for a file and for no other of these: its soname, its name, its path.
fn name_of(place: usize, files: &[(&Path, Option<String>)]) -> String {
    let (path, soname) = &files[place];
    let whole = path.display().to_string();
    let file_name = path.file_name().map(|name| name.to_string_lossy().into_owned());
    let stands_for_one = |name: &String| {
        let named = files.iter().map(|(path, soname)| select::names(name, path, || soname.clone()));
        named.enumerate().all(|(other, is_named)| is_named == (other == place))
    };
    soname.iter().cloned().chain(file_name).find(stands_for_one).unwrap_or(whole)
}

/// The library that is worth tracing first, as a guess: the one that is called most without costing much, or else one
/// that is not in every program.
pub fn suggestion(choices: &[Choice]) -> Option<&Choice> {
    let called = choices.iter().filter(|choice| choice.load.is_some_and(|(rate, cost)| rate > 0.0 && !cost.is_high()));
    let own = choices.iter().filter(|choice| choice.name == PROGRAM && choice.functions >= WORTH_TRACING);
    let special = choices.iter().filter(|choice| !COMMON.contains(&choice.name.as_str()));
    let largest = special.max_by_key(|choice| choice.functions).filter(|choice| choice.functions > 0);
    let any = choices.iter().filter(|choice| choice.functions > 0);
    called.chain(own).next().or(largest).or_else(|| any.max_by_key(|choice| choice.functions))
}

/// Prints the list.
pub fn libs(options: &Libs) -> anyhow::Result<Outcome> {
    if options.processes.is_empty() {
        return Ok(super::usage(
            "failed to list libraries: no process is named",
            "rtrace libs NAME, or rtrace libs -p PID",
        ));
    }
    let guard = options.sample.map(|duration| Guard::start().map(|guard| (guard, duration))).transpose()?;
    let found = processes::find(&options.processes);
    let is_time = |name: &str| name.ends_with('s') && name.starts_with(|digit: char| digit.is_ascii_digit());
    let pids = match options.processes.names().find(|name| options.sample.is_some() && is_time(name)) {
        Some(time) if found.is_err() => found.hint(format!("the time follows an equals sign: --sample={time}"))?,
        _ => found?,
    };
    let survey = Survey::of(&pids)?;
    let sampled =
        guard.map(|(guard, duration)| survey.sample(&guard, duration, &AtomicBool::new(false))).transpose()?;
    let choices = survey.choices(sampled.as_ref());
    ensure!(!choices.is_empty(), "failed to find libraries with functions in process {}", named::list(&pids));
    let text = match options.format.is_json() {
        true => format!("{:#}\n", as_json(&pids, sampled.as_ref(), &choices)),
        false => table(&choices, terminal_columns()),
    };
    print(text.as_bytes())?;
    Ok(Outcome::Complete)
}

fn as_json(pids: &[u32], sampled: Option<&Sampled>, choices: &[Choice]) -> Value {
    let choices = choices.iter().map(|choice| {
        json!({
            "library": escape(&choice.name),
            "path": escape(&choice.path),
            "functions": choice.functions,
            "refused": choice.refused,
            "calls_per_s": choice.load.map(|(rate, _)| rate),
            "overhead_percent": choice.load.map(|(_, overhead)| overhead.in_percent()),
        })
    });
    json!({
        "processes": pids,
        "sampled_s": sampled.map(|sampled| sampled.time.as_secs_f64()),
        "libraries": choices.collect::<Vec<_>>(),
    })
}

/// The list for people.
pub fn table(choices: &[Choice], width: Option<u16>) -> String {
    let is_sampled = choices.iter().any(|choice| choice.load.is_some());
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    if let Some(width) = width {
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    }
    let load: &[&str] = if is_sampled { &["CALLS/S", "RUN TIME"] } else { &[] };
    table.set_header(["--lib", "FUNCTIONS"].iter().chain(load).chain(&["PATH"]));
    for choice in choices {
        let mut row = Row::from(cells(choice));
        row.max_height(1);
        table.add_row(row);
    }
    let last = if is_sampled { 4 } else { 2 };
    for (place, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if place != last {
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
        if place > 0 && place != last {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    format!("{}\n", table.trim_fmt())
}

/// What is said of a library: how to choose it, functions, rate and cost if they are known, its path.
pub fn cells(choice: &Choice) -> Vec<String> {
    let mut cells = vec![escape(&choice.name).into_owned(), grouped(choice.functions as u64)];
    if let Some((rate, overhead)) = choice.load {
        cells.push(grouped(rate.round() as u64));
        cells.push(if rate > 0.0 { overhead.short() } else { String::new() });
    }
    cells.push(escape(&choice.path).into_owned());
    cells
}

/// The words that choose a library.
pub fn option(choice: &Choice) -> String {
    format!("--lib {}", shell_quote(&choice.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(name: &str, functions: usize, load: Option<(f64, f64)>) -> Choice {
        let load = load.map(|(rate, percent)| (rate, Overhead::percent(percent)));
        Choice { name: name.to_owned(), path: format!("/lib/{name}"), functions, refused: 0, load }
    }

    #[test]
    fn a_library_goes_by_the_shortest_word_that_stands_for_it_alone() {
        let files = [
            (Path::new("/lib/libz.so.1.2.13"), Some("libz.so.1".to_owned())),
            (Path::new("/opt/libz.so.1.2.14"), Some("libz.so.1".to_owned())),
            (Path::new("/opt/liba.so.1"), None),
            (Path::new("/a/libm.so"), None),
            (Path::new("/b/libm.so"), None),
        ];
        let names: Vec<String> = (0..files.len()).map(|place| name_of(place, &files)).collect();
        assert_eq!(names, ["libz.so.1.2.13", "libz.so.1.2.14", "liba.so.1", "/a/libm.so", "/b/libm.so"]);
        assert_eq!(name_of(0, &files[..1]), "libz.so.1");
    }

    #[test]
    fn what_is_suggested_is_worth_tracing() {
        let name = |choices: &[Choice]| suggestion(choices).map(|choice| choice.name.clone());
        let (exe, libc) = (choice("exe", 8, None), choice("libc.so.6", 2_000, None));
        let python = choice("libpython3.11.so.1.0", 1_400, None);
        assert_eq!(name(&[exe.clone(), libc.clone(), python]).as_deref(), Some("libpython3.11.so.1.0"));
        assert_eq!(name(&[choice("exe", 3_000, None), libc.clone()]).as_deref(), Some("exe"));
        assert_eq!(name(&[choice("exe", 0, None), libc]).as_deref(), Some("libc.so.6"));
        let sampled = [choice("libc.so.6", 2_000, Some((9e6, 180.0))), choice("libz.so.1", 88, Some((900.0, 3.0)))];
        assert_eq!(name(&sampled).as_deref(), Some("libz.so.1"));
        assert_eq!(name(&[choice("exe", 0, None)]), None);
    }

    #[test]
    fn hostile_names_are_escaped_and_rates_grouped() {
        let text = table(&[choice("a\u{1b}[2J", 1_234, Some((12_345.6, 7.0)))], None);
        assert!(!text.contains('\u{1b}') && text.contains("1,234") && text.contains("12,346"), "{text}");
        assert!(text.contains("+7.0 %"), "{text}");
        assert_eq!(option(&choice("a b", 1, None)), "--lib 'a b'");
    }
}
