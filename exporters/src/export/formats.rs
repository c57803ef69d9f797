//! The list of formats. A new one is a new file, and a line here.

mod arrow;
mod callgrind;
mod chrome;
mod csv;
mod cubex;
mod event_flow_code;
mod firefox;
mod folded;
mod jsonl;
mod otf2;
mod perfetto;
mod pprof;
mod speedscope;

use super::ExportFormat;

/// All formats, the most often wanted first.
pub const FORMATS: &[ExportFormat] = &[
    folded::FORMAT,
    perfetto::FORMAT,
    chrome::FORMAT,
    otf2::FORMAT,
    csv::FORMAT,
    jsonl::FORMAT,
    arrow::FORMAT,
    pprof::FORMAT,
    speedscope::FORMAT,
    firefox::FORMAT,
    callgrind::FORMAT,
    cubex::FORMAT,
    event_flow_code::FORMAT,
];

impl ExportFormat {
    /// The format of that name.
    pub fn by_name(name: &str) -> Option<&'static ExportFormat> {
        FORMATS.iter().find(|format| format.name == name)
    }
}
