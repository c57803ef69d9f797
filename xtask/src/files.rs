//! Files and folders: those of the workspace, and those that tasks read and make.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::process;

/// The text of a file.
///
/// # Errors
/// It cannot be read, or is not UTF-8.
pub fn read(file: &Path) -> Result<String> {
    fs::read_to_string(file).with_context(|| format!("failed to read `{}`", file.display()))
}

/// Writes a file, and its folders.
///
/// # Errors
/// They cannot be written.
pub fn write(file: &Path, content: impl AsRef<[u8]>) -> Result<()> {
    folder(file.parent().unwrap_or(Path::new("/")).to_owned())?;
    fs::write(file, content).with_context(|| format!("failed to write `{}`", file.display()))
}

/// A folder of that path, which is made if it is not there.
///
/// # Errors
/// It cannot be made.
pub fn folder(folder: PathBuf) -> Result<PathBuf> {
    fs::create_dir_all(&folder).with_context(|| format!("failed to create `{}`", folder.display()))?;
    Ok(folder)
}

/// A path without whatever was there.
///
/// # Errors
/// It cannot be removed.
pub fn removed(path: PathBuf) -> Result<PathBuf> {
    match fs::remove_dir_all(&path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("failed to remove `{}`", path.display()))
        }
        _ => Ok(path),
    }
}

/// An empty folder of that path.
///
/// # Errors
/// It cannot be emptied, or made.
pub fn emptied(path: PathBuf) -> Result<PathBuf> {
    removed(path).and_then(folder)
}

/// All files of the workspace that Git knows or would take in, with those of these extensions only.
///
/// # Errors
/// Git cannot tell.
pub fn all(extensions: &[&str]) -> Result<Vec<PathBuf>> {
    let mut git = Command::new("git");
    git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).current_dir(crate::root());
    let listed = process::output(&mut git)?;
    let paths = listed.split_terminator('\0').map(|path| crate::root().join(path));
    Ok(paths.filter(|path| has_extension(path, extensions) && path.exists()).collect())
}

/// Whether a file has one of these extensions.
pub fn has_extension(path: &Path, extensions: &[&str]) -> bool {
    path.extension().is_some_and(|found| extensions.iter().any(|&extension| found == extension))
}
