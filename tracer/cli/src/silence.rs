//! A recording without a call: why, and what would have recorded something.

use std::collections::BTreeSet;
use std::iter;
use std::path::{Path, PathBuf};

use rtrace::session::Ready;
use rtrace::target;
use rtrace::target::mapped_files::MappedFiles;
use rtrace::target::privilege::{self, shell_quote};
use rtrace_model::{Summary, counted};
use rtrace_symbolizer::{Image, linker, select, soname};

use super::libs::PROGRAM;
use super::message::tell;

/// So many functions are named that a program has itself.
const EXAMPLES: usize = 3;
/// So many libraries are named that were loaded instead.
const NAMED: usize = 5;

/// What has to be known of a recording before it begins, to say afterwards why it is empty.
pub struct Silence {
    target: String,
    libraries: Vec<String>,
    /// Those of them that could be known only once they were loaded.
    awaited: Vec<String>,
    /// Processes that ran before; none where a command is recorded.
    pids: Vec<u32>,
    mapped: MappedFiles,
}

impl Silence {
    /// Of a recording of `target`, which is a description for people.
    pub fn of(ready: &Ready<'_>, target: &str) -> Silence {
        Silence {
            target: target.to_owned(),
            libraries: ready.options().libraries.clone(),
            awaited: ready.awaited().to_vec(),
            pids: if ready.is_command() { Vec::new() } else { ready.pids() },
            mapped: ready.mapped_files(),
        }
    }

    /// Says it, if there was no call. What is missing for a reason of its own has been told already, but for libraries
    /// that had no probes when they were loaded: a path lets them have some.
    pub fn explain(&self, summary: &Summary) {
        let (paths, others) = (self.mapped.paths(), self.mapped.unrecorded());
        for name in &self.awaited {
            if let Some(path) = paths.iter().find(|path| select::names(name, path, || soname(path))) {
                let (word, shown) = (shell_quote(path), path.display());
                if path.exists() {
                    tell!("{name} was loaded from {shown}: `--lib {word}` traces it from its first call");
                } else {
                    tell!(
                        "{name} was loaded from {shown} in another root folder: named by its path from here, it is traced from its first call"
                    );
                }
            }
        }
        if summary.calls + summary.counted == 0 && summary.is_complete() {
            self.lines().iter().for_each(|line| tell!("{line}"));
        }
        for (library, path) in self.namesakes(&others) {
            let word = shell_quote(path);
            tell!("{} was loaded, and is not {library}: `--lib {word}` traces it", path.display());
        }
    }

    /// Libraries that were asked for by path, each with one of its name among those that were loaded and are not recorded.
    fn namesakes<'s>(&'s self, others: &'s [PathBuf]) -> impl Iterator<Item = (&'s String, &'s PathBuf)> {
        self.libraries.iter().filter(|library| library.contains('/')).filter_map(move |library| {
            let name = name_of(Path::new(library))?;
            Some((library, others.iter().find(|path| name_of(path).as_ref() == Some(&name))?))
        })
    }

    fn lines(&self) -> Vec<String> {
        let called_none = |libraries: &[&String]| {
            let names = joined(libraries.iter().map(|&name| name.clone()));
            format!("nothing was recorded: {} called none of the traced functions of {names}", self.target)
        };
        if !self.pids.is_empty() {
            let who = if self.pids.len() == 1 { "it" } else { "this one of them" };
            let running = self.pids.iter().find(|&&pid| !privilege::has_ended(pid));
            let look = running.map(|pid| format!("`rtrace libs -p {pid} --sample` shows where {who} spends CPU time"));
            return iter::once(called_none(&self.libraries.iter().collect::<Vec<_>>())).chain(look).collect();
        }
        let (never, others): (Vec<&String>, Vec<&String>) =
            self.libraries.iter().partition(|library| *library != PROGRAM && self.mapped.never(library));
        let mut lines: Vec<String> = never
            .iter()
            .map(|library| format!("nothing was recorded: {} never loaded {library}", self.target))
            .collect();
        if !others.is_empty() {
            lines.push(called_none(&others));
        }
        if !never.is_empty() && self.namesakes(&self.mapped.unrecorded()).next().is_none() {
            lines.push(self.built_in(never[0]).unwrap_or_else(|| self.instead(never[0])));
        }
        lines
    }

    /// Which functions of a library a program has itself, as those do into which libraries are linked.
    fn built_in(&self, wanted: &str) -> Option<String> {
        let installed = linker::find(wanted, &[], &target::environment()).ok()?;
        let names_of = |path: &Path| -> Option<BTreeSet<String>> {
            let exports = Image::open(path).ok()?.exports().ok()?;
            let symbols = exports.functions.into_iter().flat_map(|function| function.symbols);
            Some(symbols.map(|symbol| symbol.name).filter(|name| !name.starts_with('_')).collect())
        };
        let wanted = names_of(installed.first()?)?;
        let programs = self.mapped.paths().into_iter().filter(|path| name_of(path).is_none());
        let shared =
            programs.filter_map(|path| Some((names_of(&path)?.intersection(&wanted).cloned().collect(), path)));
        let (names, path): (Vec<String>, _) = shared.max_by_key(|(names, _): &(Vec<String>, _)| names.len())?;
        let options = names.iter().take(EXAMPLES).map(|name| format!(" --func {}", shell_quote(name)));
        let options: String = options.collect();
        (names.len() >= EXAMPLES).then(|| {
            let (count, word) = (counted(names.len() as u64, "function"), shell_quote(&path));
            let path = path.display();
            format!("{path} has {count} of that library itself: `--lib {word}{options}` would record calls to some")
        })
    }

    /// What would record something.
    fn instead(&self, wanted: &str) -> String {
        let paths = self.mapped.paths();
        let names: Vec<String> = paths.iter().filter_map(|path| name_of(path)).collect();
        let by_name = |name: &str| paths.iter().find(|path| name_of(path).as_deref() == Some(name));
        let known: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut near = select::near_names(wanted, &known);
        near.extend(names.iter().filter(|name| !near.contains(name)).cloned().collect::<Vec<_>>());
        near.truncate(NAMED);
        let (more, first) = (names.len().saturating_sub(near.len()), near.first().cloned());
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let list = if near.is_empty() { "no library".to_owned() } else { joined(near.into_iter()) };
        let example = first.map(|name| {
            // A library that is loaded from elsewhere than usual is found by its path alone.
            let path = by_name(&name).filter(|path| !is_installed(&name, path));
            let word = path.map_or_else(|| shell_quote(&name), shell_quote);
            format!(": `--lib {word}` would record calls to that")
        });
        format!("it loaded {list}{more}{}", example.unwrap_or_default())
    }
}

/// Whether a name leads to this file where the dynamic linker looks for it.
fn is_installed(name: &str, path: &Path) -> bool {
    let found = linker::find(name, &[], &target::environment()).unwrap_or_default();
    let same = |found: &PathBuf| found.canonicalize().ok() == path.canonicalize().ok();
    found.iter().any(same)
}

fn joined(names: impl Iterator<Item = String>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

/// By what a file is chosen, if it is a library: all programs have the dynamic linker, and nobody means it.
fn name_of(path: &Path) -> Option<String> {
    let file_name = path.file_name()?.to_str()?;
    let is_library = file_name.contains(".so") && !file_name.starts_with("ld-");
    is_library.then(|| soname(path).unwrap_or_else(|| file_name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_loaded_has_the_name_by_which_it_is_chosen() {
        assert_eq!(name_of(Path::new("/nowhere/libx.so.1.2")), Some("libx.so.1.2".to_owned()));
        for none in ["/lib64/ld-linux-x86-64.so.2", "/usr/bin/gzip", "[vdso]", "/"] {
            assert_eq!(name_of(Path::new(none)), None, "{none}");
        }
    }
    #[test]
    fn a_library_of_that_name_from_elsewhere_is_named() {
        let silence = Silence {
            target: "x".to_owned(),
            libraries: ["/one/libx.so.1", "libc.so.6"].map(str::to_owned).into(),
            awaited: Vec::new(),
            pids: Vec::new(),
            mapped: MappedFiles::default(),
        };
        let others = ["/lib/libc.so.6", "/two/libx.so.1", "/two/liby.so"].map(PathBuf::from);
        let named: Vec<_> = silence.namesakes(&others).collect();
        assert_eq!(named, [(&silence.libraries[0], &others[1])]);
        assert_eq!(silence.namesakes(&others[..1]).count(), 0);
    }
}
