//! The communication matrix: which rank sends how much to which.

use std::collections::BTreeMap;

use rtrace_exporters::{MatchedMessage, TraceSet};
use rtrace_model::FunctionEvent;
use rtrace_profile::ClockSpan;
use serde_json::{Value as Json, json};

use crate::Error;

/// Rows and columns at most: of more ranks, some share one.
const MOST: u32 = 64;

/// All messages of which both ends are known; none where no function sends any.
///
/// # Errors
/// The trace cannot be read.
pub(super) fn messages(trace: &TraceSet) -> Result<Vec<MatchedMessage>, Error> {
    let sends = trace.regions().iter().any(|region| region.event.is_some_and(FunctionEvent::is_message));
    let are_single = trace.profile().is_empty();
    Ok(if sends && are_single { trace.messages()?.matched()?.messages } else { Vec::new() })
}

/// Of messages that were sent in that time: how many ranks share a row, and of each cell its row, column, messages and
/// bytes, which are null where they are not all known.
pub(super) fn matrix(messages: &[MatchedMessage], span: ClockSpan) -> Json {
    let sent = || messages.iter().filter(|message| span.contains(message.sent.start));
    let ranks = sent().map(|message| message.source.max(message.target) + 1).max().unwrap_or(0);
    let shared = ranks.div_ceil(MOST).max(1);
    let mut cells: BTreeMap<[u32; 2], (u64, Option<u64>)> = BTreeMap::new();
    for message in sent() {
        let cell = cells.entry([message.source / shared, message.target / shared]).or_insert((0, Some(0)));
        cell.0 += 1;
        cell.1 = cell.1.zip(message.bytes).map(|(sum, bytes)| sum.saturating_add(bytes));
    }
    let cells: Vec<Json> =
        cells.into_iter().map(|([row, column], (count, bytes))| json!([row, column, count, bytes])).collect();
    json!({ "ranks": ranks, "shared": shared, "cells": cells })
}
