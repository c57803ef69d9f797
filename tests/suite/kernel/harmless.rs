//! Programs that look at return addresses, change them, or leave calls where nobody expects it: they
//! do what they do untraced, and all their calls are counted.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use rtrace_model::{Call, Ending, EventKind};
use tempfile::TempDir;

use crate::common::launch;
use crate::common::recording::Recording;
use crate::common::rtrace::{self, Attached, Waiting};
use crate::common::scenario::{Scenario, Truth};
use crate::common::skip::{Turn, installed};
use crate::common::target::{Flavour, Target, compile_text};
use crate::common::truth;

/// How often each program is run; the environment's `RTRACE_REPEAT` is for long hunts.
const REPEAT: usize = 1;

fn repeat() -> usize {
    env::var("RTRACE_REPEAT").map_or(REPEAT, |count| count.parse().expect("RTRACE_REPEAT is a number"))
}

fn check(scenario: &Scenario) {
    for _ in 0..repeat() {
        scenario.run();
        scenario.attach();
    }
}

fn ways(name: &'static str) -> Scenario {
    Scenario::new("ways", name).truth(Truth::Counts)
}

/// A single step sets the trap flag. Where an instruction stored it, the program would end once it restores its flags.
#[test]
fn who_stores_its_flags() {
    const PROGRAM: &str = r#"
        #include <stdio.h>
        int w_stores(int n), w_calls(int n), w_leaf(int n);
        __asm__(".globl w_stores, w_calls, w_leaf\n"
                ".type w_stores, @function\n w_stores: .cfi_startproc\n"
                "pushfq\n popfq\n lea 1(%rdi), %eax\n ret\n .cfi_endproc\n .size w_stores, .-w_stores\n"
                ".type w_leaf, @function\n w_leaf: .cfi_startproc\n"
                "lea 1(%rdi), %eax\n ret\n .cfi_endproc\n .size w_leaf, .-w_leaf\n"
                ".type w_calls, @function\n w_calls: .cfi_startproc\n"
                "call w_leaf\n pushfq\n popfq\n ret\n .cfi_endproc\n .size w_calls, .-w_calls\n");
        int main(void)
        {
            int n = 0;
            for (int i = 0; i < 20; i++)
                n = w_stores(w_calls(n));
            printf("%d\n", n);
            return 5;
        }"#;
    let Some(_turn) = Turn::take().filter(|_| installed(&["cc"])) else { return };
    let folder = TempDir::new().unwrap();
    compile_text(folder.path(), PROGRAM, "program", &["-O1"]);
    let options = ["--lib", "exe", "--func", "w_*"].map(str::to_owned);
    let (output, recording) = rtrace::run(&options, &Command::new(folder.path().join("program")));
    assert_eq!(output.status.code(), Some(5), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.stdout, b"40\n");
    assert_eq!(recording.calls().count(), 60, "20 of each");
}

/// As [`check`], in a library and in the program itself.
fn check_everywhere(name: &'static str) {
    for flavour in [Flavour::Cet, Flavour::Exporting, Flavour::Static] {
        check(&Scenario::new("bare", name).flavour(flavour).truth(Truth::Counts));
    }
}

#[test]
fn who_saves_its_return_address_and_comes_back_there() {
    check_everywhere("saved_return_address");
}

#[test]
fn who_asks_where_it_was_called_from() {
    check_everywhere("asks_for_callers");
}

#[test]
fn who_walks_the_stack() {
    check(&ways("backtraces"));
}

#[test]
fn coroutines_in_the_frame_of_main() {
    check_everywhere("coroutine_in_frame");
    check(&ways("context_in_frame").truth(Truth::Endings));
}

#[test]
fn coroutines_beside_the_stack_of_a_thread() {
    check_everywhere("coroutine_beside_thread");
}

#[test]
fn threads_cancelled_anywhere_destroy_their_objects() {
    check(&Scenario::new("cancelled", "cancel").truth(Truth::Counts));
}

#[test]
fn exceptions_out_of_signal_handlers() {
    check(&Scenario::new("throws", "thrown_from_handler").truth(Truth::Counts));
}

#[test]
fn ten_thousand_signals_a_second() {
    check(&Scenario::new("bare", "signals_often").truth(Truth::Endings));
}

#[test]
fn returns_before_an_array_of_unknown_size() {
    check(&ways("early_returns").truth(Truth::Endings));
}

/// All functions are traced, those around `main`, too, so that only the calls told of are compared.
fn check_whole_program(program: &Command, check: impl Fn(u32)) {
    let compare = |traced: &std::process::Output, recording: &crate::common::recording::Recording, pid: u32| {
        let told = truth::trees(&traced.stdout);
        let (told, recorded) = (told[&(pid, pid)].counts(), recording.trees()[&(pid, pid)].counts());
        for (name, calls) in told {
            assert_eq!(recorded.get(&name), Some(&calls), "{name}");
        }
        check(pid);
    };
    let everything = ["--lib", "exe"].map(str::to_owned);
    let pid = |output: &std::process::Output| truth::trees(&output.stdout).keys().next().expect("it tells").0;
    let untraced = launch::alone(program);
    check(pid(&untraced));
    for _ in 0..repeat() {
        let (traced, recording) = rtrace::run(&everything, program);
        assert_eq!(truth::behaviour(&traced), truth::behaviour(&untraced));
        compare(&traced, &recording, pid(&traced));

        let mut command = Command::new(program.get_program());
        command.args(program.get_args()).envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let mut waiting = Waiting::start(&mut command);
        let attached = Attached::start(waiting.pid(), &everything);
        waiting.go();
        let traced = waiting.finish();
        let (_, recording) = attached.finish();
        assert!(traced.status.success());
        compare(&traced, &recording, pid(&traced));
    }
}

#[test]
fn entry_points_of_any_name() {
    let Some(_turn) = Turn::take() else { return };
    for name in ["own_entry", "static_entry"] {
        check_whole_program(&Target::build(name, Flavour::Plain).command("calls"), |_| {});
    }
}

/// `mcount` knows who called a function by the return addresses on the stack.
#[test]
fn gprof_counts_the_same_calls() {
    if !installed(&["gprof"]) {
        return;
    }
    let Some(_turn) = Turn::take() else { return };
    let folder = TempDir::new().unwrap();
    let target = Target::build("counted_entry", Flavour::Plain);
    let mut command = target.command("calls");
    command.env("GMON_OUT_PREFIX", folder.path().join("gmon"));
    check_whole_program(&command, |pid| {
        let profile = folder.path().join(format!("gmon.{pid}"));
        let output = Command::new("gprof").args(["-b", "-p"]).arg(&target.program).arg(profile).output().unwrap();
        let calls = calls_in_flat_profile(&String::from_utf8_lossy(&output.stdout));
        assert_eq!(calls, [("w_inner".to_owned(), 2000), ("w_outer".to_owned(), 40)]);
    });
}

/// The calls of the functions under test, by name. Columns: %, two times, calls, two times, name.
fn calls_in_flat_profile(profile: &str) -> Vec<(String, u64)> {
    let mut calls: Vec<(String, u64)> = profile
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter_map(|words| Some(((*words.get(6)?).to_owned(), words[3].parse().ok()?)))
        .filter(|(name, _)| name.starts_with("w_"))
        .collect();
    calls.sort_unstable();
    calls
}

/// What runs is not always what was looked at: here another build of the program, one that throws, takes
/// its place some time after rtrace was started.
#[test]
fn programs_that_are_replaced_meanwhile() {
    let Some(_turn) = Turn::take() else { return };
    let folder = TempDir::new().unwrap();
    let program = folder.path().join("program");
    let builds = ["bare", "throws"].map(|name| Target::build(name, Flavour::Cet));
    let library = builds[1].library.as_deref().unwrap();
    for name in ["libways.so", "libbare.so", "libtruth.so"] {
        fs::copy(library.with_file_name(name), folder.path().join(name)).unwrap();
    }
    let expected = builds.each_ref().map(|build| truth::behaviour(&build.command("replaced").output().unwrap()));
    for delay in (0..10 * repeat()).map(|number| Duration::from_millis(30 * (number as u64 % 10))) {
        put(&builds[0].program, &program);
        let mut rtrace = rtrace::command();
        rtrace.args(["run", "--no-tui", "--lib"]).arg(folder.path().join("libbare.so")).arg("-o");
        rtrace.arg(folder.path().join(format!("trace-{delay:?}"))).arg("--").arg(&program).arg("replaced");
        let rtrace = rtrace.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        sleep(delay);
        put(&builds[1].program, &program);
        let output = rtrace.wait_with_output().unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr);
        let behaviour = truth::behaviour(&output);
        assert!(expected.contains(&behaviour), "replaced after {delay:?}: {behaviour:?}\n{complaint}");
        fs::remove_dir_all(folder.path().join(format!("trace-{delay:?}"))).unwrap();
    }
}

/// Puts a copy in the place of a file that may be running.
fn put(build: &Path, program: &Path) {
    let copy = program.with_extension("new");
    fs::copy(build, &copy).unwrap();
    fs::rename(&copy, program).unwrap();
}

/// A probe in the middle of the jump would lead the program astray.
#[test]
fn code_that_the_program_has_changed() {
    let Some(_turn) = Turn::take() else { return };
    let target = Target::build("patched", Flavour::Cet);
    for _ in 0..repeat() {
        let mut waiting = Waiting::start(&mut target.command("first"));
        let attached = Attached::start(waiting.pid(), &["--lib", "exe", "--func", "w_*"].map(str::to_owned));
        waiting.go();
        let traced = waiting.finish();
        let (_, recording) = attached.finish();
        assert!(traced.status.success(), "{traced:?}");
        assert_eq!(recording.calls().count(), 1000);
        let names: Vec<&str> = recording.regions().iter().map(|region| region.name.as_str()).collect();
        assert_eq!(names, ["w_plain", "w_front"]);
        let is_told = |event: &EventKind| matches!(event, EventKind::Refused { region, reason, .. } if region == "w_patched" && reason.contains("changed"));
        assert!(recording.events().iter().any(is_told));
    }
}

/// No probe has an effect there, and none may be recorded as if no call had been made.
#[test]
fn code_that_the_program_has_moved() {
    let Some(_turn) = Turn::take() else { return };
    let target = Target::build("moved", Flavour::Cet);
    for which in ["all", "some"] {
        let mut waiting = Waiting::start(&mut target.command(which));
        let pid = waiting.pid().to_string();
        let said = rtrace::refuses(&["attach", "--no-tui", "-p", &pid, "--lib", "exe", "--func", "w_*"]);
        let expected = format!("moved` in process {pid}: the process executes its code elsewhere");
        assert!(said.contains(&expected), "{said}");
        let beside = ["--lib", "*moved", "--lib", "libc.so.6", "--func", "w_*", "--func", "getpid"].map(str::to_owned);
        let attached = (which == "some").then(|| Attached::start(waiting.pid(), &beside));
        waiting.go();
        let output = waiting.finish();
        assert!(output.status.success(), "{output:?}");
        let Some((_, recording)) = attached.map(Attached::finish) else { continue };
        assert_eq!(recording.calls().count(), 1000, "those of `w_left`");
        let is_told = |event: &EventKind| matches!(event, EventKind::Refused { region, .. } if region == "w_moved");
        assert!(recording.events().iter().any(is_told));
    }
}

#[test]
fn commands_that_move_their_code() {
    if !installed(&["node"]) {
        return;
    }
    let Some(_turn) = Turn::take() else { return };
    let run = ["run", "--no-tui", "--lib", "exe", "--func", "uv_*", "--"];
    let said = rtrace::refuses(&[&run[..], &["node", "--use-largepages=on", "-e", "0"]].concat());
    assert!(said.contains("failed to trace `node`: --use-largepages moves its code"), "{said}");
}

/// A scenario that is recorded until it says that it has called what it calls, and ends well afterwards: what rtrace says
/// of the recording, which is incomplete, and the recording.
fn recorded_until_called(target: &Target, scenario: &str, options: &[String]) -> (String, Recording) {
    let mut waiting = Waiting::start(&mut target.command(scenario));
    let attached = Attached::start(waiting.pid(), options);
    waiting.go();
    assert_eq!(waiting.line(), "called\n");
    attached.interrupt();
    let (output, recording) = attached.finish();
    waiting.go();
    let program = waiting.finish();
    assert!(program.status.success(), "{scenario}: {program:?}");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{scenario}: {said}");
    (said, recording)
}

/// What is written over a probe takes it out, of which nobody tells. If the code is looked at while it can be written, all
/// probes are taken out of it, and come back where it is the file's again. No function misses calls of which that is not said.
#[test]
fn code_that_the_program_changes_while_it_is_traced() {
    let Some(_turn) = Turn::take() else { return };
    let target = Target::build("patched", Flavour::Plain);
    let options = ["--strict", "--lib", "exe", "--func", "w_*"].map(str::to_owned);
    let called = ["w_front", "w_patched", "w_plain"];
    for (how, called, changed) in [
        ("later", &called[1..], &called[1..2]),
        ("front", &called[..], &called[..1]),
        ("restored", &called[1..], &called[..0]),
    ] {
        let (said, recording) = recorded_until_called(&target, how, &options);
        let mut told = BTreeSet::new();
        let mut is_blind = false;
        for event in recording.events() {
            match event {
                EventKind::Overwritten { region: Some(region), sites: 1, .. } => drop(told.insert(&**region)),
                EventKind::BlindWindow { .. } => is_blind = true,
                _ => {}
            }
        }
        assert!(changed.iter().all(|function| told.contains(function)), "{how}: {told:?}");
        for function in called {
            let calls =
                recording.calls().filter(|call| recording.regions()[call.region.index()].name == *function).count();
            let least = if told.contains(function) || is_blind { 1000 } else { 2000 };
            let most = if changed.contains(function) { 1000 } else { 2000 };
            assert!((least..=most).contains(&calls), "{how}: {calls} of {function}: {said}");
        }
    }
}

/// Nobody may look at the process any more when it has ended: that, or what it has overwritten, is said.
#[test]
fn code_that_the_program_changes_before_it_calls_and_ends() {
    let Some(_turn) = Turn::take() else { return };
    let target = Target::build("patched", Flavour::Plain);
    let options = ["--strict", "--lib", "exe", "--func", "w_*"].map(str::to_owned);
    for _ in 0..repeat() {
        let (output, recording) = rtrace::run(&options, &target.command("first"));
        let said = String::from_utf8_lossy(&output.stderr);
        let calls = |name: &str| {
            let is_it = |call: &&Call| recording.regions()[call.region.index()].name == name;
            recording.calls().filter(is_it).count()
        };
        assert_eq!(calls("w_patched"), 0, "{said}");
        assert_eq!(output.status.code(), Some(3), "{said}");
    }
}

/// Where a probe is hit, the kernel executes what the file holds: the program must get its own instruction.
#[test]
fn instructions_that_the_program_changes_behind_their_first_byte() {
    let Some(_turn) = Turn::take() else { return };
    let target = Target::build("rewritten", Flavour::Plain);
    let options = ["--strict", "--lib", "exe", "--func", "w_*"].map(str::to_owned);
    // Before Linux 6.6, the program does not wait for it.
    let waits = rtrace_bpf::best_mechanism().ok() == Some(rtrace_bpf::Mechanism::Multi);
    for _ in 0..repeat() {
        let mut waiting = Waiting::start(&mut target.command(if waits { "behind" } else { "late" }));
        let attached = Attached::start(waiting.pid(), &options);
        waiting.go();
        assert_eq!(waiting.line(), "called\n");
        waiting.go();
        let program = waiting.finish();
        let (output, recording) = attached.finish();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(program.status.success(), "it computed something else: {said}");
        assert_eq!(output.status.code(), Some(3), "{said}");
        let is_told = |event: &EventKind| matches!(event, EventKind::Overwritten { .. });
        assert!(recording.events().iter().any(is_told), "{said}");
        let unwound = recording.calls().filter(|call| call.ending == Ending::Unwound).count();
        assert_eq!(unwound, 0, "{said}");
    }
}

/// What returned while a return site was gone was not left by a jump, and nobody knows when it returned.
#[test]
fn return_sites_that_vanish() {
    let Some(_turn) = Turn::take() else { return };
    let target = Target::build("rewritten", Flavour::Plain);
    let options = ["--strict", "--lib", "exe", "--func", "w_constant"].map(str::to_owned);
    let (said, recording) = recorded_until_called(&target, "dropped", &options);
    let return_sites = |event: &EventKind| matches!(event, EventKind::Overwritten { region: None, .. });
    assert!(recording.events().iter().any(return_sites), "{said}");
    let is_known = |call: &&Call| call.ending != Ending::Unseen;
    assert!(recording.calls().filter(is_known).all(|call| call.ending == Ending::Returned), "{said}");
    assert!(
        recording.calls().filter(is_known).all(|call| call.duration.is_some_and(|duration| duration < 300_000_000)),
        "{said}"
    );
}

/// Nothing can be looked at any more when the recording ends.
#[test]
fn code_that_the_program_changes_before_it_ends() {
    let Some(_turn) = Turn::take() else { return };
    let target = Target::build("patched", Flavour::Plain);
    let mut waiting = Waiting::start(&mut target.command("front"));
    let options = ["--strict", "--lib", "exe", "--func", "w_*"].map(str::to_owned);
    let attached = Attached::start(waiting.pid(), &options);
    waiting.go();
    assert_eq!(waiting.line(), "called\n");
    let is_told =
        |event: &EventKind| matches!(event, EventKind::Overwritten { region: Some(region), .. } if region == "w_front");
    attached.wait_for(is_told);
    waiting.go();
    assert!(waiting.finish().status.success());
    let (output, recording) = attached.finish();
    assert_eq!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(recording.events().iter().filter(|event| is_told(event)).count(), 1, "told once");
}
