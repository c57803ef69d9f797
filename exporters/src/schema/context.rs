//! `contexts.parquet`: the untraced functions that led to calls.

use std::sync::Arc;

use arrow_array::{ArrayRef, StringArray};
use rtrace_model::{Context, ContextEnding};

use super::cell::{ColumnCell, row};
use super::column::{ColumnError, Columns};

row!(Context, "contexts.parquet", {
    "context": id,
    "call_sites": sites,
    "incomplete": ending,
});

/// Null where a context is complete.
impl ColumnCell for ContextEnding {
    const IS_NULLABLE: bool = true;

    fn write<'a>(endings: impl Iterator<Item = &'a ContextEnding>) -> ArrayRef {
        let word = |ending: &ContextEnding| (*ending != ContextEnding::Complete).then(|| ending.name());
        Arc::new(StringArray::from_iter(endings.map(word)))
    }

    fn read(columns: &Columns<'_>, name: &str) -> Result<Vec<ContextEnding>, ColumnError> {
        // A word may be one of a later version.
        let ending = |word| ContextEnding::from_name(word).unwrap_or(ContextEnding::NotYetKnown);
        Ok(columns.optional_text(name)?.into_iter().map(|word| word.map_or(ContextEnding::Complete, ending)).collect())
    }
}
