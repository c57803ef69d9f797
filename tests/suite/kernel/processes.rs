//! Children, other programs, and processes that end inside a call.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Command, Stdio};

use rtrace_model::{Call, Ending, EventKind};
use rustix::process::{Pid, Signal, kill_process};

use crate::common::recording::Recording;
use crate::common::rtrace::{self, Attached, Waiting};
use crate::common::scenario::Scenario;
use crate::common::skip::{Turn, not_here};
use crate::common::target::{Flavour, Target};
use crate::common::tree::Forest;
use crate::common::tries::in_one_of_some_tries;
use crate::common::truth;

#[test]
fn what_children_call_before_they_have_probes_is_a_blind_window() {
    Scenario::new("processes", "forks").run();
}

/// A child that calls nothing before it executes a program, or ends, is no reason to doubt the recording.
#[test]
fn children_that_call_nothing_leave_no_blind_window() {
    let Some(_turn) = Turn::take() else { return };
    let target = Target::build("processes", Flavour::Cet);
    let options = [target.selection(), vec!["--strict".to_owned()]].concat();
    let (output, recording) = rtrace::run(&options, &target.command("idle_children"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(recording.trees(), truth::trees(&output.stdout));
}

/// The programs that children execute do not map the library, and some have ended before rtrace looks at them.
#[test]
fn children_of_a_running_process_that_call_nothing_leave_no_blind_window() {
    let Some(_turn) = Turn::take() else { return };
    let target = Target::build("processes", Flavour::Cet);
    let mut waiting = Waiting::start(&mut target.command("idle_children"));
    let options = [target.selection(), vec!["--follow".to_owned()]].concat();
    let attached = Attached::start(waiting.pid(), &options);
    waiting.go();
    let traced = waiting.finish();
    let (output, recording) = attached.finish();
    assert!(traced.status.success());
    assert!(recording.summary().is_complete(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The kernel takes breakpoints out of children without links while the links of others are closed.
#[test]
fn each_child_with_missing_calls_has_a_blind_window() {
    let Some(_turn) = Turn::take() else { return };
    let target = Target::build("processes", Flavour::Cet);
    for _ in 0..4 {
        let (output, recording) = rtrace::run(&target.selection(), &target.command("crowd"));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let (told, recorded) = (truth::trees(&output.stdout), recording.trees());
        assert_eq!(told.len(), 20);
        let whole = |thread| recorded.get(thread).map(|calls| calls.counts()) == Some(told[thread].counts());
        let missing = told.keys().filter(|thread| !whole(*thread)).count() as u64;
        let windows = recording.summary().blind_windows;
        assert!(missing <= windows, "calls are missing in {missing} children, {windows} windows");
    }
}

/// What a child calls while its recorder is stopped is missing. Neither the child nor its parent waits for that, and what
/// the child calls after the window is recorded.
#[test]
fn a_child_that_is_forked_while_rtrace_is_stopped_has_a_blind_window() {
    let Some(_turn) = Turn::take() else { return };
    let target = Target::build("processes", Flavour::Cet);
    let mut waiting = Waiting::start(&mut target.command("forks_when_told"));
    let options = [target.selection(), vec!["--follow".to_owned()]].concat();
    let attached = Attached::start(waiting.pid(), &options);
    waiting.go();
    attached.stop();
    waiting.go();
    let missed = std::iter::from_fn(|| Some(waiting.line())).take_while(|line| line != "called\n").count();
    assert_eq!(missed, 1, "it tells what it has called");
    attached.go_on();
    attached.wait_for(|event| matches!(event, EventKind::BlindWindow { .. }));
    waiting.go();
    let output = waiting.finish();
    assert!(output.status.success(), "{output:?}");
    let (_, recording) = attached.finish();
    // On a busy machine, an answer may be late: some calls have no time then.
    let counts = |trees: &truth::Trees| trees.values().map(Forest::counts).collect::<Vec<_>>();
    assert_eq!(counts(&recording.trees()), counts(&truth::trees(&output.stdout)));
    assert_eq!(recording.summary().blind_windows, 1);
}

#[test]
fn a_child_leaves_a_call_that_its_parent_entered() {
    Scenario::new("processes", "fork_inside").run();
}

#[test]
fn vfork_and_exec() {
    Scenario::new("processes", "vforks").run();
}

/// However soon they are over: each program waits for its probes, and for the sites of its direct calls.
#[test]
fn programs_that_children_execute_are_recorded_from_their_first_call() {
    let Some(_turn) = Turn::take() else { return };
    let target = Target::build("processes", Flavour::Cet);
    let mut shell = Command::new("sh");
    shell
        .args(["-c", "for i in 1 2 3; do \"$0\" after_exec; done; (exec \"$0\" after_exec); exit 3"])
        .arg(&target.program);
    let (output, recording) = rtrace::run(&target.selection(), &shell);
    assert_eq!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stderr));
    let told = truth::trees(&output.stdout);
    assert_eq!(told.len(), 4);
    assert_eq!(recording.trees(), told);
    let is_blind = |kind: &&EventKind| matches!(kind, EventKind::BlindWindow { .. });
    assert_eq!(recording.events().iter().filter(is_blind).count(), 0);
}

/// However soon they are over, also before rtrace looks at them, and before it hears of their fork.
#[test]
fn short_programs_are_named_by_what_they_execute() {
    let Some(_turn) = Turn::take() else { return };
    let target = Target::build("processes", Flavour::Cet);
    let mut shell = Command::new("sh");
    shell.args(["-c", "for i in 1 2 3 4 5 6; do \"$0\" after_exec; done; exec \"$0\" after_exec"]).arg(&target.program);
    let (output, recording) = rtrace::run(&target.selection(), &shell);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let program = target.program.to_str().unwrap();
    let processes = recording.processes();
    assert_eq!(processes.len(), 7, "{processes:?}");
    for process in processes {
        assert_eq!((process.executable.as_str(), process.parent.is_some()), (program, true), "{process:?}");
        assert_eq!(process.command_line, [program, "after_exec"]);
    }
}

/// Nobody has asked for a recording without them, and it says how to get one with them.
#[test]
fn a_budget_that_leaves_out_children_says_so() {
    let Some(_turn) = Turn::take() else { return };
    let target = Target::build("processes", Flavour::Cet);
    let record = |options: &[&str]| {
        let options = [target.selection(), options.iter().map(|option| (*option).to_owned()).collect()].concat();
        let (output, recording) = rtrace::run(&options, &target.command("forks"));
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(recording.summary().untraced_children, 5, "{said}");
        assert!(said.contains("5 child processes not traced (--follow traces them)"), "{said}");
        (output.status.code(), recording.summary().is_complete())
    };
    assert_eq!(record(&["--budget", "50%", "--strict"]), (Some(3), false));
    assert_eq!(record(&["--no-follow", "--strict"]), (Some(0), true));
}

/// What one program has met is in place in the next of its kind, though their parent executes another one. Where the
/// machine is too busy to place it while the first one runs, the test tries again and says so.
#[test]
fn what_a_program_has_met_is_in_place_in_the_next() {
    let Some(_turn) = Turn::take() else { return };
    let target = Target::build("processes", Flavour::Cet);
    let second_returns = || {
        let mut shell = Command::new("sh");
        let script = "for i in 1 2; do (echo; sleep 0.5) | \"$0\" calls_by_pointer; done";
        shell.args(["-c", script]).arg(&target.program);
        let (output, recording) = rtrace::run(&target.selection(), &shell);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let mut calls: Vec<_> = recording.calls().collect();
        calls.sort_unstable_by_key(|call| call.start);
        let endings: Vec<Ending> = calls.iter().map(|call| call.ending).collect();
        assert_eq!(endings.len(), 2);
        (endings[1] == Ending::Returned).then_some(()).ok_or_else(|| format!("{endings:?}"))
    };
    in_one_of_some_tries(5, second_returns);
}

/// Of a C library ten thousand return addresses are known ahead, and a small program meets some hundred of them. So what
/// a script executes again and again gets only those at which one before it was met.
#[test]
fn what_is_executed_again_and_again_gets_the_sites_that_are_met() {
    let Some(_turn) = Turn::take() else { return };
    if rtrace_bpf::best_mechanism().ok() != Some(rtrace_bpf::Mechanism::Multi) {
        return not_here("this kernel places and removes so many probes one by one, which takes minutes");
    }
    let target = Target::build("processes", Flavour::Cet);
    let placed_with = |programs: usize| {
        let mut shell = Command::new("sh");
        let script = format!("for i in {}; do \"$0\" after_exec; done", "x ".repeat(programs));
        shell.args(["-c", &script]).arg(&target.program);
        let libc = ["--lib", "libc.so.6"].map(str::to_owned);
        let (output, recording) = rtrace::run(&libc, &shell);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let is_output = |call: &&Call| recording.regions()[call.region.index()].name == "write";
        assert!(recording.calls().filter(is_output).count() >= programs, "each says something");
        recording.summary().return_sites.placed
    };
    let (few, many) = (placed_with(3), placed_with(9));
    assert!(few > 10_000, "{few} sites");
    assert!(many < few * 3 / 2, "{few} sites with three programs, {many} with nine");
}

/// A shell that ends at once, with status 3, and leaves this behind, where `$0` is the program.
fn that_leaves(target: &Target, behind: &str) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("({behind}) & exit 3")]).arg(&target.program);
    shell
}

/// The program begins once the shell is gone, for which it need not be waited for.
const AFTER_THE_SHELL: &str = "while kill -0 $$ 2>/dev/null; do sleep 0.01; done; exec \"$0\" after_exec";

#[test]
fn what_a_command_leaves_running_is_recorded_to_its_end() {
    let Some(_turn) = Turn::take() else { return };
    let target = Target::build("processes", Flavour::Cet);
    let (output, recording) = rtrace::run(&target.selection(), &that_leaves(&target, AFTER_THE_SHELL));
    assert_eq!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stderr));
    let told = truth::trees(&output.stdout);
    assert_eq!(told.len(), 1);
    assert_eq!(recording.trees(), told);
}

#[test]
fn a_recording_may_end_with_the_first_process() {
    let Some(_turn) = Turn::take() else { return };
    let target = Target::build("processes", Flavour::Cet);
    let options = [target.selection(), vec!["--first".to_owned()]].concat();
    let (output, recording) = rtrace::run(&options, &that_leaves(&target, &format!("sleep 1; {AFTER_THE_SHELL}")));
    assert_eq!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(recording.trees().len(), 0);
}

/// It says what it waits for, and ends when it is told to, with the command's status.
#[test]
fn a_daemon_does_not_hold_a_recording_for_ever() {
    let Some(_turn) = Turn::take() else { return };
    let target = Target::build("processes", Flavour::Cet);
    let folder = tempfile::TempDir::new().unwrap();
    let directory = folder.path().join("trace");
    let mut rtrace = rtrace::command();
    rtrace.args(["run", "--no-tui"]).args(target.selection()).arg("-o").arg(&directory).arg("--");
    rtrace.args(["sh", "-c", "\"$0\" after_exec; setsid sleep 1000 >&- 2>&- & exit 3"]).arg(&target.program);
    let mut rtrace = rtrace.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(rtrace.stderr.take().unwrap()).lines().map(Result::unwrap);
    let notice = said.find(|line| line.contains("has ended")).unwrap();
    let daemon = notice.split_once('(').and_then(|(_, list)| list.split_once(' ')).expect(&notice).0;
    assert!(notice.contains("the command has ended; 1 of its processes still runs"), "{notice}");
    kill_process(Pid::from_child(&rtrace), Signal::INT).unwrap();
    let mut told = String::new();
    rtrace.stdout.take().unwrap().read_to_string(&mut told).unwrap();
    assert_eq!(rtrace.wait().unwrap().code(), Some(3), "{:?}", said.collect::<Vec<_>>());
    let recording = Recording::open(&directory);
    assert_eq!(recording.trees(), truth::trees(told.as_bytes()));
    kill_process(Pid::from_raw(daemon.parse().unwrap()).unwrap(), Signal::KILL).expect("it is left alone");
}

/// It is the program by another number: its calls are on record, or the recording says that they are not.
#[test]
fn a_copy_of_the_program_is_traced_too() {
    let Some(_turn) = Turn::take() else { return };
    let target = Target::build("processes", Flavour::Cet);
    let record = |scenario: &str| {
        let options = ["--lib", "exe", "--func", "own"].map(str::to_owned);
        let (output, recording) = rtrace::run(&options, &target.command(scenario));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(!recording.summary().is_complete(), "{}", String::from_utf8_lossy(&output.stderr));
        recording.calls().count()
    };
    assert_eq!(record("execs_slow_copy"), 100);
    assert!(record("execs_copy") < 100, "it is over before probes can be placed");
}

#[test]
fn exec_inside_a_call() {
    Scenario::new("processes", "execs").run();
}

/// The kernel knows no probes of it any more.
#[test]
fn a_program_that_another_thread_executes_is_told_to_be_missing() {
    let Some(_turn) = Turn::take() else { return };
    let target = Target::build("processes", Flavour::Cet);
    let (output, recording) = rtrace::run(&target.selection(), &target.command("execs_in_thread"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let is_blind = |kind: &EventKind| matches!(kind, EventKind::BlindWindow { .. });
    assert!(recording.events().iter().any(is_blind));
    assert!(recording.calls().all(|call| matches!(call.ending, Ending::Returned | Ending::Unseen)));
}

#[test]
fn killed_inside_a_call() {
    Scenario::new("processes", "killed").run();
}

#[test]
fn the_exit_code_is_the_programs_own() {
    Scenario::new("processes", "ends_with_code").run();
}
