//! A plan as text for people, as CSV and as JSON.
//!
//! Names come from files and are escaped in every form.

mod costs;
mod prediction;

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::{self, Write};

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Row, Table};
use rtrace::memory;
use rtrace::privilege::shell_quote;
use rtrace::sampling::Sampled;
use rtrace_code::instruction::SiteCost;
use rtrace_model::{counted, csv_field, escape, grouped};
use rtrace_plan::{Plan, PlannedLibrary, PlannedRegion, Reason};
use rtrace_report::Format;
use serde_json::{Value, json};

pub use self::costs::Costs;
pub use self::prediction::Prediction;

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
    /// Whether what costs much stands out.
    pub colours: bool,
    /// Of each library, how many processes beside the traced ones would meet its probes.
    pub bystanders: &'a [usize],
    /// How often functions were called meanwhile, if that was counted.
    pub sampled: Option<&'a Sampled>,
    /// What calls cost.
    pub costs: &'a Costs,
}

/// Writes the plan.
///
/// # Errors
/// Those of `out`.
pub fn render(plan: &Plan, view: View, out: &mut dyn Write) -> io::Result<()> {
    let prediction = view.sampled.map(|sampled| Prediction::of(plan, sampled, view.costs));
    match view.format {
        Format::Table => text(plan, prediction.as_ref(), view, out),
        Format::Csv => csv(plan, prediction.as_ref(), view.costs, out),
        Format::Json => writeln!(out, "{:#}", json_plan(plan, prediction.as_ref(), view.costs)),
    }
}

fn text(plan: &Plan, prediction: Option<&Prediction>, view: View, out: &mut dyn Write) -> io::Result<()> {
    if let Some(prediction) = prediction {
        writeln!(out, "{}", prediction.summary(plan, view.colours))?;
    }
    for (number, library) in plan.libraries.iter().enumerate() {
        if number > 0 {
            writeln!(out)?;
        }
        header(library, view, out)?;
        bystanders(view.bystanders.get(number).copied().unwrap_or(0), view.costs, out)?;
        functions(library, prediction, view, out)?;
        reasons("Single-stepped:", stepped(library), view, out)?;
        let untimed = library
            .regions
            .iter()
            .filter_map(|planned| Some((planned.untimed.as_ref()?.to_string(), &*planned.region.name)));
        reasons("Not timed:", untimed, view, out)?;
        let refused = library.refused.iter().map(|refusal| (refusal.reason.to_string(), refusal.name.as_str()));
        reasons("Not probed:", refused, view, out)?;
    }
    expensive(plan, prediction, view, out)?;
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
fn expensive(plan: &Plan, prediction: Option<&Prediction>, view: View, out: &mut dyn Write) -> io::Result<()> {
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
    if let Some(prediction) = prediction {
        stepped.retain(|planned| prediction.rate(planned) > 0.0);
        stepped.sort_by(|a, b| prediction.rate(b).total_cmp(&prediction.rate(a)));
    }
    let shown = if view.verbose || prediction.is_some() { count } else { EXAMPLES };
    if stepped.is_empty() {
        writeln!(out, "none of them was called")
    } else if stepped.len() <= shown {
        let options: Vec<String> = stepped.iter().filter_map(|planned| exclusion(planned)).collect();
        writeln!(out, "to exclude: {}", options.join(" "))
    } else {
        writeln!(out, "`--sample 1s` shows which of them are called, `--verbose` how to exclude them")
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

fn bystanders(count: usize, costs: &Costs, out: &mut dyn Write) -> io::Result<()> {
    if count == 0 {
        return Ok(());
    }
    let [cheap, costly] = costs.hits().map(|cost| cost as f64 / 1e3);
    writeln!(
        out,
        "{count} other processes use this library: with --everywhere, each probe that they hit costs them {cheap:.1} to \
         {costly:.1} us"
    )
}

fn functions(
    library: &PlannedLibrary,
    prediction: Option<&Prediction>,
    view: View,
    out: &mut dyn Write,
) -> io::Result<()> {
    let listed = if view.verbose { library.regions.len() } else { LISTED };
    let mut regions: Vec<&PlannedRegion> = library.regions.iter().collect();
    if let Some(prediction) = prediction {
        regions.retain(|planned| view.verbose || prediction.rate(planned) > 0.0);
        regions.sort_by(|a, b| by_cost(prediction, a, b));
    }
    let (idle, more) = (library.regions.len() - regions.len(), regions.len().saturating_sub(listed));
    if regions.is_empty() {
        return if idle > 0 { writeln!(out, "none of them was called") } else { Ok(()) };
    }
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    if let Some(width) = view.width {
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    }
    let predicted: &[&str] = if prediction.is_some() { &["CALLS/S", "RUN TIME"] } else { &[] };
    table.set_header(["FUNCTION", "ENTRY", "PER CALL"].iter().chain(predicted));
    for planned in regions.into_iter().take(listed) {
        let mut row = Row::from([
            escape(&planned.region.name).into_owned(),
            entry_text(planned),
            format!("about {:.1} us", view.costs.call(planned) as f64 / 1e3),
        ]);
        if let Some(prediction) = prediction {
            row.add_cell(grouped(prediction.rate(planned).round() as u64).into());
            row.add_cell(prediction.overhead(planned).short().into());
        }
        row.max_height(1);
        table.add_row(row);
    }
    for (place, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if place > 0 {
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
        if place >= 2 {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    writeln!(out, "\n{}", table.trim_fmt())?;
    match (more, idle) {
        (0, 0) => Ok(()),
        (0, idle) => writeln!(out, "{} not called; --verbose lists all", counted(idle as u64, "function")),
        (more, 0) => writeln!(out, "… and {} more; --verbose lists all", grouped(more as u64)),
        (more, idle) => {
            let (more, idle) = (grouped(more as u64), grouped(idle as u64));
            writeln!(out, "… and {more} more, {idle} not called; --verbose lists all")
        }
    }
}

/// Those that cost most first, then those that are called most.
fn by_cost(prediction: &Prediction, a: &PlannedRegion, b: &PlannedRegion) -> Ordering {
    let cost = |planned| (prediction.overhead(planned).in_percent(), prediction.rate(planned));
    cost(b).partial_cmp(&cost(a)).unwrap_or(Ordering::Equal)
}

/// Writes each reason once with the functions that it holds for, the most frequent first.
fn reasons<'a>(
    title: &str,
    functions: impl Iterator<Item = (String, &'a str)>,
    view: View,
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
        let shown = if view.verbose { names.len() } else { EXAMPLES };
        let examples: Vec<_> = names.iter().take(shown).map(|name| escape(name)).collect();
        let more = if names.len() > shown { ", …" } else { "" };
        writeln!(out, "{:>6}  {}: {}{more}", names.len(), escape(&reason), examples.join(", "))?;
    }
    Ok(())
}

/// Writes a line per function, refused ones last.
fn csv(plan: &Plan, prediction: Option<&Prediction>, costs: &Costs, out: &mut dyn Write) -> io::Result<()> {
    let columns = "library,function,symbol,file_offset,size,entry_site,entry,exit,cost_ns,reason";
    writeln!(out, "{columns},calls_per_s,slowdown,stub")?;
    for library in &plan.libraries {
        let path = csv_field(&library.library.path);
        for planned in &library.regions {
            let region = &planned.region;
            let symbol = region.symbols.first().map_or("", |symbol| &symbol.symbol);
            writeln!(
                out,
                "{path},{},{},{},{},{},{},{},{},{},{},{},{}",
                csv_field(&region.name),
                csv_field(symbol),
                region.file_offset,
                region.size,
                planned.entry.file_offset,
                cost_name(planned.entry.cost),
                planned.exit.policy().name(),
                costs.call(planned),
                csv_field(&text_of(planned.untimed.as_ref())),
                prediction.map_or_else(String::new, |prediction| format!("{:.1}", prediction.rate(planned))),
                prediction.map_or_else(String::new, |prediction| format!(
                    "{:.4}",
                    prediction.overhead(planned).in_percent() / 100.0
                )),
                csv_field(&text_of(stub_remark(planned))),
            )?;
        }
        for refusal in &library.refused {
            writeln!(
                out,
                "{path},{},,,,,,refused,,{},,,",
                csv_field(&refusal.name),
                csv_field(&refusal.reason.to_string())
            )?;
        }
    }
    Ok(())
}

fn json_plan(plan: &Plan, prediction: Option<&Prediction>, costs: &Costs) -> Value {
    json!({
        "costs_are_measured": costs.are_measured,
        "libraries": plan.libraries.iter().map(|library| json_library(library, prediction, costs)).collect::<Vec<_>>(),
    })
}

fn json_library(library: &PlannedLibrary, prediction: Option<&Prediction>, costs: &Costs) -> Value {
    let functions = library.regions.iter().map(|planned| json_function(planned, prediction, costs));
    json!({
        "path": escape(&library.library.path),
        "build_id": library.library.build_id,
        "functions": functions.collect::<Vec<_>>(),
        "refused": library.refused.iter()
            .map(|refusal| json!({ "name": escape(&refusal.name), "reason": refusal.reason.to_string() }))
            .collect::<Vec<_>>(),
    })
}

fn json_function(planned: &PlannedRegion, prediction: Option<&Prediction>, costs: &Costs) -> Value {
    json!({
        "name": escape(&planned.region.name),
        "symbols": planned.region.symbols.iter().map(|symbol| escape(&symbol.symbol)).collect::<Vec<_>>(),
        "file_offset": planned.region.file_offset,
        "size": planned.region.size,
        "entry_site": planned.entry.file_offset,
        "entry": cost_name(planned.entry.cost),
        "exit": planned.exit.policy().name(),
        "untimed": planned.untimed.as_ref().map(Reason::to_string),
        "cost_ns": costs.call(planned),
        "calls_per_s": prediction.map(|prediction| prediction.rate(planned)),
        "slowdown": prediction.map(|prediction| prediction.overhead(planned).in_percent() / 100.0),
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

/// What something says of itself, if there is something.
fn text_of(told: Option<impl Display>) -> String {
    told.map(|told| told.to_string()).unwrap_or_default()
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

    use std::collections::HashMap;
    use std::sync::LazyLock;
    use std::time::Duration;

    use rtrace_code::copies::Registers;
    use rtrace_code::tails::Tails;
    use rtrace_model::{Library, LibraryId, Region, RegionId, Step, SymbolName};
    use rtrace_plan::{Exit, Refusal, Site};
    use rtrace_symbolizer::RefusedReason;

    use super::*;

    fn planned(number: u32, name: &str, cost: SiteCost) -> PlannedRegion {
        let exit = Exit::ReturnSites;
        let region = Region {
            id: RegionId(number),
            library: LibraryId(0),
            name: name.to_owned(),
            symbols: vec![SymbolName { symbol: format!("s{number}"), version: None }],
            file_offset: 0x1000 + u64::from(number) * 16,
            size: 16,
            exit: exit.policy(),
            single_stepped: cost == SiteCost::SingleStep,
            written: matches!(cost, SiteCost::BpfEmulated(_)),
            stub: false,
        };
        let entry = Site { file_offset: region.file_offset, cost, words: 0, registers: Registers::default() };
        let tails = Tails::Never;
        PlannedRegion {
            laps: false,
            pops: 0,
            abandons: false,
            region,
            entry,
            exit,
            untimed: None,
            tails,
            passes_on: false,
            jump: None,
            capture: None,
            stub: None,
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

    fn view() -> View<'static> {
        static COSTS: LazyLock<Costs> = LazyLock::new(Costs::typical);
        View {
            format: Format::default(),
            verbose: false,
            width: None,
            colours: false,
            bystanders: &[],
            sampled: None,
            costs: &COSTS,
        }
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
        let sampled = |calls| Sampled { time: Duration::from_secs(1), cpu: Duration::from_secs(1), calls };
        let called = sampled(HashMap::from([(RegionId(4), 10), (RegionId(8), 20)]));
        let text = rendered(&plan, View { sampled: Some(&called), ..view() });
        assert!(text.contains("to exclude: --exclude s8 --exclude s4\n"), "{text}");
        let called = sampled(HashMap::from([(RegionId(0), 10)]));
        let text = rendered(&plan, View { sampled: Some(&called), ..view() });
        assert!(text.contains("none of them was called"), "{text}");
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
    fn bystanders_are_counted() {
        let text = rendered(&sample(3), View { bystanders: &[4], ..view() });
        assert!(text.contains("costs them 0.8 to 11.0 us"), "{text}");
        assert!(!rendered(&sample(3), view()).contains("other processes"));
    }

    #[test]
    fn a_sample_says_what_tracing_would_add() {
        let calls = HashMap::from([(RegionId(1), 1000), (RegionId(2), 10_000)]);
        let sampled = Sampled { time: Duration::from_secs(2), cpu: Duration::from_millis(1000 + 19), calls };
        let text = rendered(&sample(3), View { sampled: Some(&sampled), ..view() });
        // 10,000 hits of 0.8 us and 1,000 of 11 us are left out; added are 10,000 times 1.6 us and 1,000 times 11.8 us,
        // and 0.64 us by which the program is slower after each.
        let summary =
            "tracing would cost about +3.5 % run time, at the 5,500 calls per second that were counted for 2.0 s\n";
        assert_eq!(text.lines().next(), summary.strip_suffix('\n'), "{text}");
        assert!(!text.contains("--budget") && text.contains("\n1 function not called"), "nobody need worry: {text}");
        let rows: Vec<&str> = text.lines().filter(|line| line.contains(" us ")).collect();
        assert!(rows[0].starts_with("c ") && rows[0].ends_with("5,000    +2.2 %"), "{text}");
        assert!(rows[1].starts_with("b ") && rows[1].ends_with("500    +1.2 %"), "{text}");
    }

    #[test]
    fn what_costs_much_comes_with_what_to_leave_out() {
        let calls = HashMap::from([(RegionId(0), 300_000), (RegionId(1), 1_000), (RegionId(2), 1_000)]);
        let sampled = Sampled { time: Duration::from_secs(1), cpu: Duration::from_secs(1), calls };
        let text = rendered(&sample(3), View { sampled: Some(&sampled), ..view() });
        assert!(text.starts_with("tracing would cost about +92 % run time, at the 302,000 calls"), "{text}");
        let without =
            "without the 1 function that cost most, about +2.0 % run time:\n    --exclude s0\n--budget 5% keeps";
        assert!(text.contains(without), "{text}");
        let text = rendered(&sample(3), View { sampled: Some(&sampled), colours: true, ..view() });
        assert!(text.starts_with("\x1b[33mtracing would cost about +92 % run time\x1b[0m, at"), "{text}");
        let calls = HashMap::from_iter((0..30).map(|number| (RegionId(number), 10_000)));
        let sampled = Sampled { time: Duration::from_secs(1), cpu: Duration::from_secs(1), calls };
        let text = rendered(&sample(30), View { sampled: Some(&sampled), ..view() });
        assert!(text.contains("without the 5 functions that cost most") && text.contains("--exclude s1 "), "{text}");
    }

    #[test]
    fn json_is_complete() {
        let text = rendered(&sample(3), View { format: Format::Json, ..view() });
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["libraries"][0]["functions"][0]["entry_site"], 0x1004);
        assert_eq!(value["libraries"][0]["refused"].as_array().unwrap().len(), 2);
    }
}
