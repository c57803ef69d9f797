//! Python with the libraries that read traces.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::skip::skip;
use super::target::TESTS;

/// The interpreter; `None`, with the reason printed, where it was not prepared.
pub fn interpreter() -> Option<PathBuf> {
    let python = Path::new(TESTS).join("../target/venv/bin/python");
    if !python.exists() {
        skip("no Python environment; `cargo xtask test` makes it");
        return None;
    }
    Some(python)
}

/// The same with the package of the tree, which finds this rtrace.
pub fn with_package() -> Option<Command> {
    let mut command = Command::new(interpreter()?);
    command.env("PYTHONPATH", Path::new(TESTS).join("../python"));
    command.env("RTRACE", super::rtrace::command().get_program());
    Some(command)
}
