//! `cargo xtask tidy`: the form of source files, and which package and which module imports which, where neither rustfmt
//! nor clippy looks.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::files::{self, has_extension};
use crate::{arrows, lines, modules, names};

const LONGEST: usize = 800;
const CODE: [&str; 5] = ["rs", "c", "h", "cpp", "py"];
/// Words that code no longer uses, each with the one that says it.
const OLD_WORDS: [(&str, &str); 13] = [
    ("newcomer", "late_load"),
    ("lowered", "throttled"),
    ("glance", "snapshot"),
    ("dearest", "costliest"),
    ("leftovers::", "stale::"),
    ("Lookout", "LateLoadFeed"),
    ("struct Given", "…Context"),
    ("struct Beside", "Extras"),
    ("struct Apart", "Detachable"),
    ("struct Slide", "MovedEntry"),
    ("::Written", "BpfEmulated"),
    ("is_written", "has_record"),
    ("rt_counted ", "rt_measured"),
];
/// Phrases that make a reader stop, in comments, messages and documents, each with the one to use.
const PHRASES: [(&str, &str); 12] = [
    ("at the most", "at most"),
    ("works most", "does the most work"),
    ("dies of SIG", "is killed by SIG"),
    ("for want of", "because … is missing"),
    ("where nothing is said", "by default"),
    ("and that is all", "only"),
    ("whoever names", "no matter what names"),
    ("whoever has set", "no matter what set"),
    ("however long they are", "of any length"),
    ("nobody says", "… is not declared"),
    ("as far as it can be told", "as far as known"),
    ("is asked what becomes of", "ask whether to keep"),
];
/// What a process maps is read in one file, since names in it are hostile. Tests may look for themselves.
const READER_OF_MAPS: &str = "symbolizer/src/address_space.rs";
const LICENSE: &str = "SPDX-License-Identifier: ";

/// Checks every source file of the workspace and names all faults.
pub fn run() -> Result<()> {
    let files = files::all(&[&CODE[..], &["md", "toml"]].concat())?;
    let shortened: Vec<PathBuf> = files.iter().map(|file| without_src(file)).collect();
    let mut faults = arrows::faults()?;
    let product = lines::product()?;
    faults.extend(modules::faults(&product));
    faults.extend(names::faults(&product));
    for file in &files {
        let text = files::read(file)?;
        let name = file.strip_prefix(crate::root()).unwrap_or(file);
        faults.extend(faults_in(name, &text));
        if has_extension(file, &["md"]) {
            faults.extend(missing(name, &text, links, |link| file.with_file_name(link).exists()));
            let is_source = |path: &str| shortened.iter().any(|file| file.ends_with(without_src(Path::new(path))));
            faults.extend(missing(name, &text, sources, is_source));
        }
    }
    if !faults.is_empty() {
        bail!("failed to find all {} files tidy:\n{}", files.len(), faults.join("\n"));
    }
    println!("{} files are tidy", files.len());
    Ok(())
}

fn is_code(path: &Path) -> bool {
    has_extension(path, &CODE)
}

/// C of the kernel side and of the test targets stands for itself, outside any crate's manifest.
fn needs_license(path: &Path) -> bool {
    has_extension(path, &["c", "h", "cpp"])
}

fn faults_in(path: &Path, text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let lines = text.lines().count();
    if is_code(path) && lines > LONGEST {
        faults.push(format!("{}: {lines} lines, at most {LONGEST}", path.display()));
    }
    if needs_license(path) && !text.lines().next().unwrap_or_default().contains(LICENSE) {
        faults.push(format!("{}:1: no `{LICENSE}`", path.display()));
    }
    for (index, line) in text.lines().enumerate() {
        if line.ends_with([' ', '\t']) {
            faults.push(format!("{}:{}: blanks at the end", path.display(), index + 1));
        }
        if line.contains("/maps\"") && reads_for_itself(path) {
            faults.push(format!("{}:{}: reads mappings, use `{READER_OF_MAPS}`", path.display(), index + 1));
        }
        let is_said = |phrase: &str| line.contains(phrase) && !path.ends_with("tidy.rs");
        for (phrase, better) in PHRASES.into_iter().filter(|(phrase, _)| is_said(phrase)) {
            faults.push(format!("{}:{}: `{phrase}`, say `{better}`", path.display(), index + 1));
        }
        let is_old = |old: &str| is_code(path) && line.contains(old) && !path.ends_with("tidy.rs");
        for (old, new) in OLD_WORDS.into_iter().filter(|(old, _)| is_old(old)) {
            faults.push(format!("{}:{}: `{old}`, say `{new}`", path.display(), index + 1));
        }
    }
    if !text.is_empty() && !text.ends_with('\n') {
        faults.push(format!("{}:{lines}: no newline at the end", path.display()));
    }
    faults
}

/// Whether a file is Rust of the product, and not the one that reads what processes map.
fn reads_for_itself(path: &Path) -> bool {
    has_extension(path, &["rs"]) && !path.starts_with("tests") && path != Path::new(READER_OF_MAPS)
}

/// What a Markdown file names, line by line, and is not there.
fn missing<'a>(
    path: &Path,
    text: &'a str,
    named: impl Fn(&'a str) -> Vec<&'a str>,
    exists: impl Fn(&str) -> bool,
) -> Vec<String> {
    let named =
        text.lines().enumerate().flat_map(|(index, line)| named(line).into_iter().map(move |name| (index, name)));
    let lost = named.filter(|(_, name)| !exists(name));
    lost.map(|(index, name)| format!("{}:{}: `{name}` is not there", path.display(), index + 1)).collect()
}

/// Files of ours to which a line has links.
fn links(line: &str) -> Vec<&str> {
    let links = line.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(link, _)| link);
    let files = links.map(|link| link.split('#').next().unwrap_or_default());
    files.filter(|file| !file.is_empty() && !file.contains("://")).collect()
}

/// Source files that a line has in backticks; `NAME` stands for any name.
fn sources(line: &str) -> Vec<&str> {
    let quoted = line.split('`').skip(1).step_by(2);
    quoted.filter(|name| has_extension(Path::new(name), &["rs", "h"]) && !name.ends_with("/NAME.rs")).collect()
}

/// A path as documents have it, which may leave out `src`.
fn without_src(path: &Path) -> PathBuf {
    path.iter().filter(|&part| part != "src").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(name: &str, text: &str) -> Vec<String> {
        faults_in(Path::new(name), text)
    }

    #[test]
    fn tidy_files_have_no_faults() {
        assert!(faults("a.rs", "fn main() {}\n").is_empty());
        assert!(faults("a.c", "// SPDX-License-Identifier: MIT\n").is_empty());
        assert!(faults("a.md", &"line\n".repeat(2000)).is_empty());
    }

    #[test]
    fn faults_are_named_with_their_place() {
        assert_eq!(faults("a.rs", "x \ny"), ["a.rs:1: blanks at the end", "a.rs:2: no newline at the end"]);
        assert_eq!(faults("a.h", "int x;\n"), ["a.h:1: no `SPDX-License-Identifier: `"]);
        assert_eq!(faults("a.rs", &"x\n".repeat(801)), ["a.rs: 801 lines, at most 800"]);
        let maps = "read(\"/proc/self/maps\")\n";
        assert_eq!(faults("a.rs", maps), [format!("a.rs:1: reads mappings, use `{READER_OF_MAPS}`")]);
        assert!(faults(READER_OF_MAPS, maps).is_empty() && faults("tests/a.rs", maps).is_empty());
        assert_eq!(faults("a.md", "for a second at the most\n"), ["a.md:1: `at the most`, say `at most`"]);
        assert_eq!(faults("a.rs", "let is_lowered = x;\n"), ["a.rs:1: `lowered`, say `throttled`"]);
    }

    #[test]
    fn links_lead_to_files_that_are_there() {
        let faults = |text: &str| missing(Path::new("a.md"), text, links, |file| file == "b.md");
        assert!(faults("[b](b.md), [b](b.md#part), [here](#part), [there](https://x.org/c.md)\n").is_empty());
        assert_eq!(faults("\n![b](b.md) and [c](c.md#part)\n"), ["a.md:2: `c.md` is not there"]);
    }

    #[test]
    fn source_files_are_there() {
        let faults = |text: &str| missing(Path::new("a.md"), text, sources, |path| path == "a/b.rs");
        assert!(faults("`a/b.rs` says `x.y` of x.rs; add `a/NAME.rs`\n").is_empty());
        assert_eq!(faults("\nas `a/b.rs` and `c.h` say\n"), ["a.md:2: `c.h` is not there"]);
    }
}
