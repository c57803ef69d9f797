//! Recorders that come and go while a program runs.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::thread::{self, sleep};
use std::time::Duration;

use rtrace_exporters::Trace;
use rtrace_model::{Call, Ending, EventKind, Timestamp};
use rustix::process::{Pid, getpriority_process, setpriority_process};
use tempfile::TempDir;

use crate::common::recording::Recording;
use crate::common::rtrace::{self, Attached, Waiting};
use crate::common::scenario::Scenario;
use crate::common::skip::{Turn, not_here, shell_maps_c_library};
use crate::common::target::{Flavour, Target};
use crate::common::text::Text;
use crate::common::tree::Forest;
use crate::common::tries::in_one_of_some_tries;
use crate::common::truth::{self, Trees};

/// A scenario that waits for a line, and a recorder attached to it.
fn start(program: &str, scenario: &str) -> Option<(Turn, Waiting, Attached)> {
    let turn = Turn::take()?;
    let target = Target::build(program, Flavour::Cet);
    let waiting = Waiting::start(&mut target.command(scenario));
    let attached = Attached::start(waiting.pid(), &target.selection());
    Some((turn, waiting, attached))
}

#[test]
fn nested() {
    Scenario::new("shapes", "nested").attach();
}

#[test]
fn threads_that_start_later() {
    Scenario::new("threads", "parallel").attach();
}

#[test]
fn children_with_follow() {
    Scenario::new("processes", "forks").option("--follow").attach();
}

#[test]
fn children_are_left_alone_without_follow() {
    let Some((_turn, mut waiting, attached)) = start("processes", "forks") else { return };
    let pid = waiting.pid();
    waiting.go();
    let output = waiting.finish();
    let (_, recording) = attached.finish();
    let mut told = truth::trees(&output.stdout);
    told.retain(|&(process, _), _| process == pid);
    assert_eq!(recording.trees(), told);
}

/// Two processes that wait for a line, as the children of a shell; the second's parent is the first's brother.
struct Family {
    shell: Child,
    input: ChildStdin,
}

impl Family {
    fn start(target: &Target) -> Family {
        let script = "\"$0\" after_exec wait <&3 & sh -c '\"$0\" after_exec wait <&3; exit 0' \"$0\" & exec 3<&-; wait";
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("exec 3<&0; {script}")]).arg(&target.program);
        let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::with_capacity(1, shell.stdout.as_mut().unwrap());
        for _ in 0..2 {
            let mut line = String::new();
            output.read_line(&mut line).unwrap();
            assert!(line.starts_with("ready "), "{line}");
        }
        let input = shell.stdin.take().unwrap();
        Family { shell, input }
    }

    /// Both make calls, and all end.
    fn call(mut self) -> Output {
        self.input.write_all(b"\n\n").unwrap();
        drop(self.input);
        self.shell.wait_with_output().unwrap()
    }
}

/// Those that serve requests are forked before anybody attaches to their parent.
#[test]
fn children_that_there_are_already_are_followed() {
    let Some(_turn) = Turn::take() else { return };
    let target = Target::build("processes", Flavour::Cet);
    let family = Family::start(&target);
    let attached = Attached::start(family.shell.id(), &[target.selection(), vec!["--follow".to_owned()]].concat());
    let told = truth::trees(&family.call().stdout);
    let (output, recording) = attached.finish();
    assert_eq!(told.len(), 2);
    assert_eq!(recording.trees(), told, "{}", String::from_utf8_lossy(&output.stderr));
    assert!(recording.summary().is_complete(), "{}", recording.summary());
}

/// A return address that one process of a program has met has its probe in another, too, before that comes there. Where
/// the machine is too busy to place it within the time, the test tries again and says so.
#[test]
fn what_one_process_has_met_is_in_place_in_another() {
    let Some(_turn) = Turn::take() else { return };
    let target = Target::build("processes", Flavour::Cet);
    let second_returns = || {
        let [mut first, mut second] = [(); 2].map(|()| Waiting::start(&mut target.command("calls_by_pointer")));
        let both = ["-p".to_owned(), second.pid().to_string()];
        let attached = Attached::start(first.pid(), &[&target.selection()[..], &both].concat());
        first.go();
        first.feed(b"1");
        sleep(Duration::from_millis(500));
        second.go();
        second.feed(b"1");
        for waiting in [first, second] {
            assert!(waiting.finish().status.success());
        }
        let (_, recording) = attached.finish();
        let endings: Vec<Ending> = recording.calls().map(|call| call.ending).collect();
        assert_eq!(endings.len(), 2);
        (endings[1] == Ending::Returned).then_some(()).ok_or_else(|| format!("{endings:?}"))
    };
    in_one_of_some_tries(5, second_returns);
}

/// The kernel asks the first thread of a process for its memory, and would place no probe without a word.
#[test]
fn a_process_without_its_first_thread_is_refused() {
    let Some(_turn) = Turn::take() else { return };
    let target = Target::build("threads", Flavour::Cet);
    let mut waiting = Waiting::start(&mut target.command("without_first"));
    waiting.go();
    assert!(waiting.line().starts_with("truth "));
    let pid = waiting.pid().to_string();
    let selection = target.selection();
    let arguments = ["attach", "--no-tui", "-p", &pid].into_iter().chain(selection.iter().map(String::as_str));
    let said = rtrace::refuses(&arguments.collect::<Vec<_>>());
    assert!(said.contains("its first thread has ended, and the kernel places no probes in such a process"), "{said}");
    assert!(said.contains("rtrace run"), "{said}");
    assert!(waiting.finish().status.success());
}

/// It keeps the probes that it had, or has a blind window from then on where these belong to the first thread.
#[test]
fn a_command_goes_on_without_its_first_thread() {
    let Some(_turn) = Turn::take() else { return };
    let target = Target::build("threads", Flavour::Cet);
    let (output, recording) = rtrace::run(&target.selection(), &target.command("without_first"));
    assert!(output.status.success());
    if recording.mechanism() == "uprobe" {
        return assert!(is_blind(&recording));
    }
    assert_eq!(recording.trees(), truth::trees(&output.stdout));
}

/// Options that name the C library, and those that are loaded later.
fn any_library() -> Vec<String> {
    ["--lib", "*lib*.so*", "--func", "getppid", "--func", "outer"].map(str::to_owned).to_vec()
}

fn is_blind(recording: &Recording) -> bool {
    let is_of =
        |kind: &EventKind| matches!(kind, EventKind::BlindWindow { library, .. } if library.ends_with("libtruth.so"));
    recording.events().iter().any(is_of) && !recording.summary().is_complete()
}

/// Before anybody could look at what it has loaded.
#[test]
fn a_program_that_loads_a_library_and_ends_is_told_to_be_missing() {
    let Some(_turn) = Turn::take() else { return };
    let target = Target::build("loading", Flavour::Cet);
    let mut waiting = Waiting::start(&mut target.command("reopen"));
    let attached = Attached::start(waiting.pid(), &any_library());
    waiting.go();
    assert!(waiting.finish().status.success());
    let (output, recording) = attached.finish();
    assert!(is_blind(&recording), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_child_that_loads_a_library_and_ends_is_told_to_be_missing() {
    let Some(_turn) = Turn::take().filter(|_| shell_maps_c_library()) else { return };
    let target = Target::build("loading", Flavour::Cet);
    let mut shell = Command::new("sh");
    shell.args(["-c", "echo ready $$; read line; \"$0\" reopen; true"]).arg(&target.program);
    let mut waiting = Waiting::start(&mut shell);
    let attached = Attached::start(waiting.pid(), &[any_library(), vec!["--follow".to_owned()]].concat());
    waiting.go();
    assert!(waiting.finish().status.success());
    let (output, recording) = attached.finish();
    assert!(is_blind(&recording), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn children_that_are_not_followed_are_hinted_at() {
    let Some(_turn) = Turn::take().filter(|_| shell_maps_c_library()) else { return };
    let target = Target::build("processes", Flavour::Cet);
    let family = Family::start(&target);
    let attached = Attached::start(family.shell.id(), &["--lib".to_owned(), "libc.so.6".to_owned()]);
    let pid = family.shell.id();
    assert!(family.call().status.success());
    let (output, _) = attached.finish();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains(&format!("process {pid} has 3 children that map /")), "{said}");
}

#[test]
fn a_call_that_blocks_is_open_at_the_end() {
    let Some((_turn, mut waiting, attached)) = start("processes", "blocks") else { return };
    waiting.go();
    sleep(Duration::from_millis(300));
    attached.interrupt();
    let (output, recording) = attached.finish();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(waiting.runs(), "the program goes on without its recorder");
    let told = waiting.finish();
    assert!(told.status.success());
    // The first call from its place may have returned unseen: then nobody can tell that it is running.
    let is_running = |call: &&Call| matches!(call.ending, Ending::Open | Ending::Unseen) && call.depth == 0;
    assert_eq!(recording.calls().filter(is_running).count(), 1);
    let counts = |trees: &Trees| trees.values().map(Forest::counts).collect::<Vec<_>>();
    assert_eq!(counts(&recording.trees()), counts(&truth::trees(&told.stdout)));
}

#[test]
fn a_script_is_told_when_it_records() {
    let Some((_turn, waiting, attached)) = start("processes", "blocks") else { return };
    attached.interrupt();
    let (output, recording) = attached.finish();
    let said = String::from_utf8_lossy(&output.stderr);
    let functions = recording.summary().regions;
    let expected = format!("rtrace: recording {functions} functions of processes ({})\n", waiting.pid());
    assert!(functions > 0 && said.starts_with(&expected), "{said}");
}

/// Else the rings would be full before their reader's turn, on a machine that is busy, and calls untimed as their return
/// sites come late: here one thread empties the rings, one makes calls of that, two write, one places sites, one sees to it
/// that this one has a CPU, one keeps the kernel ready for that, and two stop threads.
#[test]
fn what_reads_and_writes_runs_before_the_program() {
    // Of a thread of its own, which this test does not need any more.
    if thread::spawn(|| setpriority_process(None, -20)).join().unwrap().is_err() {
        return not_here("a process may not raise its priority here (CAP_SYS_NICE)");
    }
    let Some((_turn, waiting, attached)) = start("processes", "blocks") else { return };
    let rtrace = attached.pid().as_raw_nonzero();
    let tasks = fs::read_dir(format!("/proc/{rtrace}/task")).unwrap();
    let nice = |task: &str| getpriority_process(Pid::from_raw(task.parse().unwrap()));
    // One that has ended since it was listed has none.
    let priorities: Vec<i32> =
        tasks.filter_map(|task| nice(task.unwrap().file_name().to_str().unwrap()).ok()).collect();
    assert_eq!(priorities.iter().filter(|&&nice| nice == -20).count(), 9, "{priorities:?}");
    assert_eq!(nice(&waiting.pid().to_string()).unwrap(), getpriority_process(None).unwrap());
}

#[test]
fn an_interrupt_ends_the_recording_not_the_program() {
    let Some((_turn, mut waiting, attached)) = start("processes", "calls_on") else { return };
    waiting.go();
    waiting.feed(&[b'x'; 100]);
    sleep(Duration::from_secs(2));
    attached.interrupt();
    let (_, recording) = attached.finish();
    let mut calls: Vec<u64> = recording.calls_by_region().into_values().collect();
    calls.sort_unstable();
    assert_eq!(calls, [100, 100, 300], "outer, middle and leaf");
    waiting.feed(&[b'x'; 100]);
    assert!(waiting.finish().status.success());
}

#[test]
fn a_killed_recorder_leaves_the_program_and_a_trace() {
    let Some((_turn, mut waiting, attached)) = start("processes", "calls_on") else { return };
    let pid = waiting.pid();
    waiting.go();
    waiting.feed(&[b'x'; 100]);
    // The trace may miss the last second, no more.
    sleep(Duration::from_millis(2500) * rtrace::slowness());
    let folder = attached.kill();
    waiting.feed(&[b'x'; 100]);
    Text::of(pid).becomes_the_file();
    waiting.feed(&[b'x'; 100]);
    assert!(waiting.finish().status.success());

    let trace = Trace::open(&folder.path().join("trace")).unwrap();
    assert_eq!(trace.summary(), None);
    assert_eq!(trace.calls().map(|batch| batch.unwrap().len()).sum::<usize>(), 500);
    assert!(trace.events().flatten().flatten().any(|event| event.kind == EventKind::Armed));
}

/// A process with the C library that ends so much later, as its input does.
fn brief(life: Duration) -> Child {
    let target = Target::build("shapes", Flavour::Cet);
    let mut command = target.command("nested");
    let mut child = command.arg("wait").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    while !fs::read_to_string(format!("/proc/{}/maps", child.id())).unwrap().contains("/libc.so") {
        sleep(Duration::from_millis(1));
    }
    let input = child.stdin.take();
    thread::spawn(move || {
        sleep(life);
        drop(input);
    });
    child
}

/// Attaches to the C library in processes for a second; gives what rtrace said, and where the trace is, if there is one.
fn attach_to(pids: &[u32]) -> (Output, TempDir) {
    let folder = TempDir::new().unwrap();
    let mut rtrace = rtrace::command();
    rtrace.args(["attach", "--no-tui"]).args(rtrace::ALL_CALLS);
    rtrace.args(["--lib", "libc.so.6", "--func", "str*", "--duration", "1s", "-o"]);
    rtrace.arg(folder.path().join("trace"));
    for pid in pids {
        rtrace.args(["-p", &pid.to_string()]);
    }
    (rtrace.output().unwrap(), folder)
}

fn time_of(trace: &Trace, is_meant: impl Fn(&EventKind) -> bool) -> Option<Timestamp> {
    trace.events().flatten().flatten().find(|event| is_meant(&event.kind)).map(|event| event.time)
}

/// Whenever it ends: what is called a recording has seen it alive.
#[test]
fn a_program_that_ends_before_its_probes_are_in_is_said_to_have() {
    let Some(_turn) = Turn::take() else { return };
    for life in (0..1000).step_by(100).map(Duration::from_millis) {
        let mut child = brief(life);
        let (output, folder) = attach_to(&[child.id()]);
        child.wait().unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr);
        if output.status.success() {
            let trace = Trace::open(&folder.path().join("trace")).unwrap();
            let exit = time_of(&trace, |kind| matches!(kind, EventKind::Exit { .. })).unwrap();
            assert!(exit > time_of(&trace, |kind| *kind == EventKind::Armed).unwrap(), "after {life:?}");
        } else {
            assert_eq!(output.status.code(), Some(1), "{complaint}");
            assert!(!folder.path().join("trace").exists(), "after {life:?}: a trace of nothing was left behind");
            let is_said =
                complaint.contains("ended before its probes were in place") && complaint.contains("rtrace run");
            // It may have been a zombie by the first look.
            assert!(is_said || complaint.contains("it is a kernel thread or has ended"), "after {life:?}: {complaint}");
        }
    }
}

#[test]
fn one_that_ends_too_early_leaves_the_others_recorded() {
    let Some(_turn) = Turn::take() else { return };
    for life in (0..8).map(|doubled| Duration::from_millis(50 << doubled)) {
        let (mut early, mut late) = (brief(life), brief(Duration::from_secs(3600)));
        let (output, folder) = attach_to(&[early.id(), late.id()]);
        early.wait().unwrap();
        late.kill().unwrap();
        late.wait().unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{complaint}");
        let trace = Trace::open(&folder.path().join("trace")).unwrap();
        let recorded: Vec<u32> = trace.processes().iter().map(|process| process.pid).collect();
        assert_eq!(recorded, [late.id()], "{complaint}");
        let before_the_first_look = format!("process {} has ended, or is a kernel thread: it is left out", early.id());
        if !complaint.contains(&before_the_first_look) {
            let notice = "ended before its probes were in place: none of its calls are recorded";
            assert!(complaint.contains(&format!("process {} {notice}", early.id())), "{complaint}");
            return;
        }
    }
    panic!("it always ended before the first look");
}
