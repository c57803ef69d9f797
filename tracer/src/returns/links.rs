//! Links of return sites: many small ones come into being while sites are met, and are merged.
//!
//! The kernel takes tens of milliseconds to close a link, and lets nobody wait for several at once but
//! on threads of their own.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use foldhash::{HashSet, HashSetExt as _};
use rtrace_bpf::{Error, Probes, Programs, Role, Site};

use super::FileId;
use crate::altered::Spot;
use crate::attach::{self, Closing};
use crate::presence::{Presence, Process};

/// Small links of a file in a process that are merged.
const MOST_SMALL: usize = 8;
/// A link of fewer than this part of the most sites is small.
const SMALL: usize = 8;
/// Most sites of a link: where one of them goes, all are placed anew, and are hit twice until the old ones have
/// gone. Where functions are throttled many go while the program waits for that, some of each thousand.
const MOST: usize = 2048;
const MOST_WHEN_GOVERNED: usize = 64;

/// A site with its id.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placement {
    pub id: u32,
    pub probe: Site,
}

struct Link {
    probes: Probes,
    /// By id, in order.
    sites: Vec<Placement>,
}

impl Link {
    fn has(&self, id: u32) -> bool {
        self.sites.binary_search_by_key(&id, |site| site.id).is_ok()
    }
}

/// The links of one file in one process.
struct Group {
    path: PathBuf,
    links: Vec<Link>,
}

/// All links.
pub(super) struct Links<'a> {
    programs: &'a Programs,
    /// Sites of a link.
    most: usize,
    groups: BTreeMap<(u32, FileId), Group>,
    closing: Closing,
}

impl<'a> Links<'a> {
    pub fn new(programs: &'a Programs) -> Links<'a> {
        let most = if programs.is_governed() { MOST_WHEN_GOVERNED } else { MOST };
        Links { programs, most, groups: BTreeMap::new(), closing: Closing::default() }
    }

    /// Places sites of a file in a process; returns those that the kernel refuses.
    ///
    /// # Errors
    /// The kernel refuses probes for a reason that has nothing to do with a single site.
    pub fn place(&mut self, pid: u32, file: FileId, path: &Path, sites: &[Placement]) -> Result<HashSet<u32>, Error> {
        let (mut links, refused) = link(self.programs, pid, path, sites, self.most)?;
        let new = || Group { path: path.to_owned(), links: Vec::new() };
        self.groups.entry((pid, file)).or_insert_with(new).links.append(&mut links);
        Ok(refused)
    }

    /// The files of these processes in which sites were overwritten.
    pub fn overwritten(&self, is_meant: impl Fn(u32) -> bool) -> Vec<Presence> {
        let mut overwritten = Vec::new();
        let mut groups = self.groups.iter().filter(|((pid, _), _)| is_meant(*pid)).peekable();
        while let Some(((pid, _), _)) = groups.peek() {
            let pid = *pid;
            let process = Process::of(pid);
            while let Some((_, group)) = groups.next_if(|((of, _), _)| *of == pid) {
                let sites = group.links.iter().flat_map(|link| &link.sites);
                let spots = sites.map(|site| Spot::at(site.probe.file_offset)).collect();
                let presence = || process.as_ref()?.presence(&File::open(&group.path).ok()?, spots);
                overwritten.extend(presence().filter(|presence| !presence.absent.is_empty()));
            }
        }
        overwritten
    }

    /// The files of a process that have sites, with these sites.
    pub fn of(&self, pid: u32) -> Vec<(FileId, PathBuf, Vec<Placement>)> {
        let groups = self.groups.range((pid, (0, 0))..=(pid, (u64::MAX, u64::MAX)));
        let sites = |group: &Group| group.links.iter().flat_map(|link| &link.sites).copied().collect();
        groups.map(|((_, file), group)| (*file, group.path.clone(), sites(group))).collect()
    }

    /// Takes out the sites of a process in these files, and waits until they are gone.
    pub fn drop_files(&mut self, pid: u32, is_meant: impl Fn(FileId) -> bool) {
        let of_process = self.groups.range((pid, (0, 0))..=(pid, (u64::MAX, u64::MAX)));
        let meant: Vec<_> = of_process.map(|(key, _)| *key).filter(|(_, file)| is_meant(*file)).collect();
        meant.iter().for_each(|key| drop(self.groups.remove(key)));
    }

    /// Takes out all sites of processes that have ended; returns these.
    pub fn keep(&mut self, lives: impl Fn(u32) -> bool) -> HashSet<u32> {
        let ended: Vec<(u32, FileId)> = self.groups.keys().filter(|(pid, _)| !lives(*pid)).copied().collect();
        let groups = ended.iter().filter_map(|key| self.groups.remove(key));
        let probes = groups.flat_map(|group| group.links).map(|link| link.probes).collect();
        self.closing.close(probes);
        ended.into_iter().map(|(pid, _)| pid).collect()
    }

    /// Takes sites out, and merges links where there are many small ones.
    ///
    /// # Errors
    /// As [`place`](Links::place).
    pub fn tidy(&mut self, out: &[u32]) -> Result<(), Error> {
        let mut old = Vec::new();
        for ((pid, _), group) in &mut self.groups {
            let is_small = |link: &Link| link.sites.len() < self.most / SMALL;
            let merges = group.links.iter().filter(|link| is_small(link)).count() > MOST_SMALL;
            let (changed, kept): (Vec<Link>, Vec<Link>) = std::mem::take(&mut group.links)
                .into_iter()
                .partition(|link| out.iter().any(|&id| link.has(id)) || (merges && is_small(link)));
            group.links = kept;
            if changed.is_empty() {
                continue;
            }
            let sites = changed.iter().flat_map(|link| &link.sites).filter(|site| !out.contains(&site.id));
            let mut sites: Vec<Placement> = sites.copied().collect();
            sites.sort_unstable_by_key(|site| site.id);
            match link(self.programs, *pid, &group.path, &sites, self.most) {
                Ok((mut links, _)) => {
                    group.links.append(&mut links);
                    old.extend(changed.into_iter().map(|link| link.probes));
                }
                // The process has ended: nothing is hit any more.
                Err(error) if error.is_gone() => group.links.extend(changed),
                Err(error) => return Err(error),
            }
        }
        self.closing.close(old);
        Ok(())
    }

    /// Waits until those that were taken out are gone.
    pub fn settle(&mut self) {
        self.closing.finish();
    }

    /// The probes that are in place, once those that were taken out are gone.
    pub fn into_probes(mut self) -> Vec<Probes> {
        self.settle();
        self.groups.into_values().flat_map(|group| group.links).map(|link| link.probes).collect()
    }
}

/// Places sites, not more than `most` by a link; returns the links, and the sites that the kernel refuses.
fn link(
    programs: &Programs,
    pid: u32,
    path: &Path,
    sites: &[Placement],
    most: usize,
) -> Result<(Vec<Link>, HashSet<u32>), Error> {
    let mut refused = HashSet::new();
    let attach = |sites: &[Placement]| {
        let probes: Vec<Site> = sites.iter().map(|site| site.probe).collect();
        programs.attach(Role::Return, path, &[pid], &probes)
    };
    let mut links = Vec::new();
    for sites in sites.chunks(most) {
        let placed = attach::place(sites, &attach, &mut |site, _| {
            refused.insert(site.id);
        })?;
        links.extend(placed.into_iter().map(|(sites, probes)| Link { probes, sites: sites.to_vec() }));
    }
    Ok((links, refused))
}
