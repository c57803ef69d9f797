//! Names of libraries: file names, and as many of their folders as tell them apart.

use std::collections::{HashMap, HashSet};

use crate::Library;

/// Characters of a build id that are shown.
const BUILD_ID: usize = 8;

/// Gives those libraries that share their file name with others a name that tells them apart. Returns the places of those
/// whose names have changed.
pub fn name_apart(libraries: &mut [Library]) -> Vec<usize> {
    let mut by_file: HashMap<String, Vec<usize>> = HashMap::new();
    for (place, library) in libraries.iter().enumerate() {
        by_file.entry(library.file_name().to_owned()).or_default().push(place);
    }
    let mut changed = Vec::new();
    for same in by_file.into_values().filter(|same| same.len() > 1) {
        for &place in &same {
            let others = || same.iter().filter(|&&other| other != place).map(|&other| &libraries[other]);
            let name = apart(&libraries[place], others);
            if libraries[place].apart.as_ref() != Some(&name) {
                libraries[place].apart = Some(name);
                changed.push(place);
            }
        }
    }
    changed.sort_unstable();
    changed
}

fn apart<'l, O: Iterator<Item = &'l Library>>(library: &Library, others: impl Fn() -> O) -> String {
    let ends = library.path.match_indices('/').rev().map(|(at, _)| &library.path[at + 1..]).chain([&*library.path]);
    // The whole path is its own.
    let is_own = |end: &str| end == library.path || others().all(|other| !ends_in(&other.path, end));
    let paths: HashSet<&str> = others().map(|other| other.path.as_str()).collect();
    if !paths.contains(library.path.as_str())
        && let Some(end) = ends.into_iter().find(|end| is_own(end))
    {
        return end.to_owned();
    }
    // The file was replaced, or has this path in another container.
    let build =
        library.build_id.as_deref().filter(|build| others().all(|other| other.build_id.as_deref() != Some(build)));
    match build.and_then(|build| build.get(..BUILD_ID)) {
        Some(build) => format!("{} [build {build}]", library.file_name()),
        None => format!("{} [file {:x}:{}]", library.file_name(), library.device, library.inode),
    }
}

/// Whether these are the last components of a path.
fn ends_in(path: &str, end: &str) -> bool {
    path.strip_suffix(end).is_some_and(|before| before.is_empty() || before.ends_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LibraryId;

    fn names(files: &[(&str, Option<&str>)]) -> Vec<String> {
        let library = |(id, &(path, build_id)): (u32, &(&str, Option<&str>))| {
            let build_id = build_id.map(str::to_owned);
            Library { id: LibraryId(id), path: path.to_owned(), apart: None, build_id, device: 8, inode: id.into() }
        };
        let mut libraries: Vec<Library> = (0..).zip(files).map(library).collect();
        name_apart(&mut libraries);
        assert!(name_apart(&mut libraries).is_empty(), "they have their names");
        libraries.iter().map(|library| library.name().to_owned()).collect()
    }

    #[test]
    fn as_many_folders_as_tell_them_apart() {
        assert_eq!(
            names(&[("/a/v1/libsp.so.1", None), ("/a/v2/libsp.so.1", None), ("/a/v1/libz.so", None)]),
            ["v1/libsp.so.1", "v2/libsp.so.1", "libz.so"]
        );
        assert_eq!(names(&[("/x/b/m", None), ("/y/b/m", None), ("/m", None)]), ["x/b/m", "y/b/m", "/m"]);
        assert_eq!(names(&[("/b/m", None), ("/a/b/m", None)]), ["/b/m", "a/b/m"]);
    }

    #[test]
    fn files_of_one_path_are_told_by_their_content() {
        let (one, two) = (Some("0123456789ab"), Some("ffff456789ab"));
        assert_eq!(
            names(&[("/l/libw.so", one), ("/l/libw.so", two)]),
            ["libw.so [build 01234567]", "libw.so [build ffff4567]"]
        );
        assert_eq!(names(&[("/l/libw.so", one), ("/l/libw.so", one)]), ["libw.so [file 8:0]", "libw.so [file 8:1]"]);
    }
}
