//! Calls as an Arrow IPC stream that explains itself: each batch names functions, libraries and
//! threads, so a reader needs no other file.
//!
//! Names are dictionary-encoded. A dictionary is sent again when it has grown, which is seldom: a
//! library's functions are all defined when its probes are placed.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::{ArrayRef, DictionaryArray, Int32Array, RecordBatch, StringArray};
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, Schema};
use rtrace_model::{Batch, Call, Definition, Header, LibraryId, Location, LocationId, Metric, MetricId, RegionId};

use crate::schema::{call_columns, column, measured, with_columns};

/// Makes batches of the stream from calls.
pub(crate) struct StreamEncoder {
    metadata: HashMap<String, String>,
    metrics: BTreeMap<MetricId, Metric>,
    functions: NameDictionary<RegionId>,
    libraries: NameDictionary<LibraryId>,
    threads: NameDictionary<LocationId>,
    library_of: HashMap<RegionId, LibraryId>,
    locations: HashMap<LocationId, Location>,
}

impl StreamEncoder {
    pub(crate) fn new(header: &Header) -> StreamEncoder {
        let metadata = [
            ("rtrace.schema", crate::VERSION.to_string()),
            ("rtrace.host", header.host.clone()),
            ("rtrace.begin.monotonic_ns", header.begin.monotonic.0.to_string()),
            ("rtrace.begin.realtime_ns", header.begin.realtime_ns.to_string()),
        ];
        StreamEncoder {
            metadata: metadata.into_iter().map(|(key, value)| (key.to_owned(), value)).collect(),
            metrics: BTreeMap::new(),
            functions: NameDictionary::default(),
            libraries: NameDictionary::default(),
            threads: NameDictionary::default(),
            library_of: HashMap::new(),
            locations: HashMap::new(),
        }
    }

    pub(crate) fn define(&mut self, definition: &Definition) {
        match definition {
            Definition::Region(region) => {
                self.functions.put(region.id, &region.name);
                self.library_of.insert(region.id, region.library);
            }
            Definition::Library(library) => self.libraries.put(library.id, library.name()),
            Definition::Location(location) => {
                self.threads.put(location.id, &location.name);
                self.locations.insert(location.id, location.clone());
            }
            Definition::Metric(metric) => {
                self.metrics.insert(metric.id, metric.clone());
            }
            Definition::Process(_) | Definition::CallSite(_) | Definition::Context(_) => {}
            Definition::ValueColumn(_) | Definition::CpuSamples(_) => {}
        }
    }

    /// The calls with all that is known of them. Metrics must be defined before the first batch, as
    /// all batches of a stream have the same columns.
    pub(crate) fn batch(&mut self, batch: &Batch) -> RecordBatch {
        let calls = measured(batch, &call_columns(self.metrics.values()));
        let columns = with_columns(&calls, self.names_of(batch));
        let schema = Schema::clone(&columns.schema()).with_metadata(self.metadata.clone());
        columns.with_schema(Arc::new(schema)).expect("only what is said about the stream differs")
    }

    /// What the ids in the columns of calls stand for.
    fn names_of(&mut self, calls: &[Call]) -> [(&'static str, ArrayRef, bool); 5] {
        let location = |call: &Call| self.locations.get(&call.location);
        let library = |call: &Call| self.library_of.get(&call.region).copied();
        let pid = column::numbers(calls.iter().map(|call| location(call).map_or(0, |location| location.pid)));
        let tid = column::numbers(calls.iter().map(|call| location(call).map_or(0, |location| location.tid)));
        [
            ("function", self.functions.column(calls.iter().map(|call| Some(call.region))), true),
            ("library", self.libraries.column(calls.iter().map(library)), true),
            ("pid", pid, false),
            ("tid", tid, false),
            ("thread", self.threads.column(calls.iter().map(|call| Some(call.location))), true),
        ]
    }
}

/// A dictionary that grows.
struct NameDictionary<K> {
    places: HashMap<K, i32>,
    names: Vec<String>,
    /// The names as they are sent, until there are others: the same array is not sent again.
    sent: Option<ArrayRef>,
}

impl<K> Default for NameDictionary<K> {
    fn default() -> NameDictionary<K> {
        NameDictionary { places: HashMap::new(), names: Vec::new(), sent: None }
    }
}

impl<K: std::hash::Hash + Eq> NameDictionary<K> {
    fn put(&mut self, key: K, name: &str) {
        let next = i32::try_from(self.names.len()).expect("ids are of 32 bits");
        let place = *self.places.entry(key).or_insert(next);
        match self.names.get_mut(place as usize) {
            Some(known) if known == name => return,
            Some(known) => name.clone_into(known),
            None => self.names.push(name.to_owned()),
        }
        self.sent = None;
    }

    /// The name of each key, null where there is none.
    fn column(&mut self, keys: impl Iterator<Item = Option<K>>) -> ArrayRef {
        let places = Int32Array::from_iter(keys.map(|key| self.places.get(&key?).copied()));
        let names = self.sent.get_or_insert_with(|| Arc::new(StringArray::from_iter_values(&self.names)));
        Arc::new(DictionaryArray::<Int32Type>::new(places, Arc::clone(names)))
    }
}

/// Writes batches as a stream.
pub(crate) struct Writer<W: Write> {
    stream: StreamWriter<io::BufWriter<W>>,
}

impl<W: Write> Writer<W> {
    /// Begins the stream.
    pub(crate) fn begin(output: W, schema: &Schema) -> io::Result<Writer<W>> {
        let mut stream = StreamWriter::try_new(io::BufWriter::new(output), schema).map_err(cause)?;
        stream.flush().map_err(cause)?;
        Ok(Writer { stream })
    }

    /// Writes a batch through to the reader.
    pub(crate) fn write(&mut self, batch: &RecordBatch) -> io::Result<()> {
        self.stream.write(batch).and_then(|()| self.stream.flush()).map_err(cause)
    }

    /// Ends the stream.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.stream.finish().and_then(|()| self.stream.flush()).map_err(cause)
    }
}

fn cause(error: ArrowError) -> io::Error {
    match error {
        ArrowError::IoError(_, cause) => cause,
        other => io::Error::other(other),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use arrow_array::cast::AsArray;
    use arrow_array::types::Int64Type;
    use arrow_ipc::reader::StreamReader;
    use rtrace_model::{Base, Ending, Library, Reading, Region, Scope, Span, Timestamp};

    use super::*;

    fn region(id: u32, name: &str) -> Definition {
        Definition::Region(Region { id: RegionId(id), name: name.into(), size: 1, ..Region::default() })
    }

    fn call(id: u64, region: u32) -> Call {
        Call {
            location: LocationId(1),
            region: RegionId(region),
            id,
            start: Timestamp(id * 10),
            duration: Some(5),
            ..Call::default()
        }
    }

    #[test]
    fn readings_are_columns() {
        let mut encoder = StreamEncoder::new(&Header::default());
        let metric = |id, name: &str, scope| {
            let (name, unit) = (name.to_owned(), "#".to_owned());
            Metric { id: MetricId(id), name, unit, base: Base::Decimal, exponent: 0, scope, span: Span::SinceLast }
        };
        encoder.define(&Definition::Metric(metric(1, "page-faults", Scope::Call)));
        encoder.define(&Definition::Metric(metric(2, "memory", Scope::Process)));
        let readings = vec![Reading { inclusive: 7, child: 3 }, Reading { inclusive: 9, child: 0 }];
        let untimed = Call { duration: None, ending: Ending::Unseen, ..call(2, 0) };
        let batch = encoder.batch(&Batch::measured(vec![call(1, 0), untimed], 1, readings));
        let values = |column: &str| batch[column].as_primitive::<Int64Type>().iter().collect::<Vec<_>>();
        for (column, of_the_timed_call) in [("duration_ns", 5), ("page_faults", 7), ("page_faults_child", 3)] {
            assert_eq!(values(column), [Some(of_the_timed_call), None], "{column}");
        }
        assert!(batch.column_by_name("memory").is_none());
    }

    #[test]
    fn names_travel_with_the_calls_and_may_come_later() {
        let mut encoder = StreamEncoder::new(&Header { host: "box".into(), ..Header::default() });
        let path = "/usr/lib/libone.so".to_owned();
        let library = Library { id: LibraryId(0), path, apart: None, build_id: None, device: 1, inode: 1 };
        let location = Location {
            id: LocationId(1),
            pid: 7,
            tid: 8,
            start: Timestamp(0),
            end: None,
            name: "main".into(),
            calls_entered: None,
        };
        encoder.define(&Definition::Library(library));
        encoder.define(&Definition::Location(location.clone()));
        encoder.define(&region(0, "first"));
        let mut bytes = Vec::new();
        let first = encoder.batch(&vec![call(1, 0), call(2, 9)].into());
        let mut writer = Writer::begin(&mut bytes, &first.schema()).unwrap();
        writer.write(&first).unwrap();
        encoder.define(&region(9, "later"));
        encoder.define(&Definition::Location(Location { name: "renamed".into(), ..location }));
        writer.write(&encoder.batch(&vec![call(3, 9), call(4, 0)].into())).unwrap();
        writer.finish().unwrap();

        let reader = StreamReader::try_new(bytes.as_slice(), None).unwrap();
        assert_eq!(reader.schema().metadata()["rtrace.host"], "box");
        let mut seen = Vec::new();
        for batch in reader {
            let batch = batch.unwrap();
            let ids = batch["call"].as_primitive::<Int64Type>();
            let text = |column: &str, row: usize| {
                let names = batch[column].as_dictionary::<Int32Type>();
                let names = names.downcast_dict::<StringArray>().unwrap();
                names.into_iter().nth(row).unwrap().unwrap_or("-").to_owned()
            };
            for row in 0..batch.num_rows() {
                seen.push((ids.value(row), text("function", row), text("library", row), text("thread", row)));
            }
        }
        let row =
            |id, function: &str, library: &str, thread: &str| (id, function.into(), library.into(), thread.into());
        assert_eq!(
            seen,
            [
                row(1, "first", "libone.so", "main"),
                row(2, "-", "-", "main"),
                row(3, "later", "libone.so", "renamed"),
                row(4, "first", "libone.so", "renamed"),
            ]
        );
    }
}
