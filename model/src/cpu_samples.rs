//! Where processes spend CPU time, by samples.

use serde::{Deserialize, Serialize};

use crate::{CallSiteId, ContextId};

/// The samples so far of one place in a process: each is so much CPU time as there is between two ticks of a clock that
/// stands still while its CPU is idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuSamples {
    /// The process; absent for the samples that could not be noted, for lack of room.
    pub pid: Option<u32>,
    /// The byte behind the place at which the process was; absent in the kernel.
    pub call_site: Option<CallSiteId>,
    /// The functions that led there, from the process's own place where it was in the kernel; absent where stacks were not asked
    /// for, or not known.
    pub context: Option<ContextId>,
    /// How often it was there.
    pub samples: u64,
}
