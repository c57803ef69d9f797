//! `rtrace libs`: which libraries processes have mapped, and what there is to trace in them. `attach` shows the same
//! where no library was named.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use anyhow::ensure;
use rtrace::sampling::{self, Sampled};
use rtrace::target;
use rtrace::target::names;
use rtrace::target::privilege::{self, shell_quote};
use rtrace_code::parallel;
use rtrace_model::{escape, grouped, text_of_os};
use rtrace_symbolizer::address_space::FileId;
use rtrace_symbolizer::modules::Module;
use rtrace_symbolizer::{select, soname};
use serde_json::{Value, json};

use super::args::Libs;
use super::columns::TextColumns;
use super::message::Hint as _;
use super::{Outcome, cpu_time, print, processes, terminal_columns};

/// What stands for the program itself.
pub const PROGRAM: &str = "exe";

/// Fewer functions than this are no program of one's own: what an interpreter exports, for example.
const WORTH_TRACING: usize = 50;

/// Libraries that every program has, and that few mean.
const COMMON: [&str; 6] =
    ["libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1", "libpthread.so.0", "ld-linux-x86-64.so.2"];

/// A library that can be chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Offer {
    /// What `--lib` takes for it alone.
    pub name: String,
    /// Its file, as the processes see it.
    pub path: String,
    /// Functions that it has, of which some cannot be probed; none where its file cannot be read.
    pub functions: Option<usize>,
    /// Samples of CPU time in its code, where such were taken.
    pub samples: Option<u64>,
}

/// The libraries of processes.
pub struct Survey {
    files: Vec<(FileId, Offer)>,
}

impl Survey {
    /// Looks at what the processes map. Nothing is changed in them.
    ///
    /// # Errors
    /// One of them cannot be looked at, or must not be traced.
    pub fn of(pids: &[u32]) -> anyhow::Result<Survey> {
        // A thread of the kernel has no libraries, and no memory.
        pids.iter().try_for_each(|&pid| privilege::check_process(pid))?;
        let modules = target::files_of(pids)?;
        let programs: HashSet<FileId> = pids.iter().filter_map(|pid| program_of(*pid)).collect();
        let sonames: Vec<_> = parallel::map(&modules, |module| soname(&module.open_path()));
        let paths: Vec<_> = modules.iter().map(|module| &*module.path).zip(sonames).collect();
        let functions = parallel::map(&modules, target::functions_of);
        let file = |(place, (module, functions)): (usize, (&Module, Option<usize>))| {
            let id = (module.device, module.inode);
            let name = if programs.contains(&id) { PROGRAM.to_owned() } else { name_of(place, &paths) };
            (id, Offer { name, path: text_of_os(&module.path).into_owned(), functions, samples: None })
        };
        Ok(Survey { files: modules.iter().zip(functions).enumerate().map(file).collect() })
    }

    /// All libraries that have functions, or in whose code CPU time was sampled: those with most of it first, then the
    /// program, then by name.
    pub fn choices(&self, sampled: Option<&Sampled>) -> Vec<Offer> {
        let choice = |(id, choice): &(FileId, Offer)| Offer {
            samples: sampled.map(|sampled| sampled.of_file(*id)),
            ..choice.clone()
        };
        let mut choices: Vec<Offer> = self.files.iter().map(choice).collect();
        choices.retain(|choice| choice.functions != Some(0) || choice.samples.is_some_and(|samples| samples > 0));
        choices.sort_by(|a, b| {
            let key = |choice: &Offer| (Reverse(choice.samples), choice.name != PROGRAM);
            key(a).cmp(&key(b)).then_with(|| a.name.cmp(&b.name))
        });
        choices
    }
}

/// Device and inode of the program of a process.
fn program_of(pid: u32) -> Option<(u64, u64)> {
    let metadata = std::fs::metadata(format!("/proc/{pid}/exe")).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

/// The shortest word that stands for a file and for no other of these: its soname, its name, its path.
pub fn name_of(place: usize, files: &[(&Path, Option<String>)]) -> String {
    let (path, soname) = &files[place];
    let whole = path.display().to_string();
    let file_name = path.file_name().map(|name| name.to_string_lossy().into_owned());
    let stands_for_one = |name: &String| {
        let named = files.iter().map(|(path, soname)| select::names(name, path, || soname.clone()));
        named.enumerate().all(|(other, is_named)| is_named == (other == place))
    };
    soname.iter().cloned().chain(file_name).find(stands_for_one).unwrap_or(whole)
}

/// The library that is worth tracing first, as a guess: the program, or else one that is not in every program.
pub fn suggestion(choices: &[Offer]) -> Option<&Offer> {
    let size = |choice: &Offer| choice.functions.unwrap_or(0);
    let largest = |wanted: &dyn Fn(&Offer) -> bool| {
        choices.iter().filter(|choice| size(choice) > 0 && wanted(choice)).max_by_key(|choice| size(choice))
    };
    let is_own = |choice: &Offer| choice.name == PROGRAM && size(choice) >= WORTH_TRACING;
    let is_special = |choice: &Offer| !COMMON.contains(&choice.name.as_str());
    largest(&is_own).or_else(|| largest(&is_special)).or_else(|| largest(&|_| true))
}

/// Prints the list.
pub fn libs(options: &Libs) -> anyhow::Result<Outcome> {
    if options.processes.is_empty() {
        return Ok(super::usage(
            "failed to list libraries: no process is named",
            "rtrace libs NAME, or rtrace libs -p PID",
        ));
    }
    let found = processes::find(&options.processes);
    let is_time = |name: &str| name.ends_with('s') && name.starts_with(|digit: char| digit.is_ascii_digit());
    let pids = match options.processes.names().find(|name| options.sample.is_some() && is_time(name)) {
        Some(time) if found.is_err() => found.hint(format!("the time follows an equals sign: --sample={time}"))?,
        _ => found?,
    };
    let survey = Survey::of(&pids)?;
    let sample = |duration| sampling::sample(&pids, duration, &AtomicBool::new(false));
    let sampled = options.sample.map(sample).transpose()?;
    let choices = survey.choices(sampled.as_ref());
    ensure!(!choices.is_empty(), "failed to find libraries with functions in process {}", names::list(&pids));
    let text = match options.format.is_json() {
        true => format!("{:#}\n", as_json(&pids, sampled.as_ref(), &choices)),
        false => table(&choices, sampled.as_ref(), terminal_columns()),
    };
    print(text.as_bytes())?;
    Ok(Outcome::Complete)
}

fn as_json(pids: &[u32], sampled: Option<&Sampled>, choices: &[Offer]) -> Value {
    let choices = choices.iter().map(|choice| {
        json!({
            "library": escape(&choice.name),
            "path": escape(&choice.path),
            "functions": choice.functions,
            "samples": choice.samples,
            "cpu_share": sampled.and_then(|sampled| cpu_time::fraction(sampled, choice.samples?)),
        })
    });
    json!({
        "processes": pids,
        "sampled": cpu_time::as_json(sampled),
        "libraries": choices.collect::<Vec<_>>(),
    })
}

/// The list for people; with what is in no library, and how right it is, where CPU time was sampled.
pub fn table(choices: &[Offer], sampled: Option<&Sampled>, width: Option<u16>) -> String {
    let load: &[&str] = if sampled.is_some() { &[cpu_time::COLUMN, "SAMPLES"] } else { &[] };
    let headings = ["--lib"].iter().chain(load).chain(&["FUNCTIONS", "PATH"]).copied();
    let path = 2 + load.len();
    let is_right: fn(usize) -> bool = match load {
        [] => |place| place == 1,
        _ => |place| (1..4).contains(&place),
    };
    let mut columns = TextColumns::new(headings, path, is_right);
    let mut add = |name: String, samples: u64, functions: String, path: String| {
        let load = sampled.map(|sampled| [cpu_time::share(sampled, samples), grouped(samples)]);
        columns.add([name].into_iter().chain(load.into_iter().flatten()).chain([functions, path]));
    };
    for choice in choices {
        let (name, path) = (escape(&choice.name).into_owned(), escape(&choice.path).into_owned());
        add(name, choice.samples.unwrap_or(0), functions(choice), path);
    }
    for (name, samples, what) in sampled.into_iter().flat_map(cpu_time::elsewhere) {
        add(name.to_owned(), samples, String::new(), what.to_owned());
    }
    let basis = sampled.map(|sampled| format!("\n{}\n", cpu_time::basis(sampled)));
    columns.text(width) + &basis.unwrap_or_default()
}

/// How many functions a library has, in words.
pub fn functions(choice: &Offer) -> String {
    choice.functions.map_or_else(|| "-".to_owned(), |functions| grouped(functions as u64))
}

/// The words that choose a library.
pub fn option(choice: &Offer) -> String {
    format!("--lib {}", shell_quote(&choice.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(name: &str, functions: usize) -> Offer {
        let (name, path) = (name.to_owned(), format!("/lib/{name}"));
        Offer { name, path, functions: Some(functions), samples: None }
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
        let name = |choices: &[Offer]| suggestion(choices).map(|choice| choice.name.clone());
        let (exe, libc) = (choice("exe", 8), choice("libc.so.6", 2_000));
        let python = choice("libpython3.11.so.1.0", 1_400);
        assert_eq!(name(&[exe.clone(), libc.clone(), python]).as_deref(), Some("libpython3.11.so.1.0"));
        assert_eq!(name(&[choice("exe", 3_000), libc.clone()]).as_deref(), Some("exe"));
        assert_eq!(name(&[choice("exe", 0), libc]).as_deref(), Some("libc.so.6"));
        assert_eq!(name(&[choice("exe", 0), Offer { functions: None, ..choice("x", 0) }]), None);
    }

    #[test]
    fn hostile_names_are_escaped() {
        let text = table(&[choice("a\u{1b}[2J", 1_234)], None, None);
        assert!(!text.contains('\u{1b}') && text.contains("1,234"), "{text}");
        assert_eq!(option(&choice("a b", 1)), "--lib 'a b'");
    }

    #[test]
    fn what_is_in_no_library_has_a_row_and_no_share_is_zero() {
        let mut sampled = Sampled::default();
        (sampled.in_kernel, sampled.in_no_file) = (900, 100);
        let idle = Offer { samples: Some(0), ..choice("libz.so.1", 88) };
        let text = table(&[idle], Some(&sampled), None);
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().take(5).collect()).collect();
        assert_eq!(rows[1], ["libz.so.1", "<0.3", "%", "0", "88"]);
        assert_eq!(rows[2], ["(kernel)", "90.0", "%", "900", "what"]);
        assert_eq!(rows[3], ["(no", "file)", "10.0", "%", "100"]);
        assert!(
            text.ends_with("1,000 samples of CPU time in 0.0 s: shares are right to 3.1 points (95 %)\n"),
            "{text}"
        );
        let text = table(&[choice("libz.so.1", 88)], Some(&Sampled::default()), None);
        assert!(text.contains(" - ") && text.contains("the processes were idle"), "{text}");
    }
}
