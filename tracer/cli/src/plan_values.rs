//! Which values of calls are known, who says so, and what is out of reach: as text, CSV and JSON.
//!
//! Names come from files and are escaped in every form.

use std::io::{self, BufWriter, Write, stdout};

use anyhow::Context as _;
use rtrace::record::signatures;
use rtrace::target::Target;
use rtrace_model::escape;
use rtrace_plan::{Plan, PlannedRegion};
use rtrace_report::Format;
use rtrace_signatures::{AbiPlace, At, Book, Dropped, Lookup, OpCode, Signature, ValueSpec};
use serde_json::{Value, json};

use super::Outcome;
use super::columns::{NOTHING, csv_line, each};
use super::message::tell;
use super::plan_table::reasons;

/// Functions that are listed unless all are asked for.
const LISTED: usize = 20;

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
        Format::Csv => csv(&json_values(plan, known), out),
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
        let silent = library.regions.iter().zip(known).filter_map(|(planned, known)| match known {
            Lookup::Nothing(reason) => Some((reason.to_string(), &*planned.region.name)),
            _ => None,
        });
        reasons("Nothing is known of:", silent, verbose, out)?;
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
        AbiPlace::Operand(operand) => Some(operand.to_string()),
        AbiPlace::Xmm(number) => Some(format!("xmm{number}")),
        _ => None,
    }
}

/// Writes a line per value; a function of which nothing is known has one with a reason.
fn csv(values: &Value, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "library,function,column,type,at,unit,role,source,reason")?;
    for library in each(&values["libraries"]) {
        let path = &library["path"];
        for function in each(&library["functions"]) {
            let (name, source) = (&function["name"], &function["source"]);
            if source.is_null() {
                let none = &NOTHING;
                csv_line(&[path, name, none, none, none, none, none, none, &function["reason"]], out)?;
            }
            let parts = ["columns", "metrics", "out_of_reach"].map(|part| (part, &function[part]));
            for (part, of) in parts.into_iter().flat_map(|(part, values)| each(values).map(move |of| (part, of))) {
                let ctype = if part == "metrics" { &of["expression"] } else { &of["type"] };
                let [column, at, unit, role, reason] = ["name", "at", "unit", "role", "reason"].map(|key| &of[key]);
                csv_line(&[path, name, column, ctype, at, unit, role, source, reason], out)?;
            }
        }
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
