//! Stubs: a cheap way into functions that must be single-stepped, in programs that rtrace starts.
//!
//! The command gets an audit library (`LD_AUDIT`) by which the dynamic linker binds calls of these
//! functions to stubs; what a stub is, and why each call still meets one probe and no other, is told
//! in [`code::stub`](rtrace_code::stub). So nothing depends on whether a process has stubs: one whose
//! dynamic linker takes no audit library, or which calls by other ways, pays the full price and is on
//! record all the same.
//!
//! Probes sit in files, so the library is one, but without a name: it lies in memory, and goes with
//! the last process that has it, however rtrace ends. The command inherits its descriptor, by which the
//! dynamic linker finds it, and which it closes before anything of the program is loaded.

mod audit;
mod elf;
mod program;

use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use rtrace_model::RegionId;
use rtrace_plan::{Plan, PlannedRegion};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

use self::elf::{AuditState, StubLibrary};
pub use self::program::{StubObstacle, check};

/// The variable that names audit libraries.
const VARIABLE: &str = "LD_AUDIT";
/// What the library is called among the mappings of a process.
const NAME: &str = "rtrace-stubs.so";

/// Why a command has no stubs, though they are wanted.
#[derive(Debug, thiserror::Error)]
pub enum NoStubs {
    /// It can have none.
    #[error("stubs unavailable, so some functions stay expensive to trace: {0}")]
    Obstacle(#[from] StubObstacle),
    /// There is nothing to write.
    #[error("stubs unavailable: no function needs a stub, or none can have one")]
    NoFunction,
    /// They cannot be written.
    #[error("stubs unavailable: failed to create an executable file in memory: {0}")]
    File(#[from] io::Error),
}

/// An audit library in a file.
#[derive(Debug)]
pub struct Stubs {
    file: File,
    /// By region, sorted: the offset of its stub's site in bytes.
    offsets: Vec<(RegionId, u64)>,
}

impl Stubs {
    /// Writes the stubs of a plan; `None` where it has none.
    ///
    /// # Errors
    /// The system gives no file in memory that can be executed.
    pub fn write(plan: &Plan) -> io::Result<Option<Stubs>> {
        let mut regions = Vec::new();
        let mut libraries = Vec::new();
        for library in &plan.libraries {
            let stubs = library.regions.iter().filter_map(PlannedRegion::stub).collect();
            libraries.push(StubLibrary { device: library.library.device, inode: library.library.inode, stubs });
            let with_stub = library.regions.iter().filter(|planned| planned.stub().is_some());
            regions.extend(with_stub.map(|planned| planned.region.id));
        }
        if regions.is_empty() {
            return Ok(None);
        }
        let own = own_libraries().map_or(0, |value| (VARIABLE.len() + 1 + value.len()) as u64);
        let file = File::from(rustix::fs::memfd_create(NAME, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?);
        let library = elf::write(&libraries, &AuditState { own, descriptor: file.as_raw_fd() });
        fill(&file, &library.bytes)?;
        let mut offsets: Vec<(RegionId, u64)> = regions.into_iter().zip(library.sites.into_iter().flatten()).collect();
        offsets.sort_unstable();
        Ok(Some(Stubs { file, offsets }))
    }

    /// The file, by a path that holds in this process, and in one that inherits [the
    /// descriptor](Stubs::descriptor).
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
    }

    /// Device and inode of the file.
    ///
    /// # Errors
    /// The system does not tell them.
    pub fn identity(&self) -> io::Result<(u64, u64)> {
        let metadata = self.file.metadata()?;
        Ok((metadata.dev(), metadata.ino()))
    }

    /// What the command has to inherit.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Where in the file the site of a region's stub is, in bytes.
    pub fn offset(&self, region: RegionId) -> Option<u64> {
        let index = self.offsets.binary_search_by_key(&region, |&(id, _)| id).ok()?;
        Some(self.offsets[index].1)
    }

    /// How many functions have a stub.
    pub fn count(&self) -> usize {
        self.offsets.len()
    }

    /// The environment of the command: our own in its order, and the library behind those that the
    /// user has named.
    pub fn environment(&self) -> Vec<CString> {
        let mut value = own_libraries().unwrap_or_default();
        if !value.is_empty() {
            value.push(":");
        }
        value.push(self.path());
        let mut variables: Vec<(OsString, OsString)> = std::env::vars_os().collect();
        match variables.iter_mut().find(|(name, _)| name == VARIABLE) {
            Some(variable) => variable.1 = value,
            None => variables.push((VARIABLE.into(), value)),
        }
        let joined = |(name, value): (OsString, OsString)| [name.as_bytes(), b"=", value.as_bytes()].concat();
        variables.into_iter().filter_map(|variable| CString::new(joined(variable)).ok()).collect()
    }
}

/// The audit libraries that the user has named.
fn own_libraries() -> Option<OsString> {
    std::env::var_os(VARIABLE).filter(|value| !value.is_empty())
}

/// Gives the file its content for good, and tries whether it can be executed.
fn fill(mut file: &File, bytes: &[u8]) -> io::Result<()> {
    file.write_all(bytes)?;
    rustix::fs::fcntl_add_seals(file, SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
    let (access, flags) = (ProtFlags::READ | ProtFlags::EXEC, MapFlags::PRIVATE);
    // SAFETY: a new mapping at a place that the kernel chooses, which nobody uses.
    unsafe {
        let mapped = rustix::mm::mmap(std::ptr::null_mut(), bytes.len(), access, flags, file, 0)?;
        rustix::mm::munmap(mapped, bytes.len())?;
    }
    Ok(())
}
