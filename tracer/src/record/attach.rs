//! From a plan to probes in place.
//!
//! The kernel takes all sites of a link or none, so a refusal is narrowed down by halves until the
//! site at fault is known; it is then left out with the kernel's reason, and the others stay.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::os::unix::fs::MetadataExt as _;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle, ScopedJoinHandle};
use std::time::Duration;

use rtrace_bpf::journal::Probed;
use rtrace_bpf::wire::{
    ANYWHERE, PolicyCode, TailsCode, deep_cookie, entry_cookie, jump_cookie, laps_cookie, pops_cookie, pops_number,
    step_cookie, stub_cookie,
};
use rtrace_bpf::{Error, Probes, Programs, Role, Site};
use rtrace_code::copies::Registers;
use rtrace_code::instruction::SiteCost;
use rtrace_code::returning::Returning;
use rtrace_code::tails::Tails;
use rtrace_model::{Definition, ExitPolicy, Library, Region, RegionId, SourceLine, Timestamp};
use rtrace_plan as plan;
use rtrace_plan::{Plan, PlannedRegion, Reason, Refusal};
use rtrace_symbolizer::lines::Lines;

use crate::host;
use crate::record::fuse::Fuse;
use crate::record::limit::Limit;
use crate::record::pauses::{Busy, Pace, Pauses, timed};
use crate::stubs::Stubs;
use crate::target::code::Spot;
use crate::target::files::Pinned;
use crate::target::overlays;
use crate::target::presence::{Absent, Presence, ProcessCode};

/// Links of regions that can be throttled, at most. Each takes time whatever it has: on a machine with a load of 50 to 110,
/// 5,354 functions of two processes took 14 s of this thread's CPU time and 281 s with 950 links, 4.1 and 99 s with 267.
const MOST_GROUPS: usize = 1 << 9;

/// Sites of a link whose regions can be throttled, at most.
const MOST_TOGETHER: usize = 64;

/// Links that are closed at a time at the end, where they are few. Of 27, each with 1,024 sites, most stood in the
/// others' way: 11 us a site, where one alone takes 1 to 7.
const CLOSED_TOGETHER: usize = 12;

/// Links that are closed at a time while the program should not hit them any more, or where they are many: for each
/// the kernel takes out a few sites, and then waits for a grace period of RCU, which all wait for together.
const CLOSED_SOON: usize = 256;

/// Links with so many sites are closed together while the recording goes on, at most.
const SITES_TOGETHER: usize = 4096;

/// Probes in place. Dropping them takes them out.
#[derive(Default)]
pub struct Attachment {
    /// The regions with probes.
    pub regions: Vec<Region>,
    /// Regions that the kernel refused, by index of the library in the plan.
    pub refused: Vec<(usize, Refusal)>,
    /// Regions that can be throttled.
    pub throttleable: Vec<Throttleable>,
    /// What was placed, so that it can be placed in other processes, too.
    pub placed: Vec<Placed>,
    /// The probes, in this order.
    pub probes: Vec<Probes>,
}

/// Sites of a file that were placed together.
#[derive(Clone)]
pub struct Placed {
    /// The file.
    pub file: Arc<Pinned>,
    /// The library, as the programs name it.
    pub library: Arc<Library>,
    role: Role,
    sites: Arc<[Site]>,
    /// The functions whose calls enter at the sites, and where each begins, in this order.
    functions: Arc<[(RegionId, u64)]>,
}

impl Placed {
    /// How many sites there are.
    pub fn number(&self) -> usize {
        self.sites.len()
    }

    /// Whether the file holds what it held when its sites were chosen.
    pub fn is_unchanged(&self) -> bool {
        self.file.is_unchanged()
    }

    /// File offsets of the sites, in bytes.
    pub fn offsets(&self) -> impl Iterator<Item = u64> {
        self.sites.iter().map(|site| site.file_offset)
    }

    /// The sites, with what calls pass in front of them: in the library itself, from where the function begins.
    pub fn spots(&self) -> Vec<Spot> {
        let is_of_library = self.is_of_library();
        let spot = |(site, &(_, entry)): (&Site, &(RegionId, u64))| match is_of_library {
            true => Spot { entry, site: site.file_offset },
            false => Spot::at(site.file_offset),
        };
        self.sites.iter().zip(&*self.functions).map(spot).collect()
    }

    /// The functions whose calls enter at the sites.
    pub fn regions(&self) -> impl Iterator<Item = RegionId> {
        self.functions.iter().map(|(region, _)| *region)
    }

    /// Device and inode of the file.
    pub fn file_id(&self) -> Option<(u64, u64)> {
        self.file.file().metadata().ok().map(|metadata| (metadata.dev(), metadata.ino()))
    }

    /// Whether calls enter at the sites, and these lie in the library itself rather than in stubs.
    pub fn is_of_library(&self) -> bool {
        self.role == Role::Enter && self.file_id() == Some((self.library.device, self.library.inode))
    }

    /// Places no probes at these of the sites in a process any more.
    pub fn avoid(&self, programs: &Programs, pid: u32, sites: &[u64]) {
        let Some((device, inode)) = self.file_id() else { return };
        sites.iter().for_each(|&site| programs.avoid(Probed { pid, device, inode }, site));
    }

    /// Places the sites in another process.
    ///
    /// # Errors
    /// The process has ended, or the kernel refuses probes.
    pub fn place(&self, programs: &Programs, pid: u32) -> Result<Probes, Error> {
        self.place_some(programs, pid, |_| true)
    }

    /// Places those at these offsets.
    ///
    /// # Errors
    /// As [`place`](Placed::place).
    pub fn place_some(&self, programs: &Programs, pid: u32, is_meant: impl Fn(u64) -> bool) -> Result<Probes, Error> {
        let meant: Vec<Site> = self.sites.iter().copied().filter(|site| is_meant(site.file_offset)).collect();
        let path = self.file.path();
        programs.attach(self.role, &path, &overlays::reaching(&path, &[pid]), &meant)
    }
}

/// A region that can be throttled: its probes can be taken out and placed again.
pub struct Throttleable {
    /// The region.
    pub region: Region,
    /// As it was planned.
    planned: PlannedRegion,
    file: Arc<Pinned>,
    library: Arc<Library>,
    /// Whether it has a probe at first.
    pub is_placed: bool,
}

impl Throttleable {
    /// A path that leads to the file.
    pub fn path(&self) -> PathBuf {
        self.file.path()
    }

    /// The site at which its calls enter.
    pub fn entry(&self) -> Site {
        entry_of(&self.planned)
    }
}

/// Regions with probes, for the governor.
pub struct Governable {
    /// Those that come under its control.
    pub throttleable: Vec<Throttleable>,
    /// The others.
    pub fixed: Vec<Region>,
}

/// Processes that may run at a time where children are followed, as far as links are shared between them.
const FOLLOWED: usize = 16;

/// What is known of the regions of a plan before their probes are placed, where they can be throttled.
#[derive(Default)]
pub struct Admitted {
    /// They cost too much to be placed at first.
    pub left_out: HashSet<RegionId>,
    /// They are called, so that they may have to be taken out, each alone.
    pub called: HashSet<RegionId>,
    /// Processes that are to have links for them, at most.
    pub processes: usize,
}

impl Admitted {
    /// What is known of functions that nobody has looked at.
    pub fn unknown(limit: Limit<'_>) -> Admitted {
        let processes = limit.processes.max(if limit.follow { FOLLOWED } else { 1 });
        Admitted { processes, ..Admitted::default() }
    }

    fn leaves_out(&self, planned: &PlannedRegion) -> bool {
        !planned.is_needed() && self.left_out.contains(&planned.region.id)
    }

    /// The regions of a library by groups whose probes are placed and taken out together: each alone as long as links
    /// are few. Those that are needed whatever they cost are a group. What is called comes last: the process waits at each hit
    /// while others are placed.
    fn groups<'r>(&self, regions: &'r [PlannedRegion]) -> Vec<Vec<&'r PlannedRegion>> {
        let (needed, others): (Vec<_>, Vec<_>) = regions.iter().partition(|planned| planned.is_needed());
        let is_called = |planned: &&PlannedRegion| self.called.contains(&planned.region.id);
        let placed = others.into_iter().filter(|planned| !self.leaves_out(planned));
        let (called, quiet): (Vec<_>, Vec<_>) = placed.partition(is_called);
        let links = (MOST_GROUPS.min(host::allow_descriptors() / 4) / self.processes.max(1)).max(1);
        let together = quiet.len().div_ceil(links.saturating_sub(called.len()).max(1)).clamp(1, MOST_TOGETHER);
        let groups = [&*needed].into_iter().chain(quiet.chunks(together)).chain(called.chunks(1));
        groups.filter(|group| !group.is_empty()).map(<[_]>::to_vec).collect()
    }
}

impl Attachment {
    fn keep(&mut self, placing: Placing<'_>, file: &Arc<Pinned>, library: &Arc<Library>) {
        let begins: HashMap<RegionId, u64> =
            placing.regions.iter().map(|planned| (planned.region.id, planned.region.file_offset)).collect();
        for (role, sites, probes) in placing.placed {
            let (file, library) = (Arc::clone(file), Arc::clone(library));
            let functions = sites.iter().map(|(region, _)| (*region, begins[region])).collect();
            let sites = sites.into_iter().map(|(_, site)| site).collect();
            self.placed.push(Placed { file, library, role, sites, functions });
            self.probes.push(probes);
        }
    }

    /// Takes out the probes of these regions, which get none before the governor gives them some. Gives the others that lose
    /// theirs with them.
    fn take_out(&mut self, regions: &HashSet<RegionId>, closing: &mut Closing) -> Vec<RegionId> {
        if regions.is_empty() {
            return Vec::new();
        }
        let probes = std::mem::take(&mut self.probes);
        let together = std::mem::take(&mut self.placed).into_iter().zip(probes);
        let (gone, stay): (Vec<_>, Vec<_>) =
            together.partition(|(placed, _)| placed.regions().any(|region| regions.contains(&region)));
        (self.placed, self.probes) = stay.into_iter().unzip();
        let (gone, probes): (Vec<Placed>, Vec<Probes>) = gone.into_iter().unzip();
        closing.close(probes);
        for throttleable in self.throttleable.iter_mut().filter(|of| regions.contains(&of.region.id)) {
            throttleable.is_placed = false;
        }
        gone.iter().flat_map(Placed::regions).filter(|region| !regions.contains(region)).collect()
    }

    /// The regions with calls, each with its place in the sources, if that is known; `calls`: by region.
    pub fn located(&self, calls: &[u64], lines: &Lines) -> Vec<Definition> {
        let files: HashMap<_, _> = self.placed.iter().map(|placed| (placed.library.id, placed)).collect();
        let located = |region: &Region| {
            let Placed { file, library, .. } = files.get(&region.library)?;
            let line = lines.in_file(&file.reachable(Some(&library.path)), &library.path, region.file_offset)?;
            let SourceLine { file, line } =
                line.inlined.first().map_or(line.source, |first| first.called_at.clone())?;
            let (source_file, source_line) = (Some(file), (line > 0).then_some(line));
            Some(Definition::Region(Region { source_file, source_line, ..region.clone() }))
        };
        let is_called = |region: &&Region| calls.get(region.id.index()).is_some_and(|&calls| calls > 0);
        self.regions.iter().filter(is_called).filter_map(located).collect()
    }

    /// Gives those that can be throttled to the governor, and tells it of the others.
    pub fn hand_over(&mut self) -> Governable {
        let throttleable = std::mem::take(&mut self.throttleable);
        let can_be: HashSet<RegionId> = throttleable.iter().map(|of| of.region.id).collect();
        let others = self.regions.iter().filter(|region| !can_be.contains(&region.id));
        Governable { fixed: others.cloned().collect(), throttleable }
    }

    /// Fails where a file has changed since it was looked at.
    ///
    /// # Errors
    /// It has.
    pub fn check_unchanged(&self) -> Result<(), Error> {
        let together = self.placed.iter().map(|placed| (&placed.file, &placed.library));
        let mut together = together.filter(|(file, _)| !file.is_unchanged());
        together.next().map_or(Ok(()), |(file, library)| file.check(Path::new(&library.path)))
    }

    /// Refuses files of which processes have no probe, though they map them.
    ///
    /// # Errors
    /// The first of these.
    pub fn check(&self, pids: &[u32]) -> Result<(), Absent> {
        for process in pids.iter().filter_map(|&pid| ProcessCode::of(pid)) {
            let mut files: BTreeMap<(u64, u64), (&Placed, Vec<Spot>)> = BTreeMap::new();
            for placed in &self.placed {
                let Some(id) = placed.file_id() else { continue };
                let of_file = files.entry(id).or_insert_with(|| (placed, Vec::new()));
                of_file.1.extend(placed.offsets().map(Spot::at));
            }
            let mut presences =
                files.into_values().filter_map(|(placed, spots)| process.presence(placed.file.file(), spots));
            presences.try_for_each(Presence::check)?;
        }
        Ok(())
    }
}

/// Takes probes out, in this order.
pub fn detach(probes: Vec<Probes>) {
    detach_links(probes.into_iter().flat_map(Probes::into_links).collect());
}

/// Takes probes out of these processes, in this order and at this pace. Each link waits for a grace period once its sites are
/// gone; meanwhile the next are taken out.
pub fn detach_slowly(probes: Vec<Probes>, pids: &[u32], pauses: Pauses) {
    let links: Vec<Probes> = probes.into_iter().flat_map(Probes::into_links).collect();
    let threads = links.len().min(CLOSED_SOON);
    let rest = Mutex::new((links.into_iter(), Pace::new(pauses, pids)));
    let rest = || rest.lock().unwrap_or_else(PoisonError::into_inner);
    let next = || {
        let (links, pace) = &mut *rest();
        let link = links.next()?;
        let (expected, pause) = pace.begin(link.sites());
        Some((link, expected, pause))
    };
    let close_some = || {
        while let Some((link, expected, pause)) = next() {
            thread::sleep(pause);
            let sites = link.sites();
            let (_, worked) = timed(|| drop(link));
            rest().1.end(sites, expected, worked);
        }
    };
    thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(close_some))));
}

/// Takes out links, some at a time: the kernel takes out the sites of each one by one, for which it lets only one thread
/// in, and then waits, which several can do together.
pub fn detach_links<T: Send>(links: Vec<T>) {
    let are_many = links.len() > CLOSED_SOON;
    close(links, if are_many { CLOSED_SOON } else { CLOSED_TOGETHER });
}

/// Takes probes out, so many links at a time; gives the CPU time that it took.
fn close<T: Send>(probes: Vec<T>, together: usize) -> Duration {
    let threads = probes.len().min(together);
    let rest = Mutex::new(probes.into_iter());
    let next = || rest.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || timed(|| while next().map(drop).is_some() {}).1;
    thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let own = work();
        let joined = |thread: ScopedJoinHandle<'_, _>| thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        own + others.into_iter().map(joined).sum::<Duration>()
    })
}

/// Probes that are taken out while the recording goes on.
#[derive(Default)]
pub struct Closing {
    at_work: Vec<JoinHandle<()>>,
    /// When the last one that is over was, in nanoseconds of the host's clock.
    last_end: Arc<AtomicU64>,
    /// Nanoseconds of CPU time that those took which are over.
    worked: Arc<AtomicU64>,
}

impl Closing {
    /// Takes probes out, for which nobody waits now. Who places a probe meanwhile waits at each site for all others that
    /// place or remove one: of large links, few are closed together.
    pub fn close(&mut self, probes: Vec<Probes>) {
        self.spawn(probes, SITES_TOGETHER, host::run_as_usual);
    }

    /// The same of few probes that are hit often until they are gone.
    pub fn close_first(&mut self, probes: Vec<Probes>) {
        self.spawn(probes, usize::MAX, || ());
    }

    fn spawn(&mut self, probes: Vec<Probes>, sites_together: usize, begin: fn()) {
        self.at_work.retain(|closing| !closing.is_finished());
        if !probes.is_empty() {
            let links: Vec<Probes> = probes.into_iter().flat_map(Probes::into_links).collect();
            let sites = links.iter().map(Probes::sites).sum::<usize>() / links.len().max(1);
            let together = (sites_together / sites.max(1)).clamp(1, CLOSED_SOON);
            let (last_end, worked) = (Arc::clone(&self.last_end), Arc::clone(&self.worked));
            self.at_work.push(thread::spawn(move || {
                host::run_anywhere();
                begin();
                worked.fetch_add(close(links, together).as_nanos() as u64, Ordering::Relaxed);
                last_end.fetch_max(host::now().0, Ordering::SeqCst);
            }));
        }
    }

    /// Whether all are gone.
    pub fn is_done(&self) -> bool {
        self.at_work.iter().all(JoinHandle::is_finished)
    }

    /// The CPU time that it took, once all are gone.
    pub fn worked(&self) -> Duration {
        Duration::from_nanos(self.worked.load(Ordering::Relaxed))
    }

    /// Whether some were being taken out at that time, or later.
    pub fn was_at_work(&self, since: Timestamp) -> bool {
        !self.is_done() || self.last_end.load(Ordering::SeqCst) >= since.0
    }

    /// Waits until all are gone.
    pub fn finish(&mut self) {
        for closing in self.at_work.drain(..) {
            closing.join().unwrap_or_else(|panic| resume_unwind(panic));
        }
    }
}

/// Places the probes of a plan in these processes, those on its stubs too; where regions are to be throttled, of those that
/// are `admitted`, and not called too often for the `fuse` while others are placed. A region with a stub cannot be.
///
/// # Errors
/// The kernel refuses probes for a reason that has nothing to do with a single site.
pub fn attach(
    programs: &Programs,
    plan: &Plan,
    pids: &[u32],
    stubs: Option<&Stubs>,
    admitted: Option<&Admitted>,
    mut fuse: Option<Fuse<'_>>,
) -> Result<Attachment, Error> {
    describe(programs, plan)?;
    let mut attachment = Attachment::default();
    let mut pauses = fuse.as_ref().map(|fuse| (fuse.limit().pauses(), Busy::new(pids)));
    // Regions whose probes went with those of others.
    let (mut innocent, mut closing) = (HashSet::new(), Closing::default());
    for (index, planned_library) in plan.libraries.iter().enumerate() {
        let library = Arc::new(planned_library.library.clone());
        let file = Arc::new(Pinned::open(&planned_library.attach_path, planned_library.stamp)?);
        let pids = &*overlays::reaching(&file.path(), pids);
        let groups = match admitted {
            Some(admitted) => admitted.groups(&planned_library.regions),
            None => vec![planned_library.regions.iter().collect()],
        };
        let throttleable = |planned: &PlannedRegion, is_placed| {
            let (file, library) = (Arc::clone(&file), Arc::clone(&library));
            Throttleable { region: planned.region.clone(), planned: planned.clone(), file, library, is_placed }
        };
        let left_out =
            planned_library.regions.iter().filter(|planned| admitted.is_some_and(|of| of.leaves_out(planned)));
        for planned in left_out {
            attachment.regions.push(planned.region.clone());
            attachment.throttleable.push(throttleable(planned, false));
        }
        for regions in &groups {
            if fuse.as_ref().is_some_and(|fuse| fuse.limit().is_stopped()) {
                break;
            }
            let mut placing = Placing { programs, path: file.path(), regions, pids, placed: Vec::new() };
            let (refused, worked) = timed(|| placing.entries());
            let refused = refused?;
            let stub_of = |planned: &PlannedRegion| match refused.contains_key(&planned.region.id) {
                true => None,
                false => {
                    let file_offset = stubs?.offset(planned.region.id)?;
                    Some(plan::EntrySite {
                        file_offset,
                        cost: SiteCost::Emulated,
                        words: 0,
                        registers: Registers::default(),
                    })
                }
            };
            for &planned in regions {
                let Some(cause) = refused.get(&planned.region.id) else {
                    let region = Region { stub: stub_of(planned).is_some(), ..planned.region.clone() };
                    if admitted.is_some() && !planned.is_needed() {
                        attachment.throttleable.push(throttleable(planned, true));
                    }
                    attachment.regions.push(region);
                    continue;
                };
                let reason = Reason::Kernel(cause.to_string());
                attachment.refused.push((index, Refusal { name: planned.region.name.clone(), reason }));
            }
            attachment.keep(placing, &file, &library);
            if let Some(stubs) = stubs {
                let path = stubs.path();
                let mut placing = Placing { programs, path: path.clone(), regions, pids, placed: Vec::new() };
                placing.stubs(stub_of)?;
                attachment.keep(placing, &Arc::new(Pinned::open(&path, None)?), &library);
            }
            let Some((fuse, (pauses, busy))) = fuse.as_mut().zip(pauses.as_mut()) else { continue };
            pauses.watched(worked.mul_f64(busy.part()), || {
                let placed = attachment.throttleable.iter().filter(|of| of.is_placed).map(|of| &of.region);
                let costly = fuse.too_costly(placed);
                innocent.extend(attachment.take_out(&costly, &mut closing));
            });
        }
    }
    closing.finish();
    let is_innocent = |of: &&Throttleable| of.is_placed && innocent.contains(&of.region.id);
    let again: Vec<&Throttleable> = attachment.throttleable.iter().filter(is_innocent).collect();
    let mut placed_again = Vec::new();
    for of_file in again.chunk_by(|a, b| Arc::ptr_eq(&a.file, &b.file)) {
        for group in of_file.chunks(MOST_TOGETHER) {
            let place = || place_again(programs, pids, group);
            placed_again.push(match &mut pauses {
                Some((pauses, busy)) => pauses.around(busy, place),
                None => place(),
            }?);
        }
    }
    for Attachment { placed, probes, .. } in placed_again {
        attachment.placed.extend(placed);
        attachment.probes.extend(probes);
    }
    fuse.map_or(Ok(()), Fuse::end)?;
    Ok(attachment)
}

/// Places probes of throttled regions of a file anew, which are taken out together the next time.
///
/// # Errors
/// The kernel refuses probes for a reason that has nothing to do with a single site.
pub fn place_again(programs: &Programs, pids: &[u32], regions: &[&Throttleable]) -> Result<Attachment, Error> {
    let mut attachment = Attachment::default();
    let Some(Throttleable { file, library, .. }) = regions.first() else { return Ok(attachment) };
    let planned: Vec<&PlannedRegion> = regions.iter().map(|region| &region.planned).collect();
    let (path, pids) = (file.path(), &*overlays::reaching(&file.path(), pids));
    let mut placing = Placing { programs, path, regions: &planned, pids, placed: Vec::new() };
    placing.entries()?;
    attachment.keep(placing, file, library);
    Ok(attachment)
}

/// A site of a region with its cookie, which also tells what our program does in the kernel's place.
fn site(planned: &PlannedRegion, entry: plan::EntrySite) -> Site {
    let plan::EntrySite { file_offset, cost, words, .. } = entry;
    let cookie = match cost {
        SiteCost::BpfEmulated(step) => step_cookie(cookie(planned), step, file_offset),
        SiteCost::Emulated | SiteCost::SingleStep => deep_cookie(cookie(planned), words),
    };
    Site { semaphore: planned.marker.unwrap_or(0), ..Site::new(file_offset, cookie) }
}

/// The site at which a region's calls enter.
pub fn entry_of(planned: &PlannedRegion) -> Site {
    site(planned, planned.entry)
}

/// The cookie of the sites at which a region's calls enter.
fn cookie(planned: &PlannedRegion) -> u64 {
    let policy = match planned.region.exit {
        ExitPolicy::ReturnSite if planned.never_returns() => PolicyCode::RT_POLICY_NEVER,
        ExitPolicy::ReturnSite => PolicyCode::RT_POLICY_RETURN_SITE,
        ExitPolicy::EntryOnly if planned.marker.is_some() => PolicyCode::RT_POLICY_PLACE,
        ExitPolicy::EntryOnly => PolicyCode::RT_POLICY_ENTRY_ONLY,
    };
    let tails = match planned.tails {
        Tails::Never => TailsCode::RT_TAILS_NEVER,
        _ if planned.abandons => TailsCode::RT_TAILS_DOUBTFUL,
        Tails::To(_) => TailsCode::RT_TAILS_KNOWN,
        Tails::Anywhere => TailsCode::RT_TAILS_ANYWHERE,
    };
    let cookie = entry_cookie(planned.region.id.0, policy, tails);
    let cookie = if planned.laps { laps_cookie(cookie) } else { cookie };
    let cookie = if planned.returning == Returning::default() { cookie } else { pops_cookie(cookie) };
    planned.jump.map_or(cookie, |jump| jump_cookie(cookie, jump))
}

/// Tells the kernel side which functions of a plan end in jumps to which others, and within which calls are recorded.
fn describe(programs: &Programs, plan: &Plan) -> Result<(), Error> {
    for library in &plan.libraries {
        let by_offset: HashMap<u64, u32> =
            library.regions.iter().map(|planned| (planned.region.file_offset, planned.region.id.0)).collect();
        let tails = library.regions.iter().flat_map(|planned| {
            let to: Vec<u32> = match &planned.tails {
                Tails::To(offsets) => offsets.iter().filter_map(|offset| by_offset.get(offset)).copied().collect(),
                Tails::Anywhere => vec![ANYWHERE],
                Tails::Never => Vec::new(),
            };
            to.into_iter().map(|to| (planned.region.id.0, to))
        });
        programs.set_tail_calls(tails)?;
        let odd = library.regions.iter().filter(|planned| planned.returning != Returning::default());
        programs.set_pops(odd.map(|planned| {
            let Returning { pops, overwrites, is_unknown } = planned.returning;
            (planned.region.id.0, pops_number(pops, overwrites, is_unknown))
        }))?;
        let openers = library.regions.iter().filter(|planned| planned.opens);
        programs.set_openers(openers.map(|planned| planned.region.id.0))?;
    }
    Ok(())
}

struct Placing<'a> {
    programs: &'a Programs,
    path: PathBuf,
    regions: &'a [&'a PlannedRegion],
    pids: &'a [u32],
    placed: Vec<(Role, Vec<RegionSite>, Probes)>,
}

/// A site with the region that it serves.
type RegionSite = (RegionId, Site);

fn bare(sites: &[RegionSite]) -> Vec<Site> {
    sites.iter().map(|&(_, site)| site).collect()
}

impl Placing<'_> {
    /// Places the entry sites; returns the regions that the kernel refuses, with its reason.
    fn entries(&mut self) -> Result<HashMap<RegionId, String>, Error> {
        self.place(Role::Enter, &self.sites(|planned| Some(planned.entry)))
    }

    /// Places the sites in the stubs' file. A stub without a probe would hide calls, so all are placed.
    fn stubs(&mut self, stub_of: impl Fn(&PlannedRegion) -> Option<plan::EntrySite>) -> Result<(), Error> {
        let of_stub = |(region, site): RegionSite| (region, Site { cookie: stub_cookie(site.cookie), ..site });
        let sites: Vec<RegionSite> = self.sites(&stub_of).into_iter().map(of_stub).collect();
        if !sites.is_empty() {
            let probes = self.programs.attach(Role::Enter, &self.path, self.pids, &bare(&sites))?;
            self.placed.push((Role::Enter, sites, probes));
        }
        Ok(())
    }

    /// The sites at which calls enter, where each region has one.
    fn sites(&self, entry: impl Fn(&PlannedRegion) -> Option<plan::EntrySite>) -> Vec<RegionSite> {
        let site = |&planned: &&PlannedRegion| Some((planned.region.id, site(planned, entry(planned)?)));
        self.regions.iter().filter_map(site).collect()
    }

    /// Places sites; returns what the kernel refuses.
    fn place(&mut self, role: Role, sites: &[RegionSite]) -> Result<HashMap<RegionId, String>, Error> {
        let mut refused = HashMap::new();
        let attach = |sites: &[RegionSite]| self.programs.attach(role, &self.path, self.pids, &bare(sites));
        let links = place(sites, &attach, &mut |(region, _), error| {
            refused.insert(*region, error.cause());
        })?;
        self.placed.extend(links.into_iter().map(|(sites, probes)| (role, sites.to_vec(), probes)));
        Ok(refused)
    }
}

/// Places sites by as few links as possible, and gives each link with its sites. A site that the kernel refuses is
/// found by halves.
///
/// # Errors
/// The kernel refuses probes for a reason that has nothing to do with a single site.
pub fn place<'s, S>(
    sites: &'s [S],
    attach: &impl Fn(&[S]) -> Result<Probes, Error>,
    refuse: &mut impl FnMut(&S, Error),
) -> Result<Vec<(&'s [S], Probes)>, Error> {
    if sites.is_empty() {
        return Ok(Vec::new());
    }
    match (sites, attach(sites)) {
        (_, Ok(probes)) => Ok(vec![(sites, probes)]),
        (_, Err(error)) if !error.is_about_a_site() => Err(error),
        ([site], Err(error)) => {
            refuse(site, error);
            Ok(Vec::new())
        }
        (_, Err(_)) => {
            let (left, right) = sites.split_at(sites.len() / 2);
            let mut links = place(left, attach, refuse)?;
            links.extend(place(right, attach, refuse)?);
            Ok(links)
        }
    }
}
