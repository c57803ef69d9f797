//! What selects functions: their names, and the source files in which they are defined.

use std::str::FromStr;

use globset::GlobMatcher;
use regex::Regex;
use rtrace_symbolizer::{Function, Symbol};

use super::pattern::{self, LIBRARY, Pattern, PatternError, SOURCE};

/// The program itself, in place of the name of a library.
const PROGRAM: &str = "exe";

/// What is known of a function when it is selected.
#[derive(Clone, Copy, Debug)]
pub struct SelectedFunction<'a> {
    /// Its preferred name, demangled.
    pub name: &'a str,
    /// What tells it from others of that name.
    pub mark: &'a str,
    /// All its names; none where only one is known.
    pub symbols: &'a [Symbol],
    /// The source file of its definition, where that is known.
    pub source: Option<&'a str>,
    /// The file name of its library, where that is known.
    pub library: Option<&'a str>,
    /// Whether it is the program's own.
    pub is_of_program: bool,
    /// Bytes of its code, where that is known.
    pub size: Option<u64>,
}

impl<'a> SelectedFunction<'a> {
    /// A function, with its source file.
    pub fn new(function: &'a Function, source: Option<&'a str>) -> SelectedFunction<'a> {
        SelectedFunction {
            name: &function.name,
            mark: &function.mark,
            symbols: &function.symbols,
            source,
            library: None,
            is_of_program: false,
            // The size of an IFUNC is that of the code which chooses the function.
            size: Some(function.size).filter(|&size| size > 0 && !function.ifunc),
        }
    }

    /// One of which nothing but its name is known.
    pub fn named(name: &'a str) -> SelectedFunction<'a> {
        let (symbols, source, library, size) = (&[], None, None, None);
        SelectedFunction { name, mark: "", symbols, source, library, is_of_program: false, size }
    }

    /// Its names as the linker has them.
    pub(crate) fn linker_names(&self) -> impl Iterator<Item = &'a str> {
        let only = self.symbols.is_empty().then_some(self.name);
        only.into_iter().chain(self.symbols.iter().map(|symbol| symbol.name.as_str()))
    }
}

/// Selects functions by name, or, where it begins with `src:`, by the source file of their definition. Behind `lib:LIB:`
/// it selects only those of a library.
#[derive(Clone, Debug)]
pub enum Selector {
    /// By any of their names.
    Name(Pattern),
    /// By the source file of their definition.
    Source(SourcePattern),
    /// Those of a library whose file name matches that the selector selects; `exe` is the program, as for `--lib`.
    Library(String, GlobMatcher, Box<Selector>),
}

impl FromStr for Selector {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Selector, PatternError> {
        if let Some(rest) = pattern::behind(LIBRARY, text) {
            let parts = rest.split_once(':').filter(|(library, _)| !library.is_empty());
            let (library, functions) = parts.ok_or_else(|| PatternError::Library { text: text.to_owned() })?;
            // `libz.so` is that in each version, as for `--lib`.
            let versions = format!("{{{library},{library}.*}}");
            return Ok(Selector::Library(library.to_owned(), pattern::glob(&versions)?, Box::new(functions.parse()?)));
        }
        match pattern::behind(SOURCE, text) {
            Some(pattern) => Ok(Selector::Source(pattern.parse()?)),
            None => Ok(Selector::Name(text.parse()?)),
        }
    }
}

impl Selector {
    /// Whether it takes source files to decide.
    pub fn is_of_source(&self) -> bool {
        match self {
            Selector::Name(_) => false,
            Selector::Source(_) => true,
            Selector::Library(.., selector) => selector.is_of_source(),
        }
    }

    /// The names that it selects, where it selects by name.
    pub fn names(&self) -> Option<&Pattern> {
        match self {
            Selector::Name(pattern) => Some(pattern),
            Selector::Source(_) => None,
            Selector::Library(.., selector) => selector.names(),
        }
    }

    /// What was asked for, of functions by name.
    pub fn text(&self) -> String {
        self.names().map_or_else(|| SOURCE.to_owned(), Pattern::text)
    }

    /// The same with the library that it is asked of.
    pub fn whole_text(&self) -> String {
        match self {
            Selector::Library(library, ..) => format!("{LIBRARY}{library}:{}", self.text()),
            _ => self.text(),
        }
    }

    /// Whether it selects a function.
    pub fn selects(&self, function: &SelectedFunction<'_>) -> bool {
        match self {
            Selector::Name(pattern) => {
                pattern.matches(function.name)
                    || function.symbols.iter().any(|symbol| is_named(pattern, symbol))
                    || (!function.mark.is_empty() && pattern.matches(&[function.name, function.mark].concat()))
            }
            Selector::Source(pattern) => function.source.is_some_and(|source| pattern.matches(source)),
            Selector::Library(.., selector) => self.is_about(function) && selector.selects(function),
        }
    }

    /// Whether it selects functions of the library that this one is of.
    pub fn is_about(&self, function: &SelectedFunction<'_>) -> bool {
        let Selector::Library(name, library, _) = self else { return true };
        let is_program = function.is_of_program && name == PROGRAM;
        is_program || function.library.is_some_and(|name| library.is_match(name))
    }
}

/// Whether this is a name of a function, with its version if the pattern has one.
pub(crate) fn is_named(pattern: &Pattern, symbol: &Symbol) -> bool {
    pattern.matches(&symbol.name)
        || (pattern.has_version()
            && symbol.version.as_ref().is_some_and(|version| {
                pattern.matches(&format!("{}@{version}", symbol.name))
                    || pattern.matches(&[&*symbol.name, &*symbol.version_mark()].concat())
            }))
}

/// A glob over the whole path of a source file, in which `*` also stands for folders. One that does not begin with `/`
/// may begin at any folder. Behind `re:` there is a regular expression, which matches anywhere in the path.
#[derive(Clone, Debug)]
pub struct SourcePattern(SelectorKind);

#[derive(Clone, Debug)]
enum SelectorKind {
    /// Any of these.
    Globs(Vec<GlobMatcher>),
    Regex(Regex),
}

impl FromStr for SourcePattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<SourcePattern, PatternError> {
        if let Some(expression) = text.strip_prefix("re:") {
            return Ok(SourcePattern(SelectorKind::Regex(pattern::regex(expression, text)?)));
        }
        if text.is_empty() {
            return Err(PatternError::Empty);
        }
        let below = (!text.starts_with('/')).then(|| format!("*/{text}"));
        let globs = [Some(text.to_owned()), below].into_iter().flatten().map(|glob| pattern::glob(&glob));
        Ok(SourcePattern(SelectorKind::Globs(globs.collect::<Result<_, _>>()?)))
    }
}

impl SourcePattern {
    /// Whether it matches a whole path.
    pub fn matches(&self, path: &str) -> bool {
        match &self.0 {
            SelectorKind::Globs(globs) => globs.iter().any(|glob| glob.is_match(path)),
            SelectorKind::Regex(regex) => regex.is_match(path),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn selects(selector: &str, name: &str, source: Option<&str>) -> bool {
        selector.parse::<Selector>().unwrap().selects(&SelectedFunction { source, ..SelectedFunction::named(name) })
    }

    #[test]
    fn source_files_are_matched_whole_or_from_any_folder() {
        let path = Some("/home/me/solver/step.c");
        for pattern in
            ["*/solver/*.c", "/home/*", "solver/step.c", "step.c", "st?p.*", "me/*.{c,f90}", "re:step\\.c$", "*"]
        {
            assert!(selects(&format!("src:{pattern}"), "f", path), "{pattern}");
        }
        for pattern in ["olver/step.c", "/solver/*", "*.f90", "tep.c", "re:^solver", "f"] {
            assert!(!selects(&format!("src:{pattern}"), "f", path), "{pattern}");
        }
        assert!(selects("src:step.c", "f", Some("step.c")), "a path without a folder");
        assert!(!selects("src:*", "f", None), "a file that is not known matches nothing");
    }

    #[test]
    fn functions_of_one_library_are_selected() {
        let of = |selector: &str, library: &str, name: &str| {
            let function = SelectedFunction { library: Some(library), ..SelectedFunction::named(name) };
            selector.parse::<Selector>().unwrap().selects(&function)
        };
        for selector in ["lib:libz.so:crc*", "lib:libz*:/^crc/", "lib:libz:crc32", "lib:libz.so.1:crc32"] {
            assert!(of(selector, "libz.so.1", "crc32"), "{selector}");
            assert!(!of(selector, "libpng.so.1", "crc32") && !of(selector, "libz.so.1", "deflate"), "{selector}");
        }
        assert!(!of("lib:libz.so.1:*", "libz.so.10", "crc32"));
        let own = SelectedFunction { library: Some("fit"), is_of_program: true, ..SelectedFunction::named("main") };
        let selects_own = |text: &str| text.parse::<Selector>().unwrap().selects(&own);
        assert_eq!(
            ["lib:exe:ma*", "lib:fit:main", "lib:exe:f", "lib:libz.so:*"].map(selects_own),
            [true, true, false, false]
        );
        assert!(!of("lib:exe:*", "libz.so.1", "crc32"), "a library is not the program");
        assert_eq!("lib:libz.so:crc*".parse::<Selector>().unwrap().whole_text(), "lib:libz.so:crc*");
        assert!(!selects("lib:libz.so:*", "crc32", None), "a library that is not known matches nothing");
        assert!(selects("lib::f(int)", "lib::f(int)", None), "a function of a namespace of that name");
        assert!("lib:libz.so:src:*.c".parse::<Selector>().unwrap().is_of_source());
        assert!("lib:libz.so".parse::<Selector>().unwrap_err().to_string().contains("lib:LIB:PATTERN"));
    }

    #[test]
    fn functions_of_a_namespace_of_that_name_are_functions() {
        assert!(selects("src::f(int)", "src::f(int)", None));
        assert!(selects("src::*", "src::g()", Some("/x/y.c")));
        assert!(!"src::*".parse::<Selector>().unwrap().is_of_source());
    }

    #[test]
    fn what_cannot_be_understood_is_named() {
        let error = |text: &str| text.parse::<Selector>().unwrap_err().to_string();
        assert!(error("src:[").contains("`[`"), "{}", error("src:["));
        assert!(error("src:re:(").contains("`re:(`"));
        assert_eq!(error("src:"), "failed to read the pattern: it is empty");
    }
}
