//! Whether what was recorded and what was counted as lost are all the calls that entered.
//!
//! The kernel side counts entries by themselves, before it does anything about a call. So whatever goes wrong between
//! a probe and the sinks without being noticed shows here, as a difference.

use rtrace_model::{Loss, LossReason, RegionId};

/// Both sides of the account, when a recording is over.
pub struct Ledger<'a> {
    /// Calls that were to be recorded, in sums: that of a region is its id, modulo their number.
    pub entries: &'a [u64],
    /// Regions that have ids.
    pub regions: usize,
    /// Calls by region that the sinks were given, those folded by call path included.
    pub calls: &'a [u64],
    /// What is known to be missing.
    pub losses: &'a [Loss],
    /// Whether calls are folded by call path.
    pub is_folded: bool,
    /// Whether calls may also be only counted.
    pub is_governed: bool,
}

/// What is known of the calls of one sum.
#[derive(Clone, Copy, Default)]
struct Account {
    /// Recorded, or lost.
    certain: u64,
    /// Lost, but maybe none that were to be recorded.
    possible: u64,
}

impl Ledger<'_> {
    /// The differences.
    pub fn unaccounted(&self) -> Vec<Loss> {
        let mut accounts = vec![Account::default(); self.entries.len()];
        for (region, calls) in self.calls.iter().enumerate() {
            accounts[region % self.entries.len()].certain += calls;
        }
        for loss in self.losses {
            let Some(region) = loss.region else { continue };
            let account = &mut accounts[region.index() % self.entries.len()];
            match self.is_call(loss.reason) {
                Some(true) => account.certain += loss.count,
                Some(false) => {}
                None => account.possible += loss.count,
            }
        }
        // A record that could not be understood may have been that of a call of any region.
        let mut unread =
            self.losses.iter().filter(|loss| loss.reason == LossReason::BadRecord).map(|loss| loss.count).sum();
        let sums = self.entries.iter().zip(&accounts).enumerate();
        sums.filter_map(|(sum, (&entries, account))| {
            let missing = entries.saturating_sub(account.certain + account.possible);
            let explained = missing.min(unread);
            unread -= explained;
            let count = missing - explained + account.certain.saturating_sub(entries);
            (count > 0).then(|| Loss { reason: LossReason::Unaccounted, region: self.region_of(sum), count })
        })
        .collect()
    }

    /// Whether each loss for that reason is a call that is not among those recorded; `None`: it may be.
    fn is_call(&self, reason: LossReason) -> Option<bool> {
        match reason {
            // A call that is folded is recorded, whether it also has a record of its own or not.
            LossReason::RingFull => Some(!self.is_folded),
            LossReason::TooManyPaths => Some(self.is_folded),
            LossReason::TooDeep | LossReason::TooManyLocations | LossReason::CallOrLap => Some(true),
            LossReason::NoMemory if self.is_governed => None,
            LossReason::NoMemory => Some(true),
            LossReason::BadRecord
            | LossReason::EventLost
            | LossReason::AccessUncounted
            | LossReason::ValueLost
            | LossReason::ValueUnread
            | LossReason::ContextLost
            | LossReason::ProgramNotRun
            | LossReason::Unaccounted => Some(false),
        }
    }

    /// The region of a sum, where there is only one.
    fn region_of(&self, sum: usize) -> Option<RegionId> {
        (sum + self.entries.len() >= self.regions).then_some(RegionId(sum as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loss(reason: LossReason, region: Option<u32>, count: u64) -> Loss {
        Loss { reason, region: region.map(RegionId), count }
    }

    fn unaccounted(entries: &[u64], calls: &[u64], losses: &[Loss]) -> Vec<Loss> {
        let regions = calls.len();
        Ledger { entries, regions, calls, losses, is_folded: false, is_governed: false }.unaccounted()
    }

    #[test]
    fn what_is_recorded_and_what_is_lost_is_what_entered() {
        let known = [
            loss(LossReason::RingFull, Some(0), 3),
            loss(LossReason::TooDeep, Some(0), 4),
            loss(LossReason::NoMemory, Some(1), 1),
            loss(LossReason::TooManyLocations, Some(1), 1),
            loss(LossReason::EventLost, None, 9),
            loss(LossReason::ProgramNotRun, None, 9),
        ];
        assert_eq!(unaccounted(&[10, 2, 7], &[3, 0, 7], &known), []);
    }

    #[test]
    fn a_call_too_few_and_a_call_too_many_are_differences_of_their_regions() {
        let of = |region, count| loss(LossReason::Unaccounted, Some(region), count);
        assert_eq!(unaccounted(&[10, 4, 1], &[9, 6, 1], &[]), [of(0, 1), of(1, 2)]);
        let lost = [loss(LossReason::RingFull, Some(0), 2)];
        assert_eq!(unaccounted(&[10], &[9], &lost), [of(0, 1)]);
        assert_eq!(unaccounted(&[1], &[], &[]), [of(0, 1)]);
    }

    #[test]
    fn a_record_that_was_not_understood_explains_one_call() {
        let unread = [loss(LossReason::BadRecord, None, 2)];
        assert_eq!(unaccounted(&[5, 5], &[4, 4], &unread), []);
        assert_eq!(unaccounted(&[5, 5], &[4, 3], &unread), [loss(LossReason::Unaccounted, Some(1), 1)]);
    }

    #[test]
    fn a_folded_call_is_there_without_its_record() {
        let losses = [loss(LossReason::RingFull, Some(0), 2), loss(LossReason::TooManyPaths, Some(1), 2)];
        let ledger = |calls, is_folded| {
            let ledger = Ledger { entries: &[5, 5], regions: 2, calls, losses: &losses, is_folded, is_governed: false };
            ledger.unaccounted().len()
        };
        assert_eq!(ledger(&[5, 3], true), 0);
        assert_eq!(ledger(&[3, 5], false), 0);
        assert_eq!(ledger(&[3, 5], true), 2);
    }

    #[test]
    fn what_was_lost_with_a_budget_may_have_been_only_counted() {
        let losses = [loss(LossReason::NoMemory, Some(0), 2)];
        let ledger = |entries: u64| {
            let entries = [entries];
            let ledger = Ledger {
                entries: &entries,
                regions: 1,
                calls: &[5],
                losses: &losses,
                is_folded: false,
                is_governed: true,
            };
            ledger.unaccounted().iter().map(|loss| loss.count).sum::<u64>()
        };
        assert_eq!([4, 5, 6, 7, 8].map(ledger), [1, 0, 0, 0, 1]);
    }

    #[test]
    fn regions_that_share_a_sum_are_checked_together() {
        let calls = [0, 3, 1, 0, 4];
        assert_eq!(unaccounted(&[0, 7, 1], &calls, &[]), []);
        let found = unaccounted(&[0, 8, 2], &calls, &[]);
        assert_eq!(found, [loss(LossReason::Unaccounted, None, 1), loss(LossReason::Unaccounted, Some(2), 1)]);
    }
}
