//! Code that is not the file's any more in a process: it, or somebody else, has written to it.

use std::cell::LazyCell;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use foldhash::HashMap;
use rtrace_symbolizer::modules::{Mapping, Module};
use rtrace_symbolizer::{Error, Image};

use crate::privilege;

const PAGE: usize = 4096;

/// Bytes of what the kernel tells of a page.
const ENTRY: usize = 8;

/// `int3`, which the kernel writes where there is a probe, and debuggers write, too.
pub const BREAKPOINT: u8 = 0xcc;

/// `call`, which the kernel makes of a breakpoint in the place of [`LONG_NOP`] once it was hit, since Linux 6.18.
const CALL: u8 = 0xe8;
const LONG_NOP: [u8; 5] = [0x0f, 0x1f, 0x44, 0x00, 0x00];

/// Parts of a file, by offsets in bytes, sorted.
pub type Parts = Vec<Range<u64>>;

/// Where the code of files differs in processes from what the files hold, by device and inode. Breakpoints do not
/// count, unless the program may have set them for itself: the kernel would take them out with a probe.
/// What cannot be read, because a process ends or changes meanwhile, is taken for unchanged.
pub fn by_file<'m>(modules: impl IntoIterator<Item = &'m Module>) -> HashMap<(u64, u64), Parts> {
    let mut altered = HashMap::<(u64, u64), Parts>::default();
    for module in modules {
        let (Ok(code), Ok(file)) = (Code::of(module.pid), File::open(module.open_path())) else { continue };
        let executable = module.mappings.iter().filter(|mapping| mapping.executable);
        let differences = executable.flat_map(|mapping| code.differences(mapping, &file));
        let handles_breakpoints = LazyCell::new(|| privilege::handles_breakpoints(module.pid));
        let mut offsets: Vec<u64> = differences
            .filter(|difference| difference.live != BREAKPOINT || *handles_breakpoints)
            .map(|difference| difference.offset)
            .collect();
        if offsets.is_empty() {
            continue;
        }
        offsets.sort_unstable();
        let parts = offsets.chunk_by(|one, next| one + 1 == *next).map(|part| part[0]..part[part.len() - 1] + 1);
        let known = altered.entry((module.device, module.inode)).or_default();
        *known = union(known.iter().cloned().chain(parts).collect());
    }
    altered
}

/// Where a process executes something else in the place of this file's code: a copy in huge pages, for instance,
/// where the kernel takes no probes.
pub fn moved(module: &Module, image: &Image) -> Parts {
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", module.pid)).unwrap_or_default();
    let is_of_file = |range: &Range<u64>| module.mappings.iter().any(|mapping| mapping.start == range.start);
    let others: Vec<Range<u64>> =
        maps.lines().filter_map(executable_range).filter(|range| !is_of_file(range)).collect();
    let mut moved = Parts::new();
    for bias in module.load_biases(image) {
        for code in image.executable_ranges() {
            let (start, end) = (code.start.wrapping_add(bias), code.end.wrapping_add(bias));
            let replaced = others.iter().map(|other| other.start.max(start)..other.end.min(end));
            moved.extend(replaced.filter(|range| !range.is_empty()).filter_map(|range| {
                let offset = image.file_offset(range.start.wrapping_sub(bias))?;
                Some(offset..offset + (range.end - range.start))
            }));
        }
    }
    union(moved)
}

/// The addresses of a line of `/proc/PID/maps`, if the process may execute what is there.
fn executable_range(line: &str) -> Option<Range<u64>> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let address = |word| u64::from_str_radix(word, 16).ok();
    let range = address(start)?..address(end)?;
    words.next()?.contains('x').then_some(range)
}

/// The same parts, sorted, and those as one that overlap or touch.
pub fn union(mut parts: Parts) -> Parts {
    parts.sort_unstable_by_key(|part| part.start);
    let mut union = Parts::with_capacity(parts.len());
    for part in parts {
        match union.last_mut() {
            Some(last) if part.start <= last.end => last.end = last.end.max(part.end),
            _ => union.push(part),
        }
    }
    union
}

/// Whether one of these parts has a byte of `range`.
pub fn overlaps(parts: &[Range<u64>], range: &Range<u64>) -> bool {
    let following = parts.partition_point(|part| part.end <= range.start);
    parts.get(following).is_some_and(|part| part.start < range.end)
}

/// A byte of code that is not what the file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Where in the file, in bytes.
    pub offset: u64,
    /// What the process has there.
    pub live: u8,
}

fn is_long_nop(file: &File, offset: u64) -> bool {
    let mut stored = LONG_NOP.map(|_| 0);
    file.read_exact_at(&mut stored, offset).is_ok() && stored == LONG_NOP
}

/// The memory of a process.
pub struct Code {
    memory: File,
    pages: File,
}

impl Code {
    /// That of this process.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn of(pid: u32) -> Result<Code, Error> {
        let open = |name: &str| {
            let path = PathBuf::from(format!("/proc/{pid}/{name}"));
            File::open(&path).map_err(|source| Error::Read { path, source })
        };
        Ok(Code { memory: open("mem")?, pages: open("pagemap")? })
    }

    /// Where `mapping` differs from `file`. What cannot be read, because the process changes meanwhile, does not.
    pub fn differences(&self, mapping: &Mapping, file: &File) -> Vec<Difference> {
        let mut differences = Vec::new();
        let pages = (mapping.start..mapping.end).step_by(PAGE).zip(self.are_own(mapping));
        for (start, _) in pages.filter(|&(_, is_own)| is_own) {
            let (mut live, mut stored) = ([0; PAGE], [0; PAGE]);
            let offset = mapping.offset + (start - mapping.start);
            if self.memory.read_exact_at(&mut live, start).is_err() {
                continue;
            }
            let Ok(length) = file.read_at(&mut stored, offset) else { continue };
            let differing = (0..length).filter(|&at| live[at] != stored[at]);
            differences.extend(differing.map(|at| Difference { offset: offset + at as u64, live: live[at] }));
        }
        differences
    }

    /// How many of these sorted offsets of `file` have a breakpoint, or what the kernel makes of one, in `mapping`, and
    /// at which there is none. What is not in the mapping or cannot be read is neither.
    pub fn breakpoints(&self, mapping: &Mapping, file: &File, offsets: &[u64]) -> (usize, Vec<u64>) {
        let end = mapping.offset + (mapping.end - mapping.start);
        let mapped =
            offsets.partition_point(|&offset| offset < mapping.offset)..offsets.partition_point(|&it| it < end);
        let (mut present, mut absent) = (0, Vec::new());
        for of_page in offsets[mapped].chunk_by(|one, next| one / PAGE as u64 == next / PAGE as u64) {
            let begin = of_page[0] / PAGE as u64 * PAGE as u64;
            let mut live = [0; PAGE];
            if self.memory.read_exact_at(&mut live, mapping.start + (begin - mapping.offset)).is_err() {
                continue;
            }
            let is_there = |offset: u64| match live[(offset - begin) as usize] {
                BREAKPOINT => true,
                CALL => is_long_nop(file, offset),
                _ => false,
            };
            absent.extend(of_page.iter().copied().filter(|&offset| !is_there(offset)));
            present += of_page.len();
        }
        (present - absent.len(), absent)
    }

    /// Whether the process has a copy of each page for itself, as it has where a breakpoint was set:
    /// it is there or swapped out, and not the file's (bits 63, 62, 61 of its entry, as the kernel's
    /// Documentation/admin-guide/mm/pagemap.rst has them). All, where that is not known.
    fn are_own(&self, mapping: &Mapping) -> Vec<bool> {
        let page = PAGE as u64;
        let pages = (mapping.end - mapping.start).div_ceil(page);
        let mut entries = vec![0; pages as usize * ENTRY];
        if self.pages.read_exact_at(&mut entries, mapping.start / page * ENTRY as u64).is_err() {
            return vec![true; pages as usize];
        }
        let (entries, _) = entries.as_chunks::<ENTRY>();
        let is_own = |&entry: &[u8; ENTRY]| {
            let entry = u64::from_ne_bytes(entry);
            entry >> 62 != 0 && entry >> 61 & 1 == 0
        };
        entries.iter().map(is_own).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_overlap_what_has_a_byte_of_them() {
        let parts = [4..6, 10..11];
        for (range, expected) in
            [(0..4, false), (0..5, true), (5..9, true), (6..10, false), (10..11, true), (11..20, false)]
        {
            assert_eq!(overlaps(&parts, &range), expected, "{range:?}");
        }
        assert!(!overlaps(&[], &(0..9)));
    }

    #[test]
    fn parts_that_touch_become_one() {
        assert_eq!(union(vec![8..9, 0..4, 2..3, 4..6]), [0..6, 8..9]);
    }

    #[test]
    fn executable_lines() {
        assert_eq!(executable_range("00c00000-02400000 r-xp 00000000 00:00 0 "), Some(0xc0_0000..0x240_0000));
        assert_eq!(executable_range("00c00000-02400000 rw-p 00000000 00:00 0 [heap]"), None);
    }
}
