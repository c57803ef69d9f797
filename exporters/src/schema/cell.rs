//! Rows whose columns are their fields: each is named once, and its type says how it is stored.

use std::sync::Arc;

use arrow_array::builder::OffsetBufferBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::Int8Type;
use arrow_array::{Array, ArrayRef, DictionaryArray, Int8Array, ListArray, RecordBatch, StringArray, StructArray};
use arrow_schema::Field;
use rtrace_model::{
    ContextEnding, Ending, ExitPolicy, FunctionEvent, HISTOGRAM_BUCKETS, Inlined, Scope, Span, SymbolName, ValueType,
};

use super::Row;
use super::column::{self, ColumnError, ColumnNumber, Columns};

/// A value that a column holds.
pub(crate) trait ColumnCell: Sized + 'static {
    const IS_NULLABLE: bool = false;

    fn write<'a>(cells: impl Iterator<Item = &'a Self>) -> ArrayRef;

    fn read(columns: &Columns<'_>, name: &str) -> Result<Vec<Self>, ColumnError>;
}

/// A column by its name: what it holds, and whether it may be null.
pub(crate) fn column<'n, 'a, T: ColumnCell>(
    name: &'n str,
    cells: impl Iterator<Item = &'a T>,
) -> (&'n str, ArrayRef, bool) {
    (name, T::write(cells), T::IS_NULLABLE)
}

/// Makes a [`Row`](super::Row) of a type: its place, and its columns with the fields that they hold. What stands in
/// brackets is made of a row for other readers, and not read, and what stands in braces of all rows; behind `as`, it is
/// read by the function that follows.
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
        { $($name:literal: $($field:ident $(as [$write:expr, $read:expr])?)? $([$derived:expr])? $({$whole:path})?,)+ }
        $(, then $complete:expr)? $(, measured $measured:expr)?
    ) => {
        impl $crate::schema::Row for $row {
            const PLACE: &'static str = $place;

            fn encode<'a>(rows: impl Iterator<Item = &'a $row> + Clone) -> arrow_array::RecordBatch {
                $crate::schema::column::batch([$(
                    $(row!(@write rows, $name, $field $(, $write)?))?
                    $(row!(@make rows, $name, $derived))?
                    $($crate::schema::cell::column($name, $whole(rows.clone()).iter()))?,
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

impl<T: ColumnNumber> ColumnCell for T {
    fn write<'a>(cells: impl Iterator<Item = &'a T>) -> ArrayRef {
        column::numbers(cells.copied())
    }

    fn read(columns: &Columns<'_>, name: &str) -> Result<Vec<T>, ColumnError> {
        columns.numbers(name)
    }
}

impl<T: ColumnNumber> ColumnCell for Option<T> {
    const IS_NULLABLE: bool = true;

    fn write<'a>(cells: impl Iterator<Item = &'a Option<T>>) -> ArrayRef {
        column::optional_numbers(cells.copied())
    }

    fn read(columns: &Columns<'_>, name: &str) -> Result<Vec<Option<T>>, ColumnError> {
        columns.optional_numbers(name)
    }
}

impl<T: ColumnNumber> ColumnCell for Vec<T> {
    fn write<'a>(cells: impl Iterator<Item = &'a Vec<T>>) -> ArrayRef {
        column::lists(cells.map(Vec::as_slice))
    }

    fn read(columns: &Columns<'_>, name: &str) -> Result<Vec<Vec<T>>, ColumnError> {
        columns.lists(name)
    }
}

/// How values of these types become columns, and columns become values.
macro_rules! cells {
    ($($cell:ty $(, nullable $is_nullable:literal)?:
        $cells:ident => $write:expr, $columns:ident, $name:ident => $read:expr;)+) => {
        $(impl ColumnCell for $cell {
            $(const IS_NULLABLE: bool = $is_nullable;)?

            fn write<'a>($cells: impl Iterator<Item = &'a $cell>) -> ArrayRef {
                $write
            }

            fn read($columns: &Columns<'_>, $name: &str) -> Result<Vec<$cell>, ColumnError> {
                $read
            }
        })+
    };
}

/// Words of a fixed set.
macro_rules! words {
    ($($word:ident)+) => {
        cells! {$(
            $word: cells => column::text(cells.map(|word| word.name())), columns, name => columns.words(name, $word::from_name);
        )+}
    };
}

words! { ExitPolicy ValueType Scope Span }

cells! {
    bool: cells => column::boolean(cells.copied()), columns, name => columns.booleans(name);
    String: cells => column::text(cells.map(String::as_str)),
        columns, name => Ok(columns.text(name)?.into_iter().map(str::to_owned).collect());
    Option<String>, nullable true: cells => Arc::new(StringArray::from_iter(cells.map(Option::as_deref))),
        columns, name => Ok(columns.optional_text(name)?.into_iter().map(|text| text.map(str::to_owned)).collect());
    Vec<String>: cells => column::texts(cells.map(Vec::as_slice)), columns, name => columns.texts(name);
    // The buckets up to the last one that is not empty.
    [u64; HISTOGRAM_BUCKETS]: cells => column::lists(cells.map(|buckets| {
            let used = buckets.iter().rposition(|&count| count > 0).map_or(0, |last| last + 1);
            &buckets[..used]
        })),
        columns, name => columns.lists(name).map(|lists| lists.into_iter().map(|mut list| {
            list.resize(HISTOGRAM_BUCKETS, 0);
            list.try_into().unwrap_or([0; HISTOGRAM_BUCKETS])
        }).collect());
    Vec<Inlined>: cells => write_rows(cells), columns, name => read_rows(columns, name);
    Vec<SymbolName>: cells => write_rows(cells), columns, name => read_rows(columns, name);
    // Words, because a person reads `unwound` better than 1 and a dictionary makes both as small.
    Ending: cells => {
            let words = StringArray::from_iter_values(Ending::ALL.map(Ending::name));
            let codes = Int8Array::from_iter_values(cells.map(|&ending| ending as i8));
            Arc::new(DictionaryArray::<Int8Type>::new(codes, Arc::new(words)))
        },
        columns, name => columns.words(name, Ending::from_name);
    Option<FunctionEvent>, nullable true:
        cells => Arc::new(StringArray::from_iter(cells.map(|event| event.map(FunctionEvent::name)))),
        columns, name => Ok(columns.optional_text(name)?.into_iter().map(|text| FunctionEvent::from_name(text?)).collect());
    // Null where a context is complete; a word may be one of a later version.
    ContextEnding, nullable true: cells => {
            let word = |ending: &ContextEnding| (*ending != ContextEnding::Complete).then(|| ending.name());
            Arc::new(StringArray::from_iter(cells.map(word)))
        },
        columns, name => {
            let ending = |word| ContextEnding::from_name(word).unwrap_or(ContextEnding::NotYetKnown);
            let endings = columns.optional_text(name)?.into_iter();
            Ok(endings.map(|word| word.map_or(ContextEnding::Complete, ending)).collect())
        };
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
    columns.arrays(name)?.into_iter().map(rows).collect()
}
