//! What is said of a recording as a whole, before and after.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    CallCost, ClockAnchor, LocationId, Loss, LossReason, Missed, RegionId, Timestamp, Untimed, counted, grouped,
};

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
    /// The command that is recorded with its arguments, as it was asked for; empty where running processes are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
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
    /// Samples of CPU time that each CPU took in a second of work, where it took some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampling: Option<u32>,
    /// Present where the trace is a part of a longer recording: calls before its begin and after its end were not kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<Window>,
}

/// Why a part of a recording was kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// Counts up from 1 in a recording.
    pub number: u32,
    /// What asked for it: a trigger as the user wrote it, or a signal.
    pub trigger: String,
    /// When that happened.
    pub time: Timestamp,
    /// The thread of the call that did.
    pub location: Option<LocationId>,
    /// Its id.
    pub call: Option<u64>,
    /// Whether calls were dropped that belong to the time that was to be kept, as they did not fit into memory.
    pub is_cut: bool,
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
    /// Nanoseconds that threads have waited for probes: at return addresses that they were the first to meet, and in children.
    pub waited: u64,
}

/// Hits of return sites that ended no call, in a function of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HitsInVain {
    /// The function around the return addresses.
    pub region: RegionId,
    /// Its calls.
    pub calls: u64,
    /// How many such hits there were in these.
    pub hits: u64,
    /// Of the hits, those whose instruction the kernel single-stepped.
    pub single_stepped: u64,
}

/// What is known of a recording when it has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Calls recorded, of any ending.
    pub calls: u64,
    /// Of these, calls that are in the profile alone: they have no record of their own.
    pub folded: u64,
    /// Of these, calls that were still running.
    pub open: u64,
    /// Of these, calls left by an exception, a longjmp or a forced unwind.
    pub unwound: u64,
    /// Of these, calls that were not timed, as their return was not observed.
    pub unseen: u64,
    /// Why these were not timed, by reason and region.
    pub untimed: Vec<Untimed>,
    /// Beside all these, calls that were only counted, because of the budget.
    pub counted: u64,
    /// Beside all these, calls that were not seen because of the budget; `None` where it left none out.
    pub missed: Option<Missed>,
    /// Beside all these, calls outside of the functions within which calls were to be recorded.
    pub outside: u64,
    /// Locations with calls.
    pub locations: u64,
    /// Regions with probes.
    pub regions: u64,
    /// Functions left out.
    pub refused: u64,
    /// Libraries that ran for a time without their probes: calls may be missing.
    pub blind_windows: u64,
    /// Probes that processes had overwritten, or code in front of them: calls may be missing, or their returns.
    pub overwritten: u64,
    /// Programs of which nothing was recorded, as who recorded could not ptrace them: calls may be missing.
    pub withheld: u64,
    /// Processes that traced ones have made, and that were not traced.
    pub untraced_children: u64,
    /// Whether these are missing: nobody has asked for a recording without them.
    pub lacks_children: bool,
    /// What is missing, by reason and region.
    pub losses: Vec<Loss>,
    /// What became of the probes at return addresses.
    pub return_sites: ReturnSites,
    /// Where traced functions were slowed down by hits that ended no call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hits_in_vain: Vec<HitsInVain>,
    /// Clocks at the end.
    pub end: ClockAnchor,
}

impl Summary {
    /// Whether no call is missing, as far as that can be known.
    pub fn is_complete(&self) -> bool {
        let is_untroubled = self.lost() == 0 && self.blind_windows == 0 && self.overwritten == 0 && self.withheld == 0;
        is_untroubled && !self.lacks_children && !self.is_throttled()
    }

    /// Whether a budget has left calls out.
    pub fn is_throttled(&self) -> bool {
        self.missed.is_some()
    }

    /// Calls and events known to be missing.
    pub fn lost(&self) -> u64 {
        self.losses.iter().filter(|loss| !loss.reason.is_value()).map(|loss| loss.count).sum()
    }

    /// Values of calls that could not be read.
    pub fn unread(&self) -> u64 {
        self.of_reason(LossReason::ValueUnread)
    }

    /// Calls of which it is not known what led to them, though it was to be recorded.
    pub fn without_context(&self) -> u64 {
        self.of_reason(LossReason::ContextLost)
    }

    fn of_reason(&self, reason: LossReason) -> u64 {
        self.losses.iter().filter(|loss| loss.reason == reason).map(|loss| loss.count).sum()
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

/// The line that ends every run: what was recorded, whether it is complete, and of what is special only what there is.
impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (functions, threads) = (counted(self.regions, "function"), counted(self.locations, "thread"));
        write!(f, "{} to {functions} on {threads}.", counted(self.calls, "call"))?;
        if self.folded > 0 {
            let how_many = if self.folded == self.calls { "All".to_owned() } else { grouped(self.folded) };
            write!(f, " {how_many} only in the profile.")?;
        }
        if self.counted > 0 {
            write!(f, " {} more counted.", grouped(self.counted))?;
        }
        if let Some(missed) = self.missed {
            write!(f, " {}.", capitalised(&missed.to_string()))?;
        }
        match self.is_complete() {
            true => write!(f, " Complete: no calls lost.")?,
            false => write!(f, " Incomplete: {}.", self.missing().join(", "))?,
        }
        let remarks = self.remarks();
        if remarks.is_empty() { Ok(()) } else { write!(f, " {}.", remarks.join(", ")) }
    }
}

impl Summary {
    /// What makes the recording incomplete.
    fn missing(&self) -> Vec<String> {
        let of_calls = self.lost_by_reason().into_iter().filter(|(reason, _)| !reason.is_value());
        let reasons = told(of_calls.map(|(reason, count)| (reason.name(), count)));
        let lost = || format!("{} lost ({})", counted(self.lost(), "call"), reasons.join(", "));
        let children = || self.told_children();
        let of = |count: u64, thing: &str, what: &str| (count > 0).then(|| format!("{}{what}", counted(count, thing)));
        [
            (self.lost() > 0).then(lost),
            of(self.blind_windows, "blind window", ""),
            of(self.overwritten, "probe", " overwritten"),
            of(self.withheld, "privileged program", " not recorded"),
            self.is_throttled().then(|| "the budget left calls out".to_owned()),
            self.lacks_children.then(children),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    fn told_children(&self) -> String {
        let children = match self.untraced_children {
            1 => "1 child process".to_owned(),
            many => format!("{} child processes", grouped(many)),
        };
        format!("{children} not traced (--follow traces them)")
    }

    /// What is special about a recording, whether it is complete or not.
    fn remarks(&self) -> Vec<String> {
        let untimed = || {
            let share = 100.0 * self.unseen as f64 / self.calls.max(1) as f64;
            let reasons = Untimed::by_reason(&self.untimed).into_iter().map(|(reason, count)| (reason.name(), count));
            let details: Vec<String> = std::iter::once(format!("{share:.1} %")).chain(told(reasons)).collect();
            format!("{} not timed ({})", grouped(self.unseen), details.join(", "))
        };
        [
            (self.outside > 0).then(|| format!("{} outside of --within", counted(self.outside, "call"))),
            (self.refused > 0).then(|| format!("{} skipped", counted(self.refused, "function"))),
            (self.open > 0).then(|| format!("{} still running at the end", grouped(self.open))),
            (self.unwound > 0).then(|| format!("{} unwound", grouped(self.unwound))),
            (self.unread() > 0).then(|| format!("{} not readable", counted(self.unread(), "value"))),
            (self.without_context() > 0)
                .then(|| format!("{} without a context", counted(self.without_context(), "call"))),
            (self.unseen > 0).then(untimed),
            (self.untraced_children > 0 && !self.lacks_children).then(|| self.told_children()),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// Reasons with their counts.
fn told<'a>(reasons: impl Iterator<Item = (&'a str, u64)>) -> Vec<String> {
    reasons.map(|(reason, count)| format!("{reason}: {}", grouped(count))).collect()
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::UntimedReason;

    #[test]
    fn an_untroubled_run_is_one_line_without_zeros() {
        let summary = Summary { calls: 278_126, regions: 994, locations: 3, ..Summary::default() };
        assert_eq!(summary.to_string(), "278,126 calls to 994 functions on 3 threads. Complete: no calls lost.");
        let summary = Summary { calls: 1, regions: 1, locations: 1, open: 1, ..Summary::default() };
        let said = "1 call to 1 function on 1 thread. Complete: no calls lost. 1 still running at the end.";
        assert_eq!(summary.to_string(), said);
    }

    #[test]
    fn what_is_missing_is_told_with_its_reasons() {
        let losses = vec![Loss { reason: LossReason::RingFull, region: None, count: 2_000 }];
        let summary = Summary { regions: 2, overwritten: 1, refused: 3, losses, ..Summary::default() };
        assert!(!summary.is_complete());
        let said = "0 calls to 2 functions on 0 threads. Incomplete: 2,000 calls lost (ring full: 2,000), \
                    1 probe overwritten. 3 functions skipped.";
        assert_eq!(summary.to_string(), said);
    }

    #[test]
    fn children_that_were_not_traced_are_told() {
        let summary = Summary { calls: 9, regions: 1, locations: 1, untraced_children: 3, ..Summary::default() };
        let said = "9 calls to 1 function on 1 thread. Complete: no calls lost. \
                    3 child processes not traced (--follow traces them).";
        assert_eq!(summary.to_string(), said);
        let summary = Summary { untraced_children: 1, lacks_children: true, ..summary };
        let said = "9 calls to 1 function on 1 thread. Incomplete: 1 child process not traced (--follow traces them).";
        assert_eq!((summary.to_string().as_str(), summary.is_complete()), (said, false));
    }

    #[test]
    fn values_that_cannot_be_read_are_no_calls_that_are_lost() {
        let losses = vec![Loss { reason: LossReason::ValueUnread, region: None, count: 3 }];
        let summary = Summary { calls: 9, regions: 1, locations: 1, losses, ..Summary::default() };
        let said = "9 calls to 1 function on 1 thread. Complete: no calls lost. 3 values not readable.";
        assert_eq!((summary.to_string().as_str(), summary.lost()), (said, 0));
        let losses = vec![Loss { reason: LossReason::ContextLost, region: None, count: 2 }];
        let said = "9 calls to 1 function on 1 thread. Complete: no calls lost. 2 calls without a context.";
        assert_eq!(Summary { losses, ..summary }.to_string(), said);
    }

    #[test]
    fn calls_without_a_record_are_told_apart() {
        let missed = Missed { estimated: 200, margin: 10, has_unknown: false };
        let summary =
            Summary { calls: 5_000, folded: 4_000, counted: 1_000, missed: Some(missed), ..Summary::default() };
        let said = "5,000 calls to 0 functions on 0 threads. 4,000 only in the profile. 1,000 more counted. \
                    About 200 (\u{b1}5 %) more unseen. Incomplete: the budget left calls out.";
        assert_eq!(summary.to_string(), said);
    }

    #[test]
    fn calls_that_were_not_timed_are_told_with_their_share_and_reasons() {
        let untimed = |reason, count| Untimed { reason, region: None, count };
        let mut summary = Summary { calls: 800, unseen: 20, regions: 2, locations: 1, ..Summary::default() };
        let said = "800 calls to 2 functions on 1 thread. Complete: no calls lost. 20 not timed (2.5 %).";
        assert_eq!(summary.to_string(), said);
        summary.untimed = vec![untimed(UntimedReason::SiteDropped, 8), untimed(UntimedReason::NotYetPlaced, 12)];
        let reasons = "return site not yet placed: 12, return site dropped: 8";
        assert!(summary.to_string().ends_with(&format!(" 20 not timed (2.5 %, {reasons}).")), "{summary}");
    }
}
