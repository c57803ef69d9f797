//! What tracing took of calls, by what it was measured to take on this machine before the recording.

use foldhash::HashMap;
use rtrace_model::{CallCost, CallSiteId, ExitPolicy, HitsInVain, Location, LocationId, RegionId};

use crate::TraceSet;

/// What a call costs whose time is known, and one of which one probe saw both ends or only the entry.
#[derive(Clone, Copy, Default)]
struct SiteCosts {
    stamped: Option<CallCost>,
    other: Option<CallCost>,
    /// By how much the return costs more where the kernel single-steps the instruction.
    step: u64,
    /// Nanoseconds that hits of return sites which ended no call took within a call.
    in_vain: f64,
}

/// Calls of one region on one location.
#[derive(Clone, Copy, Debug)]
pub struct Traced {
    /// Their region.
    pub region: RegionId,
    /// Their location.
    pub location: LocationId,
    /// Where they return to, if it is one place that is known.
    pub site: Option<CallSiteId>,
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
    /// The part of the hits of return sites that the kernel single-stepped.
    stepped: f64,
    in_vain: HashMap<RegionId, HitsInVain>,
    known: HashMap<(RegionId, LocationId), SiteCosts>,
}

impl<'a> Costs<'a> {
    /// None if it was not measured on all machines of the trace.
    pub fn of(trace: &'a TraceSet) -> Option<Costs<'a>> {
        let is_known = |location: &Location| !calibration(trace, location.id).is_empty();
        let sites = trace.summary().map(|summary| summary.return_sites).unwrap_or_default();
        let stepped = sites.single_stepped as f64 / sites.hits.max(1) as f64;
        let mut in_vain: HashMap<RegionId, HitsInVain> = HashMap::default();
        for of in trace.summary().iter().flat_map(|summary| &summary.hits_in_vain) {
            let sum = in_vain.entry(of.region).or_default();
            sum.calls += of.calls;
            sum.hits += of.hits;
            sum.single_stepped += of.single_stepped;
        }
        trace.locations().iter().all(is_known).then(|| Costs { trace, stepped, in_vain, known: HashMap::default() })
    }

    /// What it took of these calls.
    ///
    /// A call that ends at the same moment as the call that made it shares that one's probe: its caller only
    /// returns from there. How much of what tracing takes outside of the time stamps belongs to the return
    /// was not measured; half of it counts, and the other half is uncertain. Where it is not known to which places calls
    /// return, as many of these are single-stepped as in the whole trace.
    pub fn cost(&mut self, calls: &Traced) -> Cost {
        let trace = self.trace;
        let known = *self.known.entry((calls.region, calls.location)).or_insert_with(|| {
            let Some(region) = trace.region(calls.region) else { return SiteCosts::default() };
            let costs = calibration(trace, calls.location);
            let of = |is_timed| CallCost::of(costs, region, is_timed);
            let step = CallCost::of_step(costs).filter(|_| region.exit == ExitPolicy::ReturnSite).unwrap_or(0);
            let in_vain = self.in_vain.get(&calls.region).map_or(0.0, |of| {
                let [hit, step] =
                    [CallCost::of_return(costs), CallCost::of_step(costs)].map(|cost| cost.unwrap_or(0) as f64);
                (of.hits as f64 * hit + of.single_stepped as f64 * step) / of.calls.max(1) as f64
            });
            SiteCosts { stamped: of(true), other: of(false), step, in_vain }
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
        let stepped = match calls.site.and_then(|site| trace.call_site(site)) {
            _ if calls.share_returns => 0.0,
            Some(site) => f64::from(u8::from(site.single_stepped)),
            None => self.stepped,
        };
        let steps = ((known.step * calls.stamped) as f64 * stepped) as u64;
        let in_vain = (calls.stamped as f64 * known.in_vain) as u64;
        let whole = stamped.whole + others.whole + steps + in_vain;
        Cost { inner: stamped.inner + in_vain, whole, spread: stamped.spread + others.spread }
    }
}

fn calibration(trace: &TraceSet, location: LocationId) -> &[CallCost] {
    trace.header_of(location).map_or(&[], |header| header.calibration.as_slice())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use rtrace_model::{CallSite, Definition, Header, Region, ReturnSites, Sink, Summary, Timestamp};

    use super::*;
    use crate::TraceWriter;

    #[test]
    fn a_return_to_a_single_stepped_instruction_costs_its_caller_the_step() {
        let cost = |single_stepped, exit, inner, whole| CallCost {
            single_stepped,
            written: false,
            exit,
            inner,
            whole,
            spread: 0,
        };
        let calibration = vec![
            cost(false, ExitPolicy::ReturnSite, 50, 200),
            cost(false, ExitPolicy::EntryOnly, 0, 100),
            cost(true, ExitPolicy::EntryOnly, 0, 1_100),
        ];
        let folder = tempfile::tempdir().unwrap();
        let mut writer = TraceWriter::create(folder.path(), None).unwrap();
        writer.begin(&Header { calibration, ..Header::default() }).unwrap();
        for id in [0, 1].map(RegionId) {
            let region = Region { id, exit: ExitPolicy::ReturnSite, ..Region::default() };
            writer.define(&Definition::Region(region)).unwrap();
        }
        let id = LocationId(1);
        let (start, name) = (Timestamp(0), "main".to_owned());
        let location = Location { id, pid: 7, tid: 7, start, end: None, name, calls_entered: None };
        writer.define(&Definition::Location(location)).unwrap();
        for (id, single_stepped) in [(0, false), (1, true)] {
            let site = CallSite { id: CallSiteId(id), offset: id.into(), single_stepped, ..CallSite::default() };
            writer.define(&Definition::CallSite(site)).unwrap();
        }
        let return_sites = ReturnSites { hits: 4, single_stepped: 1, ..ReturnSites::default() };
        let hits_in_vain = vec![HitsInVain { region: RegionId(1), calls: 4, hits: 4, single_stepped: 2 }];
        writer.finish(&Summary { return_sites, hits_in_vain, ..Summary::default() }).unwrap();
        let trace = TraceSet::open(folder.path()).unwrap();
        let mut costs = Costs::of(&trace).unwrap();
        let mut outer = |site: Option<u32>, share_returns| {
            let (region, location, site) = (RegionId::default(), id, site.map(CallSiteId));
            costs.cost(&Traced { region, location, site, calls: 10, stamped: 10, share_returns }).outer()
        };
        assert_eq!(outer(Some(0), false), 1_500);
        assert_eq!(outer(Some(1), false), 11_500);
        // Of a fourth of all returns.
        assert_eq!(outer(None, false), 4_000);
        assert_eq!(outer(Some(1), true), 750, "the step is that of the call around it");
        let mut inner = |region| {
            let calls = Traced { region, location: id, site: None, calls: 10, stamped: 10, share_returns: false };
            costs.cost(&calls).inner
        };
        assert_eq!(inner(RegionId::default()), 500);
        // A hit in vain for each call, and a single step for every second one.
        assert_eq!(inner(RegionId(1)), 500 + 10 * 100 + 5 * 1_000);
    }
}
