//! A return site that was placed.

use rtrace_bpf::{FilePlace, Since};
use rtrace_code::arrival::ReturnSite;
use rtrace_code::instruction::SiteCost;

use super::FileId;

/// A return site that was placed.
#[derive(Clone, Copy, Debug)]
pub struct Placed {
    pub file: FileId,
    /// Offset of the return address in the file, in bytes.
    pub offset: u64,
    pub pid: u32,
    pub site: ReturnSite,
    pub is_fixed: bool,
    /// The address and its space, where the kernel side has met it.
    pub met: Option<(u32, u64)>,
    /// When it came, where there had been one that was taken out.
    pub since: Option<Since>,
}

impl Placed {
    pub fn key(&self) -> (u32, FileId, u64) {
        (self.pid, self.file, self.offset)
    }

    pub fn is_stepped(&self) -> bool {
        self.site.cost == SiteCost::SingleStep
    }

    /// Its return address.
    pub fn place(&self) -> FilePlace {
        let (device, inode) = self.file;
        FilePlace { device, inode, offset: self.offset, pid: self.pid }
    }
}
