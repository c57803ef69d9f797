//! What the calls of a set refer to, with ids of the set.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use rtrace_model::{
    CallSite, CallSiteId, Context, ContextEnding, ContextId, Library, LibraryId, Location, LocationId, PathProfile,
    Process, Region, RegionId, ValueColumn, name_apart,
};

use super::SetMember;
use crate::Trace;
use crate::definitions::Definitions;

#[derive(Debug, Default)]
pub(super) struct Merged {
    all: Definitions,
    /// The names of the columns of each region.
    value_names: HashMap<RegionId, HashSet<String>>,
    /// Libraries of the set by what makes them one; one trace may have that several times.
    files: HashMap<(LibraryIdentity, usize), LibraryId>,
    /// Regions of the set by the place of their code, likewise.
    places: HashMap<(LibraryId, u64, usize), RegionId>,
    /// Call sites of the set by all that is known of them but the id.
    known_sites: HashMap<CallSite, CallSiteId>,
    /// Contexts of the set by their places.
    known_contexts: HashMap<(Vec<CallSiteId>, ContextEnding), ContextId>,
}

/// What makes a library the same in two traces: its build, or on one machine its inode.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum LibraryIdentity {
    Built { name: String, build_id: String },
    Stored { host: String, path: String, device: u64, inode: u64 },
}

impl LibraryIdentity {
    fn of(library: &Library, host: &str) -> LibraryIdentity {
        match &library.build_id {
            Some(build_id) => {
                LibraryIdentity::Built { name: library.file_name().to_owned(), build_id: build_id.clone() }
            }
            None => LibraryIdentity::Stored {
                host: host.to_owned(),
                path: library.path.clone(),
                device: library.device,
                inode: library.inode,
            },
        }
    }
}

impl Merged {
    /// Adds the definitions of a trace whose times are `shift` nanoseconds too early. The first
    /// trace keeps its ids.
    pub(super) fn take_in(&mut self, trace: Trace, shift: u64) -> SetMember {
        let locations_before = self.all.locations.last().map_or(0, |last| last.id.0);
        let (regions, call_sites, contexts) = (Default::default(), Default::default(), Default::default());
        let mut part = SetMember { trace, shift, locations_before, regions, call_sites, contexts };
        let host = &part.trace.header().host;
        let mut libraries = HashMap::new();
        let mut copies: HashMap<LibraryIdentity, usize> = HashMap::new();
        for library in part.trace.libraries() {
            let file = LibraryIdentity::of(library, host);
            let copy = copies.entry(file.clone()).or_default();
            libraries.insert(library.id, self.library(library, (file, *copy)));
            *copy += 1;
        }
        let mut copies: HashMap<(LibraryId, u64), usize> = HashMap::new();
        for region in part.trace.regions() {
            let library = libraries.get(&region.library).copied().unwrap_or(LibraryId(u32::MAX));
            let copy = copies.entry((library, region.file_offset)).or_default();
            part.regions.insert(region.id, self.region(region, library, *copy));
            *copy += 1;
        }
        for site in part.trace.call_sites() {
            part.call_sites.insert(site.id, self.call_site(site));
        }
        for context in part.trace.contexts() {
            let of_set = |site| part.call_sites.get(site).copied().unwrap_or(CallSiteId(u32::MAX));
            let sites = context.sites.iter().map(of_set).collect();
            part.contexts.insert(context.id, self.context(Context { sites, ..context.clone() }));
        }
        for column in part.trace.value_columns() {
            self.value_column(ValueColumn { region: part.region(column.region), ..column.clone() });
        }
        self.all.processes.extend(part.trace.processes().iter().map(|process| Process {
            start: part.time(process.start),
            end: process.end.map(|end| part.time(end)),
            ..process.clone()
        }));
        self.all.locations.extend(part.trace.locations().iter().map(|location| Location {
            id: LocationId(location.id.0.saturating_add(locations_before)),
            start: part.time(location.start),
            end: location.end.map(|end| part.time(end)),
            ..location.clone()
        }));
        self.all.profile.extend(part.trace.profile().iter().map(|path| PathProfile {
            location: LocationId(path.location.0.saturating_add(locations_before)),
            region: part.region(path.region),
            ..path.clone()
        }));
        self.all.estimates.extend(part.trace.estimates().iter().map(|&estimate| part.estimate(estimate)));
        self.all.cpu_samples.extend(part.trace.cpu_samples().iter().map(|&samples| part.samples(samples)));
        part
    }

    fn library(&mut self, library: &Library, file: (LibraryIdentity, usize)) -> LibraryId {
        match self.files.entry(file) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                // Ids of one trace are in order, so the first keeps its own.
                let next = self.all.libraries.last().map_or(0, |last| last.id.0 + 1);
                let id = LibraryId(next.max(library.id.0));
                self.all.libraries.push(Library { id, ..library.clone() });
                *new.insert(id)
            }
        }
    }

    /// An address without a file is another one in each process.
    fn call_site(&mut self, site: &CallSite) -> CallSiteId {
        let next = CallSiteId(self.all.call_sites.last().map_or(0, |last| last.id.0 + 1).max(site.id.0));
        let what = CallSite { id: CallSiteId::default(), ..site.clone() };
        let id = if what.file.is_some() { *self.known_sites.entry(what).or_insert(next) } else { next };
        if id == next {
            self.all.call_sites.push(CallSite { id, ..site.clone() });
        }
        id
    }

    fn context(&mut self, context: Context) -> ContextId {
        let next = ContextId(self.all.contexts.last().map_or(0, |last| last.id.0 + 1).max(context.id.0));
        let what = (context.sites.clone(), context.ending);
        let id = *self.known_contexts.entry(what).or_insert(next);
        if id == next {
            self.all.contexts.push(Context { id, ..context });
        }
        id
    }

    fn value_column(&mut self, column: ValueColumn) {
        let names = self.value_names.entry(column.region).or_default();
        let position = names.len() as u32;
        if names.insert(column.name.clone()) {
            self.all.value_columns.push(ValueColumn { position, ..column });
        }
    }

    fn region(&mut self, region: &Region, library: LibraryId, copy: usize) -> RegionId {
        match self.places.entry((library, region.file_offset, copy)) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                let next = self.all.regions.last().map_or(0, |last| last.id.0 + 1);
                let id = RegionId(next.max(region.id.0));
                self.all.regions.push(Region { id, library, ..region.clone() });
                *new.insert(id)
            }
        }
    }

    /// All definitions, with libraries of several traces told apart, and the names that functions of several libraries
    /// have.
    pub(super) fn finish(self, parts: &[SetMember]) -> (Definitions, HashSet<String>) {
        let mut all = self.all;
        name_apart(&mut all.libraries);
        let mut ambiguous = HashSet::new();
        let mut libraries: HashMap<&str, LibraryId> = HashMap::new();
        for Region { name, library, .. } in &all.regions {
            if libraries.entry(name).or_insert(*library) != library {
                ambiguous.insert(name.clone());
            }
        }
        let mut metrics = parts.iter().map(|part| part.trace.metrics());
        let first = metrics.next().unwrap_or_default();
        if metrics.all(|of_part| of_part == first) {
            all.metrics = first.to_vec();
        }
        all.sort();
        (all, ambiguous)
    }
}
