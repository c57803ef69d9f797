//! Calls with their values: the tables in `values/` joined with `calls/`.
//!
//! Both are written in the order in which calls end, in segments that are sorted by location and id. So the segment
//! that has the values of a call is found by the range of ids that a segment has of a location, and the calls of one
//! batch need one or two segments of each function. These stay in memory for the next batch, up to a bound: the order
//! of the batches does not matter for what is found, only for how often a segment is read.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{Array, ArrayRef};
use rtrace_model::{Call, CallValues, LocationId, RegionId, Value, ValueColumn, ValueType};

use crate::Error;
use crate::set::TraceSet;
use crate::values::{self, Block};

/// Bytes of segments that are kept for further calls.
const MOST_KEPT: usize = 256 << 20;

/// Finds the values of calls of a [`TraceSet`], in memory of a bounded size.
pub struct ValueReader<'a> {
    set: &'a TraceSet,
    /// The tables, by trace and region of the set; `None` where the trace has no such region.
    tables: HashMap<(usize, RegionId), Option<ValueTable>>,
    /// By trace, region in it, and number of the segment.
    kept: HashMap<(usize, RegionId, usize), KeptSegment>,
    bytes: usize,
    most_bytes: usize,
    clock: u64,
}

/// The table of one region in one trace.
struct ValueTable {
    /// The region's id in that trace.
    own: RegionId,
    columns: Arc<[ValueColumn]>,
    /// The segments by the ids that they have of each location, the shortest ranges first.
    runs: HashMap<LocationId, Vec<SegmentRun>>,
}

#[derive(Clone, Copy, Debug)]
struct SegmentRun {
    first: u64,
    last: u64,
    segment: usize,
}

/// A segment in memory.
struct KeptSegment {
    blocks: Arc<[Block]>,
    bytes: usize,
    used: u64,
}

/// A segment that had the values of the last call, and is likely to have those of the next.
struct Near {
    part: usize,
    columns: Arc<[ValueColumn]>,
    blocks: Arc<[Block]>,
}

impl Near {
    fn values(&self, key: (LocationId, u64)) -> Option<CallValues> {
        let block = self.blocks.partition_point(|block| block.last() < Some(key));
        let block = self.blocks.get(block)?;
        let row = block.position(key)?;
        let value = |(column, array): (&ValueColumn, &ArrayRef)| value_of(column.value_type, array, row);
        let values = self.columns.iter().zip(&block.values).map(value).collect();
        Some(CallValues { columns: Arc::clone(&self.columns), values })
    }
}

impl TraceSet {
    /// Finds the values of calls.
    pub fn value_reader(&self) -> ValueReader<'_> {
        ValueReader::new(self)
    }
}

impl<'a> ValueReader<'a> {
    fn new(set: &'a TraceSet) -> ValueReader<'a> {
        let (tables, kept) = (HashMap::new(), HashMap::new());
        ValueReader { set, tables, kept, bytes: 0, most_bytes: MOST_KEPT, clock: 0 }
    }

    /// The values of these calls, which have the ids of the set; `None` where a call has none.
    ///
    /// # Errors
    /// A table cannot be read.
    pub fn of(&mut self, calls: &[Call]) -> Result<Vec<Option<CallValues>>, Error> {
        let mut found = vec![None; calls.len()];
        if self.set.value_columns().is_empty() {
            return Ok(found);
        }
        // By function: each has a table of its own.
        let mut order: Vec<usize> = (0..calls.len()).collect();
        order.sort_by_key(|&place| (calls[place].region, calls[place].location, calls[place].id));
        for of_region in order.chunk_by(|&a, &b| calls[a].region == calls[b].region) {
            let region = calls[of_region[0]].region;
            if self.set.value_columns_of(region).is_empty() {
                continue;
            }
            // Where the values of the call before were.
            let mut near = None;
            for &place in of_region {
                found[place] = self.find(&calls[place], &mut near)?;
            }
        }
        Ok(found)
    }

    fn find(&mut self, call: &Call, near: &mut Option<Near>) -> Result<Option<CallValues>, Error> {
        let Some((part, location)) = self.set.origin_of(call.location) else { return Ok(None) };
        let key = (location, call.id);
        if let Some(near) = near.as_ref().filter(|near| near.part == part)
            && let Some(values) = near.values(key)
        {
            return Ok(Some(values));
        }
        if !self.tables.contains_key(&(part, call.region)) {
            let own = self.set.regions_of(part).find_map(|(own, id)| (id == call.region).then_some(own));
            let table = own.map(|own| self.open(part, own, call.region)).transpose()?;
            self.tables.insert((part, call.region), table);
        }
        let Some(Some(table)) = self.tables.get(&(part, call.region)) else { return Ok(None) };
        let (own, columns) = (table.own, Arc::clone(&table.columns));
        let holds = |run: &&SegmentRun| (run.first..=run.last).contains(&call.id);
        let runs: Vec<SegmentRun> = table.runs.get(&location).into_iter().flatten().filter(holds).copied().collect();
        for run in runs {
            let found = Near { part, columns: Arc::clone(&columns), blocks: self.segment((part, own), run.segment)? };
            if let Some(values) = found.values(key) {
                *near = Some(found);
                return Ok(Some(values));
            }
        }
        Ok(None)
    }

    /// The table of the region that has the id `own` in its trace, and `region` in the set.
    fn open(&mut self, part: usize, own: RegionId, region: RegionId) -> Result<ValueTable, Error> {
        let trace = self.set.part(part);
        let segments = trace.value_segments(own);
        let mut runs: HashMap<LocationId, Vec<SegmentRun>> = HashMap::new();
        for (segment, path) in segments.iter().enumerate() {
            let mut before: Option<(LocationId, u64)> = None;
            let mut add = |location, id| {
                if before >= Some((location, id)) {
                    return Err(unsorted(path));
                }
                let of_location = runs.entry(location).or_default();
                match of_location.last_mut().filter(|run| run.segment == segment) {
                    Some(run) => run.last = id,
                    None => of_location.push(SegmentRun { first: id, last: id, segment }),
                }
                before = Some((location, id));
                Ok(())
            };
            // All values of a small table are needed soon.
            match segments {
                [_] => {
                    let blocks = self.segment((part, own), segment)?;
                    blocks.iter().flat_map(Block::keys).try_for_each(|(location, id)| add(location, id))?;
                }
                _ => values::read_keys(path, add)?,
            }
        }
        // A long call makes the range of the segment that it is in long: the others are more likely.
        runs.values_mut().for_each(|runs| runs.sort_by_key(|run| run.last - run.first));
        let columns = trace.value_columns_of(own).iter();
        let columns = columns.map(|column| ValueColumn { region, ..column.clone() }).collect();
        Ok(ValueTable { own, columns, runs })
    }

    fn segment(&mut self, (part, own): (usize, RegionId), segment: usize) -> Result<Arc<[Block]>, Error> {
        self.clock += 1;
        if let Some(kept) = self.kept.get_mut(&(part, own, segment)) {
            kept.used = self.clock;
            return Ok(Arc::clone(&kept.blocks));
        }
        let trace = self.set.part(part);
        let path = &trace.value_segments(own)[segment];
        let blocks: Arc<[Block]> = values::read_blocks(path, trace.value_columns_of(own))?.into();
        let bytes = blocks.iter().map(|block| block.bytes).sum();
        self.bytes += bytes;
        while self.bytes > self.most_bytes
            && let Some((&oldest, _)) = self.kept.iter().min_by_key(|(_, kept)| kept.used)
            && let Some(kept) = self.kept.remove(&oldest)
        {
            self.bytes -= kept.bytes;
        }
        self.kept.insert((part, own, segment), KeptSegment { blocks: Arc::clone(&blocks), bytes, used: self.clock });
        Ok(blocks)
    }
}

fn unsorted(path: &Path) -> Error {
    let problem = "its rows are not sorted by location and call, or a call is there twice".to_owned();
    Error::Content { path: path.to_owned(), problem }
}

fn value_of(kind: ValueType, array: &ArrayRef, row: usize) -> Option<Value> {
    if array.is_null(row) {
        return None;
    }
    Some(match kind {
        ValueType::Integer => Value::Integer(array.as_primitive::<Int64Type>().value(row)),
        ValueType::Float => Value::Float(array.as_primitive::<Float64Type>().value(row)),
        ValueType::Text => Value::Text(array.as_string::<i32>().value(row).to_owned()),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use rtrace_model::{
        Definition, Header, Library, LibraryId, Location, Region, Sink as _, Summary, Timestamp, ValueBatch, Values,
    };

    use super::*;
    use crate::TraceWriter;

    /// Two functions, each with a segment.
    fn record(path: &Path) -> Vec<Call> {
        let mut writer = TraceWriter::create(path, None).unwrap();
        writer.begin(&Header::default()).unwrap();
        let library = Library { id: LibraryId(0), path: "/l".into(), apart: None, build_id: None, device: 1, inode: 2 };
        let (start, end, name, calls_entered) = (Timestamp(0), None, String::new(), None);
        let location = Location { id: LocationId(1), pid: 1, tid: 1, start, end, name, calls_entered };
        writer.define(&Definition::Library(library)).unwrap();
        writer.define(&Definition::Location(location)).unwrap();
        let of = |region: u32| {
            let id = RegionId(region);
            let region =
                Region { id, name: region.to_string(), file_offset: region.into(), size: 1, ..Region::default() };
            let column = ValueColumn {
                region: id,
                position: 0,
                name: "n".into(),
                value_type: ValueType::Integer,
                c_type: "int".into(),
                unit: None,
                role: None,
                at_exit: false,
                source: String::new(),
            };
            [Definition::Region(region), Definition::ValueColumn(column)]
        };
        (0..2).flat_map(of).for_each(|definition| writer.define(&definition).unwrap());
        let call = |id: u64| Call { location: LocationId(1), region: RegionId(id as u32 % 2), id, ..Call::default() };
        let calls: Vec<Call> = (1..100).map(call).collect();
        writer.calls(&calls.clone().into()).unwrap();
        for region in 0..2 {
            let calls = calls.iter().filter(|call| call.region.0 == region).map(|call| (call.location, call.id));
            let calls: Vec<_> = calls.collect();
            let columns = vec![Values::Integer(calls.iter().map(|&(_, id)| Some(id as i64)).collect())];
            writer.values(&[ValueBatch { region: RegionId(region), calls, columns }]).unwrap();
        }
        writer.finish(&Summary::default()).unwrap();
        calls
    }

    #[test]
    fn the_bound_of_memory_costs_no_values() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let calls = record(&path);
        let set = TraceSet::open(&path).unwrap();
        for most_bytes in [0, MOST_KEPT] {
            let mut reader = set.value_reader();
            reader.most_bytes = most_bytes;
            for call in &calls {
                let values = reader.of(std::slice::from_ref(call)).unwrap();
                let expected = Value::Integer(call.id as i64);
                assert_eq!(values[0].as_ref().unwrap().named("n"), Some(Some(&expected)));
            }
            let kept: usize = reader.kept.values().map(|kept| kept.bytes).sum();
            assert_eq!(reader.bytes, kept);
            assert_eq!(reader.kept.len(), if most_bytes == 0 { 1 } else { 2 });
        }
    }
}
