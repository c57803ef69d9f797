//! How activations are left without a return, whether a probe sees it or not.

use super::{Hit, Machine};

/// How the shadow stack hears of a jump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// It does not.
    Not,
    /// As of one that may be a switch of stacks.
    AsLongjmp,
    /// As of one that has ended what it leaves.
    AsFinal,
}

impl Machine {
    /// Leaves so many activations, and callers that would only return.
    pub fn longjmp(&mut self, activations: usize, seen: Seen) {
        let (handlers, pointer) = (self.handlers, self.running().pointer());
        for _ in 0..activations {
            self.unwind();
        }
        while self.running().only_returns() {
            self.unwind();
        }
        let from = if handlers > 0 && self.handlers == 0 { 0 } else { pointer };
        let stack = self.running();
        // Calls of other stacks may lie between where it is not known where the jump begins.
        let is_known = from > 0 || stack.is_ordered();
        let target = stack.pointer();
        // Where several stacks may share a mapping, a `longjmp` may be a switch of stacks, and is ignored.
        let is_told = seen == Seen::AsFinal || seen == Seen::AsLongjmp && stack.is_ordered();
        // What a jump leaves holds no stack that is in use.
        let is_possible = self.within.is_none_or(|end| !(from..=target).contains(&end));
        if is_told && is_known && is_possible && target > from {
            self.jump(from, target, seen == Seen::AsFinal);
        }
    }

    /// One activation is left.
    fn unwind(&mut self) {
        let stack = self.running();
        let Some(activation) = stack.activations.pop() else { return };
        stack.dead.extend(activation.calls);
        self.handlers -= usize::from(activation.is_handler);
    }

    /// A probe sees a jump, which shows that what lies between is over.
    fn jump(&mut self, from: u64, target: u64, is_final: bool) {
        let dead = self.running().dead.clone();
        let lowest = if self.running().is_ordered() { 0 } else { from };
        let is_over = |call: &usize| (lowest..target).contains(&self.calls[*call].slot);
        let over: Vec<usize> = dead.into_iter().filter(is_over).collect();
        let mut shown = over.clone();
        if self.handlers == 0 {
            shown.extend(&self.signal.dead);
        }
        let Hit { stack, now, .. } = self.hit(target - 8, over);
        for index in shown {
            let call = &mut self.calls[index];
            call.is_jumped = call.slot >= from;
            call.is_aside &= !(call.is_jumped && is_final);
        }
        self.thread.jump(from, target, stack, now, is_final);
    }
}
