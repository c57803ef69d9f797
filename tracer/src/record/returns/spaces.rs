//! Which file a process maps at an address.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use foldhash::{HashMap, HashMapExt as _};
use rtrace_bpf::FilePlace;
use rtrace_bpf::wire::QuestionRecord;
use rtrace_model::Timestamp;
use rtrace_symbolizer::modules;

use crate::record::jump_candidates::{self, Candidate};
use crate::target::address_spaces::AddressSpaces;
use crate::target::presence::ProcessCode;

use super::FileId;

/// An address as a place in a file.
pub(super) struct Place {
    pub file: FileId,
    /// A path by which rtrace can open the file.
    pub path: PathBuf,
    /// In the file, in bytes.
    pub offset: u64,
}

/// What processes map.
pub(super) struct Spaces {
    known: AddressSpaces,
    /// Files by which control may leave functions, in the processes that were looked at.
    met: Vec<(u32, Vec<Candidate>)>,
    /// Files by the numbers of the kernel side, where the list of mappings has others.
    same: HashMap<FileId, FileId>,
}

impl Spaces {
    /// None looked at yet.
    pub fn new(known: AddressSpaces) -> Spaces {
        Spaces { known, met: Vec::new(), same: HashMap::new() }
    }

    /// See [`AddressSpaces::may_have_changed`].
    pub fn may_have_changed(&mut self) {
        self.known.may_have_changed();
    }

    /// The file at an address that the kernel side has met; none where there is none, or nobody reaches it any more. The
    /// process may have mapped something else there since.
    pub fn find(&mut self, question: &QuestionRecord) -> Option<Place> {
        let QuestionRecord { pid, space, address, time, .. } = *question;
        let found = self.find_now(pid, space, address);
        let Some(FilePlace { device, inode, offset, .. }) = FilePlace::of(&question.place) else { return found };
        let file = (device, inode);
        if let Some(place) = found.filter(|place| place.offset == offset && self.is_same(file, place.file)) {
            return Some(place);
        }
        self.known.forget(space);
        match self.find_now(pid, space, address).filter(|place| place.offset == offset) {
            Some(place) if place.file == file => Some(place),
            // Some file systems have other devices in the list of mappings. On one device it is another file.
            Some(place) if place.file.0 != device => {
                self.same.insert(file, place.file);
                Some(place)
            }
            _ => {
                let (piece, _) = self.known.history().at(pid, address, Timestamp(time))?;
                let metadata = fs::metadata(&piece.path).ok()?;
                let path = piece.path.to_path_buf();
                ((metadata.dev(), metadata.ino()) == file).then_some(Place { file, path, offset })
            }
        }
    }

    fn is_same(&self, met: FileId, found: FileId) -> bool {
        met == found || self.same.get(&met) == Some(&found)
    }

    fn find_now(&mut self, pid: u32, space: u32, address: u64) -> Option<Place> {
        let met = &mut self.met;
        let (module, offset) =
            self.known.find(pid, space, address, |modules| met.push((pid, jump_candidates::among_modules(modules))))?;
        Some(Place { file: (module.device, module.inode), path: module.open_path(), offset })
    }

    /// The code of a process with the files that its space was seen to map.
    pub fn process(&self, pid: u32, space: u32) -> Option<ProcessCode> {
        ProcessCode::with(pid, self.known.files(space)?)
    }

    /// See [`AddressSpaces::inherit`].
    pub fn inherit(&mut self, pid: u32, space: u32, parent: u32) {
        self.known.inherit(pid, space, parent);
    }

    /// The files that a space was seen to map.
    pub fn files(&self, space: u32) -> Vec<FileId> {
        let files = self.known.files(space);
        files.iter().flat_map(|files| files.iter()).map(|module| (module.device, module.inode)).collect()
    }

    /// The files by which control may leave functions, in each process that was looked at since the last call.
    pub fn take_met(&mut self) -> Vec<(u32, Vec<Candidate>)> {
        std::mem::take(&mut self.met)
    }

    /// Where a process maps a place in a file, each address with its space.
    pub fn addresses(&self, pid: u32, space: Option<u32>, file: FileId, offset: u64) -> Vec<(u32, u64)> {
        let Some(space) = space else { return Vec::new() };
        let known = self.known.files(space).unwrap_or_default();
        let Ok(modules) = modules::of_process_again(pid, &known) else { return Vec::new() };
        let of_file = modules.iter().filter(|module| (module.device, module.inode) == file);
        let mappings = of_file.flat_map(|module| &module.mappings).filter(|mapping| mapping.executable);
        mappings.filter_map(|mapping| Some((space, mapping.address_of(offset)?))).collect()
    }
}
