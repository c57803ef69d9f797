//! Threads that make code writable in which there are probes: none executes anything more before they are gone. And children
//! that were just forked: none executes anything before it has its probes.
//!
//! Such a thread waits inside the kernel until it is about to be stopped, with a CPU to itself, and until then the kernel
//! neither places nor removes a probe. So who stops it does nothing else, from before the first probe until behind the
//! last one: two threads, on different halves of the CPUs, as the one that waits may keep either from its CPU. Probes are
//! taken out by who answers questions, as soon as it gets to it.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use rtrace_bpf::wire::CodeChangeRecord;
use rtrace_bpf::{Error, Programs, Tidings};
use rtrace_symbolizer::modules::{self, Module};
use rustix::event::{EventfdFlags, eventfd};
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::host;
use crate::target::stop::ThreadStop;

/// Time between two looks at threads that are being stopped, or may go on.
const LOOK: Duration = Duration::from_micros(100);

/// A thread waits for so long at most until it is to stop, or until its probes are gone where it cannot be stopped.
const LONGEST_WAIT_NS: u64 = 1_000_000_000;

/// A child is stopped for so long at most, wherever its probes are then: the kernel takes 5 us for each site. Where a budget
/// is to keep tracing from being noticed, no request is to wait longer for that.
const LONGEST_STOP: Duration = Duration::from_secs(1);
const LONGEST_WITHIN_BUDGET: Duration = Duration::from_millis(20);

/// What a thread is about to do to code, with what its process mapped before; a thread that makes it writable is stopped
/// behind that, if possible.
pub struct ChangedCode {
    /// Where, and who does so.
    pub record: CodeChangeRecord,
    pub modules: Arc<[Module]>,
    pub stop: Option<HeldThread>,
}

/// A thread that stops, or has stopped.
#[derive(Clone, Default)]
pub struct HeldThread(Arc<StopState>);

#[derive(Default)]
struct StopState {
    is_reached: AtomicBool,
    is_over: AtomicBool,
}

impl HeldThread {
    /// Whether the thread executes nothing more.
    pub fn is_reached(&self) -> bool {
        self.0.is_reached.load(Ordering::Acquire)
    }

    /// The thread goes on. Otherwise it does when no thread is stopped any more.
    pub fn end(self) {
        self.0.is_over.store(true, Ordering::Release);
    }
}

/// A thread that stops, or has stopped, and who is told; of a child, also which, and since when.
struct Stopped {
    thread: ThreadStop,
    stop: HeldThread,
    child: Option<(u32, Instant)>,
}

/// Children that were just forked, and are stopped.
#[derive(Clone, Default)]
pub struct StoppedChildren(Arc<Mutex<HashMap<u32, HeldThread>>>);

impl StoppedChildren {
    fn add(&self, pid: u32, stop: HeldThread) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(pid, stop);
    }

    /// A child goes on, if it is stopped.
    pub fn let_go(&self, pid: u32) {
        let stop = self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&pid);
        stop.into_iter().for_each(HeldThread::end);
    }
}

/// What is known of threads that change code.
pub struct Writers<'a> {
    programs: &'a Programs,
    /// Who holds it takes what the kernel side tells.
    changes: Mutex<Vec<ChangedCode>>,
    /// Can be read while there are some.
    has_changes: OwnedFd,
    /// Can be read once no thread is to be stopped any more.
    is_over: OwnedFd,
    children: StoppedChildren,
    longest_stop: Duration,
}

/// Threads that stop others; these go on when this goes.
pub struct Stoppers<'scope, 'a> {
    writers: &'scope Writers<'a>,
    threads: Vec<ScopedJoinHandle<'scope, Result<(), Error>>>,
}

impl<'a> Writers<'a> {
    /// None is known; `is_within_budget`: tracing is not to be noticed.
    ///
    /// # Errors
    /// There is no descriptor left.
    pub fn new(programs: &'a Programs, is_within_budget: bool) -> rustix::io::Result<Writers<'a>> {
        Ok(Writers {
            programs,
            changes: Mutex::default(),
            has_changes: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            is_over: eventfd(0, EventfdFlags::CLOEXEC)?,
            children: StoppedChildren::default(),
            longest_stop: if is_within_budget { LONGEST_WITHIN_BUDGET } else { LONGEST_STOP },
        })
    }

    /// From now on threads that make code writable are stopped.
    pub fn stop_all<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) -> Stoppers<'scope, 'a> {
        let halves = host::halves_of_cpus().map_or_else(|| vec![None], |halves| halves.map(Some).to_vec());
        let threads = halves.into_iter().map(|cpus| scope.spawn(move || self.stop_some(cpus))).collect();
        self.programs.wait_for_writers(LONGEST_WAIT_NS);
        Stoppers { writers: self, threads }
    }

    /// The children that are stopped.
    pub fn children(&self) -> StoppedChildren {
        self.children.clone()
    }

    /// What threads were about to do since the last call.
    pub fn take(&self) -> Vec<ChangedCode> {
        // There was nothing to read, or there is not any more.
        let _ = rustix::io::read(&self.has_changes, &mut [0; 8]);
        std::mem::take(&mut *self.changes())
    }

    fn changes(&self) -> MutexGuard<'_, Vec<ChangedCode>> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops the threads of which the others have not heard.
    fn stop_some(&self, cpus: Option<CpuSet>) -> Result<(), Error> {
        let _ahead = host::run_before_all();
        if let Some(cpus) = cpus {
            // Else it may be late.
            let _ = sched_setaffinity(None, &cpus);
        }
        let mut told = self.programs.code_changes()?;
        let mut stopped: Vec<Stopped> = Vec::new();
        while !host::wait([self.is_over.as_fd()], Some(Duration::ZERO)) {
            // Who takes a lock in vain may lose its CPU to a thread that waits for the other one.
            if host::wait([told.as_fd(), self.is_over.as_fd()], (!stopped.is_empty()).then_some(LOOK)) {
                self.hear(&mut told, &mut stopped)?;
            }
            for Stopped { thread, stop: HeldThread(state), child } in &stopped {
                state.is_reached.store(thread.is_reached(), Ordering::Release);
                if let Some((pid, _)) = child.filter(|(_, since)| since.elapsed() > self.longest_stop) {
                    self.programs.free_child(pid)?;
                    self.children.let_go(pid);
                }
            }
            // One that has not stopped yet would not be let go, but still stop.
            let is_done =
                |state: &StopState| [&state.is_over, &state.is_reached].iter().all(|is| is.load(Ordering::Acquire));
            stopped.retain_mut(|Stopped { thread, stop: HeldThread(state), .. }| !(is_done(state) && thread.let_go()));
        }
        Ok(())
    }

    /// Takes what the kernel side tells, and stops who is to be stopped.
    fn hear(&self, told: &mut Tidings<'_, CodeChangeRecord>, stopped: &mut Vec<Stopped>) -> Result<(), Error> {
        let mut changes = self.changes();
        for record in told.take()? {
            if record.is_inherited != 0 {
                stopped.extend(self.stop_child(record.pid)?);
                continue;
            }
            // It is code until the thread goes on.
            let modules = modules::of_process(record.pid).unwrap_or_default().into();
            let is_writable = record.is_sealed == 0;
            let mut stop = None;
            if is_writable && let Some(thread) = ThreadStop::of(record.pid, record.thread) {
                self.programs.let_write(record.thread)?;
                stopped.push(Stopped { thread, stop: stop.insert(HeldThread::default()).clone(), child: None });
            }
            changes.push(ChangedCode { record, modules, stop });
            // There is room for more than anybody can ask.
            let _ = rustix::io::write(&self.has_changes, &1_u64.to_ne_bytes());
        }
        Ok(())
    }

    /// Stops a child that was just forked; none where it already has its probes, or cannot be stopped.
    fn stop_child(&self, pid: u32) -> Result<Option<Stopped>, Error> {
        let mut stopped = None;
        let waits = self.programs.stop_child(pid, || {
            stopped = ThreadStop::of(pid, pid).map(|thread| {
                let stop = HeldThread::default();
                self.children.add(pid, stop.clone());
                Stopped { thread, stop, child: Some((pid, Instant::now())) }
            });
            stopped.is_some()
        })?;
        if !waits {
            self.children.let_go(pid);
        }
        Ok(stopped)
    }
}

impl AsFd for Writers<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.has_changes.as_fd()
    }
}

impl Stoppers<'_, '_> {
    /// Threads go on that were stopped, and none is stopped any more.
    ///
    /// # Errors
    /// The kernel side could not be heard or told.
    pub fn end(mut self) -> Result<(), Error> {
        self.finish()
    }

    fn finish(&mut self) -> Result<(), Error> {
        self.writers.programs.wait_for_writers(0);
        // It is read by nobody, so that it stays so.
        let _ = rustix::io::write(&self.writers.is_over, &1_u64.to_ne_bytes());
        let join =
            |thread: ScopedJoinHandle<'_, _>| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        self.threads.drain(..).map(join).fold(Ok(()), Result::and)
    }
}

impl Drop for Stoppers<'_, '_> {
    fn drop(&mut self) {
        // What has failed before is said.
        let _ = self.finish();
    }
}
