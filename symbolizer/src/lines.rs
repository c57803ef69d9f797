//! Which function and source line code belongs to, by symbol tables and debug information.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use blazesym::symbolize::source::{Elf, Process, Source};
use blazesym::symbolize::{CodeInfo, Input, Sym, Symbolized, Symbolizer};
use rtrace_model::{Inlined, SourceLine, guarded};

use crate::debug_file::unfolds_within_reason;
use crate::perf_map::PerfMap;
use crate::{Image, demangle};

/// What is known of a place in code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CodeLine {
    /// The function whose code it is, demangled.
    pub function: String,
    /// Bytes from the start of that function.
    pub function_offset: u64,
    /// Where it is in the sources: in the function, or in the innermost that is inlined there.
    pub source: Option<SourceLine>,
    /// The functions that are inlined there, the outermost first.
    pub inlined: Vec<Inlined>,
}

/// Looks places in code up, and keeps what it has read of files.
///
/// Debug information is taken from the file itself, from the file that its debug link or build id names below
/// `/usr/lib/debug`, or from a `.dwp` beside it.
pub struct Lines {
    symbolizer: Symbolizer,
    trusted: RefCell<HashMap<PathBuf, Trusted>>,
    /// Files whose debug information cannot be read, as people know them.
    unread: RefCell<BTreeSet<String>>,
    /// Of files with places that no symbol covers, the exported functions by offset.
    exports: RefCell<HashMap<PathBuf, Vec<(u64, String)>>>,
    /// Of processes that have ended, what their compilers have named since then.
    maps: RefCell<HashMap<u32, PerfMap>>,
    since: SystemTime,
}

/// What a file can be asked for; the rest is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trusted {
    DebugInformation,
    Symbols,
    Nothing,
}

impl Lines {
    /// Those of a recording that began then.
    pub fn since(since: SystemTime) -> Lines {
        let symbolizer = Symbolizer::builder().enable_demangling(false).build();
        Lines {
            symbolizer,
            trusted: RefCell::default(),
            unread: RefCell::default(),
            exports: RefCell::default(),
            maps: RefCell::default(),
            since,
        }
    }

    /// The code at this offset of an ELF file, which people know by `name`; `None` where nothing is known of it.
    pub fn in_file(&self, path: &Path, name: &str, offset: u64) -> Option<CodeLine> {
        let mut trusted = self.trusted.borrow_mut();
        let trusted = trusted
            .entry(path.to_owned())
            .or_insert_with(|| if unfolds_within_reason(path) { Trusted::DebugInformation } else { Trusted::Nothing });
        let of = |debug_syms| {
            let elf = Source::Elf(Elf { debug_syms, ..Elf::new(path) });
            guarded(|| self.symbolizer.symbolize_single(&elf, Input::FileOffset(offset)).map(line_of))
        };
        // Debug information that cannot be read must not hide the symbol table.
        if *trusted == Trusted::DebugInformation {
            match of(true) {
                Some(Ok(found)) => return found,
                Some(Err(_)) => {}
                None => *trusted = Trusted::Symbols,
            }
        }
        let found = if *trusted == Trusted::Nothing { None } else { of(false).and_then(Result::ok) };
        if found.is_some() || *trusted != Trusted::DebugInformation {
            self.unread.borrow_mut().insert(name.to_owned());
        }
        found.flatten()
    }

    /// The files, as people know them, with places whose source lines are missing because their debug information cannot be
    /// read.
    pub fn unread(&self) -> Vec<String> {
        self.unread.borrow().iter().cloned().collect()
    }

    /// The last function in front of this offset of an ELF file that the file exports, and the bytes from there. For code
    /// that no symbol covers: stripped files have symbols only for what others use.
    pub fn nearest(&self, path: &Path, offset: u64) -> Option<(String, u64)> {
        let mut exports = self.exports.borrow_mut();
        let functions = exports.entry(path.to_owned()).or_insert_with(|| {
            let exports = Image::open(path).and_then(|image| image.exports());
            let functions = exports.map(|exports| exports.functions).unwrap_or_default();
            let mut functions: Vec<_> = functions.into_iter().map(|known| (known.file_offset, known.name)).collect();
            functions.sort_unstable();
            functions
        });
        let following = functions.partition_point(|&(start, _)| start <= offset);
        let (start, name) = functions.get(following.checked_sub(1)?)?;
        Some((name.clone(), offset - start))
    }

    /// The code at this address of a running process, where no file is mapped: that of the kernel's vDSO, and what
    /// a compiler at run time names in `/tmp/perf-PID.map`. Of a process that has ended, the map may still be there.
    pub fn in_process(&self, pid: u32, address: u64) -> Option<CodeLine> {
        let source = Source::Process(Process::new(pid.into()));
        let found = guarded(|| self.symbolizer.symbolize_single(&source, Input::AbsAddr(address)).map(line_of));
        found.and_then(Result::ok).flatten().or_else(|| self.left_behind(pid, address))
    }

    fn left_behind(&self, pid: u32, address: u64) -> Option<CodeLine> {
        let mut maps = self.maps.borrow_mut();
        let map = maps.entry(pid).or_insert_with(|| PerfMap::of_ended(pid, self.since));
        let (start, name) = map.at(address)?;
        let function = demangle::demangle(name);
        Some(CodeLine { function, function_offset: address - start, ..CodeLine::default() })
    }
}

fn line_of(found: Symbolized<'_>) -> Option<CodeLine> {
    let Symbolized::Sym(Sym { name, offset, code_info, inlined, .. }) = found else { return None };
    // Each function tells the place in it: of all but the innermost that is where the next one is inlined.
    let mut at = code_info.as_deref().and_then(source_of);
    let inlined = inlined.iter().map(|function| {
        let called_at = std::mem::replace(&mut at, function.code_info.as_ref().and_then(source_of));
        Inlined { function: demangle::demangle(&function.name), called_at }
    });
    let inlined = inlined.collect();
    Some(CodeLine { function: demangle::demangle(&name), function_offset: offset as u64, source: at, inlined })
}

fn source_of(info: &CodeInfo<'_>) -> Option<SourceLine> {
    let path = info.to_path();
    let file = OsStr::to_string_lossy(path.as_os_str()).into_owned();
    (!file.is_empty()).then(|| SourceLine { file, line: info.line.unwrap_or_default() })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::fs;
    use std::ops::Range;

    use object::{Object as _, ObjectSection as _};

    use super::*;
    use crate::fixture;

    /// The function in the middle has no symbol once the file is stripped.
    const SOURCE: &str = "
        int first(int x) { return x + 1; }
        static __attribute__((noinline)) int hidden(int x) { return x * 3 + first(x); }
        int last(int x) { return hidden(x) + 2; }
    ";

    #[test]
    fn code_without_a_symbol_is_near_the_export_in_front_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("library.so");
        let flags = ["-shared", "-fPIC", "-O1", "-fno-toplevel-reorder", "-fno-ipa-cp", "-s"];
        if !fixture::compile_to("gcc", SOURCE, &flags, &path) {
            return;
        }
        let functions = Image::open(&path).unwrap().exports().unwrap().functions;
        let of = |name: &str| functions.iter().find(|function| function.name == name).unwrap();
        let (first, last) = (of("first"), of("last"));
        let hidden = first.file_offset + first.size + 1;
        assert!(hidden < last.file_offset, "the compiler has left out the function in the middle");
        let lines = Lines::since(SystemTime::now());
        assert_eq!(lines.in_file(&path, "known", hidden), None);
        assert_eq!(lines.nearest(&path, hidden), Some(("first".to_owned(), first.size + 1)));
        assert_eq!(lines.nearest(&path, last.file_offset), Some(("last".to_owned(), 0)));
        assert_eq!(lines.nearest(&path, 0), None);
    }

    /// Compiles it with debug information, and gives the bytes and where this section of them is.
    fn with_section(path: &Path, flags: &[&str], name: &str) -> Option<(Vec<u8>, Range<usize>)> {
        if !fixture::compile_to("gcc", SOURCE, &[&["-shared", "-fPIC", "-O1", "-g"], flags].concat(), path) {
            return None;
        }
        let bytes = fs::read(path).unwrap();
        let file = object::File::parse(&*bytes).unwrap();
        let (start, size) = file.section_by_name(name).unwrap().file_range().unwrap();
        Some((bytes, start as usize..(start + size) as usize))
    }

    fn offset_of_first(path: &Path) -> u64 {
        let functions = Image::open(path).unwrap().exports().unwrap().functions;
        functions.iter().find(|function| function.name == "first").unwrap().file_offset
    }

    #[test]
    fn a_damaged_line_table_hides_no_function() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("library.so");
        let Some((bytes, table)) = with_section(&path, &["-gdwarf-4"], ".debug_line") else { return };
        let offset = offset_of_first(&path);
        assert!(Lines::since(SystemTime::now()).in_file(&path, "known", offset).unwrap().source.is_some());
        let mut told = 0;
        for at in table {
            let mut damaged = bytes.clone();
            // Another file, which the table need not have.
            damaged[at] = 4;
            fs::write(&path, damaged).unwrap();
            let lines = Lines::since(SystemTime::now());
            let found = lines.in_file(&path, "known", offset).unwrap();
            assert_eq!(found.function, "first", "{at:#x}");
            told += lines.unread().len();
        }
        assert!(told > 0);
    }

    #[test]
    fn a_section_that_claims_to_unfold_to_more_than_it_can_is_not_unfolded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("library.so");
        let Some((mut bytes, section)) = with_section(&path, &["-gz=zlib"], ".debug_info") else { return };
        let offset = offset_of_first(&path);
        assert!(Lines::since(SystemTime::now()).in_file(&path, "known", offset).unwrap().source.is_some());
        bytes[section.start + 8..][..8].copy_from_slice(&(1_u64 << 46).to_le_bytes());
        fs::write(&path, bytes).unwrap();
        let lines = Lines::since(SystemTime::now());
        assert_eq!(lines.in_file(&path, "known", offset), None);
        assert_eq!(lines.unread(), ["known"]);
        assert_eq!(lines.nearest(&path, offset), Some(("first".to_owned(), 0)));
    }
}
