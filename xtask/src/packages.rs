//! Debian packages that a task needs: what is missing is named first, and installed by root only.

use std::process::Command;

use anyhow::{Result, bail, ensure};

use crate::process;

/// What building rtrace needs beside Rust: the compiler of BPF programs, and what libbpf needs.
pub const BUILD: &[&str] = &["clang", "gcc", "libc6-dev", "libelf-dev", "make", "pkg-config", "zlib1g-dev"];

/// What the demonstration traces.
pub const DEMO: &[&str] = &["libfftw3-dev"];

/// What takes pictures of pages.
pub const SCREENS: &[&str] = &["chromium"];

/// What the tests trace, and the programs that judge the results.
pub const TEST: &[&str] = &[
    "binutils",
    "bpftrace",
    "chromium",
    "default-jre-headless",
    "exiv2",
    "g++",
    "gdb",
    "gfortran",
    "git",
    "golang-go",
    "libfftw3-dev",
    "libmpich-dev",
    "libopenblas-dev",
    "libopenmpi-dev",
    "libsqlite3-dev",
    "libssl-dev",
    "libxml2-utils",
    "mpich",
    "nodejs",
    "openmpi-bin",
    "openssl",
    "otf2-tools",
    "python3",
    "python3-mpi4py",
    "python3-otf2",
    "python3-venv",
    "qemu-user",
    "qpdf",
    "qtbase5-dev",
    "sqlite3",
    "tmux",
    "valgrind",
    "xz-utils",
];

/// What the benchmarks trace, and what they compare with.
pub const BENCH: &[&str] = &[
    "bpftrace",
    "ca-certificates",
    "libfftw3-dev",
    "libgomp1",
    "libqt5widgets5",
    "python3",
    "python3-venv",
    "sqlite3",
];

/// Whether this process may install packages and trace.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Refuses to go on where this process is not root, which alone may do that.
///
/// # Errors
/// It is not.
pub fn require_root(action: &str) -> Result<()> {
    ensure!(is_root(), "failed to {action}\n\nhint: run it as root");
    Ok(())
}

/// Installs what of `packages` is missing.
///
/// # Errors
/// Something is missing and we are not root: the error holds the command to run.
pub fn require(packages: &[&str]) -> Result<()> {
    let missing: Vec<&str> = packages.iter().copied().filter(|package| !installed(package)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    if !is_root() {
        bail!("packages are missing\n\nhint: sudo apt-get install --yes {}", missing.join(" "));
    }
    println!("installing {}", missing.join(" "));
    process::run(apt_get().arg("update"))?;
    process::run(apt_get().args(["install", "--yes", "--no-install-recommends"]).args(&missing))
}

fn installed(package: &str) -> bool {
    let query = Command::new("dpkg-query").args(["--show", "--showformat=${db:Status-Status}", package]).output();
    query.is_ok_and(|output| output.stdout == b"installed")
}

fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    command.arg("--quiet").env("DEBIAN_FRONTEND", "noninteractive");
    command
}
