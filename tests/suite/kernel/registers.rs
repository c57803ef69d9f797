//! Instructions that the programs do in the kernel's place change neither the program nor what is on
//! record, and cost less than a single step. Where the kernel does not let them, the same runs are
//! single-stepped, and only what is about the cost is skipped.

use std::thread;
use std::time::Duration;

use rtrace_exporters::Trace;
use rtrace_model::{CallCost, Ending, ExitPolicy, Region};
use serde_json::Value;

use crate::common::recording::Recording;
use crate::common::rtrace::{self, Attached, Waiting};
use crate::common::scenario::{Scenario, Truth};
use crate::common::skip::{Turn, may_step, not_here};
use crate::common::target::{Flavour, Target};

/// Functions that begin with a frame which a program can make.
const FRAMES: [&str; 5] = ["frame_8", "frame_24", "frame_120", "frame_128", "frame_2040"];

fn with_policy(scenario: &'static str, policy: &str) -> Scenario {
    Scenario::new("registers", scenario).option("--exit").option(policy)
}

fn region<'a>(recording: &'a Recording, name: &str) -> &'a Region {
    recording.regions().iter().find(|region| region.name == name).expect("the region is there")
}

/// Whether the programs may do instructions; says so where they may not.
fn steps() -> bool {
    may_step().inspect_err(|reason| not_here(&format!("instructions are single-stepped, as {reason}"))).is_ok()
}

#[test]
fn frames_leave_the_flags_and_the_stack_of_the_processor() {
    for (policy, truth) in [("return-site", Truth::Trees), ("entry-only", Truth::Counts)] {
        let Some(recording) = with_policy("frames", policy).truth(truth).run() else { return };
        let written = may_step().is_ok();
        for name in FRAMES {
            assert_eq!(region(&recording, name).written, written, "{name} {policy}");
            assert_eq!(region(&recording, name).single_stepped, !written, "{name} {policy}");
        }
        // Its frame is too large to be made by a program, but its enter may be seen at the `ret`.
        assert_eq!(region(&recording, "frame_2048").single_stepped, !written, "{policy}");
    }
}

#[test]
fn landings_and_returns_lead_where_they_lead() {
    let Some(recording) = with_policy("ends", "return-site").run() else { return };
    for name in ["landed", "nothing"] {
        assert_eq!(region(&recording, name).written, may_step().is_ok(), "{name}");
    }
}

#[test]
fn longjmp_leaves_a_frame() {
    with_policy("jumps", "return-site").run();
}

/// How many calls are made is another number in every run, so the program tells only what is wrong.
#[test]
fn signals_arrive_at_any_instruction() {
    let Some(_turn) = Turn::take() else { return };
    let target = Target::build("registers", Flavour::Cet);
    let options = [target.selection(), ["--exit", "return-site"].map(str::to_owned).into()].concat();
    let (output, recording) = rtrace::run(&options, &target.command("interrupted"));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "0 differ\n");
    let complaint = String::from_utf8_lossy(&output.stderr);
    let rounds: u64 = complaint.lines().find_map(|line| line.strip_suffix(" rounds")?.parse().ok()).expect("it tells");
    let calls = recording.calls_by_region();
    let counted = |name| calls[&region(&recording, name).id];
    for name in FRAMES.into_iter().chain(["landed", "nothing", "next"]) {
        assert_eq!(counted(name), rounds, "{name}");
    }
}

/// Of two recordings that have a probe at the same place, neither does the instruction. While one of
/// them comes and goes, each call is still recorded by the other, and the program notices nothing.
#[test]
fn others_may_come_and_go() {
    let Some(_turn) = Turn::take() else { return };
    let target = Target::build("registers", Flavour::Cet);
    let options = |more: &[&str]| [target.selection(), more.iter().map(|&word| word.to_owned()).collect()].concat();
    let mut waiting = Waiting::start(&mut target.command("until_told"));
    let lasting = Attached::start(waiting.pid(), &options(&["--exit", "return-site"]));
    waiting.go();
    for _ in 0..2 {
        let passing = Attached::start(waiting.pid(), &options(&["--exit", "return-site", "--duration", "300ms"]));
        let (output, recording) = passing.finish();
        let summary = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && recording.calls().count() > 0, "{summary}");
        thread::sleep(Duration::from_millis(50));
    }
    let output = waiting.finish();
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    let (_, recording) = lasting.finish();
    assert!(output.status.success() && told.contains("0 differ\n"), "{told}");
    let rounds = told.lines().find_map(|line| line.strip_prefix("rounds ")?.parse::<u64>().ok()).expect("it tells");
    let calls = recording.calls_by_region();
    for name in FRAMES.into_iter().chain(["landed", "nothing", "next"]) {
        assert_eq!(calls[&region(&recording, name).id], rounds, "{name}");
    }
    let with = |ending| recording.calls().filter(|call| call.ending == ending).count();
    // `landed` calls through a pointer.
    let (returned, unseen) = (with(Ending::Returned), with(Ending::Unseen));
    assert!(returned + unseen == recording.calls().count() && unseen < 100, "{returned} returned, {unseen} unseen");
}

#[test]
fn a_plan_tells_what_programs_do() {
    if !steps() {
        return;
    }
    let Some(_turn) = Turn::take() else { return };
    let target = Target::build("registers", Flavour::Cet);
    let mut plan = rtrace::command();
    plan.args(["plan", "--format", "json"]).args(target.selection()).arg("--");
    let output = plan.arg(&target.program).output().unwrap();
    let plan: Value = serde_json::from_slice(&output.stdout).unwrap();
    let functions = plan["libraries"][0]["functions"].as_array().unwrap();
    for function in functions {
        assert_eq!(function["entry"], "written", "{function}");
    }
}

/// What calls cost was measured before the recording, by the programs that record.
#[test]
fn what_programs_do_costs_less_than_a_single_step() {
    if !steps() {
        return;
    }
    let Some(_turn) = Turn::take() else { return };
    let target = Target::build("registers", Flavour::Cet);
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("trace");
    rtrace::record(&target.selection(), &target.command("ends"), &directory);
    let costs = Trace::open(&directory).unwrap().header().calibration.clone();
    eprintln!("{costs:#?}");
    // What a hook costs is measured only where there are some.
    for exit in [ExitPolicy::ReturnSite, ExitPolicy::EntryOnly] {
        let cost = |is_wanted: fn(&CallCost) -> bool| {
            costs.iter().find(|cost| cost.exit == exit && is_wanted(cost)).expect("it was measured").whole
        };
        let (written, stepped) = (cost(|cost| cost.written), cost(|cost| cost.single_stepped));
        assert!(written < stepped, "{exit:?}: {written} ns written, {stepped} ns single-stepped");
    }
}
