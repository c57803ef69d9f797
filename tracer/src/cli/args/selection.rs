//! Which functions of which libraries, and how their returns are detected.

use clap::Args;
use rtrace_model::ExitPolicy;
use rtrace_plan::Pattern;

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

    /// How returns are detected
    #[arg(long, value_name = "POLICY", default_value = ExitPolicy::ReturnSite.name(), value_parser = one_of(EXIT))]
    pub exit: ExitPolicy,
}

const EXIT: [Choice<ExitPolicy>; 3] = [
    (
        ExitPolicy::ReturnSite.name(),
        "Probe the callers, where the calls return to: the stack stays as it is",
        ExitPolicy::ReturnSite,
    ),
    (
        ExitPolicy::Uretprobe.name(),
        "Replace return addresses: ends or falsifies programs that throw, switch stacks or look at return addresses",
        ExitPolicy::Uretprobe,
    ),
    (ExitPolicy::EntryOnly.name(), "Count calls only; they have no duration", ExitPolicy::EntryOnly),
];
