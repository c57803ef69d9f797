//! `cargo xtask lint`: what must be true of the sources before a change goes in.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use crate::{dependencies, packages, process, tidy};

/// A name and what it runs.
type LintCheck = (&'static str, fn() -> Result<()>);

/// The checks in their order, the quickest first.
const CHECKS: [LintCheck; 10] = [
    ("fmt", fmt),
    ("tidy", tidy::run),
    ("packages", build_packages),
    ("dependencies", dependencies::check),
    ("clippy", clippy),
    ("doc", doc),
    ("fuzz", fuzz),
    ("sanitizers", sanitizers),
    ("rebuild", rebuild),
    ("oldest-rust", oldest_rust),
];

/// What can be checked alone.
pub fn names() -> [&'static str; CHECKS.len()] {
    CHECKS.map(|(name, _)| name)
}

/// Runs these checks, or all if none is named, says how long each took, and stops at the first that fails.
///
/// # Errors
/// A check fails.
pub fn run(wanted: &[String]) -> Result<()> {
    for (name, check) in CHECKS.into_iter().filter(|(name, _)| wanted.is_empty() || wanted.iter().any(|w| w == name)) {
        let start = Instant::now();
        check().with_context(|| format!("failed to pass `{name}`"))?;
        println!("{name}: {:.0} s", start.elapsed().as_secs_f64());
    }
    Ok(())
}

fn fmt() -> Result<()> {
    process::run(&mut process::cargo(&["fmt", "--all", "--check"]))
}

fn build_packages() -> Result<()> {
    packages::require(packages::BUILD)
}

/// Among the warnings is that a function of the standard library is newer than the Rust version that we promise.
fn clippy() -> Result<()> {
    process::run(&mut process::cargo(&["clippy", "--workspace", "--all-targets", "--", "--deny", "warnings"]))
}

fn doc() -> Result<()> {
    process::run(process::cargo(&["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "--deny warnings"))
}

/// The fuzz targets are no members of the workspace, so nothing else compiles them.
fn fuzz() -> Result<()> {
    let mut cargo = process::cargo(&["check", "--locked", "--manifest-path", "fuzz/Cargo.toml", "--target-dir"]);
    cargo.arg(process::target_directory());
    // Nothing is linked, so libFuzzer need not be compiled: its package takes any file for one that is.
    process::run(cargo.env("CUSTOM_LIBFUZZER_PATH", crate::root().join("fuzz/Cargo.toml")))
}

/// The shadow stack of the kernel side under random programs and hits, in user space: no byte beside its memory is read
/// or written, and no operation is one that C leaves undefined.
fn sanitizers() -> Result<()> {
    let test = ["test", "--quiet", "--package", "rtrace-bpf", "--lib", "--features", "sanitizers", "--"];
    process::run(process::cargo(&test).args(["stack_model", "flags"]))
}

/// A build script that always runs again makes every build compile most of rtrace.
fn rebuild() -> Result<()> {
    let build = ["build", "--workspace", "--quiet"];
    process::run(&mut process::cargo(&build))?;
    let messages = process::output(process::cargo(&build).arg("--message-format=json"))?;
    let compiled = compiled(&messages)?;
    if !compiled.is_empty() {
        bail!("failed to leave alone what has not changed: a second build compiled {}", compiled.join(", "));
    }
    Ok(())
}

/// Compiles rtrace with the Rust that we promise to do with, where rustup can install that.
fn oldest_rust() -> Result<()> {
    // cargo gives this program the Rust version of its manifest, which is that of the workspace.
    let version = env!("CARGO_PKG_RUST_VERSION");
    if process::output(Command::new("rustup").arg("--version")).is_err() {
        println!("there is no rustup: Rust {version} is not tried");
        return Ok(());
    }
    let install =
        ["toolchain", "install", version, "--profile", "minimal", "--no-self-update", "--component", "rustfmt"];
    // The generator of skeletons formats them.
    if let Err(error) = process::run(Command::new("rustup").args(install)) {
        println!("rustup cannot install Rust {version}, so it is not tried: {error}");
        return Ok(());
    }
    let mut rustup = Command::new("rustup");
    rustup.args(["run", version, "cargo", "check", "--locked", "--target-dir"]);
    process::run(rustup.arg(process::target_directory().join("oldest-rust")).current_dir(crate::root()))
}

#[derive(Deserialize)]
#[serde(tag = "reason", rename_all = "kebab-case")]
enum LintMessage {
    CompilerArtifact {
        package_id: String,
        fresh: bool,
    },
    #[serde(other)]
    Other,
}

/// The packages that cargo compiled, by its messages.
fn compiled(messages: &str) -> Result<Vec<String>> {
    let mut compiled = Vec::new();
    for line in messages.lines() {
        let message = serde_json::from_str(line).with_context(|| format!("failed to understand `{line}`"))?;
        if let LintMessage::CompilerArtifact { package_id, fresh: false } = message {
            compiled.push(package_id);
        }
    }
    compiled.dedup();
    Ok(compiled)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn what_is_not_fresh_was_compiled() {
        let messages = r#"{"reason":"compiler-artifact","package_id":"a","fresh":true,"more":1}
{"reason":"build-script-executed","package_id":"b"}
{"reason":"compiler-artifact","package_id":"c","fresh":false}
{"reason":"compiler-artifact","package_id":"c","fresh":false}
{"reason":"build-finished","success":true}"#;
        assert_eq!(compiled(messages).unwrap(), ["c"]);
        assert!(compiled("no message").is_err());
    }
}
