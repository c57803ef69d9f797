//! Arguments and results of every kind that C, C++ and Fortran pass, compared with what the callers know of them, and
//! those of a program that knows nothing of it, compared with what a library notes that calls functions for it.
//!
//! Each call is told on a line: the function, then the values of its columns (`tests/targets/values.*`).

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use rtrace_model::{Call, CallSite, Region};
use tempfile::TempDir;

use crate::common::recording::Recording;
use crate::common::rtrace;
use crate::common::skip::{Turn, installed, skip};
use crate::common::target;

/// Columns of the program in C that nobody captures unasked.
const CAPTURES: &str = "make_one(n) -> result.a, result.b, result.c; make_two(n) -> result.a; \
                        make_split(n) -> x=result.n; make_big(n) -> result.a, result.b, result.c, result.x; \
                        out_parameters(n, >out, >where->b) -> result; \
                        reads(*p, text:text(16), b=list[1]->b) -> result; *";

/// A language: its source, how a compiler is told of it, and what is captured.
struct Language {
    source: &'static str,
    compiler: &'static str,
    flags: &'static [&'static str],
    captures: &'static str,
}

const C: Language = Language { source: "values.c", compiler: "gcc", flags: &["-w", "-Wno-psabi"], captures: CAPTURES };
const CPP: Language = Language { source: "values.cpp", compiler: "g++", flags: &["-std=c++17"], captures: "*" };
const FORTRAN: Language = Language { source: "values.f90", compiler: "gfortran", flags: &["-cpp"], captures: "*" };

/// What a program says of a call: its columns in their order, each with its value.
type Told = Vec<(String, String)>;

/// Values that were compared, and those that a call lacks because its return went unseen.
#[derive(Debug, Default)]
struct Compared {
    equal: usize,
    unseen: usize,
}

/// Builds the library of a language with this compiler and these flags, and the program that calls it.
fn build(folder: &Path, language: &Language, compiler: &str, flags: &[&str]) {
    let source = target::sources().join(language.source);
    let search = [format!("-L{}", folder.display()), format!("-Wl,-rpath,{}", folder.display())];
    let search = search.iter().map(String::as_str).collect::<Vec<_>>();
    let library = [&["-DLIBRARY", "-shared", "-fPIC", "-o", "libvalues.so"], language.flags, flags].concat();
    let program = [&["-O1", "-o", "program"], language.flags, &search, &["-lvalues"]].concat();
    for (compiler, flags) in [(compiler, library), (language.compiler, program)] {
        let mut command = Command::new(compiler);
        // Libraries come behind what needs them.
        let status = command.current_dir(folder).arg(&source).args(flags).status().unwrap();
        assert!(status.success(), "{command:?}");
    }
}

fn record(folder: &Path, captures: &str) -> (BTreeMap<String, Vec<Told>>, Recording) {
    let options = ["--lib", "libvalues.so", "--args", captures].map(str::to_owned);
    let (output, recording) = rtrace::run(&options, &Command::new(folder.join("program")));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    (read(&String::from_utf8(output.stdout).unwrap()), recording)
}

/// Reads what is told of the calls of each function.
fn read(lines: &str) -> BTreeMap<String, Vec<Told>> {
    let mut told: BTreeMap<String, Vec<Told>> = BTreeMap::new();
    for line in lines.lines() {
        let mut words = line.trim_end().split('\t');
        let name = words.next().expect("a line has words").to_owned();
        let column = |word: &str| {
            let (name, value) = word.split_once('=').unwrap();
            (name.to_owned(), value.to_owned())
        };
        told.entry(name).or_default().push(words.map(column).collect());
    }
    told
}

/// The region that a program means, which may say how its name begins.
fn region<'r>(recording: &'r Recording, name: &str) -> &'r Region {
    let is_meant = |region: &&Region| match name.strip_suffix('*') {
        Some(begin) => region.name.starts_with(begin),
        None => region.name == name,
    };
    recording.regions().iter().find(is_meant).unwrap_or_else(|| panic!("{name} is not traced"))
}

/// Whether a recorded value is the one that is told; numbers with a point or an exponent may be written otherwise.
fn is_told(value: &str, truth: &str) -> bool {
    let same = || value.parse::<f64>().is_ok_and(|value| Ok(value) == truth.parse());
    value == truth || (truth.contains(['.', 'e']) && same())
}

/// The calls of a region, of which only those from a file whose name ends so.
fn calls_of<'r>(recording: &'r Recording, region: &Region, from: &str) -> impl Iterator<Item = &'r Call> {
    let is_there = |site: &&CallSite| site.file.as_ref().is_some_and(|file| file.ends_with(from));
    let sites: HashSet<_> = recording.call_sites().iter().filter(is_there).map(|site| site.id).collect();
    let region = region.id;
    recording
        .calls()
        .filter(move |call| call.region == region && call.call_site.is_some_and(|site| sites.contains(&site)))
}

/// Compares the calls of one function. Without names of parameters, columns are told by their order.
fn compare(
    recording: &Recording,
    from: &str,
    (name, told): (&String, &Vec<Told>),
    is_named: bool,
    compared: &mut Compared,
) {
    let region = region(recording, name);
    let columns = recording.value_columns(region.id);
    if columns.is_empty() && !is_named {
        return;
    }
    let mut rows = BTreeMap::new();
    for batch in recording.values(region.id) {
        for (row, call) in batch.calls.iter().enumerate() {
            let values = batch.columns.iter().map(|values| values.text(row));
            rows.insert(*call, values.collect::<Vec<_>>());
        }
    }
    let calls = calls_of(recording, region, from);
    let timed: BTreeMap<_, _> = calls.map(|call| ((call.location, call.id), call.is_timed())).collect();
    assert_eq!(timed.len(), told.len(), "{name}");
    for ((call, is_timed), told) in timed.iter().zip(told) {
        let is_recorded = |(column, _): &&(String, String)| match column.strip_prefix('?') {
            Some(column) if is_named => columns.iter().any(|known| known == column),
            Some(_) => true,
            None => true,
        };
        let told: Vec<_> = told.iter().filter(is_recorded).collect();
        let names: Vec<&str> = told.iter().map(|(column, _)| column.trim_start_matches('?')).collect();
        match is_named {
            true => assert_eq!(columns, names, "{name}"),
            false => assert_eq!(columns.len(), names.len(), "{name}: {columns:?} {names:?}"),
        }
        for ((column, truth), value) in told.iter().zip(rows.get(call).into_iter().flatten()) {
            match (value, truth.as_str()) {
                (_, "*") => {}
                (None, "-") => compared.equal += 1,
                (None, _) if !is_timed => compared.unseen += 1,
                (Some(value), truth) if is_told(value, truth) => compared.equal += 1,
                (value, truth) => panic!("{column} of {name} is {value:?}, not {truth}: {told:?}"),
            }
        }
    }
}

/// Records what is to be captured of a program, and compares all its calls; at least so many values.
fn check(folder: &Path, captures: &str, is_named: bool, at_least: usize) {
    let (told, recording) = record(folder, captures);
    let mut compared = Compared::default();
    for told in &told {
        compare(&recording, "", told, is_named, &mut compared);
    }
    println!("{compared:?}");
    // The first calls from a place return unseen, more of them where the machine is busy.
    assert!(compared.equal + compared.unseen > at_least && compared.equal > at_least / 2, "{compared:?}");
}

fn check_builds(language: &Language, builds: &[(&str, &[&str])], at_least: usize) {
    let Some(_turn) = Turn::take().filter(|_| installed(&[language.compiler])) else { return };
    for (compiler, flags) in builds {
        if !installed(&[compiler]) {
            continue;
        }
        let folder = TempDir::new().unwrap();
        build(folder.path(), language, compiler, flags);
        println!("{} {compiler} {flags:?}", language.source);
        check(folder.path(), language.captures, true, at_least);
    }
}

#[test]
fn values_of_c_are_those_that_are_passed() {
    let builds: [(_, &[_]); 4] = [
        ("gcc", &["-O0", "-g"]),
        ("gcc", &["-O2", "-gdwarf-4"]),
        ("gcc", &["-O3", "-g", "-flto", "-gz"]),
        ("clang", &["-O2", "-g"]),
    ];
    check_builds(&C, &builds, 2500);
}

#[test]
fn values_of_cpp_are_those_that_are_passed() {
    let builds: [(_, &[_]); 3] = [
        ("g++", &["-O0", "-gdwarf-4"]),
        ("g++", &["-O2", "-g", "-flto"]),
        ("clang++", &["-O2", "-g", "-fstandalone-debug"]),
    ];
    check_builds(&CPP, &builds, 1500);
}

#[test]
fn values_of_fortran_are_those_that_are_passed() {
    let builds: [(_, &[_]); 2] = [("gfortran", &["-O2", "-g"]), ("gfortran", &["-O3", "-gdwarf-4", "-flto"])];
    check_builds(&FORTRAN, &builds, 900);
}

#[test]
fn debug_information_in_a_file_of_its_own_says_the_same() {
    let Some(_turn) = Turn::take().filter(|_| installed(&["gcc", "objcopy"])) else { return };
    let folder = TempDir::new().unwrap();
    build(folder.path(), &C, "gcc", &["-O2", "-g"]);
    for options in [
        &["--only-keep-debug", "libvalues.so", "libvalues.debug"][..],
        &["--strip-debug", "--add-gnu-debuglink=libvalues.debug", "libvalues.so"],
    ] {
        assert!(Command::new("objcopy").current_dir(folder.path()).args(options).status().unwrap().success());
    }
    check(folder.path(), C.captures, true, 2500);
}

#[test]
fn a_program_knows_the_values_that_it_passes() {
    let Some(_turn) = Turn::take().filter(|_| installed(&["gcc"])) else { return };
    let folder = TempDir::new().unwrap();
    let program = Language { flags: &["-w", "-Wno-psabi", "-g"], ..C };
    build(folder.path(), &program, "gcc", &["-O2", "-g0"]);
    let captures = "[!rmo]*; raw_*; recursive; among_floats";
    check(folder.path(), captures, false, 2000);
}

const PYTHON: &str = "/usr/bin/python3";

/// Digests of many lengths, and reads and writes of a file, with two kinds of errors between them.
const WORK: &str = "
import hashlib, os, sys
digest, data = hashlib.sha256(), bytes(5000)
file, folder = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT), os.open('/', os.O_RDONLY)
for number in range(4000):
    digest.update(data[:number * 7 % 4999])
    os.write(file, data[:number % 31])
    os.lseek(file, number % 1000, 0)
    os.read(file, number % 97)
    if number % 10 == 0:
        try:
            os.read(999 if number % 20 else folder, 5)
        except OSError:
            pass
";

#[test]
fn values_and_sums_of_an_unmodified_program_are_those_that_it_passes() {
    let Some(_turn) = Turn::take().filter(|_| installed(&["gcc", PYTHON])) else { return };
    let folder = TempDir::new().unwrap();
    let maps = Command::new(PYTHON).args(["-c", "import _hashlib; print(open('/proc/self/maps').read())"]).output();
    if !String::from_utf8_lossy(&maps.unwrap().stdout).contains("/libcrypto.so.3") {
        return skip("Python does not use libcrypto.so.3");
    }
    let interposed = folder.path().join("interposed.so");
    let mut compiler = Command::new("gcc");
    compiler.args(["-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o"]).arg(&interposed);
    assert!(compiler.arg(target::sources().join("interposed.c")).status().unwrap().success());
    let told = folder.path().join("told");
    let mut program = Command::new("env");
    program.arg(format!("LD_PRELOAD={} libcrypto.so.3", interposed.display()));
    program.arg(format!("TOLD={}", told.display())).arg(PYTHON).args(["-c", WORK]).arg(folder.path().join("file"));
    let libraries = ["--lib", "libc.so.6", "--lib", "libcrypto.so.3", "--no-follow", "--args"];
    let functions = ["--func", "read", "--func", "write", "--func", "EVP_DigestUpdate"];
    let options: Vec<String> = functions.iter().chain(&libraries).map(|option| (*option).to_owned()).collect();
    let (_, recording) = rtrace::run(&options, &program);
    let told = read(&fs::read_to_string(told).unwrap());
    let mut compared = Compared::default();
    for told in &told {
        compare(&recording, "interposed.so", told, true, &mut compared);
    }
    println!("{compared:?}");
    assert!(compared.equal > 30_000, "{compared:?}");
    // Metrics come by their names: `digest_bytes`, `io_bytes`.
    for (function, metric, column) in [("EVP_DigestUpdate", 0, 2), ("read", 1, 3), ("write", 1, 3)] {
        let calls = calls_of(&recording, region(&recording, function), "interposed.so");
        for (call, told) in calls.zip(&told[function]).filter(|(call, _)| call.is_timed()) {
            let truth: i64 = told[column].1.parse().unwrap();
            assert_eq!(recording.readings(call)[metric].inclusive, truth.max(0).cast_unsigned(), "{told:?}");
        }
    }
}
