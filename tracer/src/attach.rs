//! From a plan to probes in place.
//!
//! The kernel takes all sites of a link or none, so a refusal is narrowed down by halves until the
//! site at fault is known; it is then left out with the kernel's reason, and the others stay.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::thread;

use rtrace_bpf::wire::{PolicyCode, count_cookie, deep_cookie, entry_cookie, step_cookie};
use rtrace_bpf::{Error, Probes, Programs, Role, Scope, Site};
use rtrace_model::{ExitPolicy, Region, RegionId};

use crate::governor::Placed;
use crate::plan::{self, Plan, PlannedRegion, Refusal, SiteCost};
use crate::stubs::Stubs;

/// Regions whose probes can be taken out alone, at the most. The kernel needs some milliseconds for
/// each of their links when all go.
pub const MOST_APART: usize = 1024;

/// Links that are closed at a time: each waits for the kernel, and they can wait together.
const CLOSED_TOGETHER: usize = 64;

/// Probes in place. Dropping them takes them out.
pub struct Attachment {
    /// The regions with probes, with the exit policy that came about.
    pub regions: Vec<Region>,
    /// Regions that the kernel refused, by index of the library in the plan.
    pub refused: Vec<(usize, Refusal)>,
    /// Regions whose probes can be taken out alone.
    pub apart: Vec<Apart>,
    /// The probes of the others.
    probes: Vec<Probes>,
}

/// A region whose probes can be taken out and placed again without touching others.
pub struct Apart {
    /// The region, with the exit policy that came about.
    pub region: Region,
    /// As it was planned.
    pub planned: PlannedRegion,
    /// The file, by a path that rtrace can open.
    pub path: PathBuf,
    /// Its probes.
    pub probes: Vec<Probes>,
}

impl Apart {
    /// Places the region's probes.
    ///
    /// # Errors
    /// The kernel refuses probes for a reason that has nothing to do with a single site.
    pub fn place(&self, programs: &Programs, scope: Scope<'_>) -> Result<Vec<Probes>, Error> {
        let mut placing = Placing { programs, path: &self.path, regions: &[&self.planned], scope, probes: Vec::new() };
        placing.entries()?;
        Ok(placing.probes)
    }

    /// The site at which its calls are only counted.
    pub fn counting_site(&self) -> Site {
        site(self.planned.entry, count_cookie(self.region.id.0))
    }
}

impl Attachment {
    /// Gives those that can be taken out alone to the governor, and tells it of the others.
    pub fn hand_over(&mut self) -> Placed {
        let apart = std::mem::take(&mut self.apart);
        let is_apart: HashSet<RegionId> = apart.iter().map(|apart| apart.region.id).collect();
        let others = self.regions.iter().filter(|region| !is_apart.contains(&region.id));
        Placed { fixed: others.cloned().collect(), apart }
    }

    /// Takes the probes out.
    pub fn detach(self) {
        detach(self.probes.into_iter().chain(self.apart.into_iter().flat_map(|apart| apart.probes)).collect());
    }
}

/// Takes probes out, those of many links together.
pub fn detach(mut probes: Vec<Probes>) {
    let share = probes.len().div_ceil(CLOSED_TOGETHER).max(1);
    thread::scope(|scope| {
        while !probes.is_empty() {
            let some = probes.split_off(probes.len().saturating_sub(share));
            scope.spawn(move || drop(some));
        }
    });
}

/// Places the probes of a plan, those on its stubs too; where regions are wanted `apart`, those of small
/// functions, which are called most, so that they can be taken out alone. A region with a stub cannot.
///
/// # Errors
/// The kernel refuses probes for a reason that has nothing to do with a single site.
pub fn attach(
    programs: &Programs,
    plan: &Plan,
    scope: Scope<'_>,
    stubs: Option<&Stubs>,
    apart: bool,
) -> Result<Attachment, Error> {
    let mut attachment = Attachment { regions: Vec::new(), refused: Vec::new(), apart: Vec::new(), probes: Vec::new() };
    let alone = if apart && stubs.is_none() { smallest(plan) } else { HashSet::new() };
    for (index, library) in plan.libraries.iter().enumerate() {
        let (single, together): (Vec<&PlannedRegion>, Vec<&PlannedRegion>) =
            library.regions.iter().partition(|planned| alone.contains(&planned.region.id));
        for regions in single.chunks(1).chain([together.as_slice()]) {
            let mut placing = Placing { programs, path: &library.attach_path, regions, scope, probes: Vec::new() };
            let refused = placing.entries()?;
            let stub_of = |planned: &PlannedRegion| match refused.contains_key(&planned.region.id) {
                true => None,
                false => Some(plan::Site {
                    file_offset: stubs?.offset(planned.region.id)?,
                    cost: SiteCost::Emulated,
                    words: 0,
                }),
            };
            if let Some(stubs) = stubs {
                placing.stubs(&stubs.path(), stub_of)?;
            }
            for &planned in regions {
                let Some(cause) = refused.get(&planned.region.id) else {
                    let region = Region { stub: stub_of(planned).is_some(), ..planned.region.clone() };
                    if alone.contains(&region.id) {
                        let (planned, path) = (planned.clone(), library.attach_path.clone());
                        let probes = std::mem::take(&mut placing.probes);
                        attachment.apart.push(Apart { region: region.clone(), planned, path, probes });
                    }
                    attachment.regions.push(region);
                    continue;
                };
                let reason = format!("refused by the kernel: {cause}");
                attachment.refused.push((index, Refusal { name: planned.region.name.clone(), reason }));
            }
            attachment.probes.append(&mut placing.probes);
        }
    }
    Ok(attachment)
}

/// The smallest functions of a plan.
fn smallest(plan: &Plan) -> HashSet<RegionId> {
    let regions = plan.libraries.iter().flat_map(|library| &library.regions);
    let mut sizes: Vec<(u64, RegionId)> = regions.map(|planned| (planned.region.size, planned.region.id)).collect();
    sizes.sort_unstable();
    sizes.into_iter().take(MOST_APART).map(|(_, id)| id).collect()
}

/// A site with its cookie, which also tells what our program does in the kernel's place.
fn site(planned: plan::Site, cookie: u64) -> Site {
    let plan::Site { file_offset, cost, words } = planned;
    let cookie = match cost {
        SiteCost::Written(step) => step_cookie(cookie, step, file_offset),
        SiteCost::Emulated | SiteCost::SingleStep => deep_cookie(cookie, words),
    };
    Site { file_offset, cookie }
}

struct Placing<'a> {
    programs: &'a Programs,
    path: &'a Path,
    regions: &'a [&'a PlannedRegion],
    scope: Scope<'a>,
    probes: Vec<Probes>,
}

/// A site with the region that it serves.
type RegionSite = (RegionId, Site);

impl Placing<'_> {
    /// Places the entry sites; returns the regions that the kernel refuses, with its reason.
    fn entries(&mut self) -> Result<HashMap<RegionId, String>, Error> {
        let mut refused = HashMap::new();
        for (role, sites) in self.enters(|planned| Some(planned.entry)) {
            refused.extend(self.place(role, &sites)?);
        }
        Ok(refused)
    }

    /// Places the sites in the stubs' file. A stub without a probe would hide calls, so all are placed.
    fn stubs(&mut self, path: &Path, stub_of: impl Fn(&PlannedRegion) -> Option<plan::Site>) -> Result<(), Error> {
        for (role, sites) in self.enters(stub_of) {
            let sites: Vec<Site> = sites.into_iter().map(|(_, site)| site).collect();
            if !sites.is_empty() {
                self.probes.push(self.programs.attach(role, path, self.scope, &sites)?);
            }
        }
        Ok(())
    }

    /// The sites of enters, by their role, where each region has one.
    fn enters(&self, entry: impl Fn(&PlannedRegion) -> Option<plan::Site>) -> [(Role, Vec<RegionSite>); 2] {
        let (mut hooked, mut plain) = (Vec::new(), Vec::new());
        for &planned in self.regions {
            let id = planned.region.id;
            let (list, code) = match planned.exit.policy() {
                ExitPolicy::Uretprobe => (&mut hooked, PolicyCode::RT_POLICY_URETPROBE),
                ExitPolicy::ReturnSite => (&mut plain, PolicyCode::RT_POLICY_RET_SITE),
                ExitPolicy::EntryOnly => (&mut plain, PolicyCode::RT_POLICY_ENTRY_ONLY),
            };
            list.extend(entry(planned).map(|entry| (id, site(entry, entry_cookie(id.0, code)))));
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
        match self.programs.attach(role, self.path, self.scope, &bare) {
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
