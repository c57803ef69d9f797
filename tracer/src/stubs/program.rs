//! Whether the dynamic linker of a command would take an audit library.
//!
//! If it would not, probes are where they always are: nothing is missed, only dearer. To know it
//! before means that no variable is set in vain.

use std::ffi::{CString, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rtrace_symbolizer::{Image, linker};

/// What glibc's dynamic linker exports since the release (2.35) in which audit libraries are told of
/// all calls, and cost nothing where they do not ask to see each.
const SIGN_OF_AUDITING: &str = "__rseq_size";

/// Why a command can have no stubs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Obstacle {
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
    /// A launcher stands between, which passes on the environment.
    #[error("`{launcher}` starts `{program}`, and the variable ends with the first program; --stubs=children keeps it")]
    Launched {
        /// The program that runs first.
        launcher: String,
        /// The one that it starts.
        program: String,
    },
}

/// Whether a command can have stubs; `children`: programs that it runs have them, too.
///
/// # Errors
/// Why it cannot.
pub fn check(command: &[OsString], children: bool) -> Result<(), Obstacle> {
    let name = command.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
    let path = std::env::var_os("PATH");
    let chain = linker::resolve_command(&name, path.as_deref()).map_err(|_| Obstacle::Unreadable(name.clone()))?;
    let programs: Vec<(PathBuf, Image)> =
        chain.into_iter().filter_map(|path| Image::open(&path).ok().map(|image| (path, image))).collect();
    match programs.as_slice() {
        [] => return Err(Obstacle::Unreadable(name)),
        [(launcher, _), .., (program, _)] if !children => {
            return Err(Obstacle::Launched { launcher: text(launcher), program: text(program) });
        }
        _ => {}
    }
    programs.iter().try_for_each(|(path, image)| check_program(path, image))
}

fn check_program(path: &Path, image: &Image) -> Result<(), Obstacle> {
    let Some(interpreter) = image.interpreter() else { return Err(Obstacle::Static(text(path))) };
    let audits = Image::open(Path::new(interpreter)).is_ok_and(|linker| linker.defines(SIGN_OF_AUDITING));
    if !audits {
        return Err(Obstacle::Linker { program: text(path), interpreter: interpreter.to_owned() });
    }
    if gains_rights(path) { Err(Obstacle::Privileged(text(path))) } else { Ok(()) }
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
