//! `metrics.parquet`: what is measured beside time, and which columns of `calls/` hold it.

use std::sync::Arc;

use arrow_array::{Int32Array, RecordBatch, StringArray};
use rtrace_model::{Base, Call, Metric, MetricId, Scope, Span};

use super::Row;
use super::column::{self, ColumnError, Columns};

/// The columns of `calls/` that hold readings: of each metric of calls, in the order of ids, that of
/// the call itself and that of its callees.
///
/// A column has the name of its metric, with `_` for all but letters and digits; where that is
/// another's, its id is added.
pub(crate) fn call_columns<'a>(metrics: impl Iterator<Item = &'a Metric>) -> Vec<String> {
    let of_calls = Call::encode(std::iter::empty()).schema();
    let mut columns: Vec<String> = Vec::new();
    for metric in metrics.filter(|metric| metric.scope == Scope::Call) {
        let is_taken = |name: &str, columns: &[String]| {
            of_calls.column_with_name(name).is_some() || columns.iter().any(|column| column == name)
        };
        let mut name = sanitised(&metric.name);
        if is_taken(&name, &columns) || is_taken(&child(&name), &columns) {
            name = format!("{name}_{}", metric.id.0);
        }
        let of_callees = child(&name);
        columns.extend([name, of_callees]);
    }
    columns
}

fn child(name: &str) -> String {
    format!("{name}_child")
}

fn sanitised(name: &str) -> String {
    let words = name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let name = words.collect::<Vec<_>>().join("_");
    if name.starts_with(|c: char| c.is_ascii_alphabetic()) { name } else { format!("metric_{name}") }
}

impl Row for Metric {
    const PLACE: &'static str = "metrics.parquet";

    fn encode<'a>(metrics: impl Iterator<Item = &'a Metric> + Clone) -> RecordBatch {
        let metrics = || metrics.clone();
        let mut names = call_columns(metrics()).into_iter().step_by(2);
        let columns: Vec<Option<String>> =
            metrics().map(|metric| if metric.scope == Scope::Call { names.next() } else { None }).collect();
        let exponents = Int32Array::from_iter_values(metrics().map(|metric| metric.exponent));
        let bases = metrics().map(|metric| match metric.base {
            Base::Binary => 2,
            Base::Decimal => 10,
        });
        column::batch([
            ("metric", column::int32(metrics().map(|metric| metric.id.0)), false),
            ("name", column::text(metrics().map(|metric| metric.name.as_str())), false),
            ("column", Arc::new(StringArray::from_iter(columns)), true),
            ("unit", column::text(metrics().map(|metric| metric.unit.as_str())), false),
            ("base", column::int32(bases), false),
            ("exponent", Arc::new(exponents), false),
            ("scope", column::text(metrics().map(|metric| metric.scope.name())), false),
            ("span", column::text(metrics().map(|metric| metric.span.name())), false),
        ])
    }

    fn decode(columns: &Columns<'_>) -> Result<Vec<Metric>, ColumnError> {
        let id = columns.int32("metric")?;
        let name = columns.text("name")?;
        let unit = columns.text("unit")?;
        let base = columns.int32("base")?;
        let exponent = columns.signed32("exponent")?;
        let scope = columns.words("scope", Scope::from_name)?;
        let span = columns.words("span", Span::from_name)?;
        let metric = |row: usize| {
            let base = match base[row] {
                2 => Base::Binary,
                10 => Base::Decimal,
                other => return Err(ColumnError::Value { column: "base".to_owned(), row, value: other.to_string() }),
            };
            Ok(Metric {
                id: MetricId(id[row]),
                name: name[row].to_owned(),
                unit: unit[row].to_owned(),
                base,
                exponent: exponent[row],
                scope: scope[row],
                span: span[row],
            })
        };
        (0..columns.rows()).map(metric).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics(names: &[&str]) -> Vec<Metric> {
        let metric = |(id, name): (u32, &&str)| Metric {
            id: MetricId(id),
            name: (*name).to_owned(),
            unit: "#".to_owned(),
            base: Base::Decimal,
            exponent: 0,
            scope: if name.starts_with("node") { Scope::Node } else { Scope::Call },
            span: Span::SinceStart,
        };
        (0..).zip(names).map(metric).collect()
    }

    #[test]
    fn columns_are_named_after_metrics_and_never_alike() {
        let columns =
            call_columns(metrics(&["msr/tsc/", "page-faults", "node load", "page_faults", "call", "\u{1b}"]).iter());
        assert_eq!(
            columns,
            [
                "msr_tsc",
                "msr_tsc_child",
                "page_faults",
                "page_faults_child",
                "page_faults_3",
                "page_faults_3_child",
                "call_4",
                "call_4_child",
                "metric_",
                "metric__child"
            ]
        );
    }
}
