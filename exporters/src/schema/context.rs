//! `contexts.parquet`: the untraced functions that led to calls.

use std::sync::Arc;

use arrow_array::builder::{Int32Builder, ListBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use arrow_array::{Array, ArrayRef, RecordBatch, StringArray};
use rtrace_model::{CallSiteId, Context, ContextEnding, ContextId};

use super::Row;
use super::column::{self, ColumnError, Columns};

impl Row for Context {
    const PLACE: &'static str = "contexts.parquet";

    fn encode<'a>(contexts: impl Iterator<Item = &'a Context> + Clone) -> RecordBatch {
        let contexts = || contexts.clone();
        let mut sites = ListBuilder::new(Int32Builder::new());
        for context in contexts() {
            sites.append_value(context.sites.iter().map(|site| i32::try_from(site.0).ok()));
        }
        let is_cut = |context: &'a Context| context.ending != ContextEnding::Complete;
        let incomplete =
            StringArray::from_iter(contexts().map(|context| is_cut(context).then(|| context.ending.name())));
        column::batch([
            ("context", column::int32(contexts().map(|context| context.id.0)), false),
            ("call_sites", Arc::new(sites.finish()) as ArrayRef, false),
            ("incomplete", Arc::new(incomplete), true),
        ])
    }

    fn decode(columns: &Columns<'_>) -> Result<Vec<Context>, ColumnError> {
        let id = columns.int32("context")?;
        let incomplete = columns.optional_text("incomplete")?;
        let ending = |row: usize| match incomplete[row] {
            None => ContextEnding::Complete,
            // A word of a later version.
            Some(word) => ContextEnding::from_name(word).unwrap_or(ContextEnding::NotYetKnown),
        };
        let context = |(row, sites): (usize, ArrayRef)| {
            Ok(Context { id: ContextId(id[row]), sites: sites_of(&sites)?, ending: ending(row) })
        };
        columns.lists("call_sites")?.into_iter().enumerate().map(context).collect()
    }
}

fn sites_of(list: &ArrayRef) -> Result<Vec<CallSiteId>, ColumnError> {
    let type_error = || ColumnError::Type { column: "call_sites".to_owned(), found: list.data_type().to_string() };
    let sites = list.as_primitive_opt::<Int32Type>().ok_or_else(type_error)?;
    // A place that is none is one that nothing is known of.
    Ok(sites.iter().map(|site| CallSiteId(site.and_then(|site| site.try_into().ok()).unwrap_or(u32::MAX))).collect())
}
