//! Where the debug information of a file is, its sections in memory, and the symbols of a file without its own.
//!
//! It is looked for where debuggers do: in the file itself, by build id below `/usr/lib/debug` and in the cache of
//! debuginfod, and by the name in `.gnu_debuglink`. Nothing is fetched from anywhere.

use std::borrow::Cow;
use std::collections::HashSet;
use std::env;
use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::path::{Path, PathBuf};

use gimli::SectionId;
use object::read::ReadCache;
use object::{CompressionFormat, Object as _, ObjectSection as _};

use crate::contents::{Contents, ReadBytes};
use crate::dynamic::hexadecimal;
use crate::symtab::SymbolTable;
use crate::{Image, open_regular};

/// A section that unfolds to more is passed over.
const LARGEST_SECTION: u64 = 2 << 30;
/// A compressed symbol table that unfolds to more is passed over.
const LARGEST_SYMBOLS: usize = 1 << 30;

/// How many times larger a compressed section unfolds at most, as the formats are: matches of 258 bytes in 2 bits, blocks
/// of 128 KiB in 4 bytes.
const LARGEST_RATIOS: [(CompressionFormat, u64); 2] =
    [(CompressionFormat::Zlib, 1032), (CompressionFormat::Zstandard, 1 << 15)];

/// The sections in which types, functions and lines are told.
const SECTIONS: [SectionId; 12] = [
    SectionId::DebugAbbrev,
    SectionId::DebugAddr,
    SectionId::DebugInfo,
    SectionId::DebugLine,
    SectionId::DebugLineStr,
    SectionId::DebugLoc,
    SectionId::DebugLocLists,
    SectionId::DebugRanges,
    SectionId::DebugRngLists,
    SectionId::DebugStr,
    SectionId::DebugStrOffsets,
    SectionId::DebugTypes,
];

/// The sections of one file.
type Sections = gimli::DwarfSections<Vec<u8>>;

/// Bytes of debug information, or of unwind tables.
pub type Reader<'a> = gimli::EndianSlice<'a, gimli::LittleEndian>;

/// A unit of debug information.
pub type DwarfUnit<'a> = gimli::Unit<Reader<'a>>;

/// A file of which is read what is asked for.
type Lazy<'a> = object::File<'a, &'a ReadCache<File>>;

/// The debug information of a library or a program.
#[derive(Debug)]
pub struct DebugFile {
    /// Where it was found, as people are told.
    pub path: PathBuf,
    /// Its sections.
    sections: Sections,
    /// Those of the file that it shares with others (`.gnu_debugaltlink`).
    shared: Option<Sections>,
}

impl DebugFile {
    /// What its sections contain.
    pub fn dwarf(&self) -> gimli::Dwarf<Reader<'_>> {
        let slice = |bytes| Reader::new(bytes, gimli::LittleEndian);
        match &self.shared {
            Some(shared) => self.sections.borrow_with_sup(shared, |bytes| slice(bytes)),
            None => self.sections.borrow(|bytes| slice(bytes)),
        }
    }

    /// Finds the debug information of a file, which people know by `path` and which can be opened by `open`.
    pub fn find(path: &Path, open: &Path, image: &Image) -> Option<DebugFile> {
        let own = ReadCache::new(open_regular(open).ok()?);
        let own = object::File::parse(&own).ok()?;
        if own.section_by_name(".debug_info").is_some() {
            return DebugFile::load(path, &own);
        }
        let of_image = |candidate: &Path| {
            let file = ReadCache::new(open_regular(candidate).ok()?);
            DebugFile::load(candidate, &object::File::parse(&file).ok()?)
        };
        files_of(path, image).find_map(|candidate| of_image(&candidate))
    }

    fn load(path: &Path, file: &Lazy<'_>) -> Option<DebugFile> {
        file.section_by_name(SectionId::DebugInfo.name())?;
        let own = sections(file)?;
        let link = file.gnu_debugaltlink().ok().flatten();
        let shared = link.and_then(|(name, build_id)| {
            let name = PathBuf::from(std::str::from_utf8(name).ok()?);
            let beside = path.parent().map(|folder| folder.join(&name));
            let known = debug_files(Some(&hexadecimal(build_id)));
            beside.into_iter().chain(known).find_map(|path| {
                let file = ReadCache::new(open_regular(&path).ok()?);
                let file = object::File::parse(&file).ok()?;
                (file.build_id().ok().flatten() == Some(build_id)).then(|| sections(&file)).flatten()
            })
        });
        Some(DebugFile { path: path.to_owned(), sections: own, shared })
    }
}

/// The symbols of a file that has none itself, which people know by `path`.
pub(crate) fn symbols(path: &Path, image: &Image) -> Option<Contents> {
    let read = |candidate: PathBuf| {
        let file = open_regular(&candidate).ok()?;
        let contents = Contents::read(&file, file.metadata().ok()?.len(), ReadBytes::Tables).ok()?;
        contents.has_symbols().then_some(contents)
    };
    files_of(path, image).find_map(read).or_else(|| unfolded(image.section(".gnu_debugdata")?.1))
}

/// The symbols that a file holds compressed (`MiniDebugInfo`).
fn unfolded(mut compressed: &[u8]) -> Option<Contents> {
    let mut bytes = BoundedBuffer(Vec::new());
    lzma_rs::xz_decompress(&mut compressed, &mut bytes).ok()?;
    let contents = Contents::of(bytes.0);
    contents.has_symbols().then_some(contents)
}

struct BoundedBuffer(Vec<u8>);

impl io::Write for BoundedBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > LARGEST_SYMBOLS {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Where debug files of a file are looked for, which people know by `path`.
pub fn debug_places(path: &Path, image: &Image) -> Vec<PathBuf> {
    candidates(path, image).into_iter().map(|(path, _)| path).collect()
}

/// With the sum over all bytes that a file must have which is known only by its name.
fn candidates(path: &Path, image: &Image) -> Vec<(PathBuf, Option<u32>)> {
    let known = debug_files(image.build_id().as_deref()).into_iter().map(|path| (path, None));
    let linked = link_of(image)
        .into_iter()
        .flat_map(|(name, sum)| by_link(path, &name).into_iter().map(move |at| (at, Some(sum))));
    known.chain(linked).collect()
}

/// The debug files of a file that are there, and are its own.
fn files_of(path: &Path, image: &Image) -> impl Iterator<Item = PathBuf> {
    let build_id = image.build_id();
    candidates(path, image).into_iter().filter_map(move |(path, sum)| {
        let file = open_regular(&path).ok()?;
        let lazy = ReadCache::new(file.try_clone().ok()?);
        let found = object::File::parse(&lazy).ok()?.build_id().ok().flatten().map(hexadecimal);
        let is_same = match (&build_id, found) {
            (Some(wanted), Some(found)) => *wanted == found,
            _ => sum.is_some_and(|sum| checksum(&file).is_ok_and(|found| found == sum)),
        };
        is_same.then_some(path)
    })
}

/// The name in `.gnu_debuglink`, and the sum over the file that it means.
fn link_of(image: &Image) -> Option<(String, u32)> {
    let (_, bytes) = image.section(".gnu_debuglink")?;
    let end = bytes.iter().position(|&byte| byte == 0)?;
    let sum = bytes.get((end + 1).next_multiple_of(4)..)?.first_chunk()?;
    Some((str::from_utf8(&bytes[..end]).ok()?.to_owned(), u32::from_le_bytes(*sum)))
}

fn sections(file: &Lazy<'_>) -> Option<Sections> {
    let load = |id: SectionId| -> Result<Vec<u8>, ()> {
        let wanted = SECTIONS.contains(&id).then(|| file.section_by_name(id.name())).flatten();
        wanted.map_or(Ok(Vec::new()), |section| content(&section).map(Cow::into_owned).ok_or(()))
    };
    Sections::load(load).ok()
}

/// The content of a section, unfolded if it is compressed.
fn content<'a>(section: &object::Section<'a, '_, &'a ReadCache<File>>) -> Option<Cow<'a, [u8]>> {
    let compressed = section.compressed_data().ok()?;
    let size = compressed.uncompressed_size;
    if size > LARGEST_SECTION {
        return None;
    }
    // What it claims may be far more than it is, so memory is taken as it comes.
    let mut bytes = Vec::new();
    match compressed.format {
        CompressionFormat::None => return Some(Cow::Borrowed(compressed.data)),
        CompressionFormat::Zlib => {
            flate2::read::ZlibDecoder::new(compressed.data).take(size).read_to_end(&mut bytes).ok()?;
        }
        CompressionFormat::Zstandard => {
            zstd::stream::read::Decoder::new(compressed.data).ok()?.take(size).read_to_end(&mut bytes).ok()?;
        }
        _ => return None,
    }
    Some(Cow::Owned(bytes))
}

/// Whether no section of a file, or of what has its debug information, claims to unfold to more than it can.
pub(crate) fn unfolds_within_reason(path: &Path) -> bool {
    let linked = Image::open_outline(path).map(|image| debug_places(path, &image)).unwrap_or_default();
    linked.iter().map(PathBuf::as_path).chain([path]).all(|path| {
        let Ok(file) = open_regular(path) else { return true };
        let file = ReadCache::new(file);
        let Ok(file) = object::File::parse(&file) else { return true };
        file.sections().all(|section| {
            let Ok(range) = section.compressed_file_range() else { return false };
            let ratio = LARGEST_RATIOS.iter().find(|(format, _)| *format == range.format).map(|(_, ratio)| *ratio);
            ratio.is_none_or(|ratio| {
                range.uncompressed_size <= LARGEST_SECTION.min(range.compressed_size.saturating_mul(ratio))
            })
        })
    })
}

/// Where the debug information of a file with this build id is looked for, beside the file itself.
pub fn debug_files(build_id: Option<&str>) -> Vec<PathBuf> {
    let Some((first, rest)) = build_id.and_then(|id| id.split_at_checked(2)) else { return Vec::new() };
    let mut paths = vec![PathBuf::from(format!("/usr/lib/debug/.build-id/{first}/{rest}.debug"))];
    let folder = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = folder("DEBUGINFOD_CACHE_PATH")
        .or_else(|| folder("XDG_CACHE_HOME").map(|cache| cache.join("debuginfod_client")))
        .or_else(|| folder("HOME").map(|home| home.join(".cache/debuginfod_client")));
    paths.extend(cache.map(|cache| cache.join(format!("{first}{rest}")).join("debuginfo")));
    paths
}

/// Where a file with the name of a `.gnu_debuglink` may be; the path of the other one may be that of a link to it.
fn by_link(path: &Path, name: &str) -> Vec<PathBuf> {
    // A name with a folder in it would lead anywhere.
    let Some(name) = Path::new(name).file_name() else { return Vec::new() };
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let mut paths = Vec::new();
    for folder in [real.as_path(), path].into_iter().filter_map(Path::parent) {
        let below = Path::new("/usr/lib/debug").join(folder.strip_prefix("/").unwrap_or(folder));
        paths.extend([folder.join(".debug").join(name), below.join(name), folder.join(name)]);
    }
    let mut met = HashSet::new();
    paths.retain(|path| path.is_absolute() && met.insert(path.clone()));
    paths
}

fn checksum(mut file: &File) -> io::Result<u32> {
    file.rewind()?;
    let (mut sum, mut bytes) = (flate2::Crc::new(), vec![0; 1 << 16]);
    loop {
        match file.read(&mut bytes)? {
            0 => return Ok(sum.sum()),
            length => sum.update(&bytes[..length]),
        }
    }
}

impl Image {
    /// Takes the symbols of the debug file of a program that was stripped, which people know by `path`; also of a library
    /// that exports nothing.
    #[must_use]
    pub fn with_debug_symbols(mut self, path: &Path) -> Image {
        let exports_any = || {
            let exported =
                |table: SymbolTable<'_>| table.entries().any(|entry| entry.is_defined() && entry.is_function());
            SymbolTable::dynamic(&self).ok().flatten().is_some_and(exported)
        };
        if !self.has_symbols() && (self.is_executable() || !exports_any()) {
            let symbols = symbols(path, &self);
            self.set_debug_symbols(symbols);
        }
        self
    }
}
