//! Whether anything in a program can unwind through a function whose return address is replaced,
//! or switch stacks under it.
//!
//! An unwinder that meets the replaced address ends the program, and so does a return on another
//! stack. A module makes a hazard by what it imports or holds. The libraries that define the means
//! for everybody make none by being there: the C library has `dlopen` and `swapcontext` in every
//! program, and it matters who calls them.

use rtrace_model::escape;
use rtrace_symbolizer::Image;

/// Why return addresses must not be replaced in a program; none where nothing speaks against it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hazards {
    /// Something can unwind the stack, or can be loaded later and do so.
    pub unwind: Option<String>,
    /// Something can run code on other stacks.
    pub stacks: Option<String>,
}

/// Modules that define the means; by the beginnings of their file names.
const PROVIDERS: [&str; 10] = [
    "libc.so.",
    "libc-",
    "ld-linux",
    "ld-musl",
    "ld-2.",
    "libpthread",
    "libdl",
    "librt",
    "libm.so.",
    "libgcc_s.so.",
];

/// Imports that unwind, or that bring code that does.
const UNWINDING: [&str; 12] = [
    "__cxa_throw",
    "__cxa_rethrow",
    "__gxx_personality_v0",
    "__gcc_personality_v0",
    "dlopen",
    "dlmopen",
    "pthread_exit",
    "pthread_cancel",
    "thrd_exit",
    "backtrace",
    "unw_step",
    "unw_backtrace",
];

/// Imports that switch stacks.
const SWITCHING: [&str; 12] = [
    "swapcontext",
    "makecontext",
    "setcontext",
    "sigaltstack",
    "sigstack",
    "jump_fcontext",
    "make_fcontext",
    "ontop_fcontext",
    "co_switch",
    "coro_transfer",
    "pth_init",
    "st_thread_create",
];

/// Functions of the Go runtime.
const GO_RUNTIME: [&str; 2] = ["runtime.goexit", "runtime.gopanic"];

impl Hazards {
    /// The first hazard.
    pub fn any(&self) -> Option<&str> {
        self.unwind.as_deref().or(self.stacks.as_deref())
    }
}

/// The hazards of the modules of one program, or of several: its executable and all libraries, by
/// path.
pub fn of_images<'a>(images: impl Iterator<Item = (&'a str, &'a Image)>) -> Hazards {
    let mut hazards = Hazards::default();
    for (path, image) in images {
        let name = path.rsplit('/').next().unwrap_or(path);
        if PROVIDERS.iter().any(|provider| name.starts_with(provider)) {
            continue;
        }
        let module = Module { path, name, image, imports: image.imports() };
        if hazards.unwind.is_none() {
            hazards.unwind = module.unwinds();
        }
        if hazards.stacks.is_none() {
            hazards.stacks = module.switches_stacks();
        }
        if hazards.unwind.is_some() && hazards.stacks.is_some() {
            break;
        }
    }
    hazards
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
        self.import(unwinds, "unwinds the stack or can load code that does")
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
