//! How each function was probed, and which were not.

use std::collections::{BTreeMap, HashSet};

use rtrace_exporters::TraceSet;
use rtrace_model::{EventKind, Region};
use serde_json::{Value as Json, json};

use super::names::{PageNames, cut, entry};
use super::rows;
use crate::Error;
use crate::table::Table;

/// Functions by library and kind of probes, the probed ones that were called first, and those that were refused.
pub(super) fn plan(trace: &TraceSet, called: &Table, most: usize, names: &mut PageNames<'_>) -> Result<Json, Error> {
    let mut kinds = BTreeMap::<_, u64>::new();
    for region in trace.regions() {
        *kinds.entry((region.library, entry(region), region.exit.name())).or_default() += 1;
    }
    let library = |id| trace.libraries().iter().position(|library| library.id == id);
    let kinds: Vec<Json> =
        kinds.into_iter().map(|((id, entry, exit), functions)| json!([library(id), entry, exit, functions])).collect();
    let with_calls = rows::regions(called);
    let mut regions: Vec<&Region> = trace.regions().iter().collect();
    regions.sort_by_key(|region| (!with_calls.contains(&region.id), region.id));
    let probed: Vec<usize> = regions.iter().take(most).map(|region| names.of(region.id)).collect();
    let (mut refused, mut reasons, mut seen) = (Vec::new(), BTreeMap::<String, u64>::new(), HashSet::new());
    for events in trace.events() {
        for event in events? {
            let EventKind::Refused { library, region, reason } = event.kind else { continue };
            // Each process may tell the same.
            if !seen.insert((library.clone(), region.clone())) {
                continue;
            }
            *reasons.entry(reason.clone()).or_default() += 1;
            if refused.len() < most {
                let library = library.rsplit('/').next().unwrap_or_default().to_owned();
                refused.push(json!([cut(&region), library, reason]));
            }
        }
    }
    Ok(json!({
        "kinds": kinds,
        "probed": probed,
        "functions": trace.regions().len(),
        "refused": refused,
        "reasons": reasons.into_iter().collect::<Vec<_>>(),
        "refusals": seen.len(),
    }))
}
