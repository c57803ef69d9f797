//! Columns made from values and values taken from columns.
//!
//! Files may come from other writers: a missing column, another type, a null or a negative number
//! where none can be is an error that names the column.

use std::sync::Arc;

use arrow_array::builder::{Int32Builder, Int64Builder, ListBuilder, StringBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Float64Type, Int32Type, Int64Type};
use arrow_array::{Array, ArrayRef, BooleanArray, Int32Array, Int64Array, ListArray, RecordBatch, StringArray};
use arrow_schema::{Field, Schema};

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

/// A column of 32-bit integers; ids and thread ids never come near the limit, where they stop.
pub(crate) fn int32(values: impl Iterator<Item = u32>) -> ArrayRef {
    Arc::new(Int32Array::from_iter_values(values.map(|value| i32::try_from(value).unwrap_or(i32::MAX))))
}

/// A column of 64-bit integers; 2⁶³ ns are 292 years.
pub(crate) fn int64(values: impl Iterator<Item = u64>) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(values.map(saturate)))
}

/// A nullable column of 64-bit integers.
pub(crate) fn optional_int64(values: impl Iterator<Item = Option<u64>>) -> ArrayRef {
    Arc::new(Int64Array::from_iter(values.map(|value| value.map(saturate))))
}

/// A nullable column of 32-bit integers.
pub(crate) fn optional_int32(values: impl Iterator<Item = Option<u32>>) -> ArrayRef {
    let saturate = |value| i32::try_from(value).unwrap_or(i32::MAX);
    Arc::new(Int32Array::from_iter(values.map(|value| value.map(saturate))))
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

/// A column of lists of 64-bit integers.
pub(crate) fn lists<'a>(values: impl Iterator<Item = &'a [u64]>) -> ArrayRef {
    let mut lists = ListBuilder::new(Int64Builder::new());
    for list in values {
        lists.append_value(list.iter().map(|&value| Some(saturate(value))));
    }
    Arc::new(lists.finish())
}

/// A column of lists of ids.
pub(crate) fn ids<L: Iterator<Item = u32>>(values: impl Iterator<Item = L>) -> ArrayRef {
    let mut lists = ListBuilder::new(Int32Builder::new());
    for list in values {
        lists.append_value(list.map(|id| i32::try_from(id).ok()));
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

fn saturate(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
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

    fn integers<P, T>(&self, name: &str) -> Result<Vec<Option<T>>, ColumnError>
    where
        P: ArrowPrimitiveType,
        T: TryFrom<P::Native>,
    {
        let array = self.column(name)?;
        let integers = array.as_primitive_opt::<P>().ok_or_else(|| self.type_error(name, array))?;
        let convert = |(row, value): (usize, Option<P::Native>)| match value {
            None => Ok(None),
            Some(value) => T::try_from(value).map(Some).map_err(|_| ColumnError::Value {
                column: name.to_owned(),
                row,
                value: format!("{value:?}"),
            }),
        };
        integers.iter().enumerate().map(convert).collect()
    }

    pub(crate) fn optional_int32<T: TryFrom<i32>>(&self, name: &str) -> Result<Vec<Option<T>>, ColumnError> {
        self.integers::<Int32Type, T>(name)
    }

    pub(crate) fn optional_int64(&self, name: &str) -> Result<Vec<Option<u64>>, ColumnError> {
        self.integers::<Int64Type, u64>(name)
    }

    pub(crate) fn int32(&self, name: &str) -> Result<Vec<u32>, ColumnError> {
        self.required_integers::<Int32Type, u32>(name)
    }

    pub(crate) fn int64(&self, name: &str) -> Result<Vec<u64>, ColumnError> {
        self.required_integers::<Int64Type, u64>(name)
    }

    fn required_integers<P, T>(&self, name: &str) -> Result<Vec<T>, ColumnError>
    where
        P: ArrowPrimitiveType,
        T: TryFrom<P::Native>,
    {
        // Most columns are as they should be, and then need no look at each value for what is wrong with it.
        let sound = self.column(name)?.as_primitive_opt::<P>().filter(|integers| integers.null_count() == 0);
        let converted = sound.map(|integers| integers.values().iter().map(|&value| T::try_from(value)).collect());
        match converted {
            Some(Ok(values)) => Ok(values),
            Some(Err(_)) | None => required(name, self.integers::<P, T>(name)?),
        }
    }

    /// A column of 32-bit integers of either sign.
    pub(crate) fn signed32(&self, name: &str) -> Result<Vec<i32>, ColumnError> {
        required(name, self.integers::<Int32Type, i32>(name)?)
    }

    pub(crate) fn float64(&self, name: &str) -> Result<Vec<f64>, ColumnError> {
        let array = self.column(name)?;
        let values = array.as_primitive_opt::<Float64Type>().ok_or_else(|| self.type_error(name, array))?;
        required(name, values.iter().collect())
    }

    /// Appends of each row in turn the values of the columns named, all of 64-bit integers; 0 in rows
    /// that are not measured, in which these may be null.
    pub(crate) fn interleave(
        &self,
        names: &[String],
        is_measured: impl Fn(usize) -> bool,
        values: &mut Vec<u64>,
    ) -> Result<(), ColumnError> {
        let columns = names.iter().map(|name| self.optional_int64(name)).collect::<Result<Vec<_>, _>>()?;
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

    /// A column whose 64 bits are all in use, so that large values look negative.
    pub(crate) fn bits64(&self, name: &str) -> Result<Vec<u64>, ColumnError> {
        let signed = required(name, self.integers::<Int64Type, i64>(name)?)?;
        Ok(signed.into_iter().map(i64::cast_unsigned).collect())
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
    pub(crate) fn lists(&self, name: &str) -> Result<Vec<ArrayRef>, ColumnError> {
        let array = self.column(name)?;
        let lists: &ListArray = array.as_list_opt::<i32>().ok_or_else(|| self.type_error(name, array))?;
        Ok((0..lists.len()).map(|row| lists.value(row)).collect())
    }

    /// A column of lists of 64-bit integers.
    pub(crate) fn numbers(&self, name: &str) -> Result<Vec<Vec<u64>>, ColumnError> {
        let numbers = |list: ArrayRef| {
            let numbers = list.as_primitive_opt::<Int64Type>().ok_or_else(|| self.type_error(name, &list))?;
            Ok(numbers.iter().flatten().map(|number| u64::try_from(number).unwrap_or(0)).collect())
        };
        self.lists(name)?.into_iter().map(numbers).collect()
    }

    /// A column of lists of ids. One that is none is one that nothing is known of.
    pub(crate) fn ids(&self, name: &str) -> Result<Vec<Vec<u32>>, ColumnError> {
        let ids = |list: ArrayRef| {
            let ids = list.as_primitive_opt::<Int32Type>().ok_or_else(|| self.type_error(name, &list))?;
            Ok(ids.iter().map(|id| id.and_then(|id| id.try_into().ok()).unwrap_or(u32::MAX)).collect())
        };
        self.lists(name)?.into_iter().map(ids).collect()
    }

    /// A column of lists of texts.
    pub(crate) fn texts(&self, name: &str) -> Result<Vec<Vec<String>>, ColumnError> {
        let owned = |list: ArrayRef| {
            let strings = list.as_string_opt::<i32>().ok_or_else(|| self.type_error(name, &list))?;
            Ok(strings.iter().flatten().map(str::to_owned).collect())
        };
        self.lists(name)?.into_iter().map(owned).collect()
    }
}

fn required<T>(name: &str, values: Vec<Option<T>>) -> Result<Vec<T>, ColumnError> {
    let present = |(row, value): (usize, Option<T>)| value.ok_or_else(|| ColumnError::nothing(name, row));
    values.into_iter().enumerate().map(present).collect()
}
