//! How many probes may be in place at a time, where that is limited: the kernel charges their memory to nobody.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How many probes may be in place at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeLimit {
    /// Sites, each counted once for every process in which it has a probe.
    pub sites: usize,
    /// Processes with probes.
    pub processes: usize,
}

/// What is left of a limit.
#[derive(Debug)]
pub(crate) struct Allowance {
    limit: ProbeLimit,
    taken: Mutex<InUse>,
}

#[derive(Debug, Default)]
struct InUse {
    sites: usize,
    /// The number of shares that each process has.
    shares: HashMap<u32, usize>,
}

impl Allowance {
    pub fn new(limit: ProbeLimit) -> Arc<Allowance> {
        Arc::new(Allowance { limit, taken: Mutex::default() })
    }

    pub const fn limit(&self) -> ProbeLimit {
        self.limit
    }

    /// Room for so many sites in a process, if there is that much.
    pub fn take(self: &Arc<Self>, pid: u32, sites: usize) -> Option<Share> {
        let mut taken = self.taken();
        let processes = taken.shares.len() + usize::from(!taken.shares.contains_key(&pid));
        if taken.sites + sites > self.limit.sites || processes > self.limit.processes {
            return None;
        }
        taken.sites += sites;
        *taken.shares.entry(pid).or_default() += 1;
        drop(taken);
        Some(Share { of: Arc::clone(self), pid, sites })
    }

    fn taken(&self) -> MutexGuard<'_, InUse> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A part of an allowance. Dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Share {
    of: Arc<Allowance>,
    pid: u32,
    sites: usize,
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut taken = self.of.taken();
        taken.sites -= self.sites;
        if let Some(shares) = taken.shares.get_mut(&self.pid) {
            *shares -= 1;
            if *shares == 0 {
                taken.shares.remove(&self.pid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_can_be_taken_again() {
        let allowance = Allowance::new(ProbeLimit { sites: 10, processes: 2 });
        let first = allowance.take(1, 6);
        assert!(first.is_some() && allowance.take(1, 5).is_none(), "6 of 10 are taken");
        let second = allowance.take(2, 4);
        assert!(second.is_some() && allowance.take(2, 1).is_none());
        drop(first);
        assert!(allowance.take(2, 7).is_none());
        assert!(allowance.take(2, 6).is_some(), "what is not kept is given back at once");
    }

    #[test]
    fn a_process_counts_until_its_last_share_is_gone() {
        let allowance = Allowance::new(ProbeLimit { sites: 100, processes: 2 });
        let first = [allowance.take(1, 1), allowance.take(1, 1)];
        let second = allowance.take(2, 1);
        assert!(second.is_some() && allowance.take(3, 1).is_none());
        let [one, other] = first;
        drop(one);
        assert!(allowance.take(3, 1).is_none());
        drop(other);
        assert!(allowance.take(3, 1).is_some());
    }
}
