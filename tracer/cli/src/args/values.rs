//! Which arguments and results are of interest.

use std::path::PathBuf;

use clap::Args;
use rtrace_signatures::Request;

/// The options that choose values.
#[derive(Debug, Args)]
#[command(next_help_heading = "Arguments and results")]
pub struct ValuesArgs {
    /// Record arguments and results, of all functions with a known signature or of those in SPEC
    ///
    /// SPEC names functions and their columns: `read(count) -> result, errno; open(path:text)`. Functions may be globs;
    /// without columns, a function has those of the table, or all. `*m` is what a pointer points to when the function
    /// is entered, `>out` when it has returned, `type->size` a member behind a pointer, `:text` reads a pointer as a string.
    /// `*(cpu, last=>cpu)` is the CPU on which each call begins, and on which it ends.
    /// `raw` adds the registers of functions without a known signature. Signatures come from `--args-from`, from the
    /// built-in table, and from the debug information of the library or of the program that calls it.
    #[arg(long = "args", value_name = "SPEC", num_args = 0..=1, default_missing_value = "")]
    selection: Option<String>,

    /// Signature table (TOML); takes precedence, and implies `--args`
    #[arg(long = "args-from", value_name = "FILE")]
    file: Option<PathBuf>,

    /// Never record strings
    #[arg(long)]
    no_strings: bool,
}

impl ValuesArgs {
    /// What is wanted of arguments and results, if anything is.
    pub fn request(&self) -> Option<Request> {
        (self.selection.is_some() || self.file.is_some()).then(|| Request {
            selection: self.selection.clone().unwrap_or_default(),
            file: self.file.clone(),
            no_strings: self.no_strings,
            stubs: false,
        })
    }
}
