//! `libraries.parquet`, `regions.parquet`, `processes.parquet`, `locations.parquet`: what calls
//! refer to.

use rtrace_model::{Library, Location, Process, Region, SymbolName};

use super::cell::row;
use super::column::{Bits, ColumnError, Columns};

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

row!(SymbolName, "regions.parquet", {
    "symbol": symbol,
    "version": version,
});

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
