//! Samples of where the traced processes spend CPU time while their calls are recorded.
//!
//! A thread of its own takes them: the kernel's answer may be slow, and calls must be read. Each has its time, by which it is
//! known what was mapped where it was taken.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

use rtrace_bpf::wire::PlaceKey;
use rtrace_bpf::{SampleDetail, Samples};
use rtrace_model::ContextId;

use crate::perf::clocks;
use crate::record::sample_stacks::SampleStacks;

/// Processes that are sampled at a time, at most.
const MOST_PROCESSES: u32 = 1 << 14;

/// Time between two looks at the samples, and for so long there is room for them.
const LOOK: Duration = Duration::from_millis(50);
const ROOM: Duration = Duration::from_secs(10);

/// What the clocks found.
#[derive(Default)]
pub struct TakenSamples {
    /// Each place with the number of samples there, and with what led there, where that is known.
    pub places: Vec<(PlaceKey, u64, Option<ContextId>)>,
    /// Samples so far that could not be noted.
    pub lost: u64,
}

/// Clocks that tick, and the thread that reads what they find.
pub struct CpuClock<'scope> {
    processes: Sender<Vec<u32>>,
    samples: Receiver<TakenSamples>,
    thread: ScopedJoinHandle<'scope, anyhow::Result<()>>,
}

impl<'scope> CpuClock<'scope> {
    /// Starts the clocks, so many samples a second of each CPU, for these processes; `stacks`: who walks their stacks, if that
    /// is asked for.
    ///
    /// # Errors
    /// The kernel refuses clocks or a program that they start.
    pub fn start(
        scope: &'scope Scope<'scope, '_>,
        hertz: u32,
        pids: Vec<u32>,
        mut stacks: Option<SampleStacks<'scope>>,
    ) -> anyhow::Result<CpuClock<'scope>> {
        let (processes, asked) = channel::<Vec<u32>>();
        let (sender, samples) = channel();
        let period = Duration::from_secs(1) / hertz.max(1);
        let detail = if stacks.is_some() { SampleDetail::Stack } else { SampleDetail::Time };
        let thread = scope.spawn(move || {
            let mut taken =
                move |Samples { places, stacks: sampled, lost }: Samples| -> Result<TakenSamples, rtrace_bpf::Error> {
                    let mut places: Vec<_> = places.into_iter().map(|(place, count)| (place, count, None)).collect();
                    if let Some(stacks) = &mut stacks {
                        places.extend(stacks.walk(sampled)?);
                    }
                    Ok(TakenSamples { places, lost })
                };
            clocks::with_clocks(period, (MOST_PROCESSES, false), (ROOM, detail), |mut sampling| {
                sampling.follow(&pids)?;
                // Nobody hears it any more where the recording has failed.
                let _ = sender.send(TakenSamples::default());
                loop {
                    match asked.recv_timeout(LOOK) {
                        Ok(pids) => sampling.follow(&pids)?,
                        Err(RecvTimeoutError::Timeout) => _ = sender.send(taken(sampling.take()?)?),
                        Err(RecvTimeoutError::Disconnected) => break,
                    }
                }
                let _ = sender.send(taken(sampling.end()?)?);
                Ok(())
            })
        });
        let clock = CpuClock { processes, samples, thread };
        match clock.samples.recv() {
            Ok(_) => Ok(clock),
            Err(_) => clock.finish().map(|_| unreachable!("what does not begin has failed")),
        }
    }

    /// Samples these processes from now on, and no others.
    pub fn follow(&self, pids: Vec<u32>) {
        // What keeps the thread from going on is said in the end.
        let _ = self.processes.send(pids);
    }

    /// What was found since the last call.
    pub fn heard(&self) -> impl Iterator<Item = TakenSamples> {
        self.samples.try_iter()
    }

    /// Stops the clocks, and gives what was found since the last call.
    ///
    /// # Errors
    /// The samples could not be read.
    pub fn finish(self) -> anyhow::Result<Vec<TakenSamples>> {
        drop(self.processes);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok(self.samples.iter().collect())
    }
}
