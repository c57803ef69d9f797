//! Which module of a package uses which: none in a circle, and none that uses too many.
//!
//! A module may use its own children, and a child the module above it: that is no circle. What a module gives on of
//! others (`pub use`) counts as theirs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::lines::{self, SourceText};

/// The rooms of the recorder in their order: a room uses those before it, and none behind it.
const ROOMS: [&str; 14] = [
    "rank",
    "perf",
    "host",
    "target",
    "stubs",
    "watch",
    "counters",
    "flight",
    "options",
    "samples",
    "suggestions",
    "record",
    "session",
    "sampling",
];
const ROOMS_IN: &str = "tracer/src/";

/// Lines of code that a file has at most, and lines with `use crate::`.
const MOST_LINES: usize = 600;
const MOST_IMPORTS: usize = 25;

/// A module by the names on the way to it, with the package's folder in front.
type ModulePath = Vec<String>;

/// What is against this in files of Rust, each with its text without tests.
pub fn faults(files: &[SourceText]) -> Vec<String> {
    let rust = files.iter().filter_map(|(file, text)| Some((module_of(file)?, without_comments(text))));
    let modules: BTreeMap<ModulePath, String> = rust.collect();
    let circles = circles(&arrows(&modules))
        .into_iter()
        .map(|circle| circle.iter().map(|module| module.join("::")).collect::<BTreeSet<_>>());
    let told = |circle: BTreeSet<String>| {
        let names: Vec<String> = circle.into_iter().collect();
        format!("modules that use each other: {}", names.join(", "))
    };
    let mut faults: Vec<String> = circles.map(told).collect();
    for (file, text) in files {
        faults.extend(
            used_backward(file, &without_comments(text))
                .into_iter()
                .map(|used| format!("{}: uses `crate::{used}`, a room that stands behind its own", file.display())),
        );
        let lines = lines::count(file, text).product;
        let imports = text.lines().filter(|line| line.starts_with("use crate::")).count();
        let checks = [(lines, MOST_LINES, "lines of code"), (imports, MOST_IMPORTS, "lines with `use crate::`")];
        let over = checks.into_iter().filter(|&(found, most, _)| found > most);
        faults.extend(over.map(|(found, most, what)| format!("{}: {found} {what}, at most {most}", file.display())));
    }
    faults
}

/// The rooms that a file uses although they stand behind its own.
fn used_backward(file: &Path, text: &str) -> Vec<&'static str> {
    let path = file.to_str().and_then(|path| path.strip_prefix(ROOMS_IN)).unwrap_or_default();
    let room = path.split(['/', '.']).next().unwrap_or_default();
    let behind = ROOMS.iter().skip_while(move |&&other| other != room).skip(1);
    let is_used = |other: &str| {
        let path = format!("crate::{other}");
        text.match_indices(&path).any(|(place, _)| !text[place + path.len()..].starts_with(is_part_of_name))
    };
    behind.copied().filter(|other| is_used(other)).collect()
}

fn is_part_of_name(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// The module in a file; `None` of files that are none.
fn module_of(file: &Path) -> Option<ModulePath> {
    let path = file.to_str()?.strip_suffix(".rs")?;
    let (package, path) = path.split_once("/src/")?;
    let path = path.strip_suffix("/mod").unwrap_or(path);
    let names = path.split('/').filter(|&name| !["lib", "main", "mod"].contains(&name));
    Some([package].into_iter().chain(names).map(str::to_owned).collect())
}

fn without_comments(text: &str) -> String {
    text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// The modules that each uses, without its own children.
fn arrows(modules: &BTreeMap<ModulePath, String>) -> BTreeMap<&ModulePath, BTreeSet<&ModulePath>> {
    let nearest = |path: &[String]| {
        (1..=path.len()).rev().find_map(|length| modules.get_key_value(&path[..length])).map(|(module, _)| module)
    };
    let mut given_on: BTreeMap<(&ModulePath, String), &ModulePath> = BTreeMap::new();
    for (module, text) in modules {
        for statement in text.split("pub use ").skip(1).filter_map(|rest| rest.split(';').next()) {
            for path in expanded(statement) {
                let (path, name) = path.split_once(" as ").unwrap_or((&path, &path));
                let name = name.rsplit("::").next().unwrap_or_default().to_owned();
                // Children are named without `self` there.
                let target = nearest(&resolved(module, path)).filter(|target| target.len() > 1);
                let of_child = || nearest(&[module.clone(), words(path)].concat());
                if let Some(target) = target.or_else(of_child).filter(|&target| target != module) {
                    given_on.insert((module, name), target);
                }
            }
        }
    }
    let arrows_of = |(module, text): (&'_ ModulePath, &String)| {
        let paths = mentions(text).into_iter().filter_map(|path| {
            let path = resolved(module, &path);
            let target = nearest(&path)?;
            let item = path.get(target.len()).cloned().unwrap_or_default();
            Some(given_on.get(&(target, item)).copied().unwrap_or(target))
        });
        paths.filter(|target| !target.starts_with(module)).collect::<BTreeSet<_>>()
    };
    modules.iter().map(|(module, text)| (module, arrows_of((module, text)))).collect()
}

/// Paths that a text has and that stay in the package.
fn mentions(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for start in ["crate::", "super::", "self::"] {
        for (place, _) in text.match_indices(start) {
            let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
            if text[..place].ends_with(is_word) {
                continue;
            }
            let is_use = text[..place].ends_with("use ");
            let end = if is_use { text[place..].find(';') } else { text[place..].find(|c| !is_word(c)) };
            found.extend(expanded(&text[place..place + end.unwrap_or(text.len() - place)]));
        }
    }
    found
}

/// The single paths of an import: `a::{b, c::d}` is `a::b` and `a::c::d`.
fn expanded(import: &str) -> Vec<String> {
    let import = import.trim();
    let Some((before, inside)) = import.split_once('{') else { return vec![import.to_owned()] };
    let (mut depth, mut parts) = (0, vec![String::new()]);
    for c in inside.strip_suffix('}').unwrap_or(inside).chars() {
        depth += i32::from(c == '{') - i32::from(c == '}');
        match c {
            ',' if depth == 0 => parts.push(String::new()),
            _ => parts.last_mut().expect("there is one").push(c),
        }
    }
    let parts = parts.iter().map(|part| part.trim()).filter(|part| !part.is_empty());
    parts.flat_map(|part| expanded(&[before, part].concat())).collect()
}

fn words(path: &str) -> Vec<String> {
    path.split("::").map(|word| word.trim().to_owned()).collect()
}

/// The path from the package on.
fn resolved(module: &ModulePath, path: &str) -> Vec<String> {
    let mut words = words(path);
    let mut base = module.clone();
    match words[0].as_str() {
        "crate" => base.truncate(1),
        "self" | "super" => {}
        _ => return words,
    }
    let ups = words.iter().take_while(|word| *word == "super").count();
    base.truncate(base.len().saturating_sub(ups).max(1));
    words.drain(..ups.max(1));
    [base, words].concat()
}

/// The sets of modules that lead to each other.
fn circles<'a>(arrows: &BTreeMap<&'a ModulePath, BTreeSet<&'a ModulePath>>) -> BTreeSet<BTreeSet<&'a ModulePath>> {
    let reached = |from: &'a ModulePath| {
        let (mut reached, mut next) = (BTreeSet::new(), vec![from]);
        while let Some(module) = next.pop() {
            next.extend(arrows.get(module).into_iter().flatten().filter(|&target| reached.insert(*target)));
        }
        reached
    };
    let all: BTreeMap<&ModulePath, BTreeSet<&ModulePath>> =
        arrows.keys().map(|&module| (module, reached(module))).collect();
    let circle = |module: &'a ModulePath| {
        all[module].iter().copied().filter(|&other| all.get(other).is_some_and(|back| back.contains(module))).collect()
    };
    all.keys().map(|&module| circle(module)).filter(|circle: &BTreeSet<_>| circle.len() > 1).collect()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        faults(&files.iter().map(|&(file, text)| (PathBuf::from(file), text.to_owned())).collect::<Vec<_>>())
    }

    #[test]
    fn modules_that_use_each_other_are_a_fault() {
        let a = ("x/src/a.rs", "use crate::{\n    c::{self, D},\n    b::B,\n};\n");
        assert!(found(&[a, ("x/src/b.rs", "use super::c; // super::a\n"), ("x/src/c.rs", "")]).is_empty());
        let circle = found(&[a, ("x/src/b.rs", "fn f() { super::c::g() }\n"), ("x/src/c.rs", "use crate::a::A;\n")]);
        assert_eq!(circle, ["modules that use each other: x::a, x::b, x::c"]);
        let backward = [("tracer/src/target/a.rs", "use crate::record::b;\nuse crate::host;\nuse crate::recorded;\n")];
        let fault = "tracer/src/target/a.rs: uses `crate::record`, a room that stands behind its own";
        assert_eq!(found(&backward), [fault]);
    }

    #[test]
    fn a_module_and_its_children_are_no_circle() {
        let files = [
            ("x/src/lib.rs", "mod a;\nuse self::a::A;\n"),
            ("x/src/a.rs", "use self::b::B;\n"),
            ("x/src/a/b.rs", "use super::C;\n"),
        ];
        assert!(found(&files).is_empty());
    }

    #[test]
    fn what_is_given_on_is_of_who_has_it() {
        let lib = ("x/src/lib.rs", "pub use a::A;\n");
        let circle = found(&[lib, ("x/src/a.rs", "use crate::b::B;\n"), ("x/src/b.rs", "use crate::A;\n")]);
        assert_eq!(circle, ["modules that use each other: x::a, x::b"]);
    }

    #[test]
    fn files_have_a_limit_of_lines_and_imports() {
        assert_eq!(found(&[("x/src/a.rs", &"x();\n".repeat(601))]), ["x/src/a.rs: 601 lines of code, at most 600"]);
        let imports = "use crate::b;\n".repeat(26);
        assert_eq!(found(&[("x/src/a.rs", &imports)]), ["x/src/a.rs: 26 lines with `use crate::`, at most 25"]);
    }
}
