//! Whole libraries in real programs: what a recording adds to each call.

use anyhow::{Context as _, Result};

use super::figures::{Goal, Ratios};
use super::library::Program;
use super::subject::WORKS;
use super::tracer::Selection;
use super::{Bench, Line};

/// A library in a program that uses it.
struct Whole {
    library: &'static str,
    /// Those of its functions that are traced; all where there is none.
    functions: &'static [&'static str],
    program: Program,
    /// CPU time that may be added to a call, in microseconds.
    goal: f64,
}

const PROGRAMS: &[Whole] = &[
    Whole { library: "libsqlite3.so.0", functions: &["sqlite3_*"], program: Program::Sqlite, goal: 2.5 },
    Whole { library: "libcrypto.so.3", functions: &[], program: Program::Certificates, goal: 3.0 },
    Whole { library: "libz.so.1", functions: &[], program: Program::Python, goal: 1.4 },
    Whole {
        library: "libfftw3.so.3",
        functions: &["fftw_execute", "fftw_dft_solve"],
        program: Program::Own("fftw 1 100\n"),
        goal: 3.0,
    },
];

impl Bench {
    /// What is added to the calls of each library.
    pub(super) fn programs(&self) -> Result<Vec<Line>> {
        PROGRAMS.iter().map(|whole| self.whole(whole)).collect()
    }

    fn whole(&self, whole: &Whole) -> Result<Line> {
        let mut subject = self.start(whole.program)?;
        let pid = subject.pid();
        let all = Selection {
            libraries: vec![whole.library.to_owned()],
            functions: whole.functions.iter().map(|&function| function.to_owned()).collect(),
            ..Selection::default()
        };
        let most_called = self.most_called(&mut subject, whole.library)?;
        let (mut ours, mut peers, mut in_vain, mut untimed) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut calls = 0;
        for _ in 0..self.rounds {
            let untraced = subject.quickest()?;
            let rtrace = self.tools.rtrace(pid, &all)?;
            let added = subject.quickest()? - untraced;
            let recorded = self.tools.recorded(rtrace)?;
            calls = recorded.calls;
            ours.push(added * f64::from(WORKS) / recorded.calls as f64 / 1000.0);
            let summary = self.tools.summary()?;
            let share = |count: &serde_json::Value| {
                let count = count.as_f64().context("failed to read the summary of the trace: it has no such count")?;
                anyhow::Ok(count / recorded.calls as f64)
            };
            in_vain.push(share(&summary["return_sites"]["unmatched"])?);
            untimed.push(share(&summary["unseen"])? * 100.0);

            let rtrace = self.tools.rtrace(pid, &most_called)?;
            let by_us = subject.quickest()? - untraced;
            self.tools.recorded(rtrace)?;
            let bpftrace = self.tools.bpftrace(pid, &most_called)?;
            peers.push(by_us / (subject.quickest()? - untraced));
            bpftrace.end()?;
        }
        let median = |rounds| Ratios(rounds).median();
        Ok(Line {
            what: format!("added to a call of {}", whole.functions.first().unwrap_or(&whole.library)),
            unit: "µs",
            ratios: Ratios(ours),
            goal: Some(Goal(whole.goal)),
            remark: format!(
                "{calls} calls; {:.2} % not timed; {:.2} hits in vain per call; its {} most-called functions: {:.2} × \
                 bpftrace",
                median(untimed),
                median(in_vain),
                most_called.functions.len(),
                median(peers)
            ),
        })
    }
}
