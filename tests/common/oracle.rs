//! How often a program calls each function of a library, found without uprobes.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use super::launch::{alone, under};
use super::target;

/// Calls by address, in the library's own terms, as callgrind counts them. Exact for any number of
/// calls, and of several threads; tail calls count.
pub fn callgrind(library: &Path, program: &Command) -> HashMap<u64, u64> {
    let folder = TempDir::new().unwrap();
    let profile = folder.path().join("profile");
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["-q", "--tool=callgrind", "--dump-instr=yes", "--compress-strings=no", "--compress-pos=no"]);
    valgrind.arg(format!("--callgrind-out-file={}", profile.display()));
    run(valgrind, program);
    let text = String::from_utf8_lossy(&fs::read(&profile).unwrap()).into_owned();
    calls_in_profile(&text, library.to_str().expect("libraries have printable names"))
}

/// Sums the `calls=COUNT ADDRESS` lines whose callee lies in `object`. A `cob=` line names the
/// callee's object for the next `calls=` line; without it, that is the caller's, the last `ob=`.
fn calls_in_profile(profile: &str, object: &str) -> HashMap<u64, u64> {
    let mut calls = HashMap::new();
    let (mut caller_object, mut callee_object) = ("", None);
    for line in profile.lines() {
        if let Some(name) = line.strip_prefix("ob=") {
            caller_object = name;
        } else if let Some(name) = line.strip_prefix("cob=") {
            callee_object = Some(name);
        } else if let Some(call) = line.strip_prefix("calls=")
            && callee_object.take().unwrap_or(caller_object) == object
        {
            let mut words = call.split(' ');
            let count: u64 = words.next().and_then(|word| word.parse().ok()).expect("a count");
            let address = words.next().and_then(|word| word.strip_prefix("0x")).expect("an address");
            *calls.entry(u64::from_str_radix(address, 16).expect("hexadecimal")).or_default() += count;
        }
    }
    calls
}

/// Calls by file offset, counted by breakpoints at `offsets`. Exact, for programs of one thread;
/// some 40 µs a call.
pub fn breakpoints(library: &Path, offsets: &[u64], program: &Command) -> HashMap<u64, u64> {
    let folder = TempDir::new().unwrap();
    let (wanted, counted) = (folder.path().join("offsets"), folder.path().join("counts"));
    fs::write(&wanted, offsets.iter().map(|offset| format!("{offset}\n")).collect::<String>()).unwrap();
    let mut counter = Command::new(target::count_calls());
    counter.arg(library).arg(&wanted).arg(&counted).arg("--");
    run(counter, program);
    let number = |word: &str| word.parse::<u64>().expect("a number");
    let counts = fs::read_to_string(&counted).unwrap();
    counts.lines().filter_map(|line| line.split_once(' ')).map(|(offset, n)| (number(offset), number(n))).collect()
}

/// Runs `program` under `tool`, where it must end as it does alone.
fn run(tool: Command, program: &Command) {
    let output = under(tool, program);
    assert_eq!(output.status, alone(program).status, "{program:?}\n{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn calls_are_summed_by_object_and_address() {
    let profile = "ob=/lib/a\nfn=f\n0x10 1 3\ncob=/lib/b\ncfn=g\ncalls=3 0x20 0\n0x11 0 9\n\
                   cfn=h\ncalls=2 0x30 0\n0x12 0 4\nob=/lib/b\nfn=g\ncfn=g\ncalls=5 0x20 0\n0x21 0 1\n";
    assert_eq!(calls_in_profile(profile, "/lib/b"), HashMap::from([(0x20, 8)]));
    assert_eq!(calls_in_profile(profile, "/lib/a"), HashMap::from([(0x30, 2)]));
}
