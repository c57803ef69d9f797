//! Programs whose code the processor does not execute where their files are mapped.
//!
//! Emulators and binary translators read the code, breakpoints included, and execute what they make of it: a
//! probe would kill the program, and see no call. Those that step through it or count its instructions would see
//! the probes. They are known by what a process maps and by who traces it; a command by the program that it
//! starts.

use std::path::{Path, PathBuf};

use rtrace_model::escape;
use rtrace_symbolizer::modules;

use crate::target::privilege;
use crate::target::proc_files::comm;

/// Targets of qemu's user mode, by which its programs are named; longer names begin with these.
const QEMU_TARGETS: &[&str] = &[
    "aarch64",
    "alpha",
    "arm",
    "cris",
    "hexagon",
    "hppa",
    "i386",
    "loongarch64",
    "m68k",
    "microblaze",
    "mips",
    "nios2",
    "or1k",
    "ppc",
    "riscv",
    "s390x",
    "sh4",
    "sparc",
    "x86_64",
    "xtensa",
];

/// What begins the name of a file that only processes under a translator map, and the translator.
const MAPPED: &[(&str, &str)] = &[
    ("vgpreload_", "valgrind"),
    ("libdynamorio.so", "DynamoRIO"),
    ("pinbin", "Pin"),
    ("libpinjitprofiling", "Pin"),
    ("librrpreload", "rr"),
    ("librrpage", "rr"),
];

/// Commands that start a program under a translator.
const COMMANDS: &[(&str, &str)] = &[("valgrind", "valgrind"), ("drrun", "DynamoRIO"), ("rr", "rr")];

/// Why a target is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A process runs under a translator.
    #[error(
        "failed to trace process {pid} (`{}`): it runs under {translator}, which does not execute its code where \
         probes are",
        escape(.name)
    )]
    Process {
        /// Process id.
        pid: u32,
        /// Its name, not escaped.
        name: String,
        /// The translator.
        translator: &'static str,
    },
    /// A command starts a program under a translator.
    #[error("failed to trace `{}`: {translator} does not execute a program's code where probes are", escape(.command))]
    Command {
        /// The command, not escaped.
        command: String,
        /// The translator.
        translator: &'static str,
    },
}

impl Error {
    /// What the user can do about it.
    pub fn hint(&self) -> String {
        let (Error::Process { translator, .. } | Error::Command { translator, .. }) = self;
        format!("run the program without {translator}, and trace that")
    }
}

/// Refuses a process that runs under a translator; one that cannot be looked at passes.
///
/// # Errors
/// [`Error::Process`].
pub fn check_process(pid: u32) -> Result<(), Error> {
    let Some(translator) = of_process(pid) else { return Ok(()) };
    Err(Error::Process { pid, name: comm(pid), translator })
}

/// Refuses a command that starts a translator; `executables`: the files that the kernel starts for it.
///
/// # Errors
/// [`Error::Command`].
pub fn check_command(command: &str, executables: &[PathBuf]) -> Result<(), Error> {
    match executables.iter().find_map(|path| of_program(path)) {
        Some(translator) => Err(Error::Command { command: command.to_owned(), translator }),
        None => Ok(()),
    }
}

/// The translator under which a process runs.
pub fn of_process(pid: u32) -> Option<&'static str> {
    let by_tracer = || of_executable(privilege::debugger_of(pid)?);
    let by_mapping = || {
        let modules = modules::of_process(pid).unwrap_or_default();
        modules.iter().find_map(|module| of_mapped(module.file_name()))
    };
    of_executable(pid).or_else(by_tracer).or_else(by_mapping)
}

/// The translator that a process has executed.
pub fn of_executable(pid: u32) -> Option<&'static str> {
    of_program(&std::fs::read_link(format!("/proc/{pid}/exe")).ok()?)
}

/// The translator that a program is or starts.
pub fn of_program(path: &Path) -> Option<&'static str> {
    let name = path.file_name()?.to_str()?;
    if let Some(target) = name.strip_prefix("qemu-") {
        return QEMU_TARGETS.iter().any(|known| target.starts_with(known)).then_some("qemu");
    }
    // Each of valgrind's tools is a program of its own, `valgrind/memcheck-amd64-linux`.
    let is_in_its_folder = path.parent().is_some_and(|folder| folder.ends_with("valgrind"));
    if is_in_its_folder && ["-amd64-linux", "-x86-linux"].iter().any(|machine| name.ends_with(machine)) {
        return Some("valgrind");
    }
    let by_name = COMMANDS.iter().find(|(command, _)| *command == name);
    by_name.map(|&(_, translator)| translator).or_else(|| of_mapped(name))
}

fn of_mapped(name: &str) -> Option<&'static str> {
    MAPPED.iter().find(|(begin, _)| name.starts_with(begin)).map(|&(_, translator)| translator)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn translators_are_known_by_their_programs() {
        for (path, expected) in [
            ("/usr/libexec/valgrind/callgrind-amd64-linux", Some("valgrind")),
            ("/usr/bin/valgrind", Some("valgrind")),
            ("/opt/server-amd64-linux", None),
            ("/usr/bin/qemu-x86_64-static", Some("qemu")),
            ("/usr/bin/qemu-mips64el", Some("qemu")),
            ("/usr/bin/qemu-system-x86_64", None),
            ("/usr/bin/qemu-img", None),
            ("/usr/bin/rr", Some("rr")),
            ("/usr/bin/rrdtool", None),
            ("/opt/pin/intel64/bin/pinbin", Some("Pin")),
            ("/usr/bin/pinentry", None),
            ("/usr/bin/wine64", None),
            ("/usr/bin/gdb", None),
            ("/", None),
        ] {
            assert_eq!(of_program(Path::new(path)), expected, "{path}");
        }
        assert_eq!(of_process(std::process::id()), None);
    }
}
