//! Options that take one of a few words, and what each word means.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use rtrace_report::Format;

use super::recording::Mode;

/// A word, what it means to people, and what to rtrace.
pub type Choice<T> = (&'static str, &'static str, T);

/// How tables are written.
pub const FORMAT: [Choice<Format>; 3] = [
    ("table", "Columns for people", Format::Table),
    ("csv", "Comma-separated values", Format::Csv),
    ("json", "One JSON object", Format::Json),
];

/// What is recorded of a call.
pub const MODE: [Choice<Mode>; 2] = [
    ("trace", "Every call, with its start and end", Mode::Trace),
    ("profile", "Counts, times and a histogram per call path and thread", Mode::Profile),
];

/// Reads one of the words.
pub fn one_of<T: Copy + Send + Sync + 'static, const N: usize>(
    choices: [Choice<T>; N],
) -> impl TypedValueParser<Value = T> {
    let words = choices.iter().map(|(word, meaning, _)| PossibleValue::new(*word).help(*meaning));
    PossibleValuesParser::new(words).map(move |chosen| {
        let choice = choices.iter().find(|(word, _, _)| *word == chosen);
        choice.expect("the parser lets only these words pass").2
    })
}
