//! The time in which calls are recorded: from arming to the last record.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use rtrace_bpf::Error;
use rtrace_model::{EventKind, Item, LocationId, SAMPLE_PERIOD, Timestamp};

use super::Recording;
use super::announcements::Announcements;
use super::governing::{Governing, tell_overhead};
use super::members::Members;
use super::notice::{Notice, SampledOverhead};
use crate::host;
use crate::record::attach::{Admitted, Attachment};
use crate::record::cpu_clock::CpuClock;
use crate::record::late_loads::{LateLoad, LateLoadFeed, MissedLibrary};
use crate::record::pipeline::Pipeline;
use crate::record::source::{Change, Drained, Source};
use crate::samples::Samplers;
use crate::target::translators;
use crate::watch::Watching;

/// Time between two looks at what was read from the rings, and what else has happened.
const READ_PERIOD: Duration = Duration::from_millis(5);

/// Time between two ticks of the sinks.
const TICK_PERIOD: Duration = Duration::from_secs(1);

/// Time between two snapshots of the calls that run.
const SNAPSHOT_PERIOD: Duration = Duration::from_millis(250);

/// What tells threads that the recording is over, when it goes at the latest: who panics would wait for them forever.
pub struct Over<'a>(pub &'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A governor at work, and what tells it that the recording is over.
pub struct AtWork<'scope> {
    pub thread: ScopedJoinHandle<'scope, Result<Timestamp, Error>>,
    pub over: Over<'scope>,
}

/// Who says what tracing costs.
pub enum CostWatch<'a> {
    /// The governor, where there is a budget.
    Governor(&'a Governing),
    /// The recorder itself.
    Notice(Notice),
}

impl CostWatch<'_> {
    /// Learns of functions that have probes now.
    pub fn learn(&self, attachment: &mut Attachment) {
        if let CostWatch::Governor(governing) = self {
            governing.adopt(attachment.hand_over());
        }
    }
}

/// A recording whose calls are read.
pub struct ReadLoop<'r, 'a, 'p> {
    pub recording: &'r Recording<'a>,
    pub pipeline: &'r Pipeline,
    pub announcements: &'r mut Announcements<'p>,
    pub source: Source<'r>,
    pub feed: LateLoadFeed,
    pub watching: Watching<'r>,
    pub samplers: &'r mut Samplers,
    /// Where CPU time is sampled.
    pub cpu_clock: Option<CpuClock<'r>>,
    pub cost: CostWatch<'r>,
    pub members: Members<'r>,
    /// Libraries that get no probes any more, since that was told.
    pub unprobed: Vec<MissedLibrary>,
}

impl ReadLoop<'_, '_, '_> {
    /// Reads until it is time to stop, disarms, and gives what has been read. `released`: whether the command runs.
    ///
    /// # Errors
    /// A map of the programs cannot be read, probes cannot be placed, or what `released` says.
    pub fn read_all(
        mut self,
        released: anyhow::Result<()>,
        governor: Option<AtWork<'_>>,
        is_over: &dyn Fn() -> bool,
    ) -> anyhow::Result<Drained> {
        let ahead = host::run_first();
        let has_governed = || governor.as_ref().is_some_and(|governor| governor.thread.is_finished());
        let read =
            self.read_until(&|this| released.is_err() || is_over() || has_governed() || this.pipeline.has_failed());
        let disarmed = governor.map(|governor| self.end_governor(governor)).transpose()?;
        read?;
        self.recording.programs.disarm()?;
        drop(ahead);
        self.tell_cost();
        let disarmed = disarmed.unwrap_or_else(host::now);
        self.announcements.event_at(disarmed, None, EventKind::Disarmed);
        for kind in self.watching.finish()? {
            self.announcements.event(kind);
        }
        if let Some(clock) = self.cpu_clock.take() {
            clock.finish()?.into_iter().try_for_each(|samples| self.source.sampled(samples))?;
        }
        self.source.pass()?;
        let begun = self.begun();
        let missed = self.feed.finish(self.source.living(), begun);
        for missed in missed.into_iter().chain(std::mem::take(&mut self.unprobed)) {
            self.announcements.blind_window(missed);
        }
        self.hear_governor()?;
        self.sample();
        self.samplers.stop();
        self.announcements.samples(self.samplers);
        let regions = self.announcements.last_region().map_or(0, |last| last.index() + 1);
        let drained = self.source.drain(regions, disarmed);
        released?;
        Ok(drained?)
    }

    /// Hands on what happens until it `is_over`, or nothing more can happen.
    fn read_until(&mut self, is_over: &dyn Fn(&Self) -> bool) -> anyhow::Result<()> {
        let named = self.recording.setup.subject.pids();
        let begin = Instant::now();
        self.pipeline.send(Item::Samples(self.samplers.sample(named)));
        let (mut ticks, mut snapshots) = (0, 0);
        while !is_over(self) {
            thread::sleep(READ_PERIOD);
            self.source.pass()?;
            for samples in self.cpu_clock.iter().flat_map(CpuClock::heard) {
                self.source.sampled(samples)?;
            }
            self.announcements.samples(self.samplers);
            self.follow_processes()?;
            if begin.elapsed() >= TICK_PERIOD * (ticks + 1) {
                ticks += 1;
                self.sample();
                self.source.tick()?;
                self.tell_cost();
            }
            let ended = self.source.take_ended();
            self.tell_governor(ended);
            self.hear_governor()?;
            if self.pipeline.wants_running() && begin.elapsed() >= SNAPSHOT_PERIOD * (snapshots + 1) {
                snapshots += 1;
                self.source.snapshot()?;
            }
            let is_due = self.recording.setup.how.duration.is_some_and(|duration| begin.elapsed() >= duration);
            if is_due || self.all_have_ended() {
                break;
            }
        }
        Ok(())
    }

    /// Follows what has become of the processes, their code and their libraries.
    fn follow_processes(&mut self) -> anyhow::Result<()> {
        let followed = self.recording.followed;
        for pid in self.members.look(&mut self.source)? {
            let absent = self.announcements.libraries_without_probes(pid).into_iter();
            self.unprobed.extend(absent.map(|library| MissedLibrary { library, since: host::now() }));
        }
        if self.source.has_other_processes() {
            followed.keep(&self.source.living());
            if let Some(clock) = &self.cpu_clock {
                clock.follow(self.source.living());
            }
            let begun = self.begun();
            self.feed.set_processes(self.source.living(), begun, self.members.take_joined());
        }
        self.announcements.blind_children(followed);
        self.announcements.inspect(followed)?;
        let found: Vec<LateLoad> = self.feed.found().collect();
        found.iter().try_for_each(|late_load| self.join(late_load))?;
        let changes = self.source.changes();
        for &(pid, time, _) in changes.iter().filter(|(_, _, change)| *change == Change::Executed) {
            // What waits at no gate is looked at only now.
            if translators::of_executable(pid).is_some() {
                followed.leave(pid, time);
            }
        }
        self.watch(changes);
        Ok(())
    }

    /// Watches variables where the processes' memory has become another.
    fn watch(&mut self, changes: Vec<(u32, Timestamp, Change)>) {
        let ReadLoop { watching, feed, announcements, .. } = self;
        if !watching.is_wanted() {
            return;
        }
        let tell = |pid: u32, told: Vec<EventKind>| told.into_iter().for_each(|kind| announcements.event_in(pid, kind));
        for (pid, time, change) in changes {
            match change {
                Change::Forked { child } => tell(child, watching.forked(pid, child, time)),
                Change::Executed => tell(pid, watching.executed(pid, time)),
                Change::Withheld => watching.withhold(pid),
            }
        }
        for (pid, time) in feed.mapped() {
            tell(pid, watching.mapped(pid, time));
        }
    }

    /// Places probes in libraries that were loaded meanwhile. What they were called until now is not on record.
    fn join(&mut self, late_load: &LateLoad) -> anyhow::Result<()> {
        // There is no room for more, or the file is not what was looked at.
        let is_of_library = |error: &anyhow::Error| {
            let error = error.downcast_ref::<Error>();
            error.is_some_and(|error| error.is_shortage() || matches!(error, Error::Read { .. }))
        };
        let recording = self.recording;
        let admitted = recording.limit().map(Admitted::unknown);
        let attachment = match recording.attach(&late_load.plan, None, admitted.as_ref(), None) {
            Ok(attachment) => Some(attachment),
            // What is recorded already goes on to be.
            Err(error) if is_of_library(&error) => None,
            Err(error) => return Err(error),
        };
        let paths = || late_load.plan.libraries.iter().map(|planned| planned.library.path.clone());
        for library in paths() {
            self.announcements.blind_window(MissedLibrary { library, since: late_load.since });
        }
        // A process may map it where the kernel takes no probes.
        let pids = recording.followed.inspected();
        let has_probes = attachment.as_ref().is_some_and(|attachment| attachment.check(&pids).is_ok());
        if let Some(mut attachment) = attachment {
            self.cost.learn(&mut attachment);
            recording.actions.choose(&attachment.regions)?;
            self.announcements.announce(&late_load.plan, recording.captured, attachment);
        }
        if !has_probes {
            self.unprobed.extend(paths().map(|library| MissedLibrary { library, since: host::now() }));
        }
        Ok(())
    }

    /// Measures the processes and the machine.
    fn sample(&mut self) {
        self.pipeline.send(Item::Samples(self.samplers.sample(&self.source.living())));
    }

    /// Says what tracing costs, where no governor does.
    fn tell_cost(&mut self) {
        let CostWatch::Notice(notice) = &mut self.cost else { return };
        let Some(ticks) = self.recording.programs.ticks() else { return };
        let calls = self.source.calls_by_region().iter().sum();
        let sampled = notice.look(ticks, calls, SAMPLE_PERIOD.as_nanos() as f64);
        let SampledOverhead { overhead, samples, slower } = sampled;
        tell_overhead(self.pipeline, self.recording.overhead, &[overhead.in_percent(), samples, slower]);
        if let Some(percent) = notice.worth_saying(sampled) {
            self.announcements.event(EventKind::Slowdown { percent });
        }
    }

    /// Lets the governor know what runs. `ended`: threads that have ended since it was told last.
    fn tell_governor(&mut self, ended: Vec<LocationId>) {
        if let CostWatch::Governor(governing) = self.cost {
            governing.tell(self.source.living(), ended);
        }
    }

    fn hear_governor(&mut self) -> Result<(), Error> {
        match self.cost {
            CostWatch::Governor(governing) => governing.hear(self.pipeline, &mut self.source),
            CostWatch::Notice(_) => Ok(()),
        }
    }

    /// Waits for the governor to end; gives when nothing was governed any more.
    fn end_governor(&mut self, AtWork { thread, over }: AtWork<'_>) -> Result<Timestamp, Error> {
        drop(over);
        while !thread.is_finished() {
            thread::sleep(READ_PERIOD);
            self.source.pass()?;
            let ended = self.source.take_ended();
            self.tell_governor(ended);
        }
        super::joined(thread)
    }

    /// Children that have begun of late, if they are recorded.
    fn begun(&mut self) -> Vec<u32> {
        let begun = self.source.take_begun();
        if self.recording.setup.how.follow { begun } else { Vec::new() }
    }

    /// The kernel side knows which processes are left, though events may be lost.
    fn all_have_ended(&self) -> bool {
        let Recording { programs, setup, .. } = self.recording;
        match setup.how.outlasts_first() {
            true => !programs.traces_any() && !self.members.may_come(),
            false => setup.subject.pids().iter().all(|&pid| self.source.has_ended(pid)),
        }
    }
}
