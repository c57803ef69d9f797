//! Where CPU time was spent, by samples: in traced functions, whose calls are exact, and in all others.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::ops::AddAssign;

use rtrace_exporters::{TraceSet, TracedCode};
use rtrace_model::{CallSite, RegionId, counted, grouped};

use super::people::Note;
use super::reading::{self, Need};
use super::table::{Column, Datum, Table};
use super::{Error, Options, SummedRows};

/// How far a share may be from the truth in 95 of 100 cases, in standard deviations.
const DEVIATIONS: f64 = 1.96;

/// Libraries that are named below a report.
const NAMED: usize = 3;

const KERNEL: &str = "(kernel)";
const NO_FILE: &str = "(no file)";
const NO_SYMBOL: &str = "(no symbol)";

pub(super) const COLUMNS: [Column; 5] = [
    Column::new("cpu_share", "cpu").seat(0).with_bar(),
    Column::new("samples", "samples").seat(1),
    Column::new("calls", "calls").seat(2),
    Column::label("library", "library").rank(4),
    Column::name("function", "function"),
];

/// The part of the programs' CPU time that a row's functions took themselves.
pub(super) const SHARE: Column = Column::new("cpu_share", "cpu").seat(1).rank(1);

/// CPU time by samples.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CpuTime {
    /// In nanoseconds.
    pub(super) time: u64,
    /// As a part of the programs' CPU time.
    pub(super) share: f64,
}

impl AddAssign for CpuTime {
    fn add_assign(&mut self, other: CpuTime) {
        self.time = self.time.saturating_add(other.time);
        self.share += other.share;
    }
}

/// The samples of a function that is not in the kernel.
#[derive(Default)]
struct FunctionSamples {
    samples: u64,
    /// The function, if it is traced.
    region: Option<RegionId>,
}

/// All samples of a recording.
struct CpuSums {
    /// By library and function.
    functions: BTreeMap<(String, String), FunctionSamples>,
    kernel: u64,
    /// Samples that could not be noted: they are in no other sum.
    lost: u64,
}

impl CpuSums {
    fn new(trace: &TraceSet) -> CpuSums {
        let (names, code) = (LibraryNames::new(trace), TracedCode::of(trace));
        let mut sums = CpuSums { functions: BTreeMap::new(), kernel: 0, lost: 0 };
        for of in trace.cpu_samples() {
            let sum = match (of.pid, of.call_site.and_then(|id| trace.call_site(id))) {
                (None, _) => &mut sums.lost,
                (Some(_), None) => &mut sums.kernel,
                (Some(_), Some(site)) => {
                    let region = code.region(site);
                    let known = site.function.as_deref().unwrap_or(NO_SYMBOL);
                    let function = region.map_or(known, |region| region.name.as_str());
                    let key = (names.of(site).to_owned(), function.to_owned());
                    let of_function = sums.functions.entry(key).or_default();
                    of_function.region = of_function.region.or(region.map(|region| region.id));
                    &mut of_function.samples
                }
            };
            *sum = sum.saturating_add(of.samples);
        }
        sums
    }

    fn all(&self) -> u64 {
        self.functions.values().map(|of| of.samples).fold(self.kernel, u64::saturating_add)
    }

    /// How many samples there are, and how right shares of them are.
    fn basis(&self, hertz: Option<u32>) -> String {
        let points = DEVIATIONS * 50.0 / (self.all() as f64).sqrt();
        let rate = hertz.map_or_else(String::new, |hertz| format!(" ({} a second of each CPU)", grouped(hertz.into())));
        let lost = match self.lost {
            0 => String::new(),
            lost => format!("; {} more could not be noted", grouped(lost)),
        };
        format!("{}{rate}, shares right to {points:.1} points (95 %){lost}", counted(self.all(), "sample"))
    }
}

/// What the files of a trace are called.
struct LibraryNames<'a> {
    /// By path.
    names: HashMap<&'a str, &'a str>,
}

impl<'a> LibraryNames<'a> {
    fn new(trace: &'a TraceSet) -> LibraryNames<'a> {
        let last = |path: &'a str| path.rsplit('/').next().unwrap_or(path);
        let mut names: HashMap<&str, &str> =
            trace.libraries().iter().map(|library| (library.path.as_str(), library.name())).collect();
        let mut taken: HashMap<&str, &str> = names.iter().map(|(&path, &name)| (name, path)).collect();
        for path in trace.call_sites().iter().filter_map(|site| site.file.as_deref()) {
            names.entry(path).or_insert_with(|| match *taken.entry(last(path)).or_insert(path) {
                other if other != path => path,
                _ => last(path),
            });
        }
        LibraryNames { names }
    }

    fn of(&self, site: &'a CallSite) -> &'a str {
        site.file.as_deref().map_or(NO_FILE, |path| self.names.get(path).copied().unwrap_or(path))
    }
}

/// The rows: functions with the most samples first.
///
/// # Errors
/// CPU time was not sampled, what is asked for takes calls, or the trace cannot be read.
pub(super) fn sum_up(trace: &TraceSet, options: &Options) -> Result<SummedRows, Error> {
    let Options { histogram, memory, part, min, .. } = options;
    if histogram.is_some() || *memory || part.is_some() || min.is_some() {
        return Err(Error::SamplesAreWhole);
    }
    if trace.cpu_samples().is_empty() {
        return Err(Error::NoCpuSamples);
    }
    let shares = reading::read(trace, Need::Paths, &mut [])?;
    let mut calls: HashMap<RegionId, u64> = HashMap::new();
    shares.iter().for_each(|(&(region, _), totals)| *calls.entry(region).or_default() += totals.calls);
    let sums = CpuSums::new(trace);
    let all = sums.all().max(1);
    let name = |name: &str| Datum::Name(name.to_owned());
    let row = |samples: u64, calls: Option<u64>, library: Datum, function: &str| {
        let share = Datum::Share(samples as f64 / all as f64);
        vec![share, Datum::Count(samples), calls.map_or(Datum::Absent, Datum::Count), library, name(function)]
    };
    let mut rows: Vec<(u64, Vec<Datum>)> = sums
        .functions
        .iter()
        .map(|((library, function), of)| {
            let calls = of.region.map(|region| calls.get(&region).copied().unwrap_or(0));
            (of.samples, row(of.samples, calls, name(library), function))
        })
        .collect();
    if sums.kernel > 0 {
        rows.push((sums.kernel, row(sums.kernel, None, Datum::Absent, KERNEL)));
    }
    rows.sort_by_key(|(samples, _)| Reverse(*samples));
    let rows = rows.into_iter().map(|(_, row)| row).collect();
    let table = Table { columns: COLUMNS.to_vec(), rows, ..Table::default() };
    let remarks =
        vec![Note::plain("samples are of the function alone, calls are exact; calls of `-` are not traced").kept()];
    Ok(SummedRows { table, lost_callers: 0, shares, remarks, efficiency: None })
}

/// CPU time of traced functions themselves, as far as samples met them.
pub(super) fn of_regions(trace: &TraceSet) -> Vec<(RegionId, CpuTime)> {
    let Some(hertz) = rate(trace) else { return Vec::new() };
    let sums = CpuSums::new(trace);
    let all = sums.all().max(1) as f64;
    let found = |of: &FunctionSamples| {
        let time = of.samples.saturating_mul(1_000_000_000) / u64::from(hertz.max(1));
        Some((of.region?, CpuTime { time, share: of.samples as f64 / all }))
    };
    sums.functions.values().filter_map(found).collect()
}

fn rate(trace: &TraceSet) -> Option<u32> {
    trace.traces().next().and_then(|trace| trace.header().sampling)
}

/// In which libraries CPU time was spent, where it was sampled.
pub(super) fn note(trace: &TraceSet) -> Option<Note> {
    trace.cpu_samples().first()?;
    let sums = CpuSums::new(trace);
    let mut libraries: BTreeMap<&str, u64> = BTreeMap::new();
    for ((library, _), of) in &sums.functions {
        *libraries.entry(library).or_default() += of.samples;
    }
    libraries.insert(KERNEL, sums.kernel);
    let mut libraries: Vec<(&str, u64)> = libraries.into_iter().filter(|(_, samples)| *samples > 0).collect();
    libraries.sort_by_key(|(_, samples)| Reverse(*samples));
    let share = |samples: u64| samples as f64 / sums.all().max(1) as f64 * 100.0;
    let said = libraries.iter().take(NAMED).map(|(name, samples)| format!("{:.1} % in {name}", share(*samples)));
    let said = said.collect::<Vec<_>>().join(", ");
    Some(Note::plain(format!(
        "CPU time of the programs: {said}; {}; --by cpu shows functions",
        sums.basis(rate(trace))
    )))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use rtrace_model::{
        CallSiteId, Context, ContextEnding, ContextId, CpuSamples, Definition, Estimate, Header, Region, RegionId,
        Sink as _, Summary,
    };

    use crate::testing::{region, script, writer};
    use crate::{By, Error, Format, Options, Sort, run};

    fn report(samples: &[(Option<u32>, Option<u32>, u64)], options: Options) -> Result<serde_json::Value, Error> {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = writer(folder.path());
        writer.begin(&Header { sampling: Some(99), ..Header::default() }).unwrap();
        writer.calls(&script("thread 1\n a 0 100\n a 200 300").into()).unwrap();
        let site = |id: u32, file: &str, offset: u64, function: Option<&str>| {
            let (file, function) = (Some(file.to_owned()), function.map(str::to_owned));
            let site = rtrace_model::CallSite { id: CallSiteId(id), file, offset, function, ..Default::default() };
            Definition::CallSite(site)
        };
        let traced = Region { file_offset: 128, size: 32, ..region(0, "a".to_owned()) };
        writer.define(&Definition::Region(traced)).unwrap();
        let throttled = Region { file_offset: 256, size: 32, ..region(1, "b".to_owned()) };
        writer.define(&Definition::Region(throttled)).unwrap();
        writer.define(&site(93, "/usr/lib/libone.so", 257, None)).unwrap();
        writer.define(&site(90, "/usr/lib/libone.so", 129, None)).unwrap();
        writer.define(&site(91, "/usr/lib/libone.so", 128, Some("before"))).unwrap();
        writer.define(&site(92, "/usr/bin/prog", 9, Some("main"))).unwrap();
        let estimate = Estimate { region: RegionId(1), counted: 3, ..Estimate::default() };
        writer.estimates(&[estimate, Estimate { region: RegionId(3), ..estimate }]).unwrap();
        for &(pid, site, samples) in samples {
            let of = CpuSamples { pid, call_site: site.map(CallSiteId), context: None, samples };
            writer.define(&Definition::CpuSamples(of)).unwrap();
        }
        writer.finish(&Summary::default()).unwrap();
        let mut out = Vec::new();
        run(folder.path(), &Options { format: Format::Json, ..options }, &mut out)?;
        Ok(serde_json::from_slice(&out).unwrap())
    }

    #[test]
    fn a_tree_has_the_time_beside_traced_calls() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = writer(folder.path());
        writer.begin(&Header { sampling: Some(1_000), ..Header::default() }).unwrap();
        writer.calls(&script("thread 1\n a 0 100").into()).unwrap();
        writer.define(&Definition::Region(Region { file_offset: 128, size: 32, ..region(0, "a".to_owned()) })).unwrap();
        let sites =
            [(90, "/usr/lib/libone.so", 129, "a"), (91, "/usr/bin/prog", 9, "main"), (92, "/usr/bin/prog", 20, "f")];
        for (id, file, offset, function) in sites {
            let (file, function) = (Some(file.to_owned()), Some(function.to_owned()));
            let site = rtrace_model::CallSite { id: CallSiteId(id), file, offset, function, ..Default::default() };
            writer.define(&Definition::CallSite(site)).unwrap();
        }
        let led_by = |id: u32, sites: &[u32]| {
            let sites = sites.iter().copied().map(CallSiteId).collect();
            Definition::Context(Context { id: ContextId(id), sites, ending: ContextEnding::Complete })
        };
        writer.define(&led_by(5, &[91])).unwrap();
        writer.define(&led_by(6, &[90, 91])).unwrap();
        // In f below main, in f below the traced function, in main itself by no known way, and in the kernel below main.
        for (site, context, samples) in
            [(Some(92), Some(5), 7), (Some(92), Some(6), 50), (Some(91), None, 9), (None, Some(5), 2)]
        {
            let (call_site, context) = (site.map(CallSiteId), context.map(ContextId));
            let of = CpuSamples { pid: Some(70), call_site, context, samples };
            writer.define(&Definition::CpuSamples(of)).unwrap();
        }
        writer.finish(&Summary::default()).unwrap();
        let mut out = Vec::new();
        run(
            folder.path(),
            &Options { by: By::Tree, sort: Sort::Inclusive, format: Format::Json, ..Options::default() },
            &mut out,
        )
        .unwrap();
        let tree: serde_json::Value = serde_json::from_slice(&out).unwrap();
        let row = |row: &serde_json::Value| {
            format!("{} {} {} {}", row["depth"], row["calls"], row["inclusive_ns"], row["function"])
        };
        let rows: Vec<String> = tree["rows"].as_array().unwrap().iter().map(row).collect();
        assert_eq!(
            rows,
            [
                r#"0 null 7000000 "main (prog)""#,
                r#"1 null 7000000 "f (prog) [sampled]""#,
                r#"0 null 2000000 "main (prog) [sampled]""#,
                r#"0 1 100 "a""#,
            ]
        );
        assert!(tree["notes"].to_string().contains("[sampled] is CPU time beside traced calls"), "{tree}");
    }

    #[test]
    fn traced_functions_have_exact_calls_and_others_none() {
        let samples =
            [(Some(70), Some(90), 30), (Some(71), Some(90), 20), (Some(70), Some(91), 5), (Some(70), Some(92), 40)];
        let others = [(Some(70), None, 5), (None, None, 7)];
        let cpu = || Options { by: By::Cpu, ..Options::default() };
        let report_of = report(&[&samples[..], &others].concat(), cpu()).unwrap();
        let row = |row: &serde_json::Value| {
            format!("{} {} {} {} {}", row["cpu_share"], row["samples"], row["calls"], row["library"], row["function"])
        };
        let rows: Vec<String> = report_of["rows"].as_array().unwrap().iter().map(row).collect();
        assert_eq!(
            rows,
            [
                r#"0.5 50 2 "libone.so" "a""#,
                r#"0.4 40 null "prog" "main""#,
                r#"0.05 5 null "libone.so" "before""#,
                r#"0.05 5 null null "(kernel)""#,
            ]
        );
        let notes = report_of["notes"].to_string();
        assert!(notes.contains("100 samples (99 a second of each CPU)"), "{notes}");
        assert!(notes.contains("7 more could not be noted"), "{notes}");
        let functions = report(&samples, Options::default()).unwrap()["notes"].to_string();
        assert!(functions.contains("57.9 % in libone.so, 42.1 % in prog"), "{functions}");
        // Of calls without a record, samples say where they stand.
        let throttled = report(&[&samples[..], &[(Some(70), Some(93), 5)]].concat(), Options::default()).unwrap();
        let row = |row: &serde_json::Value| format!("{} {} {}", row["function"], row["cpu_share"], row["exclusive_ns"]);
        let rows: Vec<String> = throttled["rows"].as_array().unwrap().iter().map(row).collect();
        assert_eq!(rows, [r#""b" 0.05 null"#, r#""a" 0.5 200"#, r#""d" null null"#]);
        assert!(matches!(report(&[], cpu()), Err(Error::NoCpuSamples)));
        assert!(matches!(report(&samples, Options { memory: true, ..cpu() }), Err(Error::SamplesAreWhole)));
    }
}
