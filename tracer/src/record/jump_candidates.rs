//! Files that may have functions by which control leaves others without a return.

use std::path::PathBuf;

use rtrace_symbolizer::address_space::FileId;
use rtrace_symbolizer::modules::Module;

use crate::target;

/// A file that may have such functions.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Device and inode.
    pub id: FileId,
    /// As the process sees it.
    pub name: PathBuf,
    /// By which it can be opened now.
    pub path: PathBuf,
}

/// Those among what a process maps.
pub fn among_modules<'m>(modules: impl IntoIterator<Item = &'m Module>) -> Vec<Candidate> {
    let candidate = |module: &Module| Candidate {
        id: (module.device, module.inode),
        name: module.path.clone(),
        path: module.open_path(),
    };
    modules.into_iter().map(candidate).collect()
}

/// Those among the files that a program will load.
pub fn among_files(files: &[PathBuf]) -> Vec<Candidate> {
    let candidate = |path: &PathBuf| {
        let id = target::identity(path).ok()?;
        Some(Candidate { id, name: path.clone(), path: path.clone() })
    };
    files.iter().filter_map(candidate).collect()
}
