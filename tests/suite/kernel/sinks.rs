//! Programs that get the calls while they happen.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use crate::common::recording::Recording;
use crate::common::skip::Turn;
use crate::common::target::{Flavour, TESTS, Target};
use crate::common::{python, rtrace};

/// Records `shapes nested` with a sink; what rtrace said.
fn record(sink: &str, directory: &Path) -> String {
    let target = Target::build("shapes", Flavour::Cet);
    let options = [target.selection(), vec!["--sink".into(), sink.into()]].concat();
    let output = rtrace::record(&options, &target.command("nested"), directory);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(Recording::open(directory).summary().calls, 5_000, "the trace is whole whatever the sink does");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn the_example_counts_every_call() {
    let Some(python) = python::interpreter() else { return };
    let Some(_turn) = Turn::take() else { return };
    let folder = TempDir::new().unwrap();
    let printed = folder.path().join("top");
    let example = Path::new(TESTS).join("../examples/top.py");
    let sink = format!("{} {} >{}", python.display(), example.display(), printed.display());
    let said = record(&sink, &folder.path().join("trace"));
    assert!(!said.contains("sink"), "{said}");
    let text = fs::read_to_string(printed).unwrap();
    let last = text.trim_end().rsplit("\n\n").next().unwrap();
    for (function, calls) in [("leaf", "3000"), ("middle", "1000"), ("outer", "1000")] {
        let row = last.lines().find(|line| line.ends_with(&format!(" {function}")));
        assert!(row.is_some_and(|row| row.split_whitespace().next() == Some(calls)), "{function} in {text}");
    }
}

#[test]
fn a_sink_that_dies_is_a_warning() {
    let Some(_turn) = Turn::take() else { return };
    let folder = TempDir::new().unwrap();
    let said = record("exit 3", &folder.path().join("trace"));
    assert!(said.contains("rtrace: sink `exit 3` did not get 5,000 calls"), "{said}");
    assert!(said.contains("rtrace: sink `exit 3` ended with status 3"), "{said}");
}
