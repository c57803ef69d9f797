//! The code of callers around return addresses.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use rtrace_symbolizer::Image;

use super::FileId;
use super::catching::Catching;
use crate::plan::Emulation;
use crate::plan::arrival::{self, Arrival, ReturnSite};

/// Bytes that are read in front of a return address, and from there on.
const BEFORE: usize = 16;
const BEHIND: usize = 128;

/// A file with callers.
struct Caller {
    file: File,
    /// Which functions may get control back without a return; none where it cannot be told.
    catching: OnceCell<Option<Catching>>,
}

/// Files with callers.
pub(super) struct Callers {
    emulation: Emulation,
    keeps_accesses: bool,
    /// None for one that cannot be opened.
    files: HashMap<FileId, Option<Caller>>,
}

impl Callers {
    /// None yet. `emulation`: what the kernel does without a single step; `keeps_accesses`: whether accesses
    /// to memory are counted.
    pub fn new(emulation: Emulation, keeps_accesses: bool) -> Callers {
        Callers { emulation, keeps_accesses, files: HashMap::new() }
    }

    /// Makes a file known, which can be reached by this path now.
    pub fn add(&mut self, id: FileId, path: &Path) {
        let open = || Some(Caller { file: File::open(path).ok()?, catching: OnceCell::new() });
        self.files.entry(id).or_insert_with(open);
    }

    /// A path by which the file can be reached as long as rtrace runs, whatever becomes of its name.
    pub fn path(&self, id: FileId) -> Option<PathBuf> {
        let file = &self.files.get(&id)?.as_ref()?.file;
        Some(PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd())))
    }

    /// Where calls that return to this offset of a file are seen to have returned.
    pub fn arrival(&self, id: FileId, offset: u64) -> Arrival {
        let Some(code) = self.code(id, offset) else { return Arrival::Impossible };
        match arrival::arrival(&code, &self.emulation, self.keeps_accesses) {
            Arrival::Skip { .. } if self.catches(id, offset) => {
                arrival::at_return_address(&code, &self.emulation).map_or(Arrival::Impossible, Arrival::Site)
            }
            arrival => arrival,
        }
    }

    /// Whether the function at this offset of a file may get control back without a return.
    pub fn catches(&self, id: FileId, offset: u64) -> bool {
        self.catching(id).is_none_or(|catching| catching.contains(offset))
    }

    /// The return addresses in the function at this offset of a file to which control may come twice.
    pub fn returns_twice(&self, id: FileId, offset: u64) -> &[u64] {
        self.catching(id).map_or(&[], |catching| catching.returns_twice(offset))
    }

    fn catching(&self, id: FileId) -> Option<&Catching> {
        let path = self.path(id)?;
        let catching = &self.files.get(&id)?.as_ref()?.catching;
        catching.get_or_init(|| Some(Catching::of(&Image::open(&path).ok()?))).as_ref()
    }

    /// The site at the return address itself.
    pub fn at_return_address(&self, id: FileId, offset: u64) -> Option<ReturnSite> {
        arrival::at_return_address(&self.code(id, offset)?, &self.emulation)
    }

    /// The code from an offset of a file on, if an instruction certainly begins there: behind a call, or where
    /// a function begins, or is entered by a return. A probe anywhere else would change what the program does.
    fn code(&self, id: FileId, offset: u64) -> Option<Vec<u8>> {
        let file = &self.files.get(&id)?.as_ref()?.file;
        let mut bytes = [0; BEFORE + BEHIND];
        let before = BEFORE.min(usize::try_from(offset).unwrap_or(usize::MAX));
        let length = file.read_at(&mut bytes, offset - before as u64).ok().filter(|&length| length > before)?;
        let begins = arrival::is_return_address(&bytes[..before])
            || self.catching(id).is_some_and(|catching| catching.begins(offset));
        begins.then(|| bytes[before..length].to_vec())
    }
}
