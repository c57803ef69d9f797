//! Files and folders: those of the workspace, and those that tasks read and make.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

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

/// All files below a folder that are wanted, without those of builds and of Git.
pub fn collect(folder: &Path, files: &mut Vec<PathBuf>, is_wanted: &dyn Fn(&Path) -> bool) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("failed to list `{}`", folder.display()))?;
    for entry in entries {
        let path = entry.with_context(|| format!("failed to list `{}`", folder.display()))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() {
            // Cargo marks what it builds.
            let is_built = path.join("CACHEDIR.TAG").exists();
            if !is_built && name != ".git" && !name.ends_with(".rtrace") {
                collect(&path, files, is_wanted)?;
            }
        } else if is_wanted(&path) {
            files.push(path);
        }
    }
    Ok(())
}

/// Whether a file has one of these extensions.
pub fn has_extension(path: &Path, extensions: &[&str]) -> bool {
    path.extension().is_some_and(|found| extensions.iter().any(|&extension| found == extension))
}
