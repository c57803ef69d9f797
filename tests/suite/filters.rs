//! Which functions are planned, by source files and by filter files; nothing is traced.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::common::rtrace;
use crate::common::sources::{self, DEFINED};

fn plan(folder: &Path, library: &str, options: &[&str]) -> Output {
    let mut command = rtrace::command();
    command.current_dir(folder).args(["plan", "--format", "csv", "--lib", library]).args(options);
    command.args(["--", "./program"]).output().unwrap()
}

/// The functions that are planned, in the order of their names.
fn planned(folder: &Path, options: &[&str]) -> Vec<String> {
    let output = plan(folder, "./libwork.so", options);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.is_empty(), "{options:?}: {said}");
    let text = String::from_utf8(output.stdout).unwrap();
    let all = DEFINED.map(|(name, _)| name).into_iter().chain(["plain"]);
    let mut names: Vec<String> = all.filter(|name| text.contains(&format!(",{name},"))).map(str::to_owned).collect();
    names.sort_unstable();
    names
}

/// What is said instead of a plan.
fn refused(folder: &Path, library: &str, options: &[&str]) -> String {
    let output = plan(folder, library, options);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{options:?}: {said}");
    assert!(output.stdout.is_empty(), "{options:?}");
    assert_eq!(said.matches("rtrace: ").count(), 1, "{said}");
    said
}

/// The functions that are defined in such files.
fn defined(is_meant: impl Fn(&str) -> bool) -> Vec<&'static str> {
    DEFINED.iter().filter(|(_, file)| is_meant(file)).map(|(name, _)| *name).collect()
}

#[test]
fn functions_are_selected_by_the_file_of_their_definition() {
    let folder = TempDir::new().unwrap();
    sources::build(folder.path());
    let planned = |options: &[&str]| planned(folder.path(), options);
    assert_eq!(planned(&[]).len(), DEFINED.len() + 1);
    let solver = |file: &str| file.starts_with("solver/");
    assert_eq!(planned(&["--func", "src:*/solver/*"]), defined(solver));
    assert_eq!(planned(&["--func", "src:solver/*.c"]), defined(|file| file == "solver/step.c"));
    assert_eq!(planned(&["--func", "src:weigh.hpp"]), ["int weigh<int>(int)"]);
    assert_eq!(planned(&["--func", "src:re:/(io|include)/"]), ["int weigh<int>(int)", "print_all"]);
    assert_eq!(planned(&["--func", "src:*/solver/*", "--exclude", "wave*"]), ["solve_reset", "solve_step"]);
    assert_eq!(planned(&["--func", "src:io/*", "--func", "plain"]), ["plain", "print_all"]);
    let other = planned(&["--exclude", "src:solver/*"]);
    assert_eq!(other, ["int weigh<int>(int)", "plain", "print_all"], "what has no known file is not excluded by it");
}

#[test]
fn debug_information_in_a_file_of_its_own_is_found() {
    let folder = TempDir::new().unwrap();
    sources::build(folder.path());
    for arguments in [
        &["--only-keep-debug", "libwork.so", "libwork.debug"][..],
        &["--strip-debug", "--add-gnu-debuglink=libwork.debug", "libwork.so"],
    ] {
        let status = Command::new("objcopy").current_dir(folder.path()).args(arguments).status().unwrap();
        assert!(status.success());
    }
    let in_solver = defined(|file| file == "solver/step.c");
    assert_eq!(planned(folder.path(), &["--func", "src:solver/*.c"]), in_solver);
    let name = folder.path().join("libwork.debug");
    let cache = TempDir::new().unwrap();
    let output = Command::new("readelf").arg("-n").arg(folder.path().join("libwork.so")).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let id = text.split("Build ID: ").nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap();
    fs::create_dir(cache.path().join(id)).unwrap();
    fs::rename(name, cache.path().join(id).join("debuginfo")).unwrap();
    let said = refused(folder.path(), "./libwork.so", &["--func", "src:solver/*.c"]);
    assert!(said.contains("libwork.so` has no debug information\n\nhint: "), "{said}");
    assert!(said.contains(&format!("/usr/lib/debug/.build-id/{}/{}.debug", &id[..2], &id[2..])), "{said}");
    assert!(said.contains(&format!("debuginfod-find debuginfo {id}")), "{said}");
    let mut command = rtrace::command();
    command.current_dir(folder.path()).env("DEBUGINFOD_CACHE_PATH", cache.path());
    let output =
        command.args(["plan", "--lib", "./libwork.so", "--func", "src:solver/*.c", "--", "./program"]).output();
    assert!(output.unwrap().status.success());
}

#[test]
fn what_selects_nothing_names_some_files() {
    let folder = TempDir::new().unwrap();
    sources::build(folder.path());
    let said = refused(folder.path(), "./libwork.so", &["--func", "src:*/sovler/*"]);
    assert!(said.contains("no function of the libraries is left\n\nhint: their functions are defined in /"), "{said}");
    assert!(said.contains("include/weigh.hpp, ") && said.contains(" and 1 other file\n"), "{said}");
}

#[test]
fn filter_files_leave_functions_out() {
    let folder = TempDir::new().unwrap();
    sources::build(folder.path());
    let planned = |text: &str| {
        fs::write(folder.path().join("filter"), text).unwrap();
        planned(folder.path(), &["--filter", "filter"])
    };
    let regions = "SCOREP_REGION_NAMES_BEGIN\n  EXCLUDE *  # all\n  INCLUDE solve_* wave::*\n  EXCLUDE *_reset\n\
                   SCOREP_REGION_NAMES_END\n";
    assert_eq!(planned(regions), ["solve_step", "wave::spread(int)"]);
    let mangled = "SCOREP_REGION_NAMES_BEGIN EXCLUDE * INCLUDE MANGLED _ZN4wave6spreadEi SCOREP_REGION_NAMES_END\n";
    assert_eq!(planned(mangled), ["wave::spread(int)"]);
    let files = "SCOREP_FILE_NAMES_BEGIN EXCLUDE * INCLUDE */solver/*.cpp SCOREP_FILE_NAMES_END\n";
    assert_eq!(planned(files), ["wave::spread(int)", "wave_run"]);
    assert_eq!(planned(&format!("{files}{regions}")), ["wave::spread(int)"]);
    assert_eq!(planned("").len(), DEFINED.len() + 1);
}

#[test]
fn a_filter_that_cannot_be_read_is_told_with_file_and_line() {
    let folder = TempDir::new().unwrap();
    sources::build(folder.path());
    let refused = |name: &str| refused(folder.path(), "./libwork.so", &["--filter", name]);
    fs::write(folder.path().join("wrong"), "SCOREP_REGION_NAMES_BEGIN\n  EXCLUDED f\nSCOREP_REGION_NAMES_END\n")
        .unwrap();
    let said = refused("wrong");
    assert!(said.starts_with("rtrace: failed to read the filter `wrong`: line 2: `EXCLUDED` has neither"), "{said}");
    fs::write(folder.path().join("binary"), [0xff, 0xfe, b'\n']).unwrap();
    assert!(refused("binary").contains("the filter `binary`: "), "{}", refused("binary"));
    assert!(refused("missing").contains("the filter `missing`: No such file"), "{}", refused("missing"));
    fs::File::create(folder.path().join("large")).unwrap().set_len((16 << 20) + 1).unwrap();
    assert!(refused("large").contains("it is larger than 16 MB"), "{}", refused("large"));
    assert!(refused("/dev/zero").contains("neither a regular file nor a pipe"), "{}", refused("/dev/zero"));
    assert!(refused(".").contains("the filter `.`: "), "{}", refused("."));
}
