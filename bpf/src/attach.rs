//! Placing probes: many sites of one file at a time, by whichever mechanism was loaded.
//!
//! Nothing here knows what a hit means; that is in the cookie of each site.

use std::path::Path;

use libbpf_rs::{Link, ProgramMut, UprobeMultiOpts, UprobeOpts};

use crate::{Error, Mechanism, Programs};

/// What a site is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// An entry; the kernel hooks the return, unless the program refuses it.
    EnterAndReturn,
    /// An entry alone.
    Enter,
    /// An instruction through which control leaves a function.
    Exit,
}

/// Whose calls probes are for. A library that a process maps later gets its probes then.
#[derive(Clone, Copy, Debug)]
pub enum Scope<'a> {
    /// Those of these processes.
    Processes(&'a [u32]),
    /// Those of every process that maps the file.
    All,
}

/// Where to place probes by one link.
#[derive(Clone, Copy, Debug)]
pub struct AttachTarget<'a> {
    /// The file, by a path that rtrace can open.
    pub path: &'a Path,
    /// The only process to place probes in; `None`: every process that maps the file, now or later.
    pub pid: Option<u32>,
}

/// One instruction to probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// Offset of the instruction in the file, in bytes.
    pub file_offset: u64,
    /// Attach cookie, see [`entry_cookie`](crate::wire::entry_cookie).
    pub cookie: u64,
}

/// Probes that are in place. Dropping them takes them out.
#[derive(Debug)]
pub struct Probes {
    _links: Vec<Link>,
}

impl Probes {
    pub(crate) fn of(link: Link) -> Probes {
        Probes { _links: vec![link] }
    }
}

impl Programs {
    /// Places probes of one role: all or none.
    ///
    /// A session that hooks returns is placed in every process, whatever the scope, and the program
    /// refuses the calls of others: a link that the kernel filters by process says nothing in other
    /// processes, and there the kernel takes that for the wish to hook the return. It would, wherever
    /// somebody else has a probe at the same place.
    ///
    /// # Errors
    /// [`Error::Attach`] if the kernel refuses one of the sites, with its cause.
    pub fn attach(&self, role: Role, path: &Path, scope: Scope<'_>, sites: &[Site]) -> Result<Probes, Error> {
        let hooks_by_session = role == Role::EnterAndReturn && self.mechanism() == Mechanism::Session;
        let pids: Vec<Option<u32>> = match scope {
            Scope::Processes(pids) if !hooks_by_session => pids.iter().copied().map(Some).collect(),
            Scope::Processes(_) | Scope::All => vec![None],
        };
        let mut links = Vec::new();
        for pid in pids {
            let target = AttachTarget { path, pid };
            let placed = match self.mechanism() {
                Mechanism::Session | Mechanism::Multi => self.attach_multi(role, target, sites),
                Mechanism::Single => self.attach_single(role, target, sites),
            };
            let error = |source| Error::Attach { path: path.to_owned(), sites: sites.len(), source };
            links.extend(placed.map_err(error)?);
        }
        Ok(Probes { _links: links })
    }

    fn attach_multi(&self, role: Role, target: AttachTarget<'_>, sites: &[Site]) -> libbpf_rs::Result<Vec<Link>> {
        let progs = &self.skel.progs;
        let link = |program, kind| attach_sites(program, kind, target, sites);
        Ok(match role {
            Role::EnterAndReturn if self.mechanism() == Mechanism::Session => {
                vec![link(&progs.rt_session, LinkKind::Session)?]
            }
            Role::EnterAndReturn => {
                vec![link(&progs.rt_multi_return, LinkKind::Return)?, link(&progs.rt_multi_enter, LinkKind::Enter)?]
            }
            Role::Enter => vec![link(&progs.rt_multi_enter, LinkKind::Enter)?],
            Role::Exit => vec![link(&progs.rt_multi_exit, LinkKind::Enter)?],
        })
    }

    fn attach_single(&self, role: Role, target: AttachTarget<'_>, sites: &[Site]) -> libbpf_rs::Result<Vec<Link>> {
        let progs = &self.skel.progs;
        let mut links = Vec::with_capacity(sites.len());
        for site in sites {
            match role {
                Role::EnterAndReturn => {
                    links.push(attach_site(&progs.rt_single_return, LinkKind::Return, target, site)?);
                    links.push(attach_site(&progs.rt_single_enter, LinkKind::Enter, target, site)?);
                }
                Role::Enter => links.push(attach_site(&progs.rt_single_enter, LinkKind::Enter, target, site)?),
                Role::Exit => links.push(attach_site(&progs.rt_single_exit, LinkKind::Enter, target, site)?),
            }
        }
        Ok(links)
    }
}

/// What makes the kernel run a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkKind {
    /// The instruction at the site.
    Enter,
    /// The return of the function that begins at the site.
    Return,
    /// Both.
    Session,
}

/// One link for all sites.
pub(crate) fn attach_sites(
    program: &ProgramMut<'_>,
    kind: LinkKind,
    target: AttachTarget<'_>,
    sites: &[Site],
) -> libbpf_rs::Result<Link> {
    let options = UprobeMultiOpts {
        offsets: sites.iter().map(|site| site.file_offset as usize).collect(),
        cookies: sites.iter().map(|site| site.cookie).collect(),
        retprobe: kind == LinkKind::Return,
        session: kind == LinkKind::Session,
        ..Default::default()
    };
    program.attach_uprobe_multi_with_opts(pid_argument(target.pid), target.path, "", options)
}

/// A link for one site.
pub(crate) fn attach_site(
    program: &ProgramMut<'_>,
    kind: LinkKind,
    target: AttachTarget<'_>,
    site: &Site,
) -> libbpf_rs::Result<Link> {
    let options = UprobeOpts { cookie: site.cookie, retprobe: kind == LinkKind::Return, ..Default::default() };
    program.attach_uprobe_with_opts(pid_argument(target.pid), target.path, site.file_offset as usize, options)
}

fn pid_argument(pid: Option<u32>) -> i32 {
    pid.and_then(|pid| i32::try_from(pid).ok()).unwrap_or(-1)
}
