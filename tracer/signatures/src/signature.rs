//! What is known of one function.

use std::fmt;
use std::path::PathBuf;

use rtrace_model::{FunctionEvent, words};

use crate::{AbiPlace, Cause, MetricSpec, Type, ValueSpec};

/// What is known of one function, and what is captured of its calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// The symbol that it was found for.
    pub name: String,
    /// Its fixed parameters, in the order of the source. A hidden pointer to a result is not among them.
    pub params: Vec<Param>,
    /// The type of its result; `None` if it returns nothing.
    pub result: Option<Type>,
    /// Where its result is behind the call.
    pub result_location: AbiPlace,
    /// Whether more arguments may follow the fixed ones.
    pub variadic: bool,
    /// Who says so.
    pub source: SaidBy,
    /// What is captured of each call.
    pub columns: Vec<ValueSpec>,
    /// What is counted on each call.
    pub metrics: Vec<MetricSpec>,
    /// What the function does, for consumers that do not know it.
    pub event: Option<FunctionEvent>,
    /// What was wanted and is not captured, with the reason.
    pub dropped: Vec<Dropped>,
}

/// One parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    /// Its name; `argN`, counted from 1, if it is unknown.
    pub name: String,
    /// Its type.
    pub ctype: Type,
    /// Its type as C or the debug information says it, for people.
    pub c_type: String,
    /// Where it is at the function's first instruction.
    pub location: AbiPlace,
}

/// Who says what the parameters of a function are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SaidBy {
    /// The user's file, and the line in it.
    File(PathBuf, usize),
    /// The built-in table: its file, such as `mpi`, and the line in it.
    Table(&'static str, usize),
    /// The debug information of the library, in this file.
    Library(PathBuf),
    /// The debug information of a program that calls it.
    Caller(PathBuf),
    /// The note of a USDT probe.
    Note,
    /// Nobody: these are the registers of the first six integer arguments.
    Raw,
}

impl fmt::Display for SaidBy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SaidBy::File(path, line) => write!(formatter, "{}:{line}", path.display()),
            SaidBy::Table(name, line) => write!(formatter, "built-in table {name}.toml:{line}"),
            SaidBy::Library(path) => write!(formatter, "debug information in {}", path.display()),
            SaidBy::Caller(path) => write!(formatter, "debug information of the caller {}", path.display()),
            SaidBy::Note => formatter.write_str("the note of the USDT probe"),
            SaidBy::Raw => formatter.write_str("raw registers"),
        }
    }
}

words! {
    /// Why nothing is known of a function that is asked for.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    NotKnown {
        /// Neither a table nor debug information speaks of it.
        Silence = "no table and no debug information says its parameters",
        /// The compiler changed its parameters, as its symbol says.
        Changed = "the compiler changed its parameters, as its symbol says",
        /// Declarations in the program that calls it contradict each other.
        Contradiction = "declarations in the program that calls it contradict each other",
        /// No other file can call it, so an optimizing compiler may have changed its parameters without a word.
        Local = "the compiler may have changed its parameters, as no other file can call it",
        /// Functions with other parameters or results have the same code.
        Merged = "functions with other parameters have the same code",
        /// Debug information says that it is not called as the platform's ABI says.
        Unusual = "it is not called as functions are on this platform, says its debug information",
    }
}

/// A value that is wanted and not captured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// Its name.
    pub name: String,
    /// Its type, for people.
    pub c_type: String,
    /// Why.
    pub reason: DropReason,
}

/// Why a value is not captured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// It cannot be read.
    Unobservable(Cause),
    /// The values before it take all operations, or all words, that there are for one function.
    NoRoom,
    /// It is text, and `--no-strings` is given.
    NoStrings,
}

impl fmt::Display for DropReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DropReason::Unobservable(reason) => reason.fmt(formatter),
            DropReason::NoRoom => formatter.write_str("more values than one function may have"),
            DropReason::NoStrings => formatter.write_str("text, which --no-strings leaves out"),
        }
    }
}
