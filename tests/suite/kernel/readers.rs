//! The same counts by every way to read a trace.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::common::skip::{Turn, installed, skip};
use crate::common::target::{Flavour, TESTS, Target};
use crate::common::{python, rtrace};
use crate::suite::kernel::ranks;

/// Records `shapes nested`; its counts are known.
fn record(folder: &TempDir) -> PathBuf {
    let target = Target::build("shapes", Flavour::Cet);
    let directory = folder.path().join("trace");
    rtrace::record(&target.selection(), &target.command("nested"), &directory);
    directory
}

const COUNTS: [(&str, u64); 3] = [("leaf", 3000), ("middle", 1000), ("outer", 1000)];

#[test]
fn pyarrow_duckdb_and_polars() {
    let Some(python) = python::interpreter() else { return };
    let Some(_turn) = Turn::take() else { return };
    let folder = TempDir::new().unwrap();
    let script = Path::new(TESTS).join("python/read_trace.py");
    let output = Command::new(python)
        .arg(script)
        .arg(record(&folder))
        .args(COUNTS.map(|(name, calls)| format!("{name}={calls}")))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The Python package and the SQL views say the same of calls with values and counters, and of several traces.
#[test]
fn python_package_and_views() {
    let Some(python) = python::with_package() else { return };
    let Some(_turn) = Turn::take() else { return };
    let folder = TempDir::new().unwrap();
    let directory = folder.path().join("trace");
    let options = [
        "--lib",
        "libc.so.6",
        "--func",
        "read",
        "--func",
        "write",
        "--func",
        "malloc",
        "--args",
        "--counters",
        "page-faults",
    ];
    rtrace::record(&options.map(str::to_owned), Command::new("cat").arg("/proc/self/maps"), &directory);
    let counts = rtrace::command().args(["report", "--format", "json"]).arg(&directory).output().unwrap();
    let counts: serde_json::Value = serde_json::from_slice(&counts.stdout).unwrap();
    let rows = counts["rows"].as_array().unwrap();
    let called = rows.iter().filter(|row| row["calls"] != 0);
    let count = |row: &serde_json::Value| format!("{}={}", row["function"].as_str().unwrap(), row["calls"]);
    let mut command = python;
    command.arg(Path::new(TESTS).join("python/read_package.py")).arg(&directory).args(called.map(count));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "3", "functions with values");
}

/// Every query of the documents is understood, and its columns are there.
#[test]
fn recipes() {
    let Some(mut python) = python::with_package() else { return };
    let Some(_turn) = Turn::take() else { return };
    let folder = TempDir::new().unwrap();
    std::fs::rename(record(&folder), folder.path().join("out.rtrace")).unwrap();
    ranks::record(&folder.path().join("job.rtrace"));
    let reads = ["--lib", "libc.so.6", "--func", "read", "--args"].map(str::to_owned);
    rtrace::record(&reads, Command::new("cat").arg("/proc/self/maps"), &folder.path().join("io.rtrace"));
    let output = python
        .arg(Path::new(TESTS).join("python/run_recipes.py"))
        .arg(Path::new(TESTS).join("../docs/recipes.md"))
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let queries = String::from_utf8_lossy(&output.stdout).trim().rsplit('\n').next().unwrap().parse::<u32>().unwrap();
    assert!(queries >= 10, "{queries}");
}

/// A copy of a trace as that of another rank.
fn copy_as_rank(from: &Path, to: &Path, rank: u32, size: u32) {
    assert!(Command::new("cp").args(["-r", "--"]).args([from, to]).status().unwrap().success());
    let file = to.join("trace.json");
    let mut manifest: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let of_rank = &mut manifest["header"]["rank"];
    (of_rank["rank"], of_rank["size"]) = (rank.into(), size.into());
    std::fs::write(&file, manifest.to_string()).unwrap();
}

/// Three engines have the figures of the report, of a job of 64 ranks.
#[test]
fn many_ranks() {
    const RANKS: u32 = 64;
    let Some(python) = python::interpreter() else { return };
    let Some(_turn) = Turn::take() else { return };
    let folder = TempDir::new().unwrap();
    let [job, many] = ["job", "many"].map(|name| folder.path().join(name));
    ranks::record(&job);
    std::fs::create_dir(&many).unwrap();
    for rank in 0..RANKS {
        let from = job.join(format!("rank-{:04}", rank % 2));
        copy_as_rank(&from, &many.join(format!("rank-{rank:04}")), rank, RANKS);
    }
    let columns = ["function", "calls", "timed", "exclusive_ns"];
    let report = rtrace::command().args(["report", "--format", "json"]).arg(&many).output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap();
    let called = report["rows"].as_array().unwrap().iter().filter(|row| row["calls"] != 0);
    let row = |row: &serde_json::Value| columns.map(|column| row[column].to_string().replace('"', "")).join(",");
    let mut expected: Vec<String> = called.map(row).collect();
    expected.sort();
    assert_eq!(expected.len(), COUNTS.len());
    assert!(expected[0].starts_with(&format!("leaf,{},", 3_000 * RANKS)), "{expected:?}");
    for engine in ["duckdb", "dask", "spark"] {
        let module = if engine == "spark" { "pyspark" } else { engine };
        let has_module = Command::new(&python).args(["-c", &format!("import {module}")]).output().unwrap();
        if !has_module.status.success() || (engine == "spark" && !installed(&["java"])) {
            skip(&format!("{module} is not installed"));
            continue;
        }
        let script = Path::new(TESTS).join("../examples/many_ranks.py");
        let output = Command::new(&python).arg(script).args([engine]).arg(&many).output().unwrap();
        assert!(output.status.success(), "{engine}: {}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some(&*columns.join(",")));
        assert_eq!(lines.collect::<Vec<_>>(), expected, "{engine}");
    }
}

#[test]
fn report_as_csv() {
    let Some(_turn) = Turn::take() else { return };
    let folder = TempDir::new().unwrap();
    let directory = record(&folder);
    let output = rtrace::command().arg("report").arg(directory).args(["--format", "csv"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let header = lines.next().unwrap();
    let column = |name: &str| header.iter().position(|&found| found == name).expect(name);
    let (function, calls) = (column("function"), column("calls"));
    let counts: BTreeMap<String, u64> =
        lines.map(|line| (line[function].to_owned(), line[calls].parse().unwrap())).filter(|&(_, n)| n > 0).collect();
    assert_eq!(counts, COUNTS.map(|(name, calls)| (name.to_owned(), calls)).into());
}
