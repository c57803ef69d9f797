//! What is said of a recording as a whole, before and after.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{CallCost, ClockAnchor, Loss, LossReason};

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
    /// Of these, calls whose exit could not be observed.
    pub unseen: u64,
    /// Beside all these, calls that were only counted, because of the budget.
    #[serde(default)]
    pub counted: u64,
    /// Beside all these, calls that were not seen because of the budget: about so many,
    #[serde(default)]
    pub estimated: u64,
    /// at least and at most.
    #[serde(default)]
    pub estimated_range: (u64, u64),
    /// Locations with calls.
    pub locations: u64,
    /// Regions with probes.
    pub regions: u64,
    /// Functions left out.
    pub refused: u64,
    /// Libraries that ran for a time without their probes: calls may be missing.
    #[serde(default)]
    pub blind_windows: u64,
    /// What is missing, by reason and region.
    pub losses: Vec<Loss>,
    /// Exits of calls that had begun before the recording, and so are not calls of it.
    pub exits_without_enter: u64,
    /// Clocks at the end.
    pub end: ClockAnchor,
}

impl Summary {
    /// Whether no call is missing, as far as that can be known.
    pub fn is_complete(&self) -> bool {
        self.lost() == 0 && self.blind_windows == 0
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

/// The one honest line that ends every run.
impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counted = |count: u64, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
        let (calls, regions) = (counted(self.calls, "call"), counted(self.regions, "region"));
        write!(f, "{calls}")?;
        if self.folded > 0 {
            write!(f, " ({} only in the profile)", self.folded)?;
        }
        write!(f, " of {regions} on {}", counted(self.locations, "thread"))?;
        if self.counted > 0 {
            write!(f, "; {} more counted", self.counted)?;
        }
        if self.estimated > 0 || self.estimated_range.1 > 0 {
            let (least, most) = self.estimated_range;
            write!(f, "; about {} more estimated ({least} to {most})", self.estimated)?;
        }
        write!(f, "; {} lost", self.lost())?;
        let reasons = self.lost_by_reason();
        if !reasons.is_empty() {
            let list: Vec<String> =
                reasons.iter().map(|(reason, count)| format!("{}: {count}", reason.name())).collect();
            write!(f, " ({})", list.join(", "))?;
        }
        write!(
            f,
            ", {} refused, {} unfinished, {} unwound, {} without exit",
            self.refused, self.open, self.unwound, self.unseen
        )?;
        match self.blind_windows {
            0 => Ok(()),
            windows => write!(f, ", {}", counted(windows, "blind window")),
        }
    }
}
