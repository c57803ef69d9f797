//! The bytes of an ELF file that are needed, and where in the file they stand.
//!
//! They are read, not mapped: a file that is truncated under a mapping would kill us. A file may be far larger than
//! what is needed of it, so nothing else takes memory. What was not read is as if the file ended in front of it.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;

use object::LittleEndian;
use object::elf::{self, SectionHeader64};
use object::read::ReadRef;
use object::read::elf::{FileHeader as _, ProgramHeader as _, SectionHeader as _};

use crate::elf::{ENDIAN, Elf};

/// Headers that most files begin with, in bytes.
const BEGINNING: u64 = 4096;
/// Parts of the file that are closer together than this are read as one, in bytes.
const GAP: u64 = 4096;
/// Smaller sections are read whatever they hold, in bytes.
const SMALL: u64 = 64 << 10;
/// Larger sections with constants or variables are not read, in bytes.
const LARGEST_CONSTANTS: u64 = 64 << 20;
/// This bounds our memory, in bytes.
const MOST: u64 = 4 << 30;

/// What is read of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadBytes {
    /// What is loaded into memory, and all tables.
    Whole,
    /// Tables alone.
    Tables,
    /// What tells of its linkage.
    Linkage,
}

/// Parts of a file.
#[derive(Debug)]
pub(crate) struct Contents {
    /// By offset; they neither overlap nor touch.
    parts: Vec<(u64, Vec<u8>)>,
    length: u64,
}

impl Contents {
    /// All of a file.
    pub(crate) fn of(bytes: Vec<u8>) -> Contents {
        Contents { length: bytes.len() as u64, parts: vec![(0, bytes)] }
    }

    /// What is needed of a file of that length.
    ///
    /// # Errors
    /// What the system says, or that it is too much.
    pub(crate) fn read(file: &File, length: u64, reading: ReadBytes) -> io::Result<Contents> {
        let beginning = 0..BEGINNING;
        let mut wanted = vec![beginning];
        let mut contents = Contents::parts(file, length, &wanted)?;
        wanted.extend(contents.headers());
        contents = Contents::parts(file, length, &wanted)?;
        wanted.extend(contents.segments(reading));
        if reading == ReadBytes::Linkage {
            return Contents::parts(file, length, &wanted);
        }
        wanted.extend(contents.section_names());
        contents = Contents::parts(file, length, &wanted)?;
        wanted.extend(contents.sections(reading));
        if reading == ReadBytes::Whole {
            wanted.extend(contents.loaded());
        }
        Contents::parts(file, length, &wanted)
    }

    fn parts(file: &File, length: u64, wanted: &[Range<u64>]) -> io::Result<Contents> {
        let clamp = |range: &Range<u64>| range.start.min(length)..range.end.min(length);
        let mut ranges: Vec<Range<u64>> = wanted.iter().map(clamp).filter(|range| !range.is_empty()).collect();
        ranges.sort_unstable_by_key(|range| range.start);
        let mut merged: Vec<Range<u64>> = Vec::new();
        for range in ranges {
            match merged.last_mut() {
                Some(last) if range.start <= last.end.saturating_add(GAP) => last.end = last.end.max(range.end),
                _ => merged.push(range),
            }
        }
        if merged.iter().map(|range| range.end - range.start).sum::<u64>() > MOST {
            let limit = MOST >> 30;
            return Err(io::Error::other(format!("it has more than {limit} GiB of code, constants and tables")));
        }
        let read = |range: Range<u64>| {
            let mut bytes = vec![0; (range.end - range.start) as usize];
            file.read_exact_at(&mut bytes, range.start)?;
            Ok((range.start, bytes))
        };
        Ok(Contents { parts: merged.into_iter().map(read).collect::<io::Result<_>>()?, length })
    }

    /// Bytes of the file, and of what was read of it.
    pub(crate) fn len(&self) -> u64 {
        self.length
    }

    /// Bytes that were read.
    pub(crate) fn size(&self) -> usize {
        self.parts.iter().map(|(_, bytes)| bytes.len()).sum()
    }

    #[cfg(test)]
    pub(crate) fn to_vec(&self) -> Vec<u8> {
        assert_eq!(self.size() as u64, self.length, "all of it was read");
        self.from(0).unwrap_or_default().to_vec()
    }

    /// What was read from this offset on, up to the first byte that was not.
    pub(crate) fn from(&self, offset: u64) -> Option<&[u8]> {
        let following = self.parts.partition_point(|(start, _)| *start <= offset);
        let (start, bytes) = self.parts[..following].last()?;
        bytes.get(usize::try_from(offset - start).ok()?..).filter(|rest| !rest.is_empty())
    }

    /// What was read of a range of the file, piece by piece.
    pub(crate) fn pieces(&self, range: Range<u64>) -> impl Iterator<Item = (u64, &[u8])> {
        self.parts.iter().filter_map(move |(start, bytes)| {
            let end = start + bytes.len() as u64;
            let (first, last) = (range.start.max(*start), range.end.min(end));
            (first < last).then(|| (first, &bytes[(first - start) as usize..(last - start) as usize]))
        })
    }

    /// Whether it has a symbol table.
    pub(crate) fn has_symbols(&self) -> bool {
        self.section_headers().iter().any(|section| section.sh_type(ENDIAN) == elf::SHT_SYMTAB)
    }

    fn header(&self) -> Option<&Elf> {
        Elf::parse(self).ok()
    }

    fn section_headers(&self) -> &[SectionHeader64<LittleEndian>] {
        self.header().and_then(|header| header.section_headers(ENDIAN, self).ok()).unwrap_or_default()
    }

    /// Where the program and section headers stand.
    fn headers(&self) -> Vec<Range<u64>> {
        let Some(header) = self.header() else { return Vec::new() };
        let range = |start: u64, size: u64, count: u64| start..start.saturating_add(size.saturating_mul(count));
        let start = header.e_shoff(ENDIAN);
        let size = u64::from(header.e_shentsize(ENDIAN));
        // Where there are too many for the header, the first of them tells how many.
        let first = || self.read_at::<SectionHeader64<LittleEndian>>(start).ok().map(|first| first.sh_size(ENDIAN));
        let count = match header.e_shnum(ENDIAN) {
            0 if start > 0 => first().unwrap_or(1),
            count => count.into(),
        };
        let segments = range(header.e_phoff(ENDIAN), header.e_phentsize(ENDIAN).into(), header.e_phnum(ENDIAN).into());
        vec![segments, range(start, size, count)]
    }

    /// Segments that are no code and no data of the program.
    fn segments(&self, reading: ReadBytes) -> Vec<Range<u64>> {
        let headers = self.header().and_then(|header| header.program_headers(ENDIAN, self).ok()).unwrap_or_default();
        let is_wanted = |kind| match kind {
            elf::PT_DYNAMIC | elf::PT_INTERP => true,
            elf::PT_NOTE => reading != ReadBytes::Linkage,
            _ => false,
        };
        let wanted = headers.iter().filter(|header| is_wanted(header.p_type(ENDIAN)));
        let ranges = wanted.map(|header| header.file_range(ENDIAN));
        ranges.map(|(start, size)| start..start.saturating_add(size.min(SMALL))).collect()
    }

    fn section_names(&self) -> Option<Range<u64>> {
        let index = self.header()?.shstrndx(ENDIAN, self).ok()?;
        range_of(self.section_headers().get(index as usize)?)
    }

    fn name_of(&self, section: &SectionHeader64<LittleEndian>) -> &[u8] {
        let sections = self.header().and_then(|header| header.sections(ENDIAN, self).ok());
        sections.and_then(|sections| sections.section_name(ENDIAN, section).ok()).unwrap_or_default()
    }

    /// The tables: of sections with any other bytes, only small ones.
    fn sections(&self, reading: ReadBytes) -> Vec<Range<u64>> {
        let is_wanted = |section: &&SectionHeader64<LittleEndian>| match section.sh_type(ENDIAN) {
            elf::SHT_PROGBITS if section.sh_size(ENDIAN) > SMALL => {
                let name = self.name_of(section);
                name == b".eh_frame" || name == b".gnu_debugdata" && reading == ReadBytes::Whole
            }
            elf::SHT_NULL => false,
            _ => true,
        };
        self.section_headers().iter().filter(is_wanted).filter_map(range_of).collect()
    }

    /// What is loaded, but for large constants and variables: nobody wants more of these than a jump table.
    fn loaded(&self) -> Vec<Range<u64>> {
        let is_large = |section: &&SectionHeader64<LittleEndian>| {
            let is_code = section.sh_flags(ENDIAN).contains(elf::SHF_EXECINSTR);
            let is_bytes = section.sh_type(ENDIAN) == elf::SHT_PROGBITS;
            let is_large = section.sh_size(ENDIAN) > LARGEST_CONSTANTS;
            is_large && is_bytes && !is_code && !matches!(self.name_of(section), b".eh_frame" | b".gcc_except_table")
        };
        let mut large: Vec<_> = self.section_headers().iter().filter(is_large).filter_map(range_of).collect();
        large.sort_unstable_by_key(|range| range.start);
        let headers = self.header().and_then(|header| header.program_headers(ENDIAN, self).ok()).unwrap_or_default();
        let mut ranges = Vec::new();
        for header in headers.iter().filter(|header| header.p_type(ENDIAN) == elf::PT_LOAD) {
            let (mut start, size) = header.file_range(ENDIAN);
            let end = start.saturating_add(size);
            for hole in &large {
                ranges.push(start..hole.start.clamp(start, end));
                start = start.max(hole.end.min(end));
            }
            ranges.push(start..end);
        }
        ranges
    }
}

fn range_of(section: &SectionHeader64<LittleEndian>) -> Option<Range<u64>> {
    section.file_range(ENDIAN).map(|(start, size)| start..start.saturating_add(size))
}

impl<'a> ReadRef<'a> for &'a Contents {
    fn len(self) -> Result<u64, ()> {
        Ok(self.length)
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'a [u8], ()> {
        match usize::try_from(size) {
            Ok(0) => Ok(&[]),
            Ok(size) => self.from(offset).and_then(|bytes| bytes.get(..size)).ok_or(()),
            Err(_) => Err(()),
        }
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'a [u8], ()> {
        let bytes = self.from(range.start).ok_or(())?;
        let most = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX);
        let bytes = &bytes[..bytes.len().min(most)];
        bytes.iter().position(|&byte| byte == delimiter).map(|end| &bytes[..end]).ok_or(())
    }
}
