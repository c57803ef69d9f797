//! Code that is not the file's any more in a process: it, or somebody else, has written to it.

use std::cell::LazyCell;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use foldhash::HashMap;
use rtrace_code::instruction::{self, LONGEST};
use rtrace_symbolizer::address_space::{AddressSpace, Area, Mapping};
use rtrace_symbolizer::modules::Module;
use rtrace_symbolizer::parts::{FileParts, union};
use rtrace_symbolizer::{Error, Image, open_regular};

use crate::target::privilege;

const PAGE: usize = 4096;

/// Bytes of what the kernel tells of a page.
const ENTRY: usize = 8;

/// `int3`, which the kernel writes where there is a probe, and debuggers write, too.
pub const BREAKPOINT: u8 = 0xcc;

/// `call`, which the kernel makes of a breakpoint in the place of [`LONG_NOP`] once it was hit, since Linux 6.18.
const CALL: u8 = 0xe8;
const LONG_NOP: [u8; 5] = [0x0f, 0x1f, 0x44, 0x00, 0x00];

/// Where the code of files differs in processes from what the files hold, by device and inode. Breakpoints do not
/// count, unless the program may have set them for itself: the kernel would take them out with a probe.
/// What cannot be read, because a process ends or changes meanwhile, is taken for unchanged.
pub fn by_file<'m>(modules: impl IntoIterator<Item = &'m Module>) -> HashMap<(u64, u64), FileParts> {
    let mut altered = HashMap::<(u64, u64), FileParts>::default();
    for module in modules {
        let (Ok(code), Ok(file)) = (ProcessMemory::of(module.pid), open_regular(&module.open_path())) else { continue };
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
pub fn moved(module: &Module, image: &Image) -> FileParts {
    let Ok(space) = AddressSpace::of(module.pid) else { return FileParts::new() };
    // By the file and not by the mappings that were seen before: a library that is being loaded gets more of them.
    let was_seen = |area: &Area<'_>| module.mappings.iter().any(|mapping| mapping.start == area.mapping.start);
    let Some(file) = space.areas().filter(was_seen).find_map(|area| area.file) else { return FileParts::new() };
    let executable = space.areas().filter(|area| area.mapping.executable);
    let others: Vec<Mapping> = executable.filter(|area| area.file != Some(file)).map(|area| area.mapping).collect();
    let mut moved = FileParts::new();
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

/// A byte of code that is not what the file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Where in the file, in bytes.
    pub offset: u64,
    /// What the process has there.
    pub live: u8,
}

/// A probe, with the code that calls pass before they come to it. By offsets in the file, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot {
    /// The first instruction that they pass.
    pub entry: u64,
    /// The instruction with the probe, at `entry` or behind it.
    pub site: u64,
}

impl Spot {
    /// One at the very instruction that is come to.
    pub fn at(site: u64) -> Spot {
        Spot { entry: site, site }
    }
}

/// A part of a file, as it is in a process and as it is stored.
struct FilePart {
    /// Where it begins, in bytes.
    begin: u64,
    live: Vec<u8>,
    stored: Vec<u8>,
}

impl FilePart {
    /// Whether there is a breakpoint, and nothing was written in front of it or into its instruction but breakpoints.
    fn leads_to(&self, spot: &Spot) -> bool {
        self.is_as_stored(spot, false) && self.has_probe(self.at(spot.site))
    }

    /// Whether nothing was written in front of the site or into its instruction but breakpoints, and not even these if
    /// `is_strict`. The kernel does not execute what the process has there, but what the file held when it placed the probe.
    fn is_as_stored(&self, spot: &Spot, is_strict: bool) -> bool {
        let end = self.end_of_instruction(self.at(spot.site));
        let mut at = self.at(spot.entry);
        while at < end {
            at += match self.live[at] {
                byte if byte == self.stored[at] => 1,
                _ if is_strict => return false,
                _ if self.has_nop_of_probe(at) => LONG_NOP.len(),
                BREAKPOINT => 1,
                _ => return false,
            };
        }
        true
    }

    fn at(&self, offset: u64) -> usize {
        offset.saturating_sub(self.begin) as usize
    }

    /// Where the instruction ends that the file holds there.
    fn end_of_instruction(&self, at: usize) -> usize {
        (at + instruction::length(&self.stored[at..])).min(self.live.len())
    }

    /// Whether there is a breakpoint, or what the kernel makes of one.
    fn has_probe(&self, at: usize) -> bool {
        self.live[at] == BREAKPOINT || self.has_nop_of_probe(at)
    }

    /// Whether there is what the kernel makes of a breakpoint in the place of a nop.
    fn has_nop_of_probe(&self, at: usize) -> bool {
        matches!(self.live[at], CALL | BREAKPOINT) && self.stored[at..].starts_with(&LONG_NOP)
    }
}

/// The memory of a process.
pub struct ProcessMemory {
    memory: File,
    pages: File,
}

impl ProcessMemory {
    /// That of this process.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn of(pid: u32) -> Result<ProcessMemory, Error> {
        let open = |name: &str| {
            let path = PathBuf::from(format!("/proc/{pid}/{name}"));
            File::open(&path).map_err(|source| Error::Read { path, source })
        };
        Ok(ProcessMemory { memory: open("mem")?, pages: open("pagemap")? })
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

    /// How many of these probes, sorted by their sites, calls come to in `mapping` of `file`, and the sites that they do
    /// not come to: there is no breakpoint, nor what the kernel makes of one, or the code in front of it is not the
    /// file's. What is not in the mapping or cannot be read is neither.
    pub fn reached(&self, mapping: &Mapping, file: &File, spots: &[Spot]) -> (usize, Vec<u64>) {
        let (mut reached, mut missed) = (0, Vec::new());
        self.look_at(mapping, file, spots, |part, spots| {
            let before = missed.len();
            missed.extend(spots.iter().filter(|spot| !part.leads_to(spot)).map(|spot| spot.site));
            reached += spots.len() - (missed.len() - before);
        });
        (reached, missed)
    }

    /// Shows those of these probes, sorted by their sites, that are in `mapping` of `file` and can be read, page by page.
    fn look_at(&self, mapping: &Mapping, file: &File, spots: &[Spot], mut show: impl FnMut(&FilePart, &[Spot])) {
        let end = mapping.offset + mapping.length();
        let mapped =
            spots.partition_point(|spot| spot.site < mapping.offset)..spots.partition_point(|spot| spot.site < end);
        for of_page in spots[mapped].chunk_by(|one, next| one.site / PAGE as u64 == next.site / PAGE as u64) {
            let page = of_page[0].site / PAGE as u64 * PAGE as u64;
            let begin = of_page.iter().map(|spot| spot.entry).fold(page, u64::min).max(mapping.offset);
            if let Some(part) = self.part(mapping, file, begin, page + PAGE as u64) {
                show(&part, of_page);
            }
        }
    }

    /// This part of `file` as `mapping` has it, with the rest of its last instruction; `None` if it cannot be read.
    fn part(&self, mapping: &Mapping, file: &File, begin: u64, end: u64) -> Option<FilePart> {
        let end = (end + LONGEST as u64).min(mapping.offset + mapping.length());
        let mut live = vec![0; usize::try_from(end.checked_sub(begin)?).ok()?];
        self.memory.read_exact_at(&mut live, mapping.start + (begin - mapping.offset)).ok()?;
        let mut stored = live.clone();
        // The last page of a file is not a whole one; what cannot be read is taken for unchanged.
        let _ = file.read_at(&mut stored, begin);
        Some(FilePart { begin, live, stored })
    }

    /// Those of these probes, sorted by their sites, whose code in `mapping` of `file` is not the file's any more: a probe
    /// that were placed there would change what the process does. A breakpoint is no change, unless `is_strict`. What is not in
    /// the mapping or cannot be read is none.
    pub fn rewritten(&self, mapping: &Mapping, file: &File, spots: &[Spot], is_strict: bool) -> Vec<u64> {
        let mut rewritten = Vec::new();
        self.look_at(mapping, file, spots, |part, spots| {
            rewritten.extend(spots.iter().filter(|spot| !part.is_as_stored(spot, is_strict)).map(|spot| spot.site));
        });
        rewritten
    }

    /// Whether any of these probes, sorted by their sites, is in `mapping` of `file`.
    pub fn has_probes(&self, mapping: &Mapping, file: &File, spots: &[Spot]) -> bool {
        let mut has_probes = false;
        self.look_at(mapping, file, spots, |part, spots| {
            has_probes |= spots.iter().any(|spot| part.has_probe(part.at(spot.site)));
        });
        has_probes
    }

    /// Whether the process has a copy of each page for itself, as it has where a breakpoint was set:
    /// it is there or swapped out, and not the file's (bits 63, 62, 61 of its entry, as the kernel's
    /// Documentation/admin-guide/mm/pagemap.rst has them). All, where that is not known.
    fn are_own(&self, mapping: &Mapping) -> Vec<bool> {
        let page = PAGE as u64;
        let pages = mapping.length().div_ceil(page);
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
    fn a_probe_is_reached_through_what_the_file_holds() {
        let nop = [0x0f, 0x1f, 0x44, 0x00, 0x00];
        let stored = [&[0x8b, 0x05, 0xe2], &nop[..], &[0x90, 0x90]].concat();
        let leads = |changes: &[(usize, u8)], entry: u64| {
            let mut live = stored.clone();
            live[8] = BREAKPOINT;
            changes.iter().for_each(|&(at, byte)| live[at] = byte);
            FilePart { begin: 100, live, stored: stored.clone() }.leads_to(&Spot { entry, site: 108 })
        };
        assert!(leads(&[], 100));
        assert!(leads(&[(9, 0xe9)], 100), "behind the instruction with the probe");
        assert!(!leads(&[(8, 0x90)], 100), "the probe itself");
        assert!(!leads(&[(8, 0x90)], 108), "the probe itself");
        assert!(leads(&[(0, BREAKPOINT)], 100), "a debugger goes on");
        assert!(leads(&[(3, CALL), (4, 1), (5, 2), (6, 3), (7, 4)], 100), "another tool's probe");
        assert!(leads(&[(3, BREAKPOINT), (4, 1)], 100), "the same, half made");
        assert!(!leads(&[(0, 0xe9)], 100), "a jump");
        assert!(!leads(&[(4, 1)], 100), "a part of an instruction");
        assert!(leads(&[(0, 0xe9)], 101), "in front of the function");
        assert!(!leads(&[(7, 1)], 99), "what is not in the part is not looked at");
    }

    #[test]
    fn an_instruction_is_as_stored_behind_its_probe_or_not() {
        let stored = vec![0xe8, 1, 2, 3, 4, 0x55, 0xb8, 1, 0, 0, 0, 0xcc];
        let look = |changes: &[(usize, u8)]| {
            let mut live = stored.clone();
            live[6] = BREAKPOINT;
            changes.iter().for_each(|&(at, byte)| live[at] = byte);
            let part = FilePart { begin: 100, live, stored: stored.clone() };
            (part.has_probe(6), part.is_as_stored(&Spot::at(106), false), part.is_as_stored(&Spot::at(106), true))
        };
        assert_eq!(look(&[]), (true, true, false));
        assert_eq!(look(&[(3, 7)]), (true, true, false), "a call in front of it");
        assert_eq!(look(&[(10, 7)]), (true, false, false), "a constant");
        assert_eq!(look(&[(6, 0xb8)]), (false, true, true), "the probe was overwritten with what was there");
    }
}
