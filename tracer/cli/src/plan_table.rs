//! A plan as text for people, as CSV and as JSON.
//!
//! Names come from files and are escaped in every form.

mod costs;
mod shares;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::{self, Write};

use rtrace::sampling::Sampled;
use rtrace::target::memory;
use rtrace::target::privilege::shell_quote;
use rtrace_code::instruction::SiteCost;
use rtrace_model::{counted, escape, grouped};
use rtrace_plan::{Plan, PlannedLibrary, PlannedRegion, Reason};
use rtrace_report::Format;
use serde_json::{Value, json};

use super::columns::{NOTHING, TextColumns, csv_line, each};
use super::cpu_time::{self, COLUMN};

pub use self::costs::PlanCosts;
use self::shares::SampleShares;

/// Functions that are listed unless all are asked for.
const LISTED: usize = 20;
/// Names that stand for all that share a reason, unless all are asked for.
const EXAMPLES: usize = 5;

/// How a plan is shown.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// How it is written.
    pub format: Format,
    /// List everything.
    pub verbose: bool,
    /// Columns of the terminal, if it is one: names are cut to fit.
    pub width: Option<u16>,
    /// Where CPU time was spent meanwhile, if that was sampled.
    pub sampled: Option<&'a Sampled>,
    /// What calls cost.
    pub costs: &'a PlanCosts,
}

/// Writes the plan.
///
/// # Errors
/// Those of `out`.
pub fn render(plan: &Plan, view: View, out: &mut dyn Write) -> io::Result<()> {
    let shares = view.sampled.map(|sampled| SampleShares::of(plan, sampled));
    match view.format {
        Format::Table => text(plan, shares.as_ref(), view, out),
        Format::Csv => csv(&json_plan(plan, shares.as_ref(), view), out),
        Format::Json => writeln!(out, "{:#}", json_plan(plan, shares.as_ref(), view)),
    }
}

fn text(plan: &Plan, shares: Option<&SampleShares>, view: View, out: &mut dyn Write) -> io::Result<()> {
    if let Some(shares) = shares {
        writeln!(out, "{}", shares.summary(plan))?;
    }
    for (number, library) in plan.libraries.iter().enumerate() {
        if number > 0 {
            writeln!(out)?;
        }
        header(library, view, out)?;
        functions(library, shares, view, out)?;
        reasons("Single-stepped:", stepped(library), view.verbose, out)?;
        let untimed = library
            .regions
            .iter()
            .filter_map(|planned| Some((planned.untimed.as_ref()?.to_string(), &*planned.region.name)));
        reasons("Not timed:", untimed, view.verbose, out)?;
        let refused = library.refused.iter().map(|refusal| (refusal.reason.to_string(), refusal.name.as_str()));
        reasons("Not probed:", refused, view.verbose, out)?;
    }
    expensive(plan, shares, view, out)?;
    if view.verbose {
        let memory = memory::of_entries(plan) / 1024;
        writeln!(out, "\nmemory: {} KB in each process for entries; return sites add to that", grouped(memory))?;
    }
    if !view.costs.are_measured {
        writeln!(
            out,
            "\ncosts are typical of a virtual machine; rtrace measures them where it may trace (see `rtrace doctor`)"
        )?;
    }
    Ok(())
}

fn header(library: &PlannedLibrary, view: View, out: &mut dyn Write) -> io::Result<()> {
    let stepped = library.regions.iter().filter(|planned| planned.region.single_stepped).count();
    let slid = library.regions.iter().filter(|planned| skipped(planned) > 0).count();
    let refused = match library.refused.len() {
        0 => String::new(),
        refused => format!(", {} refused", grouped(refused as u64)),
    };
    let functions = counted(library.regions.len() as u64, "function");
    writeln!(out, "{}: {functions}{refused}", escape(&library.library.path))?;
    if !view.verbose {
        return Ok(());
    }
    let has_stub = |planned: &&PlannedRegion| planned.region.single_stepped && planned.stub().is_some();
    let with_stub = library.regions.iter().filter(has_stub).count();
    let stubs = if with_stub > 0 { format!(" ({with_stub} with a stub)") } else { String::new() };
    let written = library.regions.iter().filter(|planned| planned.region.written).count();
    let written = if written > 0 { format!(", {written} written") } else { String::new() };
    writeln!(out, "entries: {stepped} single-stepped{stubs}{written}, {slid} moved past the first instruction")
}

/// Says what single-stepped functions cost, and how to leave out those that matter.
fn expensive(plan: &Plan, shares: Option<&SampleShares>, view: View, out: &mut dyn Write) -> io::Result<()> {
    let regions = plan.libraries.iter().flat_map(|library| &library.regions);
    let mut stepped: Vec<&PlannedRegion> = regions.filter(|planned| planned.region.single_stepped).collect();
    let [emulated, single_step] = view.costs.hits().map(|cost| cost as f64 / 1e3);
    let count = stepped.len();
    if count == 0 {
        return Ok(());
    }
    let functions = if count == 1 { "function is" } else { "functions are" };
    write!(
        out,
        "\n{count} {functions} single-stepped: each entry costs {single_step:.1} us instead of {emulated:.1}; "
    )?;
    if let Some(shares) = shares {
        stepped.retain(|planned| shares.samples(planned) > 0);
        stepped.sort_by_key(|planned| Reverse(shares.samples(planned)));
    }
    let shown = if view.verbose || shares.is_some() { count } else { EXAMPLES };
    if stepped.is_empty() {
        writeln!(out, "no sample of CPU time was in one of them")
    } else if stepped.len() <= shown {
        let options: Vec<String> = stepped.iter().filter_map(|planned| exclusion(planned)).collect();
        match options.as_slice() {
            [] => writeln!(out, "`--exclude` takes a glob in the place of their names"),
            options => writeln!(out, "to exclude: {}", options.join(" ")),
        }
    } else {
        writeln!(out, "`--sample 1s` shows which of them use CPU time, `--verbose` how to exclude them")
    }
}

/// The option that leaves out a function, as a shell takes it.
fn exclusion(planned: &PlannedRegion) -> Option<String> {
    let (name, symbol) = (&planned.region.name, &planned.region.symbols.first()?.symbol);
    // Others have the symbol, too.
    if name != symbol && name.starts_with(symbol.as_str()) {
        return Some(format!("--exclude {}", shell_quote(name)));
    }
    let is_plain = symbol.chars().all(|letter| letter.is_ascii_alphanumeric() || "_.$@".contains(letter));
    let quote = if symbol.contains('$') { "'" } else { "" };
    is_plain.then(|| format!("--exclude {quote}{symbol}{quote}"))
}

fn functions(
    library: &PlannedLibrary,
    shares: Option<&SampleShares>,
    view: View,
    out: &mut dyn Write,
) -> io::Result<()> {
    let listed = if view.verbose { library.regions.len() } else { LISTED };
    let mut regions: Vec<&PlannedRegion> = library.regions.iter().collect();
    if let Some(shares) = shares {
        regions.retain(|planned| view.verbose || shares.samples(planned) > 0);
        regions.sort_by_key(|planned| Reverse(shares.samples(planned)));
    }
    let others = shares.map_or(0, |shares| shares.others(library));
    let (idle, more) = (library.regions.len() - regions.len(), regions.len().saturating_sub(listed));
    if regions.is_empty() && others == 0 {
        return if idle > 0 { writeln!(out, "no sample of CPU time was in its code") } else { Ok(()) };
    }
    let sampled: &[&str] = if shares.is_some() { &[COLUMN, "SAMPLES"] } else { &[] };
    let headings = ["FUNCTION", "ENTRY", "PER CALL"].iter().chain(sampled).copied();
    let mut columns = TextColumns::new(headings, 0, |place| place >= 2);
    let cells = |samples| shares.map(|shares| [shares.share(samples), grouped(samples)]).into_iter().flatten();
    for planned in regions.into_iter().take(listed) {
        let per_call = format!("about {:.1} us", view.costs.call(planned) as f64 / 1e3);
        let plain = [escape(&planned.region.name).into_owned(), entry_text(planned), per_call];
        let samples = shares.map_or(0, |shares| shares.samples(planned));
        columns.add(plain.into_iter().chain(cells(samples)));
    }
    if others > 0 {
        let plain = ["(other code)".to_owned(), String::new(), String::new()];
        columns.add(plain.into_iter().chain(cells(others)));
    }
    write!(out, "\n{}", columns.text(view.width))?;
    match (more, idle) {
        (0, 0) => Ok(()),
        (0, idle) => writeln!(out, "{} without a sample; --verbose lists all", counted(idle as u64, "function")),
        (more, 0) => writeln!(out, "… and {} more; --verbose lists all", grouped(more as u64)),
        (more, idle) => {
            let (more, idle) = (grouped(more as u64), grouped(idle as u64));
            writeln!(out, "… and {more} more, {idle} without a sample; --verbose lists all")
        }
    }
}

/// Writes each reason once with the functions that it holds for, the most frequent first.
pub fn reasons<'a>(
    title: &str,
    functions: impl Iterator<Item = (String, &'a str)>,
    verbose: bool,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut by_reason: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (reason, name) in functions {
        by_reason.entry(reason).or_default().push(name);
    }
    let mut groups: Vec<_> = by_reason.into_iter().collect();
    groups.sort_by_key(|(_, names)| std::cmp::Reverse(names.len()));
    if !groups.is_empty() {
        writeln!(out, "\n{title}")?;
    }
    for (reason, names) in groups {
        let shown = if verbose { names.len() } else { EXAMPLES };
        let examples: Vec<_> = names.iter().take(shown).map(|name| escape(name)).collect();
        let more = if names.len() > shown { ", …" } else { "" };
        writeln!(out, "{:>6}  {}: {}{more}", names.len(), escape(&reason), examples.join(", "))?;
    }
    Ok(())
}

/// Writes a line per function, refused ones last.
fn csv(plan: &Value, out: &mut dyn Write) -> io::Result<()> {
    let columns = "library,function,symbol,file_offset,size,entry_site,entry,exit,cost_ns,reason";
    writeln!(out, "{columns},samples,cpu_share,stub")?;
    for library in each(&plan["libraries"]) {
        let path = &library["path"];
        for of in each(&library["functions"]) {
            let [name, symbol, untimed, stub] = [&of["name"], &of["symbols"][0], &of["untimed"], &of["stub_remark"]];
            let [begin, size, site] = [&of["file_offset"], &of["size"], &of["entry_site"]];
            let [entry, exit, cost] = [&of["entry"], &of["exit"], &of["cost_ns"]];
            let [samples, share] = [&of["samples"], &of["cpu_share"]];
            let fields = [path, name, symbol, begin, size, site, entry, exit, cost, untimed, samples, share, stub];
            csv_line(&fields, out)?;
        }
        let (refused, none) = (Value::from("refused"), &NOTHING);
        for of in each(&library["refused"]) {
            let [name, reason] = [&of["name"], &of["reason"]];
            csv_line(&[path, name, none, none, none, none, none, &refused, none, reason, none, none, none], out)?;
        }
    }
    Ok(())
}

/// Its samples and its share of the CPU time, where such were taken.
fn samples_of(planned: &PlannedRegion, shares: Option<&SampleShares>) -> (Option<u64>, Option<f64>) {
    let samples = shares.map(|shares| shares.samples(planned));
    (samples, shares.zip(samples).and_then(|(shares, samples)| shares.fraction(samples)))
}

fn json_plan(plan: &Plan, shares: Option<&SampleShares>, view: View) -> Value {
    json!({
        "costs_are_measured": view.costs.are_measured,
        "sampled": cpu_time::as_json(view.sampled),
        "libraries": plan.libraries.iter().map(|library| json_library(library, shares, view.costs)).collect::<Vec<_>>(),
    })
}

fn json_library(library: &PlannedLibrary, shares: Option<&SampleShares>, costs: &PlanCosts) -> Value {
    let functions = library.regions.iter().map(|planned| json_function(planned, shares, costs));
    json!({
        "path": escape(&library.library.path),
        "build_id": library.library.build_id,
        "functions": functions.collect::<Vec<_>>(),
        "other_samples": shares.map(|shares| shares.others(library)),
        "refused": library.refused.iter()
            .map(|refusal| json!({ "name": escape(&refusal.name), "reason": refusal.reason.to_string() }))
            .collect::<Vec<_>>(),
    })
}

fn json_function(planned: &PlannedRegion, shares: Option<&SampleShares>, costs: &PlanCosts) -> Value {
    let (samples, fraction) = samples_of(planned, shares);
    json!({
        "name": escape(&planned.region.name),
        "symbols": planned.region.symbols.iter().map(|symbol| escape(&symbol.symbol)).collect::<Vec<_>>(),
        "file_offset": planned.region.file_offset,
        "size": planned.region.size,
        "entry_site": planned.entry.file_offset,
        "entry": cost_name(planned.entry.cost),
        "exit": planned.region.exit.name(),
        "untimed": planned.untimed.as_ref().map(Reason::to_string),
        "cost_ns": costs.call(planned),
        "samples": samples,
        "cpu_share": fraction,
        "stub": planned.stub.as_ref().map(Result::is_ok),
        "stub_remark": stub_remark(planned),
    })
}

/// What a stub means for a function that must be single-stepped, or why it has none.
fn stub_remark(planned: &PlannedRegion) -> Option<String> {
    Some(match planned.stub.as_ref()? {
        Ok(stub) if stub.has_other_callers => {
            "calls through the dynamic linker are cheap; those within the library or through pointers stay expensive"
                .to_owned()
        }
        Ok(_) => "cheap, because all calls in its library go through the dynamic linker".to_owned(),
        Err(reason) => reason.to_string(),
    })
}

/// The functions for which it was asked whether they can have a stub, with the answer.
fn stepped(library: &PlannedLibrary) -> impl Iterator<Item = (String, &str)> {
    let remark = |planned| Some((stub_remark(planned)?, planned.region.name.as_str()));
    library.regions.iter().filter_map(remark)
}

/// Bytes from a function's first instruction to the site of its enter.
fn skipped(planned: &PlannedRegion) -> u64 {
    planned.entry.file_offset.saturating_sub(planned.region.file_offset)
}

fn entry_text(planned: &PlannedRegion) -> String {
    let stub = if planned.stub().is_some() { ", stub" } else { "" };
    match skipped(planned) {
        0 => format!("{}{stub}", cost_name(planned.entry.cost)),
        bytes => format!("{} at +{bytes}{stub}", cost_name(planned.entry.cost)),
    }
}

fn cost_name(cost: SiteCost) -> &'static str {
    match cost {
        SiteCost::Emulated => "emulated",
        SiteCost::BpfEmulated(_) => "written",
        SiteCost::SingleStep => "single-step",
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::sync::LazyLock;

    use rtrace_code::copies::Registers;
    use rtrace_code::tails::Tails;
    use rtrace_model::{ExitPolicy, Library, LibraryId, Region, RegionId, Step, SymbolName};
    use rtrace_plan::{EntrySite, Refusal};
    use rtrace_symbolizer::RefusedReason;

    use super::*;

    fn planned(number: u32, name: &str, cost: SiteCost) -> PlannedRegion {
        let region = Region {
            id: RegionId(number),
            library: LibraryId(0),
            name: name.to_owned(),
            symbols: vec![SymbolName { symbol: format!("s{number}"), version: None }],
            file_offset: 0x1000 + u64::from(number) * 16,
            size: 16,
            exit: ExitPolicy::ReturnSite,
            single_stepped: cost == SiteCost::SingleStep,
            written: matches!(cost, SiteCost::BpfEmulated(_)),
            stub: false,
            source_file: None,
            source_line: None,
            event: None,
        };
        let entry = EntrySite { file_offset: region.file_offset, cost, words: 0, registers: Registers::default() };
        let tails = Tails::Never;
        PlannedRegion {
            laps: false,
            returning: Default::default(),
            abandons: false,
            region,
            entry,
            untimed: None,
            tails,
            passes_on: false,
            opens: false,
            jump: None,
            capture: None,
            stub: None,
            marker: None,
        }
    }

    fn sample(functions: u32) -> Plan {
        let mut regions =
            vec![planned(0, "a(int, \u{1b}[31m)", SiteCost::Emulated), planned(1, "b", SiteCost::SingleStep)];
        regions[0].entry.file_offset += 4;
        regions.extend((2..functions).map(|number| planned(number, "c", SiteCost::Emulated)));
        let library = Library {
            id: LibraryId(0),
            path: "/lib/libx.so".to_owned(),
            apart: None,
            build_id: None,
            device: 1,
            inode: 2,
        };
        let refused =
            ["d", "e"].map(|name| Refusal { name: name.to_owned(), reason: Reason::Symbol(RefusedReason::SizeZero) });
        Plan {
            libraries: vec![PlannedLibrary {
                library,
                attach_path: "/lib/libx.so".into(),
                stamp: None,
                regions,
                refused: refused.into(),
            }],
        }
    }

    /// So many samples in these functions of [`sample`].
    fn sampled(functions: &[(u64, u64)]) -> Sampled {
        let mut sampled = Sampled::default();
        functions.iter().for_each(|(number, count)| sampled.found_in_file((1, 2), 0x1000 + number * 16 + 15, *count));
        sampled
    }

    fn view() -> View<'static> {
        static COSTS: LazyLock<PlanCosts> = LazyLock::new(PlanCosts::typical);
        View { format: Format::default(), verbose: false, width: None, sampled: None, costs: &COSTS }
    }

    fn rendered(plan: &Plan, view: View) -> String {
        let mut out = Vec::new();
        render(plan, view, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn people_see_counts_costs_and_reasons() {
        let text = rendered(&sample(3), view());
        let expected = "\
/lib/libx.so: 3 functions, 2 refused

FUNCTION           ENTRY              PER CALL
a(int, \\x1b[31m)   emulated at +4  about 1.6 us
b                  single-step    about 11.8 us
c                  emulated        about 1.6 us

Not probed:
     2  the symbol has no size: d, e

1 function is single-stepped: each entry costs 11.0 us instead of 0.8; to exclude: --exclude s1

costs are typical of a virtual machine; rtrace measures them where it may trace (see `rtrace doctor`)
";
        let words = |text: &str| -> Vec<Vec<String>> {
            text.lines().map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
        };
        assert_eq!(words(&text), words(expected), "{text}");
    }

    #[test]
    fn what_our_programs_do_is_told() {
        let mut plan = sample(2);
        plan.libraries[0].regions[1] = planned(1, "b", SiteCost::BpfEmulated(Step::Frame { words: 1 }));
        let text = rendered(&plan, View { verbose: true, ..view() });
        assert!(text.contains("entries: 0 single-stepped, 1 written, 1 moved"), "{text}");
        let row = text.lines().find(|line| line.starts_with("b ")).unwrap();
        let words: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(words, ["b", "written", "about", "1.7", "us"]);
    }

    #[test]
    fn what_is_expensive_can_be_left_out() {
        let mut plan = sample(3);
        let stepped = |numbers: std::ops::Range<u32>| numbers.map(|number| planned(number, "d", SiteCost::SingleStep));
        plan.libraries[0].regions.extend(stepped(3..9));
        let text = rendered(&plan, view());
        assert!(text.contains("7 functions are single-stepped") && text.contains("`--sample 1s`"), "{text}");
        let called = sampled(&[(4, 10), (8, 20)]);
        let text = rendered(&plan, View { sampled: Some(&called), ..view() });
        assert!(text.contains("to exclude: --exclude s8 --exclude s4\n"), "{text}");
        let called = sampled(&[(0, 10)]);
        let text = rendered(&plan, View { sampled: Some(&called), ..view() });
        assert!(text.contains("no sample of CPU time was in one of them"), "{text}");
    }

    #[test]
    fn long_plans_are_cut_unless_verbose() {
        let plan = sample(30);
        assert!(rendered(&plan, view()).contains("… and 10 more; --verbose lists all"));
        assert!(!rendered(&plan, View { verbose: true, ..view() }).contains("… and"));
    }

    #[test]
    fn csv_has_a_line_per_function() {
        let text = rendered(&sample(3), View { format: Format::Csv, ..view() });
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 6);
        let function = "/lib/libx.so,\"a(int, \\x1b[31m)\",s0,4096,16,4100,emulated,return-site,1600";
        assert_eq!(lines[1], format!("{function},,,,"));
        assert_eq!(lines[4], "/lib/libx.so,d,,,,,,refused,,the symbol has no size,,,");
        let columns = |line: &str| line.matches(',').count();
        assert_eq!(columns(lines[2]), columns(lines[0]));
        assert_eq!(columns(lines[4]), columns(lines[0]));
        assert!(lines.iter().all(|line| !line.contains('\u{1b}')));
    }

    #[test]
    fn what_is_not_timed_is_named_with_the_reason() {
        let mut plan = sample(3);
        plan.libraries[0].regions[1].untimed = Some(Reason::MovingStacks);
        let shown = |format| rendered(&plan, View { format, ..view() });
        assert!(
            shown(Format::Table)
                .contains("Not timed:\n     1  Go moves its stacks, and runs goroutines on any thread: b\n")
        );
        assert!(shown(Format::Csv).contains(",\"Go moves its stacks, and runs goroutines on any thread\","));
        assert!(shown(Format::Json).contains("\"untimed\": \"Go moves its stacks"));
    }

    #[test]
    fn functions_come_by_their_share_of_the_cpu_time() {
        let mut sampled = sampled(&[(1, 100), (2, 700)]);
        // Behind the last function.
        sampled.found_in_file((1, 2), 0x2000, 50);
        sampled.in_kernel = 100;
        sampled.in_no_file = 50;
        let text = rendered(&sample(3), View { sampled: Some(&sampled), ..view() });
        let expected = "CPU time: 80.0 % in these functions, 5.0 % in other code of their libraries, 10.0 % in the kernel, \
                        5.0 % elsewhere\n1,000 samples of CPU time in 0.0 s: shares are right to 3.1 points (95 %)\nwhat tracing";
        assert!(text.starts_with(expected), "{text}");
        let rows: Vec<Vec<&str>> = text
            .lines()
            .filter(|line| line.contains(" % "))
            .skip(1)
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(rows[0], ["c", "emulated", "about", "1.6", "us", "70.0", "%", "700"], "{text}");
        assert_eq!(rows[1], ["b", "single-step", "about", "11.8", "us", "10.0", "%", "100"], "{text}");
        assert_eq!(rows[2], ["(other", "code)", "5.0", "%", "50"], "{text}");
        assert!(text.contains("\n1 function without a sample; --verbose lists all"), "{text}");
        let verbose = rendered(&sample(3), View { sampled: Some(&sampled), verbose: true, ..view() });
        assert!(
            verbose.lines().any(|line| line.starts_with("a(int") && line.ends_with("<0.3 %        0")),
            "{verbose}"
        );
        let text = rendered(&sample(3), View { sampled: Some(&Sampled::default()), ..view() });
        assert!(text.starts_with("the processes were idle: no sample of CPU time in 0.0 s\n"), "{text}");
    }

    #[test]
    fn json_is_complete() {
        let text = rendered(&sample(3), View { format: Format::Json, ..view() });
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["libraries"][0]["functions"][0]["entry_site"], 0x1004);
        assert_eq!(value["libraries"][0]["refused"].as_array().unwrap().len(), 2);
    }
}
