//! This moment as files: the screen as text, the functions as CSV.

use std::fmt::Write as _;

use ratatui::buffer::Buffer;
use rtrace_model::{Ending, csv_field};
use rtrace_profile::Sums;

use crate::app::App;
use crate::state::State;
use crate::state::function::Function;

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
    const TIMES: &str = "calls,timed,inclusive_ns,exclusive_ns,mean_ns,p50_ns,p99_ns,max_ns,lost,unwound,unseen";
    let counted: String = state.counters.keys().iter().map(|key| format!(",{}", csv_field(key))).collect();
    let mut csv = format!("{TIMES}{counted},library,function\n");
    let known = |ns: Option<u64>| ns.map(|ns| ns.to_string()).unwrap_or_default();
    for function in app.functions.rows().iter().filter_map(|&region| state.function(region)) {
        let Function { lost, ref counts, sums: Sums { calls, exclusive, .. }, .. } = *function;
        let (unwound, unseen) = (function.of_ending(Ending::Unwound), function.untimed());
        let timed = function.timed();
        let times = [function.inclusive(), exclusive].map(|sum| known(function.time(sum))).join(",");
        let (mean, p50) = (known(function.mean()), known(function.p50()));
        let (p99, max) = (known(function.p99()), known(function.max));
        let counted = state.counters.fields(calls - unseen.min(calls), exclusive, counts);
        let counted: String = counted.iter().map(|field| format!(",{field}")).collect();
        let (library, name) = (csv_field(state.library(function.library)), csv_field(&function.name));
        // Writing to a string cannot fail.
        let _ = writeln!(
            csv,
            "{calls},{timed},{times},{mean},{p50},{p99},{max},{lost},{unwound},{unseen}{counted},{library},{name}",
        );
    }
    csv
}
