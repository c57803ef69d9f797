//! `rtrace tui`: the live view on a stored trace.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use rtrace_exporters::TraceSet;
use rtrace_model::{Location, LocationId};
use rtrace_report::replay::{replay, tell_sums, whole};
use rtrace_tui::{Handle, Range};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::Outcome;
use super::args::Tui;
use super::derive::derive;
use super::message::Hint as _;
use super::trace_host::TraceHost;

/// Time between two looks at what the user wants.
const PERIOD: Duration = Duration::from_millis(20);

/// Reading more calls than these takes so long that their sums are shown first.
const MANY_CALLS: u64 = 1_000_000;

/// Time between two looks at whether a recording has grown, if reading it took no longer.
const GROWTH_PERIOD: Duration = Duration::from_secs(2);

/// Shows the trace until the user leaves.
pub fn tui(options: &Tui) -> anyhow::Result<Outcome> {
    let directory = &options.directory;
    let trace = TraceSet::open(directory)?;
    if !rtrace_tui::is_possible() {
        let error = anyhow!("failed to show `{}`: there is no terminal", directory.display());
        return Err(error).hint("`rtrace report` prints tables");
    }
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("failed to handle signals")?;
    }
    if !trace.profile().is_empty() && !trace.folded(true).is_complete() {
        let error = anyhow!("failed to show `{}` as one: only some of its traces are aggregated", directory.display());
        return Err(error).hint("`rtrace tui` shows each trace in it; `rtrace report` prints all");
    }
    let handle = rtrace_tui::stored(directory.display().to_string(), range(&trace)?, derive).with_ranks(ranks(&trace));
    std::thread::scope(|scope| {
        let player = scope.spawn(|| {
            let played = play(directory, trace, &handle, &stop);
            if played.is_err() {
                stop.store(true, Ordering::Relaxed);
            }
            played
        });
        let shown = rtrace_tui::run(&handle, &TraceHost::stored(directory), &stop);
        stop.store(true, Ordering::Relaxed);
        let played = player.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        shown.context("failed to show the trace")?;
        played
    })?;
    Ok(Outcome::Complete)
}

/// The rank of each thread, where a launcher of parallel jobs has told it.
fn ranks(trace: &TraceSet) -> BTreeMap<LocationId, u32> {
    let rank = |location: &Location| Some((location.id, trace.rank_of(location)?));
    trace.locations().iter().filter_map(rank).collect()
}

fn range(trace: &TraceSet) -> anyhow::Result<Range> {
    let (from, to) = whole(trace)?;
    Ok(Range { from, to })
}

/// Fills the view with the range that the user wants, again when that changes or the trace grows.
fn play(directory: &Path, mut trace: TraceSet, handle: &Handle, stop: &AtomicBool) -> anyhow::Result<()> {
    let mut shown = None;
    let mut next_look = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        if trace.summary().is_none() && Instant::now() >= next_look {
            trace = TraceSet::open(directory)?;
            handle.grow(range(&trace)?);
        }
        let wanted = handle.wanted();
        if wanted == shown {
            std::thread::sleep(PERIOD);
            continue;
        }
        let Some(range) = wanted else { return Ok(()) };
        let begun = Instant::now();
        if shown.is_none() && range == self::range(&trace)? && trace.recorded_calls() > MANY_CALLS {
            let mut sums = handle.preview(range);
            if tell_sums(&trace, &mut sums)? {
                handle.show(&sums);
            }
        }
        let mut sink = handle.replay(range, !trace.profile().is_empty());
        let goes_on = |share: f64| {
            handle.say(format!("reading {:.0} %", share * 100.0));
            !stop.load(Ordering::Relaxed) && handle.wanted() == wanted
        };
        if replay(&trace, (range.from, range.to), &mut sink, goes_on)? {
            handle.show(&sink);
            handle.say(if trace.summary().is_some() { "stored" } else { "growing" });
            shown = wanted;
        }
        next_look = Instant::now() + GROWTH_PERIOD.max(2 * begun.elapsed());
    }
    Ok(())
}
