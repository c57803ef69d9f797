//! `cargo xtask lines`: lines of code by package, without blank lines and comments, product and tests apart.
//!
//! A test is what a `#[cfg(test)]` module contains, in place or in files of its own, and what lies in `tests/`,
//! `fuzz/` or a file that is named for tests. Strings that look like comments are not recognised.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::arrows;
use crate::files::{self, has_extension};

const EXTENSIONS: [&str; 9] = ["rs", "c", "h", "cpp", "py", "js", "css", "html", "sql"];

/// A file by its path in the workspace, and its text.
pub type SourceText = (PathBuf, String);

/// Lines of code of one package.
#[derive(Clone, Copy, Default)]
pub struct LineCount {
    pub product: usize,
    test: usize,
}

/// Prints the lines of each package, and the sum.
pub fn run() -> Result<()> {
    let (texts, test_modules) = texts(&EXTENSIONS)?;
    let mut packages: BTreeMap<&str, LineCount> = BTreeMap::new();
    for (file, text) in &texts {
        let package = package_of(file).unwrap_or("tests");
        let counted = count(file, text);
        let lines = packages.entry(package).or_default();
        if package == "tests" || is_test(file, &test_modules) {
            lines.test += counted.product + counted.test;
        } else {
            lines.product += counted.product;
            lines.test += counted.test;
        }
    }
    println!("{:20}{:>10}{:>10}", "package", "product", "tests");
    let mut sum = LineCount::default();
    for (package, lines) in packages {
        println!("{package:20}{:>10}{:>10}", lines.product, lines.test);
        sum = LineCount { product: sum.product + lines.product, test: sum.test + lines.test };
    }
    println!("{:20}{:>10}{:>10}", "all", sum.product, sum.test);
    Ok(())
}

/// All files of these kinds, each by its path in the workspace with its text, and those that are tests.
fn texts(extensions: &[&str]) -> Result<(Vec<SourceText>, HashSet<PathBuf>)> {
    let texts: Vec<SourceText> = files::all(extensions)?.iter().map(|file| read(file)).collect::<Result<_>>()?;
    let test_modules = texts.iter().flat_map(|(file, text)| test_modules(file, text)).collect();
    Ok((texts, test_modules))
}

/// The files of the product, without their tests.
///
/// # Errors
/// A file cannot be read.
pub fn product() -> Result<Vec<SourceText>> {
    let (texts, test_modules) = texts(&EXTENSIONS)?;
    let product = texts.into_iter().filter(|(file, _)| package_of(file).is_some() && !is_test(file, &test_modules));
    Ok(product.map(|(file, text)| (file, without_tests(&text))).collect())
}

/// The package that a file belongs to; what is written in Python is one.
fn package_of(file: &Path) -> Option<&'static str> {
    arrows::package_of(file).or_else(|| file.starts_with("python").then_some("python"))
}

fn without_tests(text: &str) -> String {
    with_tests(text).filter(|(_, is_of_test)| !is_of_test).map(|(line, _)| format!("{line}\n")).collect()
}

fn read(file: &Path) -> Result<SourceText> {
    let text = files::read(file)?;
    Ok((file.strip_prefix(crate::root()).unwrap_or(file).to_owned(), text))
}

/// The files and folders of modules that a file declares for tests only.
fn test_modules(file: &Path, text: &str) -> Vec<PathBuf> {
    let folder = match file.file_stem().and_then(|stem| stem.to_str()) {
        Some("lib" | "main" | "mod") => file.with_file_name(""),
        _ => file.with_extension(""),
    };
    let mut lines = text.lines();
    let mut found = Vec::new();
    while let Some(line) = lines.next() {
        if !line.starts_with("#[cfg(") || !line.contains("test") {
            continue;
        }
        let declared = lines.next().and_then(|line| line.strip_suffix(';'));
        if let Some(name) = declared.and_then(|line| line.split_once("mod ")).map(|(_, name)| name) {
            found.extend([folder.join(name), folder.join(name).with_extension("rs")]);
        }
    }
    found
}

fn is_test(file: &Path, test_modules: &HashSet<PathBuf>) -> bool {
    let named = file.components().any(|part| part.as_os_str() == "tests" || part.as_os_str() == "fuzz");
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    named || stem.ends_with("_test") || stem == "testing" || file.ancestors().any(|path| test_modules.contains(path))
}

/// The lines of code of a file; `test`: those of its `#[cfg(test)]` modules.
pub fn count(file: &Path, text: &str) -> LineCount {
    let comment = if has_extension(file, &["py"]) { "#" } else { "//" };
    let has_blocks = has_extension(file, &["c", "h", "cpp", "js", "css"]);
    let (mut lines, mut in_comment) = (LineCount::default(), false);
    for (line, in_test) in with_tests(text) {
        let code = line.trim();
        if in_comment || (has_blocks && code.starts_with("/*")) {
            in_comment = !code.contains("*/");
        } else if !code.is_empty() && !code.starts_with(comment) {
            *(if in_test { &mut lines.test } else { &mut lines.product }) += 1;
        }
    }
    lines
}

/// The lines of a file, each with whether it is of a `#[cfg(test)]` module.
fn with_tests(text: &str) -> impl Iterator<Item = (&str, bool)> {
    let (mut previous, mut in_test) = ("", false);
    text.lines().map(move |line| {
        in_test |= previous == "#[cfg(test)]" && line.starts_with("mod ") && line.ends_with('{');
        previous = line;
        let is_of_test = in_test;
        in_test &= line != "}";
        (line, is_of_test)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_comments_and_blank_lines_are_no_product() {
        let rust = "//! Head.\n\nuse a;\n#[cfg(test)]\nmod tests {\n    // why\n    fn f() {}\n}\nfn g() {}\n";
        let lines = count(Path::new("a.rs"), rust);
        assert_eq!((lines.product, lines.test), (3, 3));
        let lines = count(Path::new("a.h"), "/* one */\n/*\n * two\n */\nint a; // three\n");
        assert_eq!((lines.product, lines.test), (1, 0));
    }

    #[test]
    fn files_of_test_modules_are_tests() {
        let modules = test_modules(Path::new("bpf/src/lib.rs"), "#[cfg(test)]\nmod model;\nmod wire;\n");
        let modules: HashSet<PathBuf> = modules.into_iter().collect();
        assert!(is_test(Path::new("bpf/src/model.rs"), &modules) && is_test(Path::new("bpf/src/model/a.rs"), &modules));
        assert!(!is_test(Path::new("bpf/src/wire.rs"), &modules) && is_test(Path::new("a/tests/b.rs"), &modules));
    }
}
