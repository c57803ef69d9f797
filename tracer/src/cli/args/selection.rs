//! Which functions of which libraries, and how their exits are seen.

use clap::Args;
use rtrace::plan::Pattern;
use rtrace_model::ExitPolicy;

use super::choice::{Choice, one_of};

/// The options that choose functions.
#[derive(Debug, Args)]
#[command(next_help_heading = "Selection")]
pub struct Selection {
    /// Library to trace: a name, a path, a glob, or `exe`; may be repeated
    ///
    /// `libfftw3.so` means every version of that library, in any folder, `libQt5*` all files whose
    /// names match, `./libmine.so` this one file, and `exe` the program itself.
    #[arg(short = 'l', long = "lib", value_name = "LIB", required = true)]
    pub libraries: Vec<String>,

    /// Trace only these functions: a name, a glob or a /regex/; may be repeated
    ///
    /// The pattern is tried on the symbols and on the demangled name. Without this option, all
    /// exported functions are traced.
    #[arg(long = "func", value_name = "PATTERN")]
    pub functions: Vec<Pattern>,

    /// Leave out these functions: a name, a glob or a /regex/; may be repeated
    #[arg(long, value_name = "PATTERN")]
    pub exclude: Vec<Pattern>,

    /// How exits are seen
    #[arg(long, value_name = "POLICY", default_value = "auto", value_parser = one_of(EXIT))]
    exit: Exit,
}

impl Selection {
    /// The one exit policy asked for; `None` where rtrace chooses for each function.
    pub fn exit_policy(&self) -> Option<ExitPolicy> {
        self.exit.0
    }
}

#[derive(Clone, Copy, Debug)]
struct Exit(Option<ExitPolicy>);

const EXIT: [Choice<Exit>; 4] = [
    ("auto", "Choose for each function what cannot harm the program, and of that what costs least", Exit(None)),
    (
        ExitPolicy::Uretprobe.name(),
        "Replace return addresses: cheap, but an exception through a traced function is fatal",
        Exit(Some(ExitPolicy::Uretprobe)),
    ),
    (
        ExitPolicy::RetSite.name(),
        "Probe the instructions that leave the function: dearer, leaves the stack alone",
        Exit(Some(ExitPolicy::RetSite)),
    ),
    (ExitPolicy::EntryOnly.name(), "Count calls only; they have no duration", Exit(Some(ExitPolicy::EntryOnly))),
];
