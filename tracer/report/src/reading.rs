//! Reads a trace once for any number of visitors.

#[cfg(test)]
mod tests;

use std::sync::mpsc::sync_channel;

use rtrace_exporters::TraceSet;
use rtrace_model::{Batch, Measured, Timestamp, Totals};
use rtrace_profile::{CallReader, ClockSpan};

use super::untimed::Shares;
use super::{CHUNK, Error};

/// Batches of calls that are decoded before they are needed.
const AHEAD: usize = 1;

/// What readers need of the calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// The sums by call path, where these are known.
    Paths,
    /// Each call that has a record.
    Calls,
    /// Each call that ended in a part of the time.
    Within(ClockSpan),
    /// The same with arguments and results.
    Values(ClockSpan),
}

/// Lets each reader visit all calls, and sums them up by function and thread.
///
/// # Errors
/// The calls cannot be read.
pub(super) fn read(trace: &TraceSet, need: Need, readers: &mut [&mut dyn CallReader]) -> Result<Shares, Error> {
    let mut shares = Shares::default();
    let mut share = |region, location, totals| shares.entry((region, location)).or_default().add(totals);
    let folded = trace.folded(need == Need::Paths);
    let span = if let Need::Within(span) | Need::Values(span) = need { span } else { ClockSpan::ALL };
    readers.iter_mut().for_each(|reader| reader.within(span));
    readers.iter_mut().for_each(|reader| reader.paths(&folded.paths));
    folded.paths.iter().for_each(|path| share(path.region, path.location, Totals::of_path(path)));
    let mut values = matches!(need, Need::Values(_)).then(|| trace.value_reader());
    let mut calls = Vec::new();
    let batches: Box<dyn Iterator<Item = _> + Send> = match span {
        ClockSpan::ALL => Box::new(folded.calls().rev()),
        ClockSpan { from, to } => {
            Box::new(trace.calls_near(from.unwrap_or_default(), to.unwrap_or(Timestamp(u64::MAX))).rev())
        }
    };
    each_batch(batches, |batch| {
        let mut values = values.as_mut().map_or_else(|| Ok(Vec::new()), |values| values.of(&batch))?.into_iter();
        for (place, &call) in batch.iter().enumerate() {
            let values = values.next().flatten();
            if span.counts(&call) {
                share(call.region, call.location, Totals::of(&call));
            } else if !span.may_enclose(&call) {
                continue;
            }
            calls.push(Measured { call, readings: batch.readings(place).into(), values });
        }
        if calls.len() >= CHUNK {
            visit(readers, &mut calls);
            calls.clear();
        }
        Ok(())
    })?;
    visit(readers, &mut calls);
    readers.iter_mut().for_each(|reader| reader.finish());
    Ok(shares)
}

/// Takes batches of calls while the next one is decoded: that takes about as long.
///
/// # Errors
/// The calls cannot be read, or `take` fails.
pub(super) fn each_batch(
    mut batches: impl Iterator<Item = Result<Batch, rtrace_exporters::Error>> + Send,
    mut take: impl FnMut(Batch) -> Result<(), Error>,
) -> Result<(), Error> {
    std::thread::scope(|scope| {
        let (sender, decoded) = sync_channel(AHEAD);
        // After an error nobody receives.
        scope.spawn(move || batches.try_for_each(|batch| sender.send(batch)));
        decoded.into_iter().try_for_each(|batch| take(batch?))
    })
}

/// Lets each reader visit a chunk, several of them at a time.
fn visit(readers: &mut [&mut dyn CallReader], calls: &mut [Measured]) {
    calls.sort_by_key(|of| (of.call.location, of.call.id));
    let Some((first, others)) = readers.split_first_mut() else { return };
    let calls = &*calls;
    std::thread::scope(|scope| {
        for reader in others {
            scope.spawn(move || reader.chunk(calls));
        }
        first.chunk(calls);
    });
}
