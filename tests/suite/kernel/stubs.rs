//! Stubs make calls cheaper, and change neither the program nor what is on record.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use rtrace_model::{Ending, Region};

use crate::common::recording::Recording;
use crate::common::rtrace;
use crate::common::scenario::Scenario;
use crate::common::skip::{Turn, may_step, not_here};
use crate::common::target::{Flavour, Target};
use crate::common::{launch, truth};

fn with_stubs(program: &'static str, scenario: &'static str) -> Scenario {
    Scenario::new(program, scenario).option("--stubs")
}

fn region<'a>(recording: &'a Recording, symbol: &str) -> &'a Region {
    let is_meant = |region: &&Region| region.symbols.iter().any(|name| name.symbol == symbol);
    recording.regions().iter().find(is_meant).expect("the region is there")
}

/// The median duration of a function's calls.
fn median(recording: &Recording, symbol: &str) -> u64 {
    let id = region(recording, symbol).id;
    let calls = recording.calls().filter(|call| call.region == id && call.ending == Ending::Returned);
    let mut durations: Vec<u64> = calls.filter_map(|call| call.duration).collect();
    durations.sort_unstable();
    durations[durations.len() / 2]
}

/// Whether the functions here need stubs; says so where rtrace does their instructions itself.
fn are_needed() -> bool {
    if may_step().is_ok() {
        not_here("rtrace does `ret` and `sub rsp` itself here, so that no function of these needs a stub");
    }
    may_step().is_err()
}

#[test]
fn calls_by_stubs_are_seen_once_and_cost_less() {
    if !are_needed() {
        return;
    }
    let Some(plain) = Scenario::new("stubs", "calls").flavour(Flavour::Plain).run() else { return };
    let stubs = with_stubs("stubs", "calls").flavour(Flavour::Plain).run().expect("the other run was possible");
    for symbol in ["step", "within"] {
        assert!(region(&stubs, symbol).single_stepped && region(&stubs, symbol).stub, "{symbol}");
        assert!(region(&plain, symbol).single_stepped && !region(&plain, symbol).stub, "{symbol}");
    }
    let (with, without) = (median(&stubs, "within"), median(&plain, "within"));
    assert!(with * 3 < without * 2, "{with} ns with, {without} ns without stubs");
}

#[test]
fn bound_at_the_start() {
    if !are_needed() {
        return;
    }
    let Some(_turn) = Turn::take() else { return };
    let target = Target::build("stubs", Flavour::Cet);
    let mut command = target.command("calls");
    command.env("LD_BIND_NOW", "1");
    let (output, recording) = rtrace::run(&[target.selection(), vec!["--stubs".into()]].concat(), &command);
    assert_eq!(recording.trees(), truth::trees(&output.stdout));
    assert!(region(&recording, "step").stub);
}

#[test]
fn arguments_of_every_kind_arrive() {
    with_stubs("stubs", "arguments").run();
}

#[test]
fn memory_comes_from_where_it_came() {
    with_stubs("stubs", "memory").run();
}

#[test]
fn versions_keep_apart() {
    if !are_needed() {
        return;
    }
    let Some(recording) = with_stubs("names", "versions").flavour(Flavour::Plain).run() else { return };
    assert_eq!(recording.regions().iter().filter(|region| region.stub && region.name.starts_with("exp")).count(), 2);
}

#[test]
fn aliases_are_one_function() {
    with_stubs("names", "aliases").flavour(Flavour::Plain).run();
}

#[test]
fn pointers_stay_what_they_are() {
    with_stubs("stubs", "pointers").run();
}

#[test]
fn a_library_loaded_again_and_again() {
    Scenario::new("loading", "reopen").option("--stubs").run();
}

#[test]
fn exceptions_and_jumps_pass() {
    with_stubs("exceptions", "caught_inside").run();
    with_stubs("exceptions", "deep").run();
    with_stubs("stubs", "jumps").run();
    with_stubs("jumps", "signals_above").run();
}

/// Returns are not hooked, since there a walk over the stack ends.
#[test]
fn a_profiler_sees_through_stubs() {
    if !are_needed() {
        return;
    }
    let Some(_turn) = Turn::take() else { return };
    let target = Target::build("stubs", Flavour::Plain);
    let options = [target.selection(), ["--stubs", "--exit", "return-site"].map(str::to_owned).into()].concat();
    let (output, recording) = rtrace::run(&options, &target.command("profiled"));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "cut short 0\n");
    assert!(region(&recording, "step").stub && recording.summary().calls > 0);
}

#[test]
fn every_thread_and_every_child_is_on_record() {
    with_stubs("threads", "parallel").run();
    with_stubs("processes", "forks").run();
    with_stubs("processes", "execs").run();
}

#[test]
fn programs_that_it_runs_are_on_record_without_stubs() {
    with_stubs("stubs", "runs_itself").run();
}

/// glibc cannot start it with an audit library.
#[test]
fn a_program_with_an_allocator_of_its_own_gets_none() {
    let Some(_turn) = Turn::take() else { return };
    let target = Target::build("stubs", Flavour::Plain);
    let mut command = target.command("calls");
    command.env("LD_PRELOAD", crate::common::target::allocator());
    let (output, recording) = rtrace::run(&[target.selection(), vec!["--stubs".into()]].concat(), &command);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && complaint.contains("defines `malloc`"), "{complaint}");
    assert_eq!(recording.trees(), truth::trees(&output.stdout));
}

#[test]
fn environment_and_descriptors_are_what_they_were() {
    if !are_needed() {
        return;
    }
    let Some(_turn) = Turn::take() else { return };
    let target = Target::build("stubs", Flavour::Cet);
    for own in [None, Some("/not/there.so")] {
        let mut command = target.command("environment");
        command.envs(own.map(|own| ("LD_AUDIT", own)));
        // As rtrace has it here.
        command.envs(rtrace::command().get_envs().filter_map(|(name, value)| Some((name, value?))));
        let untraced = launch::alone(&command);
        let (traced, recording) = rtrace::run(&[target.selection(), vec!["--stubs".into()]].concat(), &command);
        let lines = |output: &[u8]| -> Vec<String> {
            let text = String::from_utf8_lossy(output).into_owned();
            text.lines().filter(|line| !line.starts_with("truth ")).map(str::to_owned).collect()
        };
        assert_eq!(lines(&traced.stdout), lines(&untraced.stdout));
        assert!(region(&recording, "step").stub);
        assert_eq!(recording.summary().calls, 1);
    }
}

/// Not even where rtrace is killed; the program goes on.
#[test]
fn nothing_of_the_stubs_is_left() {
    if !are_needed() {
        return;
    }
    let Some(_turn) = Turn::take() else { return };
    let target = Target::build("stubs", Flavour::Cet);
    let folder = tempfile::tempdir().unwrap();
    let left = || -> BTreeSet<PathBuf> {
        let parents = [folder.path(), Path::new("/tmp"), Path::new("/var/tmp"), Path::new("/dev/shm")];
        let entries = parents.into_iter().filter_map(|parent| std::fs::read_dir(parent).ok()).flatten().flatten();
        let is_ours = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().contains("rtrace"));
        entries.map(|entry| entry.path()).filter(is_ours).collect()
    };
    let before = left();
    let mut rtrace = rtrace::command();
    rtrace.args(["run", "--no-tui", "--stubs"]).args(target.selection()).arg("-o").arg(folder.path().join("trace"));
    rtrace.arg("--").arg(&target.program).args(["calls", "wait"]).env("TMPDIR", folder.path());
    let mut rtrace = rtrace.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let (mut input, mut output) = (rtrace.stdin.take().unwrap(), BufReader::new(rtrace.stdout.take().unwrap()));
    let mut told = String::new();
    output.read_line(&mut told).unwrap();
    let program: u32 = told.strip_prefix("ready ").expect("it waits").trim().parse().unwrap();
    let mappings = std::fs::read_to_string(format!("/proc/{program}/maps")).unwrap();
    rtrace.kill().unwrap();
    rtrace.wait().unwrap();
    input.write_all(b"\n").unwrap();
    output.read_to_string(&mut told).unwrap();
    assert!(mappings.contains("rtrace-stubs.so") && told.contains("truth "), "{mappings}{told}");
    assert_eq!(left(), before);
}

#[test]
fn a_static_program_is_traced_without() {
    let Some(_turn) = Turn::take() else { return };
    let target = Target::build("shapes", Flavour::Static);
    let options = [target.selection(), vec!["--stubs".into()]].concat();
    let (output, recording) = rtrace::run(&options, &target.command("nested"));
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(complaint.contains("stubs unavailable") && complaint.contains("linked statically"), "{complaint}");
    assert_eq!(recording.trees(), truth::trees(&output.stdout));
    assert!(recording.regions().iter().all(|region| !region.stub));
}
