//! Whether what came of a program is what was expected.

use std::fmt::{self, Write as _};

use super::figures::{Calls, Figures};
use super::list::{Program, Way};
use super::ran::{Ran, Truths};
use super::traced::Traced;

/// A line of the table.
#[derive(Clone, Debug)]
pub struct Row {
    name: String,
    way: &'static str,
    /// What is not as expected; empty if nothing.
    differences: Vec<String>,
    /// The word for what was as expected.
    result: &'static str,
    calls: Option<Calls>,
    remark: String,
}

impl Row {
    /// Of a program that could not be built or does not work here.
    pub fn impossible(program: &Program, why: &str) -> Row {
        Row::failed_by("-", program, why)
    }

    /// Of a program that could not be traced to its end.
    pub fn failed(program: &Program, way: Way, why: &str) -> Row {
        Row::failed_by(word(way), program, why)
    }

    fn failed_by(way: &'static str, program: &Program, why: &str) -> Row {
        let differences = vec![why.replace('\n', " / ")];
        Row { name: program.name.clone(), way, differences, result: "", calls: None, remark: String::new() }
    }

    /// Whether something is not as expected.
    pub fn differs(&self) -> bool {
        !self.differences.is_empty()
    }

    /// Name, way, result, calls, part that is timed, lost calls, remarks.
    fn cells(&self) -> [String; 7] {
        let known = |figure: fn(&Calls) -> String| self.calls.as_ref().map_or_else(|| "-".to_owned(), figure);
        let result = if self.differs() { "DIFFERS" } else { self.result };
        [
            self.name.clone(),
            self.way.to_owned(),
            result.to_owned(),
            known(|calls| calls.calls.to_string()),
            known(timed),
            known(|calls| calls.lost.to_string()),
            [self.differences.join("; "), self.remark.clone()]
                .into_iter()
                .filter(|text| !text.is_empty())
                .collect::<Vec<_>>()
                .join(". "),
        ]
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [name, way, result, calls, timed, lost, remark] = self.cells();
        write!(f, "{name:22} {way:7} {result:8} {calls:>9} {timed:>7} {lost:>6}  {remark}")
    }
}

/// Percentage of the calls that are timed.
fn timed_share(calls: &Calls) -> f64 {
    100.0 * (calls.calls - calls.unseen.min(calls.calls)) as f64 / calls.calls.max(1) as f64
}

fn timed(calls: &Calls) -> String {
    if calls.calls == 0 { "-".to_owned() } else { format!("{:.1} %", timed_share(calls)) }
}

fn word(way: Way) -> &'static str {
    match way {
        Way::Attach => "attach",
        Way::Run => "run",
    }
}

/// Compares what came of a program with what comes of it untraced.
pub fn of(program: &Program, way: Way, untraced: &Ran, traced: &Traced) -> Row {
    let said = traced.said.join("\n");
    let (mut result, mut differences) = match (&program.refused, &program.marked) {
        (Some(text), _) => ("refused", refusal(way, untraced, traced, text)),
        (None, Some(text)) if said.contains(text) => ("marked", recording(program, untraced, traced)),
        (None, Some(text)) => {
            ("marked", [recording(program, untraced, traced), vec![format!("not marked `{text}`")]].concat())
        }
        (None, None) => ("same", recording(program, untraced, traced)),
    };
    differences.extend(traced.disturbed.clone());
    let mut remark = remark(&traced.said);
    if let Some(limit) = &program.limit {
        result = "limit";
        remark = format!("{limit}: {}", differences.join("; "));
        differences = if differences.is_empty() { vec!["it is no limit any more".to_owned()] } else { Vec::new() };
    }
    Row {
        name: program.name.clone(),
        way: word(way),
        differences,
        result,
        calls: traced.figures.as_ref().map(Figures::all),
        remark,
    }
}

fn refusal(way: Way, untraced: &Ran, traced: &Traced, text: &str) -> Vec<String> {
    let mut differences = Vec::new();
    if !traced.said.iter().any(|line| line.starts_with("rtrace: failed to")) {
        differences.push("not refused".to_owned());
    } else if !traced.said.join("\n").contains(text) {
        differences.push(format!("refused without `{text}`"));
    }
    // `run` does not begin what it refuses.
    let begun = way == Way::Attach || !traced.ran.stdout.is_empty();
    differences.extend(traced.ran.unlike(untraced).filter(|_| begun));
    differences
}

fn recording(program: &Program, untraced: &Ran, traced: &Traced) -> Vec<String> {
    let mut differences: Vec<String> = traced.ran.unlike(untraced).into_iter().collect();
    if let Some(status) = traced.rtrace.filter(|status| !status.success()) {
        differences.push(format!("rtrace ended with {status}"));
    }
    let Some(figures) = &traced.figures else {
        differences.push("no trace".to_owned());
        return differences;
    };
    let all = figures.all();
    if all.calls + all.lost == 0 && !program.idle {
        differences.push("no call was recorded".to_owned());
    }
    if program.returns && all.unwound > 0 {
        differences.push(format!("{} calls unwound, none was", all.unwound));
    }
    if let Some(floor) = program.timed.filter(|&floor| timed_share(&all) < floor) {
        differences.push(format!("less than {floor} % are timed"));
    }
    let is_blind = remark(&traced.said).contains("blind window");
    differences.extend(untruths(&traced.truths, figures, is_blind));
    differences
}

/// Where a trace and the program's own word differ. Calls that were not timed may have ended in any way, and where
/// rtrace says that it was blind for a time, calls may be missing.
fn untruths(truths: &Truths, figures: &Figures, is_blind: bool) -> Vec<String> {
    let mut differences = Vec::new();
    for (name, truth) in truths {
        let found = figures.function(name);
        let is_told = is_blind && found.calls + found.lost < truth.calls;
        if found.calls + found.lost != truth.calls && !is_told {
            differences.push(format!("{name}: {} calls and {} lost, not {}", found.calls, found.lost, truth.calls));
        } else if found.unwound > truth.left {
            differences.push(format!("{name}: {} unwound, not {}", found.unwound, truth.left));
        } else if found.returned > truth.calls.saturating_sub(truth.left) {
            differences
                .push(format!("{name}: {} returned, {} of {} were left", found.returned, truth.left, truth.calls));
        }
    }
    differences
}

/// The last line of a recording, without the figures that the table has.
fn remark(said: &[String]) -> String {
    let summary =
        said.iter().find(|line| line.starts_with("rtrace: ") && line.contains(" to ") && line.contains(" function"));
    let refusal = || said.iter().find(|line| line.starts_with("rtrace: failed")).map(|line| line[8..].to_owned());
    summary.and_then(|line| Some(line.split_once(". ")?.1.to_owned())).or_else(refusal).unwrap_or_default()
}

/// The page of all programs.
pub fn page(programs: &[Program], rows: &[Row]) -> String {
    let kernel = rustix::system::uname();
    let mut page = format!(
        "# Zoo\n\nWritten by `cargo xtask zoo` on Linux {}. Each program runs untraced, then with rtrace attached to it, \
         then under `rtrace run`. It must print the same and end in the same way. If it counts its calls itself, the \
         trace must have the same number. `refused` means that rtrace must refuse to trace the program. `marked` means \
         that rtrace must report what is missing from the trace.\n\n| program | way | result | calls | timed | lost | remarks |\n|---|---|---|---|---|---|---|\n",
        kernel.release().to_string_lossy()
    );
    for row in rows {
        let folder = super::folder(&row.name);
        let plain = |cell: String| cell.replace('|', "\\|").replace(&*folder.to_string_lossy(), "$OUT");
        _ = writeln!(page, "| {} |", row.cells().map(plain).join(" | "));
    }
    _ = writeln!(page, "\n| program | what it tests |\n|---|---|");
    for program in programs {
        _ = writeln!(page, "| {} | {} |", program.name, program.about);
    }
    page
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::ExitStatus;

    use super::super::figures::testing;
    use super::super::ran::Truth;
    use super::*;

    fn untruth(calls: Calls, truth: Truth) -> String {
        untruths(&[("f".to_owned(), truth)].into(), &testing::of("f", calls), false).join("; ")
    }

    #[test]
    fn calls_may_be_missing_where_that_is_said() {
        let truths = [("f".to_owned(), Truth { calls: 9, left: 0 })].into();
        let found = |calls| testing::of("f", Calls { calls, returned: calls, ..Calls::default() });
        assert!(untruths(&truths, &found(8), true).is_empty());
        assert!(!untruths(&truths, &found(8), false).is_empty());
        assert!(!untruths(&truths, &found(10), true).is_empty());
    }

    #[test]
    fn calls_are_compared_with_the_truth() {
        let calls = Calls { calls: 9, returned: 7, unwound: 1, unseen: 1, lost: 1 };
        assert_eq!(untruth(calls, Truth { calls: 10, left: 1 }), "");
        assert_eq!(untruth(calls, Truth { calls: 9, left: 1 }), "f: 9 calls and 1 lost, not 9");
        assert_eq!(untruth(calls, Truth { calls: 10, left: 0 }), "f: 1 unwound, not 0");
        assert_eq!(untruth(calls, Truth { calls: 10, left: 4 }), "f: 7 returned, 4 of 10 were left");
    }

    fn ran(text: &str, status: i32) -> Ran {
        Ran { stdout: vec![text.to_owned()], status: ExitStatus::from_raw(status << 8) }
    }

    fn traced(ran: Ran, said: &str) -> Traced {
        let figures = Some(testing::of("f", Calls { calls: 1, returned: 1, ..Calls::default() }));
        let said = said.lines().map(str::to_owned).collect();
        Traced { ran, truths: Truths::new(), said, rtrace: None, figures, disturbed: None }
    }

    #[test]
    fn a_limit_is_no_difference_until_it_is_none() {
        let text = "name = 'a'\nabout = 'b'\ncommand = ['c']\nlib = ['d']\nlimit = 'it copies itself'";
        let program: Program = toml::from_str(text).expect("it is well formed");
        let of = |text: &str| of(&program, Way::Run, &ran("x", 0), &traced(ran(text, 0), ""));
        assert!(!of("y").differs() && of("y").remark.starts_with("it copies itself: "));
        assert!(of("x").differs());
    }

    #[test]
    fn another_output_or_status_differs() {
        let program: Program =
            toml::from_str("name = 'a'\nabout = 'b'\ncommand = ['c']\nlib = ['d']").expect("it is well formed");
        let of = |traced: &Traced| of(&program, Way::Run, &ran("x", 3), traced);
        assert!(!of(&traced(ran("x", 3), "")).differs());
        assert!(of(&traced(ran("y", 3), "")).differs());
        assert!(of(&traced(ran("x", 0), "")).differs());
        let nothing = Traced { figures: Some(testing::of("f", Calls::default())), ..traced(ran("x", 3), "") };
        assert!(of(&nothing).differs());
        let beside = Traced { disturbed: Some("it died".to_owned()), ..traced(ran("x", 3), "") };
        assert!(of(&beside).differs());
        let summary = "rtrace: 9 calls to 2 functions on 1 thread. Complete: no calls lost. 1 function skipped.";
        let said = format!("rtrace: recording 2 functions\n{summary}");
        assert_eq!(of(&traced(ran("x", 3), &said)).remark, "Complete: no calls lost. 1 function skipped.");
    }

    #[test]
    fn too_few_timed_calls_differ() {
        let text = "name = 'a'\nabout = 'b'\ncommand = ['c']\nlib = ['d']\ntimed = 99.5";
        let program: Program = toml::from_str(text).expect("it is well formed");
        let of = |unseen| {
            let figures = Some(testing::of("f", Calls { calls: 1000, unseen, ..Calls::default() }));
            of(&program, Way::Run, &ran("x", 0), &Traced { figures, ..traced(ran("x", 0), "") }).differs()
        };
        assert!(!of(5));
        assert!(of(6));
    }

    #[test]
    fn what_must_be_refused_is_refused_with_a_reason() {
        let text = "name = 'a'\nabout = 'b'\ncommand = ['c']\nlib = ['d']\nrefused = 'emulated'";
        let program: Program = toml::from_str(text).expect("it is well formed");
        let differs =
            |way, said: &str, text: &str| of(&program, way, &ran("x", 0), &traced(ran(text, 0), said)).differs();
        assert!(!differs(Way::Attach, "rtrace: failed to trace 1: it is emulated", "x"));
        assert!(differs(Way::Attach, "rtrace: failed to trace 1", "x"));
        assert!(differs(Way::Attach, "rtrace: 1 call to 1 function. emulated", "x"));
        assert!(differs(Way::Attach, "rtrace: failed to trace 1: it is emulated", "y"));
    }
}
