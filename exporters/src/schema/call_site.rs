//! `call_sites.parquet`: where traced functions are called from.

use std::sync::Arc;

use arrow_array::builder::{Int32Builder, ListBuilder, StringBuilder, StructBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use arrow_array::{Array, ArrayRef, RecordBatch, StringArray};
use arrow_schema::{DataType, Field};
use rtrace_model::{CallSite, CallSiteId, Inlined, SourceLine};

use super::Row;
use super::column::{self, ColumnError, Columns};

impl Row for CallSite {
    const PLACE: &'static str = "call_sites.parquet";

    fn encode<'a>(sites: impl Iterator<Item = &'a CallSite> + Clone) -> RecordBatch {
        let sites = || sites.clone();
        let texts = |values: &mut dyn Iterator<Item = Option<&'a str>>| -> ArrayRef {
            Arc::new(StringArray::from_iter(values))
        };
        let source = |site: &'a CallSite| site.source.as_ref();
        column::batch([
            ("call_site", column::int32(sites().map(|site| site.id.0)), false),
            ("file", texts(&mut sites().map(|site| site.file.as_deref())), true),
            ("offset", column::int64(sites().map(|site| site.offset)), false),
            ("function", texts(&mut sites().map(|site| site.function.as_deref())), true),
            ("function_offset", column::optional_int64(sites().map(|site| site.function_offset)), true),
            ("nearest", texts(&mut sites().map(|site| site.nearest.as_deref())), true),
            ("source_file", texts(&mut sites().map(|site| source(site).map(|source| source.file.as_str()))), true),
            ("source_line", column::optional_int32(sites().map(|site| source(site).map(|source| source.line))), true),
            ("inlined", inlined(sites().map(|site| site.inlined.as_slice())), false),
        ])
    }

    fn decode(columns: &Columns<'_>) -> Result<Vec<CallSite>, ColumnError> {
        let id = columns.int32("call_site")?;
        let file = columns.optional_text("file")?;
        let offset = columns.int64("offset")?;
        let function = columns.optional_text("function")?;
        let function_offset = columns.optional_int64("function_offset")?;
        let nearest = columns.added_text("nearest")?;
        let source_file = columns.optional_text("source_file")?;
        let source_line = columns.optional_int32("source_line")?;
        let site = |(row, inlined): (usize, ArrayRef)| {
            Ok(CallSite {
                id: CallSiteId(id[row]),
                file: file[row].map(str::to_owned),
                offset: offset[row],
                function: function[row].map(str::to_owned),
                function_offset: function_offset[row],
                nearest: nearest[row].map(str::to_owned),
                source: source_of(source_file[row], source_line[row]),
                inlined: inlined_of(&inlined)?,
            })
        };
        columns.lists("inlined")?.into_iter().enumerate().map(site).collect()
    }
}

fn source_of(file: Option<&str>, line: Option<u32>) -> Option<SourceLine> {
    file.map(|file| SourceLine { file: file.to_owned(), line: line.unwrap_or_default() })
}

fn inlined<'a>(values: impl Iterator<Item = &'a [Inlined]>) -> ArrayRef {
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
            functions.field_builder::<StringBuilder>(0).expect("function is a text").append_value(&inlined.function);
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
