//! What tells functions of one name apart: versions of a symbol, functions of one name in several source files, and
//! symbols that are demangled to the same text.

use foldhash::HashMap;

use crate::Function;

/// A symbol that is longer says less than where the function is.
const LONGEST_SYMBOL: usize = 64;

/// Characters of the hash at the end of symbols of Rust's older mangling, without the `h` and the `E` around it.
const RUST_HASH: usize = 16;

/// What may tell a function from others of its name, by preference.
#[derive(Clone, Copy)]
enum Distinction {
    Version,
    Symbol,
    SourceFile,
    Offset,
}

impl Distinction {
    const ALL: [Distinction; 4] =
        [Distinction::Version, Distinction::Symbol, Distinction::SourceFile, Distinction::Offset];

    fn of(self, function: &Function, source_file: Option<&str>) -> Option<String> {
        let symbol = function.symbols.first()?;
        match self {
            Distinction::Version => symbol.version.as_ref().map(|_| symbol.version_mark()),
            Distinction::Symbol if symbol.name == function.name => None,
            Distinction::Symbol => match rust_hash(&symbol.name) {
                Some(hash) => Some(format!(" [h{hash}]")),
                None => (symbol.name.len() <= LONGEST_SYMBOL).then(|| format!(" [{}]", symbol.name)),
            },
            Distinction::SourceFile => source_file.map(|file| format!(" ({file})")),
            Distinction::Offset => Some(format!("@{:#x}", function.file_offset)),
        }
    }
}

fn rust_hash(symbol: &str) -> Option<&str> {
    let (before, hash) = symbol.strip_suffix('E')?.split_at_checked(symbol.len().checked_sub(1 + RUST_HASH)?)?;
    (before.ends_with("17h") && hash.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(hash)
}

/// Marks those functions whose names others have, too; `source_file`: of a function, where the symbol table tells.
pub(crate) fn distinguish<'f>(mut functions: Vec<&mut Function>, source_file: impl Fn(&Function) -> Option<&'f str>) {
    let mut by_name: HashMap<String, Vec<usize>> = HashMap::default();
    for (place, function) in functions.iter().enumerate() {
        by_name.entry(function.name.clone()).or_default().push(place);
    }
    for mut same in by_name.into_values() {
        for kind in Distinction::ALL {
            let mut by_mark: HashMap<String, Vec<usize>> = HashMap::default();
            for place in same.drain(..) {
                by_mark.entry(functions[place].mark.clone()).or_default().push(place);
            }
            same = by_mark.into_values().filter(|places| places.len() > 1).flatten().collect();
            if same.is_empty() {
                break;
            }
            let marks: Vec<_> =
                same.iter().map(|&place| kind.of(functions[place], source_file(functions[place]))).collect();
            // What all of them have tells none apart.
            if marks.iter().any(|mark| *mark != marks[0]) {
                for (&place, mark) in same.iter().zip(marks) {
                    functions[place].mark.extend(mark);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Symbol;

    fn function(name: &str, symbol: &str, version: Option<(&str, bool)>, file_offset: u64) -> Function {
        let is_default = version.is_none_or(|(_, is_default)| is_default);
        let version = version.map(|(version, _)| version.to_owned());
        let symbols = vec![Symbol { name: symbol.to_owned(), version, is_default }];
        let (address, size, ifunc, mark) = (file_offset, 1, false, String::new());
        Function { symbols, name: name.to_owned(), mark, address, file_offset, size, ifunc }
    }

    fn shown(functions: &mut [Function], files: &[(u64, &'static str)]) -> Vec<String> {
        let file = |function: &Function| {
            files.iter().find(|(offset, _)| *offset == function.file_offset).map(|(_, file)| *file)
        };
        distinguish(functions.iter_mut().collect(), file);
        functions.iter().map(Function::shown).collect()
    }

    #[test]
    fn versions_come_first_and_unique_names_stay() {
        let old = function("calc", "calc", Some(("VER_1", false)), 0x10);
        let new = function("calc", "calc", Some(("VER_2", true)), 0x20);
        let other = function("other", "other", Some(("VER_2", true)), 0x30);
        assert_eq!(shown(&mut [old, new, other], &[]), ["calc@VER_1", "calc@@VER_2", "other"]);
    }

    #[test]
    fn static_functions_are_told_by_their_source_files_or_their_places() {
        let mut functions = [0x10, 0x20, 0x30, 0x40, 0x50].map(|offset| function("init", "init", None, offset));
        let names = shown(&mut functions, &[(0x10, "a.c"), (0x20, "b.c"), (0x30, "c.c"), (0x40, "c.c")]);
        assert_eq!(names, ["init (a.c)", "init (b.c)", "init (c.c)@0x30", "init (c.c)@0x40", "init"]);
        let mut functions = [0x10, 0x20].map(|offset| function("init", "init", None, offset));
        assert_eq!(shown(&mut functions, &[(0x10, "a.c"), (0x20, "a.c")]), ["init@0x10", "init@0x20"]);
    }

    #[test]
    fn symbols_that_read_the_same_are_told_by_what_they_are() {
        let base = function("A::A()", "_ZN1AC2Ev", None, 0x10);
        let complete = function("A::A()", "_ZN1AC1Ev", None, 0x20);
        assert_eq!(shown(&mut [base, complete], &[]), ["A::A() [_ZN1AC2Ev]", "A::A() [_ZN1AC1Ev]"]);
        let rust = |hash: &str, offset| function("a::f", &format!("_ZN1a1f17h{hash}E"), None, offset);
        let (one, two) = (rust("0123456789abcdef", 0x10), rust("fedcba9876543210", 0x20));
        assert_eq!(shown(&mut [one, two], &[]), ["a::f [h0123456789abcdef]", "a::f [hfedcba9876543210]"]);
        let long = |last: &str, offset| function("f", &format!("_Z{}{last}", "x".repeat(99)), None, offset);
        assert_eq!(shown(&mut [long("a", 0x10), long("b", 0x20)], &[]), ["f@0x10", "f@0x20"]);
    }
}
