//! The functions that an ELF file offers, one per address with all its names.

use std::borrow::Borrow;
use std::hash::Hash;

use foldhash::{HashMap, HashSet};
use rtrace_model::{text_of, words};

use crate::symtab::{SymbolEntry, SymbolTable};
use crate::{Error, Function, Image, Symbol, UsdtProbe, demangle, distinct};

/// Names may share their bytes in the file, so a small file can claim many long ones; all names
/// with their versions may be this many times as long as the file.
const NAMES_TO_FILE: usize = 2;

/// Stands for names that are too long, of which an address has only one.
const CUT: &[u8] = b"";

/// A symbol that looks like a function but cannot be one that is worth a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The name as the linker knows it.
    pub name: String,
    /// Why it is not among the functions.
    pub reason: RefusedReason,
}

words! {
    /// Why a symbol is not among the functions.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[non_exhaustive]
    RefusedReason {
        /// The symbol is not exported and states no length, as those of start-up code.
        SizeZero = "the symbol has no size",
        /// The symbol does not lie in an executable segment, or not all of it.
        OutsideCode = "the symbol lies outside executable code",
        /// The symbol is the rarely used part of another function, which is jumped to, not called.
        ColdPart = "the symbol is a part of another function",
        /// The symbol has no type and lies behind the first instruction of a function.
        Inside = "the symbol has no type and lies within another function",
        /// The symbol has no name, or one that is not within the string table.
        Nameless = "the symbol has no readable name",
    }
}

/// What [`Image::exports`] found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exports {
    /// One per address, sorted by file offset.
    pub functions: Vec<Function>,
    /// Addresses within executable code that are exported by symbols without a type, sorted by file offset:
    /// functions written in assembly, or constants between functions.
    pub untyped: Vec<Function>,
    /// The function symbols that were left out, in symbol table order.
    pub refused: Vec<Refused>,
    /// Marked places within functions, sorted by file offset.
    pub markers: Vec<UsdtProbe>,
}

impl Exports {
    /// Whether nothing was found that is or may be a function.
    pub fn is_empty(&self) -> bool {
        self.functions.is_empty() && self.untyped.is_empty()
    }

    /// All that may be asked for by name.
    pub fn all(&self) -> impl Iterator<Item = &Function> {
        let markers = self.markers.iter().map(|marker| &marker.place);
        self.functions.iter().chain(&self.untyped).chain(markers)
    }

    /// Takes those of the addresses without a type that `is_function` accepts for functions.
    pub fn accept(&mut self, is_function: impl FnMut(&mut Function) -> bool) {
        self.functions.extend(self.untyped.extract_if(.., is_function));
        self.functions.sort_by_key(|function| function.file_offset);
    }
}

impl Image {
    /// The functions of `.dynsym`; for an executable, and for a file that exports none, those of
    /// `.symtab` too, local ones included.
    ///
    /// A symbol without a type is a function where an unwind entry begins, and where the file itself calls
    /// it through the linkage table.
    ///
    /// # Errors
    /// [`Error::Malformed`] when a section header or a symbol table lies outside the file.
    pub fn exports(&self) -> Result<Exports, Error> {
        self.functions(false)
    }

    /// The same, with the functions of `.symtab` that the file does not export.
    ///
    /// # Errors
    /// As [`Image::exports`].
    pub fn all_functions(&self) -> Result<Exports, Error> {
        self.functions(true)
    }

    /// Whether the file, or its debug file, has the names of functions that it does not export.
    pub fn has_all_names(&self) -> bool {
        matches!(SymbolTable::full(self), Ok(Some(_)))
    }

    fn functions(&self, takes_all: bool) -> Result<Exports, Error> {
        let mut collector = Collector::new(self);
        if let Some(table) = SymbolTable::dynamic(self)? {
            let exported = |entry: &SymbolEntry| entry.is_defined() && !entry.is_local();
            table.entries().filter(exported).for_each(|entry| collector.add(&table, entry));
        }
        let finds_none = collector.candidates.is_empty();
        // Where section headers are damaged, what is loaded still tells of the exported functions.
        let full = SymbolTable::full(self).or_else(|error| if finds_none { Err(error) } else { Ok(None) })?;
        if (takes_all || finds_none || self.is_executable())
            && let Some(table) = full
        {
            let mut file = None;
            for entry in table.entries() {
                // Symbols of a source file that no other can refer to follow that of the file.
                if entry.kind() == object::elf::STT_FILE {
                    file = table.name(entry).and_then(|name| str::from_utf8(name).ok()).filter(|name| !name.is_empty());
                } else if entry.is_defined() {
                    if let Some(file) = file.filter(|_| entry.is_local() && entry.is_function()) {
                        collector.files.insert(entry.address(), file);
                    }
                    collector.add(&table, entry);
                }
            }
        }
        let mut exports = collector.finish();
        if !exports.untyped.is_empty() {
            self.judge_untyped(&mut exports);
        }
        Ok(exports)
    }

    /// Where functions begin that no other file can call, nor another part of this one when it was linked: all their
    /// names are local. None where the file names only those that it exports.
    pub fn local_functions(&self) -> std::collections::HashSet<u64> {
        let tables = [SymbolTable::full(self), SymbolTable::dynamic(self)].into_iter().flatten().flatten();
        let (mut local, mut others) = (std::collections::HashSet::new(), HashSet::default());
        for table in tables {
            for entry in table.entries().filter(|entry| entry.is_function() && entry.is_defined()) {
                match entry.is_local() {
                    true => local.insert(entry.address()),
                    false => others.insert(entry.address()),
                };
            }
        }
        local.retain(|address| !others.contains(address));
        local
    }

    /// Decides on addresses without a type, as far as unwind entries and the linkage table tell.
    fn judge_untyped(&self, exports: &mut Exports) {
        let frames = self.frame_ranges();
        let code = self.code_ranges();
        let called: HashSet<&str> = self.called_names().collect();
        let is_inside = |function: &mut Function| {
            let before = code.partition_point(|range| range.start < function.address);
            before > 0 && function.address < code[before - 1].end
        };
        let refused = exports.untyped.extract_if(.., is_inside);
        let refused = refused.map(|function| Refused { name: function.name, reason: RefusedReason::Inside });
        exports.refused.extend(refused);
        exports.accept(|function| {
            let frame = frames.binary_search_by_key(&function.address, |frame| frame.start);
            frame.is_ok_and(|frame| frames[frame].entry_is_plain) || function.has_name_in(&called)
        });
    }
}

impl Function {
    /// The name by which people see it: no other of the file has it.
    pub fn shown(&self) -> String {
        [&*self.name, &*self.mark].concat()
    }

    /// Whether one of its names is among these.
    pub fn has_name_in<N: Borrow<str> + Eq + Hash>(&self, names: &HashSet<N>) -> bool {
        self.symbols.iter().any(|symbol| names.contains(symbol.name.as_str()))
    }
}

/// One name of one address, before they are put together.
struct NameCandidate<'a> {
    address: u64,
    size: u64,
    ifunc: bool,
    is_typed: bool,
    /// Orders the names of an address; the lowest is preferred.
    rank: NameRank,
    name: String,
    version: Option<&'a str>,
    is_default: bool,
}

/// People want the name that programs are linked to now and that they would write themselves:
/// libc's `write` is a weak name of `__write`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct NameRank {
    is_old_version: bool,
    is_reserved: bool,
    binding: SymbolBinding,
    length: usize,
}

/// Whether it is the name behind which tools put functions of their own, as `PMPI_Send` is for `MPI_Send`: the other name
/// with a `p` in front, which the same function has.
fn is_profiling(name: &str, names: &[NameCandidate]) -> bool {
    let wrapped = name.strip_prefix(['p', 'P']);
    wrapped.is_some_and(|wrapped| names.iter().any(|other| other.name == wrapped))
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum SymbolBinding {
    Global,
    Weak,
    Local,
}

impl SymbolBinding {
    fn of(entry: SymbolEntry) -> SymbolBinding {
        if entry.is_local() {
            SymbolBinding::Local
        } else if entry.is_weak() {
            SymbolBinding::Weak
        } else {
            SymbolBinding::Global
        }
    }
}

struct Collector<'a> {
    image: &'a Image,
    candidates: Vec<NameCandidate<'a>>,
    refused: Vec<Refused>,
    /// Names that were met, so that `.symtab` does not repeat those of `.dynsym`.
    seen: HashSet<(u64, &'a [u8])>,
    /// The source files of local functions, by address.
    files: HashMap<u64, &'a str>,
    /// Bytes that further names may take.
    budget: usize,
}

impl<'a> Collector<'a> {
    fn new(image: &'a Image) -> Collector<'a> {
        let budget = image.bytes().size().saturating_mul(NAMES_TO_FILE);
        Collector {
            image,
            candidates: Vec::new(),
            refused: Vec::new(),
            seen: HashSet::default(),
            files: HashMap::default(),
            budget,
        }
    }

    fn add(&mut self, table: &SymbolTable<'a>, entry: SymbolEntry<'a>) {
        if !entry.is_function() && !self.may_be_function(entry) {
            return;
        }
        let version = table.version(entry);
        let length = |name: &[u8]| name.len() + version.map_or(0, |version| version.name.len());
        let name = table.name(entry).filter(|name| !name.is_empty() && length(name) <= self.budget);
        let Some(full_name) = name else {
            match table.cut_name(entry).filter(|name| length(name.as_bytes()) <= self.budget) {
                Some(name) if self.seen.insert((entry.address(), CUT)) => {
                    self.budget -= length(name.as_bytes());
                    self.take(entry, name, version.map(|version| (version.name, version.is_default)));
                }
                Some(_) => {}
                None => {
                    let name = format!("(no name, at {:#x})", entry.address());
                    self.refused.push(Refused { name, reason: RefusedReason::Nameless });
                }
            }
            return;
        };
        self.budget -= length(full_name);
        let (name, version) = match (split_version(full_name), version) {
            (_, Some(version)) => (full_name, Some((version.name, version.is_default))),
            (Some((name, version, is_default)), None) => (name, Some((version, is_default))),
            (None, None) => (full_name, None),
        };
        if self.seen.insert((entry.address(), name)) {
            self.take(entry, text_of(name).into_owned(), version);
        }
    }

    /// Takes a symbol of this name; with its version, and whether that is the default one.
    fn take(&mut self, entry: SymbolEntry<'a>, name: String, version: Option<(&'a str, bool)>) {
        if let Some(reason) = self.refusal(&name, entry) {
            self.refused.push(Refused { name, reason });
            return;
        }
        self.candidates.push(NameCandidate {
            address: entry.address(),
            size: entry.size(),
            ifunc: entry.is_ifunc(),
            is_typed: entry.is_function(),
            rank: NameRank {
                is_old_version: version.is_some_and(|(_, is_default)| !is_default),
                is_reserved: name.starts_with('_'),
                binding: SymbolBinding::of(entry),
                length: name.len(),
            },
            name,
            is_default: version.is_none_or(|(_, is_default)| is_default),
            version: version.map(|(name, _)| name),
        });
    }

    /// Whether a symbol without a type may be meant for a function: other files can refer to it, and it
    /// lies in executable code.
    fn may_be_function(&self, entry: SymbolEntry) -> bool {
        entry.is_untyped() && entry.is_visible() && self.image.code(entry.address(), 1).is_some()
    }

    fn refusal(&self, name: &str, entry: SymbolEntry) -> Option<RefusedReason> {
        if self.image.code(entry.address(), entry.size() as usize).is_none() {
            Some(RefusedReason::OutsideCode)
        } else if entry.size() == 0 && !entry.is_visible() {
            Some(RefusedReason::SizeZero)
        } else if name.ends_with(".cold") || name.contains(".cold.") {
            Some(RefusedReason::ColdPart)
        } else {
            None
        }
    }

    fn finish(mut self) -> Exports {
        self.candidates.sort_by(|a, b| (a.address, a.rank, &a.name).cmp(&(b.address, b.rank, &b.name)));
        let same_address = |a: &NameCandidate, b: &NameCandidate| a.address == b.address;
        let (mut functions, mut untyped) = (Vec::new(), Vec::new());
        for names in self.candidates.chunk_by(same_address) {
            let is_typed = names.iter().any(|candidate| candidate.is_typed);
            let found = if is_typed { &mut functions } else { &mut untyped };
            found.extend(function(self.image, names));
        }
        for found in [&mut functions, &mut untyped] {
            found.sort_by_key(|function| function.file_offset);
        }
        distinct::distinguish(functions.iter_mut().chain(&mut untyped).collect(), |function| {
            self.files.get(&function.address).copied()
        });
        Exports { functions, untyped, refused: self.refused, markers: self.image.markers() }
    }
}

/// Puts the names of one address together.
fn function(image: &Image, names: &[NameCandidate]) -> Option<Function> {
    // Sorted by preference.
    let (profiling, others): (Vec<&NameCandidate>, Vec<&NameCandidate>) =
        names.iter().partition(|candidate| is_profiling(&candidate.name, names));
    let names: Vec<&NameCandidate> = others.into_iter().chain(profiling).collect();
    let preferred = names.first()?;
    let symbol = |candidate: &&NameCandidate| {
        let version = candidate.version.map(str::to_owned);
        Symbol { name: candidate.name.clone(), version, is_default: candidate.is_default }
    };
    Some(Function {
        symbols: names.iter().map(symbol).collect(),
        name: demangle(&preferred.name),
        mark: String::new(),
        address: preferred.address,
        file_offset: image.file_offset(preferred.address)?,
        size: names.iter().map(|candidate| candidate.size).max()?,
        ifunc: names.iter().any(|candidate| candidate.ifunc),
    })
}

/// Takes apart `name@VERSION` and `name@@VERSION` (the default), as linkers write them into `.symtab`.
fn split_version(name: &[u8]) -> Option<(&[u8], &str, bool)> {
    let at = name.iter().position(|&byte| byte == b'@').filter(|&at| at > 0)?;
    let version = str::from_utf8(&name[at + 1..]).ok()?;
    let default = version.strip_prefix('@');
    Some((&name[..at], default.unwrap_or(version), default.is_some()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::path::PathBuf;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::{fixture, modules};

    fn library(name: &str) -> Image {
        let modules = modules::of_process(std::process::id()).unwrap();
        let module = modules.iter().find(|module| module.file_name().starts_with(name)).unwrap();
        Image::open(&module.path).unwrap()
    }

    fn named<'a>(exports: &'a Exports, name: &str) -> Vec<(&'a Function, Option<&'a str>)> {
        let version = |function: &'a Function| {
            let symbol = function.symbols.iter().find(|symbol| symbol.name == name)?;
            Some((function, symbol.version.as_deref()))
        };
        exports.functions.iter().filter_map(version).collect()
    }

    #[test]
    fn versions_aliases_and_ifuncs_of_libc() {
        let exports = library("libc.so").exports().unwrap();
        assert!(exports.functions.is_sorted_by(|a, b| a.file_offset < b.file_offset));
        assert!(exports.functions.iter().all(|function| !function.symbols.is_empty() && function.size > 0));

        let memcpy = named(&exports, "memcpy");
        let mut versions: Vec<_> =
            memcpy.iter().map(|&(function, version)| (version.unwrap(), function.ifunc)).collect();
        versions.sort_unstable();
        assert_eq!(versions, [("GLIBC_2.14", true), ("GLIBC_2.2.5", false)]);

        let [(write, _)] = named(&exports, "write")[..] else { panic!("one function is named write") };
        assert_eq!((write.name.as_str(), write.ifunc), ("write", false));
        assert!(write.symbols.iter().any(|symbol| symbol.name == "__write"));
    }

    #[test]
    fn an_old_version_comes_after_the_default() {
        let source = r#"
            __asm__(".symver first, shared@OLD\n.symver second, shared@@NEW\n.symver first, a@OLD");
            int first(void) { return 1; }
            int second(void) { return 2; }
            int plain(void) __attribute__((alias("second")));
            static int local(void) { return 3; }
            int (*keep)(void) = local;
        "#;
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("versions");
        std::fs::write(&script, "OLD { global: a; shared; }; NEW { global: shared; second; plain; local: *; } OLD;")
            .unwrap();
        let script = format!("-Wl,--version-script={}", script.display());
        let Some(image) = fixture::compile("gcc", source, &["-shared", "-fPIC", &script]) else { return };
        let exports = image.exports().unwrap();
        let names: Vec<Vec<String>> = exports
            .functions
            .iter()
            .map(|function| {
                let text = |symbol: &Symbol| format!("{}@{}", symbol.name, symbol.version.as_deref().unwrap_or(""));
                function.symbols.iter().map(text).collect()
            })
            .collect();
        assert_eq!(names, [vec!["a@OLD", "shared@OLD"], vec!["plain@NEW", "second@NEW", "shared@NEW"]]);
        assert!(image.defines("local") && image.defines("shared") && !image.defines("absent"));
    }

    #[test]
    fn functions_of_mpi_have_the_names_that_programs_call() {
        let source =
            "int PMPI_Send(void) { return 1; } int MPI_Send(void) __attribute__((weak, alias(\"PMPI_Send\")));";
        let Some(image) = fixture::compile("gcc", source, &["-shared", "-fPIC"]) else { return };
        let exports = image.exports().unwrap();
        let [(send, _)] = named(&exports, "PMPI_Send")[..] else { panic!("one function is named PMPI_Send") };
        assert_eq!(send.name, "MPI_Send");
    }

    #[test]
    fn programs_show_their_own_functions() {
        let source = r#"
            static __attribute__((noinline)) int helper(int x) { return x + 1; }
            int main(int argc, char **argv) { (void)argv; return helper(argc); }
        "#;
        for flags in [&["-O1"][..], &["-O1", "-static"], &["-O1", "-no-pie"]] {
            let Some(image) = fixture::compile("gcc", source, flags) else { return };
            let exports = image.exports().unwrap();
            for name in ["main", "helper"] {
                assert_eq!(named(&exports, name).len(), 1, "{name} {flags:?}");
            }
        }
    }

    #[test]
    fn libraries_have_functions_that_they_do_not_export() {
        let source = r#"
            static __attribute__((noinline)) int twice(int x) { return x * 2; }
            __attribute__((visibility("hidden"), noinline)) int hidden(int x) { return twice(x) + 1; }
            int shown(int x) { return hidden(x) + 1; }
        "#;
        let Some(image) = fixture::compile("gcc", source, &["-O1", "-shared", "-fPIC"]) else { return };
        let (exports, all) = (image.exports().unwrap(), image.all_functions().unwrap());
        for (name, of_exports) in [("shown", 1), ("hidden", 0), ("twice", 0)] {
            assert_eq!((named(&exports, name).len(), named(&all, name).len()), (of_exports, 1), "{name}");
        }
        assert_eq!(named(&all, "shown"), named(&exports, "shown"));
    }

    #[test]
    fn symbols_that_are_no_functions_are_refused() {
        let source = r#"
            __asm__(".globl no_size\n.hidden no_size\n.type no_size,@function\nno_size: ret\n"
                    ".data\n.globl in_data\n.type in_data,@function\nin_data: .byte 0\n.size in_data,1\n.text\n"
                    ".globl lying\n.type lying,@function\nlying: ret\n.size lying,0x7fffffffffffffff\n"
                    ".globl f.cold\n.type f.cold,@function\nf.cold: ret\n.size f.cold,1\n");
            int good(void) { return 1; }
        "#;
        let Some(image) = fixture::compile("gcc", source, &["-Wl,--export-dynamic", "-nostdlib"]) else { return };
        let exports = image.exports().unwrap();
        assert_eq!(exports.functions.iter().map(|function| &function.name).collect::<Vec<_>>(), ["good"]);
        let mut refused: Vec<_> =
            exports.refused.iter().map(|refused| (refused.name.as_str(), refused.reason)).collect();
        refused.sort_by_key(|&(name, _)| name);
        assert_eq!(
            refused,
            [
                ("f.cold", RefusedReason::ColdPart),
                ("in_data", RefusedReason::OutsideCode),
                ("lying", RefusedReason::OutsideCode),
                ("no_size", RefusedReason::SizeZero),
            ]
        );
    }

    #[test]
    fn symbols_without_a_type_are_functions_where_tables_say_so() {
        let source = r#"
            __asm__(".globl framed, linked, either, data, inside, behind, constant, absolute\n"
                    "framed: .cfi_startproc\nxor %eax,%eax\ninside: ret\n.cfi_endproc\n"
                    "linked: ret\neither: ret\ndata: .quad 0x0123456789abcdef\n"
                    ".type sized,@function\n.globl sized\nsized: nop\nbehind: ret\n.size sized,.-sized\n"
                    ".type no_size,@function\n.globl no_size\nno_size: ret\n"
                    ".section .rodata\nconstant: .quad 1\n.text\nabsolute = 0x1000\n");
            int caller(void) { __asm__ volatile ("call linked@plt"); return 1; }
        "#;
        let Some(image) = fixture::compile("gcc", source, &["-shared", "-fPIC", "-nostdlib"]) else { return };
        let mut exports = image.exports().unwrap();
        let names = |functions: &[Function]| {
            let mut names: Vec<_> = functions.iter().map(|function| function.name.clone()).collect();
            names.sort_unstable();
            names
        };
        assert_eq!(names(&exports.functions), ["caller", "framed", "linked", "no_size", "sized"]);
        assert_eq!(names(&exports.untyped), ["data", "either"]);
        let mut inside: Vec<_> =
            exports.refused.iter().map(|refused| (refused.name.as_str(), refused.reason)).collect();
        inside.sort_unstable_by_key(|&(name, _)| name);
        assert_eq!(inside, [("behind", RefusedReason::Inside), ("inside", RefusedReason::Inside)]);

        exports.accept(|function| function.name == "either");
        assert!(exports.functions.is_sorted_by_key(|function| function.file_offset));
        assert_eq!((names(&exports.untyped), exports.functions.len()), (vec!["data".to_owned()], 6));
    }

    #[test]
    fn large_libraries_are_read_at_once() {
        let folder = PathBuf::from("/usr/lib/x86_64-linux-gnu");
        for name in ["libstdc++.so.6", "libQt5Gui.so.5", "libQt5Core.so.5", "libcrypto.so.3"] {
            let Ok(image) = Image::open(&folder.join(name)) else {
                eprintln!("skipped: {name} is not installed");
                continue;
            };
            let start = Instant::now();
            let count = image.exports().unwrap().functions.len();
            let exports = start.elapsed();
            let ranges = image.frame_ranges().len();
            eprintln!("{name}: {count} functions in {exports:?}, {ranges} ranges in {:?}", start.elapsed() - exports);
            assert!(count > 1000 && ranges > 1000);
            assert!(start.elapsed() < Duration::from_secs(2), "reading {name} took {:?}", start.elapsed());
        }
    }
}
