//! `values/`: a folder per region with the values of its calls, whose columns are those of the function.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int32Type, Int64Type};
use arrow_array::{ArrayRef, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray};
use rtrace_model::{LocationId, Region, RegionId, ValueBatch, ValueColumn, ValueType, Values};

use crate::Error;
use crate::directory::Directory;
use crate::file::{self, ROW_GROUP};
use crate::order;
use crate::schema::{column, with_columns};

/// The folder of the regions' folders.
pub(crate) const PLACE: &str = "values";

/// Time between two segments of few rows: each is a file.
const PERIOD: Duration = Duration::from_secs(10);

/// Bytes of a folder's name, at most.
const LONGEST_NAME: usize = 120;

/// The columns that every region has in front of its own.
const KEYS: [&str; 2] = ["location", "call"];

/// The name of a region's folder: its symbol as far as file systems take it, and its id, as two may have one symbol.
pub(crate) fn folder_name(region: &Region) -> String {
    let symbol = region.symbol();
    let plain = |c: char| if c.is_ascii_alphanumeric() || "_-.@$".contains(c) { c } else { '_' };
    let name: String = symbol.trim_start_matches('.').chars().map(plain).take(LONGEST_NAME).collect();
    format!("{name}.{}", region.id.0)
}

/// The values of the calls of a region that are being written.
#[derive(Debug)]
pub(crate) struct ValueWriter {
    folder: Directory,
    columns: Vec<ValueColumn>,
    number: u32,
    rows: ValueRows,
    written: Instant,
}

#[derive(Debug, Default)]
struct ValueRows {
    calls: Vec<(LocationId, u64)>,
    values: Vec<Values>,
}

impl ValueWriter {
    /// Makes the folder of a region with these columns.
    pub(crate) fn create(folder: Directory, columns: Vec<ValueColumn>) -> ValueWriter {
        ValueWriter { folder, columns, number: 1, rows: ValueRows::default(), written: Instant::now() }
    }

    /// Adds the values of calls of the region.
    pub(crate) fn push(&mut self, batch: &ValueBatch) -> Result<(), Error> {
        if self.rows.values.is_empty() {
            self.rows.values = self.columns.iter().map(|column| Values::new(column.value_type)).collect();
        }
        self.rows.calls.extend_from_slice(&batch.calls);
        for (values, more) in self.rows.values.iter_mut().zip(&batch.columns) {
            values.extend(more);
        }
        if self.rows.calls.len() >= ROW_GROUP { self.write() } else { Ok(()) }
    }

    /// Makes rows visible to readers, if there are some for long enough, or it is the last time.
    pub(crate) fn publish(&mut self, is_last: bool) -> Result<(), Error> {
        let is_due = is_last || self.written.elapsed() >= PERIOD;
        if is_due && !self.rows.calls.is_empty() { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<(), Error> {
        let ValueRows { calls, values } = std::mem::take(&mut self.rows);
        let order = order::of_calls(calls.len(), |row| calls[row]);
        let calls = || order.iter().map(|&row| calls[row as usize]);
        let keys = column::batch([
            (KEYS[0], column::numbers(calls().map(|(location, _)| location.0)), false),
            (KEYS[1], column::numbers(calls().map(|(_, call)| call)), false),
        ]);
        let named = names(&self.columns);
        let further = named.iter().zip(&values).map(|(name, values)| (name.as_str(), array(values, &order), true));
        let batch = with_columns(&keys, further);
        file::write_batch(&self.folder, &format!("{:06}.parquet", self.number), &batch)?;
        self.number += 1;
        self.written = Instant::now();
        Ok(())
    }
}

/// The names of the columns in the file: those of the values, but where one is `location` or `call`.
pub(crate) fn names(columns: &[ValueColumn]) -> Vec<String> {
    let is_taken = |name: &str| columns.iter().any(|column| column.name == name);
    let name = |column: &ValueColumn| {
        let mut name = column.name.clone();
        if KEYS.contains(&name.as_str()) {
            while is_taken(&name) {
                name.push('_');
            }
        }
        name
    };
    columns.iter().map(name).collect()
}

fn array(values: &Values, order: &[u32]) -> ArrayRef {
    match values {
        Values::Integer(values) => Arc::new(Int64Array::from_iter(order.iter().map(|&row| values[row as usize]))),
        Values::Float(values) => Arc::new(Float64Array::from_iter(order.iter().map(|&row| values[row as usize]))),
        Values::Text(values) => {
            Arc::new(StringArray::from_iter(order.iter().map(|&row| values[row as usize].as_deref())))
        }
    }
}

/// Rows of a segment as they are in memory: sorted by location and call.
#[derive(Debug)]
pub(crate) struct Block {
    locations: Int32Array,
    calls: Int64Array,
    /// One per column, of its type.
    pub(crate) values: Vec<ArrayRef>,
    pub(crate) bytes: usize,
}

impl Block {
    fn key(&self, row: usize) -> (LocationId, u64) {
        (LocationId(self.locations.value(row).cast_unsigned()), self.calls.value(row).cast_unsigned())
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = (LocationId, u64)> {
        (0..self.calls.len()).map(|row| self.key(row))
    }

    /// The key of the last row.
    pub(crate) fn last(&self) -> Option<(LocationId, u64)> {
        Some(self.key(self.calls.len().checked_sub(1)?))
    }

    /// The row of a call.
    pub(crate) fn position(&self, key: (LocationId, u64)) -> Option<usize> {
        let (mut from, mut to) = (0, self.calls.len());
        while from < to {
            let middle = from + (to - from) / 2;
            if self.key(middle) < key { from = middle + 1 } else { to = middle }
        }
        (from < self.calls.len() && self.key(from) == key).then_some(from)
    }
}

/// The rows of one segment, in blocks.
///
/// # Errors
/// It cannot be read, or has other columns.
pub(crate) fn read_blocks(path: &Path, columns: &[ValueColumn]) -> Result<Vec<Block>, Error> {
    let named = names(columns);
    let block_of = |batch: &RecordBatch| -> Option<Block> {
        let values = columns.iter().zip(&named).map(|(column, name)| {
            let array = batch.column_by_name(name)?;
            let is_as_said = match column.value_type {
                ValueType::Integer => array.as_primitive_opt::<Int64Type>().is_some(),
                ValueType::Float => array.as_primitive_opt::<Float64Type>().is_some(),
                ValueType::Text => array.as_string_opt::<i32>().is_some(),
            };
            is_as_said.then(|| Arc::clone(array))
        });
        let (locations, calls) = keys_of(batch)?;
        let bytes = batch.get_array_memory_size();
        Some(Block { locations, calls, values: values.collect::<Option<_>>()?, bytes })
    };
    let batches = file::read_batches(path, None)?;
    batches.iter().map(|batch| block_of(batch).ok_or_else(|| other_columns(path))).collect()
}

/// The number of rows of a segment, and of each column how many are null, where the file says it.
pub(crate) fn nulls(path: &Path, columns: &[ValueColumn]) -> Result<(u64, Vec<Option<u64>>), Error> {
    let (rows, nulls) = file::nulls(path)?;
    Ok((rows, names(columns).iter().map(|name| nulls.get(name).copied()).collect()))
}

/// Visits which calls have a row in a segment, in their order.
///
/// # Errors
/// It cannot be read, or `visit` fails.
pub(crate) fn read_keys(path: &Path, mut visit: impl FnMut(LocationId, u64) -> Result<(), Error>) -> Result<(), Error> {
    for batch in file::read_batches(path, Some(&KEYS))? {
        let (locations, calls) = keys_of(&batch).ok_or_else(|| other_columns(path))?;
        let block = Block { locations, calls, values: Vec::new(), bytes: 0 };
        block.keys().try_for_each(|(location, call)| visit(location, call))?;
    }
    Ok(())
}

fn keys_of(batch: &RecordBatch) -> Option<(Int32Array, Int64Array)> {
    let locations = batch.column_by_name(KEYS[0])?.as_primitive_opt::<Int32Type>()?;
    let calls = batch.column_by_name(KEYS[1])?.as_primitive_opt::<Int64Type>()?;
    Some((locations.clone(), calls.clone()))
}

fn other_columns(path: &Path) -> Error {
    Error::Content { path: path.to_owned(), problem: "its columns are not those of values.parquet".to_owned() }
}

/// The values in one segment.
///
/// # Errors
/// It cannot be read, or has other columns.
pub(crate) fn read(path: &Path, region: RegionId, columns: &[ValueColumn]) -> Result<Vec<ValueBatch>, Error> {
    let values_of = |(column, array): (&ValueColumn, &ArrayRef)| match column.value_type {
        ValueType::Integer => Values::Integer(array.as_primitive::<Int64Type>().iter().collect()),
        ValueType::Float => Values::Float(array.as_primitive::<Float64Type>().iter().collect()),
        ValueType::Text => Values::Text(array.as_string::<i32>().iter().map(|text| text.map(str::to_owned)).collect()),
    };
    let batch_of = |block: Block| ValueBatch {
        region,
        calls: block.keys().collect(),
        columns: columns.iter().zip(&block.values).map(values_of).collect(),
    };
    Ok(read_blocks(path, columns)?.into_iter().map(batch_of).collect())
}

/// The folder of a region's values in a trace.
pub(crate) fn folder_of(directory: &Path, region: &Region) -> PathBuf {
    directory.join(PLACE).join(folder_name(region))
}

/// The columns of a region among columns that are sorted by region.
pub(crate) fn columns_of(columns: &[ValueColumn], region: RegionId) -> &[ValueColumn] {
    let from = columns.partition_point(|column| column.region < region);
    let to = columns.partition_point(|column| column.region <= region);
    &columns[from..to]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_columns_have_one_name() {
        let column = |name: &str| ValueColumn {
            region: RegionId(0),
            position: 0,
            name: name.to_owned(),
            value_type: ValueType::Integer,
            c_type: String::new(),
            unit: None,
            role: None,
            at_exit: false,
            source: String::new(),
        };
        assert_eq!(names(&["call", "call_", "location", "n"].map(column)), ["call__", "call_", "location_", "n"]);
    }
}
