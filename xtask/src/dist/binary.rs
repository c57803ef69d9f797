//! The binary: linked statically with the C library of glibc, so that it runs where there is no other file.
//!
//! glibc, not musl: libelf needs interfaces that musl does not have (argp, fts, obstack), and Debian's `libelf.a` and
//! `libz.a` are compiled for glibc. Nothing in rtrace asks the name service, which a static glibc would load as a module.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::process;

const TARGET: &str = "x86_64-unknown-linux-gnu";
const PROFILE: &str = "dist";
/// No larger than this, in bytes.
const LARGEST: u64 = 20 << 20;

/// Builds rtrace from these sources.
///
/// # Errors
/// It does not compile, needs a shared library, or is too large.
pub fn build(source: &Path, target: &Path) -> Result<PathBuf> {
    let home = std::env::var("CARGO_HOME").or_else(|_| std::env::var("HOME").map(|home| home + "/.cargo"));
    let home = home.context("failed to find cargo's folder: HOME is not set")?;
    let places =
        [(home, "/cargo"), (source.display().to_string(), "/rtrace"), (target.display().to_string(), "/target")];
    let mapped = |option: &str| places.iter().map(|(from, to)| format!("{option}={from}={to}")).collect::<Vec<_>>();
    let rust = [vec!["-Ctarget-feature=+crt-static".to_owned()], mapped("--remap-path-prefix")].concat();
    let mut cargo =
        process::cargo(&["rustc", "--locked", "--bin=rtrace", "--package=rtrace-cli", "--features=rtrace-bpf/static"]);
    cargo.args([format!("--profile={PROFILE}"), format!("--target={TARGET}")]).current_dir(source);
    cargo.env("CARGO_TARGET_DIR", target).env("CARGO_INCREMENTAL", "0");
    cargo.env("CARGO_ENCODED_RUSTFLAGS", rust.join("\u{1f}")).env("CFLAGS", mapped("-ffile-prefix-map").join(" "));
    cargo.env("LIBBPF_SYS_LIBRARY_PATH", static_libraries()?);
    // The addresses that a position-independent program adjusts take a tenth of the room then.
    cargo.args(["--", "-Clink-arg=-Wl,-z,pack-relative-relocs"]);
    process::run(&mut cargo)?;
    let linked = target.join(TARGET).join(PROFILE).join("rtrace");
    let binary = linked.with_extension("stripped");
    process::run(Command::new("strip").arg("-o").arg(&binary).arg(&linked))?;
    let size = fs::metadata(&binary).with_context(|| format!("failed to find `{}`", binary.display()))?.len();
    let dynamic =
        process::output(Command::new("readelf").args(["--dynamic", "--program-headers", "--wide"]).arg(&binary))?;
    if dynamic.contains("(NEEDED)") || dynamic.contains("INTERP") {
        bail!("failed to link `{}` statically:\n{dynamic}", binary.display());
    }
    if size > LARGEST {
        bail!("failed to keep `{}` small: it has {size} bytes, at most {LARGEST}", binary.display());
    }
    println!("`{}` has {size} bytes and needs no shared library", binary.display());
    Ok(binary)
}

/// The folder where the C compiler finds `libelf.a`.
fn static_libraries() -> Result<PathBuf> {
    let file = process::output(Command::new("cc").arg("-print-file-name=libelf.a"))?;
    let folder = Path::new(file.trim()).parent().map(fs::canonicalize);
    match folder {
        Some(Ok(folder)) if file.contains('/') => Ok(folder),
        _ => bail!("failed to find `libelf.a`\n\nhint: sudo apt-get install --yes libelf-dev"),
    }
}
