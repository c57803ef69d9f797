//! What of the time was work, and what was waiting.
//!
//! The exclusive time of a call is waiting if its function is known to wait ([`Wait`](rtrace_model::Wait)), or if it was
//! made within such a call. For ranks and threads, what a call takes after the other ranks have come is transfer, where
//! that is known ([`Transfers`]). Of the others, waiting is what passed off a CPU, as far as that is known: where `task-clock`
//! was counted. The rest of the time is work.
//!
//! Where only a programming model is traced, such as MPI or OpenMP, no work is: then the time outside of waiting is work,
//! as long as a thread lived, traced or not.

use std::collections::{HashMap, HashSet};

use rtrace_exporters::TraceSet;
use rtrace_model::{Location, LocationId, Region, RegionId, Scope, Timestamp, Wait, known};
use rtrace_profile::{Caller, Visited, Visitor};

use super::By;
use super::efficiency::{ExclusiveTime, ThreadTime, WorkShares};
use super::grouping::Grouping;
use super::key::RowId;
use super::people::paint::Tone;
use super::setup::JobTimes;
use super::table::{Column, Datum, SUM, Shown, Table};
use super::transfers::Transfers;

/// The counter of time on a CPU.
const ON_CPU: &str = "task-clock";

/// Programming models whose threads work together. Others of the same programs help them, and only wait.
const JOBS: [&str; 3] = ["mpi", "openmp", "shmem"];

/// Sums up work and waiting by function and thread.
pub(super) struct WaitingSums {
    waits: HashMap<RegionId, Wait>,
    /// Functions of programming models, which share work out and do none.
    models: HashMap<RegionId, &'static str>,
    /// Those in which teams of threads run.
    teams: HashSet<RegionId>,
    /// Those that set a job up and take it down: their time is none of the job's.
    pub(super) setup: HashMap<RegionId, &'static str>,
    /// Whether it is known how long threads lived.
    has_lives: bool,
    /// The place of the counter of time on a CPU among those of calls.
    on_cpu: Option<usize>,
    /// Apart by whether they belong to the setup of a job.
    sums: HashMap<(RegionId, LocationId, bool), ExclusiveTime>,
    /// Time in teams, by the thread that started them.
    in_teams: HashMap<LocationId, u64>,
    /// Calls that waited, of which it is not known how long.
    untimed: u64,
}

/// What is known of a call by its function, and those around it.
#[derive(Clone, Copy, Default)]
pub(super) struct WaitContext {
    /// What it waits for.
    wait: Option<Wait>,
    /// Whether it belongs to the setup of a job.
    is_setup: bool,
}

impl WaitContext {
    /// Whether it matters if it is not known how long it took.
    fn is_unknown_wait(self) -> bool {
        self.wait.is_some() && !self.is_setup
    }
}

impl Visitor for WaitingSums {
    type Mark = WaitContext;

    fn visit(&mut self, calls: Visited<'_>, caller: Caller<'_, WaitContext>) -> WaitContext {
        let around = self.around(calls.region(), caller);
        let totals = calls.totals();
        if calls.are_counted() && calls.have_time() {
            let on_cpu = self.on_cpu.and_then(|place| calls.counts().get(place).map(|count| count.exclusive));
            self.add((calls.region(), calls.location()), around, totals.exclusive, on_cpu);
            if self.teams.contains(&calls.region()) {
                self.add_team(calls.location(), totals.inclusive);
            }
        }
        self.untimed += if around.is_unknown_wait() { totals.untimed } else { 0 };
        around
    }
}

impl WaitingSums {
    /// What the names of functions say.
    pub(super) fn new(trace: &TraceSet) -> WaitingSums {
        let fact = |about, region: &Region| {
            let symbols = region.symbols.iter().map(|symbol| symbol.symbol.as_str());
            symbols.chain([region.name.as_str()]).find_map(|name| known(about, name))
        };
        let regions = || trace.regions().iter();
        let of_calls = trace.metrics().iter().filter(|metric| metric.scope == Scope::Call);
        WaitingSums {
            waits: regions().filter_map(|region| Some((region.id, region.waits_for()?))).collect(),
            models: regions().filter_map(|region| Some((region.id, fact("model", region)?))).collect(),
            teams: regions().filter(|region| fact("runs", region).is_some()).map(|region| region.id).collect(),
            setup: regions().filter_map(|region| Some((region.id, fact("job", region)?))).collect(),
            has_lives: true,
            on_cpu: of_calls.into_iter().position(|metric| metric.name == ON_CPU),
            sums: HashMap::new(),
            in_teams: HashMap::new(),
            untimed: 0,
        }
    }

    /// Whether functions and threads decide to which of these rows a call belongs.
    pub(super) fn splits(by: &By) -> bool {
        matches!(by, By::Function | By::Library | By::Thread | By::Process | By::Rank)
    }

    fn around(&self, region: RegionId, caller: Caller<'_, WaitContext>) -> WaitContext {
        let around = caller.enclosing().last().map_or(WaitContext::default(), |open| open.mark);
        WaitContext {
            wait: around.wait.or_else(|| self.waits.get(&region).copied()),
            is_setup: around.is_setup || self.setup.contains_key(&region),
        }
    }

    fn add(&mut self, of: (RegionId, LocationId), around: WaitContext, exclusive: u64, on_cpu: Option<u64>) {
        let mut time = ExclusiveTime::default();
        match around.wait {
            Some(wait) => time.waits[wait as usize] = exclusive,
            None => time.off_cpu = on_cpu.map_or(0, |on_cpu| exclusive.saturating_sub(on_cpu)),
        }
        time.working = exclusive - time.waiting();
        time.computing = if self.models.contains_key(&of.0) { 0 } else { time.working };
        self.sums.entry((of.0, of.1, around.is_setup)).or_default().add(time);
    }

    fn add_team(&mut self, location: LocationId, time: u64) {
        let sum = self.in_teams.entry(location).or_default();
        *sum = sum.saturating_add(time);
    }

    /// The times of each row of these, of which the place in code or the thread decides.
    fn rows(&self, grouping: &Grouping<'_>) -> HashMap<RowId, ExclusiveTime> {
        let mut rows: HashMap<RowId, ExclusiveTime> = HashMap::new();
        for (&(region, location, _), &time) in &self.sums {
            if let Some(key) = grouping.key_of(region, location) {
                rows.entry(key).or_default().add(time);
            }
        }
        rows
    }

    /// Adds what is work and what is waiting to a table of such rows, and what functions wait for.
    pub(super) fn add_to(&self, table: &mut Table, grouping: &Grouping<'_>) {
        let rows = self.rows(grouping);
        let waits = |mark: RowId| match grouping {
            Grouping::Function(_) => self.waits.get(&RegionId(mark)).copied(),
            _ => None,
        };
        // Where nothing waits, work is all of the time, and not worth a column.
        let is_shown = rows.values().any(|time| time.waiting() > 0);
        let working = if is_shown { Shown::IfNotZero } else { Shown::Never };
        table.insert(&COLUMNS, |mark| {
            let times = rows.get(&mark).map_or([Datum::Absent, Datum::Absent], |time| {
                [Datum::Time(time.working), Datum::Time(time.waiting())]
            });
            let word = |wait: Wait| Datum::Verdict { text: wait.name().to_owned(), tone: Tone::Dim };
            times.into_iter().chain([waits(mark).map_or(Datum::Absent, word)]).collect()
        });
        table.show(WORKING, working);
        if matches!(grouping, Grouping::Function(_)) && self.on_cpu.is_none() {
            // What a function waits for says it in one word.
            table.show(WORKING, Shown::Never);
            table.show(WAITING, Shown::Never);
        }
    }

    /// The same of calls in a part of the time: what threads lived in it is not known.
    pub(super) fn of_part(self) -> WaitingSums {
        WaitingSums { has_lives: false, ..self }
    }

    /// How rows that stand for threads share the work, apart from setting a job up.
    pub(super) fn shares(
        &self,
        trace: &TraceSet,
        times: &JobTimes,
        transfers: &Transfers,
        grouping: &Grouping<'_>,
    ) -> WorkShares {
        let mut threads: HashMap<LocationId, ThreadTime> = HashMap::new();
        for (&(region, location, is_setup), &time) in &self.sums {
            let thread = threads.entry(location).or_default();
            if !is_setup {
                let transfer = transfers.of(region, location);
                thread.time.add(self.waits.get(&region).map_or(time, |&wait| time.transferring(wait, transfer)));
            }
            thread.is_of_job |= self.models.get(&region).is_some_and(|model| JOBS.contains(model));
        }
        // Teams are of their processes.
        let process = |location| {
            let process = trace.process_of(trace.location(location)?)?;
            Some((process.pid, process.start))
        };
        let mut teams: HashMap<_, u64> = HashMap::new();
        for (&location, &time) in &self.in_teams {
            let team = teams.entry(process(location)).or_default();
            *team = team.saturating_add(time);
        }
        for (&location, thread) in &mut threads {
            let team = teams.get(&process(location)).filter(|_| !self.in_teams.contains_key(&location));
            let location = trace.location(location).filter(|_| self.has_lives);
            thread.life = location.and_then(|of| Some(times.life(trace, of, life(trace, of)?)));
            thread.active = thread.life.map(|life| team.map_or(life, |&team| life.min(team)));
        }
        WorkShares::new(threads, self.untimed, grouping)
    }
}

/// From when to when a thread lived while it was recorded; none while the recording goes on.
fn life(trace: &TraceSet, location: &Location) -> Option<[Timestamp; 2]> {
    let [begin, end] = trace.recorded_during(location.id)?;
    Some([location.start.max(begin), location.end.unwrap_or(end)])
}

const WORKING: &str = "working_ns";
const WAITING: &str = "waiting_ns";

pub(super) const COLUMNS: [Column; 3] = [
    Column::new(WORKING, "working").seat(4).rank(2).unit(SUM),
    Column::new(WAITING, "waiting").seat(4).rank(2).unit(SUM).shown(Shown::IfNotZero),
    Column::new("waits_for", "waits for").seat(7).rank(3).shown(Shown::IfNotZero),
];

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use rtrace_model::{
        Base, Batch, Call, ClockAnchor, Definition, Location, Metric, MetricId, Reading, Sink, Span, Summary, Timestamp,
    };

    use super::*;
    use crate::testing::{region, script, writer};
    use crate::{Format, Options, run};

    /// Three threads, on which `a` works, `b` is a barrier and `c` joins threads; with `task-clock`, if a part of the
    /// time is on a CPU.
    fn trace(calls: &str, on_cpu: Option<u64>) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = writer(folder.path());
        for (id, name) in [(1, "pthread_barrier_wait"), (2, "pthread_join")] {
            writer.define(&Definition::Region(region(id, name.to_owned()))).unwrap();
        }
        let third = Location {
            id: LocationId(3),
            pid: 70,
            tid: 73,
            start: Timestamp(0),
            end: None,
            name: "third".to_owned(),
            calls_entered: None,
        };
        writer.define(&Definition::Location(third)).unwrap();
        let calls = script(calls);
        let mut readings = Vec::new();
        if let Some(percent) = on_cpu {
            let metric = Metric {
                id: MetricId(0),
                name: ON_CPU.to_owned(),
                unit: "s".to_owned(),
                base: Base::Decimal,
                exponent: -9,
                scope: Scope::Call,
                span: Span::SinceStart,
            };
            writer.define(&Definition::Metric(metric)).unwrap();
            let part = |time: u64| time * percent / 100;
            let reading =
                |call: &Call| Reading { inclusive: part(call.duration.unwrap_or(0)), child: part(call.child) };
            readings = calls.iter().map(reading).collect();
        }
        writer.calls(&Batch::measured(calls, usize::from(on_cpu.is_some()), readings)).unwrap();
        writer.finish(&Summary::default()).unwrap();
        folder
    }

    fn report(folder: &tempfile::TempDir, by: By) -> serde_json::Value {
        let mut out = Vec::new();
        run(folder.path(), &Options { by, format: Format::Json, ..Options::default() }, &mut out).unwrap();
        serde_json::from_slice(&out).unwrap()
    }

    fn balance(folder: &tempfile::TempDir) -> Option<String> {
        let report = report(folder, By::Thread);
        let notes = report["notes"].as_array().unwrap().iter().map(|note| note.as_str().unwrap());
        notes.filter(|note| note.starts_with("balance")).map(str::to_owned).next()
    }

    /// Of each row its name, work and waiting.
    fn times(folder: &tempfile::TempDir, by: By) -> Vec<(String, Option<u64>, Option<u64>)> {
        let (name, work) = if by == By::Thread { ("tid", "useful_ns") } else { ("function", "working_ns") };
        let report = report(folder, by);
        let mut rows: Vec<_> = report["rows"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| (row[name].to_string(), row[work].as_u64(), row["waiting_ns"].as_u64()))
            .collect();
        rows.sort();
        rows
    }

    const BARRIER: &str = "thread 1\n c 0 100\n thread 2\n a 0 30\n b 30 100\n thread 3\n a 0 90\n b 90 100";

    #[test]
    fn the_thread_that_works_most_is_the_busiest_however_long_others_wait() {
        let folder = trace(BARRIER, None);
        let row = |tid: &str, working, waiting| (tid.to_owned(), Some(working), Some(waiting));
        assert_eq!(times(&folder, By::Thread), [row("71", 0, 100), row("72", 30, 70), row("73", 90, 10)]);
        assert_eq!(
            balance(&folder).as_deref(),
            Some(
                "balance: thread 73 does the most work, 1.50 times the mean (without waiting; 1 thread that only waits for others \
                 to end is left out)"
            )
        );
        let functions = report(&folder, By::Function);
        let waits: Vec<_> = functions["rows"].as_array().unwrap().iter().map(|row| row["waits_for"].as_str()).collect();
        assert_eq!(waits, [None, Some("join"), Some("barrier")]);
    }

    #[test]
    fn where_nothing_is_known_to_wait_that_is_said() {
        let folder = trace("thread 2\n a 0 30\n thread 3\n a 0 90", None);
        let said = "balance: thread 73 does the most work, 1.50 times the mean (no function here is known to wait)";
        assert_eq!(balance(&folder).as_deref(), Some(said));
        assert_eq!(balance(&trace("thread 2\n a 0 30", None)), None);
        let said = "balance: not known, as all traced time is waiting; trace the functions that compute, too";
        assert_eq!(balance(&trace("thread 2\n b 0 30\n thread 3\n b 0 30", None)).as_deref(), Some(said));
    }

    #[test]
    fn where_only_waits_are_traced_the_time_outside_of_them_is_work() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = writer(folder.path());
        for (id, name) in [(0, "GOMP_parallel"), (1, "GOMP_barrier")] {
            writer.define(&Definition::Region(region(id, name.to_owned()))).unwrap();
        }
        // The second thread works in functions that are not traced.
        writer.calls(&script("thread 1\n a 0 1000\n  b 100 800\n thread 2\n b 900 1000").into()).unwrap();
        let end = ClockAnchor { monotonic: Timestamp(1_000), realtime_ns: 0 };
        writer.finish(&Summary { end, ..Summary::default() }).unwrap();
        let said = "balance: thread 72 does the most work, 1.50 times the mean (all time outside of waiting counts)";
        assert_eq!(balance(&folder).as_deref(), Some(said));
    }

    #[test]
    fn what_is_called_within_a_wait_waits_timed_or_not() {
        let row = |name: &str, working, waiting| (format!("\"{name}\""), Some(working), Some(waiting));
        let nested = trace("thread 1\n a 0 100\n  b 10 60\n   a 20 50\n  a 70 80", None);
        assert_eq!(times(&nested, By::Function), [row("a", 50, 30), row("pthread_barrier_wait", 0, 20)]);
        let untimed = trace("thread 1\n b 0 ?\n  a 20 50", None);
        let unknown = ("\"pthread_barrier_wait\"".to_owned(), None, None);
        assert_eq!(times(&untimed, By::Function), [row("a", 0, 30), unknown]);
    }

    #[test]
    fn time_off_a_cpu_is_waiting_where_that_was_counted() {
        let row = |name: &str, working, waiting| (format!("\"{name}\""), Some(working), Some(waiting));
        let folder = trace("thread 1\n a 0 100\n  d 10 60\n b 200 300", Some(40));
        // The barrier spins on its CPU for a part of the time.
        let expected = [row("a", 20, 30), row("d", 20, 30), row("pthread_barrier_wait", 0, 100)];
        assert_eq!(times(&folder, By::Function), expected);
    }
}
