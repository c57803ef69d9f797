//! Columns made from values and values taken from columns.
//!
//! Files may come from other writers: a missing column, another type, a null or a negative number
//! where none can be is an error that names the column.

use std::sync::Arc;

use arrow_array::builder::{ListBuilder, PrimitiveBuilder, StringBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Float64Type, Int32Type, Int64Type};
use arrow_array::{Array, ArrayRef, BooleanArray, ListArray, PrimitiveArray, RecordBatch, StringArray};
use arrow_schema::{Field, Schema};
use rtrace_model::{Base, CallSiteId, ContextId, LibraryId, LocationId, MetricId, PathId, RegionId, Timestamp};

/// What is wrong with a column.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ColumnError {
    #[error("column `{0}` is missing")]
    Missing(String),
    #[error("column `{column}` has type {found}")]
    Type { column: String, found: String },
    #[error("column `{column}` holds {value} in row {row}")]
    Value { column: String, row: usize, value: String },
}

impl ColumnError {
    /// A null where none can be.
    pub(crate) fn nothing(column: &str, row: usize) -> ColumnError {
        ColumnError::Value { column: column.to_owned(), row, value: "nothing".to_owned() }
    }
}

/// A value that is a number in a column.
pub(crate) trait ColumnNumber: Copy + 'static {
    type Stored: ArrowPrimitiveType;

    fn store(self) -> NativeOf<Self>;

    /// `None` where no value is stored so.
    fn load(stored: NativeOf<Self>) -> Option<Self>;
}

pub(crate) type NativeOf<T> = <<T as ColumnNumber>::Stored as ArrowPrimitiveType>::Native;

/// How values of these types are stored, and what is stored is a value.
macro_rules! numbers {
    ($($number:ty as $stored:ty: $value:ident => $store:expr, $native:ident => $load:expr;)+) => {
        $(impl ColumnNumber for $number {
            type Stored = $stored;

            fn store(self) -> NativeOf<Self> {
                let $value = self;
                $store
            }

            fn load($native: NativeOf<Self>) -> Option<Self> {
                $load
            }
        })+
    };
}

macro_rules! ids {
    ($($id:ident)+) => {
        numbers! { $($id as Int32Type: id => id.0.store(), stored => u32::load(stored).map($id);)+ }
    };
}

ids! { LibraryId RegionId LocationId MetricId CallSiteId ContextId PathId }

numbers! {
    // Ids and thread ids never come near the limit, where they stop.
    u32 as Int32Type: value => i32::try_from(value).unwrap_or(i32::MAX), stored => stored.try_into().ok();
    // 2⁶³ ns are 292 years.
    u64 as Int64Type: value => i64::try_from(value).unwrap_or(i64::MAX), stored => stored.try_into().ok();
    i32 as Int32Type: value => value, stored => Some(stored);
    f64 as Float64Type: value => value, stored => Some(stored);
    Timestamp as Int64Type: time => time.0.store(), stored => u64::load(stored).map(Timestamp);
    Bits as Int64Type: bits => bits.0.cast_signed(), stored => Some(Bits(stored.cast_unsigned()));
    Base as Int32Type: base => match base { Base::Binary => 2, Base::Decimal => 10 },
        stored => match stored { 2 => Some(Base::Binary), 10 => Some(Base::Decimal), _ => None };
}

/// 64 bits that are all in use, so that large values look negative.
#[derive(Clone, Copy)]
pub(super) struct Bits(pub(super) u64);

/// A column of numbers.
pub(crate) fn numbers<T: ColumnNumber>(values: impl Iterator<Item = T>) -> ArrayRef {
    Arc::new(PrimitiveArray::<T::Stored>::from_iter_values(values.map(T::store)))
}

/// A nullable column of numbers.
pub(crate) fn optional_numbers<T: ColumnNumber>(values: impl Iterator<Item = Option<T>>) -> ArrayRef {
    Arc::new(PrimitiveArray::<T::Stored>::from_iter(values.map(|value| value.map(T::store))))
}

/// A column of truth values.
pub(crate) fn boolean(values: impl Iterator<Item = bool>) -> ArrayRef {
    Arc::new(BooleanArray::from_iter(values.map(Some)))
}

/// A column of texts.
pub(crate) fn text<'a>(values: impl Iterator<Item = &'a str>) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(values))
}

/// A column of lists of texts.
pub(crate) fn texts<'a>(values: impl Iterator<Item = &'a [String]>) -> ArrayRef {
    let mut lists = ListBuilder::new(StringBuilder::new());
    for list in values {
        lists.append_value(list.iter().map(Some));
    }
    Arc::new(lists.finish())
}

/// A column of lists of numbers.
pub(crate) fn lists<'a, T: ColumnNumber + 'a>(values: impl Iterator<Item = &'a [T]>) -> ArrayRef {
    let mut lists = ListBuilder::new(PrimitiveBuilder::<T::Stored>::new());
    for list in values {
        lists.append_value(list.iter().map(|&value| Some(value.store())));
    }
    Arc::new(lists.finish())
}

/// The columns as one batch; a column is named, filled and marked as nullable.
pub(crate) fn batch<const N: usize>(columns: [(&str, ArrayRef, bool); N]) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(columns).expect("all columns come from the same rows")
}

/// The batch with further nullable columns of 64-bit integers behind its own.
pub(crate) fn with_further(batch: &RecordBatch, names: &[String], columns: Vec<ArrayRef>) -> RecordBatch {
    let columns = names.iter().zip(columns);
    with_columns(batch, columns.map(|(name, column)| (name.as_str(), column, true)))
}

/// The batch with further columns behind its own, each named, filled and marked as nullable.
pub(crate) fn with_columns<'a>(
    batch: &RecordBatch,
    further: impl IntoIterator<Item = (&'a str, ArrayRef, bool)>,
) -> RecordBatch {
    let (mut fields, mut columns) = (batch.schema().fields().to_vec(), batch.columns().to_vec());
    for (name, column, is_nullable) in further {
        fields.push(Arc::new(Field::new(name, column.data_type().clone(), is_nullable)));
        columns.push(column);
    }
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).expect("all columns come from the same rows")
}

/// The columns of a batch that was read.
pub(crate) struct Columns<'a>(pub(crate) &'a RecordBatch);

impl<'a> Columns<'a> {
    pub(crate) fn rows(&self) -> usize {
        self.0.num_rows()
    }

    fn column(&self, name: &str) -> Result<&'a ArrayRef, ColumnError> {
        self.0.column_by_name(name).ok_or_else(|| ColumnError::Missing(name.to_owned()))
    }

    pub(super) fn type_error(&self, name: &str, array: &dyn Array) -> ColumnError {
        ColumnError::Type { column: name.to_owned(), found: array.data_type().to_string() }
    }

    pub(crate) fn optional_numbers<T: ColumnNumber>(&self, name: &str) -> Result<Vec<Option<T>>, ColumnError> {
        self.numbers_in(name, self.column(name)?)
    }

    fn numbers_in<T: ColumnNumber>(&self, name: &str, array: &ArrayRef) -> Result<Vec<Option<T>>, ColumnError> {
        let numbers = array.as_primitive_opt::<T::Stored>().ok_or_else(|| self.type_error(name, array))?;
        let load = |(row, stored): (usize, Option<NativeOf<T>>)| match stored {
            None => Ok(None),
            Some(stored) => T::load(stored).map(Some).ok_or_else(|| ColumnError::Value {
                column: name.to_owned(),
                row,
                value: format!("{stored:?}"),
            }),
        };
        numbers.iter().enumerate().map(load).collect()
    }

    pub(crate) fn numbers<T: ColumnNumber>(&self, name: &str) -> Result<Vec<T>, ColumnError> {
        // Most columns are as they should be, and then need no look at each value for what is wrong with it.
        let sound = self.column(name)?.as_primitive_opt::<T::Stored>().filter(|numbers| numbers.null_count() == 0);
        match sound.and_then(|numbers| numbers.values().iter().map(|&stored| T::load(stored)).collect()) {
            Some(values) => Ok(values),
            None => required(name, self.optional_numbers(name)?),
        }
    }

    /// Appends of each row in turn the values of the columns named, all of 64-bit integers; 0 in rows
    /// that are not measured, in which these may be null.
    pub(crate) fn interleave(
        &self,
        names: &[String],
        is_measured: impl Fn(usize) -> bool,
        values: &mut Vec<u64>,
    ) -> Result<(), ColumnError> {
        let columns = names.iter().map(|name| self.optional_numbers(name)).collect::<Result<Vec<_>, _>>()?;
        values.reserve(self.rows() * names.len());
        for row in 0..self.rows() {
            let is_measured = is_measured(row);
            for (name, column) in names.iter().zip(&columns) {
                values.push(match column[row] {
                    _ if !is_measured => 0,
                    Some(value) => value,
                    None => return Err(ColumnError::nothing(name, row)),
                });
            }
        }
        Ok(())
    }

    /// A column of truth values.
    pub(crate) fn booleans(&self, name: &str) -> Result<Vec<bool>, ColumnError> {
        let array = self.column(name)?;
        let values = array.as_boolean_opt().ok_or_else(|| self.type_error(name, array))?;
        required(name, values.iter().collect())
    }

    fn strings(&self, name: &str) -> Result<&'a StringArray, ColumnError> {
        let array = self.column(name)?;
        array.as_string_opt::<i32>().ok_or_else(|| self.type_error(name, array))
    }

    pub(crate) fn optional_text(&self, name: &str) -> Result<Vec<Option<&'a str>>, ColumnError> {
        Ok(self.strings(name)?.iter().collect())
    }

    pub(crate) fn text(&self, name: &str) -> Result<Vec<&'a str>, ColumnError> {
        required(name, self.optional_text(name)?)
    }

    /// A column of words of a fixed set.
    pub(crate) fn words<T>(&self, name: &str, parse: impl Fn(&str) -> Option<T>) -> Result<Vec<T>, ColumnError> {
        let words = self.text(name)?.into_iter().enumerate();
        words
            .map(|(row, word)| {
                parse(word).ok_or_else(|| ColumnError::Value {
                    column: name.to_owned(),
                    row,
                    value: format!("`{}`", rtrace_model::escape(word)),
                })
            })
            .collect()
    }

    /// A column of lists; the elements of each row, an absent list is an empty one.
    pub(crate) fn arrays(&self, name: &str) -> Result<Vec<ArrayRef>, ColumnError> {
        let array = self.column(name)?;
        let lists: &ListArray = array.as_list_opt::<i32>().ok_or_else(|| self.type_error(name, array))?;
        Ok((0..lists.len()).map(|row| lists.value(row)).collect())
    }

    /// A column of lists of numbers.
    pub(crate) fn lists<T: ColumnNumber>(&self, name: &str) -> Result<Vec<Vec<T>>, ColumnError> {
        let numbers = |list: ArrayRef| required(name, self.numbers_in(name, &list)?);
        self.arrays(name)?.into_iter().map(numbers).collect()
    }

    /// A column of lists of texts.
    pub(crate) fn texts(&self, name: &str) -> Result<Vec<Vec<String>>, ColumnError> {
        let owned = |list: ArrayRef| {
            let strings = list.as_string_opt::<i32>().ok_or_else(|| self.type_error(name, &list))?;
            Ok(strings.iter().flatten().map(str::to_owned).collect())
        };
        self.arrays(name)?.into_iter().map(owned).collect()
    }
}

fn required<T>(name: &str, values: Vec<Option<T>>) -> Result<Vec<T>, ColumnError> {
    let present = |(row, value): (usize, Option<T>)| value.ok_or_else(|| ColumnError::nothing(name, row));
    values.into_iter().enumerate().map(present).collect()
}
