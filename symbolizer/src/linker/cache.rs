//! `/etc/ld.so.cache`: which library names `ldconfig` found where.
//!
//! The format of glibc since 2.2: a header, entries of 24 bytes, strings. Older tools put another
//! header in front of it. What does not fit is left out.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use super::hardware;
use crate::elf::string_at;

const PATH: &str = "/etc/ld.so.cache";
const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
const HEADER_SIZE: usize = 48;
const ENTRY_SIZE: usize = 24;
/// In an entry's flags: which architecture it is for, and x86-64.
const ARCHITECTURE_MASK: u32 = 0xff00;
const X86_64: u32 = 0x0300;
/// Marks entries for processors of some level; the level is also in their path.
const HARDWARE_EXTENSION: u64 = 1 << 62;

/// The libraries of the cache that this processor can run.
#[derive(Debug, Default)]
pub(super) struct Cache {
    /// In the order of the cache.
    paths: Vec<PathBuf>,
    /// The best path's rank and index, by name.
    by_name: HashMap<Vec<u8>, (usize, usize)>,
}

impl Cache {
    /// The cache of this machine; empty where there is none.
    pub(super) fn of_system() -> Cache {
        Cache::parse(&std::fs::read(PATH).unwrap_or_default())
    }

    pub(super) fn parse(bytes: &[u8]) -> Cache {
        let mut cache = Cache::default();
        let Some(start) = bytes.windows(MAGIC.len()).position(|window| window == MAGIC) else { return cache };
        let bytes = &bytes[start..];
        let count = u32_at(bytes, MAGIC.len()).unwrap_or(0) as usize;
        let entries = bytes.get(HEADER_SIZE..).unwrap_or_default();
        for entry in entries.chunks_exact(ENTRY_SIZE).take(count) {
            cache.add(bytes, entry);
        }
        cache
    }

    /// `None` where the entry is broken or not for this processor.
    fn add(&mut self, bytes: &[u8], entry: &[u8]) -> Option<()> {
        if u32_at(entry, 0)? & ARCHITECTURE_MASK != X86_64 {
            return None;
        }
        let name = string_at(bytes, u32_at(entry, 4)?.into())?;
        let path = PathBuf::from(OsStr::from_bytes(string_at(bytes, u32_at(entry, 8)?.into())?));
        let hardware = u64::from(u32_at(entry, 20)?) << 32 | u64::from(u32_at(entry, 16)?);
        let rank = hardware::rank(&path)?;
        if hardware != 0 && hardware & HARDWARE_EXTENSION == 0 {
            return None;
        }
        let best = self.by_name.entry(name.to_vec()).or_insert((rank, self.paths.len()));
        if best.0 < rank {
            *best = (rank, self.paths.len());
        }
        self.paths.push(path);
        Some(())
    }

    pub(super) fn find(&self, name: &str) -> Option<&PathBuf> {
        self.by_name.get(name.as_bytes()).map(|&(_, index)| &self.paths[index])
    }

    pub(super) fn paths(&self) -> &[PathBuf] {
        &self.paths
    }
}

fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    bytes.get(offset..)?.first_chunk().copied().map(u32::from_le_bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    /// A cache with these entries: flags, hardware word, name, path.
    fn cache(entries: &[(u32, u64, &str, &str)]) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend((entries.len() as u32).to_le_bytes());
        bytes.resize(HEADER_SIZE, 0);
        let mut strings = Vec::new();
        let strings_start = HEADER_SIZE + entries.len() * ENTRY_SIZE;
        for (flags, hardware, name, path) in entries {
            bytes.extend(flags.to_le_bytes());
            for text in [name, path] {
                bytes.extend(((strings_start + strings.len()) as u32).to_le_bytes());
                strings.extend(text.bytes().chain([0]));
            }
            bytes.extend([0; 4]);
            bytes.extend(hardware.to_le_bytes());
        }
        bytes.extend(strings);
        bytes
    }

    #[test]
    fn entries_for_this_machine_are_kept() {
        let bytes = cache(&[
            (0x303, 0, "liba.so.1", "/lib/liba.so.1"),
            (0x303, HARDWARE_EXTENSION, "liba.so.1", "/lib/glibc-hwcaps/x86-64-v99/liba.so.1"),
            (0x303, 1 << 20, "liba.so.1", "/lib/legacy/liba.so.1"),
            (0x003, 0, "liba.so.1", "/lib32/liba.so.1"),
            (0x303, 0, "libb.so", "/lib/libb.so"),
        ]);
        let old_header = [b"ld.so-1.7.0\0".as_slice(), &[0; 4], &bytes].concat();
        for bytes in [bytes.clone(), old_header] {
            let cache = Cache::parse(&bytes);
            assert_eq!(cache.paths(), ["/lib/liba.so.1", "/lib/libb.so"].map(PathBuf::from));
            assert_eq!(cache.find("liba.so.1"), Some(&PathBuf::from("/lib/liba.so.1")));
            assert_eq!(cache.find("libc.so"), None);
        }
        for length in 0..bytes.len() {
            assert!(Cache::parse(&bytes[..length]).paths().len() <= 2);
        }
    }

    #[test]
    fn the_cache_of_this_machine() {
        if !std::path::Path::new(PATH).exists() {
            eprintln!("skipped: there is no {PATH}");
            return;
        }
        let cache = Cache::of_system();
        assert!(cache.find("libc.so.6").is_some_and(|path| path.exists()), "{cache:?}");
    }
}
