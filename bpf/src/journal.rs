//! Where probes have been placed, written down before each is, for who outlives this process.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::ops::Range;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::site::Site;

/// Bytes of a word of the journal, which is a sequence of entries in words of the machine: process, device,
/// inode, number of offsets, and that many offsets in bytes.
const WORD: usize = 8;

/// Writes down where probes are placed.
#[derive(Debug)]
pub struct Journal {
    noted: Mutex<Noted>,
}

#[derive(Debug)]
struct Noted {
    file: File,
    sites: HashMap<Probed, HashSet<u64>>,
    /// Where processes get no probes, or got none for a time: whether they still get none. And how often that changed.
    avoided: HashMap<Probed, HashMap<u64, bool>>,
    changes: u64,
}

impl Noted {
    fn avoids(&self, probed: &Probed, offset: u64) -> bool {
        let has = |offsets: &HashMap<u64, bool>| offsets.get(&offset) == Some(&true);
        self.avoided.get(probed).is_some_and(has)
    }
}

/// A file in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Probed {
    /// The process.
    pub pid: u32,
    /// Device number of the file, as `stat` reports it.
    pub device: u64,
    /// Inode number of the file.
    pub inode: u64,
}

impl Journal {
    /// One that is written into this file.
    pub fn new(file: File) -> Journal {
        Journal { noted: Mutex::new(Noted { file, sites: HashMap::new(), avoided: HashMap::new(), changes: 0 }) }
    }

    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that probes are about to be placed. Returns those of these sites that may get one.
    ///
    /// # Errors
    /// There is no room for the journal.
    pub(crate) fn note<'s>(&self, pid: u32, path: &Path, sites: &'s [Site]) -> io::Result<Cow<'s, [Site]>> {
        // The kernel places nothing in a file that is not there.
        let Ok(metadata) = fs::metadata(path) else { return Ok(Cow::Borrowed(sites)) };
        let probed = Probed { pid, device: metadata.dev(), inode: metadata.ino() };
        let mut noted = self.noted();
        let may_have = |site: &Site| !noted.avoids(&probed, site.file_offset);
        let sites = match sites.iter().all(may_have) {
            true => Cow::Borrowed(sites),
            false => sites.iter().copied().filter(may_have).collect(),
        };
        let Noted { file, sites: known, .. } = &mut *noted;
        let known = known.entry(probed).or_default();
        let offsets: Vec<u64> = sites.iter().map(|site| site.file_offset).filter(|&at| known.insert(at)).collect();
        if !offsets.is_empty() {
            let head = [u64::from(pid), probed.device, probed.inode, offsets.len() as u64];
            let bytes: Vec<u8> = head.iter().chain(&offsets).flat_map(|word| word.to_ne_bytes()).collect();
            file.write_all(&bytes)?;
        }
        Ok(sites)
    }

    /// No probe is placed there any more.
    pub(crate) fn avoid(&self, probed: Probed, offset: u64) {
        self.change(probed, offset, true);
    }

    /// A probe may be placed there again.
    pub(crate) fn allow(&self, probed: Probed, offset: u64) {
        self.change(probed, offset, false);
    }

    fn change(&self, probed: Probed, offset: u64, is_avoided: bool) {
        let mut noted = self.noted();
        let before = noted.avoided.entry(probed).or_default().insert(offset, is_avoided);
        noted.changes += u64::from(before != Some(is_avoided));
    }

    /// What is to be avoided in a process is to be avoided in its child, too.
    pub(crate) fn inherit(&self, pid: u32, parent: u32) {
        let mut noted = self.noted();
        let of_parent = noted.avoided.iter().filter(|(probed, _)| probed.pid == parent);
        let of_child: Vec<_> = of_parent.map(|(probed, at)| (Probed { pid, ..*probed }, at.clone())).collect();
        noted.avoided.extend(of_child);
    }

    /// These processes alone live.
    pub(crate) fn keep(&self, lives: impl Fn(u32) -> bool) {
        self.noted().avoided.retain(|probed, _| lives(probed.pid));
    }

    /// Whether it notes a place as to be avoided.
    pub(crate) fn avoids(&self, probed: Probed, offset: u64) -> bool {
        self.noted().avoids(&probed, offset)
    }

    /// How often it changed which places are to be avoided.
    pub(crate) fn changes(&self) -> u64 {
        self.noted().changes
    }

    /// Whether it notes one of these offsets of a file, other than those that were ever to be avoided in the process.
    pub(crate) fn has_placed_within(&self, probed: Probed, offsets: &Range<u64>) -> bool {
        let noted = self.noted();
        let of_file = |other: &Probed| (other.device, other.inode) == (probed.device, probed.inode);
        let mut sites = noted.sites.iter().filter(|(other, _)| of_file(other)).flat_map(|(_, sites)| sites);
        let avoided = noted.avoided.get(&probed);
        sites.any(|&site| offsets.contains(&site) && avoided.is_none_or(|avoided| !avoided.contains_key(&site)))
    }
}

/// What a journal tells: offsets in bytes, by file and process. An entry that was not finished is left out:
/// its probes were not placed.
pub fn read(journal: &[u8]) -> BTreeMap<Probed, BTreeSet<u64>> {
    let (words, _) = journal.as_chunks::<WORD>();
    let mut words = words.iter().map(|&word| u64::from_ne_bytes(word));
    let mut sites = BTreeMap::<Probed, BTreeSet<u64>>::new();
    while let (Some(pid), Some(device), Some(inode), Some(count)) =
        (words.next(), words.next(), words.next(), words.next())
    {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        if words.len() < count {
            break;
        }
        let Ok(pid) = u32::try_from(pid) else { break };
        sites.entry(Probed { pid, device, inode }).or_default().extend(words.by_ref().take(count));
    }
    sites
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn what_was_noted_is_read_once_each() {
        let folder = tempfile::tempdir().unwrap();
        let (path, probed) = (folder.path().join("journal"), folder.path().join("library"));
        fs::write(&probed, "").unwrap();
        let metadata = fs::metadata(&probed).unwrap();
        let journal = Journal::new(File::create(&path).unwrap());
        let sites =
            |offsets: &[u64]| -> Vec<Site> { offsets.iter().map(|&file_offset| Site::new(file_offset, 7)).collect() };
        journal.note(1, &probed, &sites(&[16, 32])).unwrap();
        journal.note(2, &probed, &sites(&[16])).unwrap();
        journal.note(1, &probed, &sites(&[32, 48])).unwrap();
        journal.note(1, &probed, &sites(&[48])).unwrap();
        journal.note(1, &folder.path().join("gone"), &sites(&[1])).unwrap();
        let written = fs::read(&path).unwrap();
        let of = |pid| Probed { pid, device: metadata.dev(), inode: metadata.ino() };
        let all = BTreeMap::from([(of(1), BTreeSet::from([16, 32, 48])), (of(2), BTreeSet::from([16]))]);
        assert_eq!(read(&written), all);
        assert_eq!(written.len(), (3 * 4 + 4) * WORD, "nothing is noted twice");
        let of = |pid| Probed { pid, device: metadata.dev(), inode: metadata.ino() };
        journal.avoid(of(3), 64);
        assert_eq!(*journal.note(3, &probed, &sites(&[64, 80])).unwrap(), sites(&[80]), "one is avoided");
        let cut = read(&written[..written.len() - 1]);
        assert_eq!(cut[&of(1)], BTreeSet::from([16, 32]), "the last entry is cut");
    }
}
