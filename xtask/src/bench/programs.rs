//! Whole libraries in real programs: what a recording adds to each call, and what of it the kernel takes for the same
//! probes.

use std::process::Command;

use anyhow::{Context as _, Result};

use super::figures::{Goal, Ratios};
use super::library::OtherPrograms;
use super::subject::{WORKS, Worker};
use super::tracer::{self, BenchSelection};
use super::{Bench, BenchLine};

/// A library in a program that uses it.
struct Whole {
    library: &'static str,
    /// Those of its functions that are traced; all where there is none.
    functions: &'static [&'static str],
    program: OtherPrograms,
    /// CPU time that may be added to a call, in microseconds.
    goal: f64,
}

const PROGRAMS: &[Whole] = &[
    Whole { library: "libsqlite3.so.0", functions: &["sqlite3_*"], program: OtherPrograms::Sqlite, goal: 2.5 },
    Whole { library: "libcrypto.so.3", functions: &[], program: OtherPrograms::Certificates, goal: 3.0 },
    Whole { library: "libz.so.1", functions: &[], program: OtherPrograms::Python, goal: 1.4 },
    Whole {
        library: "libfftw3.so.3",
        functions: &["fftw_execute", "fftw_dft_solve"],
        program: OtherPrograms::Own("fftw 1 100\n"),
        goal: 3.0,
    },
];

/// Microseconds that an empty program takes.
struct LeastTime {
    /// At an instruction that the kernel emulates.
    emulated: f64,
    /// At one that it single-steps.
    stepped: f64,
}

impl LeastTime {
    /// What it takes at the return sites for each call, by the counts of a recording.
    fn at_returns(&self, hits: f64, stepped: f64) -> f64 {
        (hits - stepped) * self.emulated + stepped * self.stepped
    }
}

impl Bench {
    /// What is added to the calls of each library.
    pub(super) fn programs(&self) -> Result<Vec<BenchLine>> {
        let least = self.least()?;
        PROGRAMS.iter().map(|whole| self.whole(whole, &least)).collect()
    }

    fn least(&self) -> Result<LeastTime> {
        const CALLS: f64 = 400_000.0;
        let mut subject = Worker::start(&mut Command::new(&self.program), "loop 1 400000\n")?;
        let sites = self.tools.sites(subject.pid(), &self.pushes())?;
        let entry: u64 = sites.first().context("failed to read the plan: no site")?.parse()?;
        // A push of one byte, which the kernel emulates, and behind it an instruction that it does not.
        let mut hits = [entry, entry + 1].map(|site| (site, Vec::new()));
        for _ in 0..self.rounds {
            let untraced = subject.quickest()?;
            for (site, costs) in &mut hits {
                let nothing = self.tools.nothing(subject.pid(), &self.program, &[site.to_string()])?;
                costs.push((subject.quickest()? - untraced) / CALLS / 1000.0);
                drop(nothing);
            }
        }
        let [emulated, stepped] = hits.map(|(_, costs)| Ratios(costs).median());
        Ok(LeastTime { emulated, stepped })
    }

    fn whole(&self, whole: &Whole, least: &LeastTime) -> Result<BenchLine> {
        let mut subject = self.start(whole.program)?;
        let pid = subject.pid();
        let all = BenchSelection {
            libraries: vec![whole.library.to_owned()],
            functions: whole.functions.iter().map(|&function| function.to_owned()).collect(),
            ..BenchSelection::default()
        };
        let most_called = self.most_called(&mut subject, whole.library)?;
        let file = self.tools.file(pid, &all)?;
        let sites = self.tools.sites(pid, &all)?;
        let (mut ours, mut entries, mut peers) = (Vec::new(), Vec::new(), Vec::new());
        let (mut in_vain, mut untimed, mut returns) = (Vec::new(), Vec::new(), Vec::new());
        let mut calls = 0;
        for _ in 0..self.rounds {
            let untraced = subject.quickest()?;
            let rtrace = self.tools.rtrace(pid, &all)?;
            let added = subject.quickest()? - untraced;
            let recorded = self.tools.recorded(rtrace)?;
            calls = recorded.calls;
            let of_call = |added: f64| added * f64::from(WORKS) / recorded.calls as f64 / 1000.0;
            ours.push(of_call(added));
            let summary = self.tools.summary()?;
            let share = |count: &serde_json::Value| {
                let count = count.as_f64().context("failed to read the summary of the trace: it has no such count")?;
                anyhow::Ok(count / recorded.calls as f64)
            };
            let found = &summary["return_sites"];
            in_vain.push(share(&found["unmatched"])?);
            returns.push(least.at_returns(share(&found["hits"])?, share(&found["single_stepped"])?));
            untimed.push(share(&summary["unseen"])? * 100.0);

            let nothing = self.tools.nothing(pid, &file, &sites)?;
            entries.push(of_call(subject.quickest()? - untraced));
            drop(nothing);

            let rtrace = self.tools.rtrace(pid, &most_called)?;
            let by_us = subject.quickest()? - untraced;
            self.tools.recorded(rtrace)?;
            let bpftrace = self.tools.bpftrace(pid, &most_called)?;
            peers.push(by_us / (subject.quickest()? - untraced));
            tracer::end(bpftrace)?;
        }
        let median = |rounds| Ratios(rounds).median();
        let (entries, returns) = (median(entries), median(returns));
        Ok(BenchLine {
            what: format!("added to a call of {}", whole.functions.first().unwrap_or(&whole.library)),
            unit: "µs",
            ratios: Ratios(ours),
            goal: Some(Goal(whole.goal)),
            remark: format!(
                "floor {:.2}: entries {entries:.2}, return sites {returns:.2}; {calls} calls; {:.2} % not timed; \
                 {:.2} hits in vain per call; its {} most-called functions: {:.2} × bpftrace",
                entries + returns,
                median(untimed),
                median(in_vain),
                most_called.functions.len(),
                median(peers)
            ),
        })
    }
}
