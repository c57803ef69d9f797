//! Which file a process maps at an address.

use std::path::PathBuf;

use rtrace_bpf::FilePlace;
use rtrace_symbolizer::modules;

use crate::address_spaces::AddressSpaces;

use super::FileId;
use super::jumps::{self, Candidate};

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
}

impl Spaces {
    /// None looked at yet.
    pub fn new(known: AddressSpaces) -> Spaces {
        Spaces { known, met: Vec::new() }
    }

    /// See [`AddressSpaces::may_have_changed`].
    pub fn may_have_changed(&mut self) {
        self.known.may_have_changed();
    }

    /// See [`AddressSpaces::tell`].
    pub fn tell(&mut self, space: u32, address: u64, place: FilePlace) {
        self.known.tell(space, address, place);
    }

    /// The file at an address; none where there is none, or the process has ended.
    pub fn find(&mut self, pid: u32, space: u32, address: u64) -> Option<Place> {
        let met = &mut self.met;
        let (module, offset) =
            self.known.find(pid, space, address, |modules| met.push((pid, jumps::among_modules(modules))))?;
        Some(Place { file: (module.device, module.inode), path: module.open_path(), offset })
    }

    /// The files by which control may leave functions, in each process that was looked at since the last call.
    pub fn take_met(&mut self) -> Vec<(u32, Vec<Candidate>)> {
        std::mem::take(&mut self.met)
    }

    /// Where a process maps a place in a file, each address with its space.
    pub fn addresses(&self, pid: u32, space: Option<u32>, file: FileId, offset: u64) -> Vec<(u32, u64)> {
        let (Some(space), Ok(modules)) = (space, modules::of_process(pid)) else { return Vec::new() };
        let of_file = modules.iter().filter(|module| (module.device, module.inode) == file);
        let mappings = of_file.flat_map(|module| &module.mappings).filter(|mapping| mapping.executable);
        mappings.filter_map(|mapping| Some((space, mapping.address_of(offset)?))).collect()
    }
}
