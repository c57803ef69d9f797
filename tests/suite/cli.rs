//! What the binary says and how it ends, without tracing.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Output;

use tempfile::TempDir;

use crate::common::rtrace;
use crate::common::target::{Flavour, TRUTH_FUNCTIONS, Target, compile_text};

fn rtrace(arguments: &[&str]) -> Output {
    rtrace::command().args(arguments).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn version_and_help_are_data() {
    let version = rtrace(&["--version"]);
    assert_eq!(stdout(&version), format!("rtrace {}\n", env!("CARGO_PKG_VERSION")));
    for verb in [
        "attach",
        "run",
        "libs",
        "plan",
        "report",
        "tui",
        "export",
        "diff",
        "info",
        "counters",
        "clean",
        "doctor",
        "completions",
    ] {
        let help = rtrace(&[verb, "--help"]);
        assert!(help.status.success() && stdout(&help).contains("EXAMPLES:"), "{verb}: {}", stdout(&help));
        assert_eq!(stderr(&help), "");
    }
}

/// Whether or not this user may trace.
#[test]
fn a_command_without_a_library_ends_as_it_does_itself() {
    let output = rtrace(&["run", "--", "sh", "-c", "head -c 300000 /dev/zero | wc -c; exit 3"]);
    let said = stderr(&output);
    assert_eq!((output.status.code(), stdout(&output).trim()), (Some(3), "300000"), "{said}");
    for figure in ["wall time", "CPU time", "peak memory", "page faults", "context switches", "no call was recorded"] {
        assert!(said.contains(figure), "{figure}: {said}");
    }
    let output = rtrace(&["run", "--", "/no/such/command"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("failed to run `/no/such/command`: No such file"), "{}", stderr(&output));
    let output = rtrace(&["run", "-o", "/no/such/folder/t", "--", "true"]);
    assert_eq!(output.status.code(), Some(2), "a recording needs a library: {}", stderr(&output));
}

#[test]
fn wrong_usage_ends_with_2() {
    for arguments in [
        &[][..],
        &["attach"],
        &["attach", "--lib", "x"],
        &["attach", "-p", "nginx", "--lib", "x"],
        &["libs"],
        &["run", "--lib", "libz.so"],
        &["plan", "--lib", "x"],
        &["nonsense"],
    ] {
        let output = rtrace(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stderr(&output));
        assert_eq!(stdout(&output), "", "{arguments:?}");
    }
}

#[test]
fn failures_name_what_failed_and_end_with_1() {
    let folder = TempDir::new().unwrap();
    let missing = folder.path().join("missing");
    let output = rtrace(&["report", missing.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(stdout(&output), "");
    assert!(stderr(&output).starts_with("rtrace: failed to "), "{}", stderr(&output));
    assert!(stderr(&output).contains("missing"), "{}", stderr(&output));
}

#[test]
fn a_program_that_does_not_exist_is_named() {
    let output = rtrace(&["plan", "--lib", "libz.so", "--", "/no/such/program"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("/no/such/program"), "{}", stderr(&output));
}

#[test]
fn a_process_that_does_not_run_is_named() {
    for arguments in [&["plan", "rt-nobody", "--lib", "x"][..], &["libs", "--name", "rt-nobody"]] {
        let output = rtrace(arguments);
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        let said = stderr(&output);
        assert!(said.starts_with("rtrace: failed to find a process named `rt-nobody`\n\nhint: "), "{said}");
    }
}

/// Runs rtrace with this configuration.
fn configured(text: &str, mode: u32, arguments: &[&str]) -> (Output, String) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("rtrace/config.toml");
    fs::create_dir(folder.path().join("rtrace")).unwrap();
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    let output = rtrace::command().env("XDG_CONFIG_HOME", folder.path()).args(arguments).output().unwrap();
    (output, path.display().to_string())
}

#[test]
fn defaults_come_from_a_file_and_the_command_line_decides() {
    let plan = ["plan", "--lib", "libc.so.6", "--", "/bin/true"];
    let started = |arguments: &[&str], text: &str| {
        let (output, _) = configured(text, 0o600, arguments);
        assert!(output.status.success(), "{}", stderr(&output));
        stdout(&output).chars().take(8).collect::<String>()
    };
    let csv = "[plan]\nformat = 'csv'\nfunc = ['malloc', 'free']\n[report]\nlimit = 3\n";
    assert_eq!(started(&plan, csv), "library,");
    let with = |option: &[&'static str]| [&["plan"], option, &plan[1..]].concat();
    assert!(started(&with(&["--format", "json"]), csv).starts_with("{\n"));
    assert!(started(&with(&["--no-config"]), csv).starts_with('/'));
    for help in [&["--no-config", "--version"][..], &["plan", "--help"], &["--help"]] {
        started(help, "nonsense");
    }
    let with_library = csv.replace("[plan]", "[plan]\nlib = 'libc.so.6'");
    assert_eq!(started(&["plan", "--", "/bin/true"], &with_library), "library,");
}

#[test]
fn a_mistake_in_the_file_is_named_with_its_line() {
    let (output, path) = configured("[plan]\nformat = 'xml'\n", 0o600, &["report", "nothing"]);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(2), ""));
    assert!(
        stderr(&output).contains(&format!("{path}:2: invalid value 'xml' for '--format <FORMAT>'")),
        "{}",
        stderr(&output)
    );
    assert!(stderr(&output).contains("--no-config"), "{}", stderr(&output));
}

#[test]
fn a_file_that_others_may_write_is_ignored_with_a_word() {
    let (output, path) = configured("nonsense", 0o666, &["completions", "bash"]);
    assert!(output.status.success());
    assert!(
        stderr(&output).contains(&format!("the configuration `{path}` is ignored: others may write it")),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_plan_without_a_library_that_was_asked_for_fails() {
    let output = rtrace(&["plan", "--lib", "libnowhere.so", "--", "sh", "-c", "true"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("no library `libnowhere.so` is found"), "{}", stderr(&output));
    let chrooted = ["chroot", "/nonexistent", "/prog"];
    for library in ["libnowhere.so", "/lib/libnowhere.so"] {
        let output = rtrace(&[&["plan", "--lib", library, "--"], &chrooted[..]].concat());
        assert!(stderr(&output).contains(&format!("no library `{library}` is found")), "{}", stderr(&output));
    }
    // It starts nothing, and loads no plug-ins.
    let output = rtrace(&["plan", "--lib", "libnowhere.so", "--", "true"]);
    assert!(stderr(&output).contains("failed to find library `libnowhere.so`"), "{}", stderr(&output));
    let output = rtrace(&["plan", "--lib", "libc.so.6", "--func", "nowhere_to_be_found", "--", "true"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("only exported functions are traced"), "{}", stderr(&output));
}

#[test]
fn a_plan_names_every_function() {
    let target = Target::build("shapes", Flavour::Cet);
    let output = rtrace::command()
        .args(["plan", "--verbose"])
        .args(target.selection())
        .arg("--")
        .arg(&target.program)
        .arg("nested")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    for function in TRUTH_FUNCTIONS {
        assert!(stdout(&output).contains(function), "{function} in {}", stdout(&output));
    }
}

/// A program with functions of C++, a copy that the compiler made, and a library beside it.
fn program_with_names() -> TempDir {
    let folder = TempDir::new().unwrap();
    let source = "namespace app { __attribute__((noinline)) long plain(long x) { __asm__ volatile(\"\"); return x; } }
        extern \"C\" __attribute__((noinline)) long read_all(long x) { __asm__ volatile(\"\"); return x; }
        extern \"C\" long cloned(long) __asm__(\"cloned.constprop.0\");
        extern \"C\" __attribute__((noinline)) long cloned(long x) { __asm__ volatile(\"\"); return x; }
        int main() { return app::plain(0) + read_all(0) + cloned(0); }";
    fs::write(folder.path().join("a.cpp"), source).unwrap();
    let compiled = std::process::Command::new("g++").args(["-O1", "-o", "a", "a.cpp"]).current_dir(&folder).status();
    assert!(compiled.unwrap().success());
    folder
}

/// Types that a table knows, one that it does not, one by a pointer, and a function that the header only includes.
const HEADER: &str = "\
#include <stdlib.h>
typedef unsigned short small_t;
typedef struct made *made_t;
small_t solve(const double *values, small_t count, made_t made, int (*less)(int, int));
void log_it(const char *format, ...);
static inline int inner(int x) { return x; }
";

#[test]
fn a_header_gives_a_table() {
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    fs::write(at("made.h"), HEADER).unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/table_from_header.py");
    let table = std::process::Command::new("python3").args([script, "libmade.so", &at("made.h")]).output().unwrap();
    assert!(table.status.success(), "{}", stderr(&table));
    fs::write(at("made.toml"), &table.stdout).unwrap();
    let source = "int solve(void) { return 0; } int log_it(void) { return 0; } int main(void) { return 0; }";
    compile_text(folder.path(), source, "libmade.so", &["-shared", "-fPIC"]);
    let plan = ["plan", "--lib", &at("libmade.so"), "--args-from", &at("made.toml"), "--format", "json", "--", "true"];
    let plan: serde_json::Value = serde_json::from_slice(&rtrace(&plan).stdout).unwrap();
    let said = plan.to_string();
    for column in ["\"values\"", "\"count\"", "\"made\"", "\"less\"", "\"format\""] {
        assert!(said.contains(column), "{column}: {plan:#}");
    }
    let text = stdout(&table);
    assert!(
        text.contains("small_t = \"unsigned short\"") && !text.contains("inner") && !text.contains("malloc"),
        "{text}"
    );
}

#[test]
fn a_pattern_that_matches_nothing_is_named_with_what_is_near() {
    let folder = program_with_names();
    let plan = |options: &[&str]| {
        let mut command = rtrace::command();
        command.arg("plan").args(options).args(["--", "./a"]).current_dir(&folder);
        command.output().unwrap()
    };
    let exe = |options: &[&'static str]| plan(&[&["--lib", "exe"], options].concat());
    for (pattern, near) in [
        ("raed_all", "`read_all`"),
        ("READ_ALL", "`read_all`"),
        ("app::plian", "`app::plain(long)`"),
        ("plain", "`app::plain(long)`"),
        ("app::plain(int)", "`app::plain(long)`"),
        ("clone", "`cloned.constprop.0`"),
        ("raed_*", "`read_all`"),
    ] {
        let output = exe(&["--func", pattern]);
        assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(1), ""), "{pattern}");
        let said = stderr(&output);
        let wanted = format!("rtrace: no function of `a` matches `{pattern}`\n\nhint: did you mean ");
        assert!(said.starts_with(&wanted) && said.contains(near), "{said}");
        // One that matches beside it is recorded, and the other is told.
        let output = exe(&["--func", pattern, "--func", "main"]);
        assert!(output.status.success() && stderr(&output).contains(near), "{}", stderr(&output));
        let output = exe(&["--exclude", pattern]);
        assert!(output.status.success() && stderr(&output).contains(near), "{}", stderr(&output));
    }
    for (pattern, whole) in [("app::plain", "app::plain(long)"), ("cloned", "cloned.constprop.0")] {
        let output = exe(&["--func", pattern]);
        assert!(stdout(&output).contains(whole) && stderr(&output).is_empty(), "{pattern}: {}", stderr(&output));
    }
    // What is near in another library is not what was asked for.
    for (pattern, is_near) in [("lib:exe:raed_all", true), ("lib:libc.so.6:raed_all", false)] {
        let output = plan(&["--lib", "exe", "--lib", "libc.so.6", "--func", pattern]);
        assert_eq!(stderr(&output).contains("`read_all`"), is_near, "{}", stderr(&output));
    }
    let output = exe(&["--func", "no_such_thing_at_all"]);
    assert!(stderr(&output).starts_with("rtrace: no function of `a` matches `no_such_thing_at_all`\n\nhint: "));
    let output = exe(&["--func", "main", "--exclude", "*"]);
    assert!(output.status.code() == Some(1) && stderr(&output).contains("leave no function of `a`"));
    let output = plan(&["--lib", "exe", "--lib", "libc.so.6", "--func", "app::plain"]);
    assert!(output.status.success() && stderr(&output).contains("--func selects no function of `libc.so.6`"));
}

#[test]
fn files_that_never_end_are_refused() {
    for arguments in [["--args", "--args-from=/dev/zero"], ["--filter", "/dev/zero"]] {
        let output =
            rtrace::command().args(["plan", "--lib", "exe"]).args(arguments).args(["--", "true"]).output().unwrap();
        let said = stderr(&output);
        assert!(output.status.code() == Some(1) && said.contains("neither a regular file nor a pipe"), "{said}");
    }
    let script = "\"$0\" plan --lib libc.so.6 --filter <(echo SCOREP_REGION_NAMES_BEGIN EXCLUDE '*' INCLUDE malloc; \
        sleep 0.3; echo SCOREP_REGION_NAMES_END) -- true";
    let mut shell = std::process::Command::new("bash");
    let output = shell.args(["-c", script]).arg(rtrace::command().get_program()).output().unwrap();
    assert!(output.status.success() && stdout(&output).contains("malloc"), "{}", stderr(&output));
}

#[test]
fn without_memory_one_message_says_so() {
    let limited = |kilobytes: usize| {
        let script = format!("ulimit -v {kilobytes} && exec \"$0\" plan --lib libc.so.6 -- true");
        std::process::Command::new("sh").args(["-c", &script]).arg(rtrace::command().get_program()).output().unwrap()
    };
    // How much a build needs differs: with the least it does not even start, with the most nothing is missing.
    let outputs: Vec<Output> = (40_000..200_000).step_by(20_000).map(limited).collect();
    assert!(outputs.iter().all(|output| !stderr(output).contains("backtrace")), "{outputs:?}");
    let wanted = "rtrace: failed to get memory from the system\n\nhint: raise `ulimit -v`";
    let ended_well = |output: &Output| output.status.code() == Some(1) && stderr(output).starts_with(wanted);
    assert!(outputs.iter().any(ended_well), "{outputs:?}");
}
