//! The communication matrix: which rank sends how much to which.

use std::collections::BTreeMap;

use rtrace_exporters::TraceSet;
use rtrace_model::FunctionEvent;
use rtrace_profile::ClockSpan;
use serde_json::{Value as Json, json};

use crate::Error;

/// Rows and columns at most: of more ranks, some share one.
const MOST: u32 = 64;

/// By the rank that sends and the one that receives: messages and bytes, `None` where these are not all known.
pub(super) type PeerSums = BTreeMap<(u32, u32), (u64, Option<u64>)>;

/// The messages that were sent in that time and of which both ends are known; none where no function sends any.
///
/// # Errors
/// The trace cannot be read.
pub(super) fn messages(trace: &TraceSet, span: ClockSpan) -> Result<PeerSums, Error> {
    let sends = trace.regions().iter().any(|region| region.event.is_some_and(FunctionEvent::is_message));
    let mut sums = PeerSums::new();
    if sends && trace.profile().is_empty() {
        let mut count = |start, pair, bytes| {
            if span.contains(start) {
                add(sums.entry(pair).or_insert((0, Some(0))), (1, bytes));
            }
        };
        let messages = trace.messages()?;
        messages.matched(|message| count(message.sent.start, (message.source, message.target), message.bytes))?;
        messages.accesses(|access| count(access.at.start, (access.source, access.target), access.bytes))?;
    }
    Ok(sums)
}

fn add(sum: &mut (u64, Option<u64>), of: (u64, Option<u64>)) {
    sum.0 += of.0;
    sum.1 = sum.1.zip(of.1).map(|(sum, bytes)| sum.saturating_add(bytes));
}

/// How many ranks share a row, and of each cell its row, column, messages and bytes.
pub(super) fn matrix(messages: &PeerSums) -> Json {
    let ranks = messages.keys().map(|(source, target)| source.max(target) + 1).max().unwrap_or(0);
    let shared = ranks.div_ceil(MOST).max(1);
    let mut cells = PeerSums::new();
    for ((source, target), of) in messages {
        add(cells.entry((source / shared, target / shared)).or_insert((0, Some(0))), *of);
    }
    let cells: Vec<Json> =
        cells.into_iter().map(|((row, column), (count, bytes))| json!([row, column, count, bytes])).collect();
    json!({ "ranks": ranks, "shared": shared, "cells": cells })
}
