//! `rtrace doctor`: checks whether and how rtrace works here for this user, and says how to fix what does not work.
//!
//! How probes can be attached is not inferred from a version: each way is tried on rtrace itself.

mod checks;

use rtrace::peaks;
use rtrace_model::{PeakRates, Peaks, escape, words};
use serde::Serialize;

use super::args::Doctor;
use super::{Outcome, print};

/// The check that says whether processes of others can be traced.
const OTHER_USERS: &str = "other users";

words! {
    /// How one check came out.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
    #[serde(rename_all = "lowercase")]
    CheckResult {
        /// As it should be.
        Ok = "ok",
        /// Tracing works, but something beside it is limited.
        Note = "note",
        /// Tracing cannot work.
        No = "no",
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Check {
    name: &'static str,
    state: CheckResult,
    detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

impl Check {
    fn ok(name: &'static str, detail: impl Into<String>) -> Check {
        Check { name, state: CheckResult::Ok, detail: detail.into(), remedy: None }
    }

    fn note(name: &'static str, detail: impl Into<String>) -> Check {
        Check { name, state: CheckResult::Note, detail: detail.into(), remedy: None }
    }

    fn no(name: &'static str, detail: impl Into<String>) -> Check {
        Check { name, state: CheckResult::No, detail: detail.into(), remedy: None }
    }

    fn remedy(self, remedy: impl Into<String>) -> Check {
        Check { remedy: Some(remedy.into()), ..self }
    }
}

/// All that the doctor says.
#[derive(Debug, Serialize)]
struct Diagnosis {
    can_trace: bool,
    /// As whom rtrace runs.
    user: String,
    /// How probes would be attached, by the name that traces carry too.
    mechanism: Option<&'static str>,
    checks: Vec<Check>,
}

impl Diagnosis {
    fn new(user: String, mechanism: Option<&'static str>, checks: Vec<Check>) -> Diagnosis {
        let can_trace = mechanism.is_some() && checks.iter().all(|check| check.state != CheckResult::No);
        Diagnosis { can_trace, user, mechanism, checks }
    }

    /// Whether it works for this user, and otherwise what helps: the remedy of the first thing that stops it.
    fn verdict(&self) -> String {
        let user = escape(&self.user);
        if let Some(mechanism) = self.mechanism.filter(|_| self.can_trace) {
            let limited = self.checks.iter().any(|check| (check.name, check.state) == (OTHER_USERS, CheckResult::Note));
            let whose = if limited { ", for own processes" } else { "" };
            return format!("rtrace works for {user}{whose} (using {mechanism})");
        }
        let mut stopping = self.checks.iter().filter(|check| check.state == CheckResult::No);
        match stopping.find_map(|check| check.remedy.as_deref()) {
            Some(remedy) => format!("rtrace does not work for {user}; what helps: {}", escape(remedy)),
            None => format!("rtrace does not work for {user}"),
        }
    }
}

/// Prints the verdict and the checks.
pub fn doctor(options: &Doctor) -> anyhow::Result<Outcome> {
    if options.peaks {
        let peaks = peaks::measure();
        let text =
            if options.format.is_json() { serde_json::to_string_pretty(&peaks)? + "\n" } else { of_peaks(&peaks) };
        print(text.as_bytes())?;
        return Ok(Outcome::Complete);
    }
    let diagnosis = checks::diagnose();
    let text =
        if options.format.is_json() { serde_json::to_string_pretty(&diagnosis)? + "\n" } else { table(&diagnosis) };
    print(text.as_bytes())?;
    Ok(if diagnosis.can_trace { Outcome::Complete } else { Outcome::Unable })
}

fn of_peaks(peaks: &Peaks) -> String {
    let line = |what: &str, rates: PeakRates, unit: &str, how: &str| {
        format!("{what:10}  {:>9.2}  {:>9.2}  {unit}  {how}\n", rates.one, rates.all)
    };
    let head = format!("{:10}  {:>9}  {:>9}\n", "", "one CPU", format!("all {}", peaks.cpus));
    let operations = line("operations", peaks.gigaflops, "GF/s", &peaks.operations);
    head + &operations + &line("memory", peaks.gigabytes, "GB/s", &peaks.bytes)
}

fn table(diagnosis: &Diagnosis) -> String {
    let width = diagnosis.checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
    let mut text = diagnosis.verdict() + "\n\n";
    for check in &diagnosis.checks {
        text.push_str(&format!("{:width$}  {:4}  {}\n", check.name, check.state.name(), escape(&check.detail)));
        if let Some(remedy) = &check.remedy {
            text.push_str(&format!("{:width$}        remedy: {}\n", "", escape(remedy)));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn diagnosis(mechanism: Option<&'static str>, checks: Vec<Check>) -> Diagnosis {
        Diagnosis::new("ann".to_owned(), mechanism, checks)
    }

    #[test]
    fn the_table_lines_up_below_the_verdict() {
        let checks = vec![Check::ok("kernel", "6.18.44 x86_64"), Check::note("lockdown", "integrity").remedy("none")];
        let well = diagnosis(Some("uprobe.multi"), checks);
        assert_eq!(
            table(&well),
            "rtrace works for ann (using uprobe.multi)\n\n\
             kernel    ok    6.18.44 x86_64\n\
             lockdown  note  integrity\n\
             \x20               remedy: none\n"
        );
        let ill = diagnosis(None, vec![Check::no("BTF", "missing")]);
        assert_eq!(table(&ill), "rtrace does not work for ann\n\nBTF  no    missing\n");
    }

    #[test]
    fn the_first_line_says_for_whose_processes_it_works_and_what_helps() {
        let own = vec![Check::note(OTHER_USERS, "only your own processes can be traced")];
        assert_eq!(diagnosis(Some("uprobe"), own).verdict(), "rtrace works for ann, for own processes (using uprobe)");
        let checks = vec![
            Check::note("BPF compiler", "off").remedy("sysctl"),
            Check::no("capabilities", "missing").remedy("setcap a"),
            Check::no("uprobe", "refused").remedy("b"),
        ];
        assert_eq!(diagnosis(None, checks).verdict(), "rtrace does not work for ann; what helps: setcap a");
    }

    #[test]
    fn one_no_outweighs_a_mechanism_that_works() {
        assert!(!diagnosis(Some("uprobe"), vec![Check::no("kernel", "6.1.0 aarch64")]).can_trace);
        assert!(diagnosis(Some("uprobe"), vec![Check::note("lockdown", "integrity")]).can_trace);
    }

    #[test]
    fn json_has_the_verdict_first() {
        let json = serde_json::to_string(&diagnosis(None, vec![Check::no("BTF", "missing")])).unwrap();
        assert_eq!(
            json,
            r#"{"can_trace":false,"user":"ann","mechanism":null,"checks":[{"name":"BTF","state":"no","detail":"missing"}]}"#
        );
    }
}
