//! Programs in surroundings of their own: other mounts, a library that is gone, another tracer.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;

use rtrace_exporters::Trace;
use rtrace_model::{Event, EventKind};
use tempfile::TempDir;

use crate::common::recording::Recording;
use crate::common::rtrace::{self, Attached, Waiting};
use crate::common::scenario::Scenario;
use crate::common::skip::{Turn, installed};
use crate::common::target::{Flavour, Target};
use crate::common::tree::Forest;
use crate::common::truth;

/// Attaches to the waiting program by the library's name, lets it run, and compares.
fn check(mut waiting: Waiting) {
    let attached = Attached::start(waiting.pid(), &["--lib".into(), "libtruth.so".into()]);
    waiting.go();
    let output = waiting.finish();
    let (_, recording) = attached.finish();
    assert!(output.status.success());
    let told = truth::trees(&output.stdout);
    assert!(!told.is_empty());
    assert_eq!(recording.trees(), told);
}

#[test]
fn a_library_in_another_mount_namespace() {
    let Some(_turn) = Turn::take() else { return };
    let target = Target::build("shapes", Flavour::Cet);
    let (inside, outside) = (TempDir::new().unwrap(), target.program.parent().unwrap().display());
    let folder = inside.path().display();
    let script = format!(
        "mount -t tmpfs none {folder} && cp {outside}/shapes {outside}/libtruth.so {folder} && exec {folder}/shapes nested $0"
    );
    let waiting = Waiting::start(Command::new("unshare").args(["--mount", "sh", "-c", &script]));
    assert!(!inside.path().join("libtruth.so").exists(), "it is in the other namespace alone");
    check(waiting);
}

#[test]
fn a_library_that_was_deleted() {
    let Some(_turn) = Turn::take() else { return };
    let folder = TempDir::new().unwrap();
    let target = Target::build("shapes", Flavour::Cet).copied_to(folder.path());
    let waiting = Waiting::start(&mut target.command("nested"));
    fs::remove_file(target.library.unwrap()).unwrap();
    check(waiting);
}

#[test]
fn a_library_that_was_replaced() {
    let Some(_turn) = Turn::take() else { return };
    let folder = TempDir::new().unwrap();
    let target = Target::build("shapes", Flavour::Cet).copied_to(folder.path());
    let waiting = Waiting::start(&mut target.command("nested"));
    let other = Target::build("shapes", Flavour::Plain).library.unwrap();
    let library = target.library.unwrap();
    fs::remove_file(&library).unwrap();
    fs::copy(other, &library).unwrap();
    check(waiting);
}

#[test]
fn two_recorders_at_once() {
    let Some(_turn) = Turn::take() else { return };
    let target = Target::build("shapes", Flavour::Cet);
    let mut waiting = Waiting::start(&mut target.command("nested"));
    let recorders = [(); 2].map(|()| Attached::start(waiting.pid(), &target.selection()));
    waiting.go();
    let output = waiting.finish();
    let told = truth::trees(&output.stdout);
    for recorder in recorders {
        assert_eq!(recorder.finish().1.trees(), told);
    }
}

#[test]
fn hooks_in_one_program_leave_others_alone() {
    let Some(turn) = Turn::take() else { return };
    let target = Target::build("shapes", Flavour::Cet);
    let mut waiting = Waiting::start(&mut target.command("nested"));
    let attached = Attached::start(waiting.pid(), &target.selection());
    // They have probes of their own on the same functions, and a hooked return would kill them.
    drop(turn);
    Scenario::new("jumps", "signals_above").run();
    Scenario::new("exceptions", "caught_inside").run();
    waiting.go();
    let output = waiting.finish();
    assert_eq!(attached.finish().1.trees(), truth::trees(&output.stdout));
}

/// A command that runs a program under another one.
fn under(translator: &[&str], target: &Target) -> Command {
    let mut command = Command::new(translator[0]);
    command.args(&translator[1..]).arg(&target.program).arg("nested");
    command
}

const TRANSLATORS: [&[&str]; 2] = [&["valgrind", "-q", "--tool=none"], &["qemu-x86_64"]];

/// It reads the code with the breakpoints in it, and makes them traps that nobody handles.
#[test]
fn programs_under_translators_are_left_alone() {
    let Some(_turn) = Turn::take() else { return };
    let target = Target::build("shapes", Flavour::Cet);
    for translator in TRANSLATORS.into_iter().filter(|words| installed(&words[..1])) {
        let mut waiting = Waiting::start(&mut under(translator, &target));
        let pid = waiting.pid().to_string();
        let name = translator[0].trim_end_matches("-x86_64");
        let said = rtrace::refuses(&["attach", "--no-tui", "-p", &pid, "--lib", "libtruth.so"]);
        assert!(said.contains(&format!("it runs under {name}")), "{said}");
        assert!(said.contains(&format!("hint: run the program without {name}, and trace that")), "{said}");
        let library = target.library.as_ref().unwrap().display().to_string();
        waiting.go();
        assert!(waiting.finish().status.success());
        let said = rtrace::refuses(&["run", "--no-tui", "--lib", &library, "--", translator[0], "true"]);
        assert!(said.starts_with(&format!("rtrace: failed to trace `{}`", translator[0])), "{said}");
    }
}

/// What a command starts is known when it waits for its probes, at the latest.
#[test]
fn children_under_translators_are_left_alone() {
    let Some(_turn) = Turn::take() else { return };
    let target = Target::build("shapes", Flavour::Cet);
    for translator in TRANSLATORS.into_iter().filter(|words| installed(&words[..1])) {
        let program = target.program.display();
        let translator = translator.join(" ");
        for script in [
            // In a child, and beside one that is traced; in the command's own process.
            format!("{translator} {program} nested >/dev/null || exit; exec {program} nested"),
            format!("{program} nested; exec {translator} {program} nested >/dev/null"),
        ] {
            let (output, recording) = rtrace::run(&target.selection(), Command::new("sh").args(["-c", &script]));
            assert!(output.status.success(), "{script}: {output:?}");
            assert_eq!(recording.trees(), truth::trees(&output.stdout), "{script}");
            assert!(recording.summary().blind_windows > 0, "{script}: calls of {translator} are missing");
        }
    }
}

/// What containers of one image share is one file below, in which the kernel places the probes of all.
#[test]
fn containers_of_one_image_have_each_call_once() {
    let Some(_turn) = Turn::take() else { return };
    let target = Target::build("shapes", Flavour::Static);
    let inside = TempDir::new().unwrap();
    for folder in ["lower", "empty", "merged"] {
        fs::create_dir(inside.path().join(folder)).unwrap();
    }
    fs::copy(&target.program, inside.path().join("lower/shapes")).unwrap();
    let script = format!(
        "cd {} && mount -t overlay overlay -o lowerdir=lower:empty merged && exec chroot merged /shapes nested $0",
        inside.path().display()
    );
    let start = || Waiting::start(Command::new("unshare").args(["--mount", "sh", "-c", &script]));
    let [mut first, mut second] = [start(), start()];
    let options = [target.selection(), vec!["-p".to_owned(), second.pid().to_string()]].concat();
    let attached = Attached::start(first.pid(), &options);
    first.go();
    second.go();
    let outputs = [first, second].map(Waiting::finish);
    let (_, recording) = attached.finish();
    let told: truth::Trees = outputs.iter().flat_map(|output| truth::trees(&output.stdout)).collect();
    assert_eq!(told.len(), 2);
    // On a busy machine, an answer may be late: some calls have no time then.
    let counts = |trees: &truth::Trees| trees.values().map(Forest::counts).collect::<Vec<_>>();
    assert_eq!(counts(&recording.trees()), counts(&told));
}

/// On an overlay file system the first change of a file, be it of its mode, makes a copy of it, which has the same
/// numbers. The process goes on with the original.
#[test]
fn a_library_that_an_overlay_has_copied() {
    let Some(_turn) = Turn::take() else { return };
    let target = Target::build("shapes", Flavour::Cet);
    let (inside, outside) = (TempDir::new().unwrap(), target.program.parent().unwrap().display());
    let folder = inside.path().display();
    let script = format!(
        "mount -t tmpfs none {folder} && cd {folder} && mkdir lower upper work merged && \
         cp {outside}/shapes {outside}/libtruth.so lower && \
         mount -t overlay overlay -o lowerdir=lower,upperdir=upper,workdir=work merged && \
         exec {folder}/merged/shapes nested $0"
    );
    let mut waiting = Waiting::start(Command::new("unshare").args(["--mount", "sh", "-c", &script]));
    // The original is traced as any other file.
    let options = ["--lib", "libtruth.so", "--duration", "1ms"].map(str::to_owned);
    Attached::start(waiting.pid(), &options).leave();
    let pid = waiting.pid().to_string();
    let copy = PathBuf::from(format!("/proc/{pid}/root{folder}/merged/libtruth.so"));
    fs::set_permissions(copy, fs::Permissions::from_mode(0o700)).unwrap();
    let said = rtrace::refuses(&["attach", "--no-tui", "-p", &pid, "--lib", "libtruth.so"]);
    assert!(said.contains(&format!("no probe is in process {pid}: it maps another file")), "{said}");
    assert!(said.contains("restart the process"), "{said}");
    waiting.go();
    assert!(waiting.finish().status.success());
}

#[test]
fn a_low_limit_of_open_files_is_raised_for_rtrace_alone() {
    let Some(_turn) = Turn::take() else { return };
    let folder = TempDir::new().unwrap();
    let (rtrace, trace) = (rtrace::command(), folder.path().join("trace"));
    let command = "run --no-tui --lib libc.so.6 --func getpid";
    let script = format!("ulimit -Sn 40; exec \"$0\" {command} -o {} -- sh -c 'ulimit -Sn'", trace.display());
    let output = Command::new("sh").args(["-c", &script]).arg(rtrace.get_program()).output().unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert_eq!((String::from_utf8_lossy(&output.stdout).trim(), output.status.code()), ("40", Some(0)), "{complaint}");
    Recording::open(&trace);
}

/// They run as they would, the command ends as it would, and the trace is complete but for them.
#[test]
fn children_for_whose_probes_there_are_no_descriptors_left_are_told() {
    let Some(_turn) = Turn::take().filter(|_| installed(&["setpriv"])) else { return };
    let folder = TempDir::new().unwrap();
    let (rtrace, trace) = (rtrace::command(), folder.path().join("trace"));
    let command = "run --no-tui --lib libc.so.6 --func '*sleep'";
    let children = "for i in $(seq 40); do sleep 1 & done; wait; echo done; exit 4";
    let script = format!("ulimit -n 220; exec \"$0\" {command} -o {} -- sh -c '{children}'", trace.display());
    // With that capability rtrace raises the limit.
    let mut limited = Command::new("setpriv");
    limited.args(["--inh-caps=-sys_resource", "--bounding-set=-sys_resource", "sh", "-c", &script]);
    let output = limited.arg(rtrace.get_program()).output().unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert_eq!((&*output.stdout, output.status.code()), (&b"done\n"[..], Some(4)), "{complaint}");
    let recording = Recording::open(&trace);
    // Each that is recorded calls two functions, one of them in the other.
    let recorded = recording.calls().count() / 2;
    let trace = Trace::open(&trace).unwrap();
    let events: Vec<_> = trace.events().flat_map(Result::unwrap).collect();
    let is_long = |event: &&Event| matches!(event.kind, EventKind::BlindWindow { since, .. } if event.time.since(since) > 900_000_000);
    let blind = events.iter().filter(is_long).count();
    assert!((1..40).contains(&recorded) && recorded + blind == 40, "{recorded} recorded, {blind} not: {complaint}");
    assert!(!events.iter().any(|event| matches!(event.kind, EventKind::Overwritten { .. })), "{complaint}");
}

/// What `unshare` needs for a namespace of process IDs with a `/proc` of its own, as a container has it.
const CONTAINER: [&str; 5] = ["--pid", "--fork", "--kill-child", "--mount-proc", "--"];

#[test]
fn a_recorder_in_a_container_knows_processes_by_their_ids_there() {
    let Some(_turn) = Turn::take() else { return };
    let target = Target::build("threads", Flavour::Cet);
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("trace");
    let mut inside = Command::new("unshare");
    inside
        .args(CONTAINER)
        .arg(env!("CARGO_BIN_EXE_rtrace"))
        .args(["run", "--no-tui", "--strict", "-o"])
        .arg(&directory);
    inside.args(target.selection()).arg("--").arg(&target.program).arg("parallel");
    let output = inside.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (told, recording) = (truth::trees(&output.stdout), Recording::open(&directory));
    assert!(told.len() > 1 && told.keys().all(|&(pid, tid)| pid < 1000 && tid < 1000), "{told:?}");
    assert_eq!(recording.trees_as(&told), told);
    let runs = |process: &rtrace_model::Process| process.executable == target.program.to_str().unwrap();
    assert!(recording.processes().iter().all(runs), "{:?}", recording.processes());
}

#[test]
fn a_recorder_in_a_container_attaches_to_what_runs_there() {
    let Some(_turn) = Turn::take() else { return };
    let target = Target::build("processes", Flavour::Cet);
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("trace");
    // Until rtrace says that it records, the program waits for its line.
    let script = "mkfifo $1/line; $0 after_exec wait <$1/line & exec 3>$1/line; \
        $2 attach --no-tui --budget none --lib libtruth.so -o $1/trace -p $! 2>$1/said & \
        until grep -q recording $1/said; do sleep 0.1; done; echo >&3; wait";
    let mut inside = Command::new("unshare");
    inside.args(CONTAINER).args(["sh", "-c", script]).arg(&target.program).arg(folder.path());
    let output = inside.arg(env!("CARGO_BIN_EXE_rtrace")).output().unwrap();
    let (told, recording) = (truth::trees(&output.stdout), Recording::open(&directory));
    assert!(told.keys().all(|&(pid, _)| pid < 1000) && !told.is_empty(), "{told:?}");
    assert_eq!(recording.trees_as(&told), told);
    assert!(recording.summary().is_complete(), "{}", recording.summary());
}

/// Numbers in the `/proc` of another namespace would name other processes.
#[test]
fn a_recorder_with_the_proc_of_another_namespace_is_refused() {
    let rtrace = env!("CARGO_BIN_EXE_rtrace");
    let mut inside = Command::new("unshare");
    let output =
        inside.args(["--pid", "--fork", "--", rtrace, "attach", "-p", "1", "--lib", "libc.so.6"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("unshare failed") || said.contains("missing CAP") {
        return println!("skipped: only root may have a namespace");
    }
    assert!(said.contains("/proc is that of another process-id namespace"), "{said}");
    assert!(said.contains("mount -t proc proc /proc"), "{said}");
}
