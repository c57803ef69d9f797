//! `call_sites.parquet`: where traced functions are called from.

use rtrace_model::{CallSite, Inlined, SourceLine};

use super::cell::row;
use super::column::{ColumnError, Columns};

row!(CallSite, "call_sites.parquet", {
    "call_site": id,
    "file": file,
    "offset": offset,
    "function": function,
    "function_offset": function_offset,
    "nearest": nearest,
    "source_file": source as [|site| file_of(&site.source), in_file],
    "source_line": [|site| line_of(&site.source)],
    "inlined": inlined,
    "single_stepped": single_stepped,
}, then |columns, sites| with_lines(columns, sites, |site: &mut CallSite| &mut site.source));

row!(Inlined, "call_sites.parquet", {
    "function": function,
    "source_file": called_at as [|inlined| file_of(&inlined.called_at), in_file],
    "source_line": [|inlined| line_of(&inlined.called_at)],
}, then |columns, functions| with_lines(columns, functions, |inlined: &mut Inlined| &mut inlined.called_at));

fn file_of(source: &Option<SourceLine>) -> Option<String> {
    source.as_ref().map(|source| source.file.clone())
}

fn line_of(source: &Option<SourceLine>) -> Option<u32> {
    source.as_ref().map(|source| source.line)
}

fn in_file(file: Option<String>) -> Option<SourceLine> {
    file.map(|file| SourceLine { file, line: 0 })
}

/// The rows with the lines of their sources, which have a column of their own.
fn with_lines<T>(
    columns: &Columns<'_>,
    mut rows: Vec<T>,
    source: impl Fn(&mut T) -> &mut Option<SourceLine>,
) -> Result<Vec<T>, ColumnError> {
    for (row, line) in rows.iter_mut().zip(columns.optional_numbers("source_line")?) {
        source(row).iter_mut().for_each(|source| source.line = line.unwrap_or_default());
    }
    Ok(rows)
}
