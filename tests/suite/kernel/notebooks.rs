//! The notebooks run on traces that were just made.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::common::skip::Turn;
use crate::common::target::{Flavour, TESTS, Target};
use crate::common::{python, rtrace};

/// Runs a notebook with traces named by variables; it must draw so many pictures.
fn run(notebook: &str, traces: &[(&str, &str)], pictures: u32) {
    let Some(python) = python::interpreter() else { return };
    let Some(_turn) = Turn::take() else { return };
    let folder = TempDir::new().unwrap();
    let target = Target::build("shapes", Flavour::Cet);
    let mut command = Command::new(python);
    command.arg(Path::new(TESTS).join("python/run_notebook.py"));
    command.arg(Path::new(TESTS).join("../notebooks").join(notebook));
    for (variable, scenario) in traces {
        let directory = folder.path().join(variable);
        rtrace::record(&target.selection(), &target.command(scenario), &directory);
        command.env(variable, directory);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), pictures.to_string());
}

#[test]
fn first_look() {
    run("first_look.ipynb", &[("RTRACE_TRACE", "nested")], 4);
}

#[test]
fn compare() {
    run("compare.ipynb", &[("RTRACE_BEFORE", "nested"), ("RTRACE_AFTER", "nested")], 2);
}
