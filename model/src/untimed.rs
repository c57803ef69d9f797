//! Which calls have no duration.

use serde::{Deserialize, Serialize};

use crate::{RegionId, words};

words! {
    /// Why the return of a call was not observed.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    UntimedReason {
        /// The call was one of the first from its place: the probe at its return address was not placed
        /// yet.
        NotYetPlaced = "return site not yet placed",
        /// The kernel takes no probe at the return address: generated code, or code of no file.
        NotProbeable = "return address cannot be probed",
        /// The probe at the return address was removed, because it cost too much.
        SiteDropped = "return site dropped",
        /// An option asks for entries alone.
        NotAskedFor = "entry only",
        /// The return was missed for another reason, and a later call took the place of this one on the
        /// shadow stack.
        OverwrittenByOther = "frame lost",
        /// Nothing shows whether it returned, or its caller got control back in another way; or which of two calls
        /// returned.
        Ambiguous = "returned or left, unknown which",
    }
}

/// A number of calls that were not timed. They are on record, unlike those of a
/// [`Loss`](crate::Loss).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Untimed {
    /// Why.
    pub reason: UntimedReason,
    /// The region called, where that is known.
    pub region: Option<RegionId>,
    /// How many.
    pub count: u64,
}

impl Untimed {
    /// Sums by reason, in the order of [`UntimedReason::ALL`]; reasons without a call are left out.
    pub fn by_reason<'a>(all: impl IntoIterator<Item = &'a Untimed>) -> Vec<(UntimedReason, u64)> {
        let mut sums = UntimedReason::ALL.map(|reason| (reason, 0_u64));
        for untimed in all {
            let sum = &mut sums[untimed.reason as usize].1;
            *sum = sum.saturating_add(untimed.count);
        }
        sums.into_iter().filter(|&(_, count)| count > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_have_names_of_their_own_and_stand_in_the_order_of_their_codes() {
        for (place, reason) in UntimedReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, place);
            assert_eq!(UntimedReason::from_name(reason.name()), Some(reason));
        }
        assert_eq!(UntimedReason::from_name("ring full"), None);
    }

    #[test]
    fn counts_of_a_reason_add_up() {
        let untimed = |reason, count| Untimed { reason, region: None, count };
        let all = [
            untimed(UntimedReason::NotAskedFor, 1),
            untimed(UntimedReason::NotYetPlaced, 2),
            untimed(UntimedReason::NotAskedFor, 3),
            untimed(UntimedReason::SiteDropped, 0),
        ];
        assert_eq!(Untimed::by_reason(&all), [(UntimedReason::NotYetPlaced, 2), (UntimedReason::NotAskedFor, 4)]);
    }
}
