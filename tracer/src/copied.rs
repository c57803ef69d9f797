//! Copies of the files that are traced: programs that execute themselves from memory, as container runtimes do, or from a
//! file that was replaced. A copy goes by another name and number, and is traced like its original.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::path::{Path, PathBuf};

use rtrace_plan::Plan;
use rtrace_symbolizer::modules;

use crate::mapping_history::MappingHistory;
use crate::perf::mappings::Mapping;
use crate::target::EXECUTABLE;

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
    /// With their sizes in bytes.
    files: Vec<(u64, PathBuf)>,
    has_program: bool,
}

impl Originals {
    /// The files of a plan; `patterns`: what was asked for.
    pub fn of(plan: &Plan, patterns: &[String]) -> Originals {
        let paths = plan.libraries.iter().map(|library| &library.attach_path);
        let files = paths.filter_map(|path| Some((path.metadata().ok()?.len(), path.clone()))).collect();
        Originals { files, has_program: patterns.iter().any(|pattern| pattern == EXECUTABLE) }
    }

    /// What this mapping is of, which is no traced file; `history`: what processes have mapped.
    pub fn likeness(&self, mapping: &Mapping, history: &MappingHistory) -> Likeness {
        let may_be_copy =
            |path: &Path| path.metadata().is_ok_and(|file| self.files.iter().any(|(size, _)| *size == file.len()));
        // Most files are where their paths say, and have another size.
        let in_its_root = PathBuf::from(format!("/proc/{}/root{}", mapping.pid, mapping.path.display()));
        if in_its_root.exists() && !may_be_copy(&in_its_root) {
            return Likeness::Other;
        }
        let modules = modules::of_process(mapping.pid).unwrap_or_default();
        let module = modules.iter().find(|module| (module.device, module.inode) == mapping.file);
        // The process may end while it is looked at.
        match module.and_then(|module| self.has_copy(&module.open_path()).ok()) {
            Some(true) => Likeness::Copy,
            None if self.is_lost_program(mapping, history) => Likeness::Unknown,
            _ => Likeness::Other,
        }
    }

    fn has_copy(&self, path: &Path) -> io::Result<bool> {
        let size = path.metadata()?.len();
        let mut files = self.files.iter().filter(|(of, _)| *of == size);
        files.try_fold(false, |is_copy, (_, original)| Ok(is_copy || is_same(path, original)?))
    }

    /// Whether a process executed it that has ended, and no path leads to it.
    fn is_lost_program(&self, mapping: &Mapping, history: &MappingHistory) -> bool {
        let is_nowhere = || mapping.path.to_string_lossy().ends_with(" (deleted)");
        let is_program = || history.executed(mapping.pid, mapping.time).as_ref() == Some(&mapping.path);
        self.has_program && is_nowhere() && is_program()
    }
}

/// Whether two files have the same content.
fn is_same(one: &Path, other: &Path) -> io::Result<bool> {
    let (mut one, mut other) = (BufReader::new(File::open(one)?), BufReader::new(File::open(other)?));
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
        let originals = Originals { files: vec![(long.len() as u64, original)], has_program: true };
        assert!(originals.has_copy(&write("copy", &long)).unwrap());
        assert!(!originals.has_copy(&write("short", &long[1..])).unwrap());
        assert!(!originals.has_copy(&write("other", &[&long[1..], &[8]].concat())).unwrap());
        let pid = std::process::id();
        let mapping = |path: PathBuf| Mapping {
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
        assert_eq!(likeness(PathBuf::from("/memfd:x (deleted)")), Likeness::Other, "nobody has executed it");
    }
}
