//! Rows whose columns are their fields: each is named once, and its type says how it is stored.

use std::sync::Arc;

use arrow_array::builder::OffsetBufferBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::Int8Type;
use arrow_array::{
    Array, ArrayRef, DictionaryArray, Float64Array, Int8Array, Int32Array, ListArray, RecordBatch, StringArray,
    StructArray,
};
use arrow_schema::Field;
use rtrace_model::{
    CallSiteId, ContextId, Ending, ExitPolicy, FunctionEvent, HISTOGRAM_BUCKETS, Inlined, LibraryId, LocationId,
    MetricId, PathId, RegionId, SymbolName, Timestamp, ValueType,
};

use super::Row;
use super::column::{self, ColumnError, Columns};

/// A value that a column holds.
pub(crate) trait ColumnCell: Sized {
    const IS_NULLABLE: bool = false;

    fn write<'a>(cells: impl Iterator<Item = &'a Self>) -> ArrayRef
    where
        Self: 'a;

    fn read(columns: &Columns<'_>, name: &str) -> Result<Vec<Self>, ColumnError>;
}

/// A column by its name: what it holds, and whether it may be null.
pub(crate) fn column<'n, 'a, T: ColumnCell + 'a>(
    name: &'n str,
    cells: impl Iterator<Item = &'a T>,
) -> (&'n str, ArrayRef, bool) {
    (name, T::write(cells), T::IS_NULLABLE)
}

/// Makes a [`Row`](super::Row) of a type: its place, and its columns with the fields that they hold. What stands in
/// brackets is made of a row for other readers, and not read; behind `as`, it is read by the function that follows.
/// `then` completes the rows that were read, where a column alone does not say what a field is; `measured` is
/// [`Row::is_measured`](super::Row::is_measured).
macro_rules! row {
    (@write $rows:ident, $name:literal, $field:ident) => {
        $crate::schema::cell::column($name, $rows.clone().map(|row| &row.$field))
    };
    (@write $rows:ident, $name:literal, $field:ident, $write:expr) => {
        row!(@make $rows, $name, $write)
    };
    (@make $rows:ident, $name:literal, $made:expr) => {
        $crate::schema::cell::column($name, $rows.clone().map($made).collect::<Vec<_>>().iter())
    };
    (
        $row:ty, $place:literal,
        { $($name:literal: $($field:ident $(as [$write:expr, $read:expr])?)? $([$derived:expr])?,)+ }
        $(, then $complete:expr)? $(, measured $measured:expr)?
    ) => {
        impl $crate::schema::Row for $row {
            const PLACE: &'static str = $place;

            fn encode<'a>(rows: impl Iterator<Item = &'a $row> + Clone) -> arrow_array::RecordBatch {
                $crate::schema::column::batch([$(
                    $(row!(@write rows, $name, $field $(, $write)?))?
                    $(row!(@make rows, $name, $derived))?,
                )+])
            }

            fn decode(
                columns: &$crate::schema::Columns<'_>,
            ) -> Result<Vec<$row>, $crate::schema::ColumnError> {
                $($(
                    let mut $field = $crate::schema::cell::ColumnCell::read(columns, $name)?.into_iter() $(.map($read))?;
                )?)+
                let row = |_| Some(Self { $($($field: $field.next()?,)?)+ });
                let rows: Vec<$row> = (0..columns.rows()).map_while(row).collect();
                $(let rows = $complete(columns, rows)?;)?
                Ok(rows)
            }

            $(fn is_measured(&self) -> bool {
                $measured(self)
            })?
        }
    };
}
pub(crate) use row;

/// How values of these types become columns, and columns become values.
macro_rules! cells {
    ($($cell:ty: $cells:ident => $write:expr, $columns:ident, $name:ident => $read:expr;)+) => {
        $(impl ColumnCell for $cell {
            fn write<'a>($cells: impl Iterator<Item = &'a $cell>) -> ArrayRef {
                $write
            }

            fn read($columns: &Columns<'_>, $name: &str) -> Result<Vec<$cell>, ColumnError> {
                $read
            }
        })+
    };
}

macro_rules! nullable_cells {
    ($($cell:ty: $cells:ident => $write:expr, $columns:ident, $name:ident => $read:expr;)+) => {
        $(impl ColumnCell for Option<$cell> {
            const IS_NULLABLE: bool = true;

            fn write<'a>($cells: impl Iterator<Item = &'a Option<$cell>>) -> ArrayRef {
                $write
            }

            fn read($columns: &Columns<'_>, $name: &str) -> Result<Vec<Option<$cell>>, ColumnError> {
                $read
            }
        })+
    };
}

cells! {
    u32: cells => column::int32(cells.copied()), columns, name => columns.int32(name);
    u64: cells => column::int64(cells.copied()), columns, name => columns.int64(name);
    f64: cells => Arc::new(Float64Array::from_iter_values(cells.copied())), columns, name => columns.float64(name);
    bool: cells => column::boolean(cells.copied()), columns, name => columns.booleans(name);
    String: cells => column::text(cells.map(String::as_str)),
        columns, name => Ok(columns.text(name)?.into_iter().map(str::to_owned).collect());
    Vec<String>: cells => column::texts(cells.map(Vec::as_slice)), columns, name => columns.texts(name);
    Timestamp: cells => column::int64(cells.map(|time| time.0)),
        columns, name => Ok(columns.int64(name)?.into_iter().map(Timestamp).collect());
    Vec<u64>: cells => column::lists(cells.map(Vec::as_slice)), columns, name => columns.numbers(name);
    Vec<CallSiteId>: cells => column::ids(cells.map(|sites| sites.iter().map(|site| site.0))),
        columns, name => Ok(columns.ids(name)?.into_iter().map(|ids| ids.into_iter().map(CallSiteId).collect()).collect());
    // The buckets up to the last one that is not empty.
    [u64; HISTOGRAM_BUCKETS]: cells => column::lists(cells.map(|buckets| {
            let used = buckets.iter().rposition(|&count| count > 0).map_or(0, |last| last + 1);
            &buckets[..used]
        })),
        columns, name => columns.numbers(name).map(|lists| lists.into_iter().map(|mut list| {
            list.resize(HISTOGRAM_BUCKETS, 0);
            list.try_into().unwrap_or([0; HISTOGRAM_BUCKETS])
        }).collect());
    Vec<Inlined>: cells => write_rows(cells), columns, name => read_rows(columns, name);
    Vec<SymbolName>: cells => write_rows(cells), columns, name => read_rows(columns, name);
    // 0 stands for none.
    Option<PathId>: cells => column::int32(cells.map(|path| path.map_or(0, |path| path.0))),
        columns, name => Ok(columns.int32(name)?.into_iter().map(|id| (id != 0).then_some(PathId(id))).collect());
    // Words, because a person reads `unwound` better than 1 and a dictionary makes both as small.
    Ending: cells => {
            let words = StringArray::from_iter_values(Ending::ALL.map(Ending::name));
            let codes = Int8Array::from_iter_values(cells.map(|&ending| ending as i8));
            Arc::new(DictionaryArray::<Int8Type>::new(codes, Arc::new(words)))
        },
        columns, name => columns.words(name, Ending::from_name);
    ExitPolicy: cells => column::text(cells.map(|exit| exit.name())),
        columns, name => columns.words(name, ExitPolicy::from_name);
    ValueType: cells => column::text(cells.map(|value_type| value_type.name())),
        columns, name => columns.words(name, ValueType::from_name);
}

/// Rows in a row: a list of structures.
fn write_rows<'a, T: Row + 'a>(cells: impl Iterator<Item = &'a Vec<T>>) -> ArrayRef {
    let lists: Vec<&Vec<T>> = cells.collect();
    let rows = StructArray::from(T::encode(lists.iter().copied().flatten()));
    let mut offsets = OffsetBufferBuilder::new(lists.len());
    lists.iter().for_each(|list| offsets.push_length(list.len()));
    let field = Field::new_list_field(rows.data_type().clone(), true);
    Arc::new(ListArray::new(Arc::new(field), offsets.finish(), Arc::new(rows), None))
}

fn read_rows<T: Row>(columns: &Columns<'_>, name: &str) -> Result<Vec<Vec<T>>, ColumnError> {
    let rows = |list: ArrayRef| {
        let rows = list.as_struct_opt().filter(|rows| rows.null_count() == 0);
        let rows = rows.ok_or_else(|| columns.type_error(name, &list))?;
        T::decode(&Columns(&RecordBatch::from(rows)))
    };
    columns.lists(name)?.into_iter().map(rows).collect()
}

macro_rules! ids {
    ($($id:ident)+) => {
        cells! {$(
            $id: cells => column::int32(cells.map(|id| id.0)),
                columns, name => Ok(columns.int32(name)?.into_iter().map($id).collect());
        )+}
    };
}

ids! { LibraryId RegionId LocationId MetricId CallSiteId ContextId PathId }

nullable_cells! {
    u32: cells => column::optional_int32(cells.copied()), columns, name => columns.optional_int32(name);
    u64: cells => column::optional_int64(cells.copied()), columns, name => columns.optional_int64(name);
    CallSiteId: cells => column::optional_int32(cells.map(|id| id.map(|id| id.0))),
        columns, name => Ok(columns.optional_int32(name)?.into_iter().map(|id| id.map(CallSiteId)).collect());
    ContextId: cells => column::optional_int32(cells.map(|id| id.map(|id| id.0))),
        columns, name => Ok(columns.optional_int32(name)?.into_iter().map(|id| id.map(ContextId)).collect());
    i32: cells => Arc::new(Int32Array::from_iter(cells.copied())), columns, name => columns.optional_int32(name);
    Timestamp: cells => column::optional_int64(cells.map(|time| time.map(|time| time.0))),
        columns, name => Ok(columns.optional_int64(name)?.into_iter().map(|time| time.map(Timestamp)).collect());
    String: cells => Arc::new(StringArray::from_iter(cells.map(Option::as_deref))),
        columns, name => Ok(columns.optional_text(name)?.into_iter().map(|text| text.map(str::to_owned)).collect());
    FunctionEvent: cells => Arc::new(StringArray::from_iter(cells.map(|event| event.map(FunctionEvent::name)))),
        columns, name => Ok(columns.optional_text(name)?.into_iter().map(|text| FunctionEvent::from_name(text?)).collect());
}
