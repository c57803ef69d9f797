//! The global definitions of an archive: each before its users.

use std::collections::HashMap;
use std::io;
use std::path::Path;

use rtrace_model::{Base, Ending, LocationId, RegionId, Timestamp};

use super::super::super::paths::{Paths, Step};
use super::super::super::remarks::remarks;
use super::super::super::{ExportError, Source};
use super::encoding::{Anchor, Chunks, DEFINITION_CHUNK, Record};

/// Identifiers of definition records.
mod kind {
    pub const CLOCK_PROPERTIES: u8 = 5;
    pub const STRING: u8 = 10;
    pub const ATTRIBUTE: u8 = 11;
    pub const SYSTEM_TREE_NODE: u8 = 12;
    pub const LOCATION_GROUP: u8 = 13;
    pub const LOCATION: u8 = 14;
    pub const REGION: u8 = 15;
    pub const CALLPATH: u8 = 17;
    pub const METRIC_MEMBER: u8 = 19;
    pub const METRIC_CLASS: u8 = 20;
    pub const SYSTEM_TREE_NODE_PROPERTY: u8 = 26;
    pub const SYSTEM_TREE_NODE_DOMAIN: u8 = 27;
    pub const LOCATION_GROUP_PROPERTY: u8 = 28;
    pub const LOCATION_PROPERTY: u8 = 29;
}

const UNDEFINED: u32 = u32::MAX;

/// The attribute of a leave that tells how the call ended.
pub(super) const ENDING: u32 = 0;

/// The class of the metrics that calls have readings of.
pub(super) const METRICS: u32 = 0;

const NANOSECONDS: u64 = 1_000_000_000;

/// The text of an ending: the first texts defined, after the empty one.
pub(super) fn ending_string(ending: Ending) -> u32 {
    1 + ending as u32
}

/// What the events refer to, and where they lie.
#[derive(Default)]
pub(super) struct Gathered {
    /// The locations with the number of their events.
    pub(super) locations: Vec<(LocationId, u64)>,
    regions: Vec<RegionId>,
    places: HashMap<RegionId, u32>,
    paths: Paths,
    span: Option<(Timestamp, Timestamp)>,
}

impl Gathered {
    /// The archive's number of a region: they count up from 0 without holes.
    pub(super) fn region(&mut self, id: RegionId) -> u32 {
        *self.places.entry(id).or_insert_with(|| {
            self.regions.push(id);
            self.regions.len() as u32 - 1
        })
    }

    /// The archive's number of a call path.
    pub(super) fn path(&mut self, parent: Option<usize>, region: RegionId) -> usize {
        self.region(region);
        self.paths.place(parent, Step::Function(region))
    }

    pub(super) fn at(&mut self, time: Timestamp) {
        let (begin, end) = self.span.unwrap_or((time, time));
        self.span = Some((begin.min(time), end.max(time)));
    }
}

pub(super) fn anchor(source: &Source<'_>, gathered: &Gathered, definitions: u64) -> Result<Anchor, ExportError> {
    let mut properties: Vec<(String, String)> = Vec::new();
    for (name, value) in remarks(source)? {
        let name = format!("RTRACE::{}", name.to_ascii_uppercase());
        let same = properties.iter().filter(|(other, _)| other.starts_with(&name)).count();
        properties.push((if same == 0 { name } else { format!("{name}::{same}") }, value));
    }
    let header = source.header();
    Ok(Anchor {
        machine: header.host.clone(),
        creator: format!("rtrace {}", header.rtrace_version),
        description: header.command_line.join(" "),
        properties,
        locations: gathered.locations.len() as u64,
        definitions,
        id: header.begin.realtime_ns ^ header.begin.monotonic.0.rotate_left(32),
    })
}

/// Writes the file; returns the number of definitions.
pub(super) fn write(source: &Source<'_>, gathered: &Gathered, path: &Path) -> Result<u64, ExportError> {
    let file = Chunks::create(path, DEFINITION_CHUNK)?;
    let mut definitions = Definitions { file, written: 0, strings: HashMap::new() };
    definitions.clock(source, gathered)?;
    definitions.string("")?;
    for ending in Ending::ALL {
        let place = definitions.string(ending.name())?;
        debug_assert_eq!(place, ending_string(ending));
    }
    definitions.attribute()?;
    definitions.system_tree(source)?;
    definitions.threads(source, gathered)?;
    for (place, &region) in (0..).zip(&gathered.regions) {
        definitions.region(source, place, region)?;
    }
    for (place, path) in (0..).zip(&gathered.paths.all) {
        let Step::Function(region) = path.step else { continue };
        let parent = path.parent.map_or(UNDEFINED, |parent| parent as u32);
        let mut record = Record::default();
        record.int(place).int(parent).int(gathered.places[&region]);
        definitions.put(kind::CALLPATH, &record)?;
    }
    definitions.metrics(source)?;
    definitions.file.finish()?;
    Ok(definitions.written)
}

struct Definitions {
    file: Chunks,
    written: u64,
    strings: HashMap<String, u32>,
}

impl Definitions {
    fn put(&mut self, kind: u8, record: &Record) -> io::Result<()> {
        self.written += 1;
        self.file.definition(kind, record)
    }

    /// The number of a text, which is defined where it was not.
    fn string(&mut self, text: &str) -> io::Result<u32> {
        if let Some(&place) = self.strings.get(text) {
            return Ok(place);
        }
        let place = self.strings.len() as u32;
        self.strings.insert(text.to_owned(), place);
        let mut record = Record::default();
        record.int(place).text(text);
        self.put(kind::STRING, &record)?;
        Ok(place)
    }

    fn clock(&mut self, source: &Source<'_>, gathered: &Gathered) -> io::Result<()> {
        let begin = source.header().begin;
        let (first, last) = gathered.span.unwrap_or((begin.monotonic, begin.monotonic));
        let realtime = begin.realtime_ns.wrapping_add(first.0).wrapping_sub(begin.monotonic.0);
        let mut record = Record::default();
        record.long(NANOSECONDS).long(first.0).long(last.since(first)).long(realtime);
        self.put(kind::CLOCK_PROPERTIES, &record)
    }

    fn attribute(&mut self) -> io::Result<()> {
        let name = self.string("ending")?;
        let description = self.string("how the call ended, where it did not return")?;
        let mut record = Record::default();
        record.int(ENDING).int(name).byte(super::TYPE_STRING).int(description);
        self.put(kind::ATTRIBUTE, &record)
    }

    /// The machine, and its one node.
    fn system_tree(&mut self, source: &Source<'_>) -> io::Result<()> {
        const MACHINE: (u32, u8) = (0, 0);
        const SHARED_MEMORY: (u32, u8) = (1, 1);
        let header = source.header();
        let host = self.string(&header.host)?;
        for ((node, domain), class, parent) in [(MACHINE, "machine", UNDEFINED), (SHARED_MEMORY, "node", MACHINE.0)] {
            let class = self.string(class)?;
            let mut record = Record::default();
            record.int(node).int(host).int(class).int(parent);
            self.put(kind::SYSTEM_TREE_NODE, &record)?;
            record.clear();
            record.int(node).byte(domain);
            self.put(kind::SYSTEM_TREE_NODE_DOMAIN, &record)?;
        }
        for (name, value) in [("kernel", &header.kernel), ("cpus", &header.cpus.to_string())] {
            self.property(kind::SYSTEM_TREE_NODE_PROPERTY, SHARED_MEMORY.0.into(), name, value)?;
        }
        Ok(())
    }

    /// Processes as location groups, threads as locations.
    fn threads(&mut self, source: &Source<'_>, gathered: &Gathered) -> io::Result<()> {
        const PROCESS: u8 = 1;
        const CPU_THREAD: u8 = 1;
        const NODE: u32 = 1;
        let mut groups: HashMap<usize, u32> = HashMap::new();
        for &(location, events) in &gathered.locations {
            let thread = source.threads.thread(location);
            let mut record = Record::default();
            let group = match groups.get(&thread.program) {
                Some(&group) => group,
                None => {
                    let group = groups.len() as u32;
                    groups.insert(thread.program, group);
                    let program = source.threads.program(thread);
                    let name = self.string(&source.step(Step::Program(thread.program)))?;
                    record.int(group).int(name).byte(PROCESS).int(NODE).int(UNDEFINED);
                    self.put(kind::LOCATION_GROUP, &record)?;
                    let property = kind::LOCATION_GROUP_PROPERTY;
                    self.property(property, group.into(), "pid", &program.pid.to_string())?;
                    if let Some(parent) = program.parent {
                        self.property(property, group.into(), "parent", &parent.to_string())?;
                    }
                    self.property(property, group.into(), "command line", &program.command_line.join(" "))?;
                    group
                }
            };
            let name = self.string(&source.step(Step::Thread(location)))?;
            record.clear();
            record.long(location.0.into()).int(name).byte(CPU_THREAD).long(events).int(group);
            self.put(kind::LOCATION, &record)?;
            self.property(kind::LOCATION_PROPERTY, location.0.into(), "tid", &thread.tid.to_string())?;
            if let Some(entered) = source.location(location).and_then(|location| location.calls_entered) {
                let entered = entered.to_string();
                self.property(kind::LOCATION_PROPERTY, location.0.into(), "calls entered", &entered)?;
            }
        }
        Ok(())
    }

    /// A text about a location, a group of them, or a node.
    fn property(&mut self, kind: u8, of: u64, name: &str, value: &str) -> io::Result<()> {
        let (name, value) = (self.string(name)?, self.string(value)?);
        let mut record = Record::default();
        // The value stands there twice: as versions before 2.0 had it, and with its type.
        record.long(of).int(name).int(value).byte(super::TYPE_STRING).int(value);
        self.put(kind, &record)
    }

    fn region(&mut self, source: &Source<'_>, place: u32, id: RegionId) -> io::Result<()> {
        /// What versions before 1.2 have in place of role and paradigm.
        const TYPE_FUNCTION: u8 = 3;
        const ROLE_FUNCTION: u8 = 1;
        const PARADIGM_USER: u8 = 1;
        let name = self.string(source.function(id))?;
        let canonical = self.string(source.symbol(id))?;
        let description = self.string(source.library_of(id))?;
        let mut record = Record::default();
        record.int(place).int(name).int(description).byte(TYPE_FUNCTION);
        record.int(UNDEFINED).int(0).int(0); // source file, first and last line
        record.int(canonical).byte(ROLE_FUNCTION).byte(PARADIGM_USER).int(0);
        self.put(kind::REGION, &record)
    }

    /// What calls have readings of, as one class.
    fn metrics(&mut self, source: &Source<'_>) -> io::Result<()> {
        const TYPE_OTHER: u8 = 0;
        const ACCUMULATED_SINCE_START: u8 = 0;
        const SYNCHRONOUS_STRICT: u8 = 0;
        const RECORDED_BY_CPU: u8 = 2;
        let metrics = super::metrics(source);
        if metrics.is_empty() {
            return Ok(());
        }
        let mut class = Record::default();
        class.int(METRICS).byte(metrics.len() as u8);
        for (place, metric) in (0..).zip(metrics) {
            let (name, unit) = (self.string(&metric.name)?, self.string(&metric.unit)?);
            let mut member = Record::default();
            member.int(place).int(name).int(name).byte(TYPE_OTHER).byte(ACCUMULATED_SINCE_START);
            member.byte(super::TYPE_UINT64).byte(u8::from(metric.base == Base::Decimal));
            member.signed(metric.exponent.into()).int(unit);
            self.put(kind::METRIC_MEMBER, &member)?;
            class.int(place);
        }
        class.byte(SYNCHRONOUS_STRICT).byte(RECORDED_BY_CPU);
        self.put(kind::METRIC_CLASS, &class)
    }
}
