//! The global definitions of an archive: each before its users.

use std::collections::HashMap;
use std::io;
use std::path::Path;

use rtrace_model::{Base, Ending, Metric, Region, RegionId, Span, known};

use super::super::super::remarks::remarks;
use super::super::super::samples::SeriesOwner;
use super::super::super::step::PathStep;
use super::super::super::{Excerpt, ExportError};
use super::encoding::{Anchor, Chunks, DEFINITION_CHUNK, OtfRecord, PARAMETER_INT};
use super::files::{OtfFile, READ_WRITE};
use super::gathered::{Gathered, METRICS};
use super::messages::{self, OtfMessages};
use super::samples;

/// Identifiers of definition records.
mod kind {
    pub const CLOCK_PROPERTIES: u8 = 5;
    pub const IO_PARADIGM: u8 = 8;
    pub const STRING: u8 = 10;
    pub const ATTRIBUTE: u8 = 11;
    pub const SYSTEM_TREE_NODE: u8 = 12;
    pub const LOCATION_GROUP: u8 = 13;
    pub const LOCATION: u8 = 14;
    pub const REGION: u8 = 15;
    pub const CALLPATH: u8 = 17;
    pub const GROUP: u8 = 18;
    pub const COMM: u8 = 22;
    pub const RMA_WIN: u8 = 24;
    pub const METRIC_MEMBER: u8 = 19;
    pub const METRIC_CLASS: u8 = 20;
    pub const METRIC_INSTANCE: u8 = 21;
    pub const PARAMETER: u8 = 23;
    pub const SYSTEM_TREE_NODE_PROPERTY: u8 = 26;
    pub const SYSTEM_TREE_NODE_DOMAIN: u8 = 27;
    pub const LOCATION_GROUP_PROPERTY: u8 = 28;
    pub const LOCATION_PROPERTY: u8 = 29;
    pub const IO_REGULAR_FILE: u8 = 38;
    pub const IO_HANDLE: u8 = 40;
    pub const IO_PRE_CREATED_HANDLE_STATE: u8 = 41;
}

/// What nodes of the system tree are.
mod domain {
    pub const MACHINE: u8 = 0;
    pub const SHARED_MEMORY: u8 = 1;
    pub const SOCKET: u8 = 3;
}

/// The nodes of the system tree that every archive has.
const MACHINE: u32 = 0;
const NODE: u32 = 1;

const LOCATION_CPU_THREAD: u8 = 1;
const LOCATION_METRIC: u8 = 3;

/// Modes of metrics: what values are, and the span of time that they speak of.
const ACCUMULATED_SINCE_START: u8 = 0;
const ABSOLUTE_POINT: u8 = 0x11;
const ABSOLUTE_SINCE_LAST: u8 = 0x21;
const ABSOLUTE_UNTIL_NEXT: u8 = 0x31;

const UNDEFINED: u32 = u32::MAX;

/// Programming models.
const MPI: u8 = 4;
const SHMEM: u8 = 13;

/// The attribute of a leave that tells how the call ended.
pub(super) const ENDING: u32 = 0;

const NANOSECONDS: u64 = 1_000_000_000;

/// The text of an ending: the first texts defined, after the empty one.
pub(super) fn ending_string(ending: Ending) -> u32 {
    1 + ending as u32
}

pub(super) fn anchor(source: &Excerpt<'_>, gathered: &Gathered, definitions: u64) -> Result<Anchor, ExportError> {
    let mut properties: Vec<(String, String)> = Vec::new();
    for (name, value) in remarks(source)? {
        let name = format!("RTRACE::{}", name.to_ascii_uppercase());
        let same = properties.iter().filter(|(other, _)| other.starts_with(&name)).count();
        properties.push((if same == 0 { name } else { format!("{name}::{same}") }, value));
    }
    if gathered.left_out > 0 {
        let text = format!("{} values, as there are too many different texts", gathered.left_out);
        properties.push(("RTRACE::LEFT_OUT".to_owned(), text));
    }
    for (number, text) in gathered.remarks.iter().enumerate() {
        properties.push((format!("RTRACE::MESSAGES::{number}"), text.clone()));
    }
    let header = source.header();
    Ok(Anchor {
        machine: header.host.clone(),
        creator: format!("rtrace {}", header.rtrace_version),
        description: header.command_line.join(" "),
        properties,
        locations: (gathered.locations.len() + gathered.series.len()) as u64,
        definitions,
        id: header.begin.realtime_ns ^ header.begin.monotonic.0.rotate_left(32),
    })
}

/// Writes the file; returns the number of definitions.
pub(super) fn write(
    source: &Excerpt<'_>,
    gathered: &Gathered,
    messages: Option<&OtfMessages<'_>>,
    path: &Path,
) -> Result<u64, ExportError> {
    let file = Chunks::create(path, DEFINITION_CHUNK)?;
    let mut definitions =
        OtfDefinitions { file, written: 0, strings: HashMap::new(), groups: HashMap::new(), sockets: HashMap::new() };
    definitions.clock(source, gathered)?;
    // These have the numbers that events refer to.
    for (number, text) in (0..).zip(&gathered.texts) {
        let place = definitions.string(text)?;
        debug_assert_eq!(place, number);
    }
    definitions.attribute()?;
    for (number, (name, kind)) in (0..).zip(&gathered.parameters) {
        definitions.parameter(number, name, *kind)?;
    }
    definitions.system_tree(source)?;
    definitions.threads(source, gathered)?;
    for (place, &region) in (0..).zip(&gathered.regions) {
        definitions.region(source, place, region)?;
    }
    for (place, path) in (0..).zip(&gathered.paths.all) {
        let PathStep::Function(region) = path.step else { continue };
        let parent = path.parent.map_or(UNDEFINED, |parent| parent as u32);
        let mut record = OtfRecord::default();
        record.int(place).int(parent).int(gathered.places[&region]);
        definitions.put(kind::CALLPATH, &record)?;
    }
    if let Some(messages) = messages {
        definitions.communicators(source, messages)?;
        definitions.files(messages.files())?;
    }
    definitions.call_metrics(source)?;
    definitions.sampled_metrics(source, gathered)?;
    definitions.file.finish()?;
    Ok(definitions.written)
}

/// What a program is called: a rank by its number, as tools for parallel jobs expect it.
fn name_of(source: &Excerpt<'_>, program: usize) -> String {
    let name = source.step(PathStep::Program(program));
    let programs = &source.threads.programs;
    let Some(rank) = programs[program].rank else { return name };
    match programs.iter().filter(|other| other.rank == Some(rank)).count() {
        1 => format!("MPI Rank {rank}"),
        _ => format!("MPI Rank {rank}: {name}"),
    }
}

/// The programming model that a function belongs to, by which tools colour it.
fn paradigm(symbol: &str) -> u8 {
    match known("model", symbol) {
        Some("openmp") => 3,
        Some("mpi") => MPI,
        Some("cuda") => 5,
        Some("pthread") => 7,
        Some("shmem") => SHMEM,
        Some("hip") => 23,
        _ => 1,
    }
}

struct OtfDefinitions {
    file: Chunks,
    written: u64,
    strings: HashMap<String, u32>,
    /// Location groups: one for each program, and one, `None`, for what belongs to no process.
    groups: HashMap<Option<usize>, u32>,
    /// System tree nodes of sockets.
    sockets: HashMap<u32, u32>,
}

impl OtfDefinitions {
    fn put(&mut self, kind: u8, record: &OtfRecord) -> io::Result<()> {
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
        let mut record = OtfRecord::default();
        record.int(place).text(text);
        self.put(kind::STRING, &record)?;
        Ok(place)
    }

    fn clock(&mut self, source: &Excerpt<'_>, gathered: &Gathered) -> io::Result<()> {
        let begin = source.header().begin;
        let (first, last) = gathered.span.unwrap_or((begin.monotonic, begin.monotonic));
        let realtime = begin.realtime_ns.wrapping_add(first.0).wrapping_sub(begin.monotonic.0);
        let mut record = OtfRecord::default();
        record.long(NANOSECONDS).long(first.0).long(last.since(first)).long(realtime);
        self.put(kind::CLOCK_PROPERTIES, &record)
    }

    fn attribute(&mut self) -> io::Result<()> {
        let name = self.string("ending")?;
        let description = self.string("how the call ended, where it did not return")?;
        let mut record = OtfRecord::default();
        record.int(ENDING).int(name).byte(super::TYPE_STRING).int(description);
        self.put(kind::ATTRIBUTE, &record)
    }

    fn parameter(&mut self, number: u32, name: &str, kind: u8) -> io::Result<()> {
        const STRING: u8 = 0;
        const INT64: u8 = 1;
        let name = self.string(name)?;
        let mut record = OtfRecord::default();
        record.int(number).int(name).byte(if kind == PARAMETER_INT { INT64 } else { STRING });
        self.put(kind::PARAMETER, &record)
    }

    /// The machine, and its one node.
    fn system_tree(&mut self, source: &Excerpt<'_>) -> io::Result<()> {
        let header = source.header();
        self.node(MACHINE, &header.host, "machine", UNDEFINED, domain::MACHINE)?;
        self.node(NODE, &header.host, "node", MACHINE, domain::SHARED_MEMORY)?;
        for (name, value) in [("kernel", &header.kernel), ("cpus", &header.cpus.to_string())] {
            self.property(kind::SYSTEM_TREE_NODE_PROPERTY, NODE.into(), name, value)?;
        }
        Ok(())
    }

    fn node(&mut self, node: u32, name: &str, class: &str, parent: u32, domain: u8) -> io::Result<()> {
        let (name, class) = (self.string(name)?, self.string(class)?);
        let mut record = OtfRecord::default();
        record.int(node).int(name).int(class).int(parent);
        self.put(kind::SYSTEM_TREE_NODE, &record)?;
        record.clear();
        record.int(node).byte(domain);
        self.put(kind::SYSTEM_TREE_NODE_DOMAIN, &record)
    }

    /// The node of a socket, which is defined where it was not.
    fn socket(&mut self, socket: u32) -> io::Result<u32> {
        if let Some(&node) = self.sockets.get(&socket) {
            return Ok(node);
        }
        let node = NODE + 1 + self.sockets.len() as u32;
        self.sockets.insert(socket, node);
        self.node(node, &format!("socket {socket}"), "socket", NODE, domain::SOCKET)?;
        Ok(node)
    }

    /// Processes as location groups, threads as locations.
    fn threads(&mut self, source: &Excerpt<'_>, gathered: &Gathered) -> io::Result<()> {
        for &(location, events) in &gathered.locations {
            let thread = source.threads.thread(location);
            let group = self.group(source, Some(thread.program))?;
            let name = source.step(PathStep::Thread(location));
            self.location(location.0.into(), &name, LOCATION_CPU_THREAD, events, group)?;
            self.property(kind::LOCATION_PROPERTY, location.0.into(), "tid", &thread.tid.to_string())?;
            if let Some(entered) = source.location(location).and_then(|location| location.calls_entered) {
                let entered = entered.to_string();
                self.property(kind::LOCATION_PROPERTY, location.0.into(), "calls entered", &entered)?;
            }
        }
        Ok(())
    }

    fn location(&mut self, location: u64, name: &str, of: u8, events: u64, group: u32) -> io::Result<()> {
        let name = self.string(name)?;
        let mut record = OtfRecord::default();
        record.long(location).int(name).byte(of).long(events).int(group);
        self.put(kind::LOCATION, &record)
    }

    /// The location group of a program, or of what belongs to none; it is defined where it was not.
    fn group(&mut self, source: &Excerpt<'_>, program: Option<usize>) -> io::Result<u32> {
        const PROCESS: u8 = 1;
        if let Some(&group) = self.groups.get(&program) {
            return Ok(group);
        }
        let group = self.groups.len() as u32;
        self.groups.insert(program, group);
        let name = program.map_or("rtrace".to_owned(), |program| name_of(source, program));
        let name = self.string(&name)?;
        let mut record = OtfRecord::default();
        record.int(group).int(name).byte(PROCESS).int(NODE).int(UNDEFINED);
        self.put(kind::LOCATION_GROUP, &record)?;
        if let Some(program) = program.map(|program| &source.threads.programs[program]) {
            let property = kind::LOCATION_GROUP_PROPERTY;
            self.property(property, group.into(), "pid", &program.pid.to_string())?;
            if let Some(parent) = program.parent {
                self.property(property, group.into(), "parent", &parent.to_string())?;
            }
            self.property(property, group.into(), "command line", &program.command_line.join(" "))?;
        }
        Ok(group)
    }

    /// A text about a location, a group of them, or a node.
    fn property(&mut self, kind: u8, of: u64, name: &str, value: &str) -> io::Result<()> {
        let (name, value) = (self.string(name)?, self.string(value)?);
        let mut record = OtfRecord::default();
        // The value stands there twice: as versions before 2.0 had it, and with its type.
        record.long(of).int(name).int(value).byte(super::TYPE_STRING).int(value);
        self.put(kind, &record)
    }

    fn region(&mut self, source: &Excerpt<'_>, place: u32, id: RegionId) -> io::Result<()> {
        /// What versions before 1.2 have in place of role and paradigm.
        const TYPE_FUNCTION: u8 = 3;
        let (name, symbol) = (self.string(&source.function_alone(id))?, source.symbol(id));
        let canonical = self.string(&symbol)?;
        let role = messages::role(source.region(id).and_then(|region| region.event), &symbol);
        let description = self.string(source.library_of(id))?;
        let (file, line) = source.begin_of(id);
        let file = file.map_or(Ok(UNDEFINED), |file| self.string(file))?;
        let mut record = OtfRecord::default();
        record.int(place).int(name).int(description).byte(TYPE_FUNCTION);
        record.int(file).int(line.unwrap_or(0)).int(0); // source file, first and last line
        record.int(canonical).byte(role).byte(paradigm(&symbol)).int(0);
        self.put(kind::REGION, &record)
    }

    /// The ranks, the communicators with their groups, and their windows.
    fn communicators(&mut self, source: &Excerpt<'_>, messages: &OtfMessages<'_>) -> io::Result<()> {
        /// Types of groups, as versions before 1.2 have them, and today.
        const LOCATIONS: [u8; 2] = [6, 4];
        const RANKS: [u8; 2] = [4, 5];
        let symbols = || source.regions().iter().map(Region::symbol);
        let model = symbols().map(|symbol| paradigm(&symbol)).filter(|model| [MPI, SHMEM].contains(model)).min();
        let model = model.unwrap_or(MPI);
        let locations = messages.ranks().iter().map(|location| location.0.into());
        self.members(0, "ranks", (LOCATIONS, model), locations)?;
        for (id, communicator) in (0..).zip(messages.communicators()) {
            let name = if id == 0 { "MPI_COMM_WORLD".to_owned() } else { format!("communicator {id}") };
            self.members(id + 1, &name, (RANKS, model), messages::members(communicator).map(u64::from))?;
            let parent = communicator.parent.map_or(UNDEFINED, |parent| parent.0);
            let name = self.string(&name)?;
            let mut record = OtfRecord::default();
            record.int(id).int(name).int(id + 1).int(parent).int(0);
            self.put(kind::COMM, &record)?;
        }
        for (id, window) in (0..).zip(messages.windows()) {
            let name = self.string(&format!("window {id}"))?;
            let mut record = OtfRecord::default();
            record.int(id).int(name).int(window.communicator.0).int(0);
            self.put(kind::RMA_WIN, &record)?;
        }
        Ok(())
    }

    /// The files that were accessed, and the handles by which. All are MPI's.
    fn files(&mut self, files: &[OtfFile]) -> io::Result<()> {
        const MPI_IO: u8 = 0;
        const PARALLEL: u8 = 1;
        const PRE_CREATED: u32 = 1;
        if files.is_empty() {
            return Ok(());
        }
        let (identification, name) = (self.string("MPI-IO")?, self.string("MPI I/O")?);
        let mut record = OtfRecord::default();
        record.byte(MPI_IO).int(identification).int(name).byte(PARALLEL).int(0).byte(0);
        self.put(kind::IO_PARADIGM, &record)?;
        let mut paths: HashMap<&str, u32> = HashMap::new();
        for (number, OtfFile { path, communicator, is_found }) in (0..).zip(files) {
            let name = self.string(path.as_deref().unwrap_or(""))?;
            let file = match path {
                Some(path) => {
                    let next = paths.len() as u32;
                    let file = *paths.entry(path).or_insert(next);
                    if file == next {
                        record.clear();
                        record.int(file).int(name).int(NODE);
                        self.put(kind::IO_REGULAR_FILE, &record)?;
                    }
                    file
                }
                None => UNDEFINED,
            };
            let communicator = communicator.map_or(UNDEFINED, |communicator| communicator.0);
            record.clear();
            record.int(number).int(name).int(file).byte(MPI_IO);
            record.int(if *is_found { PRE_CREATED } else { 0 }).int(communicator).int(UNDEFINED);
            self.put(kind::IO_HANDLE, &record)?;
            if *is_found {
                record.clear();
                record.int(number).byte(READ_WRITE).int(0);
                self.put(kind::IO_PRE_CREATED_HANDLE_STATE, &record)?;
            }
        }
        Ok(())
    }

    fn members(
        &mut self,
        group: u32,
        name: &str,
        ([old_type, group_type], model): ([u8; 2], u8),
        members: impl Iterator<Item = u64>,
    ) -> io::Result<()> {
        let members: Vec<u64> = members.collect();
        let mut record = OtfRecord::default();
        record.int(group).int(self.string(name)?).byte(old_type).int(members.len() as u32);
        for member in members {
            record.long(member);
        }
        record.byte(group_type).byte(model).int(0);
        self.put(kind::GROUP, &record)
    }

    /// What calls have readings of, as one class.
    fn call_metrics(&mut self, source: &Excerpt<'_>) -> io::Result<()> {
        const SYNCHRONOUS_STRICT: u8 = 0;
        const RECORDED_BY_CPU: u8 = 2;
        let metrics = super::metrics(source);
        if metrics.is_empty() {
            return Ok(());
        }
        let mut class = OtfRecord::default();
        class.int(METRICS).byte(metrics.len() as u8);
        for (place, metric) in (0..).zip(metrics) {
            self.member(place, metric, super::TYPE_UINT64, ACCUMULATED_SINCE_START)?;
            class.int(place);
        }
        class.byte(SYNCHRONOUS_STRICT).byte(RECORDED_BY_CPU);
        self.put(kind::METRIC_CLASS, &class)
    }

    /// A class for each metric beside the calls; an instance and a recorder for each series.
    fn sampled_metrics(&mut self, source: &Excerpt<'_>, gathered: &Gathered) -> io::Result<()> {
        const ASYNCHRONOUS: u8 = 2;
        const RECORDED_BY_METRIC_LOCATION: u8 = 1;
        for (place, metric) in source.sampled_metrics().iter().enumerate() {
            let member = (super::metrics(source).len() + place) as u32;
            let mode = match metric.span {
                Span::SinceStart => ACCUMULATED_SINCE_START,
                Span::Point => ABSOLUTE_POINT,
                Span::SinceLast => ABSOLUTE_SINCE_LAST,
                Span::UntilNext => ABSOLUTE_UNTIL_NEXT,
            };
            self.member(member, metric, super::TYPE_DOUBLE, mode)?;
            let mut class = OtfRecord::default();
            class.int(samples::class(source, place)).byte(1).int(member);
            class.byte(ASYNCHRONOUS).byte(RECORDED_BY_METRIC_LOCATION);
            self.put(kind::METRIC_CLASS, &class)?;
        }
        for (place, &(series, values)) in gathered.series.iter().enumerate() {
            let (group, (scope, of)) = self.scope(source, gathered, series.owner)?;
            let (metric, recorder) = (series.metric(), samples::recorder(place));
            self.location(recorder, &series.name(source), LOCATION_METRIC, values, group)?;
            let mut instance = OtfRecord::default();
            instance.int(samples::instance(source, place)).int(samples::class(source, metric));
            instance.long(recorder).byte(scope).long(of);
            self.put(kind::METRIC_INSTANCE, &instance)?;
        }
        Ok(())
    }

    /// The group of the recorder of what belongs to the owner, and the scope of its values: the kind
    /// and number of a definition.
    fn scope(&mut self, source: &Excerpt<'_>, gathered: &Gathered, owner: SeriesOwner) -> io::Result<(u32, (u8, u64))> {
        const LOCATION: u8 = 0;
        const LOCATION_GROUP: u8 = 1;
        const SYSTEM_TREE_NODE: u8 = 2;
        match owner {
            SeriesOwner::Thread(location) => {
                let group = self.group(source, Some(source.threads.thread(location).program))?;
                // A thread without calls is no location of the archive.
                let is_defined = gathered.locations.iter().any(|&(defined, _)| defined == location);
                let scope = if is_defined { (LOCATION, location.0.into()) } else { (LOCATION_GROUP, group.into()) };
                Ok((group, scope))
            }
            SeriesOwner::Program(program) => {
                let group = self.group(source, Some(program))?;
                Ok((group, (LOCATION_GROUP, group.into())))
            }
            SeriesOwner::Socket(socket) => {
                Ok((self.group(source, None)?, (SYSTEM_TREE_NODE, self.socket(socket)?.into())))
            }
            SeriesOwner::Node => Ok((self.group(source, None)?, (SYSTEM_TREE_NODE, NODE.into()))),
        }
    }

    fn member(&mut self, member: u32, metric: &Metric, value: u8, mode: u8) -> io::Result<()> {
        const TYPE_OTHER: u8 = 0;
        let (name, unit) = (self.string(&metric.name)?, self.string(&metric.unit)?);
        let mut record = OtfRecord::default();
        record.int(member).int(name).int(name).byte(TYPE_OTHER).byte(mode);
        record.byte(value).byte(u8::from(metric.base == Base::Decimal));
        record.signed(metric.exponent.into()).int(unit);
        self.put(kind::METRIC_MEMBER, &record)
    }
}
