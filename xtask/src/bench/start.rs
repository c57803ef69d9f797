//! Attaching to very many functions: how long it takes, what it does to calls, and for how long it
//! holds the program up.

use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::figures::{Goal, Ratios};
use super::subject::Worker;
use super::tracer::BenchSelection;
use super::{Bench, BenchLine};
use crate::running::Running;

/// What the dynamic linker loads before anything else.
const PRELOADED: &str = "libQt5Core.so.5:libQt5Gui.so.5:libQt5Widgets.so.5";

/// Two of these libraries have about the number of functions that the goals speak of.
const TWO: [&str; 2] = ["libQt5Core.so.5", "libQt5Widgets.so.5"];
const ALL: [&str; 1] = ["libQt5*"];

/// After so long nothing of what was done before goes on.
const CALM: Duration = Duration::from_secs(1);

/// Seconds to attach to a selection, and to detach from it, round by round.
#[derive(Default)]
struct AttachTimes {
    functions: u64,
    attach: Vec<f64>,
    detach: Vec<f64>,
}

impl AttachTimes {
    fn lines(self, goal: Option<f64>) -> [BenchLine; 2] {
        let line = |verb: &str, seconds, remark: &str| BenchLine {
            what: format!("{verb} {} functions of Qt5", self.functions),
            unit: "s",
            ratios: Ratios(seconds),
            goal: goal.map(Goal),
            remark: remark.to_owned(),
        };
        [
            line("attach to", self.attach, "from rtrace's start until it says that it records"),
            line("detach from", self.detach, "from Ctrl-C to rtrace's end"),
        ]
    }
}

impl Bench {
    /// Attaching to very many functions, and what that does to the calls of one.
    pub(super) fn many_functions(&self) -> Result<Vec<BenchLine>> {
        let mut command = Command::new(&self.program);
        let mut subject = Worker::start(command.env("LD_PRELOAD", PRELOADED), "loop 1 200000\n")?;
        let pid = subject.pid();
        let select = |libraries: &[&str]| BenchSelection {
            libraries: libraries.iter().map(|&name| name.to_owned()).collect(),
            ..BenchSelection::default()
        };
        let (few, many) = (select(&["exe"]), select(&["exe", "libQt5*"]));
        let mut ratios = Vec::new();
        let (mut of_two, mut of_all) = (AttachTimes::default(), AttachTimes::default());
        let (mut pauses, mut pauses_before) = (Vec::new(), Vec::new());
        for _ in 0..self.rounds {
            let untraced = subject.quickest()?;
            let with_few = self.tools.rtrace(pid, &few)?;
            let cost_of_few = subject.quickest()? - untraced;
            self.tools.recorded(with_few)?;
            let with_many = self.tools.rtrace(pid, &many)?;
            let cost_of_many = subject.quickest()? - untraced;
            self.tools.recorded(with_many)?;
            ratios.push(cost_of_many / cost_of_few);
            self.time(pid, &select(&TWO), &mut of_two)?;
            self.time(pid, &select(&ALL), &mut of_all)?;
            // It keeps a CPU busy.
            let mut pausing = Command::new(&self.pauses);
            let mut paused = Running::listen(pausing.env("LD_PRELOAD", PRELOADED), |child| child.stdout.take())?;
            longest(&mut paused)?;
            sleep(CALM);
            pauses_before.push(longest(&mut paused)?);
            self.time(paused.pid(), &select(&ALL), &mut AttachTimes::default())?;
            pauses.push(longest(&mut paused)?);
        }
        let mut lines = vec![BenchLine {
            what: "a call with all of Qt5 attached".to_owned(),
            unit: "× only its own functions attached",
            ratios: Ratios(ratios),
            goal: Some(Goal(1.1)),
            remark: String::new(),
        }];
        lines.extend(of_two.lines(Some(0.5)));
        lines.extend(of_all.lines(None));
        lines.push(BenchLine {
            what: "longest pause of a program while all of Qt5 is attached and detached".to_owned(),
            unit: "ms",
            ratios: Ratios(pauses),
            goal: None,
            remark: format!(
                "between two looks at the clock, with a page mapped in between; {:.2} in a second without rtrace",
                Ratios(pauses_before).median()
            ),
        });
        Ok(lines)
    }

    /// Attaches and detaches once. The kernel goes on taking probes out after their program has ended, and
    /// rtrace measures what calls cost after it has begun to record.
    fn time(&self, pid: u32, selection: &BenchSelection, times: &mut AttachTimes) -> Result<()> {
        sleep(CALM);
        let start = Instant::now();
        let attached = self.tools.rtrace(pid, selection)?;
        times.attach.push(start.elapsed().as_secs_f64());
        sleep(CALM);
        let start = Instant::now();
        self.tools.recorded(attached)?;
        times.detach.push(start.elapsed().as_secs_f64());
        times.functions =
            self.tools.summary()?["regions"].as_u64().context("failed to read the summary of the trace")?;
        Ok(())
    }
}

/// The longest pause of a program since it was last asked, in milliseconds; waiting for a CPU is none.
fn longest(paused: &mut Running) -> Result<f64> {
    paused.tell("\n")?;
    let line = paused.next_line("the longest pause")?;
    let pause = line.split_whitespace().nth(1).and_then(|pause| pause.parse::<f64>().ok());
    Ok(pause.with_context(|| format!("failed to understand what the program says of its pauses: {line}"))? / 1e6)
}
