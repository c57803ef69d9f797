//! What is said of a recording as a whole, before and after.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{CallCost, CallRange, ClockAnchor, Loss, LossReason, Untimed, estimated};

/// What is known of a recording when it begins.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Version of rtrace that recorded.
    pub rtrace_version: String,
    /// Name of the machine.
    pub host: String,
    /// Kernel release, as `uname -r` prints it.
    pub kernel: String,
    /// Number of CPUs on line.
    pub cpus: u32,
    /// rtrace's command line.
    pub command_line: Vec<String>,
    /// How probes are attached: `uprobe.session`, `uprobe.multi` or `uprobe`.
    pub mechanism: String,
    /// Clocks at the begin.
    pub begin: ClockAnchor,
    /// What the kernel calls this start of the machine: traces of one boot share a clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<String>,
    /// The part in a parallel job, where a launcher started rtrace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<Rank>,
    /// The part of the programs' CPU time that tracing was to take at most, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Percent>,
    /// What tracing costs on this machine, by kind of site; empty where it was not measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calibration: Vec<CallCost>,
}

/// A part of a whole, in thousandths of a percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Percent(pub u32);

impl Percent {
    /// As a part of 1.
    pub fn share(self) -> f64 {
        f64::from(self.0) / 100_000.0
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} %", f64::from(self.0) / 1_000.0)
    }
}

/// One of the processes that a launcher such as `mpirun` or `srun` started together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rank {
    /// Its number, from 0.
    pub rank: u32,
    /// How many there are, where the launcher tells.
    pub size: Option<u32>,
    /// What the launcher calls the job.
    pub job: Option<String>,
}

/// The probes at return addresses of callers, over a whole recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReturnSites {
    /// Return addresses at which a probe was placed.
    pub placed: u64,
    /// Hits of these probes.
    pub hits: u64,
    /// Of the hits, those that ended no call.
    pub unmatched: u64,
    /// Of the hits, those whose instruction the kernel single-stepped.
    pub single_stepped: u64,
}

/// What is known of a recording when it has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Calls recorded, of any ending.
    pub calls: u64,
    /// Of these, calls that are in the profile alone: they have no record of their own.
    #[serde(default)]
    pub folded: u64,
    /// Of these, calls that were still running.
    pub open: u64,
    /// Of these, calls left by an exception, a longjmp or a forced unwind.
    pub unwound: u64,
    /// Of these, calls that were not timed, as their return was not observed.
    pub unseen: u64,
    /// Why these were not timed, by reason and region.
    #[serde(default)]
    pub untimed: Vec<Untimed>,
    /// Beside all these, calls that were only counted, because of the budget.
    #[serde(default)]
    pub counted: u64,
    /// Beside all these, calls that were not seen because of the budget: about so many,
    #[serde(default)]
    pub estimated: u64,
    /// at least, and at most where that is known.
    #[serde(default)]
    pub estimated_range: CallRange,
    /// Locations with calls.
    pub locations: u64,
    /// Regions with probes.
    pub regions: u64,
    /// Functions left out.
    pub refused: u64,
    /// Libraries that ran for a time without their probes: calls may be missing.
    #[serde(default)]
    pub blind_windows: u64,
    /// Probes that processes had overwritten, or code in front of them: calls may be missing, or their returns.
    #[serde(default)]
    pub overwritten: u64,
    /// Programs of which nothing was recorded, as who recorded could not ptrace them: calls may be missing.
    #[serde(default)]
    pub withheld: u64,
    /// What is missing, by reason and region.
    pub losses: Vec<Loss>,
    /// Exits of calls that had begun before the recording, and so are not calls of it.
    pub exits_without_enter: u64,
    /// What became of the probes at return addresses.
    #[serde(default)]
    pub return_sites: ReturnSites,
    /// Clocks at the end.
    pub end: ClockAnchor,
}

impl Summary {
    /// Whether no call is missing, as far as that can be known.
    pub fn is_complete(&self) -> bool {
        self.lost() == 0 && self.blind_windows == 0 && self.overwritten == 0 && self.withheld == 0
    }

    /// Calls known to be missing.
    pub fn lost(&self) -> u64 {
        self.losses.iter().map(|loss| loss.count).sum()
    }

    /// Losses summed by reason, largest reasons of equal code order first seen.
    pub fn lost_by_reason(&self) -> Vec<(LossReason, u64)> {
        LossReason::ALL
            .into_iter()
            .map(|reason| {
                let of_reason = self.losses.iter().filter(|loss| loss.reason == reason);
                (reason, of_reason.map(|loss| loss.count).sum())
            })
            .filter(|&(_, count)| count > 0)
            .collect()
    }
}

/// The line that ends every run: what was recorded, and of what went wrong only what did.
impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (calls, regions) = (counted(self.calls, "call"), counted(self.regions, "region"));
        write!(f, "{calls}")?;
        if self.folded > 0 {
            write!(f, " ({} only in the profile)", self.folded)?;
        }
        write!(f, " of {regions} on {}", counted(self.locations, "thread"))?;
        if self.counted > 0 {
            write!(f, "; {} more counted", self.counted)?;
        }
        if self.estimated_range != CallRange::default() {
            write!(f, "; {}", estimated(self.estimated, self.estimated_range))?;
        }
        let remarks: Vec<String> = self.remarks().collect();
        write!(f, "; {}", remarks.join(", "))
    }
}

impl Summary {
    /// Whether the recording is complete, and else what is missing; then what is special.
    fn remarks(&self) -> impl Iterator<Item = String> {
        let some = |count: u64, word: &str| (count > 0).then(|| format!("{count} {word}"));
        let with_reasons = |count: u64, word: &str, reasons: Vec<String>| match reasons.as_slice() {
            [] => some(count, word),
            reasons => some(count, &format!("{word} ({})", reasons.join(", "))),
        };
        let of_reason = |(reason, count): (LossReason, u64)| format!("{}: {count}", reason.name());
        let lost = self.lost_by_reason().into_iter().map(of_reason).collect();
        let share = 100.0 * self.unseen as f64 / self.calls.max(1) as f64;
        let untimed = Untimed::by_reason(&self.untimed);
        let untimed = untimed.into_iter().map(|(reason, count)| format!("{}: {count}", reason.name()));
        let untimed = std::iter::once(format!("{share:.1} %")).chain(untimed).collect();
        let windows = (self.blind_windows > 0).then(|| counted(self.blind_windows, "blind window"));
        let withheld =
            (self.withheld > 0).then(|| format!("{} not recorded", counted(self.withheld, "privileged program")));
        [
            self.is_complete().then(|| "complete".to_owned()),
            with_reasons(self.lost(), "lost", lost),
            windows,
            (self.overwritten > 0).then(|| format!("{} overwritten", counted(self.overwritten, "probe"))),
            withheld,
            some(self.refused, "refused"),
            some(self.open, "unfinished"),
            some(self.unwound, "unwound"),
            with_reasons(self.unseen, "not timed", untimed),
        ]
        .into_iter()
        .flatten()
    }
}

fn counted(count: u64, word: &str) -> String {
    format!("{count} {word}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::UntimedReason;

    #[test]
    fn an_untroubled_run_is_one_line_without_zeros() {
        let summary = Summary { calls: 1, regions: 2, locations: 1, ..Summary::default() };
        assert_eq!(summary.to_string(), "1 call of 2 regions on 1 thread; complete");
    }

    #[test]
    fn what_was_overwritten_is_incomplete() {
        let summary = Summary { regions: 2, overwritten: 1, ..Summary::default() };
        assert!(!summary.is_complete());
        assert_eq!(summary.to_string(), "0 calls of 2 regions on 0 threads; 1 probe overwritten");
    }

    #[test]
    fn calls_that_were_not_timed_are_told_with_their_share_and_reasons() {
        let untimed = |reason, count| Untimed { reason, region: None, count };
        let mut summary = Summary { calls: 800, unseen: 20, regions: 2, locations: 1, ..Summary::default() };
        assert_eq!(summary.to_string(), "800 calls of 2 regions on 1 thread; complete, 20 not timed (2.5 %)");
        summary.untimed = vec![untimed(UntimedReason::SiteDropped, 8), untimed(UntimedReason::NotYetPlaced, 12)];
        let reasons = "return site not yet placed: 12, return site dropped: 8";
        assert!(summary.to_string().ends_with(&format!("; complete, 20 not timed (2.5 %, {reasons})")), "{summary}");
    }
}
