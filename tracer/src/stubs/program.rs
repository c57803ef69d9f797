//! Whether the dynamic linker of a command would accept an audit library.
//!
//! If it would not, the command has no stubs: every call is recorded, at a higher cost. rtrace finds this out
//! beforehand, so it sets no variable without effect.
//!
//! With an audit library, glibc sets up thread storage before it loads the libraries of the program. What libraries
//! need of it then comes out of a small reserve, or is allocated at first use. A program that starts without an audit
//! library may not start with one. Such programs get none, and neither do programs that the command runs, because
//! nothing is known of them.

use std::ffi::{CString, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rtrace_symbolizer::{Image, linker};

use crate::target;

/// What glibc's dynamic linker exports since the release (2.35) in which audit libraries are told of
/// all calls, and cost nothing where they do not ask to see each.
const SIGN_OF_AUDITING: &str = "__rseq_size";

/// The reserve is of 1,664 bytes, and libraries that are loaded later want some of it, too.
const MOST_FIXED_STORAGE: u64 = 256;

/// Libraries of the system that take part in starting a program; their file names up to `.so`, without a version.
const PROVIDERS: [&str; 9] =
    ["libc", "libpthread", "libdl", "librt", "libgcc_s", "ld", "ld-linux-x86-64", "ld-musl-x86_64", "libc.musl-x86_64"];

/// Why a command can have no stubs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StubObstacle {
    /// The command cannot be looked at.
    #[error("`{0}` cannot be read")]
    Unreadable(String),
    /// There is no dynamic linker.
    #[error("`{0}` is linked statically")]
    Static(String),
    /// It is not glibc's, or an old one.
    #[error("`{program}` is started by `{interpreter}`, which is not glibc 2.35 or newer")]
    Linker {
        /// The program.
        program: String,
        /// Its dynamic linker.
        interpreter: String,
    },
    /// The program gets rights that its caller does not have.
    #[error("`{0}` runs with rights of its own, and the dynamic linker is careful then")]
    Privileged(String),
    /// A library allocates memory, and needs some for that.
    #[error("`{0}` defines `malloc` and has thread storage, which must be allocated when there is an audit library")]
    Allocator(String),
    /// Libraries need more thread storage in a fixed place than is reserved.
    #[error("its libraries need {0} bytes of thread storage in a fixed place, for which there may be no room")]
    ThreadStorage(u64),
    /// A launcher stands between; only the first program has stubs.
    #[error("`{launcher}` starts `{program}`, and only the first program has stubs; name `{program}` as the command")]
    Launched {
        /// The program that runs first.
        launcher: String,
        /// The one that it starts.
        program: String,
    },
}

/// Whether a command can have stubs.
///
/// # Errors
/// Why it cannot.
pub fn check(command: &[OsString]) -> Result<(), StubObstacle> {
    let name = target::name_of(command);
    let path = target::environment().path;
    let chain = linker::resolve_command(target::word_of(command), path.as_deref())
        .map_err(|_| StubObstacle::Unreadable(name.clone()))?;
    let programs: Vec<(PathBuf, Image)> =
        chain.into_iter().filter_map(|path| Image::open(&path).ok().map(|image| (path, image))).collect();
    match programs.as_slice() {
        [] => Err(StubObstacle::Unreadable(name)),
        [(path, image)] => check_program(path, image),
        [(launcher, _), .., (program, _)] => {
            Err(StubObstacle::Launched { launcher: text(launcher), program: text(program) })
        }
    }
}

fn check_program(path: &Path, image: &Image) -> Result<(), StubObstacle> {
    let Some(interpreter) = image.interpreter() else { return Err(StubObstacle::Static(text(path))) };
    let audits = Image::open(Path::new(interpreter)).is_ok_and(|linker| linker.defines(SIGN_OF_AUDITING));
    if !audits {
        return Err(StubObstacle::Linker { program: text(path), interpreter: interpreter.to_owned() });
    }
    if gains_rights(path) {
        return Err(StubObstacle::Privileged(text(path)));
    }
    check_thread_storage(path)
}

/// Looks at the libraries that the program loads at its start; its own thread storage is set up before.
fn check_thread_storage(program: &Path) -> Result<(), StubObstacle> {
    let loaded =
        linker::closure(program, &target::environment()).map_err(|_| StubObstacle::Unreadable(text(program)))?;
    let mut fixed = 0;
    for path in loaded.iter().skip(1) {
        let file_name = path.file_name().unwrap_or_default().to_string_lossy();
        let Ok(image) = Image::open(path) else { continue };
        if is_provider(&file_name) || image.thread_storage() == 0 {
            continue;
        }
        if image.defines("malloc") {
            return Err(StubObstacle::Allocator(text(path)));
        }
        if image.needs_static_storage() {
            fixed += image.thread_storage();
        }
    }
    if fixed > MOST_FIXED_STORAGE { Err(StubObstacle::ThreadStorage(fixed)) } else { Ok(()) }
}

/// Whether this is `libc.so.6`, `libc-2.31.so` or another library that the dynamic linker knows.
fn is_provider(file_name: &str) -> bool {
    let stem = file_name.split(".so").next().unwrap_or(file_name);
    let unversioned = stem.split_once("-2.").map_or(stem, |(name, _)| name);
    PROVIDERS.contains(&unversioned)
}

/// Whether the kernel gives the program rights that its caller does not have.
fn gains_rights(path: &Path) -> bool {
    let Ok(metadata) = std::fs::metadata(path) else { return false };
    let sets = |bit| metadata.mode() & bit != 0;
    let user = sets(libc::S_ISUID) && metadata.uid() != rustix::process::getuid().as_raw();
    let group = sets(libc::S_ISGID) && metadata.gid() != rustix::process::getgid().as_raw();
    user || group || has_capabilities(path) && !rustix::process::getuid().is_root()
}

fn has_capabilities(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: both strings end in NUL; a size of 0 asks for the length alone.
    let length = unsafe { libc::getxattr(path.as_ptr(), c"security.capability".as_ptr(), std::ptr::null_mut(), 0) };
    length > 0
}

fn text(path: &Path) -> String {
    rtrace_model::escape(&path.display().to_string()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn providers_are_told_by_their_whole_name() {
        for name in ["libc.so.6", "libc-2.31.so", "ld-linux-x86-64.so.2", "ld-2.31.so", "libgcc_s.so.1"] {
            assert!(is_provider(name), "{name}");
        }
        for name in ["libcrypto.so.3", "libdleyna.so", "librttopo.so.1", "ldap", "libclang-14.so.1"] {
            assert!(!is_provider(name), "{name}");
        }
    }
}
