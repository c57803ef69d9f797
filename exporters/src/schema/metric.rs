//! `metrics.parquet`: what is measured beside time, and which columns of `calls/` hold it.

use rtrace_model::{Call, Metric, Scope};

use super::Row as _;
use super::cell::row;

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

row!(Metric, "metrics.parquet", {
    "metric": id,
    "name": name,
    "column": {own_columns},
    "unit": unit,
    "base": base,
    "exponent": exponent,
    "scope": scope,
    "span": span,
});

fn own_columns<'a>(metrics: impl Iterator<Item = &'a Metric> + Clone) -> Vec<Option<String>> {
    let mut names = call_columns(metrics.clone()).into_iter().step_by(2);
    metrics.map(|metric| if metric.scope == Scope::Call { names.next() } else { None }).collect()
}

#[cfg(test)]
mod tests {
    use rtrace_model::{Base, MetricId, Span};

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
