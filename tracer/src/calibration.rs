//! What tracing a call costs on this machine, measured on a thread of its own.

use std::io;
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread;

use rtrace_bpf::wire::PolicyCode;
use rtrace_bpf::{Counter, Mechanism};
use rtrace_model::{CallCost, ExitPolicy};

/// A measurement on a thread of its own.
pub struct Calibration(Receiver<Vec<CallCost>>);

impl Calibration {
    /// Begins to measure calls with these counters; `steps`: the programs do instructions themselves;
    /// `hooks`: returns may be hooked.
    pub fn start(mechanism: Mechanism, counters: &[Counter], steps: bool, hooks: bool) -> Calibration {
        let (sender, receiver) = mpsc::channel();
        let counters: io::Result<Vec<Counter>> = counters.iter().map(Counter::try_clone).collect();
        thread::spawn(move || {
            // A trace is complete without it: reports then say that times cannot be corrected.
            let Ok(counters) = counters else { return };
            let Ok(calibration) = rtrace_bpf::calibrate(mechanism, &counters, steps, hooks) else { return };
            // Nobody waits for it where the recording has failed. Nobody has to wait for its end.
            let _ = sender.send(costs(&calibration.costs));
        });
        Calibration(receiver)
    }

    /// The result, once it is there; empty where the kernel does not let rtrace probe itself.
    pub fn poll(&self) -> Option<Vec<CallCost>> {
        match self.0.try_recv() {
            Err(TryRecvError::Empty) => None,
            told => Some(told.unwrap_or_default()),
        }
    }

    /// Waits for the result; empty where the kernel does not let rtrace probe itself.
    pub fn finish(self) -> Vec<CallCost> {
        self.0.recv().unwrap_or_default()
    }
}

fn costs(measured: &[rtrace_bpf::CallCost]) -> Vec<CallCost> {
    let cost = |cost: &rtrace_bpf::CallCost| CallCost {
        single_stepped: cost.single_stepped,
        written: cost.written,
        exit: match cost.policy {
            PolicyCode::RT_POLICY_URETPROBE => ExitPolicy::Uretprobe,
            PolicyCode::RT_POLICY_RETURN_SITE => ExitPolicy::ReturnSite,
            _ => ExitPolicy::EntryOnly,
        },
        inner: cost.inner,
        whole: cost.whole,
        spread: cost.spread,
    };
    measured.iter().map(cost).collect()
}
