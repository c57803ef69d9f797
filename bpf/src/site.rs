//! What is probed, in terms of the kernel.

use std::path::Path;

/// What a site is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A function that is called: one that is traced, or by which control leaves others without a return
    /// ([`Jump`](rtrace_model::Jump)). The cookie says which.
    Enter,
    /// A place at which returns arrive.
    Return,
}

/// Where to place probes by one link.
#[derive(Clone, Copy, Debug)]
pub struct AttachTarget<'a> {
    /// The file, by a path that rtrace can open.
    pub path: &'a Path,
    /// The process to place probes in; others that map the file have none.
    pub pid: u32,
}

/// One instruction to probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// Offset of the instruction in the file, in bytes.
    pub file_offset: u64,
    /// Attach cookie, see [`entry_cookie`](crate::wire::entry_cookie).
    pub cookie: u64,
    /// Offset in the file, in bytes, of a counter of 16 bits that the kernel keeps one higher as long as the probe is there;
    /// 0: there is none.
    pub semaphore: u64,
}

impl Site {
    /// One without a counter.
    pub fn new(file_offset: u64, cookie: u64) -> Site {
        Site { file_offset, cookie, semaphore: 0 }
    }
}
