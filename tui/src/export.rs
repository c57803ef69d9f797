//! This moment as files: the screen as text, the functions as CSV.

use std::fmt::Write as _;

use ratatui::buffer::Buffer;

use crate::app::App;
use crate::state::State;

/// The screen as lines of text.
pub fn screen(buffer: &Buffer) -> String {
    let width = usize::from(buffer.area.width).max(1);
    let mut text = String::new();
    for line in buffer.content().chunks(width) {
        let line: String = line.iter().map(|cell| cell.symbol()).collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// The functions in their order on the screen, with the columns of `rtrace report --format csv`.
pub fn functions(app: &App, state: &State) -> String {
    let mut csv = String::from(
        "calls,inclusive_ns,exclusive_ns,mean_ns,p50_ns,p99_ns,max_ns,lost,unwound,unseen,library,function\n",
    );
    let known = |ns: Option<u64>| ns.map(|ns| ns.to_string()).unwrap_or_default();
    for function in app.functions.rows().iter().filter_map(|&region| state.function(region)) {
        let (mean, p50) = (known(function.mean()), known(function.p50()));
        let (p99, max) = (known(function.p99()), known(function.max()));
        let (library, name) = (quoted(state.library(function.library)), quoted(&function.name));
        // Writing to a string cannot fail.
        let _ = writeln!(
            csv,
            "{},{},{},{mean},{p50},{p99},{max},{},{},{},{library},{name}",
            function.calls, function.inclusive, function.exclusive, function.lost, function.unwound, function.unseen,
        );
    }
    csv
}

/// A field in the form of RFC 4180, section 2.
fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}
