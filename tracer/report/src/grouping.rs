//! What a row stands for: which calls belong to it, and what it is called.

use std::collections::HashMap;

use rtrace_exporters::TraceSet;
use rtrace_model::{LibraryId, Location, LocationId, Loss, Process, RegionId};
use rtrace_profile::{Caller, Visited};

use super::by_value::{ByValue, NameSums};
use super::chains::{ChainDepth, Chains};
use super::key::{FUNCTION, RowId, UNKNOWN, function, name};
use super::library_pairs::LibraryPairs;
use super::marked::Marked;
use super::peers::Peers;
use super::table::{Column, Datum, Shown};
use super::{By, Error};

/// A way to put calls into rows.
pub(super) enum Grouping<'a> {
    Function(&'a TraceSet),
    Library(&'a TraceSet),
    Thread(&'a TraceSet),
    Process(&'a TraceSet, HashMap<LocationId, RowId>),
    Rank(&'a TraceSet, HashMap<LocationId, RowId>),
    Chain(Chains<'a>),
    LibraryPair(LibraryPairs<'a>),
    Marked(Marked),
    Value(ByValue<'a>),
    Peer(Box<Peers>),
}

impl<'a> Grouping<'a> {
    /// The grouping that `by` names; a tree is none, and neither are samples.
    ///
    /// # Errors
    /// Calls do not have the value that rows stand for.
    pub(super) fn new(by: &By, trace: &'a TraceSet) -> Result<Option<Grouping<'a>>, Error> {
        Ok(match by {
            By::Function => Some(Grouping::Function(trace)),
            By::Library => Some(Grouping::Library(trace)),
            By::Thread => Some(Grouping::Thread(trace)),
            By::Process => Some(Grouping::process(trace)),
            By::Rank => Some(Grouping::rank(trace)?),
            By::Caller => Some(Grouping::Chain(Chains::new(ChainDepth::Caller, trace))),
            By::Callpath => Some(Grouping::Chain(Chains::new(ChainDepth::Path, trace))),
            By::Callsite => Some(Grouping::Chain(Chains::new(ChainDepth::Site, trace))),
            By::Value(name) => {
                let asked = NameSums::new(name, trace, |_| true)?;
                Some(Grouping::Value(ByValue::new(asked, trace)))
            }
            By::Peer => Some(Grouping::Peer(Box::new(Peers::new(trace)?))),
            By::LibraryPair => Some(Grouping::LibraryPair(LibraryPairs::new(trace))),
            By::Marked(functions) => Some(Grouping::Marked(Marked::new(functions, trace)?)),
            By::Tree | By::Cpu => None,
        })
    }

    fn process(trace: &'a TraceSet) -> Grouping<'a> {
        let place = |location: &Location| {
            let process = trace.process_of(location)?;
            let begun = |process: &Process| (process.pid, process.start);
            let place = trace.processes().binary_search_by_key(&begun(process), begun).ok()?;
            Some((location.id, RowId::try_from(place).ok()?))
        };
        Grouping::Process(trace, trace.locations().iter().filter_map(place).collect())
    }

    fn rank(trace: &'a TraceSet) -> Result<Grouping<'a>, Error> {
        let rank = |location: &Location| Some((location.id, trace.rank_of(location)?));
        let ranks: HashMap<LocationId, RowId> = trace.locations().iter().filter_map(rank).collect();
        if ranks.is_empty() { Err(Error::NoRanks) } else { Ok(Grouping::Rank(trace, ranks)) }
    }

    /// Tells calls that count.
    pub(super) fn visited(&mut self, calls: Visited<'_>) {
        if let (Grouping::Peer(peers), Some(one)) = (self, calls.single()) {
            peers.visited(&one.call);
        }
    }

    /// The row that calls of that caller belong to.
    pub(super) fn key(&mut self, calls: Visited<'_>, caller: &Caller<'_, RowId>) -> RowId {
        let region = calls.region();
        match self {
            Grouping::Value(by_value) => by_value.key(region, calls.single().and_then(|one| one.values.as_ref())),
            Grouping::Chain(chains) => chains.key(region, (calls.call_site(), calls.context()), caller),
            Grouping::LibraryPair(pairs) => pairs.key(region, calls.call_site(), caller),
            Grouping::Marked(marked) => marked.key(calls.single().map(|one| &one.call)),
            Grouping::Peer(peers) => peers.key(calls.single().map(|one| (one.call.location, one.call.id))),
            Grouping::Function(_) | Grouping::Library(_) => self.key_of_region(region),
            Grouping::Thread(_) | Grouping::Process(..) | Grouping::Rank(..) => self.key_of_location(calls.location()),
        }
    }

    /// The row of all calls to that function on that thread, if only these decide.
    pub(super) fn key_of(&self, region: RegionId, location: LocationId) -> Option<RowId> {
        match self {
            Grouping::Function(_) | Grouping::Library(_) => Some(self.key_of_region(region)),
            Grouping::Thread(_) | Grouping::Process(..) | Grouping::Rank(..) => Some(self.key_of_location(location)),
            Grouping::Chain(_)
            | Grouping::LibraryPair(_)
            | Grouping::Marked(_)
            | Grouping::Value(_)
            | Grouping::Peer(_) => None,
        }
    }

    /// The row of a function, where rows stand for code.
    pub(super) fn key_of_region(&self, id: RegionId) -> RowId {
        match self {
            Grouping::Library(trace) => trace.region(id).map_or(UNKNOWN, |region| region.library.0),
            _ => id.0,
        }
    }

    /// Whether rows stand for code: functions or libraries.
    pub(super) fn is_of_code(&self) -> bool {
        matches!(self, Grouping::Function(_) | Grouping::Library(_))
    }

    /// The row of a thread, where rows stand for threads.
    pub(super) fn key_of_location(&self, id: LocationId) -> RowId {
        match self {
            Grouping::Process(_, rows) | Grouping::Rank(_, rows) => rows.get(&id).copied().unwrap_or(UNKNOWN),
            _ => id.0,
        }
    }

    /// Missing calls by row: known by region, and by the ids that a location gave out.
    pub(super) fn lost(&self, losses: &[Loss], recorded: &HashMap<LocationId, u64>) -> Vec<(RowId, u64)> {
        match self {
            // Which of its callers or values a lost call had is lost, too.
            Grouping::Chain(_)
            | Grouping::LibraryPair(_)
            | Grouping::Marked(_)
            | Grouping::Value(_)
            | Grouping::Peer(_) => Vec::new(),
            Grouping::Function(_) | Grouping::Library(_) => {
                let of_region = |loss: &Loss| Some((self.key_of_region(loss.region?), loss.count));
                losses.iter().filter(|loss| !loss.reason.is_value()).filter_map(of_region).collect()
            }
            Grouping::Thread(trace) | Grouping::Process(trace, _) | Grouping::Rank(trace, _) => {
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
        const LIBRARY: [Column; 1] = [Column::name("library", "library")];
        const HOST: Column = Column::label("host", "host").rank(1).shown(Shown::IfNotZero);
        const RANK: Column = Column::label("rank", "rank").shown(Shown::IfNotZero);
        const THREAD: [Column; 6] = [
            Column::label("location", "location").shown(Shown::Never),
            HOST,
            RANK,
            Column::label("pid", "pid"),
            Column::label("tid", "tid"),
            Column::name("thread", "thread"),
        ];
        const PROCESS: [Column; 4] = [HOST, RANK, Column::label("pid", "pid"), Column::name("process", "process")];
        const OF_RANK: [Column; 3] = [HOST, Column::label("pid", "pid"), Column::name("rank", "rank")];
        match self {
            Grouping::Function(_) => &FUNCTION,
            Grouping::Library(_) => &LIBRARY,
            Grouping::Thread(_) => &THREAD,
            Grouping::Process(..) => &PROCESS,
            Grouping::Rank(..) => &OF_RANK,
            Grouping::Chain(chains) => chains.columns(),
            Grouping::LibraryPair(_) => LibraryPairs::columns(),
            Grouping::Marked(_) => Marked::columns(),
            Grouping::Value(by_value) => by_value.columns(),
            Grouping::Peer(_) => Peers::columns(),
        }
    }

    /// The values of [`columns`](Grouping::columns).
    pub(super) fn labels(&self, key: RowId) -> Vec<Datum> {
        let number = |number: Option<u32>| number.map_or(Datum::Absent, |number| Datum::Id(number.into()));
        match self {
            Grouping::Chain(chains) => chains.labels(key),
            Grouping::LibraryPair(pairs) => pairs.labels(key),
            Grouping::Marked(marked) => marked.labels(key),
            Grouping::Value(by_value) => by_value.labels(key),
            Grouping::Peer(peers) => peers.labels(key),
            Grouping::Function(trace) => function(trace, RegionId(key)).to_vec(),
            Grouping::Library(trace) => {
                let library = trace.library(LibraryId(key));
                vec![name(library.map(|library| library.path.as_str()))]
            }
            Grouping::Thread(trace) => {
                let location = trace.location(LocationId(key));
                let [host, rank] = origin(trace, LocationId(key));
                vec![
                    number(Some(key)),
                    host,
                    rank,
                    number(location.map(|location| location.pid)),
                    number(location.map(|location| location.tid)),
                    name(location.map(|location| location.name.as_str())),
                ]
            }
            Grouping::Rank(trace, ranks) => {
                let of_rank = trace.locations().iter().find(|location| ranks.get(&location.id) == Some(&key));
                let host = of_rank.map_or(Datum::Absent, |of| origin(trace, of.id)[0].clone());
                vec![host, number(of_rank.map(|location| location.pid)), number(of_rank.and(Some(key)))]
            }
            Grouping::Process(trace, processes) => {
                let process = trace.processes().get(key as usize);
                let location = processes.iter().find(|&(_, &of)| of == key).map(|(&location, _)| location);
                let [host, rank] = location.map_or([Datum::Absent, Datum::Absent], |id| origin(trace, id));
                vec![
                    host,
                    rank,
                    number(process.map(|process| process.pid)),
                    name(process.map(|process| process.executable.as_str())),
                ]
            }
        }
    }
}

impl Grouping<'_> {
    /// What a row of a thread, process or rank is called in a sentence.
    pub(super) fn called(&self, key: RowId) -> String {
        match self {
            Grouping::Thread(trace) => {
                trace.location(LocationId(key)).map_or_else(String::new, |location| format!("thread {}", location.tid))
            }
            Grouping::Process(trace, processes) => {
                let of_process = trace.locations().iter().find(|location| processes.get(&location.id) == Some(&key));
                let Some(location) = of_process else { return String::new() };
                match origin(trace, location.id) {
                    [_, Datum::Id(rank)] => format!("rank {rank}"),
                    _ => format!("process {}", location.pid),
                }
            }
            Grouping::Rank(..) => format!("rank {key}"),
            Grouping::Function(_) | Grouping::Library(_) | Grouping::Chain(_) => String::new(),
            Grouping::LibraryPair(_) | Grouping::Marked(_) | Grouping::Value(_) | Grouping::Peer(_) => String::new(),
        }
    }
}

/// The machine of a location, if it is another one than that of the first, and its rank.
fn origin(trace: &TraceSet, id: LocationId) -> [Datum; 2] {
    let host = trace.header_of(id).map(|header| &header.host).filter(|&host| *host != trace.header().host);
    let rank = trace.location(id).and_then(|location| trace.rank_of(location));
    [
        host.map_or(Datum::Absent, |host| Datum::Name(host.clone())),
        rank.map_or(Datum::Absent, |rank| Datum::Id(rank.into())),
    ]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use rtrace_model::{Header, Rank, Sink as _, Summary};

    use crate::testing::{script, writer};
    use crate::{By, Format, Options, Sort, run};

    #[test]
    fn ranks_are_in_their_order_and_the_busiest_is_named() {
        let folder = tempfile::tempdir().unwrap();
        for (rank, calls) in [(10, "thread 1\n a 0 100"), (2, "thread 1\n a 0 300"), (0, "thread 1\n a 0 200")] {
            let mut writer = writer(&folder.path().join(rank.to_string()));
            let rank = Some(Rank { rank, size: None, job: None });
            writer.begin(&Header { rank, ..Header::default() }).unwrap();
            writer.calls(&script(calls).into()).unwrap();
            writer.finish(&Summary::default()).unwrap();
        }
        let report = |by: By| {
            let mut out = Vec::new();
            run(
                folder.path(),
                &Options { by, sort: Sort::Name, format: Format::Json, ..Options::default() },
                &mut out,
            )?;
            Ok::<serde_json::Value, crate::Error>(serde_json::from_slice(&out).unwrap())
        };
        let ranks = report(By::Rank).unwrap();
        let rows: Vec<_> =
            ranks["rows"].as_array().unwrap().iter().map(|row| [&row["rank"], &row["exclusive_ns"]]).collect();
        assert_eq!(rows, [[0, 200], [2, 300], [10, 100]]);
        let notes = ranks["notes"].as_array().unwrap();
        assert!(
            notes.iter().any(|note| note.as_str().unwrap().starts_with("balance: rank 2 does the most work, 1.50")),
            "{notes:?}"
        );
        let alone = tempfile::tempdir().unwrap();
        writer(alone.path()).finish(&Summary::default()).unwrap();
        let refused = run(alone.path(), &Options { by: By::Rank, ..Options::default() }, &mut Vec::new());
        assert!(refused.unwrap_err().to_string().contains("no process of the recording"));
    }
}
