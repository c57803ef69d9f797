//! What calls cost, measured on this machine where rtrace may trace.

use rtrace::record::calibration::calibrate;
use rtrace_bpf::{LoadOptions, Mechanism, Programs};
use rtrace_model::{CallCost, ExitPolicy, Region};
use rtrace_plan::PlannedRegion;

/// What a hit of a site takes in a virtual machine, in nanoseconds; on bare metal it is about half of that
/// where the kernel emulates the instruction, and a tenth where it single-steps it.
const EMULATED: u64 = 800;
const WRITTEN: u64 = 900;
const SINGLE_STEP: u64 = 11_000;

/// What calls cost.
#[derive(Clone, Debug)]
pub struct PlanCosts {
    kinds: Vec<CallCost>,
    /// Whether they were measured here.
    pub are_measured: bool,
}

impl PlanCosts {
    /// Those of this machine, or typical ones where they cannot be measured; `steps`: the programs do
    /// instructions themselves.
    pub fn here(mechanism: Option<Mechanism>, steps: bool) -> PlanCosts {
        let load = |mechanism| Programs::load(&LoadOptions { steps, ..LoadOptions::plain(mechanism) }).ok();
        let programs = mechanism.and_then(load);
        let kinds = programs.map(|programs| calibrate(&programs, steps)).unwrap_or_default();
        if kinds.is_empty() { PlanCosts::typical() } else { PlanCosts { kinds, are_measured: true } }
    }

    /// Those of a virtual machine.
    pub fn typical() -> PlanCosts {
        let mut kinds = Vec::new();
        for (single_stepped, written, enter) in
            [(false, false, EMULATED), (true, false, SINGLE_STEP), (false, true, WRITTEN)]
        {
            for (exit, leave) in [(ExitPolicy::ReturnSite, EMULATED), (ExitPolicy::EntryOnly, 0)] {
                let whole = enter + leave;
                kinds.push(CallCost { single_stepped, written, exit, inner: 0, whole, spread: 0 });
            }
        }
        PlanCosts { kinds, are_measured: false }
    }

    /// What one call adds to the program's CPU time, in nanoseconds; through the dynamic linker, where
    /// there is a stub.
    pub fn call(&self, planned: &PlannedRegion) -> u64 {
        let is_timed = planned.region.exit != ExitPolicy::EntryOnly;
        let of = |region: &Region| CallCost::of(&self.kinds, region, is_timed).map_or(0, |cost| cost.whole);
        match planned.stub() {
            None => of(&planned.region),
            Some(_) => of(&Region { stub: true, ..planned.region.clone() }),
        }
    }

    /// What one hit of a site adds that the kernel emulates, and of one that it single-steps.
    pub fn hits(&self) -> [u64; 2] {
        [false, true].map(|single_stepped| {
            let is_enter = |cost: &&CallCost| {
                cost.exit == ExitPolicy::EntryOnly && !cost.written && cost.single_stepped == single_stepped
            };
            self.kinds.iter().find(is_enter).map_or(0, |cost| cost.whole)
        })
    }
}
