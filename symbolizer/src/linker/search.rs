//! Where the dynamic linker looks for a library that a file needs.

use crate::select::path_of;
use rtrace_model::{name_of, text_of_os};
use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt as _};
use std::path::{Path, PathBuf};

use super::cache::Cache;
use super::{Environment, hardware};
use crate::Image;

/// What distributions build into their dynamic linkers.
const DEFAULT_FOLDERS: [&str; 6] =
    ["/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"];
/// What `$LIB` stands for, in one distribution or another.
const LIB_VALUES: [&str; 3] = ["lib/x86_64-linux-gnu", "lib64", "lib"];
/// What `$PLATFORM` stands for.
const PLATFORM: &str = "x86_64";

/// Further folders of a search path are not looked at.
const MAX_FOLDERS: usize = 64;

/// What a loaded file says about the libraries that it needs.
#[derive(Debug)]
pub(super) struct Needs {
    pub(super) needed: Vec<String>,
    /// The names by which this file need not be looked for again.
    pub(super) soname: Option<String>,
    rpath: Vec<PathBuf>,
    runpath: Option<Vec<PathBuf>>,
    /// Index of the file that needed this one.
    pub(super) needed_by: Option<usize>,
}

impl Needs {
    pub(super) fn read(path: &Path, image: &Image, needed_by: Option<usize>) -> Needs {
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let origin = path.parent().unwrap_or(Path::new("/"));
        let runpath = image.runpath().map(|folders| expand(&folders, origin));
        Needs {
            needed: image.needed().into_iter().map(Cow::into_owned).collect(),
            soname: image.soname().map(str::to_owned),
            // A RUNPATH makes a file's RPATH void.
            rpath: image
                .rpath()
                .filter(|_| runpath.is_none())
                .map(|folders| expand(&folders, origin))
                .unwrap_or_default(),
            runpath,
            needed_by,
        }
    }
}

/// The places that do not depend on who needs a library.
#[derive(Debug)]
pub(super) struct Search {
    library_path: Vec<PathBuf>,
    cache: Cache,
}

impl Search {
    pub(super) fn new(env: &Environment) -> Search {
        let folders = env.library_path.as_deref().map(OsStr::as_bytes).unwrap_or_default();
        let folders = folders.split(|byte| matches!(byte, b':' | b';')).filter(|_| !folders.is_empty());
        let folder =
            |name: &[u8]| PathBuf::from(if name.is_empty() { OsStr::new(".") } else { OsStr::from_bytes(name) });
        Search { library_path: folders.map(folder).collect(), cache: Cache::of_system() }
    }

    /// The paths to try, in order, for a name that `loaded[by]` needs.
    pub(super) fn places(&self, name: &str, loaded: &[Needs], by: usize) -> Vec<PathBuf> {
        if name.contains('/') {
            return vec![path_of(name)];
        }
        let file_name = OsString::from_vec(name_of(name));
        let runpath = loaded[by].runpath.as_deref();
        // RPATHs hold for all that is needed below a file, a RUNPATH only for what it needs itself.
        let ancestors = std::iter::successors(Some(by), |&index| loaded[index].needed_by);
        let rpaths = ancestors.filter(|_| runpath.is_none()).flat_map(|index| &loaded[index].rpath);
        let own = rpaths.chain(&self.library_path).chain(runpath.unwrap_or_default());
        let in_own = own.flat_map(|folder| hardware::variants(folder)).map(|folder| folder.join(&file_name));
        let in_default = DEFAULT_FOLDERS.iter().flat_map(|folder| hardware::variants(Path::new(folder)));
        in_own.chain(self.cache.find(name).cloned()).chain(in_default.map(|folder| folder.join(&file_name))).collect()
    }

    /// All libraries in the places where every program looks.
    pub(super) fn installed(&self) -> Vec<PathBuf> {
        let folders = self.library_path.iter().map(PathBuf::as_path).chain(DEFAULT_FOLDERS.map(Path::new));
        self.cache.paths().iter().cloned().chain(folders.flat_map(libraries_in)).collect()
    }
}

/// The files of a folder that are named like libraries.
pub(super) fn libraries_in(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let names = entries.filter_map(|entry| Some(entry.ok()?.file_name()));
    let is_library = |name: &OsString| name.as_bytes().windows(3).any(|window| window == b".so");
    let mut names: Vec<OsString> = names.filter(is_library).collect();
    names.sort_unstable();
    names.into_iter().map(|name| folder.join(name)).collect()
}

/// The folders of an `RPATH` or `RUNPATH`; one with `$LIB` stands for several.
fn expand(folders: &str, origin: &Path) -> Vec<PathBuf> {
    let origin = text_of_os(&origin);
    let replace = |text: &str, name: &str, value: &str| {
        text.replace(&format!("${{{name}}}"), value).replace(&format!("${name}"), value)
    };
    let mut expanded = Vec::new();
    for folder in folders.split(':').take(MAX_FOLDERS) {
        let folder = replace(&replace(folder, "ORIGIN", &origin), "PLATFORM", PLATFORM);
        match LIB_VALUES.map(|lib| replace(&folder, "LIB", lib)) {
            [first, ..] if first == folder => expanded.push(first),
            several => expanded.extend(several),
        }
    }
    expanded.into_iter().map(|folder| path_of(if folder.is_empty() { "." } else { &folder })).collect()
}
