//! The notebooks run on traces that were just made.

use std::path::Path;

use tempfile::TempDir;

use crate::common::skip::Turn;
use crate::common::target::{Flavour, TESTS, Target};
use crate::common::{python, rtrace};

/// Runs a notebook on traces named by variables, each of a program's scenario that was recorded with
/// these options; it must draw so many pictures.
fn run(notebook: &str, program: &str, options: &[String], traces: &[(&str, &str)], pictures: u32) {
    let Some(mut command) = python::with_package() else { return };
    let Some(_turn) = Turn::take() else { return };
    let folder = TempDir::new().unwrap();
    let target = Target::build(program, Flavour::Cet);
    let options = [&target.selection()[..], options].concat();
    command.arg(Path::new(TESTS).join("python/run_notebook.py"));
    command.arg(Path::new(TESTS).join("../notebooks").join(notebook));
    for (variable, scenario) in traces {
        let directory = folder.path().join(variable);
        rtrace::record(&options, &target.command(scenario), &directory);
        command.env(variable, directory);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), pictures.to_string());
}

#[test]
fn first_look() {
    run("first_look.ipynb", "shapes", &[], &[("RTRACE_TRACE", "nested")], 8);
}

#[test]
fn compare() {
    run("compare.ipynb", "shapes", &[], &[("RTRACE_BEFORE", "nested"), ("RTRACE_AFTER", "nested")], 2);
}

#[test]
fn beside_the_calls() {
    let plugin = ["--metric-plugin".to_owned(), format!("{TESTS}/../examples/metric_plugin.py")];
    run("beside_the_calls.ipynb", "counted", &plugin, &[("RTRACE_TRACE", "costs")], 1);
}
