//! Options that take one of a few words, and what each word means.

use std::ffi::OsStr;

use clap::builder::{NonEmptyStringValueParser, PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Arg, Args, Command};
use rtrace_report::Format;

/// A word, what it means to people, and what to rtrace.
pub type Choice<T> = (&'static str, &'static str, T);

/// How tables are written.
const FORMAT: [Choice<Format>; 3] = [
    ("table", "Columns for people", Format::Table),
    ("csv", "Comma-separated values", Format::Csv),
    ("json", "One JSON object", Format::Json),
];

/// How a verb writes a table.
#[derive(Clone, Copy, Debug, Args)]
pub struct TableFormat {
    /// Output format
    #[arg(long, value_name = "FORMAT", default_value = "table", value_parser = one_of(FORMAT))]
    format: Format,

    /// Write JSON; the same as --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

impl TableFormat {
    /// The format that is asked for.
    pub fn chosen(self) -> Format {
        if self.json { Format::Json } else { self.format }
    }
}

/// Whether a verb writes for people or for programs.
#[derive(Clone, Copy, Debug, Args)]
pub struct TextOrJson {
    /// Output format
    #[arg(long, value_name = "FORMAT", default_value = "table", value_parser = one_of([FORMAT[0], FORMAT[2]]))]
    format: Format,

    /// Write JSON; the same as --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

impl TextOrJson {
    /// Whether JSON is asked for.
    pub fn is_json(self) -> bool {
        self.json || self.format == Format::Json
    }
}

/// What is recorded of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// A record of its own.
    #[default]
    Trace,
    /// It is folded into its call path.
    Profile,
}

/// What is recorded of a call.
pub const MODE: [Choice<Mode>; 2] = [
    ("trace", "Every call, with its start and end", Mode::Trace),
    ("profile", "Counts, times and a histogram per call path and thread", Mode::Profile),
];

/// Reads one of the words.
pub fn one_of<T: Clone + Send + Sync + 'static, const N: usize>(
    choices: [Choice<T>; N],
) -> impl TypedValueParser<Value = T> {
    let words = choices.iter().map(|(word, meaning, _)| PossibleValue::new(*word).help(*meaning));
    PossibleValuesParser::new(words).map(move |chosen| {
        let choice = choices.iter().find(|(word, _, _)| *word == chosen);
        choice.expect("the parser lets only these words pass").2.clone()
    })
}

/// Reads one of the words, or another one, such as the name of a counter, which only a trace knows.
#[derive(Clone)]
pub struct OneOfOrOther<T> {
    words: fn() -> Vec<PossibleValue>,
    read: fn(&str) -> T,
}

impl<T> OneOfOrOther<T> {
    pub const fn new(words: fn() -> Vec<PossibleValue>, read: fn(&str) -> T) -> OneOfOrOther<T> {
        OneOfOrOther { words, read }
    }
}

impl<T: Clone + Send + Sync + 'static> TypedValueParser for OneOfOrOther<T> {
    type Value = T;

    fn parse_ref(&self, command: &Command, argument: Option<&Arg>, value: &OsStr) -> Result<T, clap::Error> {
        NonEmptyStringValueParser::new().parse_ref(command, argument, value).map(|word| (self.read)(&word))
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new((self.words)().into_iter()))
    }
}

/// A word with a name behind it, such as `arg:NAME`: what it begins with, how its name is shown, what it means.
pub type NamedChoice<T> = (&'static str, &'static str, &'static str, fn(String) -> T);

/// Reads one of the words, or one of those with a name behind it, such as `arg:NAME`.
#[derive(Clone)]
pub struct OneOfOrValue<T: 'static> {
    choices: &'static [Choice<T>],
    named: &'static [NamedChoice<T>],
}

impl<T> OneOfOrValue<T> {
    pub const fn new(choices: &'static [Choice<T>], named: &'static [NamedChoice<T>]) -> OneOfOrValue<T> {
        OneOfOrValue { choices, named }
    }

    fn words(&self) -> impl Iterator<Item = PossibleValue> + use<T> {
        let words = self.choices.iter().map(|(word, meaning, _)| PossibleValue::new(*word).help(*meaning));
        let named = self.named.iter().map(|(_, shown, meaning, _)| PossibleValue::new(*shown).help(*meaning));
        words.chain(named)
    }
}

impl<T: Clone + Send + Sync + 'static> TypedValueParser for OneOfOrValue<T> {
    type Value = T;

    fn parse_ref(&self, command: &Command, argument: Option<&Arg>, value: &OsStr) -> Result<T, clap::Error> {
        for (word, _, _, of_name) in self.named {
            let name = value.to_str().and_then(|value| value.strip_prefix(word)).filter(|name| !name.is_empty());
            if let Some(name) = name {
                return Ok(of_name(name.to_owned()));
            }
        }
        let chosen = PossibleValuesParser::new(self.words()).parse_ref(command, argument, value)?;
        let choice = self.choices.iter().find(|(word, _, _)| *word == chosen);
        Ok(choice.expect("the parser lets only these words pass").2.clone())
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.words()))
    }
}
