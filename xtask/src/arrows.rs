//! Which package may import which: the arrows of ARCHITECTURE.md. None runs back up, and what is known of the
//! processor and of the kernel stays in one room each.

use std::path::Path;

use anyhow::{Context as _, Result};
use toml::{Table, Value};

use crate::files;

/// The folder of each package, with the folders of those that it may import.
const ARROWS: [(&str, &[&str]); 13] = [
    ("model", &[]),
    ("bpf", &["model"]),
    ("symbolizer", &["model"]),
    ("profile", &["model"]),
    ("exporters", &["model", "profile"]),
    ("tui", &["model", "profile"]),
    ("tracer/code", &["model", "symbolizer"]),
    ("tracer/plan", &["model", "symbolizer", "tracer/code", "tracer/signatures"]),
    ("tracer/report", &["model", "profile", "exporters"]),
    ("tracer/signatures", &["model", "symbolizer"]),
    ("tracer", &["model", "bpf", "symbolizer", "exporters", "tracer/code", "tracer/plan", "tracer/signatures"]),
    (
        "tracer/cli",
        &[
            "model",
            "bpf",
            "symbolizer",
            "exporters",
            "tui",
            "tracer",
            "tracer/code",
            "tracer/plan",
            "tracer/report",
            "tracer/signatures",
        ],
    ),
    ("xtask", &["symbolizer"]),
];

/// Packages of others that only the one in this folder may import.
const ALONE: [(&str, &str); 2] = [("iced-x86", "tracer/code"), ("libbpf-rs", "bpf")];

const KINDS: [&str; 3] = ["dependencies", "dev-dependencies", "build-dependencies"];

/// The package whose folder a file is in, the inner one where that lies within another's.
pub fn package_of(file: &Path) -> Option<&'static str> {
    let folders = ARROWS.iter().map(|(folder, _)| *folder).filter(|folder| file.starts_with(folder));
    folders.max_by_key(|folder| folder.len())
}

/// What is against the arrows in the workspace.
///
/// # Errors
/// A manifest cannot be read.
pub fn faults() -> Result<Vec<String>> {
    let workspace = manifest(".")?;
    let members = workspace.get("workspace").and_then(|workspace| workspace.get("members"));
    let mut faults = Vec::new();
    for folder in members.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str) {
        let package = manifest(folder)?;
        let named: Vec<&str> = named(&package).collect();
        faults.extend(faults_of(folder, &imports(&workspace, &named)));
        let others = ALONE.iter().filter(|(name, owner)| named.contains(name) && *owner != folder);
        faults.extend(others.map(|(name, owner)| format!("{folder}/Cargo.toml: only `{owner}/` may import `{name}`")));
    }
    Ok(faults)
}

/// What is wrong with what the package in a folder imports.
fn faults_of(folder: &str, imports: &[&str]) -> Vec<String> {
    let Some((_, allowed)) = ARROWS.iter().find(|(package, _)| *package == folder) else {
        return vec![format!("{folder}/Cargo.toml: a package without a place in xtask/src/arrows.rs")];
    };
    let wrong = imports.iter().filter(|import| !allowed.contains(import));
    wrong.map(|import| format!("{folder}/Cargo.toml: `{folder}/` must not import `{import}/`")).collect()
}

/// All packages that one imports.
fn named(package: &Table) -> impl Iterator<Item = &str> {
    KINDS.iter().filter_map(|&kind| package.get(kind)?.as_table()).flat_map(Table::keys).map(String::as_str)
}

/// The folders of those of these packages that are of the workspace.
fn imports<'a>(workspace: &'a Table, named: &[&str]) -> Vec<&'a str> {
    let known = workspace.get("workspace").and_then(|workspace| workspace.get("dependencies"));
    named.iter().filter_map(|&name| known?.get(name)?.get("path")?.as_str()).collect()
}

fn manifest(folder: &str) -> Result<Table> {
    let path = crate::root().join(folder).join("Cargo.toml");
    let text = files::read(&path)?;
    text.parse::<Table>().with_context(|| format!("failed to parse `{}`", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_against_the_arrows_are_faults() {
        assert!(faults_of("tracer/cli", &["bpf", "tui"]).is_empty());
        assert_eq!(faults_of("tui", &["model", "bpf"]), ["tui/Cargo.toml: `tui/` must not import `bpf/`"]);
        assert_eq!(faults_of("new", &[]), ["new/Cargo.toml: a package without a place in xtask/src/arrows.rs"]);
    }

    #[test]
    fn imports_are_the_packages_of_the_workspace() {
        let table = |text: &str| text.parse::<Table>().expect("it is TOML");
        let workspace = table("[workspace.dependencies]\na = { path = \"x/a\" }\nb = { path = \"b\" }\nlibc = \"1\"");
        let package = table(
            "[dependencies]\na.workspace = true\nlibc.workspace = true\n[build-dependencies]\nb.workspace = true",
        );
        let named: Vec<&str> = named(&package).collect();
        assert_eq!(named, ["a", "libc", "b"]);
        assert_eq!(imports(&workspace, &named), ["x/a", "b"]);
    }
}
