//! The Python environment in `target/venv`: it has the libraries that read traces in the tests.

use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::process;

/// Readers of Parquet, what the notebooks draw and are run with, and MPI for Python that works with MPICH.
const REQUIREMENTS: &str = "pyarrow==26.0.1\nduckdb==2.0.0\npolars==2.1.0\n\
    pandas==3.1.1\nmatplotlib==3.11.2\nnbclient==0.11.0\nipykernel==7.4.0\n\
    perfetto==0.59.1\nprotobuf==7.36.2\npycubexr==2.1.1\ndask[dataframe]==2026.8.0\npyspark==4.3.0\nmpi4py==4.1.2\n";

/// Makes the environment, or brings it up to date.
///
/// # Errors
/// The Python package index cannot be reached, for example.
pub fn prepare() -> Result<()> {
    let venv = crate::root().join("target/venv");
    let stamp = venv.join("requirements.txt");
    if fs::read_to_string(&stamp).is_ok_and(|present| present == REQUIREMENTS) {
        return Ok(());
    }
    println!("installing {} into {}", REQUIREMENTS.trim().replace('\n', " "), venv.display());
    process::run(Command::new("/usr/bin/python3").args(["-m", "venv", "--clear"]).arg(&venv))?;
    let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
    process::run(Command::new(venv.join("bin/python")).args(install).args(REQUIREMENTS.lines()))?;
    fs::write(&stamp, REQUIREMENTS).with_context(|| format!("failed to write `{}`", stamp.display()))
}
