//! Comma-separated values: a line per call, names in place of ids (RFC 4180, with line feeds).

use std::io::Write;

use rtrace_model::csv_field as field;

use super::super::format::{ExportFormat, Form};
use super::super::step::BELOW;
use super::super::values;
use super::super::{Excerpt, ExportError};

pub(super) const FORMAT: ExportFormat = ExportFormat {
    name: "csv",
    summary: "Comma-separated values: a line per call",
    extension: "csv",
    opens_in: "spreadsheets, pandas, R, any text tool",
    keeps: "every call with all its columns, names in place of ids, contexts, arguments and results as a JSON object",
    omits: "losses, events, versions and aliases of functions",
    untimed: "`ending` is `unseen`, `duration_ns` and counters are empty",
    form: Form::File(write),
};

fn write(source: &Excerpt<'_>, output: &mut dyn Write) -> Result<(), ExportError> {
    let header = "pid,process,tid,thread,location,call,parent,depth,library,function,symbol,\
                  start_ns,duration_ns,child_ns,ending,call_site";
    write!(output, "{header}")?;
    if source.has_contexts() {
        write!(output, ",context")?;
    }
    for metric in source.call_metrics() {
        write!(output, ",{},{}", field(&metric.name), field(&format!("{} child", metric.name)))?;
    }
    if source.has_values() {
        write!(output, ",values")?;
    }
    writeln!(output)?;
    let mut values = source.value_reader();
    for batch in source.batches() {
        let batch = batch?;
        let values = values.of(&batch)?;
        for (index, call) in batch.iter().enumerate() {
            let thread = source.threads.thread(call.location);
            let program = source.threads.program(thread);
            write!(
                output,
                "{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}",
                program.pid,
                field(&program.name),
                thread.tid,
                field(&thread.name),
                call.location.0,
                call.id,
                call.parent,
                call.depth,
                field(source.library_of(call.region)),
                field(source.function(call.region)),
                field(&source.symbol(call.region)),
                call.start.0,
                call.duration.map_or_else(String::new, |duration| duration.to_string()),
                call.child,
                call.ending.name(),
                field(&source.call_site_of(call).unwrap_or_default()),
            )?;
            if source.has_contexts() {
                let context = source.context_of(call).unwrap_or_default();
                write!(output, ",{}", field(&context.join(BELOW)))?;
            }
            let readings = batch.readings(index);
            for metric in 0..source.call_metrics().len() {
                match readings.get(metric) {
                    Some(reading) => write!(output, ",{},{}", reading.inclusive, reading.child)?,
                    None => write!(output, ",,")?,
                }
            }
            match &values[index] {
                Some(values) => write!(output, ",{}", field(&values::all(values).text()))?,
                None if source.has_values() => write!(output, ",")?,
                None => {}
            }
            writeln!(output)?;
        }
    }
    Ok(())
}
