//! `call_sites.parquet`: where traced functions are called from.

use std::sync::Arc;

use arrow_array::builder::{Int32Builder, ListBuilder, StringBuilder, StructBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use arrow_array::{Array, ArrayRef};
use arrow_schema::{DataType, Field};
use rtrace_model::{CallSite, Inlined, SourceLine};

use super::cell::{ColumnCell, row};
use super::column::{ColumnError, Columns};

row!(CallSite, "call_sites.parquet", {
    "call_site": id,
    "file": file,
    "offset": offset,
    "function": function,
    "function_offset": function_offset,
    "nearest": nearest,
    "source_file": source as [
        |site| site.source.as_ref().map(|source| source.file.clone()),
        |file: Option<String>| file.map(|file| SourceLine { file, line: 0 })
    ],
    "source_line": [|site| site.source.as_ref().map(|source| source.line)],
    "inlined": inlined,
}, then with_lines);

fn with_lines(columns: &Columns<'_>, mut sites: Vec<CallSite>) -> Result<Vec<CallSite>, ColumnError> {
    for (site, line) in sites.iter_mut().zip(columns.optional_int32("source_line")?) {
        site.source.iter_mut().for_each(|source| source.line = line.unwrap_or_default());
    }
    Ok(sites)
}

impl ColumnCell for Vec<Inlined> {
    fn write<'a>(values: impl Iterator<Item = &'a Vec<Inlined>>) -> ArrayRef {
        let fields = vec![
            Field::new("function", DataType::Utf8, false),
            Field::new("source_file", DataType::Utf8, true),
            Field::new("source_line", DataType::Int32, true),
        ];
        let mut lists = ListBuilder::new(StructBuilder::from_fields(fields, 0));
        for list in values {
            let functions = lists.values();
            for inlined in list {
                let at = inlined.called_at.as_ref();
                functions
                    .field_builder::<StringBuilder>(0)
                    .expect("function is a text")
                    .append_value(&inlined.function);
                let files = functions.field_builder::<StringBuilder>(1).expect("source_file is a text");
                files.append_option(at.map(|source| source.file.as_str()));
                let lines = functions.field_builder::<Int32Builder>(2).expect("source_line is an integer");
                lines.append_option(at.map(|source| i32::try_from(source.line).unwrap_or(i32::MAX)));
                functions.append(true);
            }
            lists.append(true);
        }
        Arc::new(lists.finish())
    }

    fn read(columns: &Columns<'_>, name: &str) -> Result<Vec<Vec<Inlined>>, ColumnError> {
        columns.lists(name)?.iter().map(inlined_of).collect()
    }
}

fn source_of(file: Option<&str>, line: Option<u32>) -> Option<SourceLine> {
    file.map(|file| SourceLine { file: file.to_owned(), line: line.unwrap_or_default() })
}

fn inlined_of(list: &ArrayRef) -> Result<Vec<Inlined>, ColumnError> {
    let type_error = || ColumnError::Type { column: "inlined".to_owned(), found: list.data_type().to_string() };
    let functions = list.as_struct_opt().ok_or_else(type_error)?;
    let text = |name| functions.column_by_name(name)?.as_string_opt::<i32>();
    let names = text("function").ok_or_else(type_error)?;
    let files = text("source_file").ok_or_else(type_error)?;
    let lines = functions.column_by_name("source_line").and_then(|lines| lines.as_primitive_opt::<Int32Type>());
    let rows = names.iter().zip(files).zip(lines.ok_or_else(type_error)?);
    let inlined = rows.filter_map(|((name, file), line)| {
        let line = line.and_then(|line| u32::try_from(line).ok());
        Some(Inlined { function: name?.to_owned(), called_at: source_of(file, line) })
    });
    Ok(inlined.collect())
}
