//! A return site that was placed.

use rtrace_bpf::{FilePlace, Since};
use rtrace_code::arrival::ReturnProbe;
use rtrace_code::instruction::SiteCost;

use super::{FileId, Key};
use crate::target::code::Spot;

/// A return site that was placed.
#[derive(Clone, Debug)]
pub struct Placed {
    pub file: FileId,
    /// Offset of the return address in the file, in bytes.
    pub offset: u64,
    pub pid: u32,
    pub site: ReturnProbe,
    pub is_fixed: bool,
    /// Its caller only returns: it is there until the caller's own site is, and not known to the kernel side.
    pub is_interim: bool,
    /// Its addresses, each with its space, of which the kernel side has asked; none where it was told of the place in
    /// the file before it met any.
    pub met: Vec<(u32, u64)>,
    /// When it was last taken out, if it ever was.
    pub since: Option<Since>,
}

impl Placed {
    pub fn key(&self) -> Key {
        (self.pid, self.file, self.offset)
    }

    pub fn is_stepped(&self) -> bool {
        self.site.cost == SiteCost::SingleStep
    }

    /// Its probe, with what returns pass in front of it.
    pub fn spot(&self) -> Spot {
        Spot { entry: self.offset, site: self.offset + u64::from(self.site.distance) }
    }

    /// Its return address.
    pub fn place(&self) -> FilePlace {
        place_of(self.key())
    }
}

/// The return address of this key.
pub fn place_of((pid, (device, inode), offset): Key) -> FilePlace {
    FilePlace { device, inode, offset, pid }
}
