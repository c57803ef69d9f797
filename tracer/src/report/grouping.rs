//! What a row stands for: which calls belong to it, and what it is called.

use std::collections::HashMap;

use rtrace_exporters::TraceSet;
use rtrace_model::{Library, LibraryId, Location, LocationId, Loss, Process, RegionId};

use super::By;
use super::table::{Column, Shown, Value};

/// Names a row: the id of a region, library or location, or the place of a process.
pub(super) type Key = u32;

/// The row of calls whose library or process is not defined.
const UNKNOWN: Key = Key::MAX;

/// A way to put calls into rows.
pub(super) enum Grouping<'a> {
    Function(&'a TraceSet),
    Library(&'a TraceSet),
    Thread(&'a TraceSet),
    Process(&'a TraceSet, HashMap<LocationId, Key>),
}

impl<'a> Grouping<'a> {
    /// The grouping that `by` names; a tree is none.
    pub(super) fn new(by: By, trace: &'a TraceSet) -> Option<Grouping<'a>> {
        match by {
            By::Function => Some(Grouping::Function(trace)),
            By::Library => Some(Grouping::Library(trace)),
            By::Thread => Some(Grouping::Thread(trace)),
            By::Process => Some(Grouping::process(trace)),
            By::Tree => None,
        }
    }

    fn process(trace: &'a TraceSet) -> Grouping<'a> {
        let place = |location: &Location| {
            let process = trace.process_of(location)?;
            let begun = |process: &Process| (process.pid, process.start);
            let place = trace.processes().binary_search_by_key(&begun(process), begun).ok()?;
            Some((location.id, Key::try_from(place).ok()?))
        };
        Grouping::Process(trace, trace.locations().iter().filter_map(place).collect())
    }

    /// The row that calls of a region on a location belong to.
    pub(super) fn key(&self, region: RegionId, location: LocationId) -> Key {
        match self {
            Grouping::Function(_) | Grouping::Library(_) => self.key_of_region(region),
            Grouping::Thread(_) | Grouping::Process(..) => self.key_of_location(location),
        }
    }

    fn key_of_region(&self, id: RegionId) -> Key {
        match self {
            Grouping::Library(trace) => trace.region(id).map_or(UNKNOWN, |region| region.library.0),
            _ => id.0,
        }
    }

    fn key_of_location(&self, id: LocationId) -> Key {
        match self {
            Grouping::Process(_, processes) => processes.get(&id).copied().unwrap_or(UNKNOWN),
            _ => id.0,
        }
    }

    /// Missing calls by row: known by region, and by the ids that a location gave out.
    pub(super) fn lost(&self, losses: &[Loss], recorded: &HashMap<LocationId, u64>) -> Vec<(Key, u64)> {
        match self {
            Grouping::Function(_) | Grouping::Library(_) => {
                let of_region = |loss: &Loss| Some((self.key_of_region(loss.region?), loss.count));
                losses.iter().filter_map(of_region).collect()
            }
            Grouping::Thread(trace) | Grouping::Process(trace, _) => {
                let of_location = |location: &Location| {
                    let recorded = recorded.get(&location.id).copied().unwrap_or(0);
                    let lost = location.calls_entered?.checked_sub(recorded).filter(|&lost| lost > 0)?;
                    Some((self.key_of_location(location.id), lost))
                };
                trace.locations().iter().filter_map(of_location).collect()
            }
        }
    }

    /// What a row is, its name last.
    pub(super) fn columns(&self) -> &'static [Column] {
        const FUNCTION: [Column; 4] = [
            Column::new("region", "region").shown(Shown::Never),
            Column::new("file_offset", "file offset").shown(Shown::Never),
            Column::new("library", "library"),
            Column::new("function", "function"),
        ];
        const LIBRARY: [Column; 1] = [Column::new("library", "library")];
        const THREAD: [Column; 4] = [
            Column::new("location", "location").shown(Shown::Never),
            Column::new("pid", "pid"),
            Column::new("tid", "tid"),
            Column::new("thread", "thread"),
        ];
        const PROCESS: [Column; 2] = [Column::new("pid", "pid"), Column::new("process", "process")];
        match self {
            Grouping::Function(_) => &FUNCTION,
            Grouping::Library(_) => &LIBRARY,
            Grouping::Thread(_) => &THREAD,
            Grouping::Process(..) => &PROCESS,
        }
    }

    /// The values of [`columns`](Grouping::columns).
    pub(super) fn labels(&self, key: Key) -> Vec<Value> {
        let name = |name: Option<&str>| Value::Name(name.unwrap_or("[unknown]").to_owned());
        let number = |number: Option<u32>| number.map_or(Value::Absent, |number| Value::Count(number.into()));
        match self {
            Grouping::Function(trace) => {
                let region = trace.region(RegionId(key));
                let library = region.and_then(|region| trace.library(region.library));
                vec![
                    number(Some(key)),
                    region.map_or(Value::Absent, |region| Value::Count(region.file_offset)),
                    name(library.map(Library::name)),
                    name(region.map(|region| region.name.as_str())),
                ]
            }
            Grouping::Library(trace) => {
                let library = trace.library(LibraryId(key));
                vec![name(library.map(|library| library.path.as_str()))]
            }
            Grouping::Thread(trace) => {
                let location = trace.location(LocationId(key));
                vec![
                    number(Some(key)),
                    number(location.map(|location| location.pid)),
                    number(location.map(|location| location.tid)),
                    name(location.map(|location| location.name.as_str())),
                ]
            }
            Grouping::Process(trace, _) => {
                let process = trace.processes().get(key as usize);
                vec![
                    number(process.map(|process| process.pid)),
                    name(process.map(|process| process.executable.as_str())),
                ]
            }
        }
    }
}
