//! Which values of calls are known, who says so, and what is out of reach: as text, CSV and JSON.
//!
//! Names come from files and are escaped in every form.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write, stdout};

use anyhow::Context as _;
use rtrace::record::signatures;
use rtrace::target::Target;
use rtrace_model::{csv_field, escape};
use rtrace_plan::{Plan, PlannedRegion};
use rtrace_report::Format;
use rtrace_signatures::{AbiPlace, At, Book, Dropped, Lookup, OpCode, Signature, ValueSpec};
use serde_json::{Value, json};

use super::Outcome;
use super::message::tell;

/// Functions that are listed unless all are asked for.
const LISTED: usize = 20;
/// Names that stand for all that share a reason, unless all are asked for.
const EXAMPLES: usize = 5;

/// Prints what is known of the functions of a plan.
pub fn print(
    book: &Book,
    target: &Target,
    plan: &Plan,
    pids: &[u32],
    format: Format,
    verbose: bool,
) -> anyhow::Result<Outcome> {
    let callers = signatures::callers(pids, &target.files);
    let known = signatures::of_plan(book, &target.libraries, plan, &callers)?;
    for pattern in signatures::unmatched(book, plan) {
        tell!("no function that would be traced is called `{}`", escape(&pattern));
    }
    let mut output = BufWriter::new(stdout().lock());
    render(plan, &known, format, verbose, &mut output)
        .and_then(|()| output.flush())
        .context("failed to write to standard output")?;
    Ok(Outcome::Complete)
}

/// Writes what is known: by library, then in the order of its functions.
fn render(plan: &Plan, known: &[Vec<Lookup>], format: Format, verbose: bool, out: &mut dyn Write) -> io::Result<()> {
    match format {
        Format::Table => text(plan, known, verbose, out),
        Format::Csv => csv(plan, known, out),
        Format::Json => writeln!(out, "{:#}", json_values(plan, known)),
    }
}

fn text(plan: &Plan, known: &[Vec<Lookup>], verbose: bool, out: &mut dyn Write) -> io::Result<()> {
    for (number, (library, known)) in plan.libraries.iter().zip(known).enumerate() {
        if number > 0 {
            writeln!(out)?;
        }
        let signatures: Vec<(&PlannedRegion, &Signature)> = library
            .regions
            .iter()
            .zip(known)
            .filter_map(|(planned, known)| Some((planned, signature(known)?)))
            .collect();
        let path = escape(&library.library.path);
        writeln!(out, "{path}: {} functions, the signatures of {} are known", library.regions.len(), signatures.len())?;
        let listed = if verbose { signatures.len() } else { LISTED };
        for (planned, signature) in signatures.iter().take(listed) {
            function(planned, signature, out)?;
        }
        if let more @ 1.. = signatures.len().saturating_sub(listed) {
            writeln!(out, "\n… and {more} more; --verbose lists all")?;
        }
        nothing(&library.regions, known, verbose, out)?;
    }
    Ok(())
}

fn function(planned: &PlannedRegion, signature: &Signature, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "\n{}: {}", escape(&signature.name), escape(&signature.source.to_string()))?;
    for column in &signature.columns {
        let doubt = doubt(planned, column).map(|doubt| format!(", {doubt}")).unwrap_or_default();
        writeln!(out, "  {:<16} {}{}", escape(&column.name), escape(&remark(signature, column)), escape(&doubt))?;
    }
    for metric in &signature.metrics {
        let role = metric.role.map(|role| format!(", {}", role.name())).unwrap_or_default();
        let expression = escape(&metric.expression);
        writeln!(out, "  {:<16} metric: {expression}, in {}{role}", escape(&metric.name), metric.unit.name())?;
    }
    for Dropped { name, c_type, reason } in &signature.dropped {
        writeln!(out, "  {:<16} {}: out of reach: {}", escape(name), escape(c_type), escape(&reason.to_string()))?;
    }
    if signature.variadic {
        writeln!(out, "  {:<16} out of reach: in the variable part of the arguments", "...")?;
    }
    Ok(())
}

/// What a column is, and where it is read.
fn remark(signature: &Signature, column: &ValueSpec) -> String {
    let place = match (place(signature, column), column.at) {
        (Some(place), _) => format!(", in {place}"),
        (None, At::Enter) => String::new(),
        (None, At::Exit) => ", when it has returned".to_owned(),
    };
    let role = column.role.map(|role| format!(", {}", role.name())).unwrap_or_default();
    let condition = column.condition.as_ref().map(|condition| format!(", as `{}` tells", condition.column));
    format!("{}{place}{role}{}", column.c_type, condition.unwrap_or_default())
}

/// Of which calls a column has no value, if it is known.
fn doubt(planned: &PlannedRegion, column: &ValueSpec) -> Option<String> {
    let is_vector = column.program.iter().any(|op| op.code == OpCode::Vector);
    is_vector.then(|| match &planned.stub {
        Some(Ok(_)) => "null for calls that do not come by the stub".to_owned(),
        Some(Err(reason)) => format!("always null: no stub: {reason}"),
        None => "always null: no stub".to_owned(),
    })
}

/// Where an argument is at the first instruction, if a column is one.
fn place(signature: &Signature, column: &ValueSpec) -> Option<String> {
    let param = signature.params.iter().find(|param| param.name == column.name)?;
    match &param.location {
        AbiPlace::Register(register) => Some(register.to_string()),
        AbiPlace::Stack(offset) => Some(format!("{offset}(%rsp)")),
        AbiPlace::Xmm(number) => Some(format!("xmm{number}")),
        _ => None,
    }
}

/// Writes each reason once with the functions of which nothing is known.
fn nothing(regions: &[PlannedRegion], known: &[Lookup], verbose: bool, out: &mut dyn Write) -> io::Result<()> {
    let mut by_reason: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (planned, known) in regions.iter().zip(known) {
        if let Lookup::Nothing(reason) = known {
            by_reason.entry(reason.to_string()).or_default().push(&planned.region.name);
        }
    }
    if !by_reason.is_empty() {
        writeln!(out, "\nNothing is known of:")?;
    }
    for (reason, names) in by_reason {
        let shown = if verbose { names.len() } else { EXAMPLES };
        let examples: Vec<_> = names.iter().take(shown).map(|name| escape(name)).collect();
        let more = if names.len() > shown { ", …" } else { "" };
        writeln!(out, "{:>6}  {reason}: {}{more}", names.len(), examples.join(", "))?;
    }
    Ok(())
}

/// Writes a line per value; a function of which nothing is known has one with a reason.
fn csv(plan: &Plan, known: &[Vec<Lookup>], out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "library,function,column,type,at,unit,role,source,reason")?;
    for (library, known) in plan.libraries.iter().zip(known) {
        let path = csv_field(&library.library.path);
        for (planned, known) in library.regions.iter().zip(known) {
            let name = csv_field(&planned.region.name);
            match known {
                Lookup::Signature(signature, _) => csv_function(&format!("{path},{name}"), planned, signature, out)?,
                Lookup::Nothing(reason) => writeln!(out, "{path},{name},,,,,,,{}", csv_field(&reason.to_string()))?,
                Lookup::Unasked => {}
            }
        }
    }
    Ok(())
}

fn csv_function(start: &str, planned: &PlannedRegion, signature: &Signature, out: &mut dyn Write) -> io::Result<()> {
    let source = signature.source.to_string();
    let source = csv_field(&source);
    for column in &signature.columns {
        let (name, c_type) = (csv_field(&column.name), csv_field(&column.c_type));
        let unit = column.unit.as_deref().unwrap_or_default();
        let role = column.role.map_or("", |role| role.name());
        let doubt = doubt(planned, column).unwrap_or_default();
        let (at, doubt) = (at_name(column.at), csv_field(&doubt));
        writeln!(out, "{start},{name},{c_type},{at},{unit},{role},{source},{doubt}")?;
    }
    for metric in &signature.metrics {
        let (name, expression) = (csv_field(&metric.name), csv_field(&metric.expression));
        let role = metric.role.map_or("", |role| role.name());
        let at = at_name(metric.at);
        writeln!(out, "{start},{name},{expression},{at},{},{role},{source},", metric.unit.name())?;
    }
    for Dropped { name, c_type, reason } in &signature.dropped {
        let reason = reason.to_string();
        writeln!(out, "{start},{},{},,,,{source},{}", csv_field(name), csv_field(c_type), csv_field(&reason))?;
    }
    Ok(())
}

fn json_values(plan: &Plan, known: &[Vec<Lookup>]) -> Value {
    let libraries = plan.libraries.iter().zip(known).map(|(library, known)| {
        let functions = library.regions.iter().zip(known);
        json!({
            "path": escape(&library.library.path),
            "build_id": library.library.build_id,
            "functions": functions.filter_map(|(planned, known)| json_function(planned, known)).collect::<Vec<_>>(),
        })
    });
    json!({ "libraries": libraries.collect::<Vec<_>>() })
}

fn json_function(planned: &PlannedRegion, known: &Lookup) -> Option<Value> {
    let name = escape(&planned.region.name);
    let signature = match known {
        Lookup::Signature(signature, _) => signature,
        Lookup::Nothing(reason) => return Some(json!({ "name": name, "reason": reason.to_string() })),
        Lookup::Unasked => return None,
    };
    let column = |column: &ValueSpec| {
        json!({
            "name": escape(&column.name),
            "type": escape(&column.c_type),
            "at": at_name(column.at),
            "unit": column.unit,
            "role": column.role.map(|role| role.name()),
            "reason": doubt(planned, column),
        })
    };
    let metrics = signature.metrics.iter().map(|metric| {
        json!({
            "name": escape(&metric.name),
            "expression": escape(&metric.expression),
            "at": at_name(metric.at),
            "unit": metric.unit.name(),
            "role": metric.role.map(|role| role.name()),
        })
    });
    let dropped = signature.dropped.iter().map(|dropped| {
        json!({
            "name": escape(&dropped.name),
            "type": escape(&dropped.c_type),
            "reason": escape(&dropped.reason.to_string()),
        })
    });
    Some(json!({
        "name": name,
        "source": escape(&signature.source.to_string()),
        "event": signature.event.map(|event| event.name()),
        "variadic": signature.variadic,
        "columns": signature.columns.iter().map(column).collect::<Vec<_>>(),
        "metrics": metrics.collect::<Vec<_>>(),
        "out_of_reach": dropped.collect::<Vec<_>>(),
    }))
}

fn signature(known: &Lookup) -> Option<&Signature> {
    match known {
        Lookup::Signature(signature, _) => Some(signature),
        _ => None,
    }
}

fn at_name(at: At) -> &'static str {
    match at {
        At::Enter => "enter",
        At::Exit => "exit",
    }
}
