//! `libraries.parquet`, `regions.parquet`, `processes.parquet`, `locations.parquet`: what calls
//! refer to.

use std::sync::Arc;

use arrow_array::builder::{ListBuilder, StringBuilder, StructBuilder};
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field};
use rtrace_model::{Library, LibraryId, Location, Process, Region, SymbolName};

use super::Row;
use super::cell::{ColumnCell, row};
use super::column::{self, ColumnError, Columns};

impl Row for Library {
    const PLACE: &'static str = "libraries.parquet";

    fn encode<'a>(libraries: impl Iterator<Item = &'a Library> + Clone) -> RecordBatch {
        let libraries = || libraries.clone();
        let bits = |values: &mut dyn Iterator<Item = u64>| -> ArrayRef {
            Arc::new(Int64Array::from_iter_values(values.map(u64::cast_signed)))
        };
        let build_ids = StringArray::from_iter(libraries().map(|library| library.build_id.as_deref()));
        column::batch([
            ("library", column::int32(libraries().map(|library| library.id.0)), false),
            ("path", column::text(libraries().map(|library| library.path.as_str())), false),
            ("name", column::text(libraries().map(Library::name)), false),
            ("build_id", Arc::new(build_ids), true),
            ("device", bits(&mut libraries().map(|library| library.device)), false),
            ("inode", bits(&mut libraries().map(|library| library.inode)), false),
        ])
    }

    fn decode(columns: &Columns<'_>) -> Result<Vec<Library>, ColumnError> {
        let id = columns.int32("library")?;
        let path = columns.text("path")?;
        let name = columns.added_text("name")?;
        let build_id = columns.optional_text("build_id")?;
        let device = columns.bits64("device")?;
        let inode = columns.bits64("inode")?;
        let library = |row: usize| Library {
            id: LibraryId(id[row]),
            path: path[row].to_owned(),
            // Older traces have none.
            apart: name[row].filter(|name| path[row].rsplit('/').next() != Some(*name)).map(str::to_owned),
            build_id: build_id[row].map(str::to_owned),
            device: device[row],
            inode: inode[row],
        };
        Ok((0..columns.rows()).map(library).collect())
    }
}

row!(Region, "regions.parquet", {
    "region": id,
    "library": library,
    "name": name,
    "symbols": symbols,
    "file_offset": file_offset,
    "size": size,
    "exit": exit,
    "single_stepped": single_stepped,
    "stub": stub,
    "written": written,
    "source_file": source_file,
    "source_line": source_line,
    "event": event,
    "waits_for": [|region| region.waits_for().map(|wait| wait.name().to_owned())],
});

impl ColumnCell for Vec<SymbolName> {
    fn write<'a>(values: impl Iterator<Item = &'a Vec<SymbolName>>) -> ArrayRef {
        let fields = vec![Field::new("symbol", DataType::Utf8, false), Field::new("version", DataType::Utf8, true)];
        let mut lists = ListBuilder::new(StructBuilder::from_fields(fields, 0));
        for list in values {
            let names = lists.values();
            for name in list {
                names.field_builder::<StringBuilder>(0).expect("symbol is a text").append_value(&name.symbol);
                let versions = names.field_builder::<StringBuilder>(1).expect("version is a text");
                versions.append_option(name.version.as_ref());
                names.append(true);
            }
            lists.append(true);
        }
        Arc::new(lists.finish())
    }

    fn read(columns: &Columns<'_>, name: &str) -> Result<Vec<Vec<SymbolName>>, ColumnError> {
        columns.lists(name)?.iter().map(symbol_names).collect()
    }
}

fn symbol_names(list: &ArrayRef) -> Result<Vec<SymbolName>, ColumnError> {
    let type_error = || ColumnError::Type { column: "symbols".to_owned(), found: list.data_type().to_string() };
    let names = list.as_struct_opt().ok_or_else(type_error)?;
    let field = |name| names.column_by_name(name)?.as_string_opt::<i32>();
    let symbols = field("symbol").ok_or_else(type_error)?;
    let versions = field("version").ok_or_else(type_error)?;
    let pairs = symbols.iter().zip(versions);
    Ok(pairs
        .filter_map(|(symbol, version)| {
            Some(SymbolName { symbol: symbol?.to_owned(), version: version.map(str::to_owned) })
        })
        .collect())
}

row!(Process, "processes.parquet", {
    "pid": pid,
    "parent": parent,
    "start_ns": start,
    "end_ns": end,
    "executable": executable,
    "name": [|process| process.name().to_owned()],
    "command_line": command_line,
    "exit_code": exit_code,
    "rank": rank,
});

row!(Location, "locations.parquet", {
    "location": id,
    "pid": pid,
    "tid": tid,
    "start_ns": start,
    "end_ns": end,
    "name": name,
    "calls_entered": calls_entered,
});
