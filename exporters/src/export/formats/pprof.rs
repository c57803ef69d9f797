//! pprof's profile: a sample per call path and thread, with calls and own time, gzipped.
//! See <https://github.com/google/pprof/blob/main/proto/profile.proto>.

use std::collections::{BTreeMap, HashMap};
use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use rtrace_model::{LibraryId, RegionId};

use super::super::format::{ExportFormat, Form};
use super::super::paths::{ExportPaths, Path};
use super::super::protobuf::Message;
use super::super::remarks::remarks;
use super::super::step::PathStep;
use super::super::{Excerpt, ExportError};
use crate::{Costs, UntracedId};

pub(super) const FORMAT: ExportFormat = ExportFormat {
    name: "pprof",
    summary: "pprof's profile: call paths with calls and own time",
    extension: "pb.gz",
    opens_in: "pprof, go tool pprof, Grafana Pyroscope, speedscope",
    keeps: "number of calls, own time in ns, with and without tracing, and counters of every call path, contexts, by process and thread (labels); \
            losses as comments",
    omits: "times of single calls, endings",
    untimed: "counted, no time",
    form: Form::File(write),
};

/// The own time without tracing, which is what tools show first where it is known.
const CORRECTED: &str = "corrected_time";

/// Fields of the messages, by the names that the schema gives them.
mod field {
    pub const SAMPLE_TYPE: u64 = 1;
    pub const SAMPLE: u64 = 2;
    pub const MAPPING: u64 = 3;
    pub const LOCATION: u64 = 4;
    pub const FUNCTION: u64 = 5;
    pub const STRING: u64 = 6;
    pub const TIME_NANOS: u64 = 9;
    pub const DURATION_NANOS: u64 = 10;
    pub const COMMENT: u64 = 13;
    pub const DEFAULT_SAMPLE_TYPE: u64 = 14;

    pub const SAMPLE_LOCATIONS: u64 = 1;
    pub const SAMPLE_VALUES: u64 = 2;
    pub const SAMPLE_LABEL: u64 = 3;
    pub const LABEL_KEY: u64 = 1;
    pub const LABEL_TEXT: u64 = 2;
    pub const LABEL_NUMBER: u64 = 3;
    pub const TYPE_NAME: u64 = 1;
    pub const TYPE_UNIT: u64 = 2;

    pub const ID: u64 = 1;
    pub const MAPPING_FILE: u64 = 5;
    pub const MAPPING_BUILD_ID: u64 = 6;
    pub const MAPPING_HAS_FUNCTIONS: u64 = 7;
    pub const LOCATION_MAPPING: u64 = 2;
    pub const LOCATION_ADDRESS: u64 = 3;
    pub const LOCATION_LINE: u64 = 4;
    pub const LINE_FUNCTION: u64 = 1;
    pub const FUNCTION_NAME: u64 = 2;
    pub const FUNCTION_SYMBOL: u64 = 3;
    pub const FUNCTION_FILE: u64 = 4;
}

fn write(source: &Excerpt<'_>, output: &mut dyn Write) -> Result<(), ExportError> {
    let paths = ExportPaths::of_threads(source)?;
    let mut profile = Profile {
        source,
        is_corrected: Costs::of(source).is_some(),
        texts: HashMap::new(),
        untraced: HashMap::new(),
        message: Message::new(),
    };
    profile.text("");
    let times = if profile.is_corrected { &["time", CORRECTED][..] } else { &["time"] };
    let sums = [("calls", "count")].into_iter().chain(times.iter().map(|&name| (name, "nanoseconds")));
    let metrics = source.call_metrics().iter().map(|metric| (metric.name.as_str(), metric.unit.as_str()));
    for (name, unit) in sums.chain(metrics) {
        let mut kind = Message::new();
        kind.int(field::TYPE_NAME, profile.text(name)).int(field::TYPE_UNIT, profile.text(unit));
        profile.message.message(field::SAMPLE_TYPE, &kind);
    }
    let mut regions = BTreeMap::new();
    for (place, path) in paths.all.iter().enumerate() {
        match path.step {
            PathStep::Function(region) => {
                let library = source.region(region).map(|region| region.library);
                regions.insert(region, library);
                if path.figures.totals.calls > 0 {
                    profile.sample(&paths, place, path);
                }
            }
            PathStep::Untraced(function) => profile.untraced(function),
            PathStep::Program(_) | PathStep::Thread(_) => {}
        }
    }
    profile.definitions(&regions);
    let begin = source.header().begin;
    let length = source.summary().map_or(0, |summary| summary.end.monotonic.since(begin.monotonic));
    profile.message.int(field::TIME_NANOS, begin.realtime_ns).int(field::DURATION_NANOS, length);
    for (name, text) in remarks(source)? {
        let comment = profile.text(&format!("{name}: {text}"));
        profile.message.int(field::COMMENT, comment);
    }
    let time = profile.text(times.last().unwrap_or(&CORRECTED));
    profile.message.int(field::DEFAULT_SAMPLE_TYPE, time);

    let mut output = GzEncoder::new(output, Compression::default());
    output.write_all(profile.message.bytes())?;
    output.finish()?;
    Ok(())
}

/// A profile under construction.
struct Profile<'a> {
    source: &'a Excerpt<'a>,
    /// Whether it is known what tracing took.
    is_corrected: bool,
    texts: HashMap<String, u64>,
    untraced: HashMap<UntracedId, u64>,
    message: Message,
}

impl Profile<'_> {
    /// The number of a text, which is added where it is new.
    fn text(&mut self, text: &str) -> u64 {
        if let Some(&place) = self.texts.get(text) {
            return place;
        }
        let place = self.texts.len() as u64;
        self.message.text(field::STRING, text);
        self.texts.insert(text.to_owned(), place);
        place
    }

    fn sample(&mut self, paths: &ExportPaths, place: usize, path: &Path) {
        let mut sample = Message::new();
        let locations = paths.upward(place).filter_map(|path| match path.step {
            PathStep::Function(region) => Some(id(region)),
            PathStep::Untraced(function) => self.untraced.get(&function).copied(),
            PathStep::Program(_) | PathStep::Thread(_) => None,
        });
        sample.packed(field::SAMPLE_LOCATIONS, locations);
        let figures = &path.figures;
        let own = self.is_corrected.then(|| figures.own());
        let readings = (0..self.source.call_metrics().len())
            .map(|metric| figures.counts.get(metric).map_or(0, |count| count.exclusive));
        sample.packed(
            field::SAMPLE_VALUES,
            [figures.totals.calls, figures.totals.exclusive].into_iter().chain(own).chain(readings),
        );
        for path in paths.upward(place) {
            let PathStep::Thread(location) = path.step else { continue };
            let source = self.source;
            let thread = source.threads.thread(location);
            let program = source.threads.program(thread);
            for (key, text) in [("process", &program.name), ("thread", &thread.name)] {
                let mut label = Message::new();
                label.int(field::LABEL_KEY, self.text(key)).int(field::LABEL_TEXT, self.text(text));
                sample.message(field::SAMPLE_LABEL, &label);
            }
            for (key, number) in [("pid", program.number), ("tid", thread.number)] {
                let mut label = Message::new();
                label.int(field::LABEL_KEY, self.text(key)).int(field::LABEL_NUMBER, number.into());
                sample.message(field::SAMPLE_LABEL, &label);
            }
        }
        self.message.message(field::SAMPLE, &sample);
    }

    /// A function that is not traced, if it is new: it has a name, which names its file, and no place.
    fn untraced(&mut self, function: UntracedId) {
        let id = FIRST_UNTRACED + self.untraced.len() as u64;
        if self.untraced.contains_key(&function) {
            return;
        }
        self.untraced.insert(function, id);
        let (mut location, mut line, mut of) = (Message::new(), Message::new(), Message::new());
        line.int(field::LINE_FUNCTION, id);
        location.int(field::ID, id).message(field::LOCATION_LINE, &line);
        let name = self.text(&self.source.step(PathStep::Untraced(function)));
        of.int(field::ID, id).int(field::FUNCTION_NAME, name);
        self.message.message(field::LOCATION, &location).message(field::FUNCTION, &of);
    }

    /// Functions with their libraries, each at its place in the file.
    fn definitions(&mut self, regions: &BTreeMap<RegionId, Option<LibraryId>>) {
        let source = self.source;
        for library in source.libraries() {
            let mut mapping = Message::new();
            mapping.int(field::ID, mapping_id(library.id)).int(field::MAPPING_FILE, self.text(&library.path));
            mapping.int(field::MAPPING_BUILD_ID, self.text(library.build_id.as_deref().unwrap_or("")));
            mapping.int(field::MAPPING_HAS_FUNCTIONS, 1);
            self.message.message(field::MAPPING, &mapping);
        }
        for (&region, library) in regions {
            let (mut location, mut line, mut function) = (Message::new(), Message::new(), Message::new());
            line.int(field::LINE_FUNCTION, id(region));
            let library = library.filter(|&library| source.library(library).is_some());
            let address = source.region(region).map_or(0, |region| region.file_offset);
            location.int(field::ID, id(region)).int(field::LOCATION_MAPPING, library.map_or(0, mapping_id));
            location.int(field::LOCATION_ADDRESS, address).message(field::LOCATION_LINE, &line);
            self.message.message(field::LOCATION, &location);
            function.int(field::ID, id(region)).int(field::FUNCTION_NAME, self.text(&source.function_alone(region)));
            function.int(field::FUNCTION_SYMBOL, self.text(&source.symbol(region)));
            function.int(field::FUNCTION_FILE, self.text(source.library_of(region)));
            self.message.message(field::FUNCTION, &function);
        }
    }
}

/// The first id of functions that are not traced, behind those of regions.
const FIRST_UNTRACED: u64 = 1 << 33;

/// Ids of messages are not 0.
fn id(region: RegionId) -> u64 {
    u64::from(region.0) + 1
}

fn mapping_id(library: LibraryId) -> u64 {
    u64::from(library.0) + 1
}
