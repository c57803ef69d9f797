//! The usual kernel test: run a scenario of a target with and without rtrace, and compare both
//! runs with each other, and the trace with what the target says of itself.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Output;

use rtrace_model::{Ending, EventKind};
use tempfile::TempDir;

use super::profile;
use super::recording::{Recording, with_unseen_as};
use super::rtrace::{self, Attached, Waiting};
use super::skip::Turn;
use super::target::{Flavour, Target};
use super::tree::{Forest, Node, Paths};
use super::truth::{self, Trees};

/// What of a target's truth the trace must repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Truth {
    /// Each thread's calls, as a tree.
    Trees,
    /// The number of each function's calls on each thread.
    Counts,
    /// That, and how they ended.
    Endings,
}

/// A scenario of a target, and how to trace it.
#[derive(Clone, Debug)]
pub struct Scenario {
    program: &'static str,
    name: &'static str,
    flavour: Flavour,
    options: Vec<String>,
    truth: Truth,
    may_be_unseen: &'static [&'static str],
}

impl Scenario {
    pub fn new(program: &'static str, name: &'static str) -> Scenario {
        Scenario { program, name, flavour: Flavour::Cet, options: Vec::new(), truth: Truth::Trees, may_be_unseen: &[] }
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

    /// Functions whose calls return in a way that cannot be timed everywhere.
    pub fn may_be_unseen(self, may_be_unseen: &'static [&'static str]) -> Scenario {
        Scenario { may_be_unseen, ..self }
    }

    /// The program, built.
    pub fn target(&self) -> Target {
        Target::build(self.program, self.flavour)
    }

    /// Runs it from its start under `rtrace run` and checks all that was promised; gives the trace
    /// for further checks, or `None` where rtrace cannot trace.
    pub fn run(&self) -> Option<Recording> {
        Some(self.run_with_output()?.1)
    }

    /// As [`run`](Scenario::run); gives the traced program's output, too.
    pub fn run_with_output(&self) -> Option<(Output, Recording)> {
        let _turn = Turn::take()?;
        let target = self.target();
        let untraced = target.command(self.name).output().unwrap();
        let (traced, recording) = rtrace::run(&self.options_for(&target), &target.command(self.name));
        self.check(&untraced, &traced, &recording);
        Some((traced, recording))
    }

    /// Attaches to it before its first call; checks and gives the same as [`run`](Scenario::run).
    pub fn attach(&self) -> Option<Recording> {
        Some(self.attach_with_output()?.1)
    }

    /// As [`attach`](Scenario::attach); gives the traced program's output, too.
    pub fn attach_with_output(&self) -> Option<(Output, Recording)> {
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
        Some((traced, recording))
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
        let recorded: BTreeMap<_, Paths> = profile::open(&directory);
        assert!(agree(&recorded, &told), "recorded: {recorded:?}, told: {told:?}");
        check(&directory);
    }

    /// Runs it under `rtrace run`; then runs `check` on the trace.
    pub fn run_to_trace(&self, check: impl FnOnce(&Path)) {
        let Some(_turn) = Turn::take() else { return };
        let target = self.target();
        let folder = TempDir::new().unwrap();
        let directory = folder.path().join("trace");
        rtrace::record(&self.options_for(&target), &target.command(self.name), &directory);
        check(&directory);
    }

    fn options_for(&self, target: &Target) -> Vec<String> {
        [target.selection(), self.options.clone()].concat()
    }

    fn check(&self, untraced: &Output, traced: &Output, recording: &Recording) {
        let complaint = String::from_utf8_lossy(&traced.stderr);
        assert_eq!(truth::behaviour(traced), truth::behaviour(untraced), "{complaint}");
        let Some((before, behind, time)) = truth::settled(&traced.stdout) else {
            let told = truth::trees(&traced.stdout);
            let recorded = with_unseen_as(self.without_blind(recording, &told), &told);
            return self.compare(self.truth, &recorded, &told);
        };
        let (early, late) = recording.trees_around(time);
        self.compare(self.truth, &late, &truth::trees(behind));
        // How calls from a place end is not known before that place is.
        self.compare(Truth::Counts, &early, &truth::trees(before));
    }

    /// What was recorded, and of children that ran for a time without probes what they told: of these some
    /// calls may be missing, as the trace says, and none may be there that was not told.
    fn without_blind(&self, recording: &Recording, told: &Trees) -> Trees {
        let mut trees = recording.trees();
        if !recording.events().iter().any(|event| matches!(event, EventKind::BlindWindow { .. })) {
            return trees;
        }
        let main = told.keys().map(|&(pid, _)| pid).min();
        for (thread, told) in told.iter().filter(|((pid, _), _)| Some(*pid) != main) {
            let recorded = trees.remove(thread).unwrap_or_default();
            assert!(recorded.is_part_of(told), "{}: recorded: {recorded}, told: {told}", self.name);
            trees.insert(*thread, told.clone());
        }
        trees
    }

    fn compare(&self, truth: Truth, recorded: &Trees, told: &Trees) {
        let text = |calls: &Forest| match truth {
            Truth::Trees => calls.to_string(),
            Truth::Counts => format!("{:?}", calls.counts()),
            Truth::Endings => format!("{:?}", calls.endings()),
        };
        let ending = |node: &Node| match node.ending {
            Ending::Unseen if self.may_be_unseen.contains(&&*node.name) => Ending::Returned,
            ending => ending,
        };
        let recorded = match self.may_be_unseen {
            [] => recorded.clone(),
            _ => with_unseen_as(recorded.clone(), told),
        };
        let (recorded, told) = (lines(&recorded, |calls| text(&calls.with_endings(&ending))), lines(told, text));
        assert!(recorded == told, "{}: {}", self.name, difference(&recorded, &told));
    }
}

/// Whether the same calls were recorded on each path as were told, those apart that went unseen: how the first
/// calls from a place end is not known before that place is.
fn agree(recorded: &BTreeMap<truth::Thread, Paths>, told: &BTreeMap<truth::Thread, Paths>) -> bool {
    let same = |(recorded, told): (&[u64; 4], &[u64; 4])| {
        let unseen = Ending::Unseen as usize;
        let seen = (0..unseen).all(|ending| recorded[ending] <= told[ending]);
        seen && recorded.iter().sum::<u64>() == told.iter().sum::<u64>()
    };
    recorded.keys().eq(told.keys())
        && recorded.iter().all(|(thread, paths)| {
            let told = &told[thread];
            paths.keys().eq(told.keys()) && paths.values().zip(told.values()).all(same)
        })
}

type Lines = BTreeMap<truth::Thread, String>;

/// Where the first thread's calls that are not the same begin to differ.
fn difference(recorded: &Lines, told: &Lines) -> String {
    const AROUND: usize = 200;
    let nothing = String::new();
    let threads: BTreeSet<_> = recorded.keys().chain(told.keys()).collect();
    let of = |lines: &Lines, thread| lines.get(thread).unwrap_or(&nothing).clone();
    let (thread, recorded, told) = threads
        .into_iter()
        .map(|thread| (thread, of(recorded, thread), of(told, thread)))
        .find(|(_, recorded, told)| recorded != told)
        .expect("something differs");
    let same = recorded.bytes().zip(told.bytes()).take_while(|(a, b)| a == b).count();
    let excerpt = |text: &str| text.chars().skip(same.saturating_sub(AROUND)).take(2 * AROUND).collect::<String>();
    format!("thread {thread:?}\nrecorded: {}\n    told: {}", excerpt(&recorded), excerpt(&told))
}

fn lines(trees: &Trees, text: impl Fn(&Forest) -> String) -> Lines {
    trees.iter().map(|(&thread, calls)| (thread, text(calls))).collect()
}
