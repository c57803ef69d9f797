//! What rows go by while they are summed up.

use rtrace_exporters::TraceSet;
use rtrace_model::{Library, RegionId};

use super::table::{Column, Datum, Shown};

/// Names a row: the id of a region, library or location, or the place of a process.
pub(super) type RowId = u32;

/// The row of calls whose library or process is not defined.
pub(super) const UNKNOWN: RowId = RowId::MAX;

/// The row of calls that are not reported, as they do not have what rows stand for.
pub(super) const HIDDEN: RowId = UNKNOWN - 1;

/// The columns that say which function a row is of.
pub(super) const FUNCTION: [Column; 4] = [
    Column::label("region", "region").shown(Shown::Never),
    Column::label("file_offset", "file offset").shown(Shown::Never),
    Column::label("library", "library").rank(4),
    Column::name("function", "function"),
];

/// The values of [`FUNCTION`].
pub(super) fn function(trace: &TraceSet, id: RegionId) -> [Datum; 4] {
    let region = trace.region(id);
    let library = region.and_then(|region| trace.library(region.library));
    [
        Datum::Id(id.0.into()),
        region.map_or(Datum::Absent, |region| Datum::Id(region.file_offset)),
        name(library.map(Library::name)),
        name(region.map(|region| region.name.as_str())),
    ]
}

/// A name, or that it is not known.
pub(super) fn name(name: Option<&str>) -> Datum {
    Datum::Name(name.unwrap_or("[unknown]").to_owned())
}
