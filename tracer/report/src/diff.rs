//! `rtrace diff`: two traces compared function by function, or call path by call path.
//!
//! Rows are matched by the name of the library's file and the function's name, as ids, addresses
//! and builds differ between runs. A row whose durations differ is told by the whole distribution,
//! not by a mean that one outlier moves; see [`Shift`].
//!
//! Recordings of different length are compared per second of recording. Two commands that were recorded from start to
//! end are compared as they are, however long they took: both did all their work.
//!
//! The change is that of exclusive time, and the verdict says where it comes from: calls take longer, or there are more
//! of them. A row is `same` only if neither its calls nor its time have changed.

mod shift;
mod verdict;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;

use rtrace_exporters::TraceSet;
use rtrace_model::{Library, Region, RegionId, counted, format_ns};

use self::shift::Shift;
use self::verdict::{Sizes, Verdict};
use super::about::About;
use super::grouping::Grouping;
use super::groups::Groups;
use super::measures::Measures;
use super::people::Note;
use super::stats::Stats;
use super::table::{Column, Datum, Shown, Table, titles};
use super::time::{self, Time};
use super::{By, Error, Format, Look, Min, Part, Report, need, notes, untimed, walk};

/// What is compared and how.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DiffOptions {
    /// What is compared: functions, with their callers, or call paths.
    pub by: By,
    /// Leave out rows with less time in both traces.
    pub min: Option<Min>,
    /// The part of the time of both whose calls are compared, where not all are.
    pub part: Option<Part>,
    /// Most rows.
    pub limit: Option<usize>,
    /// How the comparison is written.
    pub format: Format,
    /// The figures to show, by their headings; those that are usual where there are none.
    pub columns: Vec<String>,
    /// How a table looks.
    pub look: Look,
    /// Growth of time, as a part of what it was, from which a row is a regression.
    pub regression: Option<f64>,
}

/// The headings of the figures of a comparison.
pub fn diff_figures() -> Vec<&'static str> {
    titles(&COLUMNS)
}

/// Compares the trace in `second` with that in `first`; gives the rows that are regressions, by name.
///
/// # Errors
/// A trace cannot be read, or `out` not be written.
pub fn diff(first: &Path, second: &Path, options: &DiffOptions, out: &mut dyn Write) -> Result<Vec<String>, Error> {
    let before = Side::read(first, options)?;
    let after = Side::read(second, options)?;
    let totals = (before.total, after.total);
    let per_second = per_second(&before.about, &after.about);
    let mut rows = pair(before.rows, after.rows, [&before.traced, &after.traced]);
    let known = rows.len();
    rows.retain(|row| options.min.is_none_or(|min| row.is_shown(min, totals)));
    // Each row is a test of its own: the more of them, the stronger one must speak.
    let tests = rows.iter().filter(|row| row.before.sums.timed() > 0 && row.after.sums.timed() > 0).count();
    let mut compared: Vec<Compared> = rows.into_iter().map(|row| Compared::new(row, tests, per_second)).collect();
    compared.sort_by(|a, b| b.size().total_cmp(&a.size()).then_with(|| a.row.key.cmp(&b.row.key)));

    let regressions: Option<Vec<String>> = options
        .regression
        .map(|limit| compared.iter().filter(|row| row.has_grown(limit)).map(|row| row.row.name()).collect());
    let left_out = known - compared.len() + compared.len().saturating_sub(options.limit.unwrap_or(usize::MAX));
    let unclear = compared.iter().filter(|row| row.verdict.is_unclear()).count();
    let otherwise = compared.iter().filter(|row| row.verdict == Verdict::TimedDifferently).count();
    compared.truncate(options.limit.unwrap_or(usize::MAX));
    let mut notes = Vec::new();
    notes.extend((left_out > 0).then(|| notes::more_rows(left_out)));
    notes.extend(per_second.is_some().then(|| rates(&before.about, &after.about)));
    notes.extend((otherwise > 0).then(|| {
        let rows = counted(otherwise as u64, "row");
        Note::plain(format!("not compared by time, because A and B probe the functions in different ways: {rows}"))
    }));
    notes.extend((unclear > 0).then(|| {
        let rows = counted(unclear as u64, "row");
        Note::plain(format!("unclear: durations moved no more than those of two recordings of one program may: {rows}"))
    }));
    let marked = compared.iter().filter(|row| row.row.is_marked.contains(&true)).count();
    notes
        .extend((marked > 0).then(|| Note::warning(format!("{}: what differs may be that cost", time::marks(marked)))));
    for (side, of) in [("A", before.notes), ("B", after.notes)] {
        notes.extend(of.into_iter().map(|note| Note { text: format!("{side}: {}", note.text), ..note }));
    }
    notes.extend(options.regression.zip(regressions.as_ref()).map(|(limit, rows)| {
        Note::plain(format!("rows whose time grew by more than {} %: {}", limit * 100.0, rows.len())).kept()
    }));
    let rows = compared.iter().map(Compared::values).collect();
    let mut table = Table { columns: COLUMNS.to_vec(), rows, left_out, ..Table::default() };
    for (sum, rate) in RATES.iter().filter(|_| per_second.is_some()) {
        table.show(sum, Shown::Never);
        table.show(rate, Shown::Always);
    }
    if !options.columns.is_empty() {
        table.choose(&options.columns).map_err(|title| Error::Column(title.to_owned()))?;
    }
    let about = vec![("a", before.about), ("b", after.about)];
    let report = Report { about, is_per_second: Some(per_second.is_some()), table, notes, ..Report::default() };
    report.write(options.format, &options.look, out)?;
    Ok(regressions.unwrap_or_default())
}

/// Recordings whose lengths differ by more than this part are compared per second.
const SAME_LENGTH: f64 = 0.01;

/// Seconds of both recordings, where sums are to be compared per second.
fn per_second(before: &About, after: &About) -> Option<[f64; 2]> {
    let seconds = [before, after].map(|about| about.length() as f64 / 1e9);
    let [shorter, longer] = [seconds[0].min(seconds[1]), seconds[0].max(seconds[1])];
    let are_whole = before.is_whole && after.is_whole;
    (!are_whole && shorter > 0.0 && longer > shorter * (1.0 + SAME_LENGTH)).then_some(seconds)
}

fn rates(before: &About, after: &About) -> Note {
    let length = |about: &About| format_ns(about.length());
    Note::plain(format!(
        "A was recorded for {}, B for {}: calls and exclusive times are per second of recording",
        length(before),
        length(after)
    ))
}

/// What a row is, in both traces: library, function, callers.
type RowKey = [String; 3];

/// One of the two traces.
struct Side {
    about: About,
    rows: BTreeMap<RowKey, DiffSums>,
    /// All functions with probes, called or not, as [`without_callers`] has them.
    traced: BTreeSet<RowKey>,
    /// Time of all rows in nanoseconds.
    total: u64,
    notes: Vec<Note>,
}

/// The calls of a row, and how they were recorded.
#[derive(Default)]
struct DiffSums {
    stats: Stats,
    probes: BTreeSet<ProbedAs>,
}

/// How calls of a function are probed, where that makes their times others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ProbedAs {
    exit: &'static str,
    single_stepped: bool,
    stub: bool,
}

impl Side {
    fn read(path: &Path, options: &DiffOptions) -> Result<Side, Error> {
        let trace = TraceSet::open(path)?;
        let losses = trace.losses()?;
        let grouping = Grouping::new(&options.by, &trace)?.ok_or(Error::Diff)?;
        let span = options.part.map(|part| part.of(&trace)).transpose()?;
        let measures = Measures::new(Groups::new(grouping), &trace, span.and_then(|span| span.from));
        let (walk, shares) = walk(&trace, need(&options.by, span), measures)?;
        let lost_callers = walk.lost_callers;
        let groups = walk.visitor.rows;
        let total = groups.total();
        let mut rows: BTreeMap<RowKey, DiffSums> = BTreeMap::new();
        for (labels, stats) in groups.into_rows() {
            let label = |key: &str| {
                let label = labels.iter().find(|(column, _)| column.key == key);
                label.map_or_else(Default::default, |(_, value)| value.sortable())
            };
            let region = u32::try_from(label("region").1).ok().and_then(|id| trace.region(RegionId(id)));
            let build = region.and_then(|region| build_of(&trace, region)).unwrap_or_default();
            let function = label("function").0 + &build;
            let sums = rows.entry([label("library").0, function, label("callers").0]).or_default();
            sums.stats.merge(&stats);
            sums.probes.extend(region.map(|region| ProbedAs {
                exit: region.exit.name(),
                single_stepped: region.single_stepped,
                stub: region.stub,
            }));
        }
        let traced = trace.regions().iter().map(|region| {
            let library = trace.library(region.library).map_or("", Library::name);
            let function = region.name.clone() + &build_of(&trace, region).unwrap_or_default();
            without_callers(&[library.to_owned(), function, String::new()])
        });
        let traced = traced.collect();
        let mut notes = notes::notes(&trace, options.part, &losses, (lost_callers, 0))?;
        notes.extend(untimed::note(&shares, &trace, options.part.is_some())?);
        Ok(Side { about: About::new(&trace).of_part(options.part), rows, traced, total, notes })
    }
}

/// The build of a function that is told from others of its name by its place in the file: in another build, that is the
/// place of another one.
fn build_of(trace: &TraceSet, region: &Region) -> Option<String> {
    let place = region.name.rsplit_once("@0x").map(|(_, place)| u64::from_str_radix(place, 16));
    let build_id = trace.library(region.library)?.build_id.as_deref()?;
    (place == Some(Ok(region.file_offset))).then(|| format!(" [build {}]", build_id.get(..8).unwrap_or(build_id)))
}

/// The rows of B that are those of A in another version of their library, taken out of B, by the keys of A: one row of
/// each has that name, and the other has none of its own.
fn versions(
    before: &BTreeMap<RowKey, DiffSums>,
    after: &mut BTreeMap<RowKey, DiffSums>,
) -> BTreeMap<RowKey, (RowKey, DiffSums)> {
    type Loose = BTreeMap<RowKey, Vec<RowKey>>;
    let alone = |rows: &BTreeMap<RowKey, DiffSums>, others: &BTreeMap<RowKey, DiffSums>| {
        let mut loose = Loose::new();
        for key in rows.keys().filter(|key| !others.contains_key(*key)) {
            loose.entry(without_versions(key)).or_default().push(key.clone());
        }
        loose
    };
    let (gone, mut new) = (alone(before, after), alone(after, before));
    let mut pairs = BTreeMap::new();
    for (name, gone) in gone {
        let new = new.remove(&name).unwrap_or_default();
        if let ([gone], [new]) = (gone.as_slice(), new.as_slice())
            && let Some(sums) = after.remove(new)
        {
            pairs.insert(gone.clone(), (new.clone(), sums));
        }
    }
    pairs
}

/// A key by which versions of a library are one, and of a symbol the default ones.
fn without_versions([library, function, callers]: &RowKey) -> RowKey {
    let stem = library.split_once(".so").map_or(library.as_str(), |(stem, _)| stem);
    let stem = stem.trim_end_matches(|letter: char| letter.is_ascii_digit() || letter == '.');
    let stem = stem.strip_suffix('-').unwrap_or(stem);
    let function = function.split_once("@@").map_or(function.as_str(), |(function, _)| function);
    [stem.to_owned(), function.to_owned(), callers.clone()]
}

/// The function of a row, by a key by which versions are one.
fn without_callers(key: &RowKey) -> RowKey {
    let [library, function, _] = without_versions(key);
    [library, function, String::new()]
}

/// A row as it was and as it is; without calls where it is missing.
struct DiffRow {
    key: RowKey,
    before: Stats,
    after: Stats,
    /// Whether the function had a probe, in both traces.
    is_traced: [bool; 2],
    /// Whether calls were probed in the same way, so that times can be compared.
    is_timed_alike: bool,
    /// Whether tracing took much of the exclusive time, in both traces.
    is_marked: [bool; 2],
    /// What tracing took of each call, in the one where that is more, in nanoseconds.
    tracing: f64,
}

fn pair(
    before: BTreeMap<RowKey, DiffSums>,
    mut after: BTreeMap<RowKey, DiffSums>,
    traced: [&BTreeSet<RowKey>; 2],
) -> Vec<DiffRow> {
    let mut versions = versions(&before, &mut after);
    let mut rows: Vec<DiffRow> = before
        .into_iter()
        .map(|(mut key, before)| {
            let mut after = after.remove(&key);
            if let Some(other) = versions.remove(&key) {
                after = Some(other.1);
                if key[0] != other.0[0] {
                    key[0] = format!("{} → {}", key[0], other.0[0]);
                }
                key[1].clone_from(&other.0[1]);
            }
            let is_timed_alike = after.as_ref().is_none_or(|after| after.probes == before.probes);
            DiffRow::new(key, before, after.unwrap_or_default(), is_timed_alike)
        })
        .collect();
    let new = |(key, after): (RowKey, DiffSums)| DiffRow::new(key, DiffSums::default(), after, true);
    rows.extend(after.into_iter().map(new));
    for row in &mut rows {
        let function = without_callers(&row.key);
        let called = [&row.before, &row.after].map(|stats| stats.sums.calls > 0);
        // A row of no function, such as the call paths beyond the limit, has no probe of its own.
        let is_function = !row.key[0].is_empty();
        row.is_traced = [0, 1].map(|side: usize| !is_function || called[side] || traced[side].contains(&function));
    }
    rows
}

impl DiffRow {
    fn new(key: RowKey, before: DiffSums, after: DiffSums, is_timed_alike: bool) -> DiffRow {
        let both = [&before.stats, &after.stats];
        let exclusive = both.map(|stats| stats.times().map(|[_, exclusive]| exclusive));
        let is_marked = exclusive.map(|time| time.is_some_and(Time::is_marked));
        let of_each =
            |(time, stats): (Option<Time>, &Stats)| time.map_or(0.0, |time| time.tracing_of_each(stats.sums.calls));
        let tracing = exclusive.into_iter().zip(both).map(of_each).fold(0.0, f64::max);
        let is_traced = [true; 2];
        DiffRow { key, before: before.stats, after: after.stats, is_traced, is_timed_alike, is_marked, tracing }
    }

    /// What it is, as people read it.
    fn name(&self) -> String {
        let [library, function, callers] = &self.key;
        let called = if callers.is_empty() { String::new() } else { format!(", called by {callers}") };
        match (function.is_empty(), library.is_empty()) {
            (true, _) => library.clone(),
            (false, true) => format!("{function}{called}"),
            (false, false) => format!("{function} ({library}){called}"),
        }
    }

    fn is_shown(&self, min: Min, (before, after): (u64, u64)) -> bool {
        self.before.has_at_least(min, before) || self.after.has_at_least(min, after)
    }
}

/// A row with what came of the comparison.
struct Compared {
    row: DiffRow,
    shift: Option<Shift>,
    verdict: Verdict,
    sizes: Sizes,
}

impl Compared {
    fn new(row: DiffRow, tests: usize, seconds: Option<[f64; 2]>) -> Compared {
        let shift =
            Shift::of(&row.before.sums.latency, &row.after.sums.latency, row.tracing).filter(|_| row.is_timed_alike);
        let [before, after] = seconds.unwrap_or([1.0; 2]);
        let is_comparable = row.is_timed_alike && row.is_traced == [true; 2];
        let times = row.before.exclusive().zip(row.after.exclusive()).filter(|_| is_comparable);
        let times = times.map(|(a, b)| [a as f64 / before, b as f64 / after]);
        let sizes = Sizes { numbers: [row.before.sums.calls, row.after.sums.calls], seconds, times };
        let verdict = match sizes.numbers {
            _ if !row.is_traced[0] => Verdict::NotTracedInA,
            _ if !row.is_traced[1] => Verdict::NotTracedInB,
            [0, _] => Verdict::New,
            [_, 0] => Verdict::Gone,
            _ if !row.is_timed_alike => Verdict::TimedDifferently,
            _ => Verdict::of(shift.as_ref(), tests, &sizes),
        };
        Compared { row, shift, verdict, sizes }
    }

    /// How much exclusive time without tracing was won or lost, in nanoseconds; less than nothing where one is not known.
    fn size(&self) -> f64 {
        let [before, after] =
            [&self.row.before, &self.row.after].map(|stats| stats.corrected().map(|[_, own]| own as f64));
        let seconds = self.sizes.seconds.unwrap_or([1.0; 2]);
        let times = before.zip(after).filter(|_| self.sizes.times.is_some());
        times.map_or(-1.0, |(before, after)| (after / seconds[1] - before / seconds[0]).abs())
    }

    /// Whether it takes more time by that part, and not by chance: its calls are slower by their
    /// distribution, or there are more of them. Per second of recording, calls that take longer may be fewer.
    fn has_grown(&self, limit: f64) -> bool {
        let has_grown = |[before, after]: [f64; 2]| after > before * (1.0 + limit);
        let mean = |stats: &Stats| stats.exclusive().unwrap_or(0) as f64 / stats.sums.calls.max(1) as f64;
        let is_slower = self.verdict.is_slower();
        let of_each_call = || has_grown([mean(&self.row.before), mean(&self.row.after)]);
        let for_a_reason = is_slower || has_grown(self.sizes.calls());
        let in_all = for_a_reason && self.sizes.times.is_some_and(has_grown);
        in_all || self.sizes.seconds.is_some() && is_slower && of_each_call()
    }

    /// The values of [`COLUMNS`].
    fn values(&self) -> Vec<Datum> {
        let DiffRow { key: [library, function, callers], before, after, .. } = &self.row;
        let time = |stats: &Stats, percent| stats.sums.percentile(percent).into();
        let marked = |place: usize, value: Datum| match value {
            Datum::Time(time) if self.row.is_marked[place] => Datum::Traced(time),
            value => value,
        };
        let share =
            |part: fn(&Shift) -> f64| self.shift.as_ref().map_or(Datum::Absent, |shift| Datum::Share(part(shift)));
        let traced = |place: usize, value: Datum| if self.row.is_traced[place] { value } else { Datum::Absent };
        let [calls_a, calls_b] = self.sizes.calls().map(|calls| match self.sizes.seconds {
            Some(_) => Datum::Rate(calls),
            None => Datum::Absent,
        });
        let per_second = |place: usize| match (self.sizes.seconds, self.sizes.times) {
            (Some(_), Some(times)) => marked(place, Datum::Time(times[place].round() as u64)),
            _ => Datum::Absent,
        };
        vec![
            traced(0, Datum::Count(before.sums.calls)),
            traced(1, Datum::Count(after.sums.calls)),
            traced(0, before.inclusive().into()),
            traced(1, after.inclusive().into()),
            traced(0, marked(0, before.exclusive().into())),
            traced(1, marked(1, after.exclusive().into())),
            self.sizes.change().map_or(Datum::Absent, Datum::Change),
            time(before, 50.0),
            time(after, 50.0),
            time(before, 99.0),
            time(after, 99.0),
            share(|shift| shift.distance),
            share(|shift| shift.p),
            share(|shift| shift.slower),
            traced(0, calls_a),
            traced(1, calls_b),
            per_second(0),
            per_second(1),
            self.verdict.value(),
            Datum::Name(library.clone()),
            Datum::Name(function.clone()),
            if callers.is_empty() { Datum::Absent } else { Datum::Name(callers.clone()) },
        ]
    }
}

const COLUMNS: [Column; 22] = [
    Column::new("calls_a", "calls A").rank(2).paired(),
    Column::new("calls_b", "calls B").rank(2).paired(),
    Column::new("inclusive_a_ns", "inclusive A").unit("inclusive").rank(3).paired().shown(Shown::Never),
    Column::new("inclusive_b_ns", "inclusive B").unit("inclusive").rank(3).paired().shown(Shown::Never),
    Column::new("exclusive_a_ns", "exclusive A").unit("exclusive").heading("excl. A").rank(1).paired(),
    Column::new("exclusive_b_ns", "exclusive B").unit("exclusive").heading("excl. B").rank(1).paired(),
    Column::new("change", "change"),
    Column::new("p50_a_ns", "p50 A").unit("p50").rank(3).paired(),
    Column::new("p50_b_ns", "p50 B").unit("p50").rank(3).paired(),
    Column::new("p99_a_ns", "p99 A").unit("p99").rank(6).paired(),
    Column::new("p99_b_ns", "p99 B").unit("p99").rank(6).paired(),
    Column::new("distance", "distance").rank(5).shown(Shown::Never),
    Column::new("p", "p").rank(5).shown(Shown::Never),
    Column::new("p_b_greater", "P(B > A)").rank(5),
    Column::new("calls_a_per_s", "calls/s A").seat(CALLS_SEAT).rank(2).paired().shown(Shown::Never),
    Column::new("calls_b_per_s", "calls/s B").seat(CALLS_SEAT).rank(2).paired().shown(Shown::Never),
    Column::new("exclusive_a_ns_per_s", "exclusive/s A")
        .unit("exclusive")
        .seat(TIMES_SEAT)
        .heading("excl./s A")
        .rank(1)
        .paired()
        .shown(Shown::Never),
    Column::new("exclusive_b_ns_per_s", "exclusive/s B")
        .unit("exclusive")
        .seat(TIMES_SEAT)
        .heading("excl./s B")
        .rank(1)
        .paired()
        .shown(Shown::Never),
    Column::label("verdict", "verdict"),
    Column::label("library", "library").rank(4),
    Column::name("function", "function"),
    Column::name("callers", "called by").shown(Shown::IfNotZero),
];

/// Where people see calls and times per second: in front of what they see otherwise.
const CALLS_SEAT: u8 = 1;
const TIMES_SEAT: u8 = 2;

/// Pairs of columns, of which people see the second where traces are compared per second.
const RATES: [(&str, &str); 4] = [
    ("calls_a", "calls_a_per_s"),
    ("calls_b", "calls_b_per_s"),
    ("exclusive_a_ns", "exclusive_a_ns_per_s"),
    ("exclusive_b_ns", "exclusive_b_ns_per_s"),
];

#[cfg(test)]
mod tests;
