//! `rtrace doctor`: checks whether and how rtrace works on this machine, and says how to fix what does not work.
//!
//! How probes can be attached is not inferred from a version: each way is tried on rtrace itself.

mod checks;

use rtrace_model::escape;
use serde::Serialize;

use super::args::Doctor;
use super::{Outcome, print};

/// How one check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum CheckResult {
    /// As it should be.
    Ok,
    /// Tracing works, but something beside it is limited.
    Note,
    /// Tracing cannot work.
    No,
}

impl CheckResult {
    const fn name(self) -> &'static str {
        match self {
            CheckResult::Ok => "ok",
            CheckResult::Note => "note",
            CheckResult::No => "no",
        }
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
    /// How probes would be attached, by the name that traces carry too.
    mechanism: Option<&'static str>,
    checks: Vec<Check>,
}

impl Diagnosis {
    fn new(mechanism: Option<&'static str>, checks: Vec<Check>) -> Diagnosis {
        let can_trace = mechanism.is_some() && checks.iter().all(|check| check.state != CheckResult::No);
        Diagnosis { can_trace, mechanism, checks }
    }
}

/// Prints the verdict and the checks.
pub fn doctor(options: &Doctor) -> anyhow::Result<Outcome> {
    let diagnosis = checks::diagnose();
    let text =
        if options.format.is_json() { serde_json::to_string_pretty(&diagnosis)? + "\n" } else { table(&diagnosis) };
    print(text.as_bytes())?;
    Ok(if diagnosis.can_trace { Outcome::Complete } else { Outcome::Unable })
}

fn table(diagnosis: &Diagnosis) -> String {
    let width = diagnosis.checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
    let mut text = match diagnosis.mechanism {
        Some(mechanism) if diagnosis.can_trace => format!("rtrace works on this machine (using {mechanism})\n\n"),
        _ => "rtrace does not work on this machine\n\n".to_owned(),
    };
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

    #[test]
    fn the_table_lines_up_below_the_verdict() {
        let checks = vec![Check::ok("kernel", "6.18.44 x86_64"), Check::note("lockdown", "integrity").remedy("none")];
        let well = Diagnosis::new(Some("uprobe.multi"), checks);
        assert_eq!(
            table(&well),
            "rtrace works on this machine (using uprobe.multi)\n\n\
             kernel    ok    6.18.44 x86_64\n\
             lockdown  note  integrity\n\
             \x20               remedy: none\n"
        );
        let ill = Diagnosis::new(None, vec![Check::no("BTF", "missing")]);
        assert_eq!(table(&ill), "rtrace does not work on this machine\n\nBTF  no    missing\n");
    }

    #[test]
    fn one_no_outweighs_a_mechanism_that_works() {
        assert!(!Diagnosis::new(Some("uprobe"), vec![Check::no("kernel", "6.1.0 aarch64")]).can_trace);
        assert!(Diagnosis::new(Some("uprobe"), vec![Check::note("lockdown", "integrity")]).can_trace);
    }

    #[test]
    fn json_has_the_verdict_first() {
        let ill = Diagnosis::new(None, vec![Check::no("BTF", "missing")]);
        let json = serde_json::to_string(&ill).unwrap();
        assert_eq!(
            json,
            r#"{"can_trace":false,"mechanism":null,"checks":[{"name":"BTF","state":"no","detail":"missing"}]}"#
        );
    }
}
