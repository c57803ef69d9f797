//! What the sinks were told of the recording beside its calls, and how often.

use std::collections::{BTreeMap, BTreeSet};

use rtrace_bpf::Error;
use rtrace_model::{
    Definition, Event, EventKind, HitsInVain, Item, Library, LibraryId, Region, RegionId, Summary, Timestamp,
    name_apart, text_of_os,
};
use rtrace_plan::Plan;
use rtrace_symbolizer::lines::Lines;

use crate::host;
use crate::record::attach::Attachment;
use crate::record::family::withdrawn::Overwritten;
use crate::record::family::{BlindChild, Followed};
use crate::record::inspection::{Inspection, LostSites};
use crate::record::late_loads::MissedLibrary;
use crate::record::pipeline::Pipeline;
use crate::record::returns::{FileId, ReturnSites, VainSite};
use crate::record::values::Captured;
use crate::samples::Samplers;
use crate::samples::plugin::Trouble;

/// Tells the sinks, and counts what was defined, refused and missed.
pub struct Announcements<'a> {
    pipeline: &'a Pipeline,
    libraries: Vec<Library>,
    attachments: Vec<Attachment>,
    inspection: Inspection,
    regions: u64,
    refused: u64,
    blind_windows: u64,
    overwritten: u64,
}

impl<'a> Announcements<'a> {
    /// Nothing has been told.
    pub fn new(pipeline: &'a Pipeline) -> Announcements<'a> {
        Announcements {
            pipeline,
            libraries: Vec::new(),
            attachments: Vec::new(),
            inspection: Inspection::new(),
            regions: 0,
            refused: 0,
            blind_windows: 0,
            overwritten: 0,
        }
    }

    /// The libraries with probes that a process maps and where it takes none.
    pub fn libraries_without_probes(&self, pid: u32) -> BTreeSet<String> {
        let absent = self.attachments.iter().filter(|attachment| attachment.check(&[pid]).is_err());
        absent.flat_map(|attachment| &attachment.placed).map(|placed| placed.library.path.clone()).collect()
    }

    /// Tells of something that happens now.
    pub fn event(&self, kind: EventKind) {
        self.event_at(host::now(), None, kind);
    }

    /// The same of one process.
    pub fn event_in(&self, pid: u32, kind: EventKind) {
        self.event_at(host::now(), Some(pid), kind);
    }

    /// The same of another time.
    pub fn event_at(&self, time: Timestamp, pid: Option<u32>, kind: EventKind) {
        self.pipeline.send(Item::Event(Event { time, pid, tid: None, kind }));
    }

    /// Hands on what is measured beside the calls, and what metric plug-ins say.
    pub fn samples(&self, samplers: &mut Samplers) {
        let (samples, troubles) = samplers.heard();
        self.pipeline.send(Item::Samples(samples));
        for Trouble { command, problem } in troubles {
            self.event(EventKind::Plugin { command, problem });
        }
    }

    /// Tells the sinks what calls will refer to, and what was left out.
    pub fn announce(&mut self, plan: &Plan, captured: &Captured, attachment: Attachment) {
        let before = self.libraries.len();
        self.libraries.extend(plan.libraries.iter().map(|planned| planned.library.clone()));
        // Others may be told apart from these only now.
        let renamed = name_apart(&mut self.libraries).into_iter().filter(|&place| place < before);
        let defined = renamed.chain(before..self.libraries.len()).map(|place| self.libraries[place].clone());
        self.pipeline.send(Item::Define(defined.map(Definition::Library).collect()));
        self.pipeline.send(Item::Define(attachment.regions.iter().cloned().map(Definition::Region).collect()));
        self.pipeline.send(Item::Define(captured.columns(plan)));
        captured.take_missing().into_iter().for_each(|kind| self.event(kind));
        self.regions += attachment.regions.len() as u64;
        for (index, planned) in plan.libraries.iter().enumerate() {
            let library = &planned.library;
            let regions = attachment.regions.iter().filter(|region| region.library == library.id).count() as u64;
            self.event(EventKind::Attached { library: library.path.clone(), regions });
            let by_kernel = attachment.refused.iter().filter(|(of, _)| *of == index).map(|(_, refusal)| refusal);
            for refusal in planned.refused.iter().chain(by_kernel) {
                self.refused += 1;
                let (library, region) = (library.path.clone(), refusal.name.clone());
                self.event(EventKind::Refused { library, region, reason: refusal.reason.to_string() });
            }
        }
        self.attachments.push(attachment);
    }

    /// The last region that was announced.
    pub fn last_region(&self) -> Option<RegionId> {
        self.attachments.iter().flat_map(|attachment| &attachment.regions).map(|region| region.id).max()
    }

    /// Nothing is on record of what called this library until now.
    pub fn blind_window(&mut self, MissedLibrary { library, since }: MissedLibrary) {
        self.blind_windows += 1;
        self.event(EventKind::BlindWindow { library, since });
    }

    /// What children called before their probes were in place is not on record.
    pub fn blind_children(&mut self, followed: &Followed<'_>) {
        for BlindChild { pid, library, since } in followed.take_blind() {
            self.blind_windows += 1;
            self.event_in(pid, EventKind::BlindWindow { library: library.path, since });
        }
    }

    /// Checks the probes of the next process when it is time, and tells which are overwritten.
    ///
    /// # Errors
    /// As [`Followed::overwritten`].
    pub fn inspect(&mut self, followed: &Followed<'_>) -> Result<(), Error> {
        let overwritten = self.inspection.go_on(followed)?;
        self.overwritten(overwritten);
        Ok(())
    }

    /// The same of all processes, and of return sites, when the recording ends.
    ///
    /// # Errors
    /// As [`Followed::overwritten`].
    pub fn inspect_last(&mut self, followed: &Followed<'_>, return_sites: &mut ReturnSites<'_>) -> Result<(), Error> {
        let overwritten = self.inspection.finish(followed)?;
        self.overwritten(overwritten);
        for gone in return_sites.overwritten(followed)? {
            let Some(LostSites { pid, path, offsets, .. }) = self.inspection.learn(gone) else { continue };
            let (library, sites) = (text_of_os(&path).into_owned(), offsets.len() as u64);
            self.overwritten += sites;
            self.event_in(pid, EventKind::Overwritten { library, region: None, sites });
        }
        Ok(())
    }

    fn overwritten(&mut self, overwritten: Vec<Overwritten>) {
        if overwritten.iter().all(|overwritten| overwritten.offsets.is_empty()) {
            return;
        }
        let regions = self.regions_by_place();
        let mut sites = 0;
        for Overwritten { pid, library, offsets } in overwritten {
            sites += offsets.len() as u64;
            for offset in offsets {
                let region = begun(&regions, library.id, offset).map(|region| region.name.clone());
                self.event_in(pid, EventKind::Overwritten { library: library.path.clone(), region, sites: 1 });
            }
        }
        self.overwritten += sites;
    }

    /// The regions, by where they begin.
    fn regions_by_place(&self) -> RegionsByPlace<'_> {
        let regions = self.attachments.iter().flat_map(|attachment| &attachment.regions);
        regions.map(|region| ((region.library, region.file_offset), region)).collect()
    }

    /// Where functions are in their sources, of those that were called. `calls`: how often, by region.
    pub fn located(&self, calls: &[u64], lines: &Lines) -> Vec<Definition> {
        self.attachments.iter().flat_map(|attachment| attachment.located(calls, lines)).collect()
    }

    /// Which functions were slowed down by hits in vain at these return addresses. `calls`: how often they were called, by region.
    pub fn hits_in_vain(&self, sites: &[VainSite], calls: &[u64]) -> Vec<HitsInVain> {
        let libraries: BTreeMap<FileId, LibraryId> =
            self.libraries.iter().map(|library| ((library.device, library.inode), library.id)).collect();
        let regions = self.regions_by_place();
        // A return address is behind the first instruction, and may be where the function ends.
        let around = |file, offset: u64| {
            let region = begun(&regions, *libraries.get(&file)?, offset.checked_sub(1)?)?;
            (offset <= region.file_offset + region.size).then_some(region)
        };
        let mut in_vain: BTreeMap<RegionId, HitsInVain> = BTreeMap::new();
        for &VainSite { file, offset, hits, is_stepped } in sites {
            let Some(region) = around(file, offset) else { continue };
            let calls = calls.get(region.id.index()).copied().unwrap_or(0);
            let of_region =
                in_vain.entry(region.id).or_insert(HitsInVain { region: region.id, calls, ..HitsInVain::default() });
            of_region.hits += hits;
            of_region.single_stepped += if is_stepped { hits } else { 0 };
        }
        in_vain.into_values().filter(|of_region| of_region.calls > 0).collect()
    }

    /// A summary with what was counted here.
    pub fn summarized(&self, summary: Summary) -> Summary {
        let Announcements { regions, refused, blind_windows, overwritten, .. } = *self;
        Summary { regions, refused, blind_windows, overwritten, ..summary }
    }
}

/// Regions by library and file offset.
type RegionsByPlace<'a> = BTreeMap<(LibraryId, u64), &'a Region>;

/// The last region that begins at this offset of a library's file, or before it.
fn begun<'a>(regions: &RegionsByPlace<'a>, library: LibraryId, offset: u64) -> Option<&'a Region> {
    regions.range((library, 0)..=(library, offset)).next_back().map(|(_, region)| *region)
}
