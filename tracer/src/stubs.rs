//! Stubs: a cheap way into functions that must be single-stepped, in programs that rtrace starts.
//!
//! The command gets an audit library (`LD_AUDIT`) by which the dynamic linker binds calls of these
//! functions to stubs; what a stub is, and why each call still meets one probe and no other, is told
//! in [`plan::stub`](crate::plan::stub). So nothing depends on whether a process has stubs: one whose
//! dynamic linker takes no audit library, or which calls by other ways, pays the full price and is on
//! record all the same.
//!
//! The file is a real one while it is used, since probes sit in files. It lies in a folder of its own
//! that every user can read, and goes with it.

mod audit;
mod elf;
mod program;

use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rtrace_model::RegionId;
use rustix::mm::{MapFlags, ProtFlags};

use self::elf::Library;
pub use self::program::{Obstacle, check};
use crate::plan::{Plan, PlannedRegion};

/// The variable that names audit libraries.
const VARIABLE: &str = "LD_AUDIT";
const FILE_NAME: &str = "rtrace-stubs.so";

/// What stubs reach beyond the calls that the dynamic linker binds. The program can notice it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    /// What `dlsym` finds is a stub: another address than that of the function.
    pub dlsym: bool,
}

/// An audit library on disk. Dropping it removes it.
#[derive(Debug)]
pub struct Stubs {
    folder: PathBuf,
    /// By region, sorted: the offset of its stub in bytes.
    offsets: Vec<(RegionId, u64)>,
}

impl Stubs {
    /// Writes the stubs of a plan; `None` where it has none.
    ///
    /// # Errors
    /// No folder takes a file that programs can be made of.
    pub fn write(plan: &Plan, reach: Reach) -> io::Result<Option<Stubs>> {
        let mut regions = Vec::new();
        let mut libraries = Vec::new();
        for library in &plan.libraries {
            let stubs = library.regions.iter().filter_map(PlannedRegion::stub).collect();
            libraries.push(Library { device: library.library.device, inode: library.library.inode, stubs });
            let with_stub = library.regions.iter().filter(|planned| planned.stub().is_some());
            regions.extend(with_stub.map(|planned| planned.region.id));
        }
        if regions.is_empty() {
            return Ok(None);
        }
        let flags = if reach.dlsym { audit::DLSYM } else { 0 };
        let own = own_libraries().map_or(0, |value| (VARIABLE.len() + 1 + value.len()) as u64);
        let file = elf::write(&libraries, flags, own);
        let mut offsets: Vec<(RegionId, u64)> = regions.into_iter().zip(file.offsets.into_iter().flatten()).collect();
        offsets.sort_unstable();
        Ok(Some(Stubs { folder: place(&file.bytes)?, offsets }))
    }

    /// The file.
    pub fn path(&self) -> PathBuf {
        self.folder.join(FILE_NAME)
    }

    /// Where in the file the stub of a region is, in bytes.
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

impl Drop for Stubs {
    fn drop(&mut self) {
        // What is left then is a small file in a folder for such.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The audit libraries that the user has named.
fn own_libraries() -> Option<OsString> {
    std::env::var_os(VARIABLE).filter(|value| !value.is_empty())
}

/// Puts the file into the first folder in which it can be executed; returns a folder of its own.
fn place(bytes: &[u8]) -> io::Result<PathBuf> {
    let mut refusal = io::Error::from(io::ErrorKind::NotFound);
    for parent in [std::env::temp_dir(), "/tmp".into(), "/var/tmp".into(), "/dev/shm".into()] {
        match place_in(&parent, bytes) {
            Ok(folder) => return Ok(folder),
            Err(error) => refusal = error,
        }
    }
    Err(refusal)
}

fn place_in(parent: &Path, bytes: &[u8]) -> io::Result<PathBuf> {
    let parent = parent.canonicalize()?;
    if !is_plain(parent.as_os_str()) || !is_open_to_all(&parent)? {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let folder = new_folder(&parent)?;
    let written = write_file(&folder.join(FILE_NAME), bytes);
    if let Err(error) = written {
        let _ = fs::remove_dir_all(&folder);
        return Err(error);
    }
    Ok(folder)
}

/// Whether the dynamic linker takes the path for one name of a list.
fn is_plain(path: &OsStr) -> bool {
    !path.as_bytes().contains(&b':')
}

/// Whether every user may go through a folder and all that it lies in.
fn is_open_to_all(folder: &Path) -> io::Result<bool> {
    for ancestor in folder.ancestors() {
        if fs::metadata(ancestor)?.permissions().mode() & 0o001 == 0 {
            return Ok(false);
        }
    }
    Ok(true)
}

/// A folder that nobody else has made, and nobody else may write to.
fn new_folder(parent: &Path) -> io::Result<PathBuf> {
    let mut template = parent.join("rtrace-XXXXXX").into_os_string().into_vec();
    template.push(0);
    // SAFETY: the template ends in NUL and is ours to be changed.
    if unsafe { libc::mkdtemp(template.as_mut_ptr().cast()) }.is_null() {
        return Err(io::Error::last_os_error());
    }
    template.pop();
    let folder = PathBuf::from(OsString::from_vec(template));
    fs::set_permissions(&folder, Permissions::from_mode(0o755))?;
    Ok(folder)
}

/// Writes the file, and tries whether it can be executed where it is.
fn write_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    fs::write(path, bytes)?;
    fs::set_permissions(path, Permissions::from_mode(0o644))?;
    let file = File::open(path)?;
    let (access, flags) = (ProtFlags::READ | ProtFlags::EXEC, MapFlags::PRIVATE);
    // SAFETY: a new mapping at a place that the kernel chooses, which nobody uses.
    unsafe {
        let mapped = rustix::mm::mmap(std::ptr::null_mut(), bytes.len(), access, flags, &file, 0)?;
        rustix::mm::munmap(mapped, bytes.len())?;
    }
    Ok(())
}
