//! An Arrow IPC stream: the columns of `calls/`, and the names that ids stand for as dictionaries.
//! See <https://arrow.apache.org/docs/format/Columnar.html#ipc-streaming-format>.

use std::collections::HashMap;
use std::io::Write;
use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::{ArrayRef, DictionaryArray, Int32Array, Int64Array, RecordBatch, StringArray};
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, Field, Schema};
use rtrace_model::{Batch, Call, LocationId, Reading};

use super::super::format::{Form, Format};
use super::super::remarks::remarks;
use super::super::{ExportError, Source};
use crate::schema::Row;

pub(super) const FORMAT: Format = Format {
    name: "arrow",
    summary: "Arrow IPC stream: the calls as columns with names",
    extension: "arrows",
    opens_in: "pyarrow, Polars, DuckDB, any Arrow library",
    keeps: "every call with all its columns, names beside ids, counters; losses in the schema's metadata",
    omits: "events, versions and aliases of functions",
    unseen: "`ending` is `unseen`, `duration_ns` 0",
    form: Form::File(write),
};

fn write(source: &Source<'_>, output: &mut dyn Write) -> Result<(), ExportError> {
    let columns = Columns::new(source)?;
    let schema = columns.encode(&Batch::default())?.schema();
    let mut stream = StreamWriter::try_new(output, &schema).map_err(failed)?;
    for batch in source.batches() {
        let batch = batch?;
        if !batch.is_empty() {
            stream.write(&columns.encode(&batch)?).map_err(failed)?;
        }
    }
    stream.finish().map_err(failed)
}

/// What batches have in common.
struct Columns<'a> {
    source: &'a Source<'a>,
    metadata: HashMap<String, String>,
    functions: Arc<StringArray>,
    symbols: Arc<StringArray>,
    libraries: Arc<StringArray>,
    /// Place of each location in `threads`; the first is that of undefined ones.
    places: HashMap<LocationId, i32>,
    threads: Arc<StringArray>,
    processes: Arc<StringArray>,
}

impl<'a> Columns<'a> {
    fn new(source: &'a Source<'a>) -> Result<Columns<'a>, ExportError> {
        let mut metadata: HashMap<String, String> = HashMap::new();
        for (name, text) in remarks(source)? {
            metadata.entry(format!("rtrace.{name}")).and_modify(|all| *all += &format!("\n{text}")).or_insert(text);
        }
        let ids = || source.regions().iter().map(|region| region.id);
        let locations = || source.locations().iter().map(|location| location.id);
        let threads = || locations().map(|id| source.threads.thread(id));
        let undefined = || std::iter::once("not defined");
        let texts = |texts: &mut dyn Iterator<Item = &str>| Arc::new(StringArray::from_iter_values(texts));
        Ok(Columns {
            source,
            metadata,
            functions: texts(&mut undefined().chain(ids().map(|id| source.function(id)))),
            symbols: texts(&mut undefined().chain(ids().map(|id| source.symbol(id)))),
            libraries: texts(&mut undefined().chain(ids().map(|id| source.library_of(id)))),
            places: locations().zip(1..).collect(),
            threads: texts(&mut undefined().chain(threads().map(|thread| thread.name.as_str()))),
            processes: texts(
                &mut undefined().chain(threads().map(|thread| source.threads.program(thread).name.as_str())),
            ),
        })
    }

    fn encode(&self, batch: &Batch) -> Result<RecordBatch, ExportError> {
        let calls = Call::encode(batch.iter());
        let mut fields: Vec<Arc<Field>> = calls.schema().fields().iter().cloned().collect();
        let mut columns = calls.columns().to_vec();
        let mut add = |name: &str, column: ArrayRef| {
            fields.push(Arc::new(Field::new(name, column.data_type().clone(), false)));
            columns.push(column);
        };

        let thread = |call: &Call| self.source.threads.thread(call.location);
        let pid = |call: &Call| self.source.threads.program(thread(call)).pid as i32;
        add("pid", Arc::new(Int32Array::from_iter_values(batch.iter().map(pid))));
        add("tid", Arc::new(Int32Array::from_iter_values(batch.iter().map(|call| thread(call).tid as i32))));
        let place = |call: &Call| self.places.get(&call.location).copied().unwrap_or(0);
        let places = Int32Array::from_iter_values(batch.iter().map(place));
        add("process", dictionary(&places, &self.processes));
        add("thread", dictionary(&places, &self.threads));
        let regions = self.source.regions();
        let place = |call: &Call| regions.binary_search_by_key(&call.region, |region| region.id).map_or(0, |n| n + 1);
        let places = Int32Array::from_iter_values(batch.iter().map(|call| place(call) as i32));
        add("library", dictionary(&places, &self.libraries));
        add("function", dictionary(&places, &self.functions));
        add("symbol", dictionary(&places, &self.symbols));
        for (place, metric) in self.source.call_metrics().iter().enumerate() {
            let readings = |of: fn(&Reading) -> u64| {
                let reading = |index| batch.readings(index).get(place).map_or(0, of);
                let values = (0..batch.len()).map(|index| i64::try_from(reading(index)).unwrap_or(i64::MAX));
                Arc::new(Int64Array::from_iter_values(values))
            };
            add(&metric.name, readings(|reading| reading.inclusive));
            add(&format!("{} child", metric.name), readings(|reading| reading.child));
        }
        let schema = Schema::new(fields).with_metadata(self.metadata.clone());
        RecordBatch::try_new(Arc::new(schema), columns).map_err(failed)
    }
}

/// The words at these places. Batches share the words, which are written once.
fn dictionary(places: &Int32Array, words: &Arc<StringArray>) -> ArrayRef {
    Arc::new(DictionaryArray::<Int32Type>::new(places.clone(), words.clone()))
}

fn failed(error: ArrowError) -> ExportError {
    ExportError::Write(match error {
        ArrowError::IoError(_, error) => error,
        error => std::io::Error::other(format!("failed to write the Arrow stream: {error}")),
    })
}
