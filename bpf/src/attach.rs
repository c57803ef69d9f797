//! Placing probes: many sites of one file at a time, by whichever mechanism was loaded.
//!
//! Nothing here knows what a hit means; that is in the cookie of each site.

use std::borrow::Cow;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::path::Path;
use std::sync::Arc;

use libbpf_rs::{Link, ProgramMut, UprobeMultiOpts, UprobeOpts};

use crate::allowance::Share;
use crate::error::is_errno;
use crate::site::{AttachTarget, Role, Site};
use crate::{Error, Mechanism, Programs};

/// Probes that are in place. Dropping them takes them out.
#[derive(Debug)]
pub struct Probes {
    links: Vec<PlacedLink>,
}

#[derive(Debug)]
struct PlacedLink {
    /// The process that it was placed in.
    pid: u32,
    sites: usize,
    _link: Link,
    /// What it and those placed with it take of what is allowed, if that is limited.
    _share: Option<Arc<Share>>,
}

impl Probes {
    pub(crate) fn of(pid: u32, link: Link) -> Probes {
        Probes { links: vec![PlacedLink { pid, sites: 1, _link: link, _share: None }] }
    }

    /// Parts with those that were placed in this process.
    pub fn take_of(&mut self, pid: u32) -> Probes {
        Probes { links: self.links.extract_if(.., |link| link.pid == pid).collect() }
    }

    /// These, too.
    pub fn extend(&mut self, more: Probes) {
        self.links.extend(more.links);
    }

    /// The same, each link by itself.
    pub fn into_links(self) -> impl Iterator<Item = Probes> {
        self.links.into_iter().map(|link| Probes { links: vec![link] })
    }

    /// How many sites have them, each counted in each process.
    pub fn sites(&self) -> usize {
        self.links.iter().map(|link| link.sites).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.links.is_empty()
    }
}

impl Programs {
    /// Places probes of one role for the calls of these processes: all or none. A file that a process maps
    /// later gets its probes then; a process that has ended gets none, and neither does a place to
    /// [avoid](Programs::avoid).
    ///
    /// # Errors
    /// [`Error::Attach`] if the kernel refuses one of the sites, with its cause, or there are not enough
    /// [descriptors](Programs::keep_descriptors); [`Error::Limited`] beyond the [limit](Programs::limit).
    pub fn attach(&self, role: Role, path: &Path, pids: &[u32], sites: &[Site]) -> Result<Probes, Error> {
        let mut links = Vec::new();
        let failed = |source| Error::Attach { path: path.to_owned(), sites: sites.len(), source };
        for &pid in pids {
            self.check_descriptors(sites.len()).map_err(failed)?;
            let target = AttachTarget { path, pid };
            let sites = match &self.journal {
                Some(journal) => journal.note(pid, path, sites).map_err(Error::io("note where probes are placed"))?,
                None => Cow::Borrowed(sites),
            };
            if sites.is_empty() {
                continue;
            }
            let share =
                match &self.allowance {
                    Some(allowance) => Some(Arc::new(allowance.take(pid, sites.len()).ok_or_else(|| {
                        Error::Limited { path: path.to_owned(), sites: sites.len(), limit: allowance.limit() }
                    })?)),
                    None => None,
                };
            let attached = match self.mechanism() {
                Mechanism::Multi => self.attach_multi(role, target, &sites).map(|link| vec![link]),
                Mechanism::Single => sites.iter().map(|site| self.attach_single(role, target, site)).collect(),
            };
            match attached {
                Ok(attached) => {
                    let sites = sites.len() / attached.len();
                    let placed = |link| PlacedLink { pid, sites, _link: link, _share: share.clone() };
                    links.extend(attached.into_iter().map(placed));
                }
                Err(source) if is_errno(&source, libc::ESRCH) => {}
                Err(source) => return Err(failed(source)),
            }
        }
        Ok(Probes { links })
    }

    /// Fails as the kernel does where too many files are open.
    fn check_descriptors(&self, sites: usize) -> libbpf_rs::Result<()> {
        let needed = match self.mechanism() {
            Mechanism::Multi => 1,
            // The event and its link.
            Mechanism::Single => 2 * sites,
        };
        // The kernel gives out the lowest number that is free.
        let next = std::io::stderr().as_fd().try_clone_to_owned()?.as_raw_fd();
        if next as usize + needed > self.most_descriptors {
            return Err(libbpf_rs::Error::from_raw_os_error(libc::EMFILE));
        }
        Ok(())
    }

    fn attach_multi(&self, role: Role, target: AttachTarget<'_>, sites: &[Site]) -> libbpf_rs::Result<Link> {
        let progs = &self.skel.progs;
        match role {
            Role::Enter => attach_sites(&progs.rt_multi_enter, target, sites),
            Role::Return => attach_sites(&progs.rt_multi_return, target, sites),
        }
    }

    fn attach_single(&self, role: Role, target: AttachTarget<'_>, site: &Site) -> libbpf_rs::Result<Link> {
        let progs = &self.skel.progs;
        match role {
            Role::Enter => attach_site(&progs.rt_single_enter, target, site),
            Role::Return => attach_site(&progs.rt_single_return, target, site),
        }
    }
}

/// One link for all sites.
pub(crate) fn attach_sites(
    program: &ProgramMut<'_>,
    target: AttachTarget<'_>,
    sites: &[Site],
) -> libbpf_rs::Result<Link> {
    let semaphores: Vec<usize> = sites.iter().map(|site| site.semaphore as usize).collect();
    let options = UprobeMultiOpts {
        offsets: sites.iter().map(|site| site.file_offset as usize).collect(),
        cookies: sites.iter().map(|site| site.cookie).collect(),
        ref_ctr_offsets: if semaphores.iter().any(|&offset| offset > 0) { semaphores } else { Vec::new() },
        ..Default::default()
    };
    program.attach_uprobe_multi_with_opts(target.pid.cast_signed(), target.path, "", options)
}

/// A link for one site.
pub(crate) fn attach_site(program: &ProgramMut<'_>, target: AttachTarget<'_>, site: &Site) -> libbpf_rs::Result<Link> {
    let options = UprobeOpts { cookie: site.cookie, ref_ctr_offset: site.semaphore as usize, ..Default::default() };
    program.attach_uprobe_with_opts(target.pid.cast_signed(), target.path, site.file_offset as usize, options)
}
