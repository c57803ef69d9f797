//! What is to be said of a trace as a whole, for formats that have room for it: who recorded what,
//! what is missing, what was chosen.

use std::cmp::Reverse;

use rtrace_model::{Estimate, EventKind, Untimed, counted, format_ns};

use super::ExportError;
use super::source::Excerpt;

/// Most blind windows, and functions with calls that were not timed, that are told one by one.
const MOST_WINDOWS: usize = 100;
const MOST_UNTIMED: usize = 5;

/// Remarks as names and texts; names may repeat. The texts are not escaped.
pub(super) fn remarks(source: &Excerpt<'_>) -> Result<Vec<(&'static str, String)>, ExportError> {
    let header = source.header();
    let mut remarks = vec![
        ("recorder", format!("rtrace {}", header.rtrace_version)),
        ("host", header.host.clone()),
        ("kernel", header.kernel.clone()),
        ("command", header.command_line.join(" ")),
        ("begin_monotonic_ns", header.begin.monotonic.0.to_string()),
        ("begin_realtime_ns", header.begin.realtime_ns.to_string()),
    ];
    remarks.push(match source.summary() {
        Some(summary) => ("summary", summary.to_string()),
        None => ("summary", "the recording did not end, or still runs: the last calls are missing".to_owned()),
    });
    if source.summary().is_none() && source.has_values() {
        remarks.push(("values", "arguments and results of up to the last ten seconds are missing".to_owned()));
    }
    for loss in source.losses()? {
        let of = loss.region.map_or_else(String::new, |region| format!(" of {}", source.function_alone(region)));
        let what = if loss.reason.is_value() { "value" } else { "call" };
        remarks.push(("loss", format!("{}{of}: {}", counted(loss.count, what), loss.reason.name())));
    }
    remarks.extend(untimed(source)?.into_iter().map(|text| ("untimed", text)));
    if let Some(budget) = header.budget {
        remarks.push(("budget", format!("{budget} of the programs' CPU time")));
    }
    for estimate in source.estimates() {
        let function = source.function_alone(estimate.region);
        let &Estimate { counted, location, .. } = estimate;
        let text = format!(
            "calls of {function} on location {} that are not in here: {counted} counted, {}",
            location.0,
            estimate.missed()
        );
        remarks.push(("estimate", text));
    }
    let (mut windows, mut overwritten) = (0, 0);
    for events in source.events() {
        for event in events? {
            match event.kind {
                EventKind::BlindWindow { library, since } => {
                    windows += 1;
                    let (from, length) = (source.offset(since), event.time.since(since));
                    if windows <= MOST_WINDOWS {
                        remarks.push(("blind_window", format!("{library} for {} from {from} ns", format_ns(length))));
                    }
                }
                EventKind::Overwritten { sites, .. } => overwritten += sites,
                _ => {}
            }
        }
    }
    if windows > MOST_WINDOWS {
        remarks.push(("blind_window", format!("and {} more", windows - MOST_WINDOWS)));
    }
    if overwritten > 0 {
        remarks.push(("overwritten", format!("{overwritten} probes: calls may be missing, or their returns")));
    }
    for warning in source.warnings() {
        remarks.push(("warning", warning.to_string()));
    }
    if source.is_selection() {
        remarks.push(("selection", "some calls were left out on export".to_owned()));
    }
    Ok(remarks)
}

/// Calls that were not timed: the functions with most of them one by one, the others in a sum.
fn untimed(source: &Excerpt<'_>) -> Result<Vec<String>, ExportError> {
    let mut untimed = source.untimed()?;
    untimed.sort_by_key(|of| Reverse(of.count));
    let rest = untimed.split_off(untimed.len().min(MOST_UNTIMED));
    let text = |of: Untimed| {
        let function = of.region.map_or_else(String::new, |region| format!(" of {}", source.function_alone(region)));
        format!("{}{function}: {}", counted(of.count, "call"), of.reason.name())
    };
    let mut texts: Vec<String> = untimed.into_iter().map(text).collect();
    let calls = rest.iter().map(|of| of.count).sum();
    texts.extend((calls > 0).then(|| format!("{} of other functions", counted(calls, "more call"))));
    Ok(texts)
}
