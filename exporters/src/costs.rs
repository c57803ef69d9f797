//! What tracing took of calls, by what it was measured to take on this machine before the recording.

use foldhash::HashMap;
use rtrace_model::{CallCost, Location, LocationId, RegionId};

use crate::TraceSet;

/// What a call costs whose time is known, and one of which one probe saw both ends or only the entry.
#[derive(Clone, Copy, Default)]
struct SiteCosts {
    stamped: Option<CallCost>,
    other: Option<CallCost>,
}

/// Calls of one region on one location.
#[derive(Clone, Copy, Debug)]
pub struct Traced {
    /// Their region.
    pub region: RegionId,
    /// Their location.
    pub location: LocationId,
    /// How many there are.
    pub calls: u64,
    /// Of these, calls between two time stamps: not those of which one probe saw both ends, which take 0 ns.
    pub stamped: u64,
    /// Whether they end with the call that made them, at the same probe.
    pub share_returns: bool,
}

/// What tracing took of calls, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Between their time stamps: they seem longer by it.
    pub inner: u64,
    /// All of it: their callers seem longer by it.
    pub whole: u64,
    /// How uncertain `whole` is.
    pub spread: u64,
}

impl Cost {
    /// What is in the own time of the calls' caller: their time has the rest.
    pub fn outer(self) -> u64 {
        self.whole.saturating_sub(self.inner)
    }
}

/// What tracing took of the calls of a trace.
pub struct Costs<'a> {
    trace: &'a TraceSet,
    known: HashMap<(RegionId, LocationId), SiteCosts>,
}

impl<'a> Costs<'a> {
    /// None if it was not measured on all machines of the trace.
    pub fn of(trace: &'a TraceSet) -> Option<Costs<'a>> {
        let is_known = |location: &Location| !calibration(trace, location.id).is_empty();
        trace.locations().iter().all(is_known).then(|| Costs { trace, known: HashMap::default() })
    }

    /// What it took of these calls.
    ///
    /// A call that ends at the same moment as the call that made it shares that one's probe: its caller only
    /// returns from there. How much of what tracing takes outside of the time stamps belongs to the return
    /// was not measured; half of it counts, and the other half is uncertain.
    pub fn cost(&mut self, calls: &Traced) -> Cost {
        let trace = self.trace;
        let known = *self.known.entry((calls.region, calls.location)).or_insert_with(|| {
            let Some(region) = trace.region(calls.region) else { return SiteCosts::default() };
            let of = |is_timed| CallCost::of(calibration(trace, calls.location), region, is_timed);
            SiteCosts { stamped: of(true), other: of(false) }
        });
        let times = |cost: Option<CallCost>, is_stamped: bool, count: u64| {
            let Some(CallCost { inner, whole, spread, .. }) = cost else { return Cost::default() };
            let inner = if is_stamped { inner } else { 0 };
            let unshared = if calls.share_returns { whole.saturating_sub(inner) / 2 } else { 0 };
            let whole = if calls.share_returns { inner + unshared } else { whole };
            Cost { inner: inner * count, whole: whole * count, spread: (spread + unshared) * count }
        };
        let stamped = times(known.stamped, true, calls.stamped);
        let others = times(known.other, false, calls.calls.saturating_sub(calls.stamped));
        Cost { inner: stamped.inner, whole: stamped.whole + others.whole, spread: stamped.spread + others.spread }
    }
}

fn calibration(trace: &TraceSet, location: LocationId) -> &[CallCost] {
    trace.header_of(location).map_or(&[], |header| header.calibration.as_slice())
}
