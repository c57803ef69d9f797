//! Loops that begin at the first instruction of their functions.

use crate::wire::{LossCode, PolicyCode, TailsCode, UntimedCode};

use super::{Call, Hit, Machine, Region};

impl Machine {
    /// Whether a call of the region, at the slot of this one and from the same place, would be taken for a lap of it.
    pub fn may_lap(&self, call: &Call, word: u64, region: usize) -> bool {
        let Region { policy, laps, .. } = self.regions[region];
        laps && policy == PolicyCode::RT_POLICY_RETURN_SITE && (call.region, call.word) == (region, word)
    }

    /// The function that runs comes back to its first instruction, if it is one that may.
    pub fn lap(&mut self) {
        let Some(&index) = self.running().activations.last().and_then(|activation| activation.calls.last()) else {
            return;
        };
        let (call, key) = (&self.calls[index], self.running_key());
        // Where callers may be mistaken, the frame that runs may have been put aside.
        if self.within.is_some() || !self.may_lap(call, call.word, call.region) {
            return;
        }
        let is_certain =
            call.doubt.is_none() && !call.is_caught && self.regions[call.region].tails != TailsCode::RT_TAILS_ANYWHERE;
        let (region, slot) = (call.region, call.slot);
        self.now += self.tick;
        if self.handlers == 0 {
            self.last_hit = self.current;
        }
        let losses = [LossCode::RT_LOSS_LAP, LossCode::RT_LOSS_MAYBE_LAP].map(|reason| self.thread.lost(reason));
        self.thread.enter(Hit { slot, stack: key, now: self.now }, self.function(region));
        let counted = [losses[0] + u64::from(is_certain), losses[1] + u64::from(!is_certain)];
        assert_eq!(
            [LossCode::RT_LOSS_LAP, LossCode::RT_LOSS_MAYBE_LAP].map(|reason| self.thread.lost(reason)),
            counted
        );
        if !is_certain {
            self.calls[index].doubt = Some(UntimedCode::RT_UNTIMED_AMBIGUOUS);
        }
    }

    pub fn running_key(&self) -> u32 {
        if self.handlers > 0 { self.signal.key } else { self.stacks[self.current].key }
    }
}
