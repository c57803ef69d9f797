//! Functions that must be left alone, whatever their code looks like.
//!
//! Named by symbol, because what makes them special is what they do to the stack they run on, and
//! that is known from their documentation rather than from their bytes.

use rtrace_symbolizer::Symbol;

/// What a function with a special name rules out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denial {
    /// No probe at all.
    Probe(&'static str),
    /// No probe on any exit.
    Exit(&'static str),
    /// No replaced return address; probes on the instructions that leave are fine.
    Uretprobe(&'static str),
}

use Denial::{Exit, Probe, Uretprobe};

/// One reason with the names it holds for.
struct Group {
    denial: Denial,
    names: &'static [&'static str],
    /// Names that begin so belong too.
    prefixes: &'static [&'static str],
}

const GROUPS: &[Group] = &[
    Group {
        denial: Probe("unwinders know this code by its bytes"),
        names: &["__restore_rt", "__kernel_rt_sigreturn", "__kernel_sigreturn"],
        prefixes: &[],
    },
    Group {
        denial: Exit("it may return more than once, through a saved copy of its return address"),
        names: &["setjmp", "_setjmp", "__setjmp", "sigsetjmp", "__sigsetjmp", "savectx", "getcontext"],
        prefixes: &[],
    },
    Group {
        denial: Exit("it continues elsewhere instead of returning"),
        names: &[
            "longjmp",
            "_longjmp",
            "siglongjmp",
            "__longjmp",
            "__longjmp_chk",
            "____longjmp_chk",
            "__libc_longjmp",
            "__libc_siglongjmp",
            "setcontext",
            "sigreturn",
            "rt_sigreturn",
        ],
        prefixes: &[],
    },
    Group {
        denial: Exit("it switches to another stack"),
        names: &[
            "swapcontext",
            "makecontext",
            "__start_context",
            "jump_fcontext",
            "make_fcontext",
            "ontop_fcontext",
            "boost_jump_fcontext",
            "co_switch",
            "coro_transfer",
            "__morestack",
            "__splitstack_getcontext",
            "__splitstack_setcontext",
        ],
        prefixes: &["runtime.gogo", "runtime.mcall", "runtime.systemstack", "runtime.morestack"],
    },
    Group {
        denial: Exit("parent and child return from it on one stack or on two"),
        names: &["vfork", "__vfork", "__libc_vfork", "clone", "__clone", "clone3", "__clone3", "__clone_internal"],
        prefixes: &[],
    },
    Group {
        denial: Exit("it walks or leaves the frames above it"),
        names: &[
            "__cxa_throw",
            "__cxa_rethrow",
            "__cxa_call_unexpected",
            "__cxa_call_terminate",
            "rust_eh_personality",
        ],
        prefixes: &["_Unwind_", "__gcc_personality_", "__gxx_personality_"],
    },
    Group {
        denial: Exit("the dynamic linker calls it outside the calling convention"),
        names: &["__tls_get_addr", "___tls_get_addr"],
        prefixes: &["_dl_"],
    },
    Group {
        denial: Exit("it does not return"),
        names: &[
            "exit",
            "_exit",
            "_Exit",
            "quick_exit",
            "abort",
            "pthread_exit",
            "__pthread_exit",
            "thrd_exit",
            "__assert_fail",
            "__assert_perror_fail",
            "__assert",
            "__stack_chk_fail",
            "__fortify_fail",
            "__chk_fail",
            "__libc_start_main",
            "__libc_start_call_main",
            "_start",
            "_ZSt9terminatev",
        ],
        prefixes: &["__cxa_bad_"],
    },
    Group {
        denial: Exit("on success another program replaces this one"),
        names: &[
            "execve", "execv", "execvp", "execvpe", "execl", "execlp", "execle", "fexecve", "execveat", "__execve",
        ],
        prefixes: &[],
    },
    Group {
        denial: Uretprobe("it reads its own return address to know its caller"),
        names: &[
            "dlopen",
            "dlmopen",
            "dlsym",
            "dlvsym",
            "__libc_dlopen_mode",
            "__libc_dlsym",
            "mcount",
            "_mcount",
            "__fentry__",
            "backtrace",
        ],
        prefixes: &["__cyg_profile_func_"],
    },
];

/// What the names of a function rule out; the strictest, where they differ.
pub fn denial(symbols: &[Symbol]) -> Option<Denial> {
    GROUPS.iter().find(|group| symbols.iter().any(|symbol| group.holds(&symbol.name))).map(|group| group.denial)
}

impl Group {
    fn holds(&self, name: &str) -> bool {
        self.names.contains(&name) || self.prefixes.iter().any(|prefix| name.starts_with(prefix))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denial_of(names: &[&str]) -> Option<Denial> {
        let symbols: Vec<Symbol> =
            names.iter().map(|name| Symbol { name: (*name).to_owned(), version: None }).collect();
        denial(&symbols)
    }

    #[test]
    fn any_alias_decides() {
        assert!(matches!(denial_of(&["harmless", "_setjmp"]), Some(Exit(_))));
        assert!(matches!(denial_of(&["_Unwind_RaiseException"]), Some(Exit(_))));
        assert!(matches!(denial_of(&["__restore_rt"]), Some(Probe(_))));
        assert!(matches!(denial_of(&["dlsym"]), Some(Uretprobe(_))));
    }

    #[test]
    fn ordinary_functions_are_not_denied() {
        for name in ["fork", "exit_group_name", "dlclose", "clone_config", "malloc", "pthread_create"] {
            assert_eq!(denial_of(&[name]), None, "{name}");
        }
    }

    /// `denial` takes the first group, so the groups must go from strict to lenient.
    #[test]
    fn groups_are_ordered_by_strictness() {
        let rank = |group: &Group| match group.denial {
            Probe(_) => 0,
            Exit(_) => 1,
            Uretprobe(_) => 2,
        };
        assert!(GROUPS.is_sorted_by_key(rank));
    }
}
