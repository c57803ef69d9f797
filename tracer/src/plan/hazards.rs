//! Whether anything in a program can unwind through a function whose return address is replaced,
//! or switch stacks under it.
//!
//! An unwinder that meets the replaced address ends the program, and so does a return on another
//! stack. A module makes a hazard by what it imports or holds. The libraries that define the means
//! for everybody make none by being there: the C library has `dlopen` and `swapcontext` in every
//! program, and it matters who calls them.

use rtrace_bpf::Mechanism;
use rtrace_model::escape;
use rtrace_symbolizer::Image;

/// Why return addresses must not be replaced in a program; none where nothing speaks against it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hazards {
    /// The kernel itself may end a program at a hooked return.
    pub kernel: Option<String>,
    /// Something can unwind the stack, or can be loaded later and do so.
    pub unwind: Option<String>,
    /// Something can run code on other stacks.
    pub stacks: Option<String>,
    /// Signal handlers may have a stack of their own.
    pub signal_stacks: Option<String>,
    /// Something can unwind the stack at any instruction, whatever the code there does.
    pub interrupts: Option<String>,
    /// Something can run other programs. Their returns are never hooked, so where they are traced
    /// too, their exits would not be seen.
    pub programs: Option<String>,
}

/// Libraries that define the means; their file names up to `.so`, without a version.
const PROVIDERS: [&str; 9] =
    ["libc", "libpthread", "libdl", "librt", "libgcc_s", "ld", "ld-linux-x86-64", "ld-musl-x86_64", "libc.musl-x86_64"];

/// Imports that bring code of which nothing is known yet.
const LOADING: [&str; 2] = ["dlopen", "dlmopen"];

/// Imports that unwind.
const UNWINDING: [&str; 10] = [
    "__cxa_throw",
    "__cxa_rethrow",
    "__gxx_personality_v0",
    "__gcc_personality_v0",
    "pthread_exit",
    "pthread_cancel",
    "thrd_exit",
    "backtrace",
    "unw_step",
    "unw_backtrace",
];

/// Imports that switch stacks.
const SWITCHING: [&str; 10] = [
    "swapcontext",
    "makecontext",
    "setcontext",
    "jump_fcontext",
    "make_fcontext",
    "ontop_fcontext",
    "co_switch",
    "coro_transfer",
    "pth_init",
    "st_thread_create",
];

/// Imports that give signal handlers a stack.
const SIGNAL_STACKS: [&str; 2] = ["sigaltstack", "sigstack"];

/// Imports of programs that unwind from signal handlers: threads that may be cancelled anywhere, and
/// Ada, whose runtime makes exceptions of faults.
const INTERRUPTING: [&str; 2] = ["pthread_setcanceltype", "__gnat_personality_v0"];

/// Functions of the Go runtime.
const GO_RUNTIME: [&str; 2] = ["runtime.goexit", "runtime.gopanic"];

/// Imports that run other programs.
const EXECUTING: [&str; 14] = [
    "execve",
    "execv",
    "execvp",
    "execvpe",
    "execl",
    "execlp",
    "execle",
    "execveat",
    "fexecve",
    "posix_spawn",
    "posix_spawnp",
    "system",
    "popen",
    "wordexp",
];

impl Hazards {
    /// The first hazard.
    pub fn any(&self) -> Option<&str> {
        self.all().next()
    }

    /// All hazards.
    pub fn all(&self) -> impl Iterator<Item = &str> {
        let Hazards { kernel, unwind, stacks, signal_stacks, interrupts, programs } = self;
        [kernel, unwind, stacks, signal_stacks, interrupts, programs].into_iter().filter_map(Option::as_deref)
    }

    /// Whether the return of a closed function may be hooked all the same, and would be seen.
    pub fn spare_closed_functions(&self) -> bool {
        self.kernel.is_none() && self.stacks.is_none() && self.interrupts.is_none() && self.programs.is_none()
    }
}

/// The hazard of a kernel of this release: the system call by which it takes a hooked return met
/// seccomp filters that did not know it, and the program was killed (CVE-2025-21834). To try it would
/// take a program with such a filter, and any traced program may install one at any time.
pub fn of_kernel(release: &str) -> Option<String> {
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit()).map(|number| number.parse().ok());
    let mut number = || numbers.next().flatten().unwrap_or(0);
    let version: [u32; 3] = [number(), number(), number()];
    let kills = ([6, 11, 0]..=[6, 12, 13]).contains(&version) || ([6, 13, 0]..=[6, 13, 2]).contains(&version);
    kills.then(|| format!("Linux {release} ends programs with a seccomp filter at a hooked return"))
}

/// The hazard of a mechanism that cannot refuse the hook of a single call: it hooks the returns of
/// every program that maps the library, or in which somebody else has a probe at the same place.
pub fn of_mechanism(mechanism: Mechanism) -> Option<String> {
    let refuses = mechanism == Mechanism::Session;
    (!refuses).then(|| format!("`{}` hooks returns in other programs, too", mechanism.name()))
}

/// The hazards of the modules of one program, or of several: its executable and all libraries, by
/// path.
pub fn of_images<'a>(images: impl Iterator<Item = (&'a str, &'a Image)>) -> Hazards {
    let mut hazards = Hazards::default();
    for (path, image) in images {
        let name = path.rsplit('/').next().unwrap_or(path);
        if is_provider(name) {
            continue;
        }
        let module = Module { path, name, image, imports: image.imports() };
        let Hazards { kernel: _, unwind, stacks, signal_stacks, interrupts, programs } = &mut hazards;
        *unwind = unwind.take().or_else(|| module.unwinds());
        *stacks = stacks.take().or_else(|| module.switches_stacks());
        *signal_stacks = signal_stacks.take().or_else(|| module.gives_handlers_a_stack());
        *interrupts = interrupts.take().or_else(|| module.interrupts());
        *programs = programs.take().or_else(|| module.runs_programs());
    }
    hazards
}

/// Whether this is `libc.so.6`, `libc-2.31.so` or another library that defines the means.
pub fn is_provider(file_name: &str) -> bool {
    let stem = file_name.split(".so").next().unwrap_or(file_name);
    let unversioned = stem.split_once("-2.").map_or(stem, |(name, _)| name);
    PROVIDERS.contains(&unversioned)
}

struct Module<'a> {
    path: &'a str,
    name: &'a str,
    image: &'a Image,
    imports: Vec<&'a str>,
}

impl Module<'_> {
    fn unwinds(&self) -> Option<String> {
        let unwinds = |name: &str| UNWINDING.contains(&name) || name.starts_with("_Unwind_");
        self.import(unwinds, "unwinds the stack")
            .or_else(|| self.import(|name| LOADING.contains(&name), "can load code that unwinds the stack"))
            .or_else(|| self.definition("_Unwind_RaiseException", "unwinds the stack"))
            .or_else(|| self.definition("__cxa_throw", "throws exceptions"))
            .or_else(|| self.go())
            .or_else(|| self.unknown_runtime())
            .or_else(|| {
                let handlers = self.image.frame_ranges().iter().any(|frame| frame.has_lsda);
                handlers.then(|| self.says("holds exception handlers"))
            })
    }

    fn switches_stacks(&self) -> Option<String> {
        self.import(|name| SWITCHING.contains(&name), "runs code on another stack")
            .or_else(|| self.go())
            .or_else(|| self.name.contains("_greenlet").then(|| self.says("copies parts of the stack")))
            .or_else(|| self.unknown_runtime())
    }

    fn gives_handlers_a_stack(&self) -> Option<String> {
        self.import(|name| SIGNAL_STACKS.contains(&name), "runs signal handlers on another stack")
    }

    fn interrupts(&self) -> Option<String> {
        self.import(|name| INTERRUPTING.contains(&name), "may unwind the stack from a signal handler")
            .or_else(|| self.unknown_runtime())
    }

    fn runs_programs(&self) -> Option<String> {
        self.import(|name| EXECUTING.contains(&name), "runs programs of which nothing is known")
    }

    fn import(&self, hazardous: impl Fn(&str) -> bool, effect: &str) -> Option<String> {
        let symbol = self.imports.iter().find(|name| hazardous(name))?;
        Some(self.says(&format!("imports `{}`, which {effect}", escape(symbol))))
    }

    fn definition(&self, symbol: &str, effect: &str) -> Option<String> {
        self.image.defines(symbol).then(|| self.says(&format!("defines `{symbol}`, which {effect}")))
    }

    fn go(&self) -> Option<String> {
        let go = GO_RUNTIME.iter().any(|symbol| self.image.defines(symbol));
        go.then(|| self.says("is a Go program, which moves its stacks"))
    }

    /// A program that needs no library and says nothing of how its code unwinds brings a runtime
    /// of its own, of which nothing is known.
    fn unknown_runtime(&self) -> Option<String> {
        let alone = self.image.needed().is_empty() && self.image.soname().is_none();
        (alone && self.image.frame_ranges().is_empty())
            .then(|| self.says("is linked statically and has no unwind tables, so nothing is known of its runtime"))
    }

    fn says(&self, what: &str) -> String {
        format!("`{}` {what}", escape(self.path))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::super::testing::{self, image};
    use super::*;

    fn of_program(source: &str, flags: &[&str]) -> Option<Hazards> {
        let image = testing::compile("c", source, flags)?;
        Some(of_images([("/opt/program", &image)].into_iter()))
    }

    #[test]
    fn kernels_that_kill_filtered_programs() {
        for release in ["6.11.0", "6.12-rc1", "6.12.13", "6.13.2-generic"] {
            assert!(of_kernel(release).is_some_and(|hazard| hazard.contains(release)), "{release}");
        }
        for release in ["6.1.0-42-amd64", "6.10.9", "6.12.14", "6.12.41+deb13-amd64", "6.13.3", "6.18.44", "7.2.0", ""]
        {
            assert_eq!(of_kernel(release), None, "{release}");
        }
    }

    #[test]
    fn providers_are_told_by_their_whole_name() {
        for name in ["libc.so.6", "libc-2.31.so", "ld-linux-x86-64.so.2", "ld-2.31.so", "libgcc_s.so.1"] {
            assert!(is_provider(name), "{name}");
        }
        for name in ["libcrypto.so.3", "libdleyna.so", "librttopo.so.1", "ldap", "libclang-14.so.1"] {
            assert!(!is_provider(name), "{name}");
        }
    }

    #[test]
    fn a_program_that_runs_others_is_told() {
        let Some(hazards) = of_program("#include <stdlib.h>\nint main(void) { return system(\"\"); }", &[]) else {
            return;
        };
        assert!(hazards.programs.unwrap().contains("`system`"));
        assert_eq!(hazards.unwind, None);
    }

    #[test]
    fn a_plain_program_has_none() {
        let Some(hazards) = of_program("#include <stdio.h>\nint main(void) { return puts(\"\"); }", &[]) else {
            return;
        };
        assert_eq!(hazards, Hazards::default());
    }

    #[test]
    fn imports_make_hazards_and_are_named() {
        let source = "#include <dlfcn.h>\n#include <signal.h>\n\
            int main(void) { sigaltstack(0, 0); return dlopen(\"x\", 1) != 0; }";
        let Some(hazards) = of_program(source, &[]) else { return };
        assert!(hazards.unwind.unwrap().starts_with("`/opt/program` imports `dlopen`"));
        assert!(hazards.signal_stacks.unwrap().starts_with("`/opt/program` imports `sigaltstack`"));
    }

    #[test]
    fn static_programs_bring_their_unwinder() {
        for flags in [&["-static"][..], &["-static", "-s"]] {
            let Some(hazards) = of_program("int main(void) { return 0; }", flags) else { return };
            assert!(hazards.unwind.is_some(), "{flags:?}");
        }
    }

    #[test]
    fn code_of_which_nothing_is_known_is_a_hazard() {
        let hazards = of_images([("/opt/program", &image(&[0xc3]))].into_iter());
        assert!(hazards.unwind.unwrap().contains("no unwind tables"));
        assert!(hazards.stacks.is_some());
    }

    #[test]
    fn hostile_paths_are_escaped() {
        let hazards = of_images([("/opt/\u{1b}[31m", &image(&[0xc3]))].into_iter());
        assert!(!hazards.any().unwrap().contains('\u{1b}'));
    }
}
