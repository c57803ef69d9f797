//! Probes on the functions by which control leaves others without a return.
//!
//! Each process has its own, on the C library's `longjmp` and on the unwinder, so that calls which are left by
//! these end when they do. Where a library is traced, too, its own probes on these functions do the same.

use std::ops::Range;
use std::path::Path;

use foldhash::{HashMap, HashMapExt as _, HashSet};
use rtrace_bpf::journal::Probed;
use rtrace_bpf::wire::untraced_jump_cookie;
use rtrace_bpf::{Error, Probes, Programs, Role, Site};
use rtrace_model::Jump;
use rtrace_plan::{Plan, jump};
use rtrace_symbolizer::{Image, is_executable, select, soname};

use super::FileId;
use crate::record::attach::Closing;
use crate::record::jump_candidates::Candidate;
use crate::target::code::Spot;
use crate::target::files::Pinned;
use crate::target::presence::{CodeComparison, ProcessCode};

/// A file with its functions.
struct Known {
    file: Pinned,
    sites: Vec<Site>,
}

impl Known {
    fn has_changed(&self) -> bool {
        !self.file.is_unchanged()
    }
}

/// All of these probes.
pub(super) struct Jumps<'a> {
    programs: &'a Programs,
    /// The libraries that are traced from the beginning.
    traced: HashSet<FileId>,
    /// Their functions that have probes already, by file offset.
    has_probe: HashSet<(FileId, u64)>,
    /// Libraries that are traced, once they are loaded.
    patterns: Vec<String>,
    /// None for a file that will be traced or cannot be read.
    known: HashMap<FileId, Option<Known>>,
    placed: HashMap<(u32, FileId), Option<Probes>>,
    closing: Closing,
}

impl<'a> Jumps<'a> {
    /// None yet. `patterns`: which libraries are traced once they are loaded, beside those of the plan.
    pub fn new(programs: &'a Programs, plan: &Plan, patterns: &[String]) -> Jumps<'a> {
        let id = |library: &rtrace_model::Library| (library.device, library.inode);
        let has_probe = plan.libraries.iter().flat_map(|planned| {
            let regions = planned.regions.iter().filter(|region| region.jump.is_some());
            regions.map(move |region| (id(&planned.library), region.region.file_offset))
        });
        Jumps {
            programs,
            traced: plan.libraries.iter().map(|planned| id(&planned.library)).collect(),
            has_probe: has_probe.collect(),
            patterns: patterns.to_vec(),
            known: HashMap::new(),
            placed: HashMap::new(),
            closing: Closing::default(),
        }
    }

    /// Places probes in these files of a process; those that it has stay as they are.
    ///
    /// # Errors
    /// The kernel refuses probes for a reason that has nothing to do with a single site.
    pub fn place(&mut self, pid: u32, candidates: &[Candidate]) -> Result<(), Error> {
        for Candidate { id, name, path } in candidates {
            if self.placed.contains_key(&(pid, *id)) {
                continue;
            }
            let is_named = |pattern: &String| select::names(pattern, name, || soname(path));
            let will_be_traced = || !self.traced.contains(id) && self.patterns.iter().any(is_named);
            let has_probe = &self.has_probe;
            let is_traced = self.traced.contains(id);
            let look = || match will_be_traced() {
                true => None,
                false => known(name, path, is_traced, |offset| has_probe.contains(&(*id, offset))),
            };
            self.known.entry(*id).or_insert_with(look);
            self.link(pid, *id)?;
        }
        Ok(())
    }

    /// Places in a child what its parent has.
    ///
    /// # Errors
    /// As [`place`](Jumps::place).
    pub fn adopt(&mut self, pid: u32, parent: u32) -> Result<(), Error> {
        let files: Vec<FileId> = self.placed.keys().filter(|(of, _)| *of == parent).map(|(_, file)| *file).collect();
        files.into_iter().try_for_each(|file| self.link(pid, file))
    }

    fn link(&mut self, pid: u32, id: FileId) -> Result<(), Error> {
        let Some(Some(Known { file, sites })) = self.known.get(&id) else { return Ok(()) };
        if sites.is_empty() || !file.is_unchanged() {
            return Ok(());
        }
        let probes = match self.programs.attach(Role::Enter, &file.path(), &[pid], sites) {
            Ok(probes) => Some(probes),
            // Then these jumps go unseen.
            Err(error) if error.is_gone() || error.is_shortage() || error.is_about_a_site() => None,
            Err(error) => return Err(error),
        };
        self.placed.insert((pid, id), probes);
        Ok(())
    }

    /// Takes the probes at these places of a file out of a process, and waits until they are gone; those around them stay.
    ///
    /// # Errors
    /// As [`place`](Jumps::place).
    pub fn withdraw(
        &mut self,
        process: &ProcessCode,
        pid: u32,
        id: FileId,
        is_meant: impl Fn(u64) -> bool,
    ) -> Result<(), Error> {
        let Some(Some(Known { file, sites })) = self.known.get(&id) else { return Ok(()) };
        let meant: Vec<u64> = sites.iter().map(|site| site.file_offset).filter(|&offset| is_meant(offset)).collect();
        let placed = self.placed.get_mut(&(pid, id)).filter(|_| !meant.is_empty());
        let Some(old) = placed.and_then(Option::take) else { return Ok(()) };
        let probed = Probed { pid, device: id.0, inode: id.1 };
        meant.iter().for_each(|&offset| self.programs.avoid(probed, offset));
        self.closing.close_first(vec![old]);
        process.wait_for_removal(file.file(), sites.iter().map(|site| Spot::at(site.file_offset)).collect());
        self.link(pid, id)
    }

    /// Places the probes that were withdrawn from a process at these addresses again, where it executes what the file holds and
    /// cannot write to it.
    ///
    /// # Errors
    /// As [`place`](Jumps::place).
    pub fn restore(&mut self, process: &ProcessCode, pid: u32, addresses: &Range<u64>) -> Result<(), Error> {
        let of_process: Vec<FileId> = self.placed.keys().filter(|(of, _)| *of == pid).map(|(_, file)| *file).collect();
        for id in of_process {
            let Some(Some(Known { file, sites })) = self.known.get(&id) else { continue };
            let probed = Probed { pid, device: id.0, inode: id.1 };
            let out = sites.iter().map(|site| site.file_offset).filter(|&at| self.programs.avoids(probed, at));
            let CodeComparison { unchanged, .. } = process.compare(file.file(), out.map(Spot::at).collect(), addresses);
            if unchanged.is_empty() {
                continue;
            }
            unchanged.iter().for_each(|&offset| self.programs.allow(probed, offset));
            if let Some(old) = self.placed.get_mut(&(pid, id)).and_then(Option::take) {
                self.closing.close_first(vec![old]);
                process.wait_for_removal(file.file(), sites.iter().map(|site| Spot::at(site.file_offset)).collect());
            }
            self.link(pid, id)?;
        }
        Ok(())
    }

    /// Takes out the probes that a process has in files that have changed.
    pub fn drop_changed(&mut self, pid: u32) {
        let known = &self.known;
        let has_changed = |file: &FileId| known.get(file).and_then(Option::as_ref).is_some_and(Known::has_changed);
        self.placed.extract_if(|(of, file), _| *of == pid && has_changed(file)).for_each(drop);
    }

    /// Takes out the probes of processes that have ended.
    pub fn keep(&mut self, lives: impl Fn(u32) -> bool) {
        let ended = self.placed.extract_if(|(pid, _), _| !lives(*pid));
        let probes = ended.filter_map(|(_, probes)| probes).collect();
        self.closing.close(probes);
    }

    /// Waits until those that were taken out are gone.
    pub fn settle(&mut self) {
        self.closing.finish();
    }

    /// The probes that are in place, once those that were taken out are gone.
    pub fn into_probes(mut self) -> Vec<Probes> {
        self.settle();
        self.placed.into_values().flatten().collect()
    }
}

/// What a file has, but for functions that have a probe. Programs and traced libraries may have copies of their own.
fn known(name: &Path, path: &Path, is_traced: bool, has_probe: impl Fn(u64) -> bool) -> Option<Known> {
    let is_shared = || name.file_name().and_then(|name| name.to_str()).is_some_and(jump::may_be_in);
    if !(is_traced || is_shared() || is_executable(path)) {
        return None;
    }
    let image = Image::open(path).ok()?;
    let file = Pinned::open(path, image.stamp()).ok()?;
    let site = |(address, jump): (u64, Jump)| {
        let file_offset = image.file_offset(address).filter(|&offset| !has_probe(offset))?;
        Some(Site::new(file_offset, untraced_jump_cookie(jump)))
    };
    let sites = jump::of(&image).into_iter().filter_map(site).collect();
    Some(Known { file, sites })
}
