//! Where a program begins: the calls through pointers by which the C library calls `main`.
//!
//! The function at the entry point calls one of the C library, and that, or one that it calls, calls `main`. Each of these
//! places is executed once, so a site there costs nothing. Without one `main`, which is called once, would never be timed.

use std::path::{Path, PathBuf};

use foldhash::HashSet;
use rtrace_code::calls::{Calls, calls_of};
use rtrace_symbolizer::Image;

/// The code of a file, and its functions.
struct BeginningCode {
    image: Image,
    ranges: Vec<std::ops::Range<u64>>,
}

impl BeginningCode {
    fn of(path: &Path) -> Option<BeginningCode> {
        let image = Image::open(path).ok()?;
        let ranges = image.code_ranges();
        Some(BeginningCode { image, ranges })
    }

    /// What the function that begins at a virtual address calls.
    fn calls(&self, address: u64) -> Calls {
        let range = self.ranges.iter().find(|range| range.start == address);
        let code = range.and_then(|range| self.image.code_from(address)?.get(..(range.end - range.start) as usize));
        code.map(|code| calls_of(code, address)).unwrap_or_default()
    }

    /// Where calls through pointers return to, as sorted offsets in the file, in functions and in those that they call.
    fn behind_pointers(&self, functions: &[u64]) -> Vec<u64> {
        let first: Vec<Calls> = functions.iter().map(|&function| self.calls(function)).collect();
        let called: HashSet<u64> = first.iter().flat_map(|calls| &calls.targets).copied().collect();
        let second: Vec<Calls> = called.into_iter().map(|function| self.calls(function)).collect();
        let behind = first.iter().chain(&second).flat_map(|calls| &calls.behind_pointers);
        let mut offsets: Vec<u64> = behind.filter_map(|&address| self.image.file_offset(address)).collect();
        offsets.sort_unstable();
        offsets.dedup();
        offsets
    }
}

/// The file that calls the `main` of a program, and where such a call may return to; `files`: the program, and what it
/// loads.
pub fn of(files: &[PathBuf]) -> Option<(&Path, Image, Vec<u64>)> {
    let (path, libraries) = files.split_first()?;
    let program = BeginningCode::of(path)?;
    let begins = program.calls(program.image.entry()?);
    let own = program.behind_pointers(&begins.targets);
    if !own.is_empty() {
        return Some((path, program.image, own));
    }
    let slots = program.image.slots();
    let slot = slots.iter().find(|slot| begins.slots.contains(&slot.address))?;
    libraries.iter().find_map(|path| {
        let outline = Image::open_outline(path).ok()?;
        outline.definitions().find(|definition| definition.name == slot.name)?;
        let library = BeginningCode::of(path)?;
        let named = library.image.definitions().filter(|definition| definition.name == slot.name);
        let functions: Vec<u64> = named.map(|definition| definition.address).collect();
        let behind = library.behind_pointers(&functions);
        Some((path.as_path(), library.image, behind))
    })
}
