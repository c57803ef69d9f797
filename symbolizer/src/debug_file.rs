//! Where the debug information of a file is, and its sections in memory.
//!
//! It is looked for in the file itself, by build id below `/usr/lib/debug` and in the cache of debuginfod, and by the
//! name in `.gnu_debuglink`. Nothing is fetched from anywhere.

use std::borrow::Cow;
use std::env;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use gimli::SectionId;
use object::{CompressionFormat, Object as _, ObjectSection as _};

use crate::{Image, open_regular};

/// Files are read whole; larger ones are passed over.
const LARGEST_FILE: u64 = 4 << 30;
/// A section that unfolds to more is passed over.
const LARGEST_SECTION: u64 = 2 << 30;

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
pub type Sections = gimli::DwarfSections<Vec<u8>>;

/// The debug information of a library or a program.
#[derive(Debug)]
pub struct DebugFile {
    /// Where it was found, as people are told.
    pub path: PathBuf,
    /// Its sections.
    pub sections: Sections,
    /// Those of the file that it shares with others (`.gnu_debugaltlink`).
    pub shared: Option<Sections>,
}

impl DebugFile {
    /// Finds the debug information of a file, which people know by `path` and which can be opened by `open`.
    #[must_use]
    pub fn find(path: &Path, open: &Path, image: &Image) -> Option<DebugFile> {
        let own = read(open)?;
        let file = object::File::parse(&*own).ok()?;
        if file.section_by_name(".debug_info").is_some() {
            return DebugFile::load(path, &file);
        }
        let link = file.gnu_debuglink().ok().flatten();
        let link = link.and_then(|(name, check)| Some((std::str::from_utf8(name).ok()?, check)));
        let build_id = image.build_id();
        let candidates = debug_files(build_id.as_deref()).into_iter().map(|path| (path, None));
        let linked =
            link.into_iter().flat_map(|(name, check)| by_link(path, name).map(move |path| (path, Some(check))));
        candidates.chain(linked).find_map(|(path, check)| {
            let bytes = read(&path)?;
            let file = object::File::parse(&*bytes).ok()?;
            let is_same = match (&build_id, file.build_id().ok().flatten()) {
                (Some(wanted), Some(found)) => *wanted == hexadecimal(found),
                _ => check.is_some_and(|check| check == checksum(&bytes)),
            };
            if is_same { DebugFile::load(&path, &file) } else { None }
        })
    }

    fn load(path: &Path, file: &object::File) -> Option<DebugFile> {
        file.section_by_name(SectionId::DebugInfo.name())?;
        let own = sections(file)?;
        let link = file.gnu_debugaltlink().ok().flatten();
        let shared = link.and_then(|(name, build_id)| {
            let name = PathBuf::from(std::str::from_utf8(name).ok()?);
            let beside = path.parent().map(|folder| folder.join(&name));
            let known = debug_files(Some(&hexadecimal(build_id)));
            beside.into_iter().chain(known).find_map(|path| {
                let bytes = read(&path)?;
                let file = object::File::parse(&*bytes).ok()?;
                (file.build_id().ok().flatten() == Some(build_id)).then(|| sections(&file)).flatten()
            })
        });
        Some(DebugFile { path: path.to_owned(), sections: own, shared })
    }
}

fn read(path: &Path) -> Option<Vec<u8>> {
    let file = open_regular(path).ok()?;
    let length = file.metadata().ok()?.len();
    let mut bytes = Vec::with_capacity(usize::try_from(length.min(LARGEST_FILE)).ok()?);
    file.take(LARGEST_FILE).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

fn sections(file: &object::File) -> Option<Sections> {
    let load = |id: SectionId| -> Result<Vec<u8>, ()> {
        let wanted = SECTIONS.contains(&id).then(|| file.section_by_name(id.name())).flatten();
        wanted.map_or(Ok(Vec::new()), |section| content(&section).map(Cow::into_owned).ok_or(()))
    };
    Sections::load(load).ok()
}

/// The content of a section, unfolded if it is compressed.
fn content<'a>(section: &object::Section<'a, '_>) -> Option<Cow<'a, [u8]>> {
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

/// Where a file with the name of a `.gnu_debuglink` may be.
fn by_link(path: &Path, name: &str) -> impl Iterator<Item = PathBuf> {
    let folder = path.parent().unwrap_or(Path::new("/")).to_owned();
    let below = Path::new("/usr/lib/debug").join(folder.strip_prefix("/").unwrap_or(&folder));
    // A name with a folder in it would lead anywhere.
    let name = Path::new(name).file_name().map(PathBuf::from);
    name.into_iter().flat_map(move |name| [folder.join(".debug").join(&name), below.join(&name), folder.join(&name)])
}

fn checksum(bytes: &[u8]) -> u32 {
    let mut sum = flate2::Crc::new();
    sum.update(bytes);
    sum.sum()
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
