//! Filter files of Score-P: which functions are measured, by rules on their names and on their source files.
//!
//! All functions are included at first, and each rule may change that, in the order of the file. What the rules on files
//! exclude, no rule on regions includes again. How names are taken apart is documented in docs/filters.md.

use std::cell::OnceCell;
use std::str::FromStr;

use rtrace_symbolizer::demangle;

use super::selector::SelectedFunction;
use super::wildcard::{Wildcard, c_string};

/// Filters larger than this many bytes are refused.
pub const LARGEST_FILTER: u64 = 16 << 20;

/// The rules of a filter file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    regions: Vec<FilterRule>,
    files: Vec<FilterRule>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct FilterRule {
    pattern: Wildcard,
    excludes: bool,
    /// Whether names are taken as the linker has them.
    is_mangled: bool,
}

/// What is wrong with a filter file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {fault}")]
pub struct FilterError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong there.
    pub fault: Fault,
}

/// What may be wrong in a line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Something outside of a block.
    #[error("`{0}` is outside of a block; `{REGIONS}_BEGIN` or `{FILES}_BEGIN` begins one")]
    Outside(String),
    /// A pattern without a rule.
    #[error("`{0}` has neither INCLUDE nor EXCLUDE in front of it")]
    NoRule(String),
    /// `MANGLED` where it means nothing.
    #[error("`{0}` belongs behind INCLUDE or EXCLUDE, in a block of region names")]
    Misplaced(String),
    /// A block within another.
    #[error("`{0}` begins a block within another one")]
    Nested(String),
    /// The end of another kind of block.
    #[error("`{0}` does not end the block that is open")]
    WrongEnd(String),
    /// A block without an end.
    #[error("the block that begins here has no end")]
    NoEnd,
    /// A `\` in front of nothing.
    #[error("`\\` ends the line, and has no character to escape")]
    EscapedEnd,
}

const REGIONS: &str = "SCOREP_REGION_NAMES";
const FILES: &str = "SCOREP_FILE_NAMES";

/// The block that is open.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OpenBlock {
    Regions,
    Files,
}

#[derive(Default)]
struct FilterParser {
    filter: Filter,
    /// The block that is open, and the line in which it begins.
    block: Option<(OpenBlock, usize)>,
    /// Whether patterns exclude, and are taken on mangled names.
    rule: Option<(bool, bool)>,
}

impl FromStr for Filter {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Filter, FilterError> {
        let mut parser = FilterParser::default();
        for (line, content) in (1..).zip(text.lines()) {
            let at = |fault| FilterError { line, fault };
            for word in words(content).map_err(at)? {
                parser.word(word, line).map_err(at)?;
            }
        }
        match parser.block {
            Some((_, line)) => Err(FilterError { line, fault: Fault::NoEnd }),
            None => Ok(parser.filter),
        }
    }
}

impl FilterParser {
    fn word(&mut self, word: &str, line: usize) -> Result<(), Fault> {
        let own = || word.to_owned();
        let of_block = |name: &str, end| word.strip_prefix(name).is_some_and(|rest| rest == end);
        for (block, name) in [(OpenBlock::Regions, REGIONS), (OpenBlock::Files, FILES)] {
            if of_block(name, "_BEGIN") {
                if self.block.is_some() {
                    return Err(Fault::Nested(own()));
                }
                (self.block, self.rule) = (Some((block, line)), None);
                return Ok(());
            }
            if of_block(name, "_END") {
                if self.block.is_none_or(|(open, _)| open != block) {
                    return Err(Fault::WrongEnd(own()));
                }
                self.block = None;
                return Ok(());
            }
        }
        let Some((block, _)) = self.block else { return Err(Fault::Outside(own())) };
        match word {
            "INCLUDE" => self.rule = Some((false, false)),
            "EXCLUDE" => self.rule = Some((true, false)),
            "MANGLED" | "DEMANGLED" => match &mut self.rule {
                Some((_, is_mangled)) if block == OpenBlock::Regions => *is_mangled = word == "MANGLED",
                _ => return Err(Fault::Misplaced(own())),
            },
            pattern => {
                let (excludes, is_mangled) = self.rule.ok_or_else(|| Fault::NoRule(own()))?;
                let rule = FilterRule { pattern: Wildcard::new(pattern), excludes, is_mangled };
                match block {
                    OpenBlock::Regions => self.filter.regions.push(rule),
                    OpenBlock::Files => self.filter.files.push(rule),
                }
            }
        }
        Ok(())
    }
}

/// The words of a line, up to a comment. A `\` keeps what is behind it from ending a word or beginning a comment, and
/// stays for the pattern.
fn words(line: &str) -> Result<Vec<&str>, Fault> {
    let mut words = Vec::new();
    let mut begin = None;
    let mut chars = line.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '#' => {
                words.extend(begin.map(|begin: usize| &line[begin..at]));
                return Ok(words);
            }
            c if c.is_ascii_whitespace() => words.extend(begin.take().map(|begin| &line[begin..at])),
            _ => {
                begin.get_or_insert(at);
                if c == '\\' && chars.next().is_none_or(|(_, next)| next == '\r') {
                    return Err(Fault::EscapedEnd);
                }
            }
        }
    }
    words.extend(begin.map(|begin| &line[begin..]));
    Ok(words)
}

impl Filter {
    /// Whether it takes source files to decide.
    pub fn has_files(&self) -> bool {
        !self.files.is_empty()
    }

    /// Whether it leaves a function in. Of one whose source file is not known, that is taken for an empty name.
    pub fn admits(&self, function: &SelectedFunction<'_>) -> bool {
        let source = c_string(function.source.unwrap_or_default());
        let (mangled, demangled) = (OnceCell::new(), OnceCell::new());
        let mangled = || mangled.get_or_init(|| function.linker_names().map(c_string).collect::<Vec<_>>());
        let demangle = |name| c_string(&demangle(name));
        let demangled = || demangled.get_or_init(|| function.linker_names().map(demangle).collect::<Vec<_>>());
        admitted(&self.files, |rule| rule.pattern.matches(&source))
            && admitted(&self.regions, |rule| {
                let names = if rule.is_mangled { mangled() } else { demangled() };
                names.iter().any(|name| rule.pattern.matches(name))
            })
    }
}

/// What the last rule says that matches. Each rule overrides those before it, so this is the same as to follow all of
/// them, and takes less time.
fn admitted(rules: &[FilterRule], matches: impl Fn(&FilterRule) -> bool) -> bool {
    rules.iter().rev().find(|rule| matches(rule)).is_none_or(|rule| !rule.excludes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use rtrace_symbolizer::Symbol;

    use super::*;

    fn admits(filter: &str, symbol: &str, source: Option<&str>) -> bool {
        let filter: Filter = filter.parse().unwrap();
        let symbols = [Symbol { name: symbol.to_owned(), version: None, is_default: true }];
        filter.admits(&SelectedFunction { symbols: &symbols, source, ..SelectedFunction::named(&demangle(symbol)) })
    }

    fn regions(rules: &str) -> String {
        format!("SCOREP_REGION_NAMES_BEGIN\n{rules}\nSCOREP_REGION_NAMES_END\n")
    }

    #[test]
    fn rules_are_followed_in_order_from_all_included() {
        let table = [
            ("", "f", true),
            ("EXCLUDE f", "f", false),
            ("EXCLUDE f", "g", true),
            ("INCLUDE f", "g", true),
            ("EXCLUDE * INCLUDE f g", "g", true),
            ("EXCLUDE *\nINCLUDE f*\nEXCLUDE *ee", "free", false),
            ("INCLUDE f\nEXCLUDE *", "f", false),
            ("EXCLUDE # all of them: *\n  a # b\n  c", "c", false),
            ("EXCLUDE # all of them: *\n  a # b\n  c", "b", true),
            ("EXCLUDE a\tb\r", "b", false),
            ("EXCLUDE get?har [p-r]ut", "getchar", false),
            ("EXCLUDE get?har [p-r]ut", "put", false),
        ];
        for (rules, name, expected) in table {
            assert_eq!(admits(&regions(rules), name, None), expected, "{rules:?}: {name}");
        }
    }

    #[test]
    fn names_are_demangled_unless_asked_otherwise() {
        let method = "_ZN3net6Socket4readEPci";
        let table = [
            ("EXCLUDE net::Socket::read(char*,\\ int)", false),
            ("EXCLUDE net::Socket::*", false),
            ("EXCLUDE net::Socket::read", true),
            ("EXCLUDE _ZN3net*", true),
            ("EXCLUDE MANGLED _ZN3net*", false),
            ("EXCLUDE MANGLED net::*", true),
            ("EXCLUDE MANGLED net::* DEMANGLED net::*", false),
            ("EXCLUDE *\nINCLUDE MANGLED x\nINCLUDE net::*", true),
        ];
        for (rules, expected) in table {
            assert_eq!(admits(&regions(rules), method, None), expected, "{rules}");
        }
    }

    #[test]
    fn what_is_escaped_is_part_of_a_name() {
        assert!(!admits(&regions("EXCLUDE a\\#b"), "a#b", None));
        assert!(!admits(&regions("EXCLUDE \\INCLUDE"), "INCLUDE", None));
        assert!(!admits(&regions("EXCLUDE a\\ b"), "a b", None));
        assert!(!admits(&regions("EXCLUDE a\\*"), "a*", None));
        assert!(admits(&regions("EXCLUDE a\\*"), "ab", None));
    }

    #[test]
    fn no_rule_on_regions_brings_back_what_those_on_files_exclude() {
        let both = "SCOREP_FILE_NAMES_BEGIN EXCLUDE * INCLUDE */solver/*.c SCOREP_FILE_NAMES_END\n\
                    SCOREP_REGION_NAMES_BEGIN EXCLUDE debug* INCLUDE main SCOREP_REGION_NAMES_END";
        assert!(admits(both, "step", Some("/home/me/solver/step.c")));
        assert!(!admits(both, "debug_step", Some("/home/me/solver/step.c")));
        assert!(!admits(both, "main", Some("/home/me/main.c")));
        assert!(!admits(both, "step", None), "`*` matches what has no known file");
        let some = "SCOREP_FILE_NAMES_BEGIN EXCLUDE */solver/* SCOREP_FILE_NAMES_END";
        assert!(admits(some, "step", None));
        assert!(some.parse::<Filter>().unwrap().has_files() && !regions("").parse::<Filter>().unwrap().has_files());
    }

    #[test]
    fn any_name_of_a_function_counts() {
        let filter: Filter = regions("EXCLUDE other").parse().unwrap();
        let symbols = ["first", "other"].map(|name| Symbol { name: name.to_owned(), version: None, is_default: true });
        assert!(!filter.admits(&SelectedFunction { symbols: &symbols, ..SelectedFunction::named("first") }));
        assert!(!filter.admits(&SelectedFunction::named("other")));
    }

    #[test]
    fn what_does_not_parse_is_named_with_its_line() {
        let table = [
            ("EXCLUDE f", "line 1: `EXCLUDE` is outside of a block"),
            ("\n# x\nf", "line 3: `f` is outside"),
            ("SCOREP_REGION_NAMES_BEGIN\n f", "line 2: `f` has neither INCLUDE nor EXCLUDE in front of it"),
            ("SCOREP_REGION_NAMES_BEGIN\nEXCLUDE f\n", "line 1: the block that begins here has no end"),
            ("SCOREP_REGION_NAMES_BEGIN\nMANGLED f", "line 2: `MANGLED` belongs behind"),
            ("SCOREP_FILE_NAMES_BEGIN\nEXCLUDE\nMANGLED f", "line 3: `MANGLED` belongs behind"),
            ("SCOREP_FILE_NAMES_BEGIN\nSCOREP_REGION_NAMES_BEGIN", "line 2: `SCOREP_REGION_NAMES_BEGIN` begins a"),
            ("SCOREP_FILE_NAMES_BEGIN\nSCOREP_REGION_NAMES_END", "line 2: `SCOREP_REGION_NAMES_END` does not end"),
            ("SCOREP_REGION_NAMES_END", "line 1: `SCOREP_REGION_NAMES_END` does not end"),
            ("SCOREP_REGION_NAMES_BEGIN EXCLUDE f\\", "line 1: `\\` ends the line"),
            ("SCOREP_REGION_NAMES_BEGIN EXCLUDED f", "line 1: `EXCLUDED` has neither INCLUDE nor EXCLUDE"),
        ];
        for (text, expected) in table {
            let error = text.parse::<Filter>().unwrap_err().to_string();
            assert!(error.starts_with(expected), "{text:?}: {error}");
        }
    }
}
