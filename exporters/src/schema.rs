//! What the Parquet files hold: one [`Row`] per kind of file, its columns named in one place.
//!
//! Integers are signed, because Spark reads unsigned ones as decimals; times and durations are
//! nanoseconds in columns that end in `_ns`. `SCHEMA.md` says what each column means.

mod call;
mod call_site;
pub(crate) mod cell;
pub(crate) mod column;
mod context;
mod cpu_sample;
mod definition;
mod estimate;
mod event;
mod folded;
mod metric;
mod profile;
mod sample;
mod value;

use arrow_array::RecordBatch;

pub(crate) use call::measured;
pub(crate) use column::{ColumnError, Columns, with_columns, with_further};
pub(crate) use metric::call_columns;

/// Version of the trace directory. It changes when a column or file changes its meaning or goes
/// away; new columns and files do not change it, readers ignore what they do not know.
pub const VERSION: u64 = 2;

/// A row of one kind of Parquet file.
pub(crate) trait Row: Sized {
    /// The file, or for kinds that grow without end the folder of segments, in the directory.
    const PLACE: &'static str;

    /// The rows as columns: this defines the schema.
    fn encode<'a>(rows: impl Iterator<Item = &'a Self> + Clone) -> RecordBatch
    where
        Self: 'a;

    /// The rows back from the columns.
    fn decode(columns: &Columns<'_>) -> Result<Vec<Self>, ColumnError>;

    /// Whether the columns beyond those of the row have values in this one; else they are null.
    fn is_measured(&self) -> bool {
        true
    }
}

/// A row of a kind that grows without end, kept in segments.
pub(crate) trait Stream: Row + Clone {
    /// What the rows of a row group are sorted by.
    type Key: Ord;

    fn key(&self) -> Self::Key;

    /// The numbers of rows in the order of their keys.
    fn order(rows: &[Self]) -> Vec<u32> {
        let mut order: Vec<u32> = (0..rows.len() as u32).collect();
        order.sort_by_key(|&row| rows[row as usize].key());
        order
    }
}
