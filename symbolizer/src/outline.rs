//! A file without its code and constants.
//!
//! What a program's other modules are asked for stands in their tables: symbols, linkage, unwind
//! entries. The rest, mostly the greater part, need not be read for that.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use object::elf;
use object::read::elf::{FileHeader as _, ProgramHeader as _, SectionHeader as _};

use crate::image::{ENDIAN, Elf, MAX_FILE_SIZE, open_regular};
use crate::{Error, Image};

/// Headers that most files begin with, in bytes.
const BEGINNING: u64 = 4096;
/// Smaller sections are read whatever they hold, in bytes.
const SMALL: u64 = 64 << 10;
/// No file's name is longer, in bytes.
const MAX_SONAME: usize = 256;

impl Image {
    /// As [`open`](Image::open), but all bytes of larger sections with code, constants or variables are
    /// zero: it is not to be asked for any of these.
    ///
    /// # Errors
    /// As there.
    pub fn open_outline(path: &Path) -> Result<Image, Error> {
        let outline = Image::read(path, read)?;
        // Without sections its tables may stand anywhere.
        if outline.has_sections() { Ok(outline) } else { Image::open(path) }
    }
}

/// The `DT_SONAME` of the file at `path`, of which little more is read; `None` where it has none or cannot be read.
pub fn soname(path: &Path) -> Option<String> {
    let file = open_regular(path).ok()?;
    let size = file.metadata().ok()?.len();
    if size > MAX_FILE_SIZE {
        return None;
    }
    // Zeros that nobody touches take no memory.
    let mut bytes = vec![0; size as usize];
    fill(&file, &mut bytes, 0..BEGINNING).ok()?;
    let table = range_of_segments(Elf::parse(bytes.as_slice()).ok()?);
    fill(&file, &mut bytes, table).ok()?;
    let (start, size) = dynamic_range(&bytes)?;
    fill(&file, &mut bytes, start..start.saturating_add(size.min(SMALL))).ok()?;
    let image = Image::parse(bytes).ok()?;
    let strings = image.dynamic_value(elf::DT_STRTAB)?;
    let offset = image.file_offset(strings.checked_add(image.dynamic_value(elf::DT_SONAME)?)?)?;
    let mut name = [0; MAX_SONAME];
    let length = file.read_at(&mut name, offset).ok()?;
    let end = name[..length].iter().position(|&byte| byte == 0)?;
    str::from_utf8(&name[..end]).ok().map(str::to_owned)
}

/// Where the table that tells the linkage stands: its beginning and size.
fn dynamic_range(bytes: &[u8]) -> Option<(u64, u64)> {
    let segments = Elf::parse(bytes).ok()?.program_headers(ENDIAN, bytes).ok()?;
    let dynamic = segments.iter().find(|segment| segment.p_type(ENDIAN) == elf::PT_DYNAMIC)?;
    Some(dynamic.file_range(ENDIAN))
}

fn range_of_segments(header: &Elf) -> Range<u64> {
    range(header.e_phoff(ENDIAN), header.e_phentsize(ENDIAN), header.e_phnum(ENDIAN))
}

fn range(start: u64, size: u16, count: u16) -> Range<u64> {
    start..start.saturating_add(u64::from(size) * u64::from(count))
}

fn read(file: &File) -> io::Result<Vec<u8>> {
    let size = file.metadata()?.len();
    // Zeros that nobody touches take no memory.
    let mut bytes = vec![0; size as usize];
    fill(file, &mut bytes, 0..BEGINNING)?;
    let Some(headers) = headers(&bytes) else {
        fill(file, &mut bytes, 0..size)?;
        return Ok(bytes);
    };
    for range in headers {
        fill(file, &mut bytes, range)?;
    }
    for are_named in [false, true] {
        let tables = tables(&bytes, are_named);
        // Those of a hostile file overlap: all of it once takes less time.
        if tables.iter().fold(0, |sum: u64, range| sum.saturating_add(range.end - range.start)) > size {
            fill(file, &mut bytes, 0..size)?;
            return Ok(bytes);
        }
        for range in tables {
            fill(file, &mut bytes, range)?;
        }
    }
    Ok(bytes)
}

fn fill(file: &File, bytes: &mut [u8], range: Range<u64>) -> io::Result<()> {
    let end = range.end.min(bytes.len() as u64);
    let start = range.start.min(end);
    file.read_exact_at(&mut bytes[start as usize..end as usize], start)
}

/// Where the program and section headers stand; none where there are no sections.
fn headers(bytes: &[u8]) -> Option<[Range<u64>; 2]> {
    let header = Elf::parse(bytes).ok()?;
    let sections = header.e_shnum(ENDIAN);
    let of_sections = range(header.e_shoff(ENDIAN), header.e_shentsize(ENDIAN), sections);
    (sections > 0).then(|| [range_of_segments(header), of_sections])
}

/// Where the tables stand: those that are known by their names, or all others, names among them.
fn tables(bytes: &[u8], are_named: bool) -> Vec<Range<u64>> {
    let sections = Elf::parse(bytes).and_then(|header| header.sections(ENDIAN, bytes)).unwrap_or_default();
    let is_wanted = |section: &&elf::SectionHeader64<_>| {
        let may_be_code = section.sh_type(ENDIAN) == elf::SHT_PROGBITS && section.sh_size(ENDIAN) > SMALL;
        match are_named {
            true => may_be_code && sections.section_name(ENDIAN, section).is_ok_and(|name| name == b".eh_frame"),
            false => !may_be_code,
        }
    };
    let ranges = sections.iter().filter(is_wanted).filter_map(|section| section.file_range(ENDIAN));
    ranges.map(|(start, size)| start..start.saturating_add(size)).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::modules;

    #[test]
    fn an_outline_tells_what_the_whole_does() {
        let mut shorter = 0;
        for module in modules::of_process(std::process::id()).unwrap() {
            let (whole, outline) = match (Image::open(&module.path), Image::open_outline(&module.path)) {
                (Ok(whole), Ok(outline)) => (whole, outline),
                (whole, outline) => {
                    assert_eq!(whole.is_ok(), outline.is_ok());
                    continue;
                }
            };
            let names = ["malloc", "memcpy", "main", "sin"].into_iter().collect();
            assert_eq!(outline.imports(), whole.imports());
            assert_eq!(outline.defined(&names), whole.defined(&names));
            assert_eq!(outline.frame_ranges(), whole.frame_ranges());
            assert!(outline.definitions().eq(whole.definitions()));
            assert_eq!(outline.slots(), whole.slots());
            assert_eq!(outline.code_ranges(), whole.code_ranges());
            assert_eq!(outline.needed(), whole.needed());
            assert_eq!(outline.soname(), whole.soname());
            assert_eq!(soname(&module.path).as_deref(), whole.soname());
            assert_eq!(outline.build_id(), whole.build_id());
            assert_eq!(outline.defines("malloc"), whole.defines("malloc"));
            shorter += usize::from(outline.bytes() != whole.bytes());
        }
        assert!(shorter > 0, "the C library has code");
    }

    #[test]
    fn sections_that_overlap_are_not_read_again_and_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let mut bytes = std::fs::read("/proc/self/exe").unwrap();
        let (start, size, count) = {
            let header = Elf::parse(&*bytes).unwrap();
            (header.e_shoff(ENDIAN) as usize, header.e_shentsize(ENDIAN) as usize, header.e_shnum(ENDIAN) as usize)
        };
        let length = (bytes.len() as u64).to_le_bytes();
        for section in bytes[start..start + size * count].chunks_mut(size) {
            section[24..32].fill(0); // sh_offset
            section[32..40].copy_from_slice(&length); // sh_size
            section[4..8].copy_from_slice(&elf::SHT_NOTE.0.to_le_bytes());
        }
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(read(&File::open(&path).unwrap()).unwrap(), bytes);
    }

    #[test]
    fn files_of_any_kind_are_survived() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let own = std::fs::read("/proc/self/exe").unwrap();
        for bytes in [&b""[..], b"\x7fELF", &own[..100], &own[..5000], &own[..own.len() / 2]] {
            std::fs::write(&path, bytes).unwrap();
            assert_eq!(Image::open_outline(&path).is_ok(), Image::open(&path).is_ok(), "{} bytes", bytes.len());
        }
        assert!(Image::open_outline(Path::new("/dev/zero")).is_err());
    }
}
