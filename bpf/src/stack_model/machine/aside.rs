//! Calls that were left, and may return as long as their slots are as they were.

use super::{Call, Machine};
use crate::stack_model::LEFT_MAX;
use crate::wire::{EndingCode, TailsCode, UntimedCode};

impl Machine {
    /// Whether there may be no room for more calls that seem to be left: of those nobody knows how they end.
    pub(super) fn has_no_room(&self) -> bool {
        let dead = self.stacks.iter().chain([&self.signal]).flat_map(|stack| &stack.dead);
        let may_be_kept = dead.filter(|&&call| self.calls[call].doubt.is_none()).count();
        self.thread.left() as usize + may_be_kept >= LEFT_MAX as usize
    }

    /// Something returns to where calls that were left would have returned: none of them has a known end any more. Returns
    /// whether there were any.
    pub(super) fn end_aside(&mut self, slot: u64, word: u64) -> bool {
        let is_meant = |&index: &usize| {
            let call = &self.calls[index];
            call.is_aside
                && !call.is_jumped
                && call.slot == slot
                && call.returns_to(slot, word)
                && !self.is_overwritten(index)
        };
        let meant: Vec<usize> = (0..self.calls.len()).rev().filter(is_meant).collect();
        self.end_unknown(&meant);
        !meant.is_empty()
    }

    /// A function enters there: calls that were left do not return there any more, unless one of them has jumped to it.
    pub(super) fn settle_aside(&mut self, slot: u64, word: u64, region: usize) {
        let may_jump = |call: &Call| match self.regions[call.region].tails {
            TailsCode::RT_TAILS_NEVER => false,
            TailsCode::RT_TAILS_KNOWN => self.is_known(call.region, region),
            _ => true,
        };
        let has_jumped =
            |call: &Call| call.is_aside && !call.is_jumped && (call.slot, call.word) == (slot, word) && may_jump(call);
        if self.calls.iter().any(has_jumped) {
            let is_meant = |&index: &usize| self.calls[index].is_aside && self.calls[index].slot == slot;
            let meant: Vec<usize> = (0..self.calls.len()).rev().filter(is_meant).collect();
            self.end_unknown(&meant);
        }
        self.calls.iter_mut().filter(|call| call.spans(slot)).for_each(|call| call.is_aside = false);
    }

    /// Nobody knows when these calls ended that were left.
    fn end_unknown(&mut self, calls: &[usize]) {
        for &index in calls {
            let call = &mut self.calls[index];
            call.is_aside = false;
            call.record.ending = EndingCode::RT_UNSEEN;
            let (time, child) = (std::mem::take(&mut call.record.duration), std::mem::take(&mut call.record.child));
            self.untimed[UntimedCode::RT_UNTIMED_AMBIGUOUS.0 as usize] += 1;
            let caller = self.calls[index].record.parent.checked_sub(1).map(|caller| &mut self.calls[caller as usize]);
            if let Some(caller) = caller.filter(|caller| !caller.has_ended || caller.is_aside) {
                caller.record.child = caller.record.child + child - time;
            }
        }
    }
}
