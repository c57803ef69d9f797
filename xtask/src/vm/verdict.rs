//! What a guest said, and whether that is what the list of kernels says.

use super::kernels::Kernel;
use crate::counts::Counts;

/// What a guest said of itself.
#[derive(Debug, Default)]
pub struct GuestReport {
    mechanism: Option<String>,
    remedies: u64,
    counts: Counts,
    finished: bool,
}

impl GuestReport {
    /// Takes in a line that the guest printed.
    pub fn read(&mut self, line: &str) {
        let verdict = line.strip_prefix("rtrace works for ").and_then(|rest| rest.split_once(" (using "));
        if let Some(mechanism) = verdict.and_then(|(_, rest)| rest.strip_suffix(')')) {
            self.mechanism = Some(mechanism.to_owned());
        } else if line.trim_start().starts_with("remedy: ") {
            self.remedies += 1;
        } else if line == "guest: finished" {
            self.finished = true;
        } else {
            self.counts.read(line);
        }
    }

    /// What is not as it should be, if anything.
    pub fn fault(&self, kernel: &Kernel) -> Option<String> {
        if !self.finished {
            return Some("did not come to its end".to_owned());
        }
        if self.mechanism != kernel.mechanism {
            return Some(format!("expected {}", shown(kernel.mechanism.as_deref())));
        }
        match self.mechanism {
            None if self.remedies == 0 => Some("refused without a remedy".to_owned()),
            Some(_) if self.counts.failed > 0 => Some("tests failed".to_owned()),
            Some(_) if self.counts.passed == 0 => Some("no test ran".to_owned()),
            _ => None,
        }
    }
}

fn shown(mechanism: Option<&str>) -> &str {
    mechanism.unwrap_or("refused")
}

/// A line for each kernel.
pub fn table(rows: &[(&Kernel, GuestReport)]) -> String {
    let mut text = format!("{:8}{:16}{:>8}{:>8}{:>8}\n", "kernel", "mechanism", "passed", "failed", "skipped");
    for (kernel, report) in rows {
        let Counts { passed, failed, .. } = &report.counts;
        let skipped = report.counts.not_run();
        let mechanism = shown(report.mechanism.as_deref());
        let verdict = report.fault(kernel).unwrap_or_else(|| "as expected".to_owned());
        text += &format!("{:8}{mechanism:16}{passed:8}{failed:8}{skipped:8}  {verdict}\n", kernel.name);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(mechanism: Option<&str>) -> Kernel {
        let mechanism = mechanism.map(str::to_owned);
        Kernel { name: "6.1".into(), suite: "bookworm".into(), mechanism, cpu: None }
    }

    fn report(text: &str) -> GuestReport {
        let mut report = GuestReport::default();
        text.lines().for_each(|line| report.read(line));
        report
    }

    const TRACED: &str = "lockdown  note  integrity\nrtrace works for user 0 (using uprobe)\n\
                          test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured\nguest: finished";

    #[test]
    fn what_was_expected_is_no_fault() {
        assert_eq!(report(TRACED).fault(&kernel(Some("uprobe"))), None);
        let refused =
            "BTF  no  missing\n     remedy: boot a newer kernel\nrtrace does not work for user 0\nguest: finished";
        assert_eq!(report(refused).fault(&kernel(None)), None);
    }

    #[test]
    fn every_deviation_is_a_fault() {
        let fault = |text: &str, mechanism| report(text).fault(&kernel(mechanism)).unwrap_or_default();
        assert_eq!(fault("rtrace works for user 0 (using uprobe)", Some("uprobe")), "did not come to its end");
        assert_eq!(fault(TRACED, Some("uprobe.multi")), "expected uprobe.multi");
        assert_eq!(fault(TRACED, None), "expected refused");
        assert_eq!(fault("rtrace does not work for user 0\nguest: finished", None), "refused without a remedy");
        assert_eq!(fault(&TRACED.replace("0 failed", "1 failed"), Some("uprobe")), "tests failed");
        assert_eq!(fault("rtrace works for user 0 (using uprobe)\nguest: finished", Some("uprobe")), "no test ran");
    }

    #[test]
    fn the_table_has_a_line_for_each_kernel() {
        let kernel = kernel(Some("uprobe"));
        assert_eq!(
            table(&[(&kernel, report(TRACED))]),
            "kernel  mechanism         passed  failed skipped\n\
             6.1     uprobe                 3       0       0  as expected\n"
        );
    }
}
