//! Call sites: where in programs and libraries traced functions are called from.

use serde::{Deserialize, Serialize};

use crate::CallSiteId;

/// The instruction behind a call of a traced function: where it returns to.
///
/// Where a function ends in a jump to a traced one, that is the place to which both return.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CallSite {
    /// Its id.
    pub id: CallSiteId,
    /// The path of the program or library that holds it, as the process sees it. `None` where no file is mapped, as
    /// for code that is made while the program runs, or where the process had ended before it could be asked.
    pub file: Option<String>,
    /// Its offset in that file in bytes; where there is none, the address in the process.
    pub offset: u64,
    /// The function that the symbol table or debug information names there, demangled, not escaped: the one whose
    /// code it is, into which others may be inlined.
    pub function: Option<String>,
    /// Bytes from the start of that function.
    pub function_offset: Option<u64>,
    /// Where no symbol covers the place: the last function in front of it that the file exports, with the distance in
    /// bytes, as `puts+0x1f0`. The code may be that of another one. Demangled, not escaped.
    pub nearest: Option<String>,
    /// Where in the sources the call is, in the function or in the innermost that is inlined there.
    pub source: Option<SourceLine>,
    /// The functions that are inlined there, the outermost first.
    pub inlined: Vec<Inlined>,
    /// Whether the kernel executes the instruction there in a single step, because of the probe at which returns are seen.
    pub single_stepped: bool,
}

/// A line of a source file.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SourceLine {
    /// The path that the compiler was told.
    pub file: String,
    /// Counts up from 1; 0 where the compiler attributes the code to no line.
    pub line: u32,
}

/// A function whose code the compiler has put into its caller.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Inlined {
    /// Its name, demangled, not escaped.
    pub function: String,
    /// Where its caller calls it, where known.
    pub called_at: Option<SourceLine>,
}

impl CallSite {
    /// Whether it is a line of a function that an interpreter runs: that is in no file of code.
    pub fn is_interpreted(&self) -> bool {
        self.file.is_none() && self.source.is_some()
    }

    /// The function that holds the call in the sources: the innermost inlined one, or the one whose code it is.
    pub fn innermost(&self) -> Option<&str> {
        self.inlined.last().map(|inlined| inlined.function.as_str()).or(self.function.as_deref())
    }
}

/// As people read it: `w.c:12 in multiply (inlined in main)`; without a line, `main+0x2b7 (libfoo.so)`; without
/// a symbol, `near main+0x2b7 (libfoo.so)`; not escaped.
impl std::fmt::Display for CallSite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let base = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
        let file = self.file.as_deref().map_or_else(|| "no file".to_owned(), base);
        match (&self.source, self.innermost(), &self.function, self.function_offset) {
            (Some(source), Some(innermost), outer, _) => {
                write!(f, "{}:{} in {innermost}", base(&source.file), source.line)?;
                match outer {
                    Some(outer) if !self.inlined.is_empty() => write!(f, " (inlined in {outer})"),
                    _ => Ok(()),
                }
            }
            (_, _, Some(function), Some(offset)) => write!(f, "{function}+{offset:#x} ({file})"),
            _ => match &self.nearest {
                Some(nearest) => write!(f, "near {nearest} ({file})"),
                None => write!(f, "{:#x} ({file})", self.offset),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_reads_as_much_as_is_known() {
        let line = |file: &str, line| Some(SourceLine { file: file.to_owned(), line });
        let unknown = CallSite { offset: 0x7f00, ..CallSite::default() };
        assert_eq!(unknown.to_string(), "0x7f00 (no file)");
        let in_file = CallSite { file: Some("/usr/lib/libfoo.so".to_owned()), ..unknown };
        assert_eq!(in_file.to_string(), "0x7f00 (libfoo.so)");
        let near = CallSite { nearest: Some("puts+0x1f0".to_owned()), ..in_file.clone() };
        assert_eq!(near.to_string(), "near puts+0x1f0 (libfoo.so)");
        let named = CallSite { function: Some("main".to_owned()), function_offset: Some(0x2b7), ..in_file };
        assert_eq!(named.to_string(), "main+0x2b7 (libfoo.so)");
        let lined = CallSite { source: line("/src/w.c", 12), ..named };
        assert_eq!(lined.to_string(), "w.c:12 in main");
        let inlined = vec![Inlined { function: "multiply".to_owned(), called_at: line("/src/w.c", 32) }];
        assert_eq!(CallSite { inlined, ..lined }.to_string(), "w.c:12 in multiply (inlined in main)");
    }
}
