//! Which functions of which libraries to trace, and how to detect their returns.

use clap::Args;
use rtrace::session::Options;
use rtrace_model::ExitPolicy;
use rtrace_plan::Pattern;

use super::choice::{Choice, one_of};

/// The options that choose functions.
#[derive(Debug, Args)]
#[command(next_help_heading = "Selection")]
pub struct Selection {
    /// Library to trace: a name, a path, a glob, or `exe`; may be repeated
    ///
    /// `libfftw3.so` matches every version of that library in any directory, `libQt5*` every file with a matching
    /// name, `./libmine.so` only this file, and `exe` the program itself.
    #[arg(short = 'l', long = "lib", value_name = "LIB", required = true)]
    pub libraries: Vec<String>,

    /// Trace only matching functions: a name, a glob or a /regex/; may be repeated
    ///
    /// rtrace matches the pattern against symbols and demangled names. By default it traces all exported functions.
    #[arg(long = "func", value_name = "PATTERN")]
    functions: Vec<Pattern>,

    /// Do not trace matching functions: a name, a glob or a /regex/; may be repeated
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<Pattern>,

    /// How to detect that a function returns
    #[arg(long, value_name = "POLICY", default_value = ExitPolicy::ReturnSite.name(), value_parser = one_of(EXIT))]
    exit: ExitPolicy,
}

impl Selection {
    /// These functions, recorded in no special way.
    pub fn options(&self) -> Options {
        Options {
            libraries: self.libraries.clone(),
            functions: self.functions.clone(),
            exclude: self.exclude.clone(),
            exit: self.exit,
            ..Options::default()
        }
    }
}

const EXIT: [Choice<ExitPolicy>; 3] = [
    (
        ExitPolicy::ReturnSite.name(),
        "Probe the callers, at the addresses that calls return to; the stack is not changed",
        ExitPolicy::ReturnSite,
    ),
    (
        ExitPolicy::Uretprobe.name(),
        "Replace return addresses; breaks programs that throw, switch stacks or read return addresses",
        ExitPolicy::Uretprobe,
    ),
    (ExitPolicy::EntryOnly.name(), "Count calls without timing them", ExitPolicy::EntryOnly),
];
