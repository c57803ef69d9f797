//! `libraries.parquet`, `regions.parquet`, `processes.parquet`, `locations.parquet`: what calls
//! refer to.

use std::sync::Arc;

use arrow_array::builder::{ListBuilder, StringBuilder, StructBuilder};
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, Int64Array};
use arrow_schema::{DataType, Field};
use rtrace_model::{Library, Location, Process, Region, SymbolName};

use super::cell::{ColumnCell, row};
use super::column::{ColumnError, Columns};

row!(Library, "libraries.parquet", {
    "library": id,
    "path": path,
    "name": apart as [|library| library.name().to_owned(), |name: Option<String>| name],
    "build_id": build_id,
    "device": device as [|library| Bits(library.device), |device: Bits| device.0],
    "inode": inode as [|library| Bits(library.inode), |inode: Bits| inode.0],
}, then tell_apart);

/// What a library is called is worth a word only where its path does not say it.
fn tell_apart(_: &Columns<'_>, mut libraries: Vec<Library>) -> Result<Vec<Library>, ColumnError> {
    for Library { path, apart, .. } in &mut libraries {
        apart.take_if(|name| path.rsplit('/').next() == Some(name.as_str()));
    }
    Ok(libraries)
}

/// 64 bits that are all in use, so that large values look negative.
struct Bits(u64);

impl ColumnCell for Bits {
    fn write<'a>(cells: impl Iterator<Item = &'a Bits>) -> ArrayRef {
        Arc::new(Int64Array::from_iter_values(cells.map(|bits| bits.0.cast_signed())))
    }

    fn read(columns: &Columns<'_>, name: &str) -> Result<Vec<Bits>, ColumnError> {
        Ok(columns.bits64(name)?.into_iter().map(Bits).collect())
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
