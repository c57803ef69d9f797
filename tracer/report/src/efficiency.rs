//! How threads, processes and ranks share the work, and how efficient that is.
//!
//! The measures are those of the POP project (Performance Optimisation and Productivity, *POP Standard Metrics for
//! Parallel Performance Analysis*). Of each thread or rank, the *useful* time is what it spends outside of the parallel
//! runtime, which is its lifetime without waiting and transfer. A rank lives from the end of `MPI_Init` to the start of `MPI_Finalize`.
//! With the lifetime *T* of the one that lives longest:
//!
//! - load balance = mean(useful) / max(useful)
//! - communication efficiency = max(useful) / T
//! - parallel efficiency = load balance × communication efficiency = mean(useful) / T
//!
//! A process or rank with several threads goes by their mean, as POP has it for hybrid programs.

use std::collections::HashMap;
use std::sync::LazyLock;

use rtrace_model::{LocationId, Wait, counted, format_ns};
use serde::Serialize;

use super::By;
use super::grouping::Grouping;
use super::key::{RowId, UNKNOWN};
use super::people::Note;
use super::table::{Column, Datum, SUM, Shown, Table};

/// A thread that does little but wait for the end of others has no share of the work: of its time, one part of so many
/// may be anything else.
const OTHERWISE: u64 = 10;

/// Exclusive time in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ExclusiveTime {
    pub(super) working: u64,
    /// Time in functions that wait, by [`Wait`].
    pub(super) waits: [u64; Wait::ALL.len()],
    /// Time off a CPU in others.
    pub(super) off_cpu: u64,
    /// Time in functions that wait for other ranks when these had come.
    pub(super) transfer: u64,
    /// The part of `working` that is in functions of no programming model.
    pub(super) computing: u64,
}

impl ExclusiveTime {
    pub(super) fn add(&mut self, other: ExclusiveTime) {
        self.working = self.working.saturating_add(other.working);
        self.waits.iter_mut().zip(other.waits).for_each(|(sum, of)| *sum = sum.saturating_add(of));
        self.off_cpu = self.off_cpu.saturating_add(other.off_cpu);
        self.transfer = self.transfer.saturating_add(other.transfer);
        self.computing = self.computing.saturating_add(other.computing);
    }

    /// The same where so much of that waiting is transfer.
    pub(super) fn transferring(mut self, wait: Wait, transfer: u64) -> ExclusiveTime {
        let waiting = &mut self.waits[wait as usize];
        let transfer = transfer.min(*waiting);
        *waiting -= transfer;
        self.transfer = self.transfer.saturating_add(transfer);
        self
    }

    /// All that is no work.
    fn communicating(&self) -> u64 {
        self.waiting().saturating_add(self.transfer)
    }

    pub(super) fn waiting(&self) -> u64 {
        self.waits.iter().fold(self.off_cpu, |sum, of| sum.saturating_add(*of))
    }
}

/// What is known of a thread.
#[derive(Clone, Copy, Default)]
pub(super) struct ThreadTime {
    /// Of its calls.
    pub(super) time: ExclusiveTime,
    /// How long it lived while it was recorded, in nanoseconds.
    pub(super) life: Option<u64>,
    /// The part of that in which it may have worked: a thread of a team does so in its team only.
    pub(super) active: Option<u64>,
    /// Whether it called functions of a programming model whose threads work together.
    pub(super) is_of_job: bool,
}

/// What a row's threads do.
#[derive(Clone, Copy, Debug, Default)]
struct RowTime {
    threads: u64,
    time: ExclusiveTime,
    /// The longest lifetime.
    life: u64,
    /// Time outside of waiting, of all threads together.
    useful: u64,
}

impl RowTime {
    fn is_only_joining(&self) -> bool {
        let joining = self.time.waits[Wait::Join as usize];
        let other = (self.time.working + self.time.communicating()).saturating_sub(joining);
        joining > 0 && other.saturating_mul(OTHERWISE) <= joining
    }

    /// The useful time of one of its threads in the mean.
    fn share(&self) -> f64 {
        self.useful as f64 / self.threads.max(1) as f64
    }
}

/// How rows share the work.
pub(super) struct WorkShares {
    rows: HashMap<RowId, RowTime>,
    /// Whether the useful time is all time outside of waiting; else it is that of the functions that are traced.
    is_by_life: bool,
    untimed: u64,
}

/// How even the work is.
pub(super) struct Balance {
    /// max/mean ratio of the work; 1 is even. Absent if all only wait.
    pub(super) ratio: Option<f64>,
    /// The name of the row that does the most work, and the word for such a row.
    pub(super) busiest: String,
    pub(super) row: &'static str,
    /// What is said of it below the rows.
    pub(super) notes: Vec<Note>,
}

/// The measures, as parts of 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Efficiency {
    load_balance: f64,
    communication_efficiency: f64,
    parallel_efficiency: f64,
    /// The longest lifetime.
    runtime_ns: u64,
}

impl WorkShares {
    /// Of threads with their times; `untimed` calls waited for an unknown time.
    pub(super) fn new(threads: HashMap<LocationId, ThreadTime>, untimed: u64, grouping: &Grouping<'_>) -> WorkShares {
        let all = || threads.values();
        // A rank does what it does outside of the functions that make it wait, traced or not.
        let computes = all().any(|thread| thread.time.computing > 0) && !matches!(grouping, Grouping::Rank(..));
        // Where nothing is known to wait, a lifetime says nothing of work.
        let does_wait = all().any(|thread| thread.time.communicating() > 0);
        let is_by_life = !computes && does_wait && all().all(|thread| thread.life.is_some());
        let are_some_of_job = all().any(|thread| thread.is_of_job);
        let mut rows: HashMap<RowId, RowTime> = HashMap::new();
        for (&location, thread) in &threads {
            // The threads that a library of messages has for itself do not share the work.
            let is_helper = is_by_life && are_some_of_job && !thread.is_of_job;
            let key = grouping.key_of_location(location);
            // Nor does a launcher that was recorded together with its ranks.
            if is_helper || key == UNKNOWN {
                continue;
            }
            let row = rows.entry(key).or_default();
            row.threads += 1;
            row.time.add(thread.time);
            row.life = row.life.max(thread.life.unwrap_or(0));
            row.useful += match thread.active.filter(|_| is_by_life) {
                Some(active) => active.saturating_sub(thread.time.communicating()),
                None => thread.time.working,
            };
        }
        WorkShares { rows, is_by_life, untimed }
    }

    fn is_waiting_known(&self) -> bool {
        self.rows.values().any(|row| row.time.communicating() > 0)
    }

    /// The rows that have a share of the work.
    fn sharing(&self) -> impl Iterator<Item = (&RowId, &RowTime)> + Clone {
        self.rows.iter().filter(|(_, row)| !row.is_only_joining())
    }

    /// The mean of the useful times of the rows that share the work, the greatest one, and whose that is; absent if no
    /// work is shared.
    fn mean_and_most(&self) -> Option<(f64, f64, RowId)> {
        let shares = self.sharing().map(|(key, row)| (row.share(), *key));
        let (most, busiest) = shares.clone().max_by(|(a, of_a), (b, of_b)| a.total_cmp(b).then(of_b.cmp(of_a)))?;
        let count = shares.clone().count();
        (count > 1).then(|| (shares.map(|(share, _)| share).sum::<f64>() / count as f64, most, busiest))
    }

    /// How efficient it is; none where it is not known how long rows lived, or nothing is known to wait.
    pub(super) fn efficiency(&self) -> Option<Efficiency> {
        let (mean, most, _) = self.mean_and_most().filter(|_| self.is_by_life && self.is_waiting_known())?;
        let runtime_ns = self.rows.values().map(|row| row.life).max().filter(|&life| life > 0)?;
        (most > 0.0).then(|| Efficiency {
            load_balance: mean / most,
            communication_efficiency: most / runtime_ns as f64,
            parallel_efficiency: mean / runtime_ns as f64,
            runtime_ns,
        })
    }

    /// How even the work is, in rows that go by the word `row`; none where nothing is shared.
    pub(super) fn balance(&self, row: &'static str, grouping: &Grouping<'_>) -> Option<Balance> {
        let (mean, most, busiest) = self.mean_and_most()?;
        let (busiest, is_waiting_known) = (grouping.called(busiest), self.is_waiting_known());
        if mean <= 0.0 {
            let unknown = "balance: not known, as all traced time is waiting; trace the functions that compute, too";
            return is_waiting_known.then(|| Balance { ratio: None, busiest, row, notes: vec![Note::plain(unknown)] });
        }
        let waiting = match (self.is_by_life, is_waiting_known) {
            (_, false) => "no function here is known to wait",
            (true, _) => "all time outside of waiting counts",
            (false, true) => "without waiting",
        };
        let joining = match self.rows.values().filter(|row| row.is_only_joining()).count() {
            0 => String::new(),
            1 => format!("; 1 {row} that only waits for others to end is left out"),
            some => format!("; {} that only wait for others to end are left out", counted(some as u64, row)),
        };
        let ratio = most / mean;
        let said = format!("balance: {busiest} does the most work, {ratio:.2} times the mean ({waiting}{joining})");
        let efficiency = self.efficiency().map(|of| of.sentence() + &self.untimed());
        let notes = [Some(said), efficiency].into_iter().flatten().map(|text| Note::plain(text).kept()).collect();
        Some(Balance { ratio: Some(ratio), busiest, row, notes })
    }

    fn untimed(&self) -> String {
        match self.untimed {
            0 => String::new(),
            1 => "; how long 1 untimed call waited is not known, so that counts as work".to_owned(),
            some => format!("; how long {} waited is not known, so that counts as work", counted(some, "untimed call")),
        }
    }

    /// Adds what is useful and what is waiting to a table of such rows.
    pub(super) fn add_to(&self, table: &mut Table) {
        table.insert(&COLUMNS, |mark| {
            let Some(row) = self.rows.get(&mark) else { return vec![Datum::Absent; COLUMNS.len()] };
            let waiting = row.time.waiting();
            let all = row.useful.saturating_add(row.time.communicating());
            let part = (all > 0).then(|| Datum::Share(waiting as f64 / all as f64));
            let waits = row.time.waits.map(Datum::Time);
            let transfer = Datum::Time(row.time.transfer);
            let sums = [Datum::Time(row.useful), Datum::Time(waiting), part.unwrap_or(Datum::Absent), transfer];
            sums.into_iter().chain(waits).collect()
        });
        if self.is_by_life {
            // How long its calls take says little of a row whose calls are waits.
            OF_CALLS.iter().for_each(|key| table.show(key, Shown::Never));
        }
        if !self.is_waiting_known() {
            COLUMNS.iter().for_each(|column| table.show(column.key, Shown::Never));
        }
    }
}

impl Efficiency {
    fn sentence(self) -> String {
        let [balance, communication, parallel] =
            [self.load_balance, self.communication_efficiency, self.parallel_efficiency].map(|part| part * 100.0);
        format!(
            "efficiency: parallel {parallel:.1} % = load balance {balance:.1} % x communication {communication:.1} % of {}",
            format_ns(self.runtime_ns)
        )
    }
}

/// The word for a row whose share of the work is of interest.
pub(super) fn worker(by: &By) -> Option<&'static str> {
    match by {
        By::Thread => Some("thread"),
        By::Process => Some("process"),
        By::Rank => Some("rank"),
        _ => None,
    }
}

/// What is not shown where all rows wait.
const OF_CALLS: [&str; 7] =
    ["exclusive_share", "exclusive_ns", "inclusive_ns", "mean_ns", "p50_ns", "p99_ns", "max_ns"];

/// The columns of these rows: the useful time, all waiting with its share, the transfer, and the waiting by what it is for.
pub(super) static COLUMNS: LazyLock<Vec<Column>> = LazyLock::new(|| {
    let sum = |key: String, title: &str| Column::named(key, title.to_owned()).seat(4).rank(2).unit(SUM);
    let waiting = |wait: Wait| sum(format!("waiting_{}_ns", wait.name()), wait.name()).rank(3);
    let mut columns = vec![sum("useful_ns".to_owned(), "useful"), sum("waiting_ns".to_owned(), "waiting")];
    columns.push(Column::new("waiting_share", "waiting share").heading("waiting").seat(4).rank(2));
    columns.push(sum("transfer_ns".to_owned(), "transfer"));
    columns.extend(Wait::ALL.map(waiting));
    columns.into_iter().map(|column| column.shown(Shown::IfNotZero)).collect()
});

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use rtrace_model::{
        ClockAnchor, Definition, Header, Location, LocationId, Process, Rank, Sink as _, Summary, Timestamp,
    };
    use serde_json::Value as Json;

    use crate::testing::{region, script, writer};
    use crate::{By, Format, Options, Sort, run};

    fn report(folder: &tempfile::TempDir, by: By) -> Json {
        let mut out = Vec::new();
        run(folder.path(), &Options { by, sort: Sort::Name, format: Format::Json, ..Options::default() }, &mut out)
            .unwrap();
        serde_json::from_slice(&out).unwrap()
    }

    /// A recording of 10 us in which `a` to `f` are these functions.
    fn record(path: &std::path::Path, rank: Option<u32>, names: &[&str], calls: &str) {
        let mut writer = writer(path);
        let rank = rank.map(|rank| Rank { rank, size: None, job: None });
        writer.begin(&Header { rank, ..Header::default() }).unwrap();
        for (id, name) in (0..).zip(names) {
            writer.define(&Definition::Region(region(id, (*name).to_owned()))).unwrap();
        }
        writer.calls(&script(calls).into()).unwrap();
        let end = ClockAnchor { monotonic: Timestamp(10_000), realtime_ns: 0 };
        writer.finish(&Summary { end, ..Summary::default() }).unwrap();
    }

    const MPI: [&str; 6] = ["PMPI_Init", "mpi_barrier_", "MPI_Recv", "MPI_Finalize", "poll", "memcpy"];

    /// Four ranks that live for 4 us and compute for 1 to 4 us of it; the second has a thread that only polls.
    fn job() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (rank, calls) in [
            (0, "thread 1\n a 0 5000\n b 6000 8000\n  e 6500 7000\n c 8000 9000\n d 9000 10000"),
            (1, "thread 1\n a 0 5000\n b 7000 9000\n d 9000 9900\nthread 2\n e 0 10000"),
            (2, "thread 1\n a 0 5000\n  e 100 4000\n b 7000 8000\n f 8100 8200\n d 9000 9900"),
            (3, "thread 1\n a 0 5000\n c 5000 ?\n d 9000 9900"),
        ] {
            record(&folder.path().join(rank.to_string()), Some(rank), &MPI, calls);
        }
        folder
    }

    #[test]
    fn ranks_have_the_efficiency_that_pop_defines() {
        let report = report(&job(), By::Rank);
        let keys = ["useful_ns", "waiting_ns", "waiting_barrier_ns", "waiting_receive_ns", "waiting_event_ns"];
        let rows = report["rows"].as_array().unwrap().iter();
        let rows: Vec<_> = rows.map(|row| keys.map(|key| row[key].as_u64().unwrap())).collect();
        let of = |useful, barrier, receive| [useful, barrier + receive, barrier, receive, 0];
        assert_eq!(rows, [of(1000, 2000, 1000), of(2000, 2000, 0), of(3000, 1000, 0), of(4000, 0, 0)]);
        assert_eq!(report["rows"][0]["waiting_share"], 0.75);
        let expected = serde_json::json!({
            "load_balance": 0.625, "communication_efficiency": 1.0, "parallel_efficiency": 0.625, "runtime_ns": 4000,
        });
        assert_eq!(report["efficiency"], expected);
        let notes = report["notes"].to_string();
        for said in [
            "balance: rank 3 does the most work, 1.60 times the mean (all time outside of waiting counts)",
            "efficiency: parallel 62.5 % = load balance 62.5 % x communication 100.0 % of 4.000 us; how long 1 untimed call \
             waited is not known, so that counts as work",
        ] {
            assert!(notes.contains(said), "{notes}");
        }
    }

    #[test]
    fn a_thread_of_a_team_works_only_in_the_team() {
        let folder = tempfile::tempdir().unwrap();
        let names = ["GOMP_parallel", "GOMP_barrier"];
        let calls = "thread 1\n a 2000 6000\n  b 3000 5900\nthread 2\n b 5500 5600";
        record(folder.path(), None, &names, calls);
        let report = report(&folder, By::Thread);
        let useful: Vec<_> = report["rows"].as_array().unwrap().iter().map(|row| row["useful_ns"].as_u64()).collect();
        assert_eq!(useful, [Some(10_000 - 2_900), Some(4_000 - 100)]);
    }

    #[test]
    fn without_waits_or_an_end_there_is_no_efficiency() {
        let folder = tempfile::tempdir().unwrap();
        record(&folder.path().join("0"), Some(0), &MPI, "thread 1\n f 0 100");
        record(&folder.path().join("1"), Some(1), &MPI, "thread 1\n f 0 300");
        let waitless = report(&folder, By::Rank);
        assert_eq!(waitless["efficiency"], Json::Null);
        assert!(
            waitless["notes"].to_string().contains("rank 1 does the most work, 1.50 times the mean (no function here")
        );
        let folder = job();
        let mut trace = writer(&folder.path().join("4"));
        trace.begin(&Header { rank: Some(Rank { rank: 4, size: None, job: None }), ..Header::default() }).unwrap();
        trace.calls(&script("thread 1\n b 0 100").into()).unwrap();
        std::thread::sleep(std::time::Duration::from_secs(1));
        trace.tick().unwrap();
        drop(trace);
        assert_eq!(report(&folder, By::Rank)["efficiency"], Json::Null);
    }

    #[test]
    fn processes_of_one_recording_have_their_own_ranks() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = writer(folder.path());
        for pid in [80, 81] {
            let process = Process {
                pid,
                parent: None,
                start: Timestamp(0),
                end: None,
                executable: "/usr/bin/prog".into(),
                command_line: Vec::new(),
                exit_code: None,
                rank: Some(100 - pid),
            };
            writer.define(&Definition::Process(process)).unwrap();
            let location = Location {
                id: LocationId(pid),
                pid,
                tid: pid,
                start: Timestamp(0),
                end: None,
                name: String::new(),
                calls_entered: None,
            };
            writer.define(&Definition::Location(location)).unwrap();
        }
        writer.define(&Definition::Region(region(0, "MPI_Barrier".to_owned()))).unwrap();
        writer.calls(&script("thread 1\n a 0 10\nthread 80\n a 0 100\nthread 81\n a 0 7000").into()).unwrap();
        let end = ClockAnchor { monotonic: Timestamp(10_000), realtime_ns: 0 };
        writer.finish(&Summary { end, ..Summary::default() }).unwrap();
        let report = report(&folder, By::Rank);
        let balance = report["efficiency"]["load_balance"].as_f64().unwrap();
        assert!((balance - (3_000.0 + 9_900.0) / 2.0 / 9_900.0).abs() < 1e-9, "{balance}");
        // The calls of a launcher have no rank.
        let rows = report["rows"].as_array().unwrap().iter().filter(|row| !row["rank"].is_null());
        let rows: Vec<_> = rows.map(|row| ["rank", "pid", "useful_ns"].map(|key| row[key].as_u64().unwrap())).collect();
        assert_eq!(rows, [[19, 81, 3_000], [20, 80, 9_900]]);
    }
}
