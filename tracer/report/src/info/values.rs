//! Which arguments and results were recorded, who says that the functions have them, and how many are not known.

use rtrace_exporters::{Error, TraceSet};
use rtrace_model::{LossReason, Region, counted, grouped};
use serde::Serialize;

/// Functions that people are told of.
const FUNCTIONS: usize = 20;

/// A value that only calls have which failed.
const ERRNO: &str = "errno";

/// The values of a function.
#[derive(Debug, Serialize)]
pub struct ValuesOf {
    /// The function.
    pub function: String,
    /// Calls with values, each of which may be null.
    pub calls: u64,
    /// Of these calls, how many values could not be read.
    pub unread: u64,
    /// What is recorded.
    pub columns: Vec<ValueInfo>,
}

/// One argument or result.
#[derive(Debug, Serialize)]
pub struct ValueInfo {
    /// Its name.
    pub name: String,
    /// Its type as C or the debug information says it.
    pub c_type: String,
    /// Who says that the function has it.
    pub source: String,
    /// Whether it is read when the function returns.
    pub at_exit: bool,
    /// Calls of which it is not known; absent where the files do not say.
    pub nulls: Option<u64>,
}

/// The functions with most calls first.
pub(super) fn of(trace: &TraceSet) -> Result<Vec<ValuesOf>, Error> {
    let losses = trace.losses()?;
    let mut values = Vec::new();
    for region in trace.regions() {
        let columns = trace.value_columns_of(region.id);
        if columns.is_empty() {
            continue;
        }
        let (calls, nulls) = trace.value_nulls(region.id)?;
        let column = |(column, nulls): (&rtrace_model::ValueColumn, Option<u64>)| ValueInfo {
            name: column.name.clone(),
            c_type: column.c_type.clone(),
            source: column.source.clone(),
            at_exit: column.at_exit,
            nulls,
        };
        let Region { name, id, .. } = region;
        let is_unread = |loss: &&rtrace_model::Loss| loss.reason == LossReason::ValueUnread && loss.region == Some(*id);
        let unread = losses.iter().filter(is_unread).map(|loss| loss.count).sum();
        let columns = columns.iter().zip(nulls).map(column).collect();
        values.push(ValuesOf { function: name.clone(), calls, unread, columns });
    }
    values.sort_by(|a, b| (b.calls, &a.function).cmp(&(a.calls, &b.function)));
    Ok(values)
}

/// Lines for people.
pub(super) fn lines(values: &[ValuesOf]) -> Vec<String> {
    let mut lines: Vec<String> = values.iter().take(FUNCTIONS).map(ValuesOf::line).collect();
    if values.len() > FUNCTIONS {
        lines.push(format!("and of {}", counted((values.len() - FUNCTIONS) as u64, "more function")));
    }
    lines
}

impl ValuesOf {
    fn line(&self) -> String {
        let names: Vec<&str> = self.columns.iter().map(|column| column.name.as_str()).collect();
        let mut sources: Vec<&str> = self.columns.iter().map(|column| column.source.as_str()).collect();
        sources.sort_unstable();
        sources.dedup();
        let calls = counted(self.calls, "call");
        let mut line =
            format!("{}: {} of {calls}, known from: {}", self.function, names.join(", "), sources.join(", "));
        let null = |column: &ValueInfo| {
            let nulls = column.nulls.filter(|&nulls| nulls > 0)?;
            Some(format!("{} {} ({})", column.name, grouped(nulls), self.why(column)))
        };
        let nulls: Vec<String> = self.columns.iter().filter_map(null).collect();
        if !nulls.is_empty() {
            line.push_str(&format!("; null: {}", nulls.join(", ")));
        }
        line
    }

    /// Why a value may be null.
    fn why(&self, column: &ValueInfo) -> &'static str {
        match (column.at_exit, column.name == ERRNO, self.unread) {
            (_, true, _) => "calls that did not fail",
            (false, ..) => "not readable",
            (true, _, 0) => "calls that were not timed or did not return",
            (true, ..) => "calls that were not timed or did not return, or not readable",
        }
    }
}
