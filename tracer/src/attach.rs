//! From a plan to probes in place.
//!
//! The kernel takes all sites of a link or none, so a refusal is narrowed down by halves until the
//! site at fault is known; it is then left out with the kernel's reason, and the others stay.
//! Exits go first: a region one of whose exits is refused is attached as entry-only, since an
//! enter without its exit would be a call that never ends.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use rtrace_bpf::wire::{PolicyCode, entry_cookie, exit_cookie};
use rtrace_bpf::{Error, Probes, Programs, Role, Scope, Site};
use rtrace_model::{ExitPolicy, Region, RegionId};

use crate::plan::{Plan, PlannedLibrary, PlannedRegion, Refusal};
use crate::stubs::Stubs;

/// Probes in place. Dropping them takes them out.
pub struct Attachment {
    /// The regions with probes, with the exit policy that came about.
    pub regions: Vec<Region>,
    /// Regions that the kernel refused, by index of the library in the plan.
    pub refused: Vec<(usize, Refusal)>,
    _probes: Vec<Probes>,
}

/// Places the probes of a plan, those on its stubs too.
///
/// # Errors
/// The kernel refuses probes for a reason that has nothing to do with a single site.
pub fn attach(programs: &Programs, plan: &Plan, scope: Scope<'_>, stubs: Option<&Stubs>) -> Result<Attachment, Error> {
    let mut attachment = Attachment { regions: Vec::new(), refused: Vec::new(), _probes: Vec::new() };
    for (index, library) in plan.libraries.iter().enumerate() {
        let mut placing = Placing { programs, library, scope, probes: Vec::new() };
        let unseen_exits = placing.exits()?;
        let refused = placing.entries(&unseen_exits)?;
        let stub_of = |planned: &PlannedRegion| match refused.contains_key(&planned.region.id) {
            true => None,
            false => stubs?.offset(planned.region.id),
        };
        if let Some(stubs) = stubs {
            placing.stubs(&stubs.path(), stub_of, &unseen_exits)?;
        }
        for planned in &library.regions {
            match refused.get(&planned.region.id) {
                Some(cause) => {
                    let reason = format!("refused by the kernel: {cause}");
                    attachment.refused.push((index, Refusal { name: planned.region.name.clone(), reason }));
                }
                None => {
                    let exit = policy(planned, &unseen_exits);
                    let stub = stub_of(planned).is_some();
                    attachment.regions.push(Region { exit, stub, ..planned.region.clone() });
                }
            }
        }
        attachment._probes.append(&mut placing.probes);
    }
    Ok(attachment)
}

fn policy(planned: &PlannedRegion, unseen_exits: &HashSet<RegionId>) -> ExitPolicy {
    if unseen_exits.contains(&planned.region.id) { ExitPolicy::EntryOnly } else { planned.exit.policy() }
}

struct Placing<'a> {
    programs: &'a Programs,
    library: &'a PlannedLibrary,
    scope: Scope<'a>,
    probes: Vec<Probes>,
}

/// A site with the region that it serves.
type RegionSite = (RegionId, Site);

impl Placing<'_> {
    /// Places the exit sites; returns the regions that have one the kernel refuses.
    fn exits(&mut self) -> Result<HashSet<RegionId>, Error> {
        let mut sites = Vec::new();
        for planned in &self.library.regions {
            if planned.is_left_at_once() {
                continue;
            }
            let id = planned.region.id;
            sites.extend(planned.exit.sites().iter().map(|exit| {
                let cookie = exit_cookie(id.0, exit.condition.map(|condition| condition.0));
                (id, Site { file_offset: exit.file_offset, cookie })
            }));
        }
        Ok(self.place(Role::Exit, &sites)?.into_keys().collect())
    }

    /// Places the entry sites; returns the regions that the kernel refuses, with its reason.
    fn entries(&mut self, unseen_exits: &HashSet<RegionId>) -> Result<HashMap<RegionId, String>, Error> {
        let mut refused = HashMap::new();
        for (role, sites) in self.enters(|planned| Some(planned.entry.file_offset), unseen_exits) {
            refused.extend(self.place(role, &sites)?);
        }
        Ok(refused)
    }

    /// Places the sites in the stubs' file. A stub without a probe would hide calls, so all are placed.
    fn stubs(
        &mut self,
        path: &Path,
        stub_of: impl Fn(&PlannedRegion) -> Option<u64>,
        unseen_exits: &HashSet<RegionId>,
    ) -> Result<(), Error> {
        for (role, sites) in self.enters(stub_of, unseen_exits) {
            let sites: Vec<Site> = sites.into_iter().map(|(_, site)| site).collect();
            if !sites.is_empty() {
                self.probes.push(self.programs.attach(role, path, self.scope, &sites)?);
            }
        }
        Ok(())
    }

    /// The sites of enters, by their role, with the file offset that each region has.
    fn enters(
        &self,
        file_offset: impl Fn(&PlannedRegion) -> Option<u64>,
        unseen_exits: &HashSet<RegionId>,
    ) -> [(Role, Vec<RegionSite>); 2] {
        let (mut hooked, mut plain) = (Vec::new(), Vec::new());
        for planned in &self.library.regions {
            let id = planned.region.id;
            let (list, code) = match policy(planned, unseen_exits) {
                ExitPolicy::Uretprobe => (&mut hooked, PolicyCode::RT_POLICY_URETPROBE),
                ExitPolicy::RetSite if planned.is_left_at_once() => (&mut plain, PolicyCode::RT_POLICY_INSTANT),
                ExitPolicy::RetSite => (&mut plain, PolicyCode::RT_POLICY_RET_SITE),
                ExitPolicy::EntryOnly => (&mut plain, PolicyCode::RT_POLICY_ENTRY_ONLY),
            };
            let site = |file_offset| (id, Site { file_offset, cookie: entry_cookie(id.0, code) });
            list.extend(file_offset(planned).map(site));
        }
        [(Role::EnterAndReturn, hooked), (Role::Enter, plain)]
    }

    /// Places sites; returns what the kernel refuses.
    fn place(&mut self, role: Role, sites: &[RegionSite]) -> Result<HashMap<RegionId, String>, Error> {
        let mut refused = HashMap::new();
        self.place_some(role, sites, &mut refused)?;
        Ok(refused)
    }

    fn place_some(
        &mut self,
        role: Role,
        sites: &[RegionSite],
        refused: &mut HashMap<RegionId, String>,
    ) -> Result<(), Error> {
        if sites.is_empty() {
            return Ok(());
        }
        let bare: Vec<Site> = sites.iter().map(|&(_, site)| site).collect();
        match self.programs.attach(role, &self.library.attach_path, self.scope, &bare) {
            Ok(probes) => self.probes.push(probes),
            Err(error) if !error.is_about_a_site() => return Err(error),
            Err(error) => match sites {
                [(region, _)] => {
                    refused.insert(*region, error.cause());
                }
                _ => {
                    let (left, right) = sites.split_at(sites.len() / 2);
                    self.place_some(role, left, refused)?;
                    self.place_some(role, right, refused)?;
                }
            },
        }
        Ok(())
    }
}
