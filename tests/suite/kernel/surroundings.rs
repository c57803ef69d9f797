//! Programs in surroundings of their own: other mounts, a library that is gone, another tracer.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use tempfile::TempDir;

use crate::common::recording::Recording;
use crate::common::rtrace::{self, Attached, Waiting};
use crate::common::scenario::Scenario;
use crate::common::skip::Turn;
use crate::common::target::{Flavour, Target};
use crate::common::truth;

/// Copies a target into `folder`, where its program finds its library beside it.
fn copy_to(folder: &TempDir, target: &Target) -> Target {
    let copy = |file: &std::path::Path| {
        let copy = folder.path().join(file.file_name().unwrap());
        fs::copy(file, &copy).unwrap();
        copy
    };
    Target { program: copy(&target.program), library: target.library.as_deref().map(copy) }
}

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
    let target = copy_to(&folder, &Target::build("shapes", Flavour::Cet));
    let waiting = Waiting::start(&mut target.command("nested"));
    fs::remove_file(target.library.unwrap()).unwrap();
    check(waiting);
}

#[test]
fn a_library_that_was_replaced() {
    let Some(_turn) = Turn::take() else { return };
    let folder = TempDir::new().unwrap();
    let target = copy_to(&folder, &Target::build("shapes", Flavour::Cet));
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

/// As README says, where many sites share a link.
#[test]
fn two_capabilities_suffice() {
    let Some(_turn) = Turn::take() else { return };
    if rtrace_bpf::best_mechanism().ok() != Some(rtrace_bpf::Mechanism::Multi) {
        return println!("skipped: this kernel has no uprobe.multi");
    }
    let folder = TempDir::new().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let target = copy_to(&folder, &Target::build("shapes", Flavour::Cet));
    let rtrace = folder.path().join("rtrace");
    fs::copy(env!("CARGO_BIN_EXE_rtrace"), &rtrace).unwrap();
    let trace = folder.path().join("trace");
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
    for set in ["--inh-caps", "--ambient-caps", "--bounding-set"] {
        command.args([set, "+bpf,+perfmon"]);
    }
    command.arg("--").arg(&rtrace).args(["run", "--lib", "libtruth.so", "-o"]).arg(&trace).arg("--");
    let output = command.arg(&target.program).arg("nested").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(Recording::open(&trace).trees(), truth::trees(&output.stdout));
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
