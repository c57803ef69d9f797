//! Where functions and linkage stubs stand in a file, as far as its tables say.

use std::ops::Range;

use object::read::elf::SectionHeader;

use crate::Image;
use crate::elf::ENDIAN;
use crate::symtab::SymbolTable;

/// Linkers make three.
const MAX_STUB_TABLES: usize = 8;

impl Image {
    /// The procedure linkage tables: `.plt`, `.plt.got`, `.plt.sec`.
    pub fn stub_tables(&self) -> Vec<Range<u64>> {
        if !self.has_sections() {
            return self.stubs_by_slots();
        }
        let Ok(sections) = self.sections() else { return Vec::new() };
        let tables = sections.iter().filter(|section| {
            sections.section_name(ENDIAN, section).is_ok_and(|name| name == b".plt" || name.starts_with(b".plt."))
        });
        let range = |address: u64, size: u64| address..address.saturating_add(size);
        tables.map(|table| range(table.sh_addr(ENDIAN), table.sh_size(ENDIAN))).take(MAX_STUB_TABLES).collect()
    }

    /// The virtual address ranges of functions and of their parts: those of `.eh_frame`, and those of
    /// symbols that begin in none of these. They are sorted, and each ends before the next begins.
    pub fn code_ranges(&self) -> Vec<Range<u64>> {
        let mut ranges: Vec<Range<u64>> = self.frame_ranges().iter().map(|frame| frame.start..frame.end).collect();
        let frames = ranges.len();
        for table in [SymbolTable::dynamic(self), SymbolTable::full(self)] {
            let Ok(Some(table)) = table else { continue };
            for entry in table.entries().filter(|entry| entry.is_function() && entry.is_defined()) {
                let range = entry.address()..entry.address().saturating_add(entry.size());
                let before = ranges[..frames].partition_point(|frame| frame.start <= range.start);
                let is_framed = before > 0 && range.start < ranges[before - 1].end;
                if !range.is_empty() && !is_framed {
                    ranges.push(range);
                }
            }
        }
        ranges.sort_unstable_by_key(|range| (range.start, range.end));
        let mut next = u64::MAX;
        for range in ranges.iter_mut().rev() {
            range.end = range.end.min(next);
            next = range.start;
        }
        ranges.retain(|range| !range.is_empty());
        ranges
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use crate::fixture;

    #[test]
    fn functions_are_known_with_and_without_unwind_entries() {
        let code = "extern int absent(int); int f(int x) { return absent(x) + 1; } int g(int x) { return f(x); }";
        for flags in [&["-fasynchronous-unwind-tables"][..], &["-fno-asynchronous-unwind-tables"]] {
            let flags = [&["-shared", "-fPIC"], flags].concat();
            let Some(image) = fixture::compile("gcc", code, &flags) else { return };
            let ranges = image.code_ranges();
            for function in image.exports().unwrap().functions {
                let range = function.address..function.address + function.size;
                assert_eq!(ranges.iter().filter(|known| **known == range).count(), 1, "{} {flags:?}", function.name);
            }
        }
    }

    #[test]
    fn stubs_stand_in_tables() {
        let code = "extern int absent(int); int f(int x) { return absent(x) + 1; }";
        let Some(image) = fixture::compile("gcc", code, &["-shared", "-fPIC"]) else { return };
        let tables = image.stub_tables();
        assert!(!tables.is_empty());
        let executable = image.executable_ranges();
        assert!(tables.iter().all(|table| executable.iter().any(|range| range.contains(&table.start))));
    }
}
