//! Intel's MKL, of which every function begins with `endbr64`: from the Python package index, with the
//! layer of threads that needs no other package.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};

use super::subject::Worker;
use crate::python;

const REQUIREMENT: &str = "mkl==2026.2.0\n";

/// Gets the libraries, if they are not there.
///
/// # Errors
/// The package index cannot be reached.
pub fn prepare(folder: &Path) -> Result<()> {
    python::environment(&folder.join("mkl"), REQUIREMENT, &["--no-deps"])?;
    if !libraries(folder).join("libmkl_rt.so.3").exists() {
        bail!("failed to find libmkl_rt.so.3 in `{}`", libraries(folder).display());
    }
    Ok(())
}

/// Our program, calling MKL's short functions in one thread.
pub fn start(program: &Path, folder: &Path) -> Result<Worker> {
    let mut command = Command::new(program);
    command.env("LD_LIBRARY_PATH", libraries(folder));
    command.envs([("MKL_THREADING_LAYER", "SEQUENTIAL"), ("MKL_NUM_THREADS", "1")]);
    Worker::start(&mut command, "mkl 1 4000\n")
}

fn libraries(folder: &Path) -> PathBuf {
    folder.join("mkl/lib")
}
