//! Which functions of which libraries to trace, and how to detect their returns.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use clap::ArgAction;
use clap::Args;
use clap::ValueHint;
use clap::builder::{OsStringValueParser, TypedValueParser};
use rtrace::session::Options;
use rtrace_model::{ExitPolicy, text_of};
use rtrace_plan::{Filter, LARGEST_FILTER, PlanOptions, Selector};
use rtrace_symbolizer::read_text;

use super::choice::{Choice, one_of};
use super::quantity::parse_size;

/// The options that choose functions.
#[derive(Debug, Args)]
#[command(next_help_heading = "Selection")]
pub struct SelectionArgs {
    /// Library to trace: a name, a path, a glob, or `exe`; may be repeated
    ///
    /// `libfftw3.so` matches every version of that library in any directory, `libQt5*` every file with a matching
    /// name, `./libmine.so` only this file, and `exe` the program itself. `rtrace libs` lists what a process has.
    #[arg(short = 'l', long = "lib", value_name = "LIB", required = true, value_parser = any_name())]
    pub libraries: Vec<String>,

    /// Trace only matching functions: a name, a glob, a /regex/, src:FILE or lib:LIB:PATTERN; may be repeated
    ///
    /// rtrace matches the pattern against symbols and demangled names. By default it traces all exported functions.
    /// `src:*/solver/*.c` selects functions by the source file of their definition; this takes debug information.
    /// `lib:libz.so:crc*` selects functions of one of the libraries. `python:gc__*`, with a single colon, selects USDT probes.
    #[arg(long = "func", value_name = "PATTERN")]
    functions: Vec<Selector>,

    /// Do not trace matching functions: patterns as for --func; may be repeated
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<Selector>,

    /// Do not trace functions that this Score-P filter file excludes
    ///
    /// Blocks of region names and of file names, as Score-P reads them; docs/filters.md describes them. Functions that
    /// --func does not select, or --exclude does, remain excluded. `rtrace report --suggest-filter` writes such a file.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    filter: Option<PathBuf>,

    /// Do not trace functions whose code is smaller than SIZE, such as 64 or 1K bytes
    ///
    /// Short functions return within nanoseconds, and tracing a call costs a microsecond. The size is that of the symbol;
    /// a function whose size is not known is traced.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "0", hide_default_value = true)]
    min_size: u64,

    /// Trace functions of libraries that are not exported, too
    ///
    /// Static and hidden functions, as far as the symbol table of the library or its debug file names them. Of the program
    /// itself, rtrace always traces all that has a name.
    #[arg(long = "static", action = ArgAction::SetTrue)]
    statics: bool,

    /// Record only the calls that are made while a matching function runs, and those of this function
    ///
    /// A name, a glob, a /regex/ or src:FILE; may be repeated. The function must be one of the libraries that --lib names. A
    /// call counts as made by it if it runs on the same thread. Calls at other times cost a probe hit, and no record.
    #[arg(long, value_name = "PATTERN")]
    within: Vec<Selector>,

    /// How to detect that a function returns
    #[arg(long, value_name = "POLICY", default_value = ExitPolicy::ReturnSite.name(), value_parser = one_of(EXIT))]
    exit: ExitPolicy,
}

/// Takes names of any bytes, as the text by which they are compared.
fn any_name() -> impl TypedValueParser<Value = String> {
    OsStringValueParser::new().map(|name| text_of(name.as_bytes()).into_owned())
}

impl SelectionArgs {
    /// These functions, recorded in no special way.
    ///
    /// # Errors
    /// The filter cannot be read.
    pub fn options(&self) -> anyhow::Result<Options> {
        let plan = PlanOptions {
            include: self.functions.clone(),
            exclude: self.exclude.clone(),
            filter: self.filter.as_deref().map(read_filter).transpose()?.map(Arc::new),
            min_size: self.min_size,
            statics: self.statics,
            within: self.within.clone(),
            exit: self.exit,
            ..PlanOptions::default()
        };
        Ok(Options { libraries: self.libraries.clone(), plan, ..Options::default() })
    }
}

/// Reads a filter file; a pipe may be one.
pub fn read_filter(path: &Path) -> anyhow::Result<Filter> {
    let read = || -> anyhow::Result<Filter> { Ok(read_text(path, LARGEST_FILTER)?.parse::<Filter>()?) };
    read().with_context(|| format!("failed to read the filter `{}`", path.display()))
}

const EXIT: [Choice<ExitPolicy>; 2] = [
    (ExitPolicy::ReturnSite.name(), "Probe the callers, at the addresses that calls return to", ExitPolicy::ReturnSite),
    (ExitPolicy::EntryOnly.name(), "Count calls without timing them", ExitPolicy::EntryOnly),
];
