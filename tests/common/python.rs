//! Python with the libraries that read traces.

use std::path::{Path, PathBuf};

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
