//! Processes that a launcher started together become one trace.

use std::path::Path;
use std::process::{Command, Output};

use rtrace_exporters::TraceSet;
use serde_json::Value;
use tempfile::TempDir;

use crate::common::rtrace::{self, Attached, Waiting};
use crate::common::skip::{Turn, skip};
use crate::common::target::{self, Flavour, Target};
use crate::common::tries::in_one_of_some_tries;

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

/// A report as JSON.
fn report(directory: &Path, by: &str) -> Value {
    let output = rtrace(&["report", "--format", "json", "--by", by], &[directory]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// What a program tells of its ranks or threads: numbers behind a word, by the first of them.
fn told(output: &Output, word: &str) -> Vec<Vec<f64>> {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let lines = text.lines().filter_map(|line| line.strip_prefix(word));
    let mut told: Vec<Vec<f64>> =
        lines.map(|line| line.split_whitespace().map(|number| number.parse().unwrap()).collect()).collect();
    told.sort_by(|a, b| a[0].total_cmp(&b[0]));
    told
}

fn row(report: &Value, key: &str, number: f64) -> impl Fn(&str) -> f64 {
    let rows = report["rows"].as_array().unwrap().clone();
    let row = rows.into_iter().find(|row| row[key].as_f64() == Some(number)).expect("the row is there");
    move |figure| row[figure].as_f64().unwrap_or_else(|| panic!("no {figure} in {row}"))
}

/// Equal but for a part of the greater one.
#[track_caller]
fn near(a: f64, b: f64, part: f64, what: &str) {
    assert!((a - b).abs() <= part * a.max(b), "{what}: {a} and {b}");
}

/// Times in nanoseconds that are equal within 1 %, but for what probes take between two readings of the clock.
fn same_time(a: f64, b: f64, what: &str) -> Result<(), String> {
    if (a - b).abs() <= 0.01 * a.max(b) + 1e6 { Ok(()) } else { Err(format!("{what}: {a} and {b}")) }
}

#[track_caller]
fn note(report: &Value, start: &str) -> String {
    let notes = report["notes"].as_array().unwrap();
    let found = notes.iter().filter_map(Value::as_str).find(|note| note.starts_with(start));
    found.unwrap_or_else(|| panic!("{notes:?}")).to_owned()
}

#[test]
fn ranks_of_mpi_wait_as_long_as_they_say() {
    let Some(program) = target::job() else { return skip("mpicc is not installed") };
    let Some(_turn) = Turn::take() else { return };
    // A rank that has spun loses its CPU as a call returns: rtrace takes that for work, and the rank for waiting.
    in_one_of_some_tries(5, || wait_as_long_as_they_say(&program));
}

fn wait_as_long_as_they_say(program: &Path) -> Result<(), String> {
    let folder = TempDir::new().unwrap();
    let directory = folder.path().join("job");
    let mut mpirun = Command::new("mpirun");
    mpirun.args(["--allow-run-as-root", "--oversubscribe", "-n", "4", "--"]);
    mpirun.arg(rtrace::command().get_program()).args(["run", "--no-tui", "--lib", "libmpi.so.40", "--func", "MPI_*"]);
    mpirun.arg("--args");
    let output = mpirun.arg("-o").arg(&directory).arg("--").arg(program).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (ranks, entered) = (told(&output, "rank "), told(&output, "entered "));
    assert_eq!((ranks.len(), entered.len()), (4, 4));
    // Until the last rank has entered, or the root of the broadcast.
    let waited = |rank: f64, operations: std::ops::Range<usize>| -> f64 {
        let last = |operation: usize| entered.iter().map(|of| of[1 + operation]).fold(0.0, f64::max);
        operations.map(|operation| last(operation) - entered[rank as usize][1 + operation]).sum()
    };
    let late_broadcast = |rank: f64| (entered[0][11] - entered[rank as usize][11]).max(0.0);

    let report = report(&directory, "rank");
    for rank in &ranks {
        let &[number, work, barriers, sums, messages, late] = &rank[..] else { panic!("{rank:?}") };
        let row = row(&report, "rank", number);
        same_time(row("waiting_barrier_ns"), waited(number, 0..5), &format!("barriers of {number}"))?;
        let sums_waited = waited(number, 5..10) + late_broadcast(number);
        same_time(row("waiting_collective_ns"), sums_waited, &format!("sums of {number}"))?;
        let transfer = row("transfer_ns");
        // Ranks that spin take each other's CPU between readings of the clock.
        let receiving = row("waiting_receive_ns");
        if !(0.99 * late..messages + 1e6).contains(&receiving) {
            return Err(format!("messages of {number}: {receiving}, {messages}, {late}"));
        }
        let useful = row("useful_ns");
        same_time(useful, work, &format!("work of {number}"))?;
        let (all, share) = (row("waiting_ns"), row("waiting_share"));
        assert!((share - all / (all + useful + transfer)).abs() < 2e-6, "{share}: {all}, {transfer} and {useful}");
        // Between readings of the clock around a message there is little else than the probes.
        let (least, most) = (0.99 * (barriers + sums) - 2e6, barriers + sums + messages + 1e6);
        if !(least..most).contains(&(all + transfer)) {
            return Err(format!("all calls of {number}: {all} and {transfer}, {barriers}, {sums} and {messages}"));
        }
        let kinds =
            ["barrier", "receive", "collective", "communication"].map(|kind| row(&format!("waiting_{kind}_ns")));
        assert_eq!(kinds.iter().sum::<f64>(), all, "{kinds:?}");
    }
    let late = ranks[1][5];
    if !(0.9 * 300e6..1.1 * 300e6).contains(&late) {
        return Err(format!("the program waited for late senders for {late} ns"));
    }
    assert!(note(&report, "balance: ").starts_with("balance: rank 3 does the most work"), "{report}");

    messages_are_those_that_were_sent(&directory, &output, late)?;

    // By the formulae of POP, from what the rows have.
    let useful: Vec<f64> = (0..4).map(|rank| row(&report, "rank", f64::from(rank))("useful_ns")).collect();
    let (mean, most) = (useful.iter().sum::<f64>() / 4.0, useful[3]);
    let runtime = report["efficiency"]["runtime_ns"].as_f64().unwrap();
    for (figure, expected) in [
        ("load_balance", mean / most),
        ("communication_efficiency", most / runtime),
        ("parallel_efficiency", mean / runtime),
    ] {
        near(report["efficiency"][figure].as_f64().unwrap(), expected, 1e-5, figure);
    }
    Ok(())
}

/// The matrix of a job is what it tells of itself.
fn messages_are_those_that_were_sent(directory: &Path, output: &Output, late: f64) -> Result<(), String> {
    let report = report(directory, "peer");
    let rows = report["rows"].as_array().unwrap();
    let keys = ["source", "target", "messages", "bytes"];
    let mut reported: Vec<_> = rows.iter().map(|row| keys.map(|key| row[key].as_f64().unwrap())).collect();
    reported.sort_by(|a, b| a.partial_cmp(b).unwrap());
    let mut sent = told(output, "sent ");
    sent.sort_by(|a, b| a.partial_cmp(b).unwrap());
    assert_eq!(reported.iter().map(|row| row.to_vec()).collect::<Vec<_>>(), sent);
    let of_late = rows.iter().find(|row| row["source"] == 0 && row["target"] == 1).unwrap();
    same_time(of_late["late_sender_ns"].as_f64().unwrap(), late, "late senders")?;
    assert_eq!(of_late["mean_bytes"].as_f64().unwrap(), reported[0][3] / reported[0][2]);
    let page = directory.with_extension("html");
    let written = rtrace(&["report", "--html", page.to_str().unwrap()], &[directory]);
    assert!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));
    let page = std::fs::read_to_string(page).unwrap();
    let data = page.split("id=\"data\">").nth(1).and_then(|data| data.split("</script>").next()).unwrap();
    let data: Value = serde_json::from_str(data).unwrap();
    let cells: Vec<Vec<f64>> = serde_json::from_value(data["messages"]["cells"].clone()).unwrap();
    assert_eq!(cells, sent);
    let sizes = rtrace(&["report", "--format", "csv", "--by", "peer", "--histogram", "arg:mpi_bytes"], &[directory]);
    let sizes = String::from_utf8(sizes.stdout).unwrap();
    // 2 messages of rank 1 to rank 3 have 401 bytes.
    assert!(sizes.lines().any(|row| row.starts_with("256,512,2,1.000000,1,3,")), "{sizes}");
    Ok(())
}

#[test]
fn threads_of_openmp_share_the_work_as_they_say() {
    let Some(_turn) = Turn::take() else { return };
    let folder = TempDir::new().unwrap();
    let directory = folder.path().join("trace");
    let options = ["--lib", "libgomp.so.1"].map(str::to_owned);
    let output = rtrace::record(&options, &Command::new(target::team()), &directory);
    let threads = told(&output, "thread ");
    assert_eq!(threads.len(), 4);
    let report = report(&directory, "thread");
    for thread in &threads {
        let &[tid, work, barriers] = &thread[..] else { panic!("{thread:?}") };
        let row = row(&report, "tid", tid);
        same_time(row("waiting_barrier_ns"), barriers, &format!("barriers of {tid}")).unwrap();
        let useful = row("useful_ns");
        assert!((work..work + 0.2e9).contains(&useful), "{tid} worked {work}, reported {useful}");
    }
    let last = threads.iter().max_by(|a, b| a[1].total_cmp(&b[1])).unwrap();
    let said = note(&report, "balance: ");
    assert!(said.starts_with(&format!("balance: thread {} does the most work", last[0])), "{said}");
    assert!(note(&report, "efficiency: ").contains("load balance"), "{report}");
}

#[test]
fn ranks_that_are_attached_to_are_known() {
    let Some(_turn) = Turn::take() else { return };
    let target = Target::build("shapes", Flavour::Cet);
    let mut ranks = [5, 2].map(|rank: u32| {
        let mut program = target.command("nested");
        program.env("OMPI_COMM_WORLD_RANK", rank.to_string()).env("OMPI_COMM_WORLD_SIZE", "8");
        Waiting::start(&mut program)
    });
    let other = ["-p".to_owned(), ranks[1].pid().to_string()];
    let attached = Attached::start(ranks[0].pid(), &[target.selection(), other.to_vec()].concat());
    ranks.iter_mut().for_each(Waiting::go);
    let pids: Vec<u32> = ranks.iter().map(Waiting::pid).collect();
    ranks.into_iter().for_each(|rank| assert!(rank.finish().status.success()));
    let folder = attached.leave();
    let report = report(&folder.path().join("trace"), "rank");
    let rows = report["rows"].as_array().unwrap();
    let ranks: Vec<_> = rows.iter().map(|row| ["rank", "pid", "calls"].map(|key| row[key].as_u64().unwrap())).collect();
    assert_eq!(ranks, [[2, pids[1].into(), 5_000], [5, pids[0].into(), 5_000]]);
}

#[test]
fn the_ranks_below_a_launcher_are_attached_to() {
    let Some(_turn) = Turn::take() else { return };
    let script = "OMPI_COMM_WORLD_RANK=1 sleep 60 & OMPI_COMM_WORLD_RANK=0 sleep 60 & sleep 60 & wait";
    let mut launcher = Command::new("sh").args(["-c", script]).spawn().unwrap();
    let pid = launcher.id().to_string();
    let below = || {
        let pids = Command::new("pgrep").args(["-P", &pid, "-x", "sleep"]).output().unwrap().stdout;
        String::from_utf8(pids).unwrap().lines().map(str::to_owned).collect::<Vec<_>>()
    };
    while below().len() < 3 {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let folder = TempDir::new().unwrap();
    let directory = folder.path().join("trace");
    let mut attach = rtrace::command();
    attach.args(["attach", "--no-tui", "--job", "-p", &pid, "--lib", "libc.so.6", "--func", "nanosleep"]);
    let output = attach.args(["--duration", "1s", "-o"]).arg(&directory).output().unwrap();
    below().iter().for_each(|pid| _ = Command::new("kill").arg(pid).status().unwrap());
    launcher.wait().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let set = TraceSet::open(&directory).unwrap();
    let mut ranks: Vec<_> = set.processes().iter().map(|process| process.rank).collect();
    ranks.sort_unstable();
    assert_eq!(ranks, [Some(0), Some(1)]);
}
