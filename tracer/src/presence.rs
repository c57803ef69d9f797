//! Whether probes are in the memory of the processes that they were placed in.
//!
//! The kernel places a probe in a file, and writes a breakpoint where a process maps that file. It does not say where
//! it wrote none: the process may map another file than the one that its path leads to now, or the program may have
//! written over the breakpoint, or a jump in front of it. Calls there are not recorded.

use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use rtrace_model::escape;
use rtrace_symbolizer::modules::{self, Module};

use crate::altered::{Code, Spot};

/// Probes of a process that should have some in a file, but has none.
#[derive(Debug, thiserror::Error)]
#[error(
    "process {pid} maps another file than its path `{}` leads to now, and no probe is in the process",
    escape(&.path.display().to_string())
)]
pub struct Absent {
    path: PathBuf,
    pid: u32,
}

impl Absent {
    /// What the user can do about it.
    pub fn hint(&self) -> &'static str {
        "on an overlay file system, chmod, chown and touch make such a copy: restart the process"
    }
}

/// The code of a process with the files that it maps.
pub struct Process {
    pid: u32,
    modules: Vec<Module>,
    code: Code,
}

/// What has become of the probes of a file in a process.
pub struct Presence {
    /// The file as the process sees it.
    pub path: PathBuf,
    /// The process.
    pub pid: u32,
    /// Probes that are in place.
    present: usize,
    /// File offsets of those that are not, in bytes, or that nothing comes to, though the process maps that code.
    pub absent: Vec<u64>,
}

impl Process {
    /// `None` where it cannot be looked at: it ends.
    pub fn of(pid: u32) -> Option<Process> {
        // In this order: of a process that executes another program meanwhile, the memory is out of reach then.
        let code = Code::of(pid).ok()?;
        Some(Process { pid, modules: modules::of_process(pid).ok()?, code })
    }

    /// What has become of these probes of a file; `None` where the process does not map it.
    pub fn presence(&self, file: &File, mut spots: Vec<Spot>) -> Option<Presence> {
        let metadata = file.metadata().ok()?;
        let is_it = |module: &&Module| (module.device, module.inode) == (metadata.dev(), metadata.ino());
        let module = self.modules.iter().find(is_it)?;
        spots.sort_unstable_by_key(|spot| spot.site);
        let (mut present, mut absent) = (0, Vec::new());
        for mapping in module.mappings.iter().filter(|mapping| mapping.executable) {
            let (there, gone) = self.code.reached(mapping, file, &spots);
            present += there;
            absent.extend(gone);
        }
        absent.sort_unstable();
        absent.dedup();
        Some(Presence { path: module.path.clone(), pid: self.pid, present, absent })
    }
}

impl Presence {
    /// Refuses a file that has no probe at all in the process.
    ///
    /// # Errors
    /// It has none.
    pub fn check(self) -> Result<(), Absent> {
        match (self.present, self.absent.as_slice()) {
            (0, [_, ..]) => Err(Absent { path: self.path, pid: self.pid }),
            _ => Ok(()),
        }
    }
}
