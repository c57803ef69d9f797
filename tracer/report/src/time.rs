//! Sums of times, and what tracing itself took of them.
//!
//! What the order of rows, their shares and their bars go by is the time without tracing, wherever it is known: what
//! costs a probe and does nothing else is no large part of the program. The recorded time stands beside it.

use std::collections::HashMap;

use rtrace_model::{MOSTLY_TRACING, counted, is_mostly_tracing};
use rtrace_profile::Visitor;

use super::Sort;
use super::key::RowId;
use super::people::Note;
use super::table::{Column, Datum, SUM, Shown, Table};

/// The part of what is taken off that is uncertain, for the machine's speed: one of so many.
const MARGIN: u64 = 5;

/// The most of a recorded time of which it is said what is left: one of so many.
const MOST: u64 = 3;

/// How soon corrected times go where there is no room.
const RANK: u8 = 2;

/// What tracing took of a sum of times, and the error of that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tracing {
    took: u64,
    error: u64,
}

/// What tracing took of the inclusive and the exclusive time of a row.
pub(super) type OfRow = [Tracing; 2];

/// Rows of calls, which say to which of them calls belong, and sum up how many there are and how long they took.
pub(super) trait TimeRows: Visitor<Mark = RowId> {
    /// Takes what tracing took of the times of the rows of which that is known.
    fn take_off(&mut self, tracing: HashMap<RowId, OfRow>);
}

impl Tracing {
    pub(super) fn add(&mut self, took: u64, error: u64) {
        self.took = self.took.saturating_add(took);
        self.error = self.error.saturating_add(error);
    }

    /// What tracing took of two rows that are one now, as far as it is known.
    pub(super) fn merged(ones: Option<OfRow>, others: Option<OfRow>) -> Option<OfRow> {
        let (Some(mut sums), Some(others)) = (ones, others) else { return ones.or(others) };
        sums.iter_mut().zip(others).for_each(|(sum, other)| sum.add(other.took, other.error));
        Some(sums)
    }
}

/// A sum of times, and what is known of its error.
#[derive(Clone, Copy, Debug)]
pub(super) struct Time {
    recorded: u64,
    tracing: Tracing,
}

impl Time {
    pub(super) fn new(recorded: u64, tracing: Tracing) -> Time {
        Time { recorded, tracing }
    }

    /// What is left without tracing.
    pub(super) fn corrected(self) -> u64 {
        self.recorded.saturating_sub(self.tracing.took)
    }

    /// What tracing took of each of so many calls, in nanoseconds.
    pub(super) fn tracing_of_each(self, calls: u64) -> f64 {
        self.tracing.took as f64 / calls.max(1) as f64
    }

    /// Whether tracing took so much of it that it says little of the program.
    pub(super) fn is_marked(self) -> bool {
        is_mostly_tracing(self.recorded, self.tracing.took)
    }

    /// The part of it that tracing took, 0 to 1.
    fn share(self) -> Option<f64> {
        (self.recorded > 0).then(|| (self.tracing.took as f64 / self.recorded as f64).min(1.0))
    }

    /// Whether tracing took too much of it to say what is left.
    fn is_withheld(self) -> bool {
        self.tracing.took > self.recorded / MOST
    }

    /// Corrected, and the error; the part that tracing took.
    fn values(self) -> [Datum; 3] {
        let share = self.share().map_or(Datum::Absent, Datum::Share);
        if self.is_withheld() {
            return [Datum::Absent, Datum::Absent, share];
        }
        let error = self.tracing.error.saturating_add(self.tracing.took / MARGIN);
        [Datum::Time(self.corrected()), Datum::Time(error), share]
    }
}

/// Puts corrected times into a table of rows, beside those that were recorded, and marks these where tracing took much
/// of them. `times` are inclusive and exclusive time of a row, where it is known what tracing took of them.
pub(super) fn add_to(table: &mut Table, times: impl Fn(RowId) -> Option<[Time; 2]>) {
    let places = SUMS.map(|(key, _)| table.columns.iter().position(|column| column.key == key));
    for (row, &mark) in table.rows.iter_mut().zip(&table.marks) {
        for (place, time) in places.into_iter().zip(times(mark).into_iter().flatten()) {
            let Some(value) = place.and_then(|place| row.get_mut(place)) else { continue };
            if let (Datum::Time(recorded), true) = (&value, time.is_marked()) {
                *value = Datum::Traced(*recorded);
            }
        }
    }
    let seats = places.map(|place| place.map_or(0, |place| table.columns[place].seat));
    let columns = SUMS
        .iter()
        .zip(seats)
        .flat_map(|((_, columns), seat)| columns.map(|column| column.seat(seat).rank(RANK).shown(Shown::Never)));
    let columns: Vec<Column> = columns.collect();
    table.insert(&columns, |mark| match times(mark) {
        Some(times) => times.map(Time::values).concat(),
        None => vec![Datum::Absent; columns.len()],
    });
}

/// Shows people the corrected time beside the one by which rows are sorted, if a row is marked, and says what the marks
/// mean.
pub(super) fn explain(table: &mut Table, sort: Sort) -> Option<Note> {
    let is_marked = |value: &Datum| matches!(value, Datum::Traced(_));
    let marked = table.rows.iter().filter(|row| row.iter().any(is_marked)).count();
    if marked == 0 {
        return None;
    }
    let sum = usize::from(sort != Sort::Inclusive);
    let (key, columns) = SUMS[sum];
    let name = ["inclusive", "exclusive"][sum];
    let place = table.columns.iter().position(|column| column.key == key)?;
    if table.rows.iter().any(|row| is_marked(&row[place])) {
        table.show(columns[0].key, Shown::Always);
    }
    Some(Note::warning(format!(
        "{}; `corrected` is the {name} time without that cost, `-` if too little would be left to be sure",
        marks(marked)
    )))
}

/// What the mark at a time means, of so many rows.
pub(super) fn marks(rows: usize) -> String {
    format!("! more than {MOSTLY_TRACING} % of this time is the cost of tracing ({})", counted(rows as u64, "row"))
}

/// The sums of times, each with the columns that come from it.
pub(super) const SUMS: [(&str, [Column; 3]); 2] = [
    (
        "inclusive_ns",
        [
            Column::new("inclusive_corrected_ns", "inclusive corrected").heading("corrected").unit(SUM),
            Column::new("inclusive_error_ns", "inclusive +-").heading("+-").unit(SUM),
            Column::new("inclusive_tracing", "inclusive tracing").heading("tracing"),
        ],
    ),
    (
        "exclusive_ns",
        [
            Column::new("exclusive_corrected_ns", "exclusive corrected").heading("corrected").unit(SUM),
            Column::new("exclusive_error_ns", "exclusive +-").heading("+-").unit(SUM),
            Column::new("exclusive_tracing", "exclusive tracing").heading("tracing"),
        ],
    ),
];

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::fmt::Write as _;

    use rtrace_model::{CallCost, ExitPolicy, Header, Sink as _, Summary};

    use crate::testing::{script, writer};
    use crate::{By, Format, Histogram, Options, Sort, run};

    /// A trace in which `c` is called often, and does little more than to hit its probe; `d` calls it.
    fn of_many_short_calls() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = writer(folder.path());
        let exit = ExitPolicy::ReturnSite;
        let cost = CallCost { single_stepped: true, written: false, exit, inner: 90, whole: 190, spread: 1 };
        let short = CallCost { single_stepped: false, inner: 9, whole: 19, ..cost };
        writer.begin(&Header { calibration: vec![cost, short], ..Header::default() }).unwrap();
        let mut calls = "thread 1\n a 0 1009\n d 2000 6509".to_owned();
        for call in 0..20 {
            let start = 2_100 + 200 * call;
            write!(calls, "\n  c {start} {}", start + 100).unwrap();
        }
        writer.calls(&script(&calls).into()).unwrap();
        writer.finish(&Summary::default()).unwrap();
        folder
    }

    #[test]
    fn rows_are_in_the_order_of_their_time_without_tracing_and_have_shares_of_it() {
        let folder = of_many_short_calls();
        let report = |options: &Options| {
            let mut out = Vec::new();
            run(folder.path(), &Options { format: Format::Json, ..options.clone() }, &mut out).unwrap();
            let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
            value["rows"].as_array().unwrap().clone()
        };
        let rows = |by: By, sort: Sort, share: &str| {
            let rows = report(&Options { by, sort, ..Options::default() }).into_iter();
            let row = |row: serde_json::Value| {
                let [share, time] = [&row[share], &row["exclusive_ns"]].map(|figure| figure.as_f64().unwrap());
                (row["function"].as_str().unwrap().to_owned(), (share * 1_700.0).round(), time)
            };
            rows.map(row).collect::<Vec<_>>()
        };
        let row = |name: &str, own: f64, recorded: f64| (name.to_owned(), own, recorded);
        // Of the time of d, 9 ns are its own probe's, and 100 ns those of each call that it makes.
        let functions = rows(By::Function, Sort::Exclusive, "exclusive_share");
        assert_eq!(functions, [row("a", 1_000.0, 1_009.0), row("d", 500.0, 2_509.0), row("c", 200.0, 2_000.0)]);
        let tree = rows(By::Tree, Sort::Inclusive, "share");
        assert_eq!(tree, [row("a", 1_000.0, 1_009.0), row("d", 700.0, 2_509.0), row("c", 200.0, 2_000.0)]);
        let histogram = Some(Histogram::Durations);
        assert_eq!(report(&Options { histogram, limit: Some(1), ..Options::default() })[0]["function"], "a");
    }
}
