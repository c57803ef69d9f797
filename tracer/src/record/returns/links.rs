//! Links of return sites: many small ones come into being while sites are met, and are merged.
//!
//! The kernel takes tens of milliseconds to close a link, and lets nobody wait for several at once but
//! on threads of their own. Some thousand sites take as long to place anew: that, too, is done by another thread, as
//! calls are not timed whose return addresses are met meanwhile.

use std::collections::BTreeMap;
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread::Scope;

use foldhash::{HashSet, HashSetExt as _};
use rtrace_bpf::journal::Probed;
use rtrace_bpf::{Error, Probes, Programs, Role, Site};
use rtrace_symbolizer::open_regular;

use super::FileId;
use crate::host;
use crate::record::attach::{self, Closing};
use crate::target::code::Spot;
use crate::target::presence::{Presence, ProcessCode};

/// Small links of a file in a process that are merged once no sites come any more, and while they come.
const MOST_SMALL: usize = 8;
const MOST_SMALL_WHILE_GROWING: usize = 64;
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
    /// The return address that it is for, as an offset in the file.
    pub offset: u64,
    pub probe: Site,
}

struct Link {
    /// No other has it.
    number: u64,
    probes: Probes,
    sites: Vec<Placement>,
}

/// The links of one file in one process.
struct Group {
    path: PathBuf,
    links: Vec<Link>,
}

/// Sites of a link or several that are placed anew, without those that are to go.
struct Relinking {
    group: (u32, FileId),
    path: PathBuf,
    /// Numbers of the links.
    old: Vec<u64>,
    sites: Vec<Placement>,
}

/// What has been placed anew.
type Relinked = (Relinking, Result<Vec<NewLink>, Error>);

/// Probes with their sites.
type NewLink = (Probes, Vec<Placement>);

/// All links.
pub(super) struct Links<'a> {
    programs: &'a Programs,
    /// Sites of a link.
    most: usize,
    groups: BTreeMap<(u32, FileId), Group>,
    /// Links so far.
    count: u64,
    /// Whether sites have come since the last look.
    has_grown: bool,
    /// Sites that are to go.
    out: HashSet<u32>,
    /// What is being placed anew, if anything is.
    relinking: Option<Receiver<Vec<Relinked>>>,
    closing: Closing,
}

impl<'a> Links<'a> {
    pub fn new(programs: &'a Programs) -> Links<'a> {
        Links {
            programs,
            most: if programs.is_governed() { MOST_WHEN_GOVERNED } else { MOST },
            groups: BTreeMap::new(),
            count: 0,
            has_grown: false,
            out: HashSet::new(),
            relinking: None,
            closing: Closing::default(),
        }
    }

    /// Places sites of a file in a process; returns those that the kernel refuses: all of them where it has no room for
    /// another link.
    ///
    /// # Errors
    /// The kernel refuses probes for a reason that has nothing to do with a single site.
    pub fn place(&mut self, pid: u32, file: FileId, path: &Path, sites: &[Placement]) -> Result<HashSet<u32>, Error> {
        let probed = Probed { pid, device: file.0, inode: file.1 };
        let (sites, avoided): (Vec<Placement>, Vec<Placement>) =
            sites.iter().partition(|site| !self.programs.avoids(probed, site.probe.file_offset));
        let sites = sites.as_slice();
        let (links, mut refused) = match link(self.programs, pid, path, sites, self.most) {
            Err(error) if error.is_shortage() => return Ok(sites.iter().chain(&avoided).map(|site| site.id).collect()),
            placed => placed?,
        };
        refused.extend(avoided.iter().map(|site| site.id));
        let links = self.numbered(links);
        self.has_grown = true;
        let new = || Group { path: path.to_owned(), links: Vec::new() };
        self.groups.entry((pid, file)).or_insert_with(new).links.extend(links);
        Ok(refused)
    }

    fn numbered(&mut self, links: Vec<NewLink>) -> Vec<Link> {
        let first = self.count;
        self.count += links.len() as u64;
        (first..).zip(links).map(|(number, (probes, sites))| Link { number, probes, sites }).collect()
    }

    /// The sites of a process that returns do not come to any more, as it has overwritten them or the code in front of
    /// them: by file, with its path in the process.
    pub fn overwritten(&self, pid: u32) -> Vec<(FileId, PathBuf, Vec<u32>)> {
        let Some(process) = ProcessCode::of(pid) else { return Vec::new() };
        let of_group = |(file, path, sites): (FileId, PathBuf, Vec<Placement>)| {
            let spot = |site: &Placement| Spot { entry: site.offset, site: site.probe.file_offset };
            let Presence { path, absent, .. } =
                process.presence(&open_regular(&path).ok()?, sites.iter().map(spot).collect())?;
            let is_absent = |site: &&Placement| absent.binary_search(&site.probe.file_offset).is_ok();
            let absent: Vec<u32> = sites.iter().filter(is_absent).map(|site| site.id).collect();
            (!absent.is_empty()).then_some((file, path, absent))
        };
        self.of(pid).into_iter().filter_map(of_group).collect()
    }

    /// The sites at these places of a file in a process.
    pub fn within(&self, pid: u32, file: FileId, is_meant: impl Fn(u64) -> bool) -> Vec<u32> {
        let links = self.groups.get(&(pid, file)).into_iter().flat_map(|group| &group.links);
        let sites = links.flat_map(|link| &link.sites).filter(|site| is_meant(site.probe.file_offset));
        sites.map(|site| site.id).collect()
    }

    /// Takes out these sites of a file in a process, and waits until they are gone; those around them stay.
    ///
    /// # Errors
    /// As [`place`](Links::place).
    pub fn withdraw(
        &mut self,
        process: Option<&ProcessCode>,
        pid: u32,
        id: FileId,
        out: &HashSet<u32>,
    ) -> Result<(), Error> {
        self.settle_relinking()?;
        let (programs, most) = (self.programs, self.most);
        let Some(group) = self.groups.get_mut(&(pid, id)) else { return Ok(()) };
        let has_out = |link: &mut Link| link.sites.iter().any(|site| out.contains(&site.id));
        let old: Vec<Link> = group.links.extract_if(.., has_out).collect();
        let path = group.path.clone();
        let sites = old.iter().flat_map(|link| &link.sites).copied();
        let (gone, stay): (Vec<Placement>, Vec<Placement>) = sites.partition(|site| out.contains(&site.id));
        let (links, _) = link(programs, pid, &path, &stay, most)?;
        let links = self.numbered(links);
        self.groups.entry((pid, id)).and_modify(|group| group.links.extend(links));
        self.closing.close_first(old.into_iter().map(|link| link.probes).collect());
        if let (Some(process), Ok(file)) = (process, open_regular(&path)) {
            process.wait_for_removal(&file, gone.iter().map(|site| Spot::at(site.probe.file_offset)).collect());
        }
        Ok(())
    }

    /// The processes with sites.
    pub fn processes(&self) -> Vec<u32> {
        let mut pids: Vec<u32> = self.groups.keys().map(|(pid, _)| *pid).collect();
        pids.dedup();
        pids
    }

    /// The files of a process that have sites, with these sites.
    pub fn of(&self, pid: u32) -> Vec<(FileId, PathBuf, Vec<Placement>)> {
        let groups = self.groups.range((pid, (0, 0))..=(pid, (u64::MAX, u64::MAX)));
        let stays = |site: &&Placement| !self.out.contains(&site.id);
        let sites = |group: &Group| group.links.iter().flat_map(|link| &link.sites).filter(stays).copied().collect();
        groups.map(|((_, file), group)| (*file, group.path.clone(), sites(group))).collect()
    }

    /// The processes with sites in a file.
    pub fn processes_with(&self, file: FileId) -> impl Iterator<Item = u32> {
        self.groups.keys().filter(move |(_, of)| *of == file).map(|(pid, _)| *pid)
    }

    /// Takes out the sites of a process in these files, and waits until they are gone.
    ///
    /// # Errors
    /// As [`place`](Links::place).
    pub fn drop_files(&mut self, pid: u32, is_meant: impl Fn(FileId) -> bool) -> Result<(), Error> {
        self.settle_relinking()?;
        let of_process = self.groups.range((pid, (0, 0))..=(pid, (u64::MAX, u64::MAX)));
        let meant: Vec<_> = of_process.map(|(key, _)| *key).filter(|(_, file)| is_meant(*file)).collect();
        meant.iter().for_each(|key| drop(self.groups.remove(key)));
        Ok(())
    }

    /// Takes out all sites of processes that have ended; returns these.
    pub fn keep(&mut self, lives: impl Fn(u32) -> bool) -> HashSet<u32> {
        let ended: Vec<(u32, FileId)> = self.groups.keys().filter(|(pid, _)| !lives(*pid)).copied().collect();
        let groups = ended.iter().filter_map(|key| self.groups.remove(key));
        let probes = groups.flat_map(|group| group.links).map(|link| link.probes).collect();
        self.closing.close(probes);
        ended.into_iter().map(|(pid, _)| pid).collect()
    }

    /// Begins to take sites out, and to merge links where there are many small ones. Sites that are to go while that
    /// goes on follow the next time.
    pub fn tidy<'s>(&mut self, scope: &'s Scope<'s, '_>, out: &[u32])
    where
        'a: 's,
    {
        self.out.extend(out);
        if self.relinking.is_some() {
            return;
        }
        let most_small = if std::mem::take(&mut self.has_grown) { MOST_SMALL_WHILE_GROWING } else { MOST_SMALL };
        let all = self.relinkings(most_small);
        if all.is_empty() {
            // They have gone with their processes.
            return self.out.clear();
        }
        let (programs, most) = (self.programs, self.most);
        let (sender, receiver) = mpsc::channel();
        self.relinking = Some(receiver);
        scope.spawn(move || {
            host::run_anywhere();
            // With the priority of who asks: on a machine that is busy, sites that are to go would be hit for seconds more.
            let relink = |relinking: Relinking| {
                let linked = link(programs, relinking.group.0, &relinking.path, &relinking.sites, most);
                (relinking, linked.map(|(links, _)| links))
            };
            // Nobody listens any more where the recording fails.
            let _ = sender.send(all.into_iter().map(relink).collect());
        });
    }

    /// What is to be placed anew, so that there are not more small links of a file in a process.
    fn relinkings(&self, most_small: usize) -> Vec<Relinking> {
        let is_small = |link: &Link| link.sites.len() < self.most / SMALL;
        let has_out = |link: &Link| link.sites.iter().any(|site| self.out.contains(&site.id));
        let of_group = |(&key, group): (&(u32, FileId), &Group)| {
            let merges = group.links.iter().filter(|link| is_small(link)).count() > most_small;
            let changed = || group.links.iter().filter(|link| has_out(link) || (merges && is_small(link)));
            let old: Vec<u64> = changed().map(|link| link.number).collect();
            let stays = |site: &&Placement| !self.out.contains(&site.id);
            let sites = changed().flat_map(|link| &link.sites).filter(stays).copied().collect();
            (!old.is_empty()).then(|| Relinking { group: key, path: group.path.clone(), old, sites })
        };
        self.groups.iter().filter_map(of_group).collect()
    }

    /// Takes out what has been placed anew, if it has been.
    ///
    /// # Errors
    /// As [`place`](Links::place).
    pub fn take_relinked(&mut self) -> Result<(), Error> {
        match self.relinking.as_ref().map(Receiver::try_recv) {
            None | Some(Err(TryRecvError::Empty)) => Ok(()),
            Some(relinked) => self.replace(relinked.unwrap_or_default()),
        }
    }

    /// The same, and waits for it.
    fn settle_relinking(&mut self) -> Result<(), Error> {
        match &self.relinking {
            None => Ok(()),
            Some(relinking) => {
                let relinked = relinking.recv().unwrap_or_default();
                self.replace(relinked)
            }
        }
    }

    fn replace(&mut self, relinked: Vec<Relinked>) -> Result<(), Error> {
        self.relinking = None;
        let mut old = Vec::new();
        for (Relinking { group, old: numbers, sites, .. }, links) in relinked {
            let links = match links {
                Ok(links) => self.numbered(links),
                // The process has ended: nothing is hit any more. Where there is no room, the old ones stay.
                Err(error) if error.is_gone() || error.is_shortage() => continue,
                Err(error) => return Err(error),
            };
            let Some(group) = self.groups.get_mut(&group) else {
                old.extend(links.into_iter().map(|link| link.probes));
                continue;
            };
            // Those that were to go since then are still there.
            let stay: HashSet<u32> = sites.iter().map(|site| site.id).collect();
            for link in group.links.extract_if(.., |link| numbers.contains(&link.number)) {
                let gone = link.sites.iter().filter(|site| !stay.contains(&site.id));
                gone.for_each(|site| _ = self.out.remove(&site.id));
                old.push(link.probes);
            }
            group.links.extend(links);
        }
        self.closing.close(old);
        Ok(())
    }

    /// Waits until those that were taken out are gone.
    ///
    /// # Errors
    /// As [`place`](Links::place).
    pub fn settle(&mut self) -> Result<(), Error> {
        self.settle_relinking()?;
        self.closing.finish();
        Ok(())
    }

    /// The probes that are in place, once those that were taken out are gone. Nothing is being placed anew.
    pub fn into_probes(mut self) -> Vec<Probes> {
        self.take_probes()
    }

    fn take_probes(&mut self) -> Vec<Probes> {
        self.closing.finish();
        let groups = mem::take(&mut self.groups).into_values();
        groups.flat_map(|group| group.links).map(|link| link.probes).collect()
    }
}

impl Drop for Links<'_> {
    /// Where the recording has failed: one after the other, they take long.
    fn drop(&mut self) {
        attach::detach(self.take_probes());
    }
}

/// Places sites, not more than `most` by a link; returns the links, and the sites that the kernel refuses.
fn link(
    programs: &Programs,
    pid: u32,
    path: &Path,
    sites: &[Placement],
    most: usize,
) -> Result<(Vec<NewLink>, HashSet<u32>), Error> {
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
        links.extend(placed.into_iter().map(|(sites, probes)| (probes, sites.to_vec())));
    }
    Ok((links, refused))
}
