//! `rtrace diff`: two traces compared function by function, or call path by call path.
//!
//! Rows are matched by the name of the library's file and the function's name, as ids, addresses
//! and builds differ between runs. A row whose durations differ is told by the whole distribution,
//! not by a mean that one outlier moves; see [`Shift`].

mod shift;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use rtrace_exporters::TraceSet;

use self::shift::Shift;
use super::grouping::Grouping;
use super::groups::Groups;
use super::stats::Stats;
use super::table::{Column, Shown, Table, Value};
use super::{By, Error, Format, Min, Report, notes, render, walk};

/// What is compared and how.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DiffOptions {
    /// What is compared: functions, with their callers, or call paths.
    pub by: By,
    /// Leave out rows with less time in both traces.
    pub min: Option<Min>,
    /// Most rows.
    pub limit: Option<usize>,
    /// How the comparison is written.
    pub format: Format,
    /// Columns of the terminal, if it is one: names are cut to fit.
    pub width: Option<u16>,
    /// Growth of time, as a part of what it was, from which a row is a regression.
    pub regression: Option<f64>,
}

/// Compares the trace in `second` with that in `first`; whether there is a regression.
///
/// # Errors
/// A trace cannot be read, or `out` not be written.
pub fn diff(first: &Path, second: &Path, options: &DiffOptions, out: &mut dyn Write) -> Result<bool, Error> {
    let before = Side::read(first, options)?;
    let after = Side::read(second, options)?;
    let totals = (before.total, after.total);
    let mut rows = pair(before.rows, after.rows);
    let known = rows.len();
    rows.retain(|row| options.min.is_none_or(|min| row.is_shown(min, totals)));
    // Each row is a test of its own: the more of them, the stronger one must speak.
    let tests = rows.iter().filter(|row| row.before.is_timed() && row.after.is_timed()).count();
    let mut compared: Vec<Compared> = rows.into_iter().map(|row| Compared::new(row, tests)).collect();
    let size = |row: &Compared| row.difference().map(i128::abs);
    compared.sort_by(|a, b| size(b).cmp(&size(a)).then_with(|| a.row.key.cmp(&b.row.key)));

    let regressions = options.regression.map(|limit| compared.iter().filter(|row| row.has_grown(limit)).count());
    let left_out = known - compared.len() + compared.len().saturating_sub(options.limit.unwrap_or(usize::MAX));
    compared.truncate(options.limit.unwrap_or(usize::MAX));
    let mut notes = notes_of(left_out, &before.notes, &after.notes);
    notes.extend(
        options
            .regression
            .zip(regressions)
            .map(|(limit, rows)| format!("rows whose time grew by more than {} %: {rows}", limit * 100.0)),
    );
    let report = Report {
        title: format!("A: {}\nB: {}", before.title, after.title),
        table: Table { columns: COLUMNS.to_vec(), rows: compared.iter().map(Compared::values).collect(), left_out },
        notes,
    };
    match options.format {
        Format::Table => render::table(&report, options.width, out)?,
        Format::Csv => render::csv(&report.table, out)?,
        Format::Json => render::json(&report, out)?,
    }
    Ok(regressions.is_some_and(|rows| rows > 0))
}

fn notes_of(left_out: usize, before: &[String], after: &[String]) -> Vec<String> {
    let left_out = (left_out > 0).then(|| format!("rows left out: {left_out}"));
    let of = |side: &'static str| move |note: &String| format!("{side}: {note}");
    left_out.into_iter().chain(before.iter().map(of("A"))).chain(after.iter().map(of("B"))).collect()
}

/// What a row is, in both traces: library, function, callers.
type RowKey = [String; 3];

/// One of the two traces.
struct Side {
    title: String,
    rows: BTreeMap<RowKey, Stats>,
    /// Time of all rows in nanoseconds.
    total: u64,
    notes: Vec<String>,
}

impl Side {
    fn read(path: &Path, options: &DiffOptions) -> Result<Side, Error> {
        let trace = TraceSet::open(path)?;
        let losses = trace.losses()?;
        let grouping = Grouping::new(options.by, &trace).ok_or(Error::Diff)?;
        let (walk, untimed) = walk(&trace, Groups::new(grouping))?;
        let lost_callers = walk.lost_callers;
        let total = walk.visitor.total();
        let mut rows: BTreeMap<RowKey, Stats> = BTreeMap::new();
        for (labels, stats) in walk.visitor.into_rows() {
            let name = |key: &str| {
                let label = labels.iter().find(|(column, _)| column.key == key);
                label.map_or_else(String::new, |(_, value)| value.sortable().0)
            };
            rows.entry([name("library"), name("function"), name("callers")]).or_default().merge(&stats);
        }
        let mut notes = notes::notes(&trace, &losses, lost_callers, 0)?;
        notes.extend(untimed.note(&trace)?);
        Ok(Side { title: notes::title(&trace), rows, total, notes })
    }
}

/// A row as it was and as it is; without calls where it is missing.
struct Row {
    key: RowKey,
    before: Stats,
    after: Stats,
}

fn pair(before: BTreeMap<RowKey, Stats>, mut after: BTreeMap<RowKey, Stats>) -> Vec<Row> {
    let mut rows: Vec<Row> = before
        .into_iter()
        .map(|(key, before)| {
            let after = after.remove(&key).unwrap_or_default();
            Row { key, before, after }
        })
        .collect();
    rows.extend(after.into_iter().map(|(key, after)| Row { key, before: Stats::default(), after }));
    rows
}

impl Row {
    fn is_shown(&self, min: Min, (before, after): (u64, u64)) -> bool {
        let is_shown = |stats: &Stats, total| stats.inclusive().is_some_and(|time| min.admits(time, total));
        is_shown(&self.before, before) || is_shown(&self.after, after)
    }
}

/// A row with what came of the comparison.
struct Compared {
    row: Row,
    shift: Option<Shift>,
    verdict: &'static str,
}

impl Compared {
    fn new(row: Row, tests: usize) -> Compared {
        let shift = Shift::of(row.before.latency(), row.after.latency());
        let verdict = match (row.before.calls(), row.after.calls()) {
            (0, _) => "new",
            (_, 0) => "gone",
            _ => shift.as_ref().map_or("", |shift| shift.verdict(tests)),
        };
        Compared { row, shift, verdict }
    }

    /// Nanoseconds that the row takes more than before, without callees; absent where one of the
    /// times is not known.
    fn difference(&self) -> Option<i128> {
        Some(i128::from(self.row.after.exclusive()?) - i128::from(self.row.before.exclusive()?))
    }

    /// Whether it takes more time by that part, and not by chance: its calls are slower by their
    /// distribution, or there are more of them.
    fn has_grown(&self, limit: f64) -> bool {
        let grown = |before: u64, after: u64| after as f64 > before as f64 * (1.0 + limit);
        let (before, after) = (&self.row.before, &self.row.after);
        let for_a_reason = self.verdict == "slower" || grown(before.calls(), after.calls());
        let times = before.exclusive().zip(after.exclusive());
        for_a_reason && times.is_some_and(|(before, after)| grown(before, after))
    }

    /// The values of [`COLUMNS`].
    fn values(&self) -> Vec<Value> {
        let Row { key: [library, function, callers], before, after } = &self.row;
        let change = self.difference().zip(before.exclusive()).map(|(more, before)| more as f64 / before as f64);
        let time = |stats: &Stats, percent| stats.percentile(percent).into();
        vec![
            Value::Count(before.calls()),
            Value::Count(after.calls()),
            before.inclusive().into(),
            after.inclusive().into(),
            before.exclusive().into(),
            after.exclusive().into(),
            change.filter(|change| change.is_finite()).map_or(Value::Absent, Value::Change),
            time(before, 50.0),
            time(after, 50.0),
            time(before, 99.0),
            time(after, 99.0),
            self.shift.as_ref().map_or(Value::Absent, |shift| Value::Share(shift.distance)),
            self.shift.as_ref().map_or(Value::Absent, |shift| Value::Share(shift.p)),
            self.shift.as_ref().map_or(Value::Absent, |shift| Value::Share(shift.slower)),
            Value::Name(self.verdict.to_owned()),
            Value::Name(library.clone()),
            Value::Name(function.clone()),
            if callers.is_empty() { Value::Absent } else { Value::Name(callers.clone()) },
        ]
    }
}

const COLUMNS: [Column; 18] = [
    Column::new("calls_a", "calls A"),
    Column::new("calls_b", "calls B"),
    Column::new("inclusive_a_ns", "inclusive A").shown(Shown::Never),
    Column::new("inclusive_b_ns", "inclusive B").shown(Shown::Never),
    Column::new("exclusive_a_ns", "exclusive A"),
    Column::new("exclusive_b_ns", "exclusive B"),
    Column::new("change", "change"),
    Column::new("p50_a_ns", "p50 A"),
    Column::new("p50_b_ns", "p50 B"),
    Column::new("p99_a_ns", "p99 A"),
    Column::new("p99_b_ns", "p99 B"),
    Column::new("distance", "distance").shown(Shown::Never),
    Column::new("p", "p").shown(Shown::Never),
    Column::new("slower", "B slower"),
    Column::label("verdict", "verdict"),
    Column::label("library", "library"),
    Column::label("function", "function"),
    Column::label("callers", "called by").shown(Shown::IfNotZero),
];

#[cfg(test)]
mod tests;
