//! Files that change while they are traced get no probes at places that mean something else now.

use std::path::PathBuf;
use std::process::Command;
use std::{fs, thread};

use rtrace_model::EventKind;
use tempfile::TempDir;

use crate::common::rtrace;
use crate::common::skip::Turn;
use crate::common::target::compile_text;

/// Prints what its library's only function gives.
const PROGRAM: &str = r#"#include <stdio.h>
    long f(void); int main(void) { printf("%lx\n", f()); return 0; }"#;

/// The function, at a place where the other library has the first byte of a number.
const LIBRARY: &str = r#"asm(".globl f; .type f, @function; .p2align 4; f: push %rbp; mov $5, %eax; pop %rbp; ret;"
    ".size f, . - f");"#;
const OTHER: &str = r#"asm(".globl f; .type f, @function; .p2align 4; .skip 14, 0x90; f: movabs $0x1122334455667788, %rax;"
    "ret; .size f, . - f");"#;

/// A program with its library beside it, and another library of the same name for it.
struct Changing {
    folder: TempDir,
}

impl Changing {
    fn new() -> Changing {
        let folder = TempDir::new().unwrap();
        let compile = |source: &str, output: &str, flags: &[&str]| compile_text(folder.path(), source, output, flags);
        let library = ["-shared", "-Wl,-soname,libchanging.so"];
        compile(OTHER, "other.so", &library);
        compile(LIBRARY, "libchanging.so", &library);
        let here = format!("-L{}", folder.path().display());
        compile(PROGRAM, "program", &[&here, "-lchanging", "-Wl,-rpath,$ORIGIN"]);
        Changing { folder }
    }

    fn library(&self) -> PathBuf {
        self.folder.path().join("libchanging.so")
    }

    /// A command in the folder.
    fn script(&self, script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("cd {}; {script}", self.folder.path().display())]);
        command
    }
}

#[test]
fn between_two_programs() {
    let Some(_turn) = Turn::take() else { return };
    let changing = Changing::new();
    let options = ["--lib".to_owned(), changing.library().display().to_string()];
    // The last is forked before the change, and executes its program after it.
    let script = changing.script(
        "mkfifo pipe; (read _ < pipe; ./program) & ./program; cat other.so > libchanging.so; ./program; echo > pipe; wait",
    );
    let (output, recording) = rtrace::run(&options, &script);
    let told = String::from_utf8_lossy(&output.stdout);
    assert_eq!(told, "5\n1122334455667788\n1122334455667788\n", "{}", String::from_utf8_lossy(&output.stderr));
    let is_blind = |event: &&EventKind| matches!(event, EventKind::BlindWindow { .. });
    let blind = recording.events().iter().filter(is_blind).count();
    assert!(blind >= 2, "two programs with a changed library: {:?}", recording.events());
    assert_eq!(recording.calls().count(), 1, "that of the first program");
}

#[test]
fn while_it_is_looked_at() {
    let Some(_turn) = Turn::take() else { return };
    let changing = Changing::new();
    let (library, other) = (changing.library(), fs::read(changing.folder.path().join("other.so")).unwrap());
    let spare = changing.folder.path().join("spare");
    let is_over = std::sync::atomic::AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                fs::write(&spare, &other).unwrap();
                fs::rename(&spare, &library).unwrap();
            }
        });
        let output = rtrace::command()
            .args(["run", "--no-tui", "--lib"])
            .arg(&library)
            .arg("-o")
            .arg(changing.folder.path().join("trace"))
            .arg("--")
            .arg(changing.folder.path().join("program"))
            .output()
            .unwrap();
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{told}");
        assert!(told.contains("libchanging.so`: it was changed or replaced while rtrace looked at it"), "{told}");
        assert!(output.stdout.is_empty(), "the program has not run");
    });
}
