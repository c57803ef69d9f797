//! `cargo xtask fuzz [TARGET]`: what reads foreign files, and the shadow stack, under inputs that
//! nobody thought of.
//!
//! Inputs that led somewhere new stay in `target/fuzz/corpus` and are where the next run begins;
//! those that broke something are put into `target/fuzz/findings`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};

use crate::{files, packages, process};

/// The programs of the package in `fuzz/`.
pub const TARGETS: [&str; 6] = ["elf", "plan", "signatures", "stack", "trace", "wire"];

/// The targets whose input is an ELF file.
const OF_ELF: [&str; 3] = ["elf", "plan", "signatures"];

/// Sources of the first ELF files, with flags of their own.
const SEEDS: [(&str, &[&str]); 6] = [
    ("fuzz/seeds/switch.c", &[]),
    ("fuzz/seeds/types.cpp", &["-g"]),
    ("tests/targets/exceptions.cpp", &[]),
    ("tests/targets/jumps.c", &["-s"]),
    ("tests/targets/libnames.c", &["-Wl,--version-script=tests/targets/libnames.map"]),
    ("tests/targets/shapes.c", &["-Wl,--hash-style=sysv"]),
];

/// Files of a few kilobytes: most of a usual one is room between pages.
const SMALL: [&str; 6] =
    ["-O2", "-w", "-shared", "-fPIC", "-nostdlib", "-Wl,-z,noseparate-code,-z,max-page-size=64,-z,common-page-size=64"];

/// What an input may take; more is a finding. Inputs need not grow slowly, as targets bound their work.
const LIMITS: [&str; 3] = ["-timeout=10", "-rss_limit_mb=2048", "-len_control=0"];

const TRIPLE: &str = "x86_64-unknown-linux-gnu";

/// Runs one target or all of them, each for a time.
///
/// # Errors
/// An input broke something, or took more than it may.
pub fn run(target: Option<&str>, seconds: u64) -> Result<()> {
    packages::require(&[packages::BUILD, &["g++"]].concat())?;
    require_cargo_fuzz()?;
    make_seeds()?;
    build(target)?;
    let mut broken = Vec::new();
    for name in TARGETS.into_iter().filter(|&name| target.is_none_or(|wanted| wanted == name)) {
        println!();
        if let Err(error) = search(name, seconds) {
            println!("{error:#}");
            broken.push(name);
        }
    }
    if !broken.is_empty() {
        let findings = folder("findings")?;
        bail!("failed to leave {} unbroken: the inputs are in `{}`", broken.join(", "), findings.display());
    }
    Ok(())
}

fn require_cargo_fuzz() -> Result<()> {
    if process::output(&mut process::cargo(&["fuzz", "--version"])).is_ok() {
        return Ok(());
    }
    println!("installing cargo-fuzz");
    process::run(&mut process::cargo(&["install", "--locked", "cargo-fuzz"]))
}

fn make_seeds() -> Result<()> {
    let seeds = folder("seeds")?;
    for (source, flags) in SEEDS {
        let name = Path::new(source).with_extension("so");
        let file = seeds.join(name.file_name().expect("it is the name of a file"));
        let mut compiler = Command::new("gcc");
        compiler.current_dir(crate::root()).arg(source).args(SMALL).args(flags);
        process::run(compiler.arg("-o").arg(file))?;
    }
    Ok(())
}

fn build(target: Option<&str>) -> Result<()> {
    let mut cargo = process::cargo(&["fuzz", "build", "--fuzz-dir=fuzz", "--target", TRIPLE, "--target-dir"]);
    cargo.arg(folder("")?).args(target);
    // Sanitizers are an unstable feature, and the compiler a stable one.
    process::run(cargo.env("RUSTC_BOOTSTRAP", "1"))
}

fn search(name: &str, seconds: u64) -> Result<()> {
    let findings = folder("findings")?.join(format!("{name}-"));
    let temporary = folder("tmp")?;
    let mut fuzzer = Command::new(folder(TRIPLE)?.join("release").join(name));
    fuzzer.args(LIMITS).arg(format!("-max_total_time={seconds}"));
    fuzzer.arg(format!("-artifact_prefix={}", findings.display()));
    fuzzer.arg(folder(&format!("corpus/{name}"))?);
    if OF_ELF.contains(&name) {
        fuzzer.arg(folder("seeds")?);
    }
    if name == "signatures" {
        fuzzer.arg(crate::root().join("tracer/signatures/table"));
    }
    let result = process::run(fuzzer.env("TMPDIR", &temporary).env("RUST_BACKTRACE", "1"));
    // The fuzzer ends without tidying up.
    files::removed(temporary)?;
    result
}

/// A folder of what fuzzing needs and leaves.
fn folder(name: &str) -> Result<PathBuf> {
    files::folder(process::target_directory().join("fuzz").join(name))
}
