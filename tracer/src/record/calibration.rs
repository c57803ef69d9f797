//! What tracing a call costs on this machine.

use rtrace_bpf::Programs;
use rtrace_bpf::wire::PolicyCode;
use rtrace_model::{CallCost, ExitPolicy};

/// Measures it before anything is traced; `steps`: the programs do instructions themselves. Empty where
/// the kernel does not let rtrace probe itself: a trace is complete without it, and reports say that times cannot be corrected.
pub fn calibrate(programs: &Programs, steps: bool) -> Vec<CallCost> {
    programs.calibrate(steps).unwrap_or_default().iter().map(cost).collect()
}

fn cost(cost: &rtrace_bpf::MeasuredCost) -> CallCost {
    CallCost {
        single_stepped: cost.single_stepped,
        written: cost.written,
        exit: match cost.policy {
            PolicyCode::RT_POLICY_RETURN_SITE => ExitPolicy::ReturnSite,
            _ => ExitPolicy::EntryOnly,
        },
        inner: cost.inner,
        whole: cost.whole,
        spread: cost.spread,
    }
}
