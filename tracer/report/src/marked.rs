//! Rows that tell calls apart by what ran around them on their thread: regions that a program marks by calling one function at
//! their begin, and another one at their end.
//!
//! A region lasts from the end of the call that begins it to the start of the call that ends it. Its name is the first text
//! that the call at its begin has as an argument, or else its first number; without values, all regions are one row. Where
//! regions are nested, calls are in the innermost. The marking calls themselves are in what is around their region.

use std::collections::HashMap;

use rtrace_exporters::TraceSet;
use rtrace_model::{Call, CallValues, LocationId, RegionId, Timestamp, Value, counted};

use super::Error;
use super::key::RowId;
use super::people::Note;
use super::table::{Column, Datum, SUM, Shown, Table};

/// The row of calls outside of all regions.
const OUTSIDE: RowId = 0;

/// Names that are told apart; all others are one row.
const MOST_NAMES: usize = 1 << 14;
const MORE: &str = "[more]";

/// The regions of a trace.
pub(super) struct Marked {
    /// By row; the first is that of what is outside.
    names: Vec<String>,
    /// The row from each of these times on, by thread.
    changes: HashMap<LocationId, Vec<(Timestamp, RowId)>>,
    /// How often each row was entered, and for how long it ran, with the regions within.
    sums: HashMap<RowId, (u64, u64)>,
    /// Begins without an end, and ends without a begin.
    alone: [u64; 2],
}

/// What a call marks.
enum Marker {
    Begin(RowId),
    End,
}

impl Marked {
    /// Finds the regions between calls of these two functions: `BEGIN..END`.
    ///
    /// # Errors
    /// No such function was traced, or the trace cannot be read.
    pub(super) fn new(functions: &str, trace: &TraceSet) -> Result<Marked, Error> {
        if !trace.profile().is_empty() {
            return Err(Error::Aggregated);
        }
        let unknown = || Error::NoMarkers(functions.to_owned());
        let (begin, end) = functions.split_once("..").ok_or_else(unknown)?;
        let named = |name: &str| -> Vec<RegionId> {
            let has_name = |region: &&rtrace_model::Region| {
                region.name == name || region.symbols.iter().any(|symbol| symbol.symbol == name)
            };
            trace.regions().iter().filter(has_name).map(|region| region.id).collect()
        };
        let (begins, ends) = (named(begin), named(end));
        if begins.is_empty() || ends.is_empty() {
            return Err(unknown());
        }
        let mut marked = Marked {
            names: vec!["(outside)".to_owned()],
            changes: HashMap::new(),
            sums: HashMap::new(),
            alone: [0; 2],
        };
        let mut rows: HashMap<String, RowId> = HashMap::new();
        let mut marks: HashMap<LocationId, Vec<(Timestamp, u64, Marker)>> = HashMap::new();
        let mut values = trace.value_reader();
        for batch in trace.calls() {
            let batch = batch?;
            let is_mark = |call: &&Call| begins.contains(&call.region) || ends.contains(&call.region);
            let calls: Vec<Call> = batch.iter().filter(is_mark).copied().collect();
            for (call, values) in calls.iter().zip(values.of(&calls)?) {
                let mark = if begins.contains(&call.region) {
                    let mut name = name_of(values.as_ref()).unwrap_or_else(|| functions.to_owned());
                    if marked.names.len() > MOST_NAMES && !rows.contains_key(&name) {
                        MORE.clone_into(&mut name);
                    }
                    let next = marked.names.len() as RowId;
                    let row = *rows.entry(name.clone()).or_insert(next);
                    if row == next {
                        marked.names.push(name);
                    }
                    Marker::Begin(row)
                } else {
                    Marker::End
                };
                // A call that was not timed marks where it starts.
                let time = match mark {
                    Marker::Begin(_) => call.end().unwrap_or(call.start),
                    Marker::End => call.start,
                };
                marks.entry(call.location).or_default().push((time, call.id, mark));
            }
        }
        for (location, mut marks) in marks {
            marks.sort_by_key(|(time, id, _)| (*time, *id));
            marked.pair(location, marks);
        }
        Ok(marked)
    }

    fn pair(&mut self, location: LocationId, marks: Vec<(Timestamp, u64, Marker)>) {
        let changes = self.changes.entry(location).or_default();
        let mut open: Vec<(RowId, Timestamp)> = Vec::new();
        for (time, _, mark) in marks {
            match (mark, open.last().copied()) {
                (Marker::Begin(row), _) => {
                    open.push((row, time));
                    self.sums.entry(row).or_default().0 += 1;
                }
                (Marker::End, Some((row, since))) => {
                    open.pop();
                    // Time within a region of the same name is the outer one's.
                    if open.iter().all(|(other, _)| *other != row) {
                        let sum = self.sums.entry(row).or_default();
                        sum.1 = sum.1.saturating_add(time.since(since));
                    }
                }
                (Marker::End, None) => self.alone[1] += 1,
            }
            changes.push((time, open.last().map_or(OUTSIDE, |(row, _)| *row)));
        }
        self.alone[0] += open.len() as u64;
    }

    /// The row of a call; without one, calls that are not told apart by time.
    pub(super) fn key(&self, call: Option<&Call>) -> RowId {
        let Some(call) = call else { return OUTSIDE };
        let changes = self.changes.get(&call.location).map_or(&[][..], Vec::as_slice);
        let after = changes.partition_point(|(time, _)| *time <= call.start);
        changes[..after].last().map_or(OUTSIDE, |(_, row)| *row)
    }

    /// Adds how often regions were entered, and how long they ran.
    pub(super) fn add_to(&self, table: &mut Table) {
        table.insert(&COLUMNS, |mark| match self.sums.get(&mark) {
            Some(&(entered, time)) => vec![Datum::Count(entered), Datum::Time(time)],
            None => vec![Datum::Absent; COLUMNS.len()],
        });
    }

    /// Says of how many marks the other one is missing.
    pub(super) fn unpaired(&self) -> Option<Note> {
        let [begins, ends] = self.alone;
        let said = || format!("{} did not end, {} without a begin", counted(begins, "region"), counted(ends, "end"));
        (begins + ends > 0).then(|| Note::warning(said()).kept())
    }

    /// What a row is, its name last.
    pub(super) const fn columns() -> &'static [Column] {
        const NAME: [Column; 1] = [Column::name("marked_region", "region")];
        &NAME
    }

    /// The values of [`columns`](Marked::columns).
    pub(super) fn labels(&self, key: RowId) -> Vec<Datum> {
        vec![Datum::Name(self.names.get(key as usize).cloned().unwrap_or_default())]
    }
}

pub(super) const COLUMNS: [Column; 2] = [
    Column::new("entered", "entered").seat(0),
    Column::new("region_ns", "region time").seat(1).unit(SUM).shown(Shown::IfNotZero),
];

/// The first text, or else the first number, that a call has as an argument.
fn name_of(values: Option<&CallValues>) -> Option<String> {
    let values = values?;
    let arguments = || values.iter().filter(|(column, _)| !column.at_exit).filter_map(|(_, value)| value);
    let text = arguments().find_map(|value| if let Value::Text(text) = value { Some(text.clone()) } else { None });
    text.or_else(|| match arguments().next()? {
        Value::Integer(number) => Some(number.to_string()),
        Value::Float(number) => Some(number.to_string()),
        Value::Text(text) => Some(text.clone()),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use rtrace_model::{Sink as _, Summary};

    use crate::testing::{script, writer};
    use crate::{By, Error, Format, Options, run};

    fn report(functions: &str, calls: &str) -> Result<serde_json::Value, Error> {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = writer(folder.path());
        writer.calls(&script(calls).into()).unwrap();
        writer.finish(&Summary::default()).unwrap();
        let options = Options { by: By::Marked(functions.to_owned()), format: Format::Json, ..Options::default() };
        let mut out = Vec::new();
        run(folder.path(), &options, &mut out)?;
        Ok(serde_json::from_slice(&out).unwrap())
    }

    #[test]
    fn calls_are_in_the_region_that_is_open_on_their_thread() {
        // `a` begins, `b` ends; regions may be nested.
        let calls =
            "thread 1\n c 0 5\n a 10 20\n c 30 40\n a 50 51\n d 60 70\n b 80 81\n c 85 90\n b 100 101\n c 110 120
                     thread 2\n c 30 40\n b 50 51\n a 60 61";
        let found = report("a..b", calls).unwrap();
        let row = |row: &serde_json::Value| {
            format!("{} {} {} {}", row["marked_region"], row["calls"], row["entered"], row["region_ns"])
        };
        let mut rows: Vec<String> = found["rows"].as_array().unwrap().iter().map(row).collect();
        rows.sort();
        // Marks are calls, too, and are in what is around the region.
        assert_eq!(rows, [r#""(outside)" 7 null null"#, r#""a..b" 5 3 80"#]);
        let notes = found["notes"].to_string();
        assert!(notes.contains("1 region did not end, 1 end without a begin"), "{notes}");
        for unknown in ["a", "a..nosuch"] {
            assert!(matches!(report(unknown, calls), Err(Error::NoMarkers(_))), "{unknown}");
        }
    }
}
