//! Names, ways of linking, and libraries that come and go.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use rtrace_model::EventKind;
use tempfile::TempDir;

use crate::common::rtrace::{Attached, Waiting};
use crate::common::scenario::Scenario;
use crate::common::skip::{Turn, installed};
use crate::common::target::{Flavour, compile_text};

/// Loads the library at a path, early or late, and calls its only function.
const LOADER: &str = r#"
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int (*function)(void), i;
    void *library = strcmp(argv[1], "early") ? NULL : dlopen(argv[2], RTLD_NOW);

    printf("ready %d\n", getpid());
    fflush(stdout);
    getchar();
    if (!library) {
        library = dlopen(argv[2], RTLD_NOW);
        printf("loaded\n");
        fflush(stdout);
        getchar();
    }
    function = library ? (int (*)(void))dlsym(library, "known") : NULL;
    for (i = 0; function && i < 10; i++)
        function();
    return !function;
}
"#;

/// A library in a file of another name than its own, to which links lead from beside it and from elsewhere.
fn renamed() -> TempDir {
    let folder = TempDir::new().unwrap();
    let compile = |source: &str, output: &str, flags: &[&str]| compile_text(folder.path(), source, output, flags);
    for sub in ["files", "links"] {
        fs::create_dir(folder.path().join(sub)).unwrap();
    }
    let flags = ["-shared", "-fPIC", "-Wl,-soname,libknown.so.0"];
    compile("int known(void) { return 1; }", "files/real-0.3.so", &flags);
    compile(LOADER, "loader", &["-ldl"]);
    symlink("real-0.3.so", folder.path().join("files/alias")).unwrap();
    symlink("../files/real-0.3.so", folder.path().join("links/libknown.so.0")).unwrap();
    folder
}

fn loader(folder: &Path, when: &str) -> Command {
    let mut command = Command::new(folder.join("loader"));
    command.arg(when).arg(folder.join("links/libknown.so.0"));
    command
}

fn options(library: &str) -> Vec<String> {
    ["--lib", library, "--func", "known"].map(str::to_owned).to_vec()
}

#[test]
fn aliases_are_one_region_with_all_names() {
    let Some(recording) = Scenario::new("names", "aliases").run() else { return };
    let symbols = |name: &str| {
        let region = recording.regions().iter().find(|region| region.name == name).expect("the region is there");
        region.symbols.iter().map(|symbol| symbol.symbol.clone()).collect::<Vec<_>>()
    };
    assert_eq!(symbols("work"), ["work", "work_alias"]);
}

#[test]
fn versions_of_one_name_are_two_regions() {
    Scenario::new("names", "versions").run();
}

#[test]
fn code_without_a_type_is_traced_where_the_program_calls_it() {
    let Some(recording) = Scenario::new("names", "untyped").run() else { return };
    assert!(recording.regions().iter().any(|region| region.name == "untyped"));
    assert!(recording.regions().iter().all(|region| region.name != "untyped_table"));
}

#[test]
fn an_ifunc_is_the_function_that_was_chosen() {
    Scenario::new("names", "ifunc").attach();
}

#[test]
fn stripped_library() {
    Scenario::new("shapes", "nested").flavour(Flavour::Stripped).run();
}

#[test]
fn files_without_section_headers() {
    for (program, scenario) in
        [("shapes", "nested"), ("names", "versions"), ("exceptions", "destructors"), ("jumps", "long_jumps")]
    {
        Scenario::new(program, scenario).flavour(Flavour::Sectionless).run();
    }
}

#[test]
fn static_program() {
    Scenario::new("shapes", "nested").flavour(Flavour::Static).run();
}

#[test]
fn functions_of_a_stripped_program() {
    Scenario::new("shapes", "branches").flavour(Flavour::Exporting).run();
}

#[test]
fn library_loaded_again_and_again() {
    Scenario::new("loading", "reopen").run();
}

#[test]
fn a_library_has_the_name_that_programs_know_it_by() {
    let Some(_turn) = Turn::take().filter(|_| installed(&["cc"])) else { return };
    let folder = renamed();
    let link = folder.path().join("links/libknown.so.0");
    for name in ["libknown.so.0", "libknown", "libk*.so.?", "alias", "real-0.3.so", link.to_str().unwrap()] {
        let mut waiting = Waiting::start(&mut loader(folder.path(), "early"));
        let attached = Attached::start(waiting.pid(), &options(name));
        waiting.go();
        assert!(waiting.finish().status.success());
        let (output, recording) = attached.finish();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(recording.calls().count(), 10, "{name}: {said}");
        let is_file = |event: &EventKind| matches!(event, EventKind::Attached { library, .. } if library.ends_with("files/real-0.3.so"));
        assert!(recording.events().iter().any(is_file), "{name}: {said}");
    }
}

#[test]
fn a_library_that_is_loaded_later_has_it_too() {
    let Some(_turn) = Turn::take().filter(|_| installed(&["cc"])) else { return };
    let folder = renamed();
    let mut waiting = Waiting::start(&mut loader(folder.path(), "late"));
    // The C library is there before.
    let both = ["--func", "getppid"].map(str::to_owned);
    let attached = Attached::start(waiting.pid(), &[options("lib[ck]*.so.?"), both.to_vec()].concat());
    waiting.go();
    assert_eq!(waiting.line(), "loaded\n");
    attached.wait_for(|event| matches!(event, EventKind::BlindWindow { .. }));
    waiting.go();
    assert!(waiting.finish().status.success());
    let (output, recording) = attached.finish();
    assert_eq!(recording.calls().count(), 10, "{}", String::from_utf8_lossy(&output.stderr));
}
