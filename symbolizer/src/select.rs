//! Library names as people type them.
//!
//! A name stands for a library in all its versions, but never for another library whose name only
//! begins alike. A path stands for one file, a glob for what it says.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use globset::Glob;
use rtrace_model::{name_of, text_of_os};

/// Suggestions that are worth reading.
const MAX_NEAR_NAMES: usize = 5;
/// Longer names are not compared; comparing takes quadratic time.
const MAX_COMPARED: usize = 128;

/// The path that a text means: that of a file with this very name, or of one whose name is no text.
pub fn path_of(text: &str) -> PathBuf {
    let path = PathBuf::from(text);
    if path.exists() { path } else { PathBuf::from(OsString::from_vec(name_of(text))) }
}

/// Whether `pattern` names the library at `path`, or one of that `DT_SONAME`: by this alone do programs know a file
/// whose own name is another. `soname` is asked only where it matters.
pub fn names(pattern: &str, path: &Path, soname: impl FnOnce() -> Option<String>) -> bool {
    let is_path = pattern.contains('/');
    matches(pattern, path) || !is_path && soname().is_some_and(|soname| matches(pattern, Path::new(&soname)))
}

/// Whether the library at `path` is one that `pattern` names.
///
/// | pattern | names |
/// |---|---|
/// | `libz`, `libz.so` | `libz.so`, `libz.so.1.2.13`, `libz-1.2.so` |
/// | `libz.so.1` | `libz.so.1`, `libz.so.1.2.13` |
/// | `zlib` | `zlib.cpython-311-x86_64-linux-gnu.so` |
/// | `libQt5*` | each file name that fits the glob |
/// | `/opt/*/libz.so*` | each path that fits the glob |
/// | `./libz.so` | this file, whatever links lead to it |
/// | `libblas.so` | also the file in whose folder it is a link to that |
pub fn matches(pattern: &str, path: &Path) -> bool {
    let is_path = pattern.contains('/');
    if is_path && is_same_path(&path_of(pattern), path) {
        return true;
    }
    // A glob that cannot be parsed is taken by the letter.
    if let Some(glob) = is_glob(pattern).then(|| Glob::new(pattern).ok()).flatten() {
        let matcher = glob.compile_matcher();
        return if is_path {
            matcher.is_match(&*text_of_os(path))
        } else {
            path.file_name().is_some_and(|name| matcher.is_match(&*text_of_os(Path::new(name))))
        };
    }
    let stands_for = |name: &OsStr| stands_for(pattern, &text_of_os(Path::new(name))) || is_link_beside(pattern, path);
    !is_path && path.file_name().is_some_and(stands_for)
}

/// Whether a pattern is more than a name or a path.
pub(crate) fn is_glob(pattern: &str) -> bool {
    pattern.contains(['*', '?', '[', '{'])
}

fn is_same_path(a: &Path, b: &Path) -> bool {
    a == b || matches!((fs::canonicalize(a), fs::canonicalize(b)), (Ok(a), Ok(b)) if a == b)
}

/// Whether a plain name is that of a link to this file, in the same folder.
fn is_link_beside(name: &str, path: &Path) -> bool {
    let link = path.with_file_name(OsString::from_vec(name_of(name)));
    path.is_absolute() && link.is_symlink() && is_same_path(&link, path)
}

/// Whether a plain name stands for this file name.
fn stands_for(name: &str, file_name: &str) -> bool {
    if name.is_empty() {
        return false;
    }
    if name == file_name {
        return true;
    }
    match name.split_once(".so") {
        // `libz.so.1` does not stand for `libz.so.10`.
        Some((stem, version)) if version.is_empty() || version.starts_with('.') => {
            file_name.strip_prefix(name).is_some_and(|rest| rest.starts_with('.')) || is_dashed(stem, file_name)
        }
        _ => file_name.strip_prefix(name).is_some_and(is_library_suffix) || is_dashed(name, file_name),
    }
}

/// What may follow a library's bare name: `.so`, `.so.1.2`, `.cpython-311-x86_64-linux-gnu.so`, `.abi3.so`.
fn is_library_suffix(suffix: &str) -> bool {
    let is_python = suffix.starts_with(".cpython-") || suffix.starts_with(".abi3.");
    suffix == ".so" || suffix.starts_with(".so.") || is_python && suffix.ends_with(".so")
}

/// `libc-2.31.so` is what `libc.so.6` links to in older C libraries.
fn is_dashed(stem: &str, file_name: &str) -> bool {
    let version = file_name.strip_prefix(stem).and_then(|rest| rest.strip_prefix('-')?.strip_suffix(".so"));
    version.is_some_and(|version| version.starts_with(|c: char| c.is_ascii_digit()) && is_version(version))
}

fn is_version(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii_digit() || c == '.')
}

/// Up to five of the candidates that look most like `pattern`, best first: those that contain it,
/// then those that differ in few letters.
pub fn near_names(pattern: &str, candidates: &[&str]) -> Vec<String> {
    let wanted = bare_name(pattern);
    let mut met = HashSet::new();
    let mut near: Vec<(usize, &str)> = candidates
        .iter()
        .filter(|candidate| met.insert(**candidate))
        .filter_map(|candidate| Some((distance(&wanted, &bare_name(candidate))?, *candidate)))
        .collect();
    near.sort_unstable_by_key(|&(distance, name)| (distance, name.len(), name));
    near.into_iter().take(MAX_NEAR_NAMES).map(|(_, name)| name.to_owned()).collect()
}

/// What distinguishes a name, in lower case: `libFFTW3.so.3` becomes `fftw3`.
fn bare_name(name: &str) -> String {
    let name = name.rsplit('/').next().unwrap_or(name).to_lowercase();
    let stem = name.split_once(".so").map_or(name.as_str(), |(stem, _)| stem);
    stem.strip_prefix("lib").unwrap_or(stem).to_owned()
}

/// How unlike two names are; `None` where nobody would mistake one for the other.
fn distance(wanted: &str, candidate: &str) -> Option<usize> {
    if wanted.is_empty() || candidate.is_empty() || wanted.len().max(candidate.len()) > MAX_COMPARED {
        return None;
    }
    if candidate.contains(wanted) {
        return Some(usize::from(candidate != wanted));
    }
    let tolerated = 1 + wanted.len() / 3;
    // Two at least: a name that contains the wanted one is always nearer.
    // Letters to insert, remove, replace or swap.
    Some(1 + strsim::osa_distance(wanted, candidate)).filter(|distance| *distance <= 1 + tolerated)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn patterns_and_the_libraries_they_name() {
        let yes = [
            ("libz", "/lib/libz.so.1.2.13"),
            ("libz", "/lib/libz.so"),
            ("libz.so", "/lib/libz.so.1"),
            ("libz.so.1", "/lib/libz.so.1.2.13"),
            ("libfftw3.so", "/lib/libfftw3.so.3.6.10"),
            ("libfftw3.so.3", "/lib/libfftw3.so.3.6.10"),
            ("libQt5Core", "/lib/libQt5Core.so.5.15.8"),
            ("libQt5*", "/lib/libQt5Core.so.5.15.8"),
            ("libQt5{Core,Gui}.so.?", "/lib/libQt5Gui.so.5"),
            ("libstdc++", "/lib/libstdc++.so.6.0.30"),
            ("libpython3.11", "/lib/libpython3.11.so.1.0"),
            ("zlib", "/py/zlib.cpython-311-x86_64-linux-gnu.so"),
            ("_rust", "/py/_rust.abi3.so"),
            ("zlib.cpython-311-x86_64-linux-gnu.so", "/py/zlib.cpython-311-x86_64-linux-gnu.so"),
            ("libc", "/lib/libc-2.31.so"),
            ("libc.so.6", "/lib/libc-2.31.so"),
            ("libglib-2.0", "/lib/libglib-2.0.so.0"),
            ("python3.11", "/usr/bin/python3.11"),
            ("/lib/*/libz.so*", "/lib/x86_64-linux-gnu/libz.so.1"),
            ("/not/there/libz.so.1", "/not/there/libz.so.1"),
        ];
        for (pattern, path) in yes {
            assert!(matches(pattern, Path::new(path)), "{pattern} names {path}");
        }
        let no = [
            ("z", "/lib/libz.so.1"),
            ("libfftw3", "/lib/libfftw3f.so.3"),
            ("libfftw3", "/lib/libfftw3_threads.so.3"),
            ("libfftw3.so", "/lib/libfftw3f.so.3"),
            ("libz.so.1", "/lib/libz.so.10"),
            ("libz.so.1", "/lib/libz.so"),
            ("libpython3", "/lib/libpython3.11.so.1.0"),
            ("libglib", "/lib/libglib-2.0.so.0"),
            ("libz", "/lib/libz.something"),
            ("libQt5", "/lib/libQt5Core.so.5"),
            ("lib[z", "/lib/libz.so"),
            ("/lib/libz.so", "/other/libz.so"),
            ("", "/lib/libz.so"),
            ("libz", "/"),
        ];
        for (pattern, path) in no {
            assert!(!matches(pattern, Path::new(path)), "{pattern} does not name {path}");
        }
    }

    #[test]
    fn a_path_names_what_it_links_to() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("libx.so.1.2"), folder.path().join("libx.so"));
        fs::write(&file, "").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert!(matches(link.to_str().unwrap(), &file));
    }

    #[test]
    fn a_link_beside_a_file_is_another_name_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["real-0.3.so", "other.so"] {
            fs::write(path(name), "").unwrap();
        }
        std::os::unix::fs::symlink("real-0.3.so", path("libx.so.0")).unwrap();
        assert!(matches("libx.so.0", &path("real-0.3.so")));
        assert!(!matches("libx.so.0", &path("other.so")));
        assert!(!matches("libx.so.0", Path::new("real-0.3.so")), "not what lies in our own folder");
        assert!(!matches("..", &path("real-0.3.so")));
    }

    #[test]
    fn a_file_is_known_by_its_soname() {
        let path = Path::new("/lib/libopenblasp-r0.3.21.so");
        let soname = || Some("libopenblas.so.0".to_owned());
        for (pattern, expected) in [
            ("libopenblas.so.0", true),
            ("libopenblas", true),
            ("libopenblas.so.?", true),
            ("libopenblasp-r0.3.21.so", true),
            ("libopen", false),
            ("/lib/libopenblas.so.0", false),
            ("/lib/libopenblas.so.?", false),
        ] {
            assert_eq!(names(pattern, path, soname), expected, "{pattern}");
        }
        assert!(!names("libopenblas", path, || None));
    }

    #[test]
    fn near_names_are_the_likely_ones() {
        let candidates = ["libfftw3.so.3", "libfftw3f.so.3", "libz.so.1", "libstdc++.so.6", "libz.so.1"];
        assert_eq!(near_names("libfftw", &candidates), ["libfftw3.so.3", "libfftw3f.so.3"]);
        assert_eq!(near_names("libfttw3.so", &candidates), ["libfftw3.so.3", "libfftw3f.so.3"]);
        assert_eq!(near_names("z", &candidates), ["libz.so.1"]);
        assert!(near_names("libunrelated", &candidates).is_empty());
        assert!(near_names("", &candidates).is_empty());
        let many: Vec<String> = (0..100).map(|number| format!("liba{number}.so")).collect();
        assert_eq!(near_names("liba", &many.iter().map(String::as_str).collect::<Vec<_>>()).len(), 5);
    }
}
