//! An Arrow IPC stream: the columns of `calls/`, and the names that ids stand for as dictionaries.
//! See <https://arrow.apache.org/docs/format/Columnar.html#ipc-streaming-format>.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::Write;
use std::sync::Arc;

use arrow_array::builder::{ArrayBuilder, Float64Builder, Int64Builder, ListBuilder, MapBuilder, StringBuilder};
use arrow_array::types::Int32Type;
use arrow_array::{ArrayRef, DictionaryArray, Int32Array, RecordBatch, StringArray};
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, Schema};
use rtrace_model::{Batch, Call, CallSite, CallValues, LocationId, Value, ValueType};

use super::super::format::{ExportFormat, Form};
use super::super::remarks::remarks;
use super::super::{Excerpt, ExportError};
use crate::schema::{call_columns, column, measured, with_columns};

pub(super) const FORMAT: ExportFormat = ExportFormat {
    name: "arrow",
    summary: "Arrow IPC stream: the calls as columns with names",
    extension: "arrows",
    opens_in: "pyarrow, Polars, DuckDB, any Arrow library",
    keeps: "every call with all its columns, names beside ids, contexts, counters, arguments and results; losses in the schema's metadata",
    omits: "events, versions and aliases of functions",
    untimed: "`ending` is `unseen`, `duration_ns` and counters are null",
    form: Form::File(write),
};

fn write(source: &Excerpt<'_>, output: &mut dyn Write) -> Result<(), ExportError> {
    let columns = ArrowColumns::new(source)?;
    let mut values = source.value_reader();
    let schema = columns.encode(&Batch::default(), &[])?.schema();
    let mut stream = StreamWriter::try_new(output, &schema).map_err(failed)?;
    for batch in source.batches() {
        let batch = batch?;
        if !batch.is_empty() {
            stream.write(&columns.encode(&batch, &values.of(&batch)?)?).map_err(failed)?;
        }
    }
    stream.finish().map_err(failed)
}

/// What batches have in common.
struct ArrowColumns<'a> {
    source: &'a Excerpt<'a>,
    metadata: HashMap<String, String>,
    functions: Arc<StringArray>,
    symbols: Arc<StringArray>,
    libraries: Arc<StringArray>,
    /// Place of each location in `threads`; the first is that of undefined ones.
    places: HashMap<LocationId, i32>,
    threads: Arc<StringArray>,
    processes: Arc<StringArray>,
    call_sites: Arc<StringArray>,
}

impl<'a> ArrowColumns<'a> {
    fn new(source: &'a Excerpt<'a>) -> Result<ArrowColumns<'a>, ExportError> {
        let mut metadata: HashMap<String, String> = HashMap::new();
        for (name, text) in remarks(source)? {
            metadata.entry(format!("rtrace.{name}")).and_modify(|all| *all += &format!("\n{text}")).or_insert(text);
        }
        let ids = || source.regions().iter().map(|region| region.id);
        let locations = || source.locations().iter().map(|location| location.id);
        let threads = || locations().map(|id| source.threads.thread(id));
        let undefined = || std::iter::once("not defined");
        let texts = |texts: &mut dyn Iterator<Item = &str>| Arc::new(StringArray::from_iter_values(texts));
        Ok(ArrowColumns {
            source,
            metadata,
            functions: texts(&mut undefined().chain(ids().map(|id| source.function(id)))),
            symbols: Arc::new(StringArray::from_iter_values(
                undefined().map(Cow::Borrowed).chain(ids().map(|id| source.symbol(id))),
            )),
            libraries: texts(&mut undefined().chain(ids().map(|id| source.library_of(id)))),
            places: locations().zip(1..).collect(),
            threads: texts(&mut undefined().chain(threads().map(|thread| thread.name.as_str()))),
            processes: texts(
                &mut undefined().chain(threads().map(|thread| source.threads.program(thread).name.as_str())),
            ),
            call_sites: Arc::new(StringArray::from_iter_values(source.call_sites().iter().map(CallSite::to_string))),
        })
    }

    fn encode(&self, batch: &Batch, values: &[Option<CallValues>]) -> Result<RecordBatch, ExportError> {
        let thread = |call: &Call| self.source.threads.thread(call.location);
        let pid = |call: &Call| self.source.threads.program(thread(call)).pid;
        let place = |call: &Call| self.places.get(&call.location).copied().unwrap_or(0);
        let threads = Int32Array::from_iter_values(batch.iter().map(place));
        let regions = self.source.regions();
        let place = |call: &Call| regions.binary_search_by_key(&call.region, |region| region.id).map_or(0, |n| n + 1);
        let functions = Int32Array::from_iter_values(batch.iter().map(|call| place(call) as i32));
        let sites = self.source.call_sites();
        let place = |call: &Call| sites.binary_search_by_key(&call.call_site?, |site| site.id).ok();
        let called_at = Int32Array::from_iter(batch.iter().map(|call| place(call).map(|place| place as i32)));
        let calls = measured(batch, &call_columns(self.source.call_metrics().iter()));
        let columns = with_columns(
            &calls,
            [
                ("pid", column::numbers(batch.iter().map(pid)), false),
                ("tid", column::numbers(batch.iter().map(|call| thread(call).tid)), false),
                ("process", dictionary(&threads, &self.processes), false),
                ("thread", dictionary(&threads, &self.threads), false),
                ("library", dictionary(&functions, &self.libraries), false),
                ("function", dictionary(&functions, &self.functions), false),
                ("symbol", dictionary(&functions, &self.symbols), false),
                ("called_at", dictionary(&called_at, &self.call_sites), true),
            ],
        );
        let contexts = self.source.has_contexts().then(|| ("untraced_callers", self.contexts(batch), true));
        let columns = with_columns(&columns, contexts);
        let has = |kind| self.source.value_columns().iter().any(|column| column.value_type == kind);
        let kinds = ValueType::ALL.into_iter().filter(|&kind| has(kind));
        let maps = kinds.map(|kind| Ok((map_name(kind), map(kind, values)?, true)));
        let columns = with_columns(&columns, maps.collect::<Result<Vec<_>, ArrowError>>().map_err(failed)?);
        let schema = Schema::clone(&columns.schema()).with_metadata(self.metadata.clone());
        columns.with_schema(Arc::new(schema)).map_err(failed)
    }

    /// The untraced functions that led to each call, the outermost first; null where there are none.
    fn contexts(&self, batch: &Batch) -> ArrayRef {
        let mut contexts = ListBuilder::new(StringBuilder::new());
        for call in batch.iter() {
            contexts.append_option(self.source.context_of(call).map(|context| context.into_iter().map(Some)));
        }
        Arc::new(contexts.finish())
    }
}

/// The column with the values of a type.
fn map_name(kind: ValueType) -> &'static str {
    match kind {
        ValueType::Integer => "integers",
        ValueType::Float => "floats",
        ValueType::Text => "texts",
    }
}

/// The values of one type of each call, by name; null where a call has no values at all. A map has no type of its own
/// for each of its members, so there is one for each type.
fn map(kind: ValueType, values: &[Option<CallValues>]) -> Result<ArrayRef, ArrowError> {
    match kind {
        ValueType::Integer => map_of(Int64Builder::new(), kind, values, |values, value| match value {
            Some(Value::Integer(value)) => values.append_value(*value),
            _ => values.append_null(),
        }),
        ValueType::Float => map_of(Float64Builder::new(), kind, values, |values, value| match value {
            Some(Value::Float(value)) => values.append_value(*value),
            _ => values.append_null(),
        }),
        ValueType::Text => map_of(StringBuilder::new(), kind, values, |values, value| match value {
            Some(Value::Text(value)) => values.append_value(value),
            _ => values.append_null(),
        }),
    }
}

fn map_of<B: ArrayBuilder>(
    builder: B,
    kind: ValueType,
    values: &[Option<CallValues>],
    append: impl Fn(&mut B, Option<&Value>),
) -> Result<ArrayRef, ArrowError> {
    let mut map = MapBuilder::new(None, StringBuilder::new(), builder);
    for values in values {
        let of_kind = values.iter().flat_map(CallValues::iter).filter(|(column, _)| column.value_type == kind);
        for (column, value) in of_kind {
            map.keys().append_value(&column.name);
            append(map.values(), value);
        }
        map.append(values.is_some())?;
    }
    Ok(Arc::new(map.finish()))
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
