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

/// Where to place probes.
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

impl Programs {
    /// Places probes of one role: all or none.
    ///
    /// # Errors
    /// [`Error::Attach`] if the kernel refuses one of the sites, with its cause.
    pub fn attach(&self, role: Role, target: AttachTarget<'_>, sites: &[Site]) -> Result<Probes, Error> {
        let error = |source| Error::Attach { path: target.path.to_owned(), sites: sites.len(), source };
        let links = match self.mechanism() {
            Mechanism::Session | Mechanism::Multi => self.attach_multi(role, target, sites),
            Mechanism::Single => self.attach_single(role, target, sites),
        };
        Ok(Probes { _links: links.map_err(error)? })
    }

    fn attach_multi(&self, role: Role, target: AttachTarget<'_>, sites: &[Site]) -> libbpf_rs::Result<Vec<Link>> {
        let progs = &self.skel.progs;
        let link = |program: &ProgramMut<'_>, retprobe: bool, session: bool| {
            let options = UprobeMultiOpts {
                offsets: sites.iter().map(|site| site.file_offset as usize).collect(),
                cookies: sites.iter().map(|site| site.cookie).collect(),
                retprobe,
                session,
                ..Default::default()
            };
            program.attach_uprobe_multi_with_opts(pid_argument(target.pid), target.path, "", options)
        };
        Ok(match role {
            Role::EnterAndReturn if self.mechanism() == Mechanism::Session => {
                vec![link(&progs.rt_session, false, true)?]
            }
            Role::EnterAndReturn => {
                vec![link(&progs.rt_multi_return, true, false)?, link(&progs.rt_multi_enter, false, false)?]
            }
            Role::Enter => vec![link(&progs.rt_multi_enter, false, false)?],
            Role::Exit => vec![link(&progs.rt_multi_exit, false, false)?],
        })
    }

    fn attach_single(&self, role: Role, target: AttachTarget<'_>, sites: &[Site]) -> libbpf_rs::Result<Vec<Link>> {
        let progs = &self.skel.progs;
        let link = |program: &ProgramMut<'_>, site: &Site, retprobe: bool| {
            let options = UprobeOpts { cookie: site.cookie, retprobe, ..Default::default() };
            program.attach_uprobe_with_opts(pid_argument(target.pid), target.path, site.file_offset as usize, options)
        };
        let mut links = Vec::with_capacity(sites.len());
        for site in sites {
            match role {
                Role::EnterAndReturn => {
                    links.push(link(&progs.rt_single_return, site, true)?);
                    links.push(link(&progs.rt_single_enter, site, false)?);
                }
                Role::Enter => links.push(link(&progs.rt_single_enter, site, false)?),
                Role::Exit => links.push(link(&progs.rt_single_exit, site, false)?),
            }
        }
        Ok(links)
    }
}

fn pid_argument(pid: Option<u32>) -> i32 {
    pid.and_then(|pid| i32::try_from(pid).ok()).unwrap_or(-1)
}
