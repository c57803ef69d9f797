//! The lines that a plug-in writes.
//!
//! ```text
//! metrics NAME:SCOPE:UNIT[:SPAN] …
//! NAME VALUE [TIME|- [INSTANCE]]
//! ```

use rtrace_model::{Base, Metric, MetricId, Sample, Scope, Span, Timestamp};

use crate::host;

/// Metrics of one plug-in, at most.
const MOST_METRICS: usize = 64;

/// Bytes of a name or unit, at most.
const LONGEST_NAME: usize = 64;

/// Reads the first line.
pub(super) fn declaration(line: &str, first: MetricId) -> Result<Vec<Metric>, String> {
    let mut words = line.split_ascii_whitespace();
    if words.next() != Some("metrics") {
        return Err("the first line must begin with `metrics`".to_owned());
    }
    let mut metrics: Vec<Metric> = Vec::new();
    for (word, id) in words.zip(first.0..) {
        let metric = metric(word, MetricId(id))?;
        if metrics.iter().any(|other| other.name == metric.name) {
            return Err(format!("`{}` is declared twice", metric.name));
        }
        if metrics.len() == MOST_METRICS {
            return Err(format!("more than {MOST_METRICS} metrics are declared"));
        }
        metrics.push(metric);
    }
    if metrics.is_empty() { Err("no metric is declared".to_owned()) } else { Ok(metrics) }
}

/// Reads `NAME:SCOPE:UNIT[:SPAN]`.
fn metric(word: &str, id: MetricId) -> Result<Metric, String> {
    let mut parts = word.split(':');
    let (Some(name), Some(scope), Some(unit), span, None) =
        (parts.next(), parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(format!("`{word}` is not NAME:SCOPE:UNIT or NAME:SCOPE:UNIT:SPAN"));
    };
    let scope = Scope::from_name(scope)
        .filter(|&scope| scope != Scope::Call)
        .ok_or_else(|| format!("`{scope}` is no scope: thread, process, socket or node"))?;
    let span = span.map_or(Some(Span::Point), Span::from_name);
    let span = span.ok_or_else(|| format!("`{word}` ends in no span: point, since_start, since_last or until_next"))?;
    let (base, exponent, unit) = split_unit(unit).ok_or_else(|| format!("`{unit}` is no unit such as W or 10^-6*J"))?;
    if [name, unit].iter().any(|text| text.is_empty() || text.len() > LONGEST_NAME) {
        return Err(format!("`{word}` has a name or unit of 0 or more than {LONGEST_NAME} bytes"));
    }
    Ok(Metric { id, name: name.to_owned(), unit: unit.to_owned(), base, exponent, scope, span })
}

/// Splits `10^-6*J` or `2^10*B`; a unit alone is 10⁰ of it.
fn split_unit(unit: &str) -> Option<(Base, i32, &str)> {
    let Some((power, unit)) = unit.split_once('*') else { return Some((Base::Decimal, 0, unit)) };
    let (base, exponent) = power.split_once('^')?;
    let base = match base {
        "2" => Base::Binary,
        "10" => Base::Decimal,
        _ => return None,
    };
    let exponent = exponent.parse::<i32>().ok().filter(|exponent| exponent.abs() <= 100)?;
    Some((base, exponent, unit))
}

/// Reads a line with a value; `arrival` is its time unless it names another.
pub(super) fn value(line: &str, metrics: &[Metric], arrival: Timestamp) -> Option<Sample> {
    let mut words = line.split_ascii_whitespace();
    let name = words.next()?;
    let metric = metrics.iter().find(|metric| metric.name == name)?.id;
    let value = words.next()?.parse::<f64>().ok().filter(|value| value.is_finite())?;
    let time = match words.next() {
        None | Some("-") => arrival,
        // The plug-in reads its clock in rtrace's time namespace.
        Some(time) => host::of_machine(Timestamp(time.parse().ok()?)),
    };
    let instance = words.next().map_or(Ok(0), str::parse).ok()?;
    words.next().is_none().then_some(Sample { metric, time, instance, value })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;

    use super::*;

    fn declared(line: &str) -> Result<Vec<Metric>, String> {
        declaration(line, MetricId(1))
    }

    #[test]
    fn a_declaration_gives_scope_unit_and_span() {
        let metrics = declared("metrics energy:socket:10^-6*J:since_start queue:process:2^10*B\n").unwrap();
        assert_eq!(metrics[0].id, MetricId(1));
        assert_eq!((metrics[0].scope, metrics[0].span), (Scope::Socket, Span::SinceStart));
        assert_eq!((metrics[0].base, metrics[0].exponent, metrics[0].unit.as_str()), (Base::Decimal, -6, "J"));
        assert_eq!((metrics[1].base, metrics[1].exponent, metrics[1].span), (Base::Binary, 10, Span::Point));
    }

    #[test]
    fn wrong_declarations_say_what_is_wrong() {
        for (line, cause) in [
            ("", "must begin with `metrics`"),
            ("metrics", "no metric is declared"),
            ("metrics a", "`a` is not NAME:SCOPE:UNIT"),
            ("metrics a:node:#:point:x", "is not NAME:SCOPE:UNIT"),
            ("metrics a:call:#", "`call` is no scope"),
            ("metrics a:node:#:soon", "ends in no span"),
            ("metrics a:node:3^4*B", "`3^4*B` is no unit"),
            ("metrics a:node:10^999999999*B", "is no unit"),
            ("metrics :node:#", "has a name or unit of 0"),
            ("metrics a:node:# a:node:#", "`a` is declared twice"),
        ] {
            assert!(declared(line).unwrap_err().contains(cause), "{line}: {:?}", declared(line));
        }
        let many: String = (0..65).map(|number| format!(" m{number}:node:#")).collect();
        assert!(declared(&format!("metrics{many}")).unwrap_err().contains("more than 64"));
    }

    #[test]
    fn values_that_are_none_are_refused() {
        let metrics = declared("metrics a:node:#").unwrap();
        let read = |line| value(line, &metrics, Timestamp(9));
        assert_eq!(read("a -1.5e3").unwrap().value, -1500.0);
        assert_eq!(read("a 1 - 4").map(|sample| (sample.time, sample.instance)), Some((Timestamp(9), 4)));
        for line in ["", "a", "b 1", "a x", "a inf", "a NaN", "a 1 -5", "a 1 2 -1", "a 1 2 3 4", "a 1 2 4294967296"] {
            assert_eq!(read(line), None, "{line}");
        }
    }

    proptest! {
        #[test]
        fn no_line_panics(line in "\\PC*") {
            let _ = declared(&line);
            let _ = declared(&format!("metrics {line}"));
            let metrics = declared("metrics a:node:#").unwrap();
            let _ = value(&line, &metrics, Timestamp(0));
            let _ = value(&format!("a {line}"), &metrics, Timestamp(0));
        }
    }
}
