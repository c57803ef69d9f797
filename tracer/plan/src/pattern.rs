//! Function names as people select them.

use std::str::FromStr;

use globset::{GlobBuilder, GlobMatcher};
use regex::{Regex, RegexBuilder};
use rtrace_model::names;

/// What begins a pattern of source files.
pub(crate) const SOURCE: &str = "src:";
/// What begins a pattern for functions of one library.
pub(crate) const LIBRARY: &str = "lib:";
/// What compilers append to the names of copies of functions.
const COPIES: [&str; 4] = [".constprop.", ".isra.", ".lto_priv.", ".llvm."];
/// Compiled patterns larger than this many bytes are refused.
const MAX_REGEX_SIZE: usize = 1 << 20;

/// Selects functions by any of their names, linker names, with `@VERSION` or without, and demangled.
///
/// `re:EXPR` and `/EXPR/` are regular expressions that match anywhere in a name. Text with `*` or
/// `?` is a glob over the whole name, where `[…]` and `{…}` work too. Anything else is one exact
/// name, so that `operator[]` needs no quoting; the parameters that a demangled name ends in may be left out, and of a
/// template its arguments and the type of its result. A USDT probe is called `provider:name`, and only patterns with such a
/// colon select it.
#[derive(Clone, Debug)]
pub struct Pattern {
    kind: PatternKind,
    has_version: bool,
    is_of_markers: bool,
}

#[derive(Clone, Debug)]
enum PatternKind {
    Exact(String),
    Glob(GlobMatcher),
    Regex(Regex),
}

/// A pattern that cannot be understood.
#[derive(Debug, thiserror::Error)]
pub enum PatternError {
    /// Not a glob.
    #[error("failed to read the glob `{text}`: {source}")]
    Glob {
        /// The pattern.
        text: String,
        /// Why.
        source: globset::Error,
    },
    /// Not a regular expression.
    #[error("failed to read the regular expression `{text}`: {source}")]
    Regex {
        /// The pattern.
        text: String,
        /// Why.
        source: regex::Error,
    },
    /// Source files or libraries, where only names are known.
    #[error("failed to read the pattern `{text}`: here functions are selected by name alone")]
    Source {
        /// The pattern.
        text: String,
    },
    /// A library without a pattern for its functions.
    #[error("failed to read the pattern `{text}`: write lib:LIB:PATTERN")]
    Library {
        /// The pattern.
        text: String,
    },
    /// Nothing at all.
    #[error("failed to read the pattern: it is empty")]
    Empty,
}

impl FromStr for Pattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Pattern, PatternError> {
        let between_slashes = text.strip_prefix('/').and_then(|rest| rest.strip_suffix('/'));
        let kind = match text.strip_prefix("re:").or(between_slashes) {
            Some(expression) => PatternKind::Regex(regex(expression, text)?),
            None if text.is_empty() => return Err(PatternError::Empty),
            None if behind(SOURCE, text).or(behind(LIBRARY, text)).is_some() => {
                return Err(PatternError::Source { text: text.to_owned() });
            }
            None if text.contains(['*', '?']) => PatternKind::Glob(glob(text)?),
            None => PatternKind::Exact(text.to_owned()),
        };
        Ok(Pattern {
            kind,
            has_version: text.contains('@'),
            is_of_markers: has_lone_colon(text.trim_start_matches("re:")),
        })
    }
}

/// What is behind the word that a pattern begins with, such as `src:`. `src::f` is a function.
pub(crate) fn behind<'t>(word: &str, text: &'t str) -> Option<&'t str> {
    text.strip_prefix(word).filter(|rest| !rest.starts_with(':'))
}

/// Whether a name is that of a USDT probe: `provider:name`, each of which is a word. A colon by itself is also in names of functions, as
/// in `text[abi:cxx11]()` and `-[List add:]`.
pub(crate) fn is_of_marker(name: &str) -> bool {
    let is_word = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || c == '_');
    name.split_once(':').is_some_and(|(provider, place)| is_word(provider) && is_word(place))
}

/// Whether a pattern may select USDT probes: there is a colon that is none of `::`.
fn has_lone_colon(text: &str) -> bool {
    let bytes = text.as_bytes();
    let is_colon = |at: usize| bytes.get(at) == Some(&b':');
    (0..bytes.len()).any(|at| is_colon(at) && !is_colon(at + 1) && (at == 0 || !is_colon(at - 1)))
}

/// Whether a name is that of a function of the source, by what follows that there: nothing, the arguments of its template, its
/// parameters, or what the compiler has appended to the name of a copy that it calls instead.
fn is_same_function(rest: &str) -> bool {
    let arguments = rest.starts_with('<').then(|| names::matching(rest, '<', '>')).flatten();
    let rest = arguments.map_or(rest, |end| &rest[end + 1..]);
    rest.is_empty() || rest.starts_with('(') || COPIES.iter().any(|copy| rest.starts_with(copy))
}

/// The name of a template's function behind the type of its result, with which it begins when it is demangled.
fn behind_result(name: &str) -> Option<&str> {
    let mut depth = 0_i32;
    let mut begin = None;
    for (place, c) in name.char_indices() {
        match c {
            '<' => depth += 1,
            '>' => depth -= 1,
            ' ' if depth == 0 => begin = Some(place + 1),
            '(' if depth == 0 => break,
            'o' if depth == 0 && name[place..].starts_with("operator") => break,
            _ => {}
        }
    }
    begin.map(|begin| &name[begin..])
}

/// Compiles a regular expression of the pattern `text`.
pub(crate) fn regex(expression: &str, text: &str) -> Result<Regex, PatternError> {
    let built = RegexBuilder::new(expression).size_limit(MAX_REGEX_SIZE).build();
    built.map_err(|source| PatternError::Regex { text: text.to_owned(), source })
}

/// Compiles a glob in which `*` also stands for `/`.
pub(crate) fn glob(text: &str) -> Result<GlobMatcher, PatternError> {
    let built = GlobBuilder::new(text).literal_separator(false).build();
    Ok(built.map_err(|source| PatternError::Glob { text: text.to_owned(), source })?.compile_matcher())
}

impl Pattern {
    /// What was asked for.
    pub fn text(&self) -> String {
        match &self.kind {
            PatternKind::Exact(text) => text.clone(),
            PatternKind::Glob(glob) => glob.glob().glob().to_owned(),
            PatternKind::Regex(regex) => format!("/{}/", regex.as_str()),
        }
    }

    /// Whether it may name a version of a symbol, as `calc@VER_1` does.
    pub(crate) fn has_version(&self) -> bool {
        self.has_version
    }

    /// Whether this one name matches.
    pub fn matches(&self, name: &str) -> bool {
        if is_of_marker(name) && !self.is_of_markers {
            return false;
        }
        match &self.kind {
            PatternKind::Exact(text) => {
                let is_it = |name: &str| name.strip_prefix(text.as_str()).is_some_and(is_same_function);
                is_it(name) || behind_result(name).is_some_and(is_it)
            }
            PatternKind::Glob(glob) => glob.is_match(name),
            PatternKind::Regex(regex) => regex.is_match(name),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn matches(pattern: &str, name: &str) -> bool {
        pattern.parse::<Pattern>().unwrap().matches(name)
    }

    #[test]
    fn exact_names_hold_any_character() {
        assert!(matches("deflate", "deflate"));
        assert!(!matches("deflate", "deflateInit_"));
        assert!(matches("QString::operator[](int)", "QString::operator[](int)"));
        assert!(matches("app::plain", "app::plain(long)") && !matches("app::plai", "app::plain(long)"));
        assert!(!matches("plain", "app::plain(long)") && !matches("app::plain(int)", "app::plain(long)"));
        assert!(matches("cloned", "cloned.constprop.0") && matches("cloned", "cloned.isra.0"));
        let sum = "double app::sum<double>(std::vector<double> const&)";
        assert!(matches("app::sum", sum) && matches("app::sum<double>", sum) && matches(sum, sum));
        assert!(!matches("app::sum<int>", sum) && !matches("sum", sum) && !matches("app::su", sum));
        assert!(!matches("std::vector", "std::vector<int>::push_back(int const&)"));
        assert!(matches("app::operator<", "app::operator<(app::Box<int> const&, app::Box<int> const&)"));
        assert!(!matches("app::operator<", "app::operator<<(app::Box<int> const&, int)"));
        assert!(!matches("bool", "app::Box::operator bool() const"));
        assert!(!matches("cloned", "cloned.cold") && !matches("cloned", "cloned.part.0"));
    }

    #[test]
    fn marked_places_take_a_colon() {
        assert!(matches("python:*", "python:line") && matches("*:line", "python:line"));
        assert!(matches("python:line", "python:line") && matches("/^python:/", "python:line"));
        for pattern in ["*", "python*", "*line", "/line/", "std::*"] {
            assert!(!matches(pattern, "python:line"), "{pattern}");
        }
        assert!(!matches("re:line", "python:line") && matches("re:on:line", "python:line"));
        for function in ["text[abi:cxx11](int)", "-[List add:]", "std::less", "f(int)::{lambda(int)#1}"] {
            assert!(matches("*", function) && matches("re:.", function), "{function}");
        }
        assert!(matches("text[abi:cxx11]", "text[abi:cxx11](int)"));
    }

    #[test]
    fn globs_cover_the_whole_name() {
        assert!(matches("inflate*", "inflateInit2_"));
        assert!(!matches("flate*", "inflate"));
        assert!(matches("std::*::push_back*", "std::vector<a/b>::push_back(int)"));
        assert!(matches("crc3?", "crc32"));
        assert!(matches("*{Init,End}_", "deflateInit_"));
    }

    #[test]
    fn regular_expressions_match_anywhere() {
        assert!(matches("/flate(Init|End)/", "inflateEnd"));
        assert!(matches("re:^gz", "gzopen"));
        assert!(!matches("re:^gz$", "gzopen"));
    }

    #[test]
    fn what_cannot_be_understood_is_named() {
        assert!("re:(".parse::<Pattern>().unwrap_err().to_string().contains("`re:(`"));
        assert!("*[".parse::<Pattern>().unwrap_err().to_string().contains("`*[`"));
        assert!("re:(a{1000}){1000}".parse::<Pattern>().is_err());
        assert!("".parse::<Pattern>().is_err());
        assert!("src:*.c".parse::<Pattern>().unwrap_err().to_string().contains("`src:*.c`"));
    }
}
