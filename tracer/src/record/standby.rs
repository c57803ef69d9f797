//! Sees to it that who answers questions has a CPU.
//!
//! Threads wait for answers inside the kernel, where many kernels do not switch from one thread to another, and a
//! thread that is woken is mostly to run where it ran last. So two threads wait for questions, on different halves of the
//! CPUs: the one that answers, and one that moves it to its own half if it cannot run where it is. That may happen
//! until the question is answered: who answers sleeps now and then, until the kernel has placed a probe or removed it.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io;
use rustix::thread::{CpuSet, Pid, gettid, sched_setaffinity};

use crate::host;

/// Longest wait for a question, and so for the end.
const PATIENCE: Duration = Duration::from_millis(20);

/// Time for the thread that answers to wake up where nobody keeps it from its CPU.
const AWAKENING: Duration = Duration::from_micros(30);

/// Time between two looks at a thread that answers.
const LOOK: Duration = Duration::from_micros(100);

/// What both threads know.
#[derive(Default)]
struct State {
    is_asleep: AtomicBool,
    /// How often the thread that answers has gone to sleep.
    sleeps: AtomicU64,
    is_over: AtomicBool,
}

/// A thread beside the one that answers.
pub(super) struct Standby {
    state: Arc<State>,
    watching: Option<JoinHandle<io::Result<()>>>,
}

impl Standby {
    /// Stands by the calling thread, if it may run on several CPUs; `questions` can be read while there are some.
    /// Without it, some answers are late.
    pub(super) fn beside(questions: BorrowedFd<'_>) -> Standby {
        let state = Arc::new(State::default());
        Standby { watching: Keeper::new(&state, questions).map(|watch| std::thread::spawn(|| watch.keep())), state }
    }

    /// Waits, on the thread that answers.
    pub(super) fn sleep(&self, wait: impl FnOnce()) {
        self.state.sleeps.fetch_add(1, Ordering::Relaxed);
        self.state.is_asleep.store(true, Ordering::Release);
        wait();
        self.state.is_asleep.store(false, Ordering::Release);
    }
}

impl Drop for Standby {
    fn drop(&mut self) {
        self.state.is_over.store(true, Ordering::Release);
        if let Some(Err(panic)) = self.watching.take().map(JoinHandle::join) {
            std::panic::resume_unwind(panic);
        }
    }
}

/// What the thread needs.
struct Keeper {
    state: Arc<State>,
    questions: OwnedFd,
    answering: Pid,
    /// Runs as long as that one does.
    run_clock: libc::clockid_t,
    /// The CPUs of the one that answers, and those of this one.
    halves: [CpuSet; 2],
}

impl Keeper {
    /// `None` where there is no choice between CPUs.
    fn new(state: &Arc<State>, questions: BorrowedFd<'_>) -> Option<Keeper> {
        let halves = host::halves_of_cpus()?;
        let questions = questions.try_clone_to_owned().ok()?;
        let mut run_clock = libc::CLOCK_THREAD_CPUTIME_ID;
        // SAFETY: this thread is there; the call writes a number.
        unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &mut run_clock) };
        Some(Keeper { state: Arc::clone(state), questions, answering: gettid(), run_clock, halves })
    }

    fn keep(mut self) -> io::Result<()> {
        let asked = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        // Each question wakes it once, also where the one before waits to be answered.
        let each = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&asked, self.questions.as_fd(), epoll::EventData::new_u64(0), each)?;
        let timeout = Timespec::try_from(PATIENCE).ok();
        let mut events = Vec::with_capacity(1);
        self.share()?;
        while !self.state.is_over.load(Ordering::Acquire) {
            events.clear();
            // A signal only makes the wait shorter.
            let count = epoll::wait(&asked, spare_capacity(&mut events), timeout.as_ref());
            if count.is_ok_and(|count| count > 0) {
                self.see_answered()?;
            }
        }
        Ok(())
    }

    fn share(&self) -> io::Result<()> {
        sched_setaffinity(Some(self.answering), &self.halves[0])?;
        sched_setaffinity(None, &self.halves[1])
    }

    /// Moves the thread that answers where it cannot run, until it has answered what was asked just now.
    fn see_answered(&mut self) -> io::Result<()> {
        if self.does_not_wake() {
            self.exchange()?;
        }
        // What comes while it answers others is taken after its next sleep.
        let answered = self.state.sleeps.load(Ordering::Acquire) + 2;
        let mut before = self.run_time();
        while self.state.sleeps.load(Ordering::Acquire) < answered
            && !self.state.is_asleep.load(Ordering::Acquire)
            && !self.state.is_over.load(Ordering::Acquire)
        {
            std::thread::sleep(LOOK);
            let now = self.run_time();
            if now == before && self.is_runnable() {
                self.exchange()?;
            }
            before = now;
        }
        Ok(())
    }

    /// This thread runs here, so the other one can.
    fn exchange(&mut self) -> io::Result<()> {
        self.halves.reverse();
        self.share()
    }

    /// How long the thread that answers has run.
    fn run_time(&self) -> Duration {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the call writes to the structure, which is as it expects it.
        unsafe { libc::clock_gettime(self.run_clock, &mut time) };
        Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
    }

    /// Whether the thread that answers could run.
    fn is_runnable(&self) -> bool {
        let status = std::fs::read_to_string(format!("/proc/self/task/{}/stat", self.answering.as_raw_nonzero()));
        status.is_ok_and(|text| text.rsplit(')').next().is_some_and(|rest| rest.starts_with(" R")))
    }

    /// Whether the thread that answers does not get to it.
    fn does_not_wake(&self) -> bool {
        let begin = Instant::now();
        while self.state.is_asleep.load(Ordering::Acquire) {
            if begin.elapsed() > AWAKENING {
                return true;
            }
            std::hint::spin_loop();
        }
        false
    }
}
