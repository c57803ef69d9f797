//! What is said of a call is true of the moment it was made, names are any bytes, and what has one name is told apart.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use rtrace_exporters::TraceSet;
use rtrace_model::{Ending, RegionId};
use tempfile::TempDir;

use crate::common::recording::Recording;
use crate::common::rtrace::{self, Attached, Waiting};
use crate::common::skip::{Turn, installed};
use crate::common::target::compile_text;

/// A library with one function, and a program that calls it.
const WORK: &str = "long work(long x) { __asm__ volatile(\"\"); return x + 1; }";
const CALLS: &str = "long work(long); int main(void) { for (int i = 0; i < 9; i++) work(i); return 0; }";

/// Two libraries of the same layout are loaded again and again, each at the address of the other.
const PLUGIN: &str = "
long NAME_one(long x) { __asm__ volatile(\"\"); return x + 1; }
long NAME_two(long x) { __asm__ volatile(\"\"); return NAME_one(x) + NAME_one(x + 1); }";
const LOADER: &str = r#"
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    const char *order = "abaabbab";
    char file[16], name[16];
    (void)argv;
    if (argc > 1) {
        printf("ready %d\n", getpid());
        fflush(stdout);
        getchar();
    }
    for (int round = 0; order[round]; round++) {
        sprintf(file, "./lib%c.so", order[round]);
        sprintf(name, "%c_two", order[round]);
        void *library = dlopen(file, RTLD_NOW);
        long (*function)(long) = (long (*)(long))dlsym(library, name);
        for (int i = 0; i < 20; i++)
            function(i);
        dlclose(library);
        usleep(20000);
    }
    return 0;
}
"#;

fn compile(folder: &Path, source: &str, output: impl AsRef<OsStr>, flags: &[&str]) {
    compile_text(folder, source, "output", flags);
    std::fs::rename(folder.join("output"), folder.join(output.as_ref())).unwrap();
}

fn options(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

fn plugins() -> TempDir {
    let folder = TempDir::new().unwrap();
    for name in ["a", "b"] {
        let flags = ["-O1", "-fno-inline", "-shared", "-fPIC"];
        compile(folder.path(), &PLUGIN.replace("NAME", name), format!("lib{name}.so"), &flags);
    }
    compile(folder.path(), LOADER, "loader", &[]);
    folder
}

/// The functions that call each function, with the number of calls; by the name of the function of the call site.
fn callers(recording: &Recording) -> BTreeMap<(String, String), usize> {
    let mut callers = BTreeMap::new();
    let name = |id: RegionId| recording.regions().iter().find(|region| region.id == id).unwrap().name.clone();
    for call in recording.calls().filter(|call| name(call.region).ends_with("_one")) {
        let site = &recording.call_sites()[call.call_site.expect("it was read").index()];
        let caller = site.function.clone().unwrap_or_else(|| site.to_string());
        *callers.entry((name(call.region), caller)).or_default() += 1;
    }
    callers
}

fn expected() -> BTreeMap<(String, String), usize> {
    ["a", "b"].map(|of| ((format!("{of}_one"), format!("{of}_two")), 160)).into()
}

#[test]
fn calls_come_from_the_code_that_was_mapped_then() {
    let Some(_turn) = Turn::take().filter(|_| installed(&["cc"])) else { return };
    let folder = plugins();
    let libraries = ["a", "b"].map(|name| folder.path().join(format!("lib{name}.so")).display().to_string());
    let options = options(&["--lib", &libraries[0], "--lib", &libraries[1]]);
    let mut loader = Command::new(folder.path().join("loader"));
    let script = "cd \"$0\" && exec ./loader";
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).arg(folder.path());
    let (output, recording) = rtrace::run(&options, &shell);
    assert_eq!(callers(&recording), expected(), "{}", String::from_utf8_lossy(&output.stderr));

    let mut waiting = Waiting::start(loader.current_dir(folder.path()));
    let attached = Attached::start(waiting.pid(), &options);
    waiting.go();
    assert!(waiting.finish().status.success());
    let (output, recording) = attached.finish();
    let said = String::from_utf8_lossy(&output.stderr);
    let (found, expected) = (callers(&recording), expected());
    // Calls before the probes are in place are missing.
    assert!(found.keys().all(|key| expected.contains_key(key)), "{found:?} {said}");
    assert!(found.values().sum::<usize>() >= 160, "{found:?} {said}");
    assert!(!said.contains("cannot be probed"), "{said}");
}

#[test]
fn processes_are_traced_whatever_they_call_themselves() {
    let source = "#include <stdio.h>\n#include <sys/prctl.h>\n#include <unistd.h>\nlong work(long);\n\
        int main(int argc, char **argv) { prctl(PR_SET_NAME, argv[argc - 2]); printf(\"ready %d\\n\", getpid()); fflush(stdout);\n\
        getchar(); for (int i = 0; i < 50; i++) work(i); return 0; }";
    let Some(_turn) = Turn::take().filter(|_| installed(&["cc"])) else { return };
    let folder = TempDir::new().unwrap();
    compile(folder.path(), WORK, "libwork.so", &["-O1", "-shared", "-fPIC"]);
    let library = folder.path().join("libwork.so").display().to_string();
    compile(folder.path(), source, "program", &[&library]);
    for name in [&b"a\xe6\xbc\xa2\xe5"[..], b"\xff\xfe", b") Z 1 (", b"a\nb) S 1"] {
        let mut waiting = Waiting::start(Command::new(folder.path().join("program")).arg(OsStr::from_bytes(name)));
        let attached = Attached::start(waiting.pid(), &options(&["--lib", "libwork.so"]));
        waiting.go();
        assert!(waiting.finish().status.success());
        assert_eq!(attached.finish().1.calls().count(), 50, "{name:?}");
    }
}

#[test]
fn files_are_found_whatever_their_names() {
    let Some(_turn) = Turn::take().filter(|_| installed(&["cc"])) else { return };
    let folder = TempDir::new().unwrap();
    let (program, library) = (OsStr::from_bytes(b"m\xff"), OsStr::from_bytes(b"libw\xfe.so"));
    compile(folder.path(), WORK, library, &["-O1", "-shared", "-fPIC"]);
    std::fs::copy(folder.path().join(library), folder.path().join("libplain.so")).unwrap();
    let mut linking = Command::new("cc");
    std::fs::write(folder.path().join("calls.c"), CALLS).unwrap();
    linking.current_dir(folder.path()).arg("calls.c").arg("-o").arg(program);
    assert!(linking.arg(folder.path().join(library)).status().unwrap().success());
    let path = folder.path().join(library);
    for named in [path.as_os_str().to_owned(), OsString::from("libw\\xfe.so"), OsString::from("exe")] {
        let trace = folder.path().join(OsStr::from_bytes(b"t\xfd"));
        let mut command = rtrace::command();
        command.args(["run", "--no-tui", "--lib"]).arg(&named).arg("-o").arg(&trace).arg("--");
        let output = command.arg(folder.path().join(program)).stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{named:?}: {}", String::from_utf8_lossy(&output.stderr));
        let set = TraceSet::open(&trace).unwrap();
        let library = set.libraries()[0].name();
        let (expected, calls) = if named == "exe" { ("m\\xff", 1) } else { ("libw\\xfe.so", 9) };
        assert_eq!((library, set.summary().map(|summary| summary.calls)), (expected, Some(calls)));
        assert!(set.processes().iter().any(|process| process.executable.ends_with("/m\\xff")));
        std::fs::remove_dir_all(trace).unwrap();
    }
}

#[test]
fn a_recorder_in_a_time_namespace_has_the_clock_of_the_kernel() {
    let source = "#include <stdio.h>\n#include <unistd.h>\n__attribute__((noinline)) void block(void) { getchar(); __asm__ volatile(\"\"); }\n\
        int main(void) { printf(\"ready %d\\n\", getpid()); fflush(stdout); getchar(); block(); usleep(1); return 0; }";
    let Some(_turn) = Turn::take().filter(|_| installed(&["cc", "unshare"])) else { return };
    if !Path::new("/proc/self/ns/time").exists() {
        return println!("skipped: this kernel has no time namespaces");
    }
    let folder = TempDir::new().unwrap();
    compile(folder.path(), source, "program", &["-O1"]);
    for offset in ["86400", "-3"] {
        let trace = folder.path().join(format!("trace{offset}"));
        let mut waiting = Waiting::start(&mut Command::new(folder.path().join("program")));
        let mut command = Command::new("unshare");
        command.args(["--time", "--fork", "--monotonic", offset, env!("CARGO_BIN_EXE_rtrace"), "attach", "--no-tui"]);
        command.args(rtrace::ALL_CALLS);
        command.args(["-p", &waiting.pid().to_string(), "--lib", "exe", "--func", "block", "--duration", "2s", "-o"]);
        let recorder = command.arg(&trace).stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let is_armed = || {
            rtrace_exporters::Trace::open(&trace).is_ok_and(|trace| {
                trace.events().flatten().flatten().any(|event| event.kind == rtrace_model::EventKind::Armed)
            })
        };
        while !is_armed() {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        waiting.go();
        let output = recorder.wait_with_output().unwrap();
        let recording = Recording::open(&trace);
        let calls: Vec<_> = recording.calls().collect();
        assert_eq!(calls.len(), 1, "{}", String::from_utf8_lossy(&output.stderr));
        let lasted = calls[0].duration.unwrap_or_default();
        assert!(calls[0].ending == Ending::Open && (1_000_000..60_000_000_000).contains(&lasted), "{lasted}");
        waiting.go();
        assert!(waiting.finish().status.success());
    }
}

#[test]
fn versions_of_a_symbol_are_told_apart_and_selected() {
    let source = "__attribute__((noinline)) long c1(long x) { __asm__ volatile(\"\"); return x + 1; }\n\
        __attribute__((noinline)) long c2(long x) { __asm__ volatile(\"\"); return x + 2; }\n\
        __asm__(\".symver c1,calc@VER_1\\n.symver c2,calc@@VER_2\");";
    let calls = "#define _GNU_SOURCE\n#include <dlfcn.h>\nlong calc(long); int main(void) {\n\
        long (*old)(long) = (long (*)(long))dlvsym(RTLD_DEFAULT, \"calc\", \"VER_1\");\n\
        for (int i = 0; i < 99; i++) calc(i); for (int i = 0; i < 40; i++) old(i); return 0; }";
    let Some(_turn) = Turn::take().filter(|_| installed(&["cc"])) else { return };
    let folder = TempDir::new().unwrap();
    let script = folder.path().join("versions");
    std::fs::write(&script, "VER_1 { global: calc; local: *; };\nVER_2 { global: calc; } VER_1;\n").unwrap();
    let script = format!("-Wl,--version-script={}", script.display());
    compile(folder.path(), source, "libversions.so", &["-O1", "-shared", "-fPIC", &script]);
    let library = folder.path().join("libversions.so").display().to_string();
    compile(folder.path(), calls, "program", &[&library, "-ldl"]);
    let count = |more: &[&str]| {
        let options = [&["--lib", library.as_str()], more].concat();
        let program = Command::new(folder.path().join("program"));
        let (_, recording) = rtrace::run(&self::options(&options), &program);
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for call in recording.calls() {
            let region = recording.regions().iter().find(|region| region.id == call.region).unwrap();
            *counts.entry(region.name.clone()).or_default() += 1;
        }
        counts.into_iter().collect::<Vec<_>>()
    };
    let (old, new) = (("calc@VER_1".to_owned(), 40), ("calc@@VER_2".to_owned(), 99));
    assert_eq!(count(&[]), [new.clone(), old.clone()]);
    assert_eq!(count(&["--func", "calc"]), [new.clone(), old.clone()]);
    assert_eq!(count(&["--func", "calc@VER_1"]), [old]);
    assert_eq!(count(&["--func", "calc@@*"]), [new]);
}

#[test]
fn libraries_of_one_name_are_told_apart() {
    let calls = "#include <dlfcn.h>\nint main(int argc, char **argv) { for (int v = 1; v < argc; v++) {\n\
        void *library = dlopen(argv[v], RTLD_NOW); long (*work)(long) = (long (*)(long))dlsym(library, \"work\");\n\
        for (int i = 0; i < 10 * v; i++) work(i); } return 0; }";
    let Some(_turn) = Turn::take().filter(|_| installed(&["cc"])) else { return };
    let folder = TempDir::new().unwrap();
    let libraries = ["v1", "v2"].map(|version| {
        std::fs::create_dir(folder.path().join(version)).unwrap();
        let name = format!("{version}/libwork.so.1");
        compile(folder.path(), &WORK.replace('1', &version[1..]), &name, &["-O1", "-shared", "-fPIC"]);
        folder.path().join(name).display().to_string()
    });
    compile(folder.path(), calls, "program", &["-ldl"]);
    let options = options(&["--lib", &libraries[0], "--lib", &libraries[1]]);
    let trace = folder.path().join("trace");
    rtrace::record(&options, Command::new(folder.path().join("program")).args(&libraries), &trace);
    let set = TraceSet::open(&trace).unwrap();
    let names: Vec<&str> = set.libraries().iter().map(|library| library.name()).collect();
    assert_eq!(names, ["v1/libwork.so.1", "v2/libwork.so.1"]);
    let mut functions: Vec<_> = set.regions().iter().map(|region| set.function(region.id).unwrap()).collect();
    functions.sort_unstable();
    assert_eq!(functions, ["work [v1/libwork.so.1]", "work [v2/libwork.so.1]"]);
    let export = |format: &str| {
        let output = rtrace::command().args(["export", "--format", format, "-o", "-"]).arg(&trace).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(export("csv").contains(",v1/libwork.so.1,work,") && export("csv").contains(",v2/libwork.so.1,work,"));
}
