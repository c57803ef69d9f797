//! How often the functions of a plan are called, counted for a while, to tell beforehand what
//! tracing them would cost.
//!
//! Only entries are probed, and the programs count them in the kernel: no exit is touched, and
//! nothing is sent per call.

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use anyhow::Context as _;
use rtrace_bpf::{Mechanism, ProfileOptions};
use rtrace_code::arrival::Keeps;
use rtrace_code::instruction::Emulation;
use rtrace_model::{
    Batch, Event, EventKind, LocationId, PathId, PathProfile, RegionId, Sink, SinkError, Summary, Timestamp,
};
use rtrace_plan as plan;
use rtrace_plan::{Exit, Plan};

use crate::counters::Counters;
use crate::guard::Guard;
use crate::late_loads::LateLoads;
use crate::options::Options;
use crate::overhead::cpu_time;
use crate::privilege;
use crate::recorder::{self, Extras, Setup, Subject};
use crate::samples::Samplers;
use crate::watch::Watches;

/// Functions and threads are told apart; a row each.
const MAX_ROWS: u32 = 1 << 16;
/// Nothing is sent per call.
const RING_BYTES: u32 = 1 << 16;

/// What was counted.
#[derive(Clone, Debug, Default)]
pub struct Sampled {
    /// How long.
    pub time: Duration,
    /// CPU time that the processes used meanwhile, the counting of their calls included.
    pub cpu: Duration,
    /// Calls of each region.
    pub calls: HashMap<RegionId, u64>,
}

/// Counts the calls that these processes make of what the plan holds; `emulated`: as
/// it was planned. It ends before its time when `stop` is set.
///
/// # Errors
/// The kernel refuses programs or probes.
pub fn sample(
    plan: &Plan,
    guard: &Guard,
    pids: &[u32],
    mechanism: Mechanism,
    emulated: Emulation,
    duration: Duration,
    stop: &AtomicBool,
) -> anyhow::Result<Sampled> {
    let counting = enters_only(plan);
    let (sender, receiver) = channel();
    let sink = Count { pids: pids.to_vec(), rows: HashMap::new(), armed: None, disarmed: None, result: sender };
    let (counters, watches) = (Counters::default(), Watches::default());
    let how = Options {
        ring_bytes: RING_BYTES,
        ends_with_first: true,
        profile: Some(ProfileOptions { max_paths: MAX_ROWS, written_from: None }),
        duration: Some(duration),
        ..Options::default()
    };
    let setup = Setup {
        how: &how,
        subject: Subject::Processes(pids),
        observer: privilege::observer()?,
        mechanism,
        hooks: false,
        emulated,
        counters: &counters,
        watches: &watches,
        words: 0,
        at_return: Keeps::default(),
        stubs: None,
        guard,
        command: &[],
        command_files: &[],
    };
    let late_loads = LateLoads::beyond(&counting, &[], plan::Options::default(), false);
    let extras = Extras { late_loads, samplers: Samplers::default() };
    recorder::record(recorder::load(&setup)?, &counting, &setup, extras, vec![Box::new(sink)], stop, || Ok(()))?;
    receiver.recv().context("failed to count calls: the processes have ended")
}

fn enters_only(plan: &Plan) -> Plan {
    let mut plan = plan.clone();
    for planned in plan.libraries.iter_mut().flat_map(|library| &mut library.regions) {
        planned.exit = Exit::EntryOnly;
        planned.region.exit = planned.exit.policy();
    }
    plan
}

/// A moment, with the CPU time that the processes had used until then.
type Moment = (Timestamp, Duration);

struct Count {
    pids: Vec<u32>,
    rows: HashMap<(LocationId, PathId), (RegionId, u64)>,
    armed: Option<Moment>,
    disarmed: Option<Moment>,
    result: Sender<Sampled>,
}

impl Sink for Count {
    fn calls(&mut self, _: &Batch) -> Result<(), SinkError> {
        Ok(())
    }

    fn profile(&mut self, paths: &[PathProfile]) -> Result<(), SinkError> {
        self.rows.extend(paths.iter().map(|path| ((path.location, path.path), (path.region, path.calls))));
        Ok(())
    }

    fn event(&mut self, event: &Event) -> Result<(), SinkError> {
        let moment =
            || Some((event.time, self.pids.iter().filter_map(|&pid| cpu_time(pid)).map(Duration::from_nanos).sum()));
        match event.kind {
            EventKind::Armed => self.armed = moment(),
            EventKind::Disarmed => self.disarmed = moment(),
            _ => {}
        }
        Ok(())
    }

    fn finish(&mut self, _: &Summary) -> Result<(), SinkError> {
        let (Some(from), Some(to)) = (self.armed, self.disarmed) else { return Ok(()) };
        let mut calls = HashMap::new();
        for &(region, count) in self.rows.values() {
            *calls.entry(region).or_default() += count;
        }
        let time = Duration::from_nanos(to.0.since(from.0));
        // Whoever asked waits for it.
        let _ = self.result.send(Sampled { time, cpu: to.1.saturating_sub(from.1), calls });
        Ok(())
    }
}
