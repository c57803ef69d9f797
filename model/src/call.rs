//! A call: one entry with its exit.

use serde::{Deserialize, Serialize};

use crate::{CallSiteId, ContextId, LocationId, RegionId, Timestamp, words};

words! {
    /// How a call ended, or why that is not known.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    Ending {
        /// The function returned.
        Returned = "returned",
        /// An exception, a `longjmp` or a forced unwind left the function. The end is when that was
        /// noticed: at the thread's next probe hit.
        Unwound = "unwound",
        /// The call was still running when its thread, its program or the recording ended.
        Open = "open",
        /// The return was not observed: the call has no duration. Calls of any other ending have one.
        Unseen = "unseen",
    }
}

/// One call of a region on a location.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// The thread lifetime it ran on.
    pub location: LocationId,
    /// The function called.
    pub region: RegionId,
    /// Counts up from 1 per location in the order of enters; a missing id is a lost call.
    pub id: u64,
    /// Id, on the same location, of the traced call that made this one; 0 for a root.
    pub parent: u64,
    /// Number of traced calls this one is nested in; 0 for a root.
    pub depth: u32,
    /// Time of the enter.
    pub start: Timestamp,
    /// Inclusive time: nanoseconds from enter to exit. `None` where the call was not timed, which is
    /// so where, and only where, its ending is [`Ending::Unseen`].
    pub duration: Option<u64>,
    /// Nanoseconds spent in the nearest timed calls below this one: those that it made itself, and
    /// those that untimed callees made.
    pub child: u64,
    /// How it ended.
    pub ending: Ending,
    /// Where it was called from; `None` where the return address could not be read.
    pub call_site: Option<CallSiteId>,
    /// Which untraced functions led to it; `None` where that was not recorded.
    pub context: Option<ContextId>,
}

/// The first call of the first thread, at time 0: it was made by nobody and returned at once.
impl Default for Call {
    fn default() -> Call {
        Call {
            location: LocationId(0),
            region: RegionId(0),
            id: 1,
            parent: 0,
            depth: 0,
            start: Timestamp(0),
            duration: Some(0),
            child: 0,
            ending: Ending::Returned,
            call_site: None,
            context: None,
        }
    }
}

impl Call {
    /// Whether the call has a duration. One without is in no sum, mean or distribution of times.
    pub fn is_timed(&self) -> bool {
        self.duration.is_some()
    }

    /// Time of the exit; `None` where the call was not timed.
    pub fn end(&self) -> Option<Timestamp> {
        self.duration.map(|duration| Timestamp(self.start.0.saturating_add(duration)))
    }

    /// The latest time at which the call is known to have run: that of its exit, or of its enter
    /// where the call was not timed.
    pub fn known_until(&self) -> Timestamp {
        self.end().unwrap_or(self.start)
    }

    /// Exclusive time in nanoseconds: the duration without timed callees. `None` where the call was
    /// not timed.
    pub fn exclusive(&self) -> Option<u64> {
        self.duration.map(|duration| duration.saturating_sub(self.child))
    }
}
