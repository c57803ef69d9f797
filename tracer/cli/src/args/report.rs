//! What to report of a trace, and how.

use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::PossibleValue;
use rtrace_exporters::{Destination, Owner};
use rtrace_report::{By, Histogram, Look, Min, Options, Sort};

use super::choice::{Choice, NamedChoice, OneOfOrOther, OneOfOrValue, TableFormat};
use super::display::Display;
use super::part::PartOfTime;
use super::quantity::parse_min;

/// Options of `rtrace report`.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct ReportArgs {
    /// Trace directory, or directory of a parallel job
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,

    /// What each row stands for
    #[arg(long, value_name = "ROWS", default_value = "function", value_parser = OneOfOrValue::new(&BY, &NAMED_BY))]
    by: By,

    /// Figure to sort by, largest first, also a counter or its rate, or name [default: exclusive; in a tree inclusive; of ranks and peers name]
    #[arg(long, value_name = "FIGURE", value_parser = OneOfOrOther::new(Order::words, Order::read))]
    sort: Option<Order>,

    /// Show at most this many rows
    #[arg(long, value_name = "ROWS")]
    limit: Option<usize>,

    /// Hide rows with less inclusive time than this, such as 10us, 1ms or 0.5%
    #[arg(long, value_name = "TIME|SHARE", value_parser = parse_min)]
    min: Option<Min>,

    /// Show how much memory of each row was in use at the peak, and was not freed; best with --by callsite
    ///
    /// Blocks are paired by their address over all threads. Record with `--lib libc.so.6 --func '*alloc*' --func free
    /// --args`.
    #[arg(long, conflicts_with_all = ["html", "histogram"])]
    memory: bool,

    /// Which part of the time it is of.
    #[command(flatten)]
    pub part: PartOfTime,

    /// Figures to show instead of the default ones, in this order; also counters and their rates, by their headings
    #[arg(long, value_name = "FIGURES", value_delimiter = ',', value_parser = OneOfOrOther::new(headings, str::to_owned))]
    columns: Vec<String>,

    /// Show the distribution of durations, or of an argument, result or metric in powers of two
    #[arg(long, value_name = "OF", num_args = 0..=1, default_missing_value = DISTRIBUTIONS[0].0, conflicts_with = "columns", value_parser = OneOfOrValue::new(&DISTRIBUTIONS, &NAMED_DISTRIBUTIONS))]
    histogram: Option<Histogram>,

    /// Output format
    #[command(flatten)]
    format: TableFormat,

    /// Write one HTML page to FILE instead: tables, flame graph, timeline, latencies; `-` is standard output
    ///
    /// The page needs no other file and no network. It holds sums, and single calls up to a bound. An older page of that
    /// name is replaced, another file is not.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["by", "sort", "limit", "min", "columns", "histogram", "format", "json"])]
    html: Option<PathBuf>,

    /// Draw calls with operations against the machine's peaks, as `rtrace doctor --peaks --json` wrote them to FILE
    #[arg(long, value_name = "FILE", requires = "html")]
    pub peaks: Option<PathBuf>,

    /// Write a Score-P filter file that excludes functions with much overhead and little time [default: to stdout]
    ///
    /// These are functions that are called often, and whose calls take no longer than tracing them does. Comments say
    /// what excluding each of them would save. `--filter` of `run`, `attach` and `plan` reads the file. An older
    /// suggestion of that name is replaced, another file is not.
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-",
          conflicts_with_all = ["by", "sort", "limit", "min", "columns", "histogram", "format", "json", "html", "from", "to"])]
    suggest_filter: Option<PathBuf>,

    /// Say what this Score-P filter file would save in a recording like this one
    ///
    /// Rules on source files need these in the trace: record functions that have debug information.
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath,
          conflicts_with_all = ["by", "sort", "limit", "min", "columns", "histogram", "format", "json", "html", "from", "to", "suggest_filter"])]
    pub filter: Option<PathBuf>,

    /// Show names with all their arguments
    #[arg(long, help_heading = "Display")]
    pub full_names: bool,

    /// Show all notes below the table, also on a terminal
    #[arg(long, help_heading = "Display")]
    pub notes: bool,

    /// How it is shown.
    #[command(flatten)]
    pub display: Display,
}

impl ReportArgs {
    /// Where the page goes, if one is asked for; it belongs to `owner`.
    pub fn page(&self, owner: Option<Owner>) -> Option<Destination> {
        self.html.as_deref().map(|path| destination(path, owner, rtrace_report::html::is_page))
    }

    /// Where the suggested filter goes, if one is asked for; it belongs to `owner`.
    pub fn suggestion(&self, owner: Option<Owner>) -> Option<Destination> {
        self.suggest_filter.as_deref().map(|path| destination(path, owner, rtrace_report::is_suggestion))
    }

    /// The options of the report itself.
    pub fn options(&self, look: Look) -> Options {
        let usual = match self.by {
            By::Tree => Sort::Inclusive,
            By::Rank | By::Peer => Sort::Name,
            _ => Sort::default(),
        };
        Options {
            by: self.by.clone(),
            sort: match &self.sort {
                Some(Order::Figure(sort)) => *sort,
                Some(Order::Column(_)) | None => usual,
            },
            sort_by: match &self.sort {
                Some(Order::Column(title)) => Some(title.clone()),
                Some(Order::Figure(_)) | None => None,
            },
            memory: self.memory,
            min: self.min,
            columns: self.columns.clone(),
            histogram: self.histogram.clone(),
            part: self.part.chosen(),
            limit: self.limit,
            format: self.format.chosen(),
            look,
        }
    }
}

/// Standard output for `-`; a file is replaced if it is of the same kind.
fn destination(path: &Path, owner: Option<Owner>, may_be_replaced: fn(&Path) -> bool) -> Destination {
    match path == Path::new("-") {
        true => Destination::Stdout,
        false => Destination::Path { path: path.to_owned(), force: may_be_replaced(path), owner },
    }
}

static BY: [Choice<By>; 12] = [
    ("function", "Function", By::Function),
    ("tree", "Call path, shown as a tree: who called whom", By::Tree),
    ("thread", "Thread", By::Thread),
    ("library", "Library", By::Library),
    ("library-pair", "Library that makes calls, and library that these are to", By::LibraryPair),
    ("process", "Process", By::Process),
    ("rank", "Rank of a parallel job, in the order of ranks", By::Rank),
    ("peer", "Rank that sends messages, and rank that receives them", By::Peer),
    ("caller", "Function and its direct caller", By::Caller),
    ("callpath", "Function and the full chain of its callers", By::Callpath),
    ("callsite", "Function and the source line or address that called it", By::Callsite),
    ("cpu", "Function in which CPU time was sampled, traced or not (--sampling)", By::Cpu),
];

static NAMED_BY: [NamedChoice<By>; 2] = [
    ("arg:", "arg:NAME", "Function and value of that argument or result", By::Value),
    (
        "between:",
        "between:BEGIN..END",
        "Region between calls of two functions, by its name if --args has it",
        By::Marked,
    ),
];

static NAMED_DISTRIBUTIONS: [NamedChoice<Histogram>; 1] =
    [("arg:", "arg:NAME", "Values of that argument or result", Histogram::Value)];

static DISTRIBUTIONS: [Choice<Histogram>; 1] = [("durations", "Durations of calls", Histogram::Durations)];

/// What rows are sorted by.
#[derive(Clone, Debug)]
enum Order {
    /// A figure that every report has.
    Figure(Sort),
    /// A column that this report may have.
    Column(String),
}

impl Order {
    fn read(word: &str) -> Order {
        let word = if word == "median" { Sort::P50.name() } else { word };
        let figure = SORT.iter().find(|(name, _, _)| *name == word);
        figure.map_or_else(|| Order::Column(word.to_owned()), |&(_, _, sort)| Order::Figure(sort))
    }

    fn words() -> Vec<PossibleValue> {
        SORT.iter().map(|(word, meaning, _)| PossibleValue::new(*word).help(*meaning)).collect()
    }
}

fn headings() -> Vec<PossibleValue> {
    rtrace_report::figures().into_iter().map(PossibleValue::new).collect()
}

const SORT: [Choice<Sort>; 11] = [
    (Sort::Calls.name(), "Number of calls", Sort::Calls),
    (Sort::Inclusive.name(), "Time including callees", Sort::Inclusive),
    (Sort::Exclusive.name(), "Time excluding traced callees", Sort::Exclusive),
    (Sort::Mean.name(), "Mean duration", Sort::Mean),
    (Sort::P50.name(), "Median duration", Sort::P50),
    (Sort::P90.name(), "Duration that one call in ten exceeds", Sort::P90),
    (Sort::P99.name(), "Duration that one call in a hundred exceeds", Sort::P99),
    (Sort::P999.name(), "Duration that one call in a thousand exceeds", Sort::P999),
    (Sort::Max.name(), "Longest duration", Sort::Max),
    (Sort::Lost.name(), "Calls known to be lost", Sort::Lost),
    (Sort::Name.name(), "Name, from A to Z", Sort::Name),
];

pub(super) const EXAMPLES: &str = "\
EXAMPLES:
    # Show the functions that took the most time
    rtrace report out.rtrace --limit 20

    # Show who called whom
    rtrace report out.rtrace --by tree

    # Show callers and callees that took at least 1 % of the time
    rtrace report out.rtrace --by caller --min 1%

    # Is a function always slow, or only sometimes?
    rtrace report out.rtrace --columns calls,p50,p99,p99.9,max
    rtrace report out.rtrace --histogram --limit 3

    # Which files take the time, and how much is read at once? (recorded with --args)
    rtrace report out.rtrace --by arg:fd --sort inclusive
    rtrace report out.rtrace --histogram arg:count

    # What runs in each region that the program marks?
    rtrace report out.rtrace --by between:begin_step..end_step

    # What took the time in the third minute? The same as a page
    rtrace report out.rtrace --from 2m --to 3m
    rtrace report out.rtrace --from 2m --to 3m --html third.html

    # Write all functions for a script
    rtrace report out.rtrace --format csv >functions.csv

    # Leave out of the next recording what costs most and says least
    rtrace report out.rtrace --suggest-filter=short.filter
    rtrace report out.rtrace --filter short.filter

    # Write a page for a browser
    rtrace report out.rtrace --html out.html";
