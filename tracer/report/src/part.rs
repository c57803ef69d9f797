//! A part of the time of a recording: which calls a report of it counts.
//!
//! A call counts if it ended in the part, with all of its time: each call is in one of the parts that follow each
//! other, and the reports of these add up to that of the recording. What has no time of its own, such as lost calls, is
//! in no report of a part.

use rtrace_exporters::TraceSet;
use rtrace_model::{Timestamp, format_ns};
use rtrace_profile::ClockSpan;

use super::Error;
use super::people::Note;

/// From when to when, in nanoseconds after the start of the recording; from its start or to its end where nothing is
/// said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Calls count that ended later.
    pub from: Option<u64>,
    /// Calls count that ended until then.
    pub to: Option<u64>,
}

impl Part {
    /// # Errors
    /// Nothing can be in it, or the calls have no times of their own.
    pub(super) fn of(self, trace: &TraceSet) -> Result<ClockSpan, Error> {
        if !trace.profile().is_empty() {
            return Err(Error::PartOfAggregated);
        }
        if self.from.zip(self.to).is_some_and(|(from, to)| to <= from) {
            return Err(Error::EmptyPart);
        }
        if let Some(length) = duration(trace).filter(|&length| self.from.is_some_and(|from| from >= length)) {
            return Err(Error::PartBehindEnd(length));
        }
        let begin = trace.header().begin.monotonic;
        let [from, to] = [self.from, self.to].map(|time| Some(Timestamp(begin.0.saturating_add(time?))));
        Ok(ClockSpan { from, to })
    }

    /// The nanoseconds of it that a recording of that length has.
    pub(super) fn length(self, duration: u64) -> u64 {
        self.to.unwrap_or(u64::MAX).min(duration).saturating_sub(self.from.unwrap_or(0))
    }

    /// What is said of it below the rows.
    pub(super) fn note(self) -> Note {
        Note::plain(format!(
            "only calls that ended {self} after the start of the recording, each with all of its time; how many were lost \
             then is not known"
        ))
    }
}

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.from.map(format_ns), self.to.map(format_ns)) {
            (Some(from), Some(to)) => write!(f, "between {from} and {to}"),
            (Some(from), None) => write!(f, "later than {from}"),
            (None, Some(to)) => write!(f, "until {to}"),
            (None, None) => f.write_str("at any time"),
        }
    }
}

/// Nanoseconds from the first begin of a recording to its last end, once it has ended.
pub(super) fn duration(trace: &TraceSet) -> Option<u64> {
    trace.summary().map(|summary| summary.end.monotonic.since(trace.header().begin.monotonic))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::collections::BTreeMap;
    use std::path::Path;

    use proptest::prelude::*;
    use rtrace_model::{Call, ClockAnchor, LocationId, RegionId, Sink as _, Summary};

    use super::*;
    use crate::testing::{nested, script, writer};
    use crate::{By, Format, Options, Sort, run};

    fn stored(calls: &[Call]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = writer(folder.path());
        writer.calls(&calls.to_vec().into()).unwrap();
        let last = calls.iter().map(Call::known_until).max().unwrap_or_default();
        let end = ClockAnchor { monotonic: last.max(Timestamp(1_000_000)), realtime_ns: 0 };
        writer.finish(&Summary { calls: calls.len() as u64, end, ..Summary::default() }).unwrap();
        folder
    }

    fn report(directory: &Path, options: Options) -> String {
        let mut out = Vec::new();
        run(directory, &options, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    /// Calls, inclusive and exclusive time by what rows stand for.
    type Rows = BTreeMap<u32, [u64; 3]>;

    fn reported(directory: &Path, by: By, key: &str, part: Option<Part>) -> Rows {
        let json = report(directory, Options { by, part, format: Format::Json, ..Options::default() });
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        let rows = json["rows"].as_array().unwrap().iter().map(|row| {
            let figures = ["calls", "inclusive_ns", "exclusive_ns"].map(|figure| row[figure].as_u64().unwrap());
            (u32::try_from(row[key].as_u64().unwrap()).unwrap(), figures)
        });
        rows.filter(|(_, figures)| figures[0] > 0).collect()
    }

    /// The same from the calls, one by one.
    fn counted(calls: &[Call], part: Part, key: fn(&Call) -> u32) -> Rows {
        let ended = |call: &Call| {
            let end = call.start.0 + call.duration.unwrap();
            part.from.is_none_or(|from| end > from) && part.to.is_none_or(|to| end <= to)
        };
        let by_id: BTreeMap<(LocationId, u64), &Call> =
            calls.iter().map(|call| ((call.location, call.id), call)).collect();
        let mut rows = Rows::new();
        for call in calls.iter().filter(|call| ended(call)) {
            let mut around = by_id.get(&(call.location, call.parent));
            let mut is_within = false;
            while let Some(outer) = around {
                is_within |= ended(outer) && key(outer) == key(call);
                around = by_id.get(&(call.location, outer.parent));
            }
            let row = rows.entry(key(call)).or_default();
            row[0] += 1;
            row[1] += if is_within { 0 } else { call.duration.unwrap() };
            row[2] += call.duration.unwrap() - call.child;
        }
        rows
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn a_part_has_the_calls_that_ended_in_it(
            shape in prop::collection::vec((1..3_u32, 0..4_usize), 1..120),
            bounds in prop::array::uniform2(0..400_u64),
        ) {
            let calls = nested(&shape);
            let folder = stored(&calls);
            let [first, second] = [bounds[0].min(bounds[1]), bounds[0].max(bounds[1]) + 1];
            let parts = [
                Part { from: None, to: Some(first) },
                Part { from: Some(first), to: Some(second) },
                Part { from: Some(second), to: None },
            ];
            let mut sums = BTreeMap::<u32, [u64; 2]>::new();
            for part in parts {
                let functions = reported(folder.path(), By::Function, "region", Some(part));
                prop_assert_eq!(&functions, &counted(&calls, part, |call| call.region.0), "{:?}", part);
                let threads = reported(folder.path(), By::Thread, "location", Some(part));
                prop_assert_eq!(threads, counted(&calls, part, |call| call.location.0), "{:?}", part);
                for (region, [calls, _, exclusive]) in functions {
                    let sum = sums.entry(region).or_default();
                    *sum = [sum[0] + calls, sum[1] + exclusive];
                }
            }
            let all = reported(folder.path(), By::Function, "region", None);
            prop_assert_eq!(sums, all.into_iter().map(|(region, of)| (region, [of[0], of[2]])).collect());
        }
    }

    #[test]
    fn a_part_says_that_it_is_one_and_what_it_does_not_know() {
        let folder = stored(&script("thread 1\n a 0 9000\n  b 1000 2000\n   c 1100 1200\n  b 3000 5000\n  c 6000 ?"));
        let part = Some(Part { from: Some(2_000), to: Some(6_000) });
        let table = report(folder.path(), Options { part, by: By::Tree, ..Options::default() });
        assert_eq!(
            table,
            "\
prog on box (Linux 6.18), recorded for 1.000 ms

calls  timed  inclusive %  inclusive us  exclusive us  function
    0      0            -             -             -  a
    1      1        100.0          2.00          2.00    b
    1      0            -             -             -    c

only calls that ended between 2.000 us and 6.000 us after the start of the recording, each with all of its time; how many were lost then is not known
all of the recording: 5 calls to 0 functions on 0 threads. Complete: no calls lost.
not timed, so their time is not here: c (100.0 % of its calls)
"
        );
        let csv = report(folder.path(), Options { part, format: Format::Csv, ..Options::default() });
        assert!(!csv.contains("lost") && !csv.contains("estimated") && csv.contains("\n1,1,"), "{csv}");
        let callers =
            report(folder.path(), Options { part, by: By::Caller, format: Format::Csv, ..Options::default() });
        assert!(callers.lines().skip(1).all(|row| row.contains(",a,") || row.ends_with(",a")), "{callers}");
        let json = report(folder.path(), Options { part, format: Format::Json, ..Options::default() });
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!([&json["trace"]["from_ns"], &json["trace"]["to_ns"]], [2_000, 6_000]);
        let error = |options: Options| run(folder.path(), &options, &mut Vec::new()).unwrap_err().to_string();
        let empty = Some(Part { from: Some(7), to: Some(7) });
        assert!(error(Options { part: empty, ..Options::default() }).ends_with("it ends before it starts"));
        let behind = Some(Part { from: Some(2_000_000), to: None });
        assert!(error(Options { part: behind, ..Options::default() }).contains("has ended"));
        assert!(error(Options { part, sort: Sort::Lost, ..Options::default() }).contains("sort by lost"));
    }

    #[test]
    fn most_of_the_other_calls_are_not_read() {
        let outer = Call { duration: Some(7_000_000), child: 0, ..script("thread 1\n a 0 1")[0] };
        let inner = |id: u64| Call {
            id,
            parent: 1,
            depth: 1,
            region: RegionId(1),
            start: Timestamp(id * 10),
            duration: Some(7),
            ..outer
        };
        let calls: Vec<Call> = (2..650_000).map(inner).chain([outer]).collect();
        let folder = stored(&calls);
        let part = Part { from: Some(1_000_000), to: Some(1_200_000) };
        let trace = TraceSet::open(folder.path()).unwrap();
        let near = trace.calls_near(Timestamp(1_000_000), Timestamp(1_200_000));
        // The first batch, and the last with the call around all, and the one before that.
        assert_eq!((near.count(), trace.batches()), (3, 5));
        let rows = reported(folder.path(), By::Function, "region", Some(part));
        assert_eq!(rows, Rows::from([(1, [20_000, 140_000, 140_000])]));
    }
}
