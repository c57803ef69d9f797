//! The files of the workspace.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

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
