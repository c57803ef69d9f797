//! The usual kernel test: run a scenario of a target with and without rtrace, and compare both
//! runs with each other, and the trace with what the target says of itself.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Output;

use tempfile::TempDir;

use super::profile;
use super::recording::Recording;
use super::rtrace::{self, Attached, Waiting};
use super::skip::Turn;
use super::target::{Flavour, Target};
use super::tree::Forest;
use super::truth::{self, Trees};

/// What of a target's truth the trace must repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Truth {
    /// Each thread's calls, as a tree.
    Trees,
    /// The number of each function's calls on each thread.
    Counts,
}

/// A scenario of a target, and how to trace it.
#[derive(Clone, Debug)]
pub struct Scenario {
    program: &'static str,
    name: &'static str,
    flavour: Flavour,
    options: Vec<String>,
    truth: Truth,
}

impl Scenario {
    pub fn new(program: &'static str, name: &'static str) -> Scenario {
        Scenario { program, name, flavour: Flavour::Cet, options: Vec::new(), truth: Truth::Trees }
    }

    pub fn flavour(self, flavour: Flavour) -> Scenario {
        Scenario { flavour, ..self }
    }

    pub fn option(mut self, option: &str) -> Scenario {
        self.options.push(option.to_owned());
        self
    }

    pub fn truth(self, truth: Truth) -> Scenario {
        Scenario { truth, ..self }
    }

    /// The program, built.
    pub fn target(&self) -> Target {
        Target::build(self.program, self.flavour)
    }

    /// Runs it from its start under `rtrace run` and checks all that was promised; gives the trace
    /// for further checks, or `None` where rtrace cannot trace.
    pub fn run(&self) -> Option<Recording> {
        let _turn = Turn::take()?;
        let target = self.target();
        let untraced = target.command(self.name).output().unwrap();
        let (traced, recording) = rtrace::run(&self.options_for(&target), &target.command(self.name));
        self.check(&untraced, &traced, &recording);
        Some(recording)
    }

    /// Attaches to it before its first call; checks and gives the same as [`run`](Scenario::run).
    pub fn attach(&self) -> Option<Recording> {
        let _turn = Turn::take()?;
        let target = self.target();
        let mut waiting = Waiting::start(&mut target.command(self.name));
        waiting.go();
        let untraced = waiting.finish();
        let mut waiting = Waiting::start(&mut target.command(self.name));
        let attached = Attached::start(waiting.pid(), &self.options_for(&target));
        waiting.go();
        let traced = waiting.finish();
        let (output, recording) = attached.finish();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        self.check(&untraced, &traced, &recording);
        Some(recording)
    }

    /// Runs it under `rtrace run` with calls folded, and checks that the profile is what the program
    /// says of itself; then runs `check` on the trace.
    pub fn run_folded(&self, check: impl FnOnce(&Path)) {
        let Some(_turn) = Turn::take() else { return };
        let target = self.target();
        let folder = TempDir::new().unwrap();
        let directory = folder.path().join("trace");
        let untraced = target.command(self.name).output().unwrap();
        let traced = rtrace::record(&self.options_for(&target), &target.command(self.name), &directory);
        let complaint = String::from_utf8_lossy(&traced.stderr);
        assert_eq!(truth::behaviour(&traced), truth::behaviour(&untraced), "{complaint}");
        let told: BTreeMap<_, _> =
            truth::trees(&traced.stdout).into_iter().map(|(thread, calls)| (thread, calls.paths())).collect();
        assert_eq!(profile::open(&directory), told);
        check(&directory);
    }

    fn options_for(&self, target: &Target) -> Vec<String> {
        [target.selection(), self.options.clone()].concat()
    }

    fn check(&self, untraced: &Output, traced: &Output, recording: &Recording) {
        let complaint = String::from_utf8_lossy(&traced.stderr);
        assert_eq!(truth::behaviour(traced), truth::behaviour(untraced), "{complaint}");
        let (told, recorded) = (truth::trees(&traced.stdout), recording.trees());
        match self.truth {
            Truth::Trees => assert_eq!(lines(&recorded, Forest::to_string), lines(&told, Forest::to_string)),
            Truth::Counts => assert_eq!(lines(&recorded, counts), lines(&told, counts)),
        }
    }
}

fn counts(calls: &Forest) -> String {
    format!("{:?}", calls.counts())
}

fn lines(trees: &Trees, text: impl Fn(&Forest) -> String) -> BTreeMap<truth::Thread, String> {
    trees.iter().map(|(&thread, calls)| (thread, text(calls))).collect()
}
