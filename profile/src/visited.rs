//! What a walk visits.

use std::borrow::Cow;

use rtrace_model::{Call, CallSiteId, ContextId, Count, FoldedPath, LocationId, Measured, RegionId, Totals};

/// Calls of one function that one caller made on one thread.
#[derive(Clone, Copy, Debug)]
pub enum Visited<'a> {
    /// A single call.
    One(&'a Measured),
    /// A call that does not count, as it is not of the part that is asked for. It may have made calls that are.
    Around(&'a Measured),
    /// All calls of a call path on a thread.
    Path(&'a FoldedPath),
}

impl<'a> Visited<'a> {
    /// The single call, whether it counts or not.
    pub fn single(self) -> Option<&'a Measured> {
        match self {
            Visited::One(measured) | Visited::Around(measured) => Some(measured),
            Visited::Path(_) => None,
        }
    }

    /// What tells them apart from others of their thread: the id of the call, or that of the path.
    pub fn id(self) -> u64 {
        self.of(|call| call.id, |path| path.path.0.into())
    }

    /// Their function.
    pub fn region(self) -> RegionId {
        self.of(|call| call.region, |path| path.region)
    }

    /// Their thread.
    pub fn location(self) -> LocationId {
        self.of(|call| call.location, |path| path.location)
    }

    /// Where they were called from, if it is one place that is known.
    pub fn call_site(self) -> Option<CallSiteId> {
        self.of(|call| call.call_site, FoldedPath::call_site)
    }

    /// Which untraced functions led to them, if it was recorded.
    pub fn context(self) -> Option<ContextId> {
        self.of(|call| call.context, FoldedPath::context)
    }

    /// Whether they count.
    pub fn are_counted(self) -> bool {
        !matches!(self, Visited::Around(_))
    }

    /// Whether they have a time.
    pub fn have_time(self) -> bool {
        self.of(Call::is_timed, |path| path.has_time())
    }

    /// What they add up to; of a call that does not count, nothing.
    pub fn totals(self) -> Totals {
        match self {
            Visited::One(measured) => Totals::of(&measured.call),
            Visited::Around(_) => Totals::default(),
            Visited::Path(path) => Totals::of_path(path),
        }
    }

    /// What they counted, by counter, with and without timed callees; empty where nothing was.
    pub fn counts(self) -> Cow<'a, [Count]> {
        let of_call = |measured: &Measured| measured.readings.iter().map(|&reading| Count::from(reading)).collect();
        self.single().map_or_else(|| self.of(|_| &[][..], |path| &path.counts).into(), of_call)
    }

    fn of<T>(self, call: impl FnOnce(&'a Call) -> T, path: impl FnOnce(&'a FoldedPath) -> T) -> T {
        match self {
            Visited::One(measured) | Visited::Around(measured) => call(&measured.call),
            Visited::Path(folded) => path(folded),
        }
    }
}
