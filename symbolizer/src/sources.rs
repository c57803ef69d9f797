//! Source files in which the functions of a library are defined, by its debug information.
//!
//! Tables of lines are read, and not the descriptions of functions: they are a small part of the debug information, and
//! also know functions written in assembly, and those whose descriptions are in other files (`-gsplit-dwarf`). A line
//! table is written by others: what cannot be read of it means that less is known.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use foldhash::{HashMap as FastMap, HashSet};
use gimli::{AttributeValue, LineRow, Section as _};

use crate::{DebugFile, DwarfUnit, Image, Reader};

type Dwarf<'a> = gimli::Dwarf<Reader<'a>>;

/// Longer paths are taken for damage, in bytes.
const LONGEST_PATH: usize = 4096;
/// All tables that are read may be this many times as long as their section: units may name any part of it as theirs.
const TABLES_TO_SECTION: usize = 2;

/// Which source file each function is defined in.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    files: Vec<String>,
    /// By address in the file's own terms: the place of its file.
    by_address: FastMap<u64, usize>,
}

impl Sources {
    /// Looks up the functions at these addresses; `None` where there is no debug information.
    ///
    /// People know the file by `path`; it can be opened by `open`.
    pub fn read(path: &Path, open: &Path, image: &Image, addresses: &HashSet<u64>) -> Option<Sources> {
        let debug = DebugFile::find(path, open, image)?;
        let dwarf = debug.dwarf();
        let mut headers = Vec::new();
        let mut units = dwarf.units();
        while let Ok(Some(header)) = units.next() {
            headers.push(header);
        }
        let code = image.executable_ranges();
        // The file's own head is at 0.
        let is_code = |address: u64| address > 0 && code.iter().any(|range| range.contains(&address));
        let next = AtomicUsize::new(0);
        let tables = LineTables { known: Mutex::default(), left: dwarf.debug_line.reader().len() * TABLES_TO_SECTION };
        let work = || {
            let mut found = HashMap::<String, Vec<u64>>::new();
            while let Some(header) = headers.get(next.fetch_add(1, Ordering::Relaxed)) {
                // A unit that cannot be read says nothing; others may.
                let Ok(unit) = dwarf.unit(*header) else { continue };
                let Some(program) = unit.line_program.clone().filter(|program| tables.take(program.header())) else {
                    continue;
                };
                let _ = scan(&dwarf, &unit, program, (addresses, &is_code), &mut found);
            }
            found
        };
        let helpers = thread::available_parallelism().map_or(1, usize::from).min(headers.len()).saturating_sub(1);
        let parts = thread::scope(|scope| {
            let helpers: Vec<_> = (0..helpers).map(|_| scope.spawn(work)).collect();
            let mut parts = vec![work()];
            parts.extend(helpers.into_iter().filter_map(|helper| helper.join().ok()));
            parts
        });
        Some(Sources::of_parts(parts))
    }

    /// The source file in which the function at this address is defined, as far as that is known: a whole path without
    /// `.` and `..`.
    pub fn of(&self, address: u64) -> Option<&str> {
        self.by_address.get(&address).map(|&file| self.files[file].as_str())
    }

    /// The files in which functions are defined.
    pub fn files(&self) -> &[String] {
        &self.files
    }

    fn of_parts(parts: Vec<HashMap<String, Vec<u64>>>) -> Sources {
        let mut files: Vec<(String, Vec<u64>)> = parts.into_iter().flatten().collect();
        // Several units may name an address, and the threads share the units in any way.
        files.sort_unstable();
        let mut sources = Sources::default();
        for (file, addresses) in files {
            if sources.files.last() != Some(&file) {
                sources.files.push(file);
            }
            for address in addresses {
                sources.by_address.entry(address).or_insert(sources.files.len() - 1);
            }
        }
        sources
    }
}

/// The tables of lines that are read: each once, as units of types share those of others.
struct LineTables {
    known: Mutex<(HashSet<usize>, usize)>,
    /// Bytes that may be read.
    left: usize,
}

impl LineTables {
    /// Whether a table is to be read now.
    fn take(&self, header: &gimli::LineProgramHeader<Reader<'_>>) -> bool {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let (offsets, read) = &mut *known;
        if !offsets.insert(header.offset().0) {
            return false;
        }
        *read = read.saturating_add(header.unit_length());
        *read <= self.left
    }
}

/// Notes the files of those of the addresses at which a row of the unit's table begins.
fn scan(
    dwarf: &Dwarf<'_>,
    unit: &DwarfUnit<'_>,
    program: gimli::IncompleteLineProgram<Reader<'_>>,
    (addresses, is_code): (&HashSet<u64>, &impl Fn(u64) -> bool),
    found: &mut HashMap<String, Vec<u64>>,
) -> gimli::Result<()> {
    let mut rows = program.rows();
    let mut names = HashMap::<u64, Option<String>>::new();
    let mut begins_sequence = true;
    let mut is_kept = true;
    let mut last = None;
    while let Some((header, row)) = rows.next_row()? {
        if begins_sequence {
            // What the linker has left out keeps its rows, at addresses that belong to others or to nobody.
            is_kept = is_code(row.address());
            last = None;
        }
        begins_sequence = row.end_sequence();
        // A function begins with the line of its head; what is inlined there has the next row.
        let is_first = last.replace(row.address()) != Some(row.address());
        if row.end_sequence() || !is_kept || !is_first || !addresses.contains(&row.address()) {
            continue;
        }
        let name = names.entry(row.file_index()).or_insert_with(|| path_of(dwarf, unit, row, header));
        if let Some(name) = name {
            match found.get_mut(name) {
                Some(known) => known.push(row.address()),
                None => _ = found.insert(name.clone(), vec![row.address()]),
            }
        }
    }
    Ok(())
}

/// The whole path of the file that a row names.
fn path_of(
    dwarf: &Dwarf<'_>,
    unit: &DwarfUnit<'_>,
    row: &LineRow,
    header: &gimli::LineProgramHeader<Reader<'_>>,
) -> Option<String> {
    let text = |value: AttributeValue<Reader<'_>>| {
        let text = dwarf.attr_string(unit, value).ok().filter(|text| text.len() <= LONGEST_PATH);
        text.map(|text| text.to_string_lossy().into_owned())
    };
    let file = row.file(header)?;
    let folder = unit.comp_dir.filter(|folder| folder.len() <= LONGEST_PATH);
    let mut path = folder.map(|folder| folder.to_string_lossy().into_owned()).unwrap_or_default();
    if let Some(folder) = file.directory(header).and_then(text) {
        join(&mut path, &folder);
    }
    join(&mut path, &text(file.path_name())?);
    let path = normal_path(&path);
    (!path.is_empty() && path.len() <= LONGEST_PATH).then_some(path)
}

/// Goes on from a folder; a whole path stands for itself.
fn join(path: &mut String, part: &str) {
    if part.starts_with('/') {
        path.clear();
    } else if !path.is_empty() && !path.ends_with('/') {
        path.push('/');
    }
    path.push_str(part);
}

/// The path without `.`, `..` and empty parts. Links are not followed: the folders may be those of another machine.
fn normal_path(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => _ = parts.pop(),
            ".." if path.starts_with('/') => {}
            part => parts.push(part),
        }
    }
    let root = if path.starts_with('/') { "/" } else { "" };
    format!("{root}{}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::fs;
    use std::process::Command;

    use object::{Object as _, ObjectSection as _};

    use super::*;
    use crate::fixture::compile_to;

    const HEADER: &str = "static inline int twice(int x) { return 2 * x; }\n";
    const FIRST: &str =
        "#include \"inner/twice.h\"\nint first(int x) { return twice(x); }\nint again(int x) { return -x; }\n";
    const SECOND: &str = "template <class T> T third(T x) { return x * 3; }\nint second(int x) { return third(x); }\n\
                          struct S { int method(int); };\nint S::method(int x) { return x; }\n";

    /// A library of two files in folders of their own, compiled so.
    fn library(folder: &Path, flags: &[&str]) -> Option<(std::path::PathBuf, Image)> {
        for (name, text) in [("inner/twice.h", HEADER), ("solver/first.c", FIRST), ("second.cpp", SECOND)] {
            fs::create_dir_all(folder.join(name).parent().unwrap()).unwrap();
            fs::write(folder.join(name), text).unwrap();
        }
        let library = folder.join("lib.so");
        let mut objects = Vec::new();
        for source in ["./solver/../solver/first.c", "second.cpp"] {
            let object = folder.join(source.rsplit('/').next().unwrap()).with_extension("o");
            let mut command = Command::new("g++");
            command.current_dir(folder).args(["-c", "-fPIC", "-I.", source, "-o"]).arg(&object).args(flags);
            if !command.status().ok()?.success() {
                return None;
            }
            objects.push(object);
        }
        let status = Command::new("g++").arg("-shared").args(&objects).arg("-o").arg(&library).status().unwrap();
        assert!(status.success());
        let image = Image::open(&library).unwrap();
        Some((library, image))
    }

    /// The function's name and the end of its file's path.
    fn sources(folder: &Path, library: &Path, image: &Image) -> Vec<(String, String)> {
        let exports = image.exports().unwrap();
        let addresses = exports.functions.iter().map(|function| function.address).collect();
        let sources = Sources::read(library, library, image, &addresses).unwrap();
        let root = format!("{}/", folder.canonicalize().unwrap().display());
        let mut named: Vec<_> = exports
            .functions
            .iter()
            .filter_map(|function| {
                let source = sources.of(function.address)?;
                Some((function.name.clone(), source.strip_prefix(&root).unwrap_or(source).to_owned()))
            })
            .collect();
        named.sort_unstable();
        named
    }

    #[test]
    fn each_function_has_the_file_of_its_definition() {
        let flags: [&[&str]; 7] = [
            // Each function has a sequence of rows of its own, and begins where another one ends.
            &["-g", "-O2", "-ffunction-sections", "-fdata-sections", "-falign-functions=1"],
            &["-g"],
            &["-g", "-O2"],
            &["-gdwarf-4", "-O1"],
            &["-g1"],
            &["-g", "-gsplit-dwarf"],
            &["-g", "-O2", "-gz", "-ffunction-sections"],
        ];
        for flags in flags {
            let folder = tempfile::tempdir().unwrap();
            let Some((library, image)) = library(folder.path(), flags) else { continue };
            let expected = [
                ("S::method(int)", "second.cpp"),
                ("again(int)", "solver/first.c"),
                ("first(int)", "solver/first.c"),
                ("int third<int>(int)", "second.cpp"),
                ("second(int)", "second.cpp"),
            ];
            let expected = expected.map(|(function, file)| (function.to_owned(), file.to_owned()));
            let found = sources(folder.path(), &library, &image);
            let is_inlined = found.len() < expected.len();
            let expected: Vec<_> =
                expected.into_iter().filter(|(name, _)| !is_inlined || !name.contains("third")).collect();
            assert_eq!(found, expected, "{flags:?}");
        }
    }

    #[test]
    fn without_debug_information_nothing_is_known() {
        let folder = tempfile::tempdir().unwrap();
        let library = folder.path().join("lib.so");
        if compile_to("gcc", "int f(void) { return 1; }", &["-shared", "-fPIC"], &library) {
            let image = Image::open(&library).unwrap();
            assert!(Sources::read(&library, &library, &image, &HashSet::default()).is_none());
        }
    }

    #[test]
    fn altered_tables_are_survived() {
        let folder = tempfile::tempdir().unwrap();
        let library = folder.path().join("lib.so");
        if !compile_to(
            "gcc",
            "int f(int x) { return x; }\nint g(int x) { return -x; }",
            &["-g", "-shared", "-fPIC"],
            &library,
        ) {
            return;
        }
        let image = Image::open(&library).unwrap();
        let addresses = image.exports().unwrap().functions.iter().map(|function| function.address).collect();
        let whole = fs::read(&library).unwrap();
        let file = object::File::parse(&*whole).unwrap();
        let altered = folder.path().join("altered.so");
        for section in [".debug_line", ".debug_info", ".debug_abbrev", ".debug_line_str"] {
            let Some((offset, size)) = file.section_by_name(section).and_then(|section| section.file_range()) else {
                continue;
            };
            for place in offset..offset + size {
                for value in [0, 1, 0x7f, 0xff] {
                    let mut bytes = whole.clone();
                    bytes[place as usize] = value;
                    fs::write(&altered, bytes).unwrap();
                    let _ = Sources::read(&altered, &altered, &image, &addresses);
                }
            }
        }
    }

    #[test]
    fn tables_are_read_once_and_no_more_than_there_is() {
        let line = |offset: usize| {
            let mut bytes = vec![0; 200];
            bytes[offset..offset + 22]
                .copy_from_slice(&[18, 0, 0, 0, 4, 0, 10, 0, 0, 0, 1, 1, 1, 251, 14, 1, 0, 0, 0, 0, 0, 1]);
            bytes
        };
        let tables = LineTables { known: Mutex::default(), left: 40 };
        let take = |offset: usize| {
            let bytes = line(offset);
            let section = gimli::DebugLine::new(&bytes, gimli::LittleEndian);
            tables.take(section.program(gimli::DebugLineOffset(offset), 8, None, None).unwrap().header())
        };
        assert_eq!([take(0), take(0), take(30), take(60)], [true, false, true, false]);
    }

    #[test]
    fn functions_that_were_left_out_leave_no_file() {
        let folder = tempfile::tempdir().unwrap();
        // Rows of what was left out begin at 0, and go on to where others are.
        let body = "x = x * 7 + 1;\n".repeat(3000);
        let unused = format!("__attribute__((visibility(\"hidden\"))) void unused(volatile int x) {{\n{body}}}\n");
        fs::write(folder.path().join("unused.h"), unused).unwrap();
        let source = "#include \"unused.h\"\nint used(int x) { return x; }\n";
        let library = folder.path().join("lib.so");
        let include = format!("-I{}", folder.path().display());
        let flags = ["-g", "-shared", "-fPIC", "-ffunction-sections", "-Wl,--gc-sections", "-Wl,-z,noseparate-code"];
        if compile_to("gcc", source, &[&flags[..], &[&include]].concat(), &library) {
            let image = Image::open(&library).unwrap();
            let function = &image.exports().unwrap().functions[0];
            let every = (0..function.address + function.size).collect();
            let sources = Sources::read(&library, &library, &image, &every).unwrap();
            assert!(sources.of(function.address).unwrap().ends_with("/lib.c"));
            assert_eq!(sources.files().len(), 1);
        }
    }

    #[test]
    fn paths_are_put_together_and_made_plain() {
        let joined = |parts: &[&str]| {
            let mut path = String::new();
            parts.iter().for_each(|part| join(&mut path, part));
            normal_path(&path)
        };
        assert_eq!(joined(&["/build/x", "../src", "./a.c"]), "/build/src/a.c");
        assert_eq!(joined(&["/build", "/usr/include", "a.h"]), "/usr/include/a.h");
        assert_eq!(joined(&["", "src", "a.c"]), "src/a.c");
        assert_eq!(joined(&["/..", "..", "a//b.c"]), "/a/b.c");
        assert_eq!(joined(&["..", "..", "a.c"]), "../../a.c");
    }
}
