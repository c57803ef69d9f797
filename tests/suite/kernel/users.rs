//! Users without root, and what they must not get by rtrace's rights: programs of others and with rights of their own,
//! and more of the machine than a share.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use rtrace_model::EventKind;
use tempfile::TempDir;

use crate::common::recording::Recording;
use crate::common::rtrace;
use crate::common::skip::{Turn, installed};
use crate::common::target::{Flavour, TRUTH_FUNCTIONS, Target};
use crate::common::truth;

/// Two users of the machine.
const USERS: [u32; 2] = [65534, 65533];

/// A folder in which anybody may write.
fn common_folder() -> TempDir {
    let folder = TempDir::new().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    folder
}

/// `rtrace run` in that folder as a user with these capabilities, if that can work; the trace is `trace`.
fn run_with_capabilities(folder: &TempDir, capabilities: &str) -> Option<Command> {
    if rtrace_bpf::best_mechanism().ok() != Some(rtrace_bpf::Mechanism::Multi) {
        println!("skipped: this kernel has no uprobe.multi");
        return None;
    }
    let rtrace = folder.path().join("rtrace");
    fs::copy(env!("CARGO_BIN_EXE_rtrace"), &rtrace).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
    for set in ["--inh-caps", "--ambient-caps", "--bounding-set"] {
        command.args([set, capabilities]);
    }
    command.arg("--").arg(&rtrace).args(["run", "-o"]).arg(folder.path().join("trace"));
    Some(command)
}

/// As docs/limits.md says, where many sites share a link.
#[test]
fn two_capabilities_suffice() {
    let Some(_turn) = Turn::take() else { return };
    let folder = common_folder();
    let target = Target::build("shapes", Flavour::Cet).copied_to(folder.path());
    let Some(mut command) = run_with_capabilities(&folder, "+bpf,+perfmon") else { return };
    command.args(["--lib", "libtruth.so", "--"]).arg(&target.program);
    let output = command.arg("nested").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(Recording::open(&folder.path().join("trace")).trees(), truth::trees(&output.stdout));
}

/// Runs three copies of a program one after the other: one that may be recorded, one whose mode this is, and the
/// first again. Gives the recording.
fn record_beside_one_with_mode(mode: u32) -> Option<Recording> {
    let folder = common_folder();
    let plain = Target::build("shapes", Flavour::Static).copied_to(folder.path());
    let other = folder.path().join("other");
    fs::copy(&plain.program, &other).unwrap();
    fs::set_permissions(&other, fs::Permissions::from_mode(mode)).unwrap();
    // With the last, a program that a child executes waits for its probes.
    let mut command = run_with_capabilities(&folder, "+bpf,+perfmon,+sys_admin")?;
    for library in [&plain.program, &other] {
        command.arg("--lib").arg(library);
    }
    command.args(TRUTH_FUNCTIONS.iter().flat_map(|name| ["--func", name]));
    command.args(["--strict", "--", "sh", "-c", "\"$0\" nested; \"$1\" nested >/dev/null; \"$0\" nested"]);
    let output = command.arg(&plain.program).arg(&other).output().unwrap();
    let recording = Recording::open(&folder.path().join("trace"));
    let told = truth::trees(&output.stdout);
    assert_eq!(told.len(), 2);
    assert_eq!(recording.trees(), told, "{output:?}");
    let is_said = String::from_utf8_lossy(&output.stderr).contains("has privileges that you do not have");
    let is_blind = |kind: &EventKind| matches!(kind, EventKind::BlindWindow { .. });
    assert!(!recording.events().iter().any(is_blind), "it would be no news that something is missing");
    assert_eq!((output.status.code(), is_said), (Some(3), true), "{output:?}");
    Some(recording)
}

/// Who may not ptrace a program learns nothing of it, and is told so.
#[test]
fn a_program_with_rights_of_its_own_is_not_recorded() {
    let Some(_turn) = Turn::take() else { return };
    for mode in [0o4755, 0o2755] {
        let Some(recording) = record_beside_one_with_mode(mode) else { return };
        assert_eq!(recording.summary().withheld, 1);
        let withheld = recording.events().iter().filter(|kind| matches!(kind, EventKind::Withheld { .. }));
        assert_eq!(withheld.count(), 1);
    }
}

/// To root it is a program like others.
#[test]
fn root_records_programs_with_rights_of_their_own() {
    let Some(_turn) = Turn::take() else { return };
    let folder = common_folder();
    let target = Target::build("shapes", Flavour::Static).copied_to(folder.path());
    fs::set_permissions(&target.program, fs::Permissions::from_mode(0o4755)).unwrap();
    let mut program = Command::new("setpriv");
    program.args(["--reuid", "65534", "--clear-groups", "--"]).arg(&target.program).arg("nested");
    let options = ["--lib", target.program.to_str().unwrap(), "--strict"];
    let functions = TRUTH_FUNCTIONS.iter().flat_map(|name| ["--func", name]);
    let options: Vec<String> = options.into_iter().chain(functions).map(str::to_owned).collect();
    let (output, recording) = rtrace::run(&options, &program);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(recording.trees(), truth::trees(&output.stdout));
}

/// The command of another user is recorded, and what it may execute with rights of its own is not.
#[test]
fn a_command_of_another_user() {
    let Some(_turn) = Turn::take() else { return };
    let folder = common_folder();
    let target = Target::build("shapes", Flavour::Static).copied_to(folder.path());
    let other = folder.path().join("other");
    fs::copy(&target.program, &other).unwrap();
    fs::set_permissions(&other, fs::Permissions::from_mode(0o4755)).unwrap();
    let libraries = [&target.program, &other].map(|library| library.display().to_string());
    let options = libraries.iter().flat_map(|library| ["--lib", library]).chain(["--user", "65534"]);
    let functions = TRUTH_FUNCTIONS.iter().flat_map(|name| ["--func", name]);
    let options: Vec<String> = options.chain(functions).map(str::to_owned).collect();
    let mut program = Command::new("sh");
    program.args(["-c", "id -u >&2; id -G >&2; echo $USER >&2; \"$0\" nested; \"$1\" nested >/dev/null; true"]);
    let (output, recording) = rtrace::run(&options, program.arg(&target.program).arg(&other));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("65534\n65534\nnobody\n"), "{said}");
    assert_eq!(recording.trees(), truth::trees(&output.stdout), "{said}");
    assert_eq!(recording.summary().withheld, 1, "{said}");
}

/// What rtrace starts beside the command is not root's under sudo.
#[test]
fn sinks_and_plug_ins_run_as_who_called_sudo() {
    let Some(_turn) = Turn::take() else { return };
    let folder = common_folder();
    let target = Target::build("shapes", Flavour::Cet);
    let file = |name: &str| folder.path().join(name).display().to_string();
    let (sink, plugin) = (file("sink"), file("plugin"));
    for (options, user) in [(&[][..], "65534 65534"), (&["--helper-user", "root"][..], "0 0")] {
        let mut rtrace = rtrace::command();
        rtrace.env("SUDO_UID", "65534").env("SUDO_GID", "65534");
        rtrace.arg("run").args(target.selection()).args(options);
        rtrace.args(["--sink", &format!("echo $(id -u) $(id -G) >{sink}; cat >/dev/null")]);
        rtrace
            .args(["--metric-plugin", &format!("echo metrics a:node:#; echo $(id -u) $(id -G) >{plugin}; sleep 1000")]);
        rtrace.arg("-o").arg(file(user)).arg("--").arg(&target.program).arg("nested");
        let output = rtrace.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        for told in [&sink, &plugin] {
            assert_eq!(fs::read_to_string(told).unwrap().trim_end(), user);
            fs::remove_file(told).unwrap();
        }
    }
}

/// A user, who has rtrace with the capabilities that docs/security.md names.
struct UserWithRtrace {
    folder: TempDir,
    rtrace: PathBuf,
}

impl UserWithRtrace {
    /// `None`, with the reason printed, where that cannot work.
    fn new() -> Option<UserWithRtrace> {
        if rtrace_bpf::best_mechanism().ok() != Some(rtrace_bpf::Mechanism::Multi) {
            println!("skipped: this kernel has no uprobe.multi");
            return None;
        }
        if !installed(&["setcap", "setpriv"]) {
            return None;
        }
        let folder = common_folder();
        let rtrace = folder.path().join("rtrace");
        fs::copy(env!("CARGO_BIN_EXE_rtrace"), &rtrace).unwrap();
        let mut setcap = Command::new("setcap");
        setcap.arg("cap_bpf,cap_perfmon,cap_checkpoint_restore=ep").arg(&rtrace);
        assert!(setcap.status().unwrap().success());
        Some(UserWithRtrace { folder, rtrace })
    }

    /// What rtrace does for the user; the trace is `trace`.
    fn rtrace(&self, arguments: &[&str], words: &[&str]) -> Output {
        let trace = self.folder.path().join("trace");
        let mut command = as_user(USERS[0], &self.rtrace);
        command.args(arguments).arg("-o").arg(trace).arg("--no-tui").args(words).stdin(Stdio::null());
        command.output().unwrap()
    }

    /// What rtrace says that refuses to do this for the user.
    fn is_refused(&self, arguments: &[&str], words: &[&str]) -> String {
        let output = self.rtrace(arguments, words);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        said
    }
}

/// A program that this user executes.
fn as_user(user: u32, program: impl AsRef<Path>) -> Command {
    let user = user.to_string();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", &user, "--regid", &user, "--clear-groups", "--"]).arg(program.as_ref());
    command.env("XDG_CONFIG_HOME", "/nonexistent");
    command
}

/// Processes that sleep until they are dropped.
struct Sleepers(Vec<Child>);

impl Sleepers {
    fn start(user: u32, number: usize, library: Option<&Path>) -> Sleepers {
        let sleeper = |_| {
            let mut command = as_user(user, "sleep");
            command.arg("1000").stdin(Stdio::null());
            command.envs(library.map(|library| ("LD_PRELOAD", library)));
            command.spawn().unwrap()
        };
        let sleepers = Sleepers((0..number).map(sleeper).collect());
        let sleeps = |pid: u32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "sleep\n");
        while !sleepers.0.iter().all(|sleeper| sleeps(sleeper.id())) {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        sleepers
    }

    fn pids(&self) -> String {
        self.0.iter().map(|sleeper| sleeper.id().to_string()).collect::<Vec<_>>().join(",")
    }
}

impl Drop for Sleepers {
    fn drop(&mut self) {
        for sleeper in &mut self.0 {
            let _ = sleeper.kill();
            let _ = sleeper.wait();
        }
    }
}

#[test]
fn a_user_records_own_programs_by_the_capabilities_of_the_file() {
    let Some(_turn) = Turn::take() else { return };
    let Some(user) = UserWithRtrace::new() else { return };
    let target = Target::build("shapes", Flavour::Cet).copied_to(user.folder.path());
    let program = target.program.to_str().unwrap();
    let output = user.rtrace(&["run", "--lib", "libtruth.so"], &["--", program, "nested"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(Recording::open(&user.folder.path().join("trace")).trees(), truth::trees(&output.stdout));
}

/// The command has none of rtrace's rights.
#[test]
fn what_a_user_runs_gets_no_capability_of_the_file() {
    let Some(_turn) = Turn::take() else { return };
    let Some(user) = UserWithRtrace::new() else { return };
    let command = ["--", "grep", "-E", "Cap(Inh|Prm|Eff|Amb)", "/proc/self/status"];
    let output = user.rtrace(&["run", "--lib", "libc.so.6", "--func", "getpid"], &command);
    let sets = String::from_utf8_lossy(&output.stdout);
    assert!(sets.lines().count() == 4 && sets.lines().all(|set| set.ends_with("\t0000000000000000")), "{output:?}");
}

/// Who takes out the probes if rtrace is killed is there for users, too.
#[test]
fn a_recording_of_a_user_is_guarded() {
    let Some(_turn) = Turn::take() else { return };
    let Some(user) = UserWithRtrace::new() else { return };
    // The guard would end at once, if it did.
    let script = "sleep 1; for i in /proc/[0-9]*; do case $(cat $i/stat 2>&1) in \
        *' (probe-guard) '?\" $PPID \"*) echo $(tr -d '\\0' <$i/cmdline);; esac; done";
    let output = user.rtrace(&["run", "--lib", "libc.so.6", "--func", "getpid"], &["--", "sh", "-c", script]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "probe-guard\n", "{output:?}");
}

#[test]
fn a_process_of_another_user_is_refused() {
    let Some(_turn) = Turn::take() else { return };
    let Some(user) = UserWithRtrace::new() else { return };
    let other = Sleepers::start(USERS[1], 1, None);
    let pid = other.pids();
    let said = user.is_refused(&["attach", "--lib", "libc.so.6"], &["-p", &pid]);
    assert!(said.contains(&format!("process {pid} (`sleep` of user {}): permission denied", USERS[1])), "{said}");
    let own = Sleepers::start(USERS[0], 1, None);
    let recorded = ["attach", "--lib", "libc.so.6", "--func", "getpid", "--duration", "1ms"];
    let output = user.rtrace(&recorded, &["-p", &own.pids()]);
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn a_user_gets_a_part_of_the_memory_of_the_kernel() {
    let Some(_turn) = Turn::take() else { return };
    let Some(user) = UserWithRtrace::new() else { return };
    let said = user.is_refused(&["run", "--lib", "libc.so.6", "--buffer", "16M"], &["--", "true"]);
    assert!(said.contains("ring buffers of 16777216 bytes: at most 8388608 are allowed without"), "{said}");
    let built = Target::build("many", Flavour::Plain).program.with_file_name("libmany.so");
    let library = user.folder.path().join("libmany.so");
    fs::copy(built, &library).unwrap();
    // Ten thousand functions in each.
    let own = Sleepers::start(USERS[0], 14, Some(&library));
    let attach = ["attach", "--lib", "libmany.so", "--exit", "entry-only", "--budget", "none", "--duration", "1ms"];
    let said = user.is_refused(&attach, &["-p", &own.pids()]);
    assert!(said.contains("at most 131072 probes in 1024 processes are allowed without CAP_SYS_PTRACE"), "{said}");
}
