//! The guests' file system: an archive that the kernel unpacks into its memory. Everything has the
//! path that it has here, as the tests know the paths of what they need from when they were built.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use serde::Deserialize;

use crate::{files, process};

/// What every guest boots with.
pub struct GuestImage {
    /// The archive.
    pub file: PathBuf,
    /// The rtrace binary.
    pub rtrace: PathBuf,
    /// The test program.
    pub tests: PathBuf,
}

impl GuestImage {
    /// Builds rtrace and its tests, runs those that guests will run, for they compile the programs
    /// that they trace, and packs it all.
    pub fn build(filters: &[String]) -> Result<GuestImage> {
        let built = process::output(&mut process::cargo(&[
            "test",
            "--package=rtrace-cli",
            "--test=integration",
            "--no-run",
            "--message-format=json",
        ]))?;
        let rtrace = executable(&built, "rtrace").context("failed to find the rtrace that cargo built")?;
        let tests = executable(&built, "integration").context("failed to find the tests that cargo built")?;
        // What fails here says nothing of the guests; missing programs would be compiled there.
        let mut first_run = Command::new(&tests);
        println!("$ {}", process::shown(first_run.args(filters)));
        first_run.status().context("failed to start the tests")?;

        let root = files::emptied(super::folder().join("root"))?;
        let folder = crate::root().join("tests");
        let traced = process::target_directory().join("tmp");
        // The tests know their folder as a neighbour of their package's.
        let needed = [rtrace, tests, folder.clone(), traced, crate::root().join("tracer/cli/Cargo.toml")];
        let file = super::folder().join("image.cpio");
        pack(&root, &needed, &folder.join("vm/init"), &file)?;
        let [rtrace, tests, ..] = needed;
        Ok(GuestImage { file, rtrace, tests })
    }
}

/// One line of what cargo prints.
#[derive(Deserialize)]
struct CargoMessage {
    executable: Option<PathBuf>,
    target: Option<CargoTarget>,
}

#[derive(Deserialize)]
struct CargoTarget {
    name: String,
}

fn executable(messages: &str, name: &str) -> Option<PathBuf> {
    let mut messages = messages.lines().filter_map(|line| serde_json::from_str::<CargoMessage>(line).ok());
    messages.find_map(|message| message.executable.filter(|_| message.target.is_some_and(|target| target.name == name)))
}

/// Packs what is in `root` with busybox, the files and folders `needed` with the shared libraries of all programs among
/// them, and a guest's first program.
pub fn pack(root: &Path, needed: &[PathBuf], init: &Path, file: &Path) -> Result<()> {
    let mut copy = Command::new("cp");
    copy.args(["--parents", "--recursive", "--dereference", "/bin/busybox"]).args(needed).args(libraries(needed)?);
    process::run(copy.arg(root))?;
    process::run(Command::new("cp").arg(init).arg(root.join("init")))?;
    let script = "find . | busybox cpio --create --format newc > \"$0\"";
    process::run(Command::new("sh").args(["-c", script]).arg(file).current_dir(root))
}

/// The shared libraries of all programs among these files and folders.
fn libraries(needed: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let found = process::output(Command::new("find").args(needed).args(["-type", "f", "-executable"]))?;
    // Its status tells that some programs are static.
    let output = Command::new("ldd").args(found.lines()).output().context("failed to start ldd")?;
    Ok(libraries_in(&String::from_utf8_lossy(&output.stdout)))
}

/// From the lines of ldd, `NAME => PATH (ADDRESS)` and `PATH (ADDRESS)`.
fn libraries_in(listed: &str) -> Vec<PathBuf> {
    let lines = listed.lines().filter(|line| line.starts_with('\t'));
    let mut paths: Vec<PathBuf> = lines
        .filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')))
        .map(PathBuf::from)
        .collect();
    paths.sort_unstable();
    paths.dedup();
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executables_are_told_from_other_artifacts() {
        let messages = r#"{"reason":"compiler-artifact","target":{"name":"rtrace"},"executable":null}
{"reason":"compiler-artifact","target":{"name":"rtrace"},"executable":"/target/debug/rtrace"}
{"reason":"build-finished","success":true}"#;
        assert_eq!(executable(messages, "rtrace"), Some(PathBuf::from("/target/debug/rtrace")));
        assert_eq!(executable(messages, "integration"), None);
    }

    #[test]
    fn libraries_are_listed_once() {
        let listed = "/a/program:\n\tlinux-vdso.so.1 (0x1)\n\tlibc.so.6 => /lib/libc.so.6 (0x2)\n\t/lib64/ld.so (0x3)\n\
                      /b/program:\n\tlibc.so.6 => /lib/libc.so.6 (0x2)\n\tnot a dynamic executable\n";
        assert_eq!(libraries_in(listed), [PathBuf::from("/lib/libc.so.6"), PathBuf::from("/lib64/ld.so")]);
    }
}
