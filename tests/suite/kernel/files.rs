//! Files as they come: huge, stripped, with long names, with functions that are chosen when they are loaded.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use rtrace_exporters::Trace;
use tempfile::TempDir;

use crate::common::recording::Recording;
use crate::common::rtrace;
use crate::common::skip::Turn;

/// Writes these files into a new folder, and runs the commands there.
fn built(files: &[(&str, &str)], commands: &str) -> TempDir {
    let folder = TempDir::new().unwrap();
    files.iter().for_each(|(name, text)| fs::write(folder.path().join(name), text).unwrap());
    let status = Command::new("sh").args(["-ec", commands]).current_dir(&folder).status().unwrap();
    assert!(status.success(), "{commands}");
    folder
}

/// `rtrace` in a folder, by a shell, with its binary as `$R`.
fn shell(folder: &Path, script: &str) -> Output {
    let binary = rtrace::command().get_program().to_owned();
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).current_dir(folder).env("R", binary).env("XDG_CONFIG_HOME", "/nonexistent");
    shell.output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Calls by function.
fn calls(folder: &Path) -> BTreeMap<String, u64> {
    counts(&Recording::open(&folder.join("t")))
}

fn counts(recording: &Recording) -> BTreeMap<String, u64> {
    let by_region = recording.calls_by_region();
    let called =
        recording.regions().iter().filter_map(|region| Some((region.name.clone(), *by_region.get(&region.id)?)));
    called.filter(|(_, count)| *count > 0).collect()
}

const WORK: &str = "long work(long x) { __asm__ volatile(\"\"); return x + 1; }";
const NINE: &str = "long work(long); int main(void) { for (int i = 0; i < 9; i++) work(i); }";

/// Probes and open files in what a program has mounted do not keep it from unmounting that.
#[test]
fn a_file_system_with_probes_can_be_unmounted() {
    const SCRIPT: &str =
        "set -e; mkdir m s; cp nine libwork.so s; $1 m; cp s/* m || true; m/nine; m/nine; umount m; rmdir m";
    let Some(_turn) = Turn::take() else { return };
    for mount in ["mount -t tmpfs x", "mount --bind s"] {
        let build = "gcc -O1 -shared -fPIC -o libwork.so w.c; gcc -o nine m.c -L. -lwork -Wl,-rpath,'$ORIGIN'";
        let folder = built(&[("w.c", WORK), ("m.c", NINE), ("s.sh", SCRIPT)], build);
        for library in ["libwork.so", "libc.so.6"] {
            let command =
                format!("unshare -m $R run --no-tui --lib {library} -o t -- sh -c \"sh s.sh '{mount}'\" && rm -r s t");
            let output = shell(folder.path(), &command);
            assert!(output.status.success(), "{mount} {library}: {}", said(&output));
        }
    }
}

/// The implementation that a resolver chooses has its probe before it is called first: by `run`, and by `attach` before
/// the first call of a program that binds lazily.
#[test]
fn an_ifunc_is_recorded_from_its_first_call() {
    let Some(_turn) = Turn::take() else { return };
    let library = "#include <stdlib.h>
        static __attribute__((noinline)) long fast(long x) { __asm__ volatile(\"\"); return x + 1; }
        static __attribute__((noinline)) long slow(long x) { __asm__ volatile(\"\"); return x + 1; }
        static long (*pick(void))(long) { __builtin_cpu_init(); return __builtin_cpu_supports(\"sse2\") ? fast : slow; }
        long ifn(long) __attribute__((ifunc(\"pick\")));
        long plain(long x) { __asm__ volatile(\"\"); return ifn(x) + 1; }";
    let program = "#include <stdio.h>
        long plain(long); int main(int n, char **v) { if (n > 1) { puts(\"ready \"); fflush(stdout); getchar(); }
        for (int i = 0; i < 50; i++) plain(i); }";
    for flags in ["-O1 -Wl,-z,lazy", "-O2 -Wl,-z,now", "-O0 -fno-plt"] {
        let commands = format!("gcc {flags} -shared -fPIC -o libi.so i.c; gcc -o m m.c ./libi.so -Wl,-rpath,$PWD");
        let folder = built(&[("i.c", library), ("m.c", program)], &commands);
        let output = shell(folder.path(), "$R run --strict --no-tui --lib ./libi.so -o t -- ./m");
        assert!(output.status.success(), "{flags}: {}", said(&output));
        let truth = BTreeMap::from([("ifn".to_owned(), 50), ("plain".to_owned(), 50)]);
        assert_eq!(calls(folder.path()), truth, "{flags}");
        let mut waiting = rtrace::Waiting::start(Command::new("./m").current_dir(&folder));
        let library = folder.path().join("libi.so").display().to_string();
        let attached = rtrace::Attached::start(waiting.pid(), &["--lib".to_owned(), library]);
        waiting.go();
        waiting.finish();
        let (_, recording) = attached.finish();
        assert_eq!(counts(&recording), truth, "attach, {flags}");
    }
}

/// A file that is long for what nobody needs to trace it takes neither memory nor time, whatever its length.
#[test]
fn a_huge_file_takes_no_memory() {
    let Some(_turn) = Turn::take() else { return };
    let commands = "gcc -O1 -shared -fPIC -o libbig.so w.c; gcc -o m m.c ./libbig.so; truncate -s 5G libbig.so";
    let folder = built(&[("w.c", WORK), ("m.c", NINE)], commands);
    // Whatever is read of the file would not fit.
    let script = "ulimit -v 4000000; $R run --strict --no-tui --lib ./libbig.so -o t -- ./m";
    let output = shell(folder.path(), script);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(calls(folder.path()), BTreeMap::from([("work".to_owned(), 9)]));
}

/// Symbols are found where debuggers find them, and only those of the same build.
#[test]
fn a_stripped_program_has_the_symbols_of_its_debug_file() {
    let Some(_turn) = Turn::take() else { return };
    let source = "static __attribute__((noinline)) long hidden(long x) { __asm__ volatile(\"\"); return x + 1; }
        int main(void) { for (int i = 0; i < 9; i++) hidden(i); }";
    let kept = "objcopy --only-keep-debug full a.debug; objcopy -S full a; objcopy --add-gnu-debuglink=a.debug a";
    for (flags, place) in [
        ("-g", "true"),
        ("-g -static", "true"),
        ("-Wl,--build-id=none -no-pie", "true"),
        ("-Wl,--build-id=none", "mkdir .debug; mv a.debug .debug"),
    ] {
        let folder = built(&[("s.c", source)], &format!("gcc -O1 {flags} -o full s.c; {kept}; {place}"));
        let output = shell(folder.path(), "$R run --strict --no-tui --lib exe --func hidden -o t -- ./a");
        assert!(output.status.success(), "{flags}: {}", said(&output));
        assert_eq!(calls(folder.path()), BTreeMap::from([("hidden".to_owned(), 9)]), "{flags}");
        // The file of another build is none.
        let other = "echo x >>a.debug; echo x >>.debug/a.debug; objcopy --remove-section=.note.gnu.build-id a; \
                     $R plan --lib exe -- ./a";
        let output = shell(folder.path(), other);
        assert!(!output.status.success() && said(&output).contains("a.debug"), "{flags}: {}", said(&output));
    }
}

/// Names may be longer than anybody reads.
#[test]
fn functions_with_long_names_are_recorded() {
    let Some(_turn) = Turn::take() else { return };
    let (first, second) = ("k".repeat(20_000), format!("{}z", "k".repeat(20_000)));
    let function =
        |name: &str| format!("__attribute__((noinline)) long {name}(long x) {{ __asm__ volatile(\"\"); return x; }}\n");
    let main = format!("int main(void) {{ for (int i = 0; i < 9; i++) {first}(i); {second}(1); }}");
    let source = [function(&first), function(&second), main].concat();
    let folder = built(&[("k.c", &source)], "gcc -O1 -o k k.c");
    let output = shell(folder.path(), "$R run --strict --no-tui --lib exe --func 'kkk*' -o t -- ./k");
    assert!(output.status.success(), "{}", said(&output));
    let calls = calls(folder.path());
    let mut counts: Vec<u64> = calls.values().copied().collect();
    counts.sort_unstable();
    assert_eq!(counts, [1, 9]);
    assert!(calls.keys().all(|name| name.starts_with("kkkk") && name.contains('…') && name.len() < 2_000));
}

/// The trace itself says that it ends because the disk was full, and what is missing.
#[test]
fn a_trace_says_that_the_disk_was_full() {
    let Some(_turn) = Turn::take() else { return };
    let many = NINE.replace("i < 9", "i < 400000");
    let commands = "gcc -O1 -shared -fPIC -o libw.so w.c; gcc -o m m.c ./libw.so";
    let folder = built(&[("w.c", WORK), ("m.c", &many)], commands);
    let limits = [
        "mkdir d; mount -t tmpfs -o size=400k tmpfs d; $R run --no-tui --lib ./libw.so -o d/t -- ./m; s=$?; cp -a d/t t; umount d; exit $s",
        "rm -rf t; ulimit -f 64; exec $R run --no-tui --lib ./libw.so -o t -- ./m",
    ];
    for script in limits {
        let output = shell(folder.path(), script);
        assert_eq!(output.status.code(), Some(1), "{script}: {}", said(&output));
        let trace = Trace::open(&folder.path().join("t")).unwrap();
        let warning = trace.warnings().first().map(ToString::to_string).unwrap_or_default();
        let is_told =
            trace.has_failed() && warning.contains("recording stopped after") && warning.contains("missing (");
        assert!(is_told, "{script}: {warning:?}, {}", said(&output));
        let report = shell(folder.path(), "$R report t; $R info t");
        let text = String::from_utf8_lossy(&report.stdout);
        assert_eq!(text.matches("recording stopped after").count(), 2, "{text}");
        assert!(!text.contains("last second"), "{text}");
    }
}

/// What a command maps before it executes its program is of rtrace, and code of the kernel is no library: nothing is missing
/// there, whatever the pattern.
#[test]
fn a_pattern_that_matches_all_names_libraries_of_the_program() {
    let Some(_turn) = Turn::take() else { return };
    let folder = built(&[], "true");
    let output = shell(folder.path(), "$R run --no-tui --lib '*' -o t -- true");
    let trace = Trace::open(&folder.path().join("t")).unwrap();
    let libraries: Vec<_> = trace.libraries().iter().map(|library| &library.path).collect();
    assert_eq!(trace.summary().unwrap().blind_windows, 0, "{}", said(&output));
    assert!(libraries.iter().any(|path| path.contains("libc.so")), "{libraries:?}");
    assert!(!libraries.iter().any(|path| path.contains("rtrace") || path.contains('[')), "{libraries:?}");
    assert!(output.status.success(), "{}", said(&output));
}

/// A library that only a wrapper's environment leads to is waited for; what hints say can be done.
#[test]
fn a_library_that_a_wrapper_chooses_is_waited_for() {
    let Some(_turn) = Turn::take() else { return };
    let source = "long sp(long x) { __asm__ volatile(\"\"); return x + VERSION; }";
    let program =
        "#include <unistd.h>\nlong sp(long); int main(void) { for (int i = 0; i < 9; i++) { sp(i); usleep(50000); } }";
    let commands =
        "mkdir v1 v2; for v in 1 2; do gcc -O1 -DVERSION=$v -shared -fPIC -Wl,-soname,libsp.so.1 -o v$v/libsp.so.1 s.c; done
        gcc -o m m.c v1/libsp.so.1; printf '#!/bin/sh\\nLD_LIBRARY_PATH=v2 exec ./m\\n' >w; chmod +x w";
    let folder = built(&[("s.c", source), ("m.c", program)], commands);
    let output = shell(folder.path(), "$R run --no-tui --lib libsp.so.1 -o t -- ./w");
    assert!(output.status.success() && said(&output).contains("`libsp.so.1`"), "{}", said(&output));
    let recorded = calls(folder.path()).get("sp").copied().unwrap_or_default();
    let is_marked = Trace::open(&folder.path().join("t")).unwrap().summary().unwrap().blind_windows > 0;
    assert!(recorded > 0 && (recorded == 9 || is_marked), "{recorded}, {}", said(&output));

    let other = shell(folder.path(), "$R run --no-tui --lib ./v1/libsp.so.1 -o other -- ./w");
    let hint = said(&other);
    let (_, hint) = hint.split_once(": `").unwrap_or_else(|| panic!("{hint}"));
    let (option, _) = hint.split_once('`').unwrap();
    let again = shell(folder.path(), &format!("rm -rf t; $R run --no-tui {option} -o t -- ./w"));
    assert!(again.status.success(), "{option}: {}", said(&again));
    assert!(calls(folder.path()).get("sp").is_some_and(|&calls| calls > 0), "{option}: {}", said(&again));
}

/// A misspelt trigger ends the command before it begins.
#[test]
fn a_trigger_that_no_call_can_meet_is_refused() {
    let Some(_turn) = Turn::take() else { return };
    let commands = "gcc -O1 -shared -fPIC -o libw.so w.c; gcc -o m m.c ./libw.so";
    let folder =
        built(&[("w.c", WORK), ("m.c", &NINE.replace("work(i); }", "work(i); write(1, \"ran\", 3); }"))], commands);
    let record = |trigger: &str| {
        shell(folder.path(), &format!("$R run --no-tui --lib ./libw.so --keep 1s --trigger '{trigger}' -o t -- ./m"))
    };
    let output = record("wrok > 1ms");
    let wanted = "rtrace: no traced function matches the trigger `wrok > 1ms`\n\nhint: did you mean `work`?\n";
    assert_eq!((output.status.code(), said(&output).as_str()), (Some(1), wanted));
    assert!(output.stdout.is_empty(), "it has run");
    assert!(record("work").status.success());
}

#[test]
fn actions_say_what_came_of_them_and_never_wait() {
    let Some(_turn) = Turn::take() else { return };
    let commands = "gcc -O1 -shared -fPIC -o libw.so w.c; gcc -o m m.c ./libw.so; mkfifo pipe";
    let folder = built(&[("w.c", WORK), ("m.c", &NINE.replace("work(i); }", "work(i); usleep(50000); }"))], commands);
    let record =
        |on: &str| shell(folder.path(), &format!("$R run --no-tui --lib ./libw.so {on} -o t -- ./m; rm -rf t; cat ni"));
    // A pipe that nobody reads, a command that fails, and one that is no more urgent than the program.
    let output = record("--on work:enter '>pipe x' --on work:leave 'exit 3' --on 'w*:enter' 'ps -o ni= -p $$ >ni'");
    let told = said(&output);
    assert!(told.contains("--on work:enter: acted 0 times; failed: "), "{told}");
    assert!(told.contains("; ") && told.contains(" ended with an error"), "{told}");
    let usual = shell(folder.path(), "ps -o ni= -p $$");
    assert_eq!(output.stdout.trim_ascii(), usual.stdout.trim_ascii());
    let output = record("--on wrok:enter true");
    assert!(
        said(&output).starts_with("rtrace: no traced function matches `--on wrok:enter`\n\nhint: did you mean `work`?")
    );
}
