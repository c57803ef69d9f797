//! Reads a trace once for any number of visitors.

#[cfg(test)]
mod tests;

use std::sync::mpsc::sync_channel;

use rtrace_exporters::{CallValues, Folded, TraceSet};
use rtrace_model::{Batch, Call, FoldedPath, Timestamp};

use super::part::ClockSpan;
use super::untimed::UntimedTally;
use super::walk::{Visitor, Walk};
use super::{CHUNK, Error};

/// A [`Walk`], whatever its visitor is.
pub(super) trait CallReader: Send {
    fn within(&mut self, span: ClockSpan);
    fn paths(&mut self, paths: &[FoldedPath]);
    fn readings(&mut self, batch: &Batch);
    fn wants_values(&self) -> bool;
    fn values(&mut self, calls: &[Call], values: &[Option<CallValues>]);
    fn chunk(&mut self, calls: &mut [Call]);
    fn finish(&mut self);
}

impl<V: Visitor + Send> CallReader for Walk<V>
where
    V::Mark: Send,
{
    fn within(&mut self, span: ClockSpan) {
        self.span = span;
    }

    fn paths(&mut self, paths: &[FoldedPath]) {
        Walk::paths(self, paths);
    }

    fn readings(&mut self, batch: &Batch) {
        self.visitor.readings(batch);
    }

    fn wants_values(&self) -> bool {
        self.visitor.wants_values()
    }

    fn values(&mut self, calls: &[Call], values: &[Option<CallValues>]) {
        self.visitor.values(calls, values);
    }

    fn chunk(&mut self, calls: &mut [Call]) {
        Walk::chunk(self, calls);
    }

    fn finish(&mut self) {
        Walk::finish(self);
    }
}

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
}

/// Lets each reader visit all calls, and counts by function those that were not timed.
///
/// # Errors
/// The calls cannot be read.
pub(super) fn read(trace: &TraceSet, need: Need, readers: &mut [&mut dyn CallReader]) -> Result<UntimedTally, Error> {
    let mut untimed = UntimedTally::default();
    let wants_values = readers.iter().any(|reader| reader.wants_values());
    let folded = trace.folded(need == Need::Paths && !wants_values);
    let span = if let Need::Within(span) = need { span } else { ClockSpan::ALL };
    readers.iter_mut().for_each(|reader| reader.within(span));
    readers.iter_mut().for_each(|reader| reader.paths(&folded.paths));
    folded.paths.iter().for_each(|path| untimed.add_path(path));
    let mut values = wants_values.then(|| trace.value_reader());
    let mut calls = Vec::new();
    each_batch(trace, &folded, span, |batch| {
        let batch = within(batch, span);
        batch.iter().filter(|call| span.counts(call)).for_each(|call| untimed.add(call));
        readers.iter_mut().for_each(|reader| reader.readings(&batch));
        if let Some(values) = &mut values {
            let values = values.of(&batch)?;
            readers.iter_mut().for_each(|reader| reader.values(&batch, &values));
        }
        calls.append(&mut batch.into_calls());
        if calls.len() >= CHUNK {
            visit(readers, &mut calls);
            calls.clear();
        }
        Ok(())
    })?;
    visit(readers, &mut calls);
    readers.iter_mut().for_each(|reader| reader.finish());
    Ok(untimed)
}

/// Takes the batches of the calls that are not folded, the last one first, while the next one is decoded: that takes
/// about as long as visiting them.
fn each_batch(
    trace: &TraceSet,
    folded: &Folded<'_>,
    span: ClockSpan,
    mut take: impl FnMut(Batch) -> Result<(), Error>,
) -> Result<(), Error> {
    std::thread::scope(|scope| {
        let (sender, batches) = sync_channel(AHEAD);
        // After an error nobody receives.
        scope.spawn(move || match span {
            ClockSpan::ALL => folded.calls().rev().try_for_each(|batch| sender.send(batch)),
            ClockSpan { from, to } => {
                let near = trace.calls_near(from.unwrap_or_default(), to.unwrap_or(Timestamp(u64::MAX)));
                near.rev().try_for_each(|batch| sender.send(batch))
            }
        });
        batches.into_iter().try_for_each(|batch| take(batch?))
    })
}

/// Of a batch the calls that count, and those that may have made them.
fn within(batch: Batch, span: ClockSpan) -> Batch {
    if span == ClockSpan::ALL {
        return batch;
    }
    batch.selected((0..batch.len()).filter(|&place| span.counts(&batch[place]) || span.may_enclose(&batch[place])))
}

/// Lets each reader visit a chunk, several of them at a time.
fn visit(readers: &mut [&mut dyn CallReader], calls: &mut [Call]) {
    let Some((first, others)) = readers.split_first_mut() else { return };
    std::thread::scope(|scope| {
        for reader in others {
            let mut calls = calls.to_vec();
            scope.spawn(move || reader.chunk(&mut calls));
        }
        first.chunk(calls);
    });
}
