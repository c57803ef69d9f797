//! What tracing a call costs on this machine, measured while the recording is prepared.

use std::thread::{self, JoinHandle};

use rtrace_bpf::Mechanism;
use rtrace_bpf::wire::PolicyCode;
use rtrace_model::{CallCost, ExitPolicy};

/// A measurement on a thread of its own.
pub struct Calibration(JoinHandle<Vec<CallCost>>);

impl Calibration {
    /// Begins to measure.
    pub fn start(mechanism: Mechanism) -> Calibration {
        Calibration(thread::spawn(move || costs(mechanism)))
    }

    /// Waits for the result; empty where the kernel does not let rtrace probe itself.
    pub fn finish(self) -> Vec<CallCost> {
        self.0.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

fn costs(mechanism: Mechanism) -> Vec<CallCost> {
    // A trace is complete without it: reports then say that times cannot be corrected.
    let measured = rtrace_bpf::calibrate(mechanism).unwrap_or_default();
    let cost = |cost: &rtrace_bpf::CallCost| CallCost {
        single_stepped: cost.single_stepped,
        exit: match cost.policy {
            PolicyCode::RT_POLICY_URETPROBE => ExitPolicy::Uretprobe,
            PolicyCode::RT_POLICY_RET_SITE => ExitPolicy::RetSite,
            _ => ExitPolicy::EntryOnly,
        },
        inner: cost.inner,
        whole: cost.whole,
        spread: cost.spread,
    };
    measured.iter().map(cost).collect()
}
