//! Processes that a launcher started together become one trace.

use std::path::Path;
use std::process::Output;

use rtrace_exporters::TraceSet;
use tempfile::TempDir;

use crate::common::rtrace;
use crate::common::skip::Turn;
use crate::common::target::{Flavour, Target};

/// Records `shapes nested` as each of two ranks, as MPICH's launcher would start them.
pub(super) fn record(directory: &Path) {
    let target = Target::build("shapes", Flavour::Cet);
    for rank in ["0", "1"] {
        let mut program = target.command("nested");
        program.env("PMI_RANK", rank).env("PMI_SIZE", "2");
        let mut command = rtrace::command();
        command.args(["run", "--no-tui"]).args(target.selection()).arg("-o").arg(directory).arg("--");
        let output = crate::common::launch::under(command, &program);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

fn rtrace(verb: &[&str], directories: &[&Path]) -> Output {
    rtrace::command().args(verb).args(directories).output().unwrap()
}

#[test]
fn ranks_are_reported_compared_and_told_about_as_one() {
    let Some(_turn) = Turn::take() else { return };
    let folder = TempDir::new().unwrap();
    let job = folder.path().join("job");
    record(&job);

    let set = TraceSet::open(&job).unwrap();
    let ranks: Vec<_> = set.traces().map(|trace| trace.header().rank.clone().unwrap()).collect();
    assert_eq!(ranks.iter().map(|rank| (rank.rank, rank.size)).collect::<Vec<_>>(), [(0, Some(2)), (1, Some(2))]);
    assert_eq!(set.libraries().len(), 1, "both ranks use the same library");
    assert_eq!(set.summary().unwrap().calls, 2 * 5_000);

    let report = rtrace(&["report", "--format", "csv", "--columns", "calls"], &[&job]);
    let text = String::from_utf8(report.stdout).unwrap();
    for (function, calls) in [("leaf", 6_000), ("middle", 2_000), ("outer", 2_000)] {
        let row = text.lines().find(|line| line.ends_with(&format!(",{function}")));
        assert!(row.is_some_and(|row| row.starts_with(&format!("{calls},"))), "{function} in {text}");
    }

    // A job and its first rank: twice the calls, of the same functions.
    let diff = rtrace(&["diff", "--format", "json", "--fail-on-regression", "50"], &[&job.join("rank-0000"), &job]);
    assert_eq!(diff.status.code(), Some(1), "{}", String::from_utf8_lossy(&diff.stderr));
    let diff: serde_json::Value = serde_json::from_slice(&diff.stdout).unwrap();
    let leaf = diff["rows"].as_array().unwrap().iter().find(|row| row["function"] == "leaf").unwrap();
    assert_eq!((leaf["calls_a"].as_u64(), leaf["calls_b"].as_u64()), (Some(3_000), Some(6_000)));
    let same = rtrace(&["diff", "--fail-on-regression", "1"], &[&job, &job]);
    assert_eq!(same.status.code(), Some(0), "{}", String::from_utf8_lossy(&same.stdout));

    let info: serde_json::Value = serde_json::from_slice(&rtrace(&["info", "--json"], &[&job]).stdout).unwrap();
    assert_eq!(info["calls"], 10_000);
    assert_eq!(info["recordings"][1]["rank"], 1);
    assert_eq!(info["recordings"][1]["status"], "finished");
}
