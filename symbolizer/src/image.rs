//! One x86-64 ELF file in memory, and where its bytes lie when it is loaded.
//!
//! Headers are read again from the bytes whenever they are needed, so an `Image` holds nothing twice.

use std::io::Read as _;
use std::ops::Range;
use std::path::Path;

use object::LittleEndian;
use object::elf::{self, PF_W, PF_X, PT_LOAD};
use object::read::ReadRef as _;
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader, SectionTable};

use crate::contents::{Contents, ReadBytes};
use crate::elf::{ENDIAN, Elf};
use crate::mounts::open_regular;
use crate::{Error, Stamp};

/// The kernel runs no file with more program headers.
const MAX_PROGRAM_HEADERS: usize = 1170;
/// Memory pages, the unit of mappings, in bytes.
const PAGE_SIZE: u64 = 4096;

/// One x86-64 ELF file.
#[derive(Debug)]
pub struct Image {
    contents: Contents,
    /// By virtual address.
    segments: Vec<Segment>,
    stamp: Option<Stamp>,
    /// The symbols of its debug file, where it has none itself.
    debug_symbols: Option<Contents>,
}

/// A part of the file that is loaded (`PT_LOAD`).
#[derive(Debug)]
struct Segment {
    address: u64,
    offset: u64,
    /// Bytes in the file; not more than it has.
    size: u64,
    executable: bool,
    writable: bool,
}

impl Segment {
    fn addresses(&self) -> Range<u64> {
        self.address..self.address.saturating_add(self.size)
    }

    fn offsets(&self) -> Range<u64> {
        self.offset..self.offset.saturating_add(self.size)
    }
}

impl Image {
    /// Reads the file at `path`: what is loaded of it, and its tables.
    ///
    /// # Errors
    /// [`Error::Read`] when it cannot be read, [`Error::InFile`] when it is not what we need.
    pub fn open(path: &Path) -> Result<Image, Error> {
        Image::read(path, ReadBytes::Whole)
    }

    /// As [`open`](Image::open), without code, constants and variables: it is not to be asked for any of these.
    ///
    /// # Errors
    /// As there.
    pub fn open_outline(path: &Path) -> Result<Image, Error> {
        let outline = Image::read(path, ReadBytes::Tables)?;
        // Without sections its tables may stand anywhere.
        if outline.has_sections() { Ok(outline) } else { Image::open(path) }
    }

    fn read(path: &Path, reading: ReadBytes) -> Result<Image, Error> {
        let look = || {
            let file = open_regular(path)?;
            // Before it is read: a change meanwhile makes another one of it.
            let stamp = Stamp::of(&file)?;
            Ok((stamp, Contents::read(&file, file.metadata()?.len(), reading)?))
        };
        let (stamp, contents) = look().map_err(|source| Error::Read { path: path.to_owned(), source })?;
        let image = Image::new(contents);
        let image = image.map_err(|error| Error::InFile { path: path.to_owned(), source: Box::new(error) })?;
        Ok(Image { stamp: Some(stamp), ..image })
    }

    /// Which file was read, as it was then; none where only bytes were given.
    pub fn stamp(&self) -> Option<Stamp> {
        self.stamp
    }

    /// Takes the bytes of an ELF file.
    ///
    /// # Errors
    /// [`Error::NotElf`], [`Error::Unsupported`] or [`Error::Malformed`].
    pub fn parse(bytes: Vec<u8>) -> Result<Image, Error> {
        Image::new(Contents::of(bytes))
    }

    pub(crate) fn new(contents: Contents) -> Result<Image, Error> {
        check_variant(contents.from(0).unwrap_or_default())?;
        let header = Elf::parse(&contents)?;
        let program_headers = header.program_headers(ENDIAN, &contents)?;
        if program_headers.len() > MAX_PROGRAM_HEADERS {
            return Err(Error::Malformed("it has too many program headers".to_owned()));
        }
        let mut segments = Vec::new();
        for program_header in program_headers {
            if program_header.p_type(ENDIAN) != PT_LOAD {
                continue;
            }
            let (offset, size) = program_header.file_range(ENDIAN);
            segments.push(Segment {
                address: program_header.p_vaddr(ENDIAN),
                offset,
                size: size.min(contents.len().saturating_sub(offset)),
                executable: program_header.p_flags(ENDIAN).contains(PF_X),
                writable: program_header.p_flags(ENDIAN).contains(PF_W),
            });
        }
        if segments.is_empty() {
            return Err(Error::Malformed("no part of it is loaded into memory".to_owned()));
        }
        segments.sort_by_key(|segment| segment.address);
        Ok(Image { contents, segments, stamp: None, debug_symbols: None })
    }

    /// Where in the file the byte at this virtual address is, if the file holds it.
    pub fn file_offset(&self, address: u64) -> Option<u64> {
        let segment = self.segment_at(address)?;
        Some(segment.offset + (address - segment.address))
    }

    /// The virtual address at which this byte of the file is loaded, if it is; where it is loaded
    /// twice, the executable one.
    pub fn address(&self, file_offset: u64) -> Option<u64> {
        let holds = |segment: &&Segment| segment.offsets().contains(&file_offset);
        let executable = self.segments.iter().filter(|segment| segment.executable).find(holds);
        let segment = executable.or_else(|| self.segments.iter().find(holds))?;
        Some(segment.address.wrapping_add(file_offset - segment.offset))
    }

    /// `len` bytes of code at this virtual address, if all of them lie in one executable segment.
    pub fn code(&self, address: u64, len: usize) -> Option<&[u8]> {
        let segment = self.segment_at(address).filter(|segment| segment.executable)?;
        let skipped = address - segment.address;
        if len as u64 > segment.size - skipped {
            return None;
        }
        self.slice(segment.offset + skipped, len as u64)
    }

    /// The code from this virtual address to the end of its executable segment.
    pub fn code_from(&self, address: u64) -> Option<&[u8]> {
        self.segment_at(address)?.executable.then(|| self.loaded(address))?
    }

    /// Whether nothing stores at this virtual address once the dynamic linker is done.
    pub fn is_constant(&self, address: u64) -> bool {
        let holds = |header: &&elf::ProgramHeader64<LittleEndian>| {
            let start = header.p_vaddr(ENDIAN);
            (start..start.saturating_add(header.p_memsz(ENDIAN))).contains(&address)
        };
        let mut headers = self.program_headers().iter().filter(holds);
        headers.any(|header| match header.p_type(ENDIAN) {
            PT_LOAD => !header.p_flags(ENDIAN).contains(elf::PF_W),
            kind => kind == elf::PT_GNU_RELRO,
        })
    }

    /// The virtual address ranges of the executable segments, sorted.
    pub fn executable_ranges(&self) -> Vec<Range<u64>> {
        self.segments.iter().filter(|segment| segment.executable).map(Segment::addresses).collect()
    }

    /// The virtual address ranges of executable segments that are writable, too: the kernel places no probes there.
    pub fn writable_code(&self) -> Vec<Range<u64>> {
        let both = self.segments.iter().filter(|segment| segment.executable && segment.writable);
        both.map(Segment::addresses).collect()
    }

    /// The virtual address that corresponds to the start of an executable mapping of the file from
    /// this offset; mappings begin at pages, segments need not.
    pub fn mapped_address(&self, offset: u64) -> Option<u64> {
        let segment = self.segments.iter().find(|segment| {
            segment.executable && (segment.offset & !(PAGE_SIZE - 1)..segment.offsets().end).contains(&offset)
        })?;
        Some(segment.address.wrapping_add(offset).wrapping_sub(segment.offset))
    }

    /// The virtual address at which a program of this file begins; none of a file that is not executed by itself.
    ///
    /// Linkers put the beginning of the code into the header of libraries, too, where an ordinary function may be.
    pub fn entry(&self) -> Option<u64> {
        let is_executed = self.is_executable() || self.interpreter().is_some();
        Some(self.header().e_entry(ENDIAN)).filter(|&address| is_executed && address != 0)
    }

    /// What the file loads: the virtual address of each part, and its bytes; sorted. Large constants are left out.
    pub fn loaded_parts(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.segments.iter().flat_map(|segment| {
            let pieces = self.contents.pieces(segment.offsets());
            pieces.map(|(offset, bytes)| (segment.address.wrapping_add(offset - segment.offset), bytes))
        })
    }

    /// Whether nothing is left out of what is loaded.
    pub fn is_whole(&self) -> bool {
        let loaded: u64 = self.segments.iter().map(|segment| segment.size).sum();
        self.loaded_parts().map(|(_, bytes)| bytes.len() as u64).sum::<u64>() == loaded
    }

    /// What the file holds from this virtual address to the end of the segment, or to what is left out.
    pub fn loaded(&self, address: u64) -> Option<&[u8]> {
        let segment = self.segment_at(address)?;
        let skipped = address - segment.address;
        let bytes = self.contents.from(segment.offset + skipped)?;
        Some(&bytes[..bytes.len().min(usize::try_from(segment.size - skipped).ok()?)])
    }

    pub(crate) fn has_symbols(&self) -> bool {
        self.contents.has_symbols()
    }

    pub(crate) fn set_debug_symbols(&mut self, symbols: Option<Contents>) {
        self.debug_symbols = symbols;
    }

    pub(crate) fn debug_symbols(&self) -> Option<&Contents> {
        self.debug_symbols.as_ref()
    }

    pub(crate) fn bytes(&self) -> &Contents {
        &self.contents
    }

    pub(crate) fn header(&self) -> &Elf {
        Elf::parse(&self.contents).expect("`parse` has read it before")
    }

    pub(crate) fn program_headers(&self) -> &[elf::ProgramHeader64<LittleEndian>] {
        self.header().program_headers(ENDIAN, &self.contents).expect("`parse` has read them before")
    }

    pub(crate) fn sections(&self) -> Result<SectionTable<'_, Elf, &Contents>, Error> {
        sections(&self.contents)
    }

    /// The address and the bytes of the first section with this name.
    pub(crate) fn section(&self, name: &str) -> Option<(u64, &[u8])> {
        let sections = self.sections().ok()?;
        let (_, section) = sections.section_by_name(ENDIAN, name.as_bytes())?;
        Some((section.sh_addr(ENDIAN), section.data(ENDIAN, self.bytes()).ok()?))
    }

    fn segment_at(&self, address: u64) -> Option<&Segment> {
        let following = self.segments.partition_point(|segment| segment.address <= address);
        self.segments[..following].last().filter(|segment| segment.addresses().contains(&address))
    }

    fn slice(&self, offset: u64, len: u64) -> Option<&[u8]> {
        (&self.contents).read_bytes_at(offset, len).ok()
    }
}

/// The sections of a file.
pub(crate) fn sections(contents: &Contents) -> Result<SectionTable<'_, Elf, &Contents>, Error> {
    Ok(Elf::parse(contents)?.sections(ENDIAN, contents)?)
}

/// Whether this is a file that begins like ELF.
pub(crate) fn is_elf(path: &Path) -> bool {
    let mut magic = [0; elf::ELFMAG.len()];
    open_regular(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok() && magic == elf::ELFMAG
}

fn check_variant(bytes: &[u8]) -> Result<(), Error> {
    if !bytes.starts_with(&elf::ELFMAG) {
        return Err(Error::NotElf);
    }
    let machine = bytes.get(18..20).map(|field| u16::from_le_bytes([field[0], field[1]]));
    match (bytes.get(4), bytes.get(5), machine) {
        (Some(&class), _, _) if class == elf::ELFCLASS32.0 => Err(Error::Unsupported("32-bit ELF".to_owned())),
        (_, Some(&order), _) if order == elf::ELFDATA2MSB.0 => Err(Error::Unsupported("big-endian ELF".to_owned())),
        (_, _, Some(machine)) if machine != elf::EM_X86_64.0 => {
            Err(Error::Unsupported(format!("ELF for machine {machine}")))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::fixture;

    const SOURCE: &str = r#"
        #include <stdexcept>
        struct Guard { ~Guard() { __asm__ volatile (""); } };
        extern "C" void throws(int x) { Guard guard; if (x) throw std::runtime_error("x"); }
        extern "C" { static int chosen(void) { return 1; } static int (*resolver(void))(void) { return chosen; }
                     int selected(void) __attribute__((ifunc("resolver"))); }
        int call() { return selected(); }
    "#;

    fn library() -> Option<Image> {
        let flags = ["-shared", "-fPIC", "-Wl,--build-id=sha1", "-Wl,-soname,libsmall.so.1", "-Wl,-z,noseparate-code"];
        fixture::compile("g++", SOURCE, &flags)
    }

    /// Asks for everything that there is to ask.
    fn read_all(image: &Image) -> usize {
        let exports = image.exports().unwrap_or_default();
        let strings =
            [image.soname().map(Into::into), image.runpath(), image.rpath(), image.interpreter().map(Into::into)];
        let code: usize = exports
            .functions
            .iter()
            .filter_map(|function| image.code(image.address(function.file_offset)?, function.size as usize))
            .map(<[u8]>::len)
            .sum();
        code + image.frame_ranges().len()
            + image.imports().len()
            + image.slots().len()
            + image.own_slots().count()
            + image.definitions().count()
            + image.stub_tables().len()
            + usize::from(image.go_code().is_some())
            + image.code_ranges().len()
            + image.needed().len()
            + strings.iter().flatten().map(|text| text.len()).sum::<usize>()
            + image.build_id().map_or(0, |id| id.len())
            + image.executable_ranges().len()
            + usize::from(image.defines("throws"))
    }

    #[test]
    fn a_library_tells_about_itself() {
        let Some(image) = library() else { return };
        assert_eq!(image.soname(), Some("libsmall.so.1"));
        assert_eq!(image.build_id().map(|id| id.len()), Some(40));
        assert!(image.needed().iter().any(|name| name == "libstdc++.so.6"));
        assert!(image.imports().contains(&"__cxa_throw"));
        assert!(image.defines("throws") && !image.defines("__cxa_throw"));
        assert_eq!((image.interpreter(), image.runpath(), image.rpath()), (None, None, None));

        let exports = image.exports().unwrap();
        let throws = exports.functions.iter().find(|function| function.name == "throws").unwrap();
        assert_eq!(image.file_offset(throws.address), Some(throws.file_offset));
        assert_eq!(image.address(throws.file_offset), Some(throws.address));
        assert!(image.code(throws.address, throws.size as usize).is_some());
        let selected = exports.functions.iter().find(|function| function.name == "selected").unwrap();
        assert!(selected.ifunc && !throws.ifunc);

        let code = &image.executable_ranges()[0];
        assert!(image.code(code.start, (code.end - code.start) as usize).is_some());
        assert!(image.code(code.start, (code.end - code.start) as usize + 1).is_none());
        assert!(image.code(code.end, 0).is_none() && image.code(u64::MAX, usize::MAX).is_none());
    }

    #[test]
    fn every_truncation_is_survived() {
        let Some(image) = library() else { return };
        let whole = read_all(&image);
        let bytes = image.contents.to_vec();
        for length in 0..bytes.len() {
            if let Ok(part) = Image::parse(bytes[..length].to_vec()) {
                assert!(read_all(&part) <= whole);
            }
        }
    }

    #[test]
    fn every_flipped_bit_is_survived() {
        let Some(image) = library() else { return };
        let is_header = |position: &usize| *position < 1024;
        for image in [fixture::without_sections(&image), image] {
            // All of the headers, and a sample of the rest.
            for position in (0..image.contents.size()).filter(|position| is_header(position) || position % 7 == 0) {
                let mut bytes = image.contents.to_vec();
                bytes[position] ^= 1 << (position / 7 % 8);
                if let Ok(image) = Image::parse(bytes) {
                    read_all(&image);
                }
            }
        }
    }

    /// Overlapping sections, huge ones, ones outside of the file, entries of no size, links to themselves.
    #[test]
    fn section_headers_that_lie_are_survived() {
        let Some(image) = library() else { return };
        let exported = |image: &Image| image.exports().map(|exports| exports.functions.len()).unwrap_or_default();
        let (whole, functions) = (read_all(&image), exported(&image));
        let table = image.header().e_shoff.get(ENDIAN) as usize;
        let count = usize::from(image.header().e_shnum.get(ENDIAN));
        let size = image.contents.len();
        let fields = [4..8, 8..16, 16..24, 24..32, 32..40, 40..44, 44..48, 56..64];
        for section in 0..count {
            let header = table + section * size_of::<elf::SectionHeader64<LittleEndian>>();
            for (field, value) in fields.iter().cloned().flat_map(|field| {
                [0, 1, section as u64, size - 1, size, u64::MAX >> 1, u64::MAX].map(|value| (field.clone(), value))
            }) {
                let mut bytes = image.contents.to_vec();
                let length = field.len();
                bytes[header + field.start..header + field.end].copy_from_slice(&value.to_le_bytes()[..length]);
                let lying = Image::parse(bytes).unwrap();
                assert!(
                    read_all(&lying) <= 2 * whole && exported(&lying) <= functions,
                    "{section}, {field:?}, {value:#x}"
                );
            }
        }
        for (place, value) in [(40, u64::MAX), (40, 1), (58, 0xffff_ffff_ffff), (60, 0xffff), (62, 0xffff)] {
            let mut bytes = image.contents.to_vec();
            bytes[place..place + 2].copy_from_slice(&value.to_le_bytes()[..2]);
            let lying = Image::parse(bytes).unwrap();
            assert_eq!(exported(&lying), functions, "{place}, {value:#x}");
        }
    }

    #[test]
    fn what_is_no_file_is_not_even_opened() {
        use std::fs::File;
        use std::os::unix::fs::OpenOptionsExt as _;

        use rustix::fs::{CWD, FileType, Mode, OFlags, inotify, mknodat};

        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR, 0).unwrap();
        let watch = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
        inotify::add_watch(&watch, &pipe, inotify::WatchFlags::OPEN).unwrap();
        assert!(matches!(Image::open(&pipe), Err(Error::Read { .. })));
        assert_eq!(rustix::io::read(&watch, &mut [0; 256]), Err(rustix::io::Errno::AGAIN));
        drop(File::options().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(&pipe).unwrap());
        assert!(rustix::io::read(&watch, &mut [0; 256]).is_ok(), "an open is seen");
    }

    #[test]
    fn other_files_are_refused_by_name() {
        let message = |bytes: &[u8]| Image::parse(bytes.to_vec()).unwrap_err().to_string();
        assert_eq!(message(b"#!/bin/sh\n"), "not an ELF file");
        assert_eq!(message(b""), "not an ELF file");
        let header = |class, order, machine| [b"\x7fELF", [class, order].as_slice(), &[0; 12], &[machine, 0]].concat();
        assert_eq!(message(&header(1, 1, 3)), "32-bit ELF is not supported, only 64-bit x86-64 ELF is");
        assert_eq!(message(&header(2, 2, 62)), "big-endian ELF is not supported, only 64-bit x86-64 ELF is");
        assert_eq!(message(&header(2, 1, 183)), "ELF for machine 183 is not supported, only 64-bit x86-64 ELF is");
        assert!(message(&header(2, 1, 62)).starts_with("malformed ELF file: "));
        assert!(matches!(Image::open(Path::new("/dev/zero")), Err(Error::Read { .. })));
        assert!(matches!(Image::open(Path::new("/")), Err(Error::Read { .. })));
    }
}
