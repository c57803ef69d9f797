//! Where calls come from: return addresses become call sites, and call sites get names.
//!
//! While calls are recorded only the file and the offset are looked up, as the process had mapped them when the call was
//! made. Names and lines follow once the recording is over: reading debug information takes time that the traced program
//! may need.

use std::collections::HashMap as Map;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use foldhash::{HashMap, HashSet};
use rtrace_model::{CallSite, CallSiteId, Context, ContextEnding, ContextId, Definition, Timestamp, text_of_os};
use rtrace_symbolizer::address_space::FileId;
use rtrace_symbolizer::lines::{CodeLine, Lines};
use rtrace_symbolizer::modules::Module;

use crate::record::contexts::{ContextPlace, FoundContext, FoundSoFar};
use crate::target::address_spaces::AddressSpaces;
use crate::target::files::Pinned;
use crate::target::mapping_history::{Piece, Replaced};
use crate::target::python::PythonLine;

/// A return address: number of the address space, and address.
type Place = (u32, u64);

/// A site that has been met.
struct Known {
    id: CallSiteId,
    pid: u32,
}

/// A site whose file is not known yet.
struct Unknown {
    id: CallSiteId,
    pid: u32,
    place: Place,
    /// When it was met.
    time: Timestamp,
    /// It was looked for since it was met.
    is_old: bool,
}

/// A file in which there are call sites.
struct KnownFile {
    /// As a process sees it.
    path: PathBuf,
    /// By this it is reached after its processes have ended, too.
    pinned: Option<Pinned>,
}

/// The call sites of a recording.
pub struct CallSites {
    /// Calls come from few places.
    known: HashMap<Place, Known>,
    /// What a place meant before something else was mapped there, each with the time of that, by time.
    former: HashMap<Place, Vec<(Timestamp, CallSiteId)>>,
    by_file: HashMap<(FileId, u64), CallSiteId>,
    by_line: HashMap<Arc<PythonLine>, CallSiteId>,
    sites: Vec<CallSite>,
    /// The process of a site, and its file.
    origins: Vec<(u32, Option<FileId>)>,
    files: Map<FileId, KnownFile>,
    spaces: AddressSpaces,
    unknown: Vec<Unknown>,
    /// Those that are not announced in their newest state.
    changed: Vec<CallSiteId>,
    /// Those that are not announced.
    contexts: Vec<Context>,
}

impl CallSites {
    /// None yet, but for the context that calls from traced ones have, if calls have contexts.
    pub fn new(has_contexts: bool, spaces: AddressSpaces) -> CallSites {
        let empty = Context { id: Context::EMPTY, sites: Vec::new(), ending: ContextEnding::Complete };
        CallSites {
            known: HashMap::default(),
            former: HashMap::default(),
            by_file: HashMap::default(),
            by_line: HashMap::default(),
            sites: Vec::new(),
            origins: Vec::new(),
            files: Map::new(),
            spaces,
            unknown: Vec::new(),
            changed: Vec::new(),
            contexts: has_contexts.then_some(empty).into_iter().collect(),
        }
    }

    /// Looks the places of contexts up; returns how many of these could not be understood.
    pub fn add_contexts(&mut self, found: FoundSoFar) -> u64 {
        for FoundContext { id, pid, space, time, places, ending } in found.contexts {
            let sites = places.into_iter().filter_map(|place| match place {
                ContextPlace::Address(address) => self.at(pid, space, address, time),
                ContextPlace::Python(line) => Some(self.in_python(pid, line)),
            });
            let sites = sites.collect();
            self.contexts.push(Context { id: ContextId(id), sites, ending });
        }
        found.bad_records
    }

    /// The site of the return address of a call that began then; none where the address could not be read.
    pub fn at(&mut self, pid: u32, space: u32, address: u64, time: Timestamp) -> Option<CallSiteId> {
        if address == 0 {
            return None;
        }
        let place = (space, address);
        if !self.former.is_empty()
            && let Some(&(_, id)) = self.former.get(&place).and_then(|ids| ids.iter().find(|(until, _)| time < *until))
        {
            return Some(id);
        }
        if let Some(known) = self.known.get(&place) {
            return Some(known.id);
        }
        let was = self.spaces.history().at(pid, address, time);
        let found = self.find(pid, place, was.as_ref());
        let id = match found {
            Some((file, path, offset)) => self.in_file(pid, file, path, offset),
            None => {
                let id = self.define(pid, None, CallSite { offset: address, ..CallSite::default() });
                // What is made at run time has no file.
                if was.as_ref().is_none_or(|(was, _)| was.file.is_some()) {
                    self.unknown.push(Unknown { id, pid, place, time, is_old: false });
                }
                id
            }
        };
        match was.and_then(|(_, until)| until) {
            None => _ = self.known.insert(place, Known { id, pid }),
            Some(until) => self.add_former(place, until, id),
        }
        Some(id)
    }

    /// The place of a sample: the byte behind the address, as the place of a call is behind it. `space`: that of the process,
    /// if it still runs. None for code in no file of a process of which no more is known than its history.
    pub fn sampled(&mut self, pid: u32, space: Option<u32>, address: u64, time: Timestamp) -> Option<CallSiteId> {
        let behind = address.saturating_add(1);
        if let Some(space) = space {
            return self.at(pid, space, behind, time);
        }
        // That something else is mapped now is true of a process that has ended.
        let was = self.spaces.history().at(pid, address, time).map(|(piece, _)| (piece, Some(time)));
        let (file, path, offset) = self.find(pid, (0, behind), Some(&was?))?;
        Some(self.in_file(pid, file, path, offset))
    }

    /// A place of which nothing is known but its address.
    pub fn in_no_file(&mut self, pid: u32, address: u64) -> CallSiteId {
        self.define(pid, None, CallSite { offset: address.saturating_add(1), ..CallSite::default() })
    }

    /// Something else is mapped at these addresses: what returns to them from then on returns to other code.
    pub fn replaced(&mut self, replaced: &Replaced) {
        let is_meant =
            |(_, address): &Place, known: &Known| known.pid == replaced.pid && replaced.addresses.contains(address);
        let gone: Vec<_> = self.known.extract_if(|place, known| is_meant(place, known)).collect();
        for (place, Known { id, .. }) in gone {
            self.add_former(place, replaced.since, id);
        }
    }

    fn add_former(&mut self, place: Place, until: Timestamp, id: CallSiteId) {
        let ids = self.former.entry(place).or_default();
        ids.insert(ids.partition_point(|(before, _)| *before < until), (until, id));
    }

    /// Time passes: more may be known of what processes map.
    pub fn tick(&mut self) {
        self.spaces.may_have_changed();
        for unknown in std::mem::take(&mut self.unknown) {
            let was = self.spaces.history().at(unknown.pid, unknown.place.1, unknown.time);
            match self.find(unknown.pid, unknown.place, was.as_ref()) {
                Some((file, path, offset)) => {
                    self.origins[unknown.id.index()].1 = Some(file);
                    let site = &mut self.sites[unknown.id.index()];
                    (site.file, site.offset) = (Some(path), offset);
                    self.by_file.entry((file, offset)).or_insert(unknown.id);
                    self.changed.push(unknown.id);
                }
                // What is made at run time has no file, and stays unknown as long as its process runs.
                None if unknown.is_old && self.spaces.is_known(unknown.place.0) => {}
                None => self.unknown.push(Unknown { is_old: true, ..unknown }),
            }
        }
    }

    /// What has changed since the last call.
    pub fn announce(&mut self) -> Vec<Definition> {
        let changed = std::mem::take(&mut self.changed);
        let sites = changed.into_iter().map(|id| Definition::CallSite(self.sites[id.index()].clone()));
        sites.chain(std::mem::take(&mut self.contexts).into_iter().map(Definition::Context)).collect()
    }

    /// The sites with the names and lines that are known of them; `stepped`: places whose instruction is single-stepped.
    pub fn named(mut self, lines: &Lines, stepped: &HashSet<(FileId, u64)>) -> Vec<Definition> {
        for (site, (pid, file)) in self.sites.iter_mut().zip(self.origins) {
            site.single_stepped = file.is_some_and(|file| stepped.contains(&(file, site.offset)));
            let within = within_call(site.offset);
            let reached = file.and_then(|file| self.files.get(&file)?.pinned.as_ref());
            let reached = reached.map(|pinned| pinned.reachable(site.file.as_deref()));
            let line = match &reached {
                Some(path) => lines.in_file(path, site.file.as_deref().unwrap_or_default(), within),
                // Of a line of Python, all is known.
                None if site.file.is_none() && site.function.is_none() => lines.in_process(pid, within),
                None => None,
            };
            if let Some(CodeLine { function, function_offset, source, inlined }) = line {
                site.function = Some(function);
                site.function_offset = Some(function_offset + (site.offset - within));
                (site.source, site.inlined) = (source, inlined);
            } else if let Some((name, distance)) = reached.and_then(|path| lines.nearest(&path, within)) {
                site.nearest = Some(format!("{name}+{:#x}", distance + (site.offset - within)));
            }
        }
        self.sites.into_iter().map(Definition::CallSite).collect()
    }

    fn in_file(&mut self, pid: u32, file: FileId, path: String, offset: u64) -> CallSiteId {
        if let Some(&id) = self.by_file.get(&(file, offset)) {
            return id;
        }
        let id = self.define(pid, Some(file), CallSite { file: Some(path), offset, ..CallSite::default() });
        self.by_file.insert((file, offset), id);
        id
    }

    fn in_python(&mut self, pid: u32, line: Arc<PythonLine>) -> CallSiteId {
        if let Some(&id) = self.by_line.get(&line) {
            return id;
        }
        let (function, source) = (Some(line.function.clone()), Some(line.source.clone()));
        let id = self.define(pid, None, CallSite { function, source, ..CallSite::default() });
        self.by_line.insert(line, id);
        id
    }

    fn define(&mut self, pid: u32, file: Option<FileId>, site: CallSite) -> CallSiteId {
        let id = CallSiteId(u32::try_from(self.sites.len()).expect("call sites are in memory"));
        self.sites.push(CallSite { id, ..site });
        self.origins.push((pid, file));
        self.changed.push(id);
        id
    }

    /// The file with its path, and the offset in it; `was`: what the process had mapped there, and until when.
    fn find(
        &mut self,
        pid: u32,
        (space, address): Place,
        was: Option<&(Piece, Option<Timestamp>)>,
    ) -> Option<(FileId, String, u64)> {
        let Some((was, until)) = was else { return self.find_now(pid, (space, address)) };
        let file = was.file?;
        if until.is_none() {
            let agrees = |(found, path, offset): &(FileId, String, u64)| {
                *offset == was.offset_of(address) && (*found == file || *path == text(&was.path))
            };
            // Some file systems have other numbers in the list of mappings than elsewhere.
            if let Some(found) = self.find_now(pid, (space, address)).filter(agrees) {
                return Some(found);
            }
            self.spaces.forget(space);
            if let Some(found) = self.find_now(pid, (space, address)).filter(agrees) {
                return Some(found);
            }
        }
        let known = self.files.entry(file).or_insert_with(|| KnownFile { path: was.path.to_path_buf(), pinned: None });
        known.pinned = known.pinned.take().or_else(|| pin(file, &[was.path.to_path_buf()]));
        Some((file, text(&known.path), was.offset_of(address)))
    }

    /// The same of what the process maps now.
    fn find_now(&mut self, pid: u32, (space, address): Place) -> Option<(FileId, String, u64)> {
        let CallSites { spaces, files, .. } = self;
        let keep = |modules: Vec<&Module>| {
            for module in modules {
                let id = (module.device, module.inode);
                let path = || module.path.clone();
                let file = files.entry(id).or_insert_with(|| KnownFile { path: path(), pinned: None });
                // Another process may still be there where that of an earlier attempt had ended.
                file.pinned = file.pinned.take().or_else(|| pin(id, &[module.open_path(), path()]));
            }
        };
        let (module, offset) = spaces.find(pid, space, address, keep)?;
        Some(((module.device, module.inode), text(&module.path), offset))
    }
}

fn text(path: &Path) -> String {
    text_of_os(path).into_owned()
}

/// The file by the first of these paths that leads to it: as its process reaches it, or what has its path here.
fn pin(id: FileId, paths: &[PathBuf]) -> Option<Pinned> {
    let is_same = |pinned: &Pinned| {
        let file = pinned.file().metadata();
        file.is_ok_and(|file| (file.dev(), file.ino()) == id)
    };
    paths.iter().filter_map(|path| Pinned::open(path, None).ok()).find(is_same)
}

/// A return address may be that of the next line, or of the next function: what is looked up is the call itself.
fn within_call(offset: u64) -> u64 {
    offset.saturating_sub(1)
}
