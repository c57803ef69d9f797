//! `libraries.parquet`, `regions.parquet`, `processes.parquet`, `locations.parquet`: what calls
//! refer to.

use std::sync::Arc;

use arrow_array::builder::{ListBuilder, StringBuilder, StructBuilder};
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field};
use rtrace_model::{
    ExitPolicy, Library, LibraryId, Location, LocationId, Process, Region, RegionId, SymbolName, Timestamp, Wait,
};

use super::Row;
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

impl Row for Region {
    const PLACE: &'static str = "regions.parquet";

    fn encode<'a>(regions: impl Iterator<Item = &'a Region> + Clone) -> RecordBatch {
        let regions = || regions.clone();
        let waits = StringArray::from_iter(regions().map(|region| region.waits_for().map(Wait::name)));
        column::batch([
            ("region", column::int32(regions().map(|region| region.id.0)), false),
            ("library", column::int32(regions().map(|region| region.library.0)), false),
            ("name", column::text(regions().map(|region| region.name.as_str())), false),
            ("symbols", symbols(regions().map(|region| region.symbols.as_slice())), false),
            ("file_offset", column::int64(regions().map(|region| region.file_offset)), false),
            ("size", column::int64(regions().map(|region| region.size)), false),
            ("exit", column::text(regions().map(|region| region.exit.name())), false),
            ("single_stepped", column::boolean(regions().map(|region| region.single_stepped)), false),
            ("stub", column::boolean(regions().map(|region| region.stub)), false),
            ("written", column::boolean(regions().map(|region| region.written)), false),
            ("waits_for", Arc::new(waits), true),
        ])
    }

    fn decode(columns: &Columns<'_>) -> Result<Vec<Region>, ColumnError> {
        let id = columns.int32("region")?;
        let library = columns.int32("library")?;
        let name = columns.text("name")?;
        let file_offset = columns.int64("file_offset")?;
        let size = columns.int64("size")?;
        let exit = columns.words("exit", ExitPolicy::from_name)?;
        let single_stepped = columns.added_boolean("single_stepped")?;
        let stub = columns.added_boolean("stub")?;
        let written = columns.added_boolean("written")?;
        let region = |(row, symbols): (usize, ArrayRef)| {
            Ok(Region {
                id: RegionId(id[row]),
                library: LibraryId(library[row]),
                name: name[row].to_owned(),
                symbols: symbol_names(&symbols)?,
                file_offset: file_offset[row],
                size: size[row],
                exit: exit[row],
                single_stepped: single_stepped[row],
                stub: stub[row],
                written: written[row],
            })
        };
        columns.lists("symbols")?.into_iter().enumerate().map(region).collect()
    }
}

fn symbols<'a>(values: impl Iterator<Item = &'a [SymbolName]>) -> ArrayRef {
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

impl Row for Process {
    const PLACE: &'static str = "processes.parquet";

    fn encode<'a>(processes: impl Iterator<Item = &'a Process> + Clone) -> RecordBatch {
        let processes = || processes.clone();
        let exit_codes = Int32Array::from_iter(processes().map(|process| process.exit_code));
        column::batch([
            ("pid", column::int32(processes().map(|process| process.pid)), false),
            ("parent", column::optional_int32(processes().map(|process| process.parent)), true),
            ("start_ns", column::int64(processes().map(|process| process.start.0)), false),
            ("end_ns", column::optional_int64(processes().map(|process| process.end.map(|end| end.0))), true),
            ("executable", column::text(processes().map(|process| process.executable.as_str())), false),
            ("name", column::text(processes().map(Process::name)), false),
            ("command_line", column::texts(processes().map(|process| process.command_line.as_slice())), false),
            ("exit_code", Arc::new(exit_codes), true),
        ])
    }

    fn decode(columns: &Columns<'_>) -> Result<Vec<Process>, ColumnError> {
        let pid = columns.int32("pid")?;
        let parent = columns.optional_int32("parent")?;
        let start = columns.int64("start_ns")?;
        let end = columns.optional_int64("end_ns")?;
        let executable = columns.text("executable")?;
        let exit_code = columns.optional_int32("exit_code")?;
        let process = |(row, command_line): (usize, Vec<String>)| Process {
            pid: pid[row],
            parent: parent[row],
            start: Timestamp(start[row]),
            end: end[row].map(Timestamp),
            executable: executable[row].to_owned(),
            command_line,
            exit_code: exit_code[row],
        };
        Ok(columns.texts("command_line")?.into_iter().enumerate().map(process).collect())
    }
}

impl Row for Location {
    const PLACE: &'static str = "locations.parquet";

    fn encode<'a>(locations: impl Iterator<Item = &'a Location> + Clone) -> RecordBatch {
        let locations = || locations.clone();
        column::batch([
            ("location", column::int32(locations().map(|location| location.id.0)), false),
            ("pid", column::int32(locations().map(|location| location.pid)), false),
            ("tid", column::int32(locations().map(|location| location.tid)), false),
            ("start_ns", column::int64(locations().map(|location| location.start.0)), false),
            ("end_ns", column::optional_int64(locations().map(|location| location.end.map(|end| end.0))), true),
            ("name", column::text(locations().map(|location| location.name.as_str())), false),
            ("calls_entered", column::optional_int64(locations().map(|location| location.calls_entered)), true),
        ])
    }

    fn decode(columns: &Columns<'_>) -> Result<Vec<Location>, ColumnError> {
        let id = columns.int32("location")?;
        let pid = columns.int32("pid")?;
        let tid = columns.int32("tid")?;
        let start = columns.int64("start_ns")?;
        let end = columns.optional_int64("end_ns")?;
        let name = columns.text("name")?;
        let calls_entered = columns.optional_int64("calls_entered")?;
        let location = |row: usize| Location {
            id: LocationId(id[row]),
            pid: pid[row],
            tid: tid[row],
            start: Timestamp(start[row]),
            end: end[row].map(Timestamp),
            name: name[row].to_owned(),
            calls_entered: calls_entered[row],
        };
        Ok((0..columns.rows()).map(location).collect())
    }
}
