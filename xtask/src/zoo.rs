//! `cargo xtask zoo [--times NUMBER] [NAME…]`: installs what the programs of the zoo need, and lets the tests run them.

use anyhow::{Context as _, Result};
use serde::Deserialize;

use crate::{files, packages, process};

/// What this needs to know of the list; `tests/suite/zoo/list.rs` reads the rest.
#[derive(Deserialize)]
struct ZooList {
    program: Vec<ZooProgram>,
}

#[derive(Deserialize)]
struct ZooProgram {
    name: String,
    #[serde(default)]
    packages: Vec<String>,
}

/// Lets the programs of these names run, or all, which also writes `docs/zoo.md`; each so many times.
///
/// # Errors
/// We are not root; something is not as expected.
pub fn run(names: &[String], times: Option<u32>) -> Result<()> {
    packages::require_root("trace the programs of the zoo")?;
    packages::require(&[packages::BUILD, &["g++"]].concat())?;
    let list = files::read(&crate::root().join("tests/zoo/zoo.toml"))?;
    let ZooList { program } = toml::from_str(&list).context("failed to parse the zoo's list")?;
    for ZooProgram { name, packages } in program {
        if names.is_empty() || names.contains(&name) {
            let packages: Vec<&str> = packages.iter().map(String::as_str).collect();
            // The table says what does not run without them.
            packages::require(&packages).unwrap_or_else(|error| println!("{name}: {error:#}"));
        }
    }
    let test =
        ["test", "--package", "rtrace-cli", "--test", "integration", "zoo::programs", "--", "--ignored", "--nocapture"];
    let mut test = process::cargo(&test);
    test.env("ZOO", names.join(" "));
    if let Some(times) = times {
        test.env("ZOO_TIMES", times.to_string());
    }
    process::run(&mut test)
}
