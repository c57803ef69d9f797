//! A filter file of Score-P that leaves out the functions whose calls cost most and say least.
//!
//! A function is one of these if it was called often, nearly all of its calls take no longer than tracing them does, and
//! the cost of tracing it is a notable part of that of all functions and of the time that was recorded. Time with callees
//! counts: a short function that calls others says who called them. A mean would not do: a thread that loses its CPU
//! makes a few calls a thousand times longer.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Read as _, Write};
use std::path::Path;

use rtrace_exporters::{Cost, Costs, TraceSet, Traced};
use rtrace_model::{FoldedPath, Region, RegionId, counted, escape, format_ns, grouped};
use rtrace_profile::{Caller, Visited, Visitor};

use super::info::size_of;
use super::part::duration;
use super::reading::Need;
use super::{Error, walk};

/// Calls that a function must have: fewer cost nothing, whatever else is true of them.
const LEAST_CALLS: u64 = 1_000;
/// The part of its calls that must take no longer than tracing them does.
const LEAST_SHORT: f64 = 0.9;
/// The part that tracing a function must have of the cost of all calls.
const LEAST_OF_COST: f64 = 0.01;
/// The part that it must have of the time that was recorded.
const LEAST_OF_TIME: f64 = 0.001;

/// What means something else than a name in a filter file.
const WORDS: [&str; 8] = [
    "INCLUDE",
    "EXCLUDE",
    "MANGLED",
    "DEMANGLED",
    "SCOREP_REGION_NAMES_BEGIN",
    "SCOREP_REGION_NAMES_END",
    "SCOREP_FILE_NAMES_BEGIN",
    "SCOREP_FILE_NAMES_END",
];

/// What a suggestion begins with, and nothing else does.
const HEAD: &str = "# A Score-P filter file, suggested by rtrace\n";

/// What to leave out of a recording like the one that was read.
pub struct Suggestion {
    left_out: Vec<LeftOut>,
    /// Functions that would be left out, had not others the same names.
    ambiguous: usize,
    savings: Savings,
}

/// A function that is left out.
struct LeftOut {
    /// A pattern that matches it, and no function that stays.
    pattern: String,
    is_mangled: bool,
    name: String,
    library: String,
    sums: FunctionCost,
}

/// Sums over the calls of a function.
#[derive(Clone, Copy, Default)]
struct FunctionCost {
    calls: u64,
    timed: u64,
    /// Calls that take no longer than tracing them does.
    short: u64,
    /// What tracing took, in nanoseconds.
    cost: u64,
}

impl FunctionCost {
    /// The part of the timed calls that are short.
    fn share(self) -> f64 {
        self.short as f64 / self.timed.max(1) as f64
    }
}

/// Finds what to leave out, by the calls of the trace in this directory.
///
/// # Errors
/// The trace cannot be read, or does not say what tracing costs.
pub fn suggest(directory: &Path) -> Result<Suggestion, Error> {
    let trace = TraceSet::open(directory)?;
    let sums = costs(&trace)?;
    let cost = total(&sums, |sums| sums.cost);
    let recorded = duration(&trace).unwrap_or_default().saturating_mul(trace.traces().len() as u64);
    let least = (cost as f64 * LEAST_OF_COST).max(recorded as f64 * LEAST_OF_TIME);
    let is_worth = |sums: &&FunctionCost| {
        let is_short = sums.timed > 0 && sums.share() >= LEAST_SHORT;
        sums.calls >= LEAST_CALLS && is_short && sums.cost as f64 >= least
    };
    let worth: HashSet<RegionId> = sums.iter().filter(|(_, sums)| is_worth(sums)).map(|(&id, _)| id).collect();
    let named = patterns(trace.regions(), &worth);
    let ambiguous = worth.len() - named.len();
    let mut left_out: Vec<LeftOut> = named
        .into_iter()
        .filter_map(|(id, (pattern, is_mangled))| {
            let region = trace.region(id)?;
            let library = trace.library(region.library).map_or("[unknown]", |library| library.name()).to_owned();
            Some(LeftOut { pattern, is_mangled, name: region.name.clone(), library, sums: *sums.get(&id)? })
        })
        .collect();
    left_out.sort_by(|a, b| b.sums.cost.cmp(&a.sums.cost).then_with(|| a.pattern.cmp(&b.pattern)));
    Ok(Suggestion { left_out, ambiguous, savings: Savings::none(directory, &trace, &sums) })
}

/// What a recording like the one in this directory saves if it leaves out the functions that `is_left_out` names.
///
/// # Errors
/// As for [`suggest`].
pub fn savings(directory: &Path, is_left_out: impl Fn(&Region) -> bool) -> Result<String, Error> {
    let trace = TraceSet::open(directory)?;
    let sums = costs(&trace)?;
    let left_out = trace.regions().iter().filter(|region| is_left_out(region));
    let left_out = left_out.map(|region| sums.get(&region.id).copied().unwrap_or_default());
    Ok(Savings::none(directory, &trace, &sums).sentence(left_out))
}

/// What tracing the functions of a trace took.
fn costs(trace: &TraceSet) -> Result<HashMap<RegionId, FunctionCost>, Error> {
    let costs = Costs::of(trace).ok_or(Error::CostsUnknown)?;
    let costs = CostVisitor { costs, sums: HashMap::new() };
    let (walk, _) = walk(trace, Need::Paths, costs)?;
    Ok(walk.visitor.sums)
}

fn total(sums: &HashMap<RegionId, FunctionCost>, of: fn(&FunctionCost) -> u64) -> u64 {
    sums.values().map(of).fold(0, u64::saturating_add)
}

/// All of a recording, of which functions may be left out.
struct Savings {
    calls: u64,
    cost: u64,
    /// Bytes that a call takes, on average, where each has a record.
    bytes_per_call: Option<f64>,
}

impl Savings {
    /// Those of a recording that leaves out nothing.
    fn none(directory: &Path, trace: &TraceSet, sums: &HashMap<RegionId, FunctionCost>) -> Savings {
        let (calls, cost) = (total(sums, |sums| sums.calls), total(sums, |sums| sums.cost));
        let has_records = trace.profile().is_empty() && calls > 0;
        let bytes_per_call = has_records.then(|| size_of(directory) as f64 / calls as f64);
        Savings { calls, cost, bytes_per_call }
    }

    /// What it saves to leave these out.
    fn sentence(&self, left_out: impl Iterator<Item = FunctionCost>) -> String {
        let (mut functions, mut calls, mut cost) = (0, 0_u64, 0_u64);
        for sums in left_out {
            functions += 1;
            (calls, cost) = (calls.saturating_add(sums.calls), cost.saturating_add(sums.cost));
        }
        format!(
            "leaving out {} saves {} of {}, about {} of {} that tracing took{}",
            counted(functions, "function"),
            grouped(calls),
            counted(self.calls, "call"),
            format_ns(cost),
            format_ns(self.cost),
            self.bytes(calls).map_or_else(String::new, |bytes| format!(", and about {bytes}")),
        )
    }

    fn bytes(&self, calls: u64) -> Option<String> {
        let bytes = calls as f64 * self.bytes_per_call?;
        let (unit, size) = if bytes >= 1e6 { ("MB", 1e6) } else { ("kB", 1e3) };
        Some(format!("{} {unit}", grouped((bytes / size).round() as u64)))
    }
}

/// For each of the functions in `chosen` a pattern that matches it and none of the others, where there is one.
fn patterns(regions: &[Region], chosen: &HashSet<RegionId>) -> HashMap<RegionId, (String, bool)> {
    let names = |region: &'_ Region| -> Vec<String> {
        match region.symbols.as_slice() {
            [] => vec![region.name.clone()],
            symbols => symbols.iter().map(|name| name.symbol.clone()).collect(),
        }
    };
    let mut chosen = chosen.clone();
    loop {
        let staying = regions.iter().filter(|region| !chosen.contains(&region.id));
        let taken: HashSet<String> = staying.flat_map(names).collect();
        let own =
            |region: &Region| names(region).into_iter().find(|name| !taken.contains(name) && can_be_written(name));
        let leaving = regions.iter().filter(|region| chosen.contains(&region.id));
        let named: HashMap<RegionId, (String, bool)> = leaving
            .filter_map(|region| Some((region.id, (quoted(&own(region)?), !region.symbols.is_empty()))))
            .collect();
        // What has no name of its own stays, and so do its names.
        if named.len() == chosen.len() {
            return named;
        }
        chosen = named.into_keys().collect();
    }
}

/// Words end where lines do, and what terminals obey goes to none.
fn can_be_written(name: &str) -> bool {
    !name.is_empty() && escape(name) == name
}

/// A pattern that matches only this name: what means something in patterns and files is escaped.
fn quoted(name: &str) -> String {
    let mut quoted = String::from(if WORDS.contains(&name) { "\\" } else { "" });
    for c in name.chars() {
        if c.is_whitespace() || matches!(c, '*' | '?' | '[' | ']' | '\\' | '#') {
            quoted.push('\\');
        }
        quoted.push(c);
    }
    quoted
}

struct CostVisitor<'a> {
    costs: Costs<'a>,
    sums: HashMap<RegionId, FunctionCost>,
}

impl CostVisitor<'_> {
    /// Adds calls, of which so many are timed and `short` tells how many take no longer than that.
    fn add(&mut self, of: Visited<'_>, timed: u64, short: impl FnOnce(u64) -> u64) {
        let (region, location, site) = (of.region(), of.location(), of.call_site());
        let traced = |calls, stamped| Traced { region, location, site, calls, stamped, share_returns: false };
        // What tracing takes, and what of that is in the duration.
        let Cost { inner, whole, .. } = self.costs.cost(&traced(1, 1));
        let calls = of.totals().calls;
        let cost = self.costs.cost(&traced(calls, timed)).whole;
        let sums = self.sums.entry(region).or_default();
        sums.calls = sums.calls.saturating_add(calls);
        sums.timed = sums.timed.saturating_add(timed);
        sums.short = sums.short.saturating_add(short(whole.saturating_add(inner)));
        sums.cost = sums.cost.saturating_add(cost);
    }
}

impl Visitor for CostVisitor<'_> {
    type Mark = ();

    fn visit(&mut self, calls: Visited<'_>, _: Caller<'_, ()>) {
        let short = |limit| {
            let sum = |durations: &mut dyn Iterator<Item = (u64, u64)>| {
                durations
                    .filter(|(duration, _)| *duration <= limit)
                    .fold(0, |sum, (_, calls)| u64::saturating_add(sum, calls))
            };
            match calls {
                Visited::One(measured) | Visited::Around(measured) => {
                    sum(&mut measured.call.duration.into_iter().map(|duration| (duration, 1)))
                }
                Visited::Path(FoldedPath { detail: Some(detail), .. }) => sum(&mut detail.durations.iter().copied()),
                // Durations are known by powers of two: their middle decides.
                Visited::Path(path) => {
                    sum(&mut (0..).zip(&path.histogram).map(|(bucket, &calls)| ((1_u64 << bucket) * 3 / 4, calls)))
                }
            }
        };
        let timed = if let Visited::Path(path) = calls { path.timed } else { calls.totals().timed() };
        self.add(calls, timed, short);
    }
}

impl Suggestion {
    /// Whether nothing is worth leaving out.
    pub fn is_empty(&self) -> bool {
        self.left_out.is_empty()
    }

    /// One line on what it saves, for people.
    pub fn summary(&self) -> String {
        let ambiguous = match self.ambiguous {
            0 => String::new(),
            number => format!("; {} cannot be told from others by name, and stay", counted(number as u64, "function")),
        };
        if self.is_empty() {
            return format!(
                "no function is worth leaving out, of those that were called: {} took about {} to trace{ambiguous}",
                counted(self.savings.calls, "call"),
                format_ns(self.savings.cost)
            );
        }
        self.savings.sentence(self.left_out.iter().map(|left_out| left_out.sums)) + &ambiguous
    }

    /// Writes the filter file.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{HEAD}#\n# {}.", self.summary())?;
        writeln!(out, "# Their calls take no longer than tracing them does.\n#")?;
        writeln!(out, "# rtrace run --filter FILE …; for Score-P, SCOREP_FILTERING_FILE=FILE")?;
        writeln!(out, "SCOREP_REGION_NAMES_BEGIN")?;
        for LeftOut { pattern, is_mangled, name, library, sums } in &self.left_out {
            let (calls, each) = (counted(sums.calls, "call"), format_ns(sums.cost / sums.calls.max(1)));
            let share = (sums.share() * 1000.0).floor() / 10.0;
            let bytes = self.savings.bytes(sums.calls).map_or_else(String::new, |bytes| format!(" and about {bytes}"));
            let (name, library) = (escape(name), escape(library));
            writeln!(
                out,
                "\n  # {name} ({library}): {calls}, {share:.1} % of them no longer than the {each} that tracing one takes."
            )?;
            writeln!(out, "  # Without them: {} less{bytes}.", format_ns(sums.cost))?;
            writeln!(out, "  EXCLUDE {}{pattern}", if *is_mangled { "MANGLED " } else { "" })?;
        }
        writeln!(out, "\nSCOREP_REGION_NAMES_END")
    }
}

/// Whether the file is an older suggestion.
pub fn is_suggestion(path: &Path) -> bool {
    let mut head = vec![0; HEAD.len()];
    File::open(path).is_ok_and(|mut file| file.read_exact(&mut head).is_ok() && head == HEAD.as_bytes())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use rtrace_model::{
        CallCost, ClockAnchor, Definition, ExitPolicy, HISTOGRAM_BUCKETS, Header, LocationId, PathProfile, ReturnSites,
        Sink, Summary, SymbolName, Timestamp,
    };

    use super::*;
    use crate::testing::{self, path, script, writer};

    /// What is suggested of a recording of so many nanoseconds.
    fn suggestion(calls: &str, recorded: u64, calibration: Vec<CallCost>) -> Result<Suggestion, Error> {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = writer(folder.path());
        let begin = ClockAnchor { monotonic: Timestamp(0), realtime_ns: 0 };
        writer.begin(&Header { calibration, begin, ..Header::default() }).unwrap();
        writer.calls(&script(calls).into()).unwrap();
        let end = ClockAnchor { monotonic: Timestamp(recorded), realtime_ns: 0 };
        writer.finish(&Summary { end, ..Summary::default() }).unwrap();
        suggest(folder.path())
    }

    fn costs() -> Vec<CallCost> {
        let exit = ExitPolicy::ReturnSite;
        vec![CallCost { single_stepped: false, written: false, exit, inner: 100, whole: 300, spread: 1 }]
    }

    fn names(suggestion: &Suggestion) -> Vec<&str> {
        suggestion.left_out.iter().map(|left_out| left_out.name.as_str()).collect()
    }

    /// So many calls of a function, each of so long.
    fn calls(function: &str, count: u64, duration: u64) -> String {
        let call = |number: u64| format!(" {function} {} {}\n", number * 10_000, number * 10_000 + duration);
        (0..count).map(call).collect()
    }

    #[test]
    fn short_and_frequent_calls_are_left_out() {
        // a is short, b is long; d is as short, and is called too rarely.
        let script = format!(
            "thread 1\n{}thread 2\n{}thread 3\n{}",
            calls("a", 2000, 350),
            calls("b", 2000, 450),
            calls("d", 999, 350)
        );
        let suggestion = suggestion(&script, 20_000_000, costs()).unwrap();
        assert_eq!(names(&suggestion), ["a"]);
        let mut text = Vec::new();
        suggestion.write(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(
            text.starts_with(HEAD) && text.contains("saves 2,000 of 4,999 calls, about 600.000 us of 1.500 ms"),
            "{text}"
        );
        assert!(
            text.contains(
                "\n  # a (libone.so): 2,000 calls, 100.0 % of them no longer than the 300 ns that tracing one takes.\n"
            ),
            "{text}"
        );
        assert!(text.contains("\n  # Without them: 600.000 us less and about "), "{text}");
        assert!(text.ends_with("\n  EXCLUDE a\n\nSCOREP_REGION_NAMES_END\n"), "{text}");
    }

    #[test]
    fn who_calls_others_says_something() {
        let outer = |number: u64| format!(" a {0} {1}\n  b {0} {1}\n", number * 10_000, number * 10_000 + 350);
        let nested: String = (0..2000).map(outer).collect();
        assert_eq!(names(&suggestion(&format!("thread 1\n{nested}"), 1, costs()).unwrap()), ["a", "b"]);
        let outer = |number: u64| {
            format!(" a {0} {1}\n  b {0} {2}\n", number * 10_000, number * 10_000 + 800, number * 10_000 + 350)
        };
        let nested: String = (0..2000).map(outer).collect();
        assert_eq!(names(&suggestion(&format!("thread 1\n{nested}"), 1, costs()).unwrap()), ["b"]);
    }

    #[test]
    fn a_few_long_calls_make_no_function_long() {
        let with_long =
            |count| format!("thread 1\n{}thread 2\n{}", calls("a", 2000, 350), calls("a", count, 5_000_000));
        assert_eq!(names(&suggestion(&with_long(200), 1, costs()).unwrap()), ["a"]);
        assert!(suggestion(&with_long(250), 1, costs()).unwrap().is_empty());
    }

    #[test]
    fn folded_calls_are_judged_by_powers_of_two() {
        // Durations from 256 ns to 511 ns, and from 512 ns to 1023 ns.
        for (bucket, is_left_out) in [(9, true), (10, false)] {
            let folder = tempfile::tempdir().unwrap();
            let mut writer = writer(folder.path());
            writer.begin(&Header { calibration: costs(), ..Header::default() }).unwrap();
            let mut histogram = [0; HISTOGRAM_BUCKETS];
            histogram[bucket] = 2000;
            let path = PathProfile {
                calls: 2000,
                timed: 2000,
                inclusive: 800_000,
                exclusive: 800_000,
                min: Some(300),
                max: Some(900),
                histogram,
                ..path(RegionId(0), LocationId(1))
            };
            writer.profile(&[path]).unwrap();
            writer.finish(&Summary::default()).unwrap();
            let suggestion = suggest(folder.path()).unwrap();
            assert_eq!(!suggestion.is_empty(), is_left_out);
            assert_eq!(suggestion.savings.bytes(2000), None, "there is no record for each call");
        }
    }

    #[test]
    fn what_costs_little_of_the_time_stays() {
        let script = format!("thread 1\n{}", calls("a", 2000, 350));
        let none = suggestion(&script, 600_000_001, costs()).unwrap();
        assert!(none.is_empty());
        assert_eq!(
            none.summary(),
            "no function is worth leaving out, of those that were called: 2,000 calls took about 600.000 us to trace"
        );
        assert_eq!(names(&suggestion(&script, 599_999_999, costs()).unwrap()), ["a"]);
    }

    #[test]
    fn single_steps_of_return_sites_cost_what_they_cost() {
        let cost =
            |single_stepped, exit, whole| CallCost { single_stepped, written: false, exit, inner: 0, whole, spread: 0 };
        let costs = [
            cost(false, ExitPolicy::EntryOnly, 100),
            cost(false, ExitPolicy::ReturnSite, 200),
            cost(true, ExitPolicy::EntryOnly, 1_100),
        ];
        let definitions = testing::definitions();
        let region = Region { exit: ExitPolicy::ReturnSite, ..definitions.region(RegionId(0)).unwrap().clone() };
        let folder = tempfile::tempdir().unwrap();
        let mut writer = writer(folder.path());
        writer.begin(&Header { calibration: costs.into(), ..Header::default() }).unwrap();
        writer.define(&Definition::Region(region)).unwrap();
        writer.calls(&script(&format!("thread 1\n{}", calls("a", 2_000, 150))).into()).unwrap();
        let return_sites = ReturnSites { hits: 2_000, single_stepped: 1_000, ..ReturnSites::default() };
        writer.finish(&Summary { return_sites, ..Summary::default() }).unwrap();
        assert_eq!(suggest(folder.path()).unwrap().savings.cost, 2_000 * 700);
    }

    #[test]
    fn nothing_is_said_without_calls_times_or_costs() {
        assert!(suggestion("", 1000, costs()).unwrap().is_empty());
        let untimed: String = (0..2000).map(|number| format!(" a {number} ?\n")).collect();
        assert!(suggestion(&format!("thread 1\n{untimed}"), 1, costs()).unwrap().is_empty());
        let error = suggestion(&calls("a", 1, 1), 1, Vec::new()).err().unwrap();
        assert!(matches!(error, Error::CostsUnknown));
    }

    fn region(id: u32, symbols: &[&str]) -> Region {
        let symbol = |name: &&str| SymbolName { symbol: (*name).to_owned(), version: None };
        let name = symbols.first().copied().unwrap_or_default().to_owned();
        Region { symbols: symbols.iter().map(symbol).collect(), ..testing::region(id, name) }
    }

    #[test]
    fn only_names_that_nothing_else_has_are_taken() {
        let regions = [region(0, &["f", "f_alias"]), region(1, &["f"]), region(2, &["g"]), region(3, &["g"])];
        let of = |chosen: &[u32]| {
            let chosen = chosen.iter().map(|&id| RegionId(id)).collect();
            let mut named: Vec<_> =
                patterns(&regions, &chosen).into_iter().map(|(id, (name, _))| (id.0, name)).collect();
            named.sort_unstable();
            named
        };
        assert_eq!(of(&[0]), [(0, "f_alias".to_owned())]);
        assert_eq!(of(&[1]), []);
        assert_eq!(of(&[2, 3]), [(2, "g".to_owned()), (3, "g".to_owned())]);
        assert_eq!(of(&[0, 2]), [(0, "f_alias".to_owned())]);
    }

    #[test]
    fn what_means_something_in_a_filter_is_escaped() {
        assert_eq!(quoted("a b*[x]#\\?"), "a\\ b\\*\\[x\\]\\#\\\\\\?");
        assert_eq!(quoted("INCLUDE"), "\\INCLUDE");
        assert_eq!(quoted("SCOREP_REGION_NAMES_END"), "\\SCOREP_REGION_NAMES_END");
        assert!(!can_be_written("a\nEXCLUDE *") && !can_be_written("\x1b[2J") && !can_be_written(""));
    }
}
