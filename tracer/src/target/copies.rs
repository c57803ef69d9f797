//! Copies of the files that are traced: programs that execute themselves from memory, as container runtimes do, or from a
//! file that was replaced. A copy goes by another name and number, and is traced like its original.

use std::cell::LazyCell;
use std::io::{self, BufRead as _, BufReader};
use std::path::{Path, PathBuf};

use rtrace_plan::{Plan, PlannedLibrary};
use rtrace_symbolizer::{Image, modules, open_regular};

use crate::perf::mappings::CodeMapping;
use crate::target::EXECUTABLE;
use crate::target::mapping_history::MappingHistory;

/// What a file that was mapped is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Likeness {
    /// It has the content of a traced file.
    Copy,
    /// It has not.
    Other,
    /// A program that is out of reach, as its process has ended, where programs are traced.
    Unknown,
}

/// The traced files.
#[derive(Debug, Default)]
pub struct Originals {
    files: Vec<Original>,
    has_program: bool,
}

/// One of them.
#[derive(Debug)]
struct Original {
    /// Its size in bytes.
    size: u64,
    build_id: Option<String>,
    path: PathBuf,
}

impl Originals {
    /// The files of a plan; `patterns`: what was asked for.
    pub fn of(plan: &Plan, patterns: &[String]) -> Originals {
        let original = |planned: &PlannedLibrary| {
            let (build_id, path) = (planned.library.build_id.clone(), planned.attach_path.clone());
            Some(Original { size: path.metadata().ok()?.len(), build_id, path })
        };
        let files = plan.libraries.iter().filter_map(original).collect();
        Originals { files, has_program: patterns.iter().any(|pattern| pattern == EXECUTABLE) }
    }

    /// What this mapping is of, which is no traced file; `history`: what processes have mapped.
    pub fn likeness(&self, mapping: &CodeMapping, history: &MappingHistory) -> Likeness {
        let may_be_copy = |path: &Path| {
            path.metadata().is_ok_and(|file| self.files.iter().any(|original| original.size == file.len()))
        };
        // Most files are where their paths say, and have another size.
        let in_its_root = PathBuf::from(format!("/proc/{}/root{}", mapping.pid, mapping.path.display()));
        if in_its_root.exists() && !may_be_copy(&in_its_root) {
            return Likeness::Other;
        }
        let modules = modules::of_process(mapping.pid).unwrap_or_default();
        let module = modules.iter().find(|module| (module.device, module.inode) == mapping.file);
        // The process may end while it is looked at, and the file be where it was.
        match module.and_then(|module| self.has_copy(&module.open_path()).ok()) {
            Some(true) => Likeness::Copy,
            None if self.has_copy(&mapping.path).is_ok_and(|is_copy| is_copy) => Likeness::Copy,
            None if self.is_lost_program(mapping, history) => Likeness::Unknown,
            _ => Likeness::Other,
        }
    }

    /// Whether one of the files has the content of this one. The path to it may be out of reach, as its process executes
    /// another program now.
    fn has_copy(&self, path: &Path) -> io::Result<bool> {
        let size = path.metadata()?.len();
        let build_id = LazyCell::new(|| Image::open_outline(path).ok()?.build_id());
        let mut files = self.files.iter().filter(|original| original.size == size);
        files.try_fold(false, |is_copy, original| {
            let has_its_id = || original.build_id.is_some() && original.build_id == *build_id;
            Ok(is_copy || has_its_id() || is_same(path, &original.path)?)
        })
    }

    /// Whether a process executed it that has ended, and no path leads to it.
    fn is_lost_program(&self, mapping: &CodeMapping, history: &MappingHistory) -> bool {
        let is_nowhere = || mapping.path.to_string_lossy().ends_with(" (deleted)");
        let is_program = || history.executed(mapping.pid, mapping.time).as_ref() == Some(&mapping.path);
        self.has_program && is_nowhere() && is_program()
    }
}

/// Whether two files have the same content.
fn is_same(one: &Path, other: &Path) -> io::Result<bool> {
    let (mut one, mut other) = (BufReader::new(open_regular(one)?), BufReader::new(open_regular(other)?));
    loop {
        let (a, b) = (one.fill_buf()?, other.fill_buf()?);
        let common = a.len().min(b.len());
        if common == 0 {
            return Ok(a.len() == b.len());
        }
        if a[..common] != b[..common] {
            return Ok(false);
        }
        one.consume(common);
        other.consume(common);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use rtrace_model::Timestamp;

    use super::*;

    #[test]
    fn a_copy_is_known_by_its_content() {
        let folder = tempfile::TempDir::new().unwrap();
        let write = |name: &str, content: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, content).unwrap();
            path
        };
        let long = vec![7; 100_000];
        let original = write("original", &long);
        let file = |path: PathBuf, build_id| Original { size: path.metadata().unwrap().len(), build_id, path };
        let originals = Originals { files: vec![file(original, None)], has_program: true };
        assert!(originals.has_copy(&write("copy", &long)).unwrap());
        assert!(!originals.has_copy(&write("short", &long[1..])).unwrap());
        assert!(!originals.has_copy(&write("other", &[&long[1..], &[8]].concat())).unwrap());
        let own = std::env::current_exe().unwrap();
        let build_id = Image::open_outline(&own).unwrap().build_id();
        let gone = Original { path: PathBuf::from("/nonexistent"), ..file(own.clone(), build_id) };
        assert!(gone.build_id.is_none() || Originals { files: vec![gone], has_program: true }.has_copy(&own).unwrap());
        let pid = std::process::id();
        let mapping = |path: PathBuf| CodeMapping {
            pid,
            time: Timestamp(9),
            path,
            file: (0, 1),
            addresses: 0..4096,
            offset: 0,
            takes_no_probes: false,
        };
        let likeness = |path| originals.likeness(&mapping(path), &MappingHistory::default());
        assert_eq!(likeness(folder.path().join("short")), Likeness::Other);
        let ended = |path| CodeMapping { pid: u32::MAX, ..mapping(folder.path().join(path)) };
        let likeness_of_ended = |path| originals.likeness(&ended(path), &MappingHistory::default());
        assert_eq!(["copy", "other"].map(likeness_of_ended), [Likeness::Copy, Likeness::Other]);
        assert_eq!(likeness(PathBuf::from("/memfd:x (deleted)")), Likeness::Other, "nobody has executed it");
    }
}
