//! USDT probes: places within functions, as the program that has them knows them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use rtrace_exporters::TraceSet;
use rtrace_model::{Call, Ending, Values};

use crate::common::recording::{Recording, names};
use crate::common::rtrace::{self, Attached, Waiting};
use crate::common::skip::{Turn, installed, not_here};
use crate::common::target::{compile_text, sources};

const ROUNDS: usize = 100;

fn program(folder: &Path) -> PathBuf {
    let source = std::fs::read_to_string(sources().join("marked.c")).unwrap();
    compile_text(folder, &source, "marked", &["-O2", "-fcf-protection=none"]);
    folder.join("marked")
}

fn options(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

fn calls<'r>(recording: &'r Recording, name: &str) -> Vec<&'r Call> {
    let names = names(recording.regions());
    recording.calls().filter(|call| names[&call.region] == name).collect()
}

/// The integers of a column of a place, in the order of its hits.
fn integers(recording: &Recording, name: &str, column: usize) -> Vec<Option<i64>> {
    let region = recording.regions().iter().find(|region| region.name == name).unwrap().id;
    let values = recording.values(region).flat_map(|batch| match &batch.columns[column] {
        Values::Integer(values) => values.clone(),
        other => panic!("{other:?}"),
    });
    values.collect()
}

/// What a recording of all rounds has, whatever of the program's functions is traced, too.
fn check(recording: &Recording) {
    let (work, leaves) = (calls(recording, "work"), calls(recording, "leaf"));
    let (marks, inner) = (calls(recording, "app:work"), calls(recording, "app:leaf"));
    assert_eq!([work.len(), leaves.len(), marks.len(), inner.len()], [ROUNDS, 2 * ROUNDS, ROUNDS, 2 * ROUNDS]);
    // A place is in the call that comes to it, and ends none.
    assert!(marks.iter().zip(&work).all(|(mark, work)| mark.parent == work.id));
    assert!(inner.iter().zip(&leaves).all(|(mark, leaf)| mark.parent == leaf.id));
    assert!(leaves.iter().enumerate().all(|(place, leaf)| leaf.parent == work[place / 2].id));
    let untimed = |calls: &[&Call]| calls.iter().filter(|call| call.ending == Ending::Unseen).count();
    assert_eq!([untimed(&marks), untimed(&inner)], [ROUNDS, 2 * ROUNDS], "an event has no duration");
    assert!(marks.iter().all(|mark| mark.duration.is_none()));
    assert!(untimed(&work) <= 2 && untimed(&leaves) <= 4, "{} {}", untimed(&work), untimed(&leaves));
    assert_eq!(recording.summary().lost(), 0);

    let rounds = 0..ROUNDS as i64;
    let expected = |value: fn(i64) -> i64| rounds.clone().map(|round| Some(value(round))).collect::<Vec<_>>();
    assert_eq!(integers(recording, "app:work", 1), expected(|round| round));
    assert_eq!(integers(recording, "app:work", 2), expected(|_| 77));
    assert_eq!(integers(recording, "app:work", 3), expected(|round| round * round));
    assert_eq!(integers(recording, "app:work", 4), expected(|round| (round + 250) % 256));
    assert_eq!(integers(recording, "app:work", 5), expected(|round| -round));
    let both = rounds.flat_map(|round| [Some(-round), Some(round)]);
    assert_eq!(integers(recording, "app:leaf", 0), both.collect::<Vec<_>>());
    assert_eq!(integers(recording, "app:guarded", 0), vec![Some(1); ROUNDS]);
}

#[test]
fn places_have_their_calls_and_arguments() {
    let Some(_turn) = Turn::take().filter(|_| installed(&["cc"])) else { return };
    let folder = tempfile::tempdir().unwrap();
    let program = program(folder.path());
    let chosen = ["--lib", "exe", "--func", "app:*", "--func", "work", "--func", "leaf", "--args", "app:*"];
    let (output, recording) = rtrace::run(&options(&chosen), &Command::new(&program));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("lookers 1\n"), "{said} {}", String::from_utf8_lossy(&output.stderr));
    check(&recording);

    assert_eq!(integers(&recording, "app:first", 0), (0..ROUNDS as i64).map(Some).collect::<Vec<_>>());
    let both = ["--lib", "exe", "--func", "app:first", "--func", "first"];
    let (_, recording) = rtrace::run(&options(&both), &Command::new(&program));
    let plan = rtrace::command().arg("plan").args(both).arg("--").arg(&program).output().unwrap();
    let said = String::from_utf8_lossy(&plan.stdout);
    assert!(said.contains("is traced by the same instruction: app:first"), "{said}");
    assert_eq!((calls(&recording, "first").len(), recording.regions().len()), (ROUNDS, 1));

    let text = ["--lib", "exe", "--func", "app:work", "--args", "app:work(arg1:text)"];
    let (_, recording) = rtrace::run(&options(&text), &Command::new(&program));
    let region = recording.regions()[0].id;
    let texts = recording.values(region).flat_map(|batch| match &batch.columns[0] {
        Values::Text(texts) => texts.clone(),
        other => panic!("{other:?}"),
    });
    let expected = (0..ROUNDS).map(|round| Some(if round % 2 == 0 { "even" } else { "odd" }.to_owned()));
    assert_eq!(texts.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    // The context of a place is that of the function around it, which nobody traces here.
    let sites: HashMap<_, usize> = recording.calls().fold(HashMap::new(), |mut sites, call| {
        *sites.entry(recording.call_sites()[call.call_site.unwrap().index()].function.clone()).or_default() += 1;
        sites
    });
    assert_eq!(sites, HashMap::from([(Some("work".to_owned()), ROUNDS)]));
}

#[test]
fn the_program_knows_that_somebody_looks_as_long_as_it_is_so() {
    let Some(_turn) = Turn::take().filter(|_| installed(&["cc"])) else { return };
    let folder = tempfile::tempdir().unwrap();
    let program = program(folder.path());
    let mut waiting = Waiting::start(&mut Command::new(&program));
    let chosen = ["--lib", "exe", "--func", "app:*", "--func", "work", "--func", "leaf", "--args", "app:*"];
    let attached = Attached::start(waiting.pid(), &options(&chosen));
    waiting.go();
    assert_eq!(waiting.line(), "lookers 1\n");
    assert!(waiting.line().starts_with("sum "));
    attached.interrupt();
    let (_, recording) = attached.finish();
    waiting.go();
    let output = waiting.finish();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "lookers 0\n");
    check(&recording);

    // Who asks for functions gets none of the places.
    let all = ["--lib", "exe", "--func", "*"];
    let (output, recording) = rtrace::run(&options(&all), &Command::new(&program));
    assert!(String::from_utf8_lossy(&output.stdout).contains("lookers 0\n"));
    assert!(recording.regions().iter().all(|region| !region.name.contains(':')));
}

#[test]
fn places_of_the_python_interpreter_are_as_often_as_another_tracer_sees_them() {
    const PYTHON: &str = "/usr/bin/python3";
    const SCRIPT: &str = "def f(): return 1\nfor i in range(300): f()\nimport gc\nfor i in range(7): gc.collect()\n";
    let Some(_turn) = Turn::take().filter(|_| installed(&["bpftrace"])) else { return };
    let has_places = Path::new(PYTHON).exists()
        && std::fs::read(PYTHON).unwrap().windows(15).any(|bytes| bytes == b"function__entry");
    if !has_places {
        return not_here("this Python has no USDT probes");
    }
    let folder = tempfile::tempdir().unwrap();
    let (script, trace) = (folder.path().join("script.py"), folder.path().join("trace"));
    std::fs::write(&script, SCRIPT).unwrap();
    let of_gc = ["--lib", "exe", "--func", "python:gc__*", "--func", "python:function__return"];
    let mut python = Command::new(PYTHON);
    python.args(["-I", "-S"]).arg(&script);
    rtrace::record(&options(&of_gc), &python, &trace);
    let set = TraceSet::open(&trace).unwrap();
    let ours = set.summary().unwrap().calls;
    let counting = "usdt:/usr/bin/python3:python:gc__start,usdt:/usr/bin/python3:python:gc__done,\
                    usdt:/usr/bin/python3:python:function__return { @ = count(); }";
    let mut bpftrace = Command::new("bpftrace");
    bpftrace.args(["-q", "-e", counting, "-c"]).arg(format!("{PYTHON} -I -S {}", script.display()));
    let said = String::from_utf8(bpftrace.output().unwrap().stdout).unwrap();
    let theirs = said.lines().find_map(|line| line.strip_prefix("@: ")?.parse::<u64>().ok());
    assert!(theirs.is_some_and(|theirs| theirs.abs_diff(ours) <= 2 && ours > 300), "{ours} {said}");
}
