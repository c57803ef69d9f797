//! Stops a thread of a program for a moment where it is about to leave the kernel (`ptrace(2)`): nobody but the thread that
//! stops it is told.

use std::io;
use std::mem::MaybeUninit;

use crate::target::descendants::parent_of;

/// What a thread has stopped for otherwise has more than a signal's number.
const MOST_SIGNAL: libc::c_int = 127;

/// A thread that stops, or has stopped. It goes on when this goes, and when the thread of rtrace ends that stops it.
pub struct ThreadStop {
    thread: libc::pid_t,
    /// It stands for a child of rtrace, whose end somebody else here waits for.
    is_child: bool,
    has_left: bool,
}

impl ThreadStop {
    /// Stops a thread of a process as soon as it leaves the kernel; none where the system does not permit it, or somebody
    /// traces the thread already.
    pub fn of(pid: u32, thread: u32) -> Option<ThreadStop> {
        // In another namespace of processes the number may mean another thread.
        let is_known = std::fs::exists(format!("/proc/{pid}/task/{thread}")).unwrap_or(false);
        let thread = is_known.then_some(thread.cast_signed())?;
        ask(libc::PTRACE_SEIZE, thread).ok()?;
        let is_child = thread.cast_unsigned() == pid && parent_of(pid) == Some(std::process::id());
        let stop = ThreadStop { thread, is_child, has_left: false };
        // If that is refused, the thread has ended, and is let go.
        ask(libc::PTRACE_INTERRUPT, thread).ok().map(|()| stop)
    }

    /// Whether the thread executes nothing more: it has stopped, or it has ended.
    pub fn is_reached(&self) -> bool {
        self.state().is_none_or(|(code, _)| code != 0)
    }

    /// What has become of the thread (`CLD_*`, and a signal or the like); 0: it still runs in the kernel. None where it is
    /// not there any more.
    fn state(&self) -> Option<(libc::c_int, libc::c_int)> {
        self.wait(libc::WEXITED | libc::WSTOPPED | libc::WNOWAIT)
    }

    /// As [`state`](ThreadStop::state), of what these flags ask for.
    fn wait(&self, flags: libc::c_int) -> Option<(libc::c_int, libc::c_int)> {
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        let flags = flags | libc::WNOHANG | libc::__WALL;
        // SAFETY: the kernel fills the structure, of which zeros are a value.
        unsafe {
            let waited = libc::waitid(libc::P_PID, self.thread.cast_unsigned(), info.as_mut_ptr(), flags);
            (waited == 0).then(|| info.assume_init()).map(|info| (info.si_code, info.si_status()))
        }
    }

    /// The signal at which the thread has stopped, as it came before; 0: none.
    fn signal(&self) -> libc::c_int {
        match self.state() {
            Some((libc::CLD_TRAPPED, signal @ 1..=MOST_SIGNAL)) => signal,
            _ => 0,
        }
    }

    /// Lets the thread go on, once it has stopped. False: it was killed meanwhile, and has not ended yet. Its parent is told of
    /// its end only once we have taken note of that, so this is to be called again.
    pub fn let_go(&mut self) -> bool {
        self.has_left = self.has_left
            || ask_with(libc::PTRACE_DETACH, self.thread, self.signal()).is_ok()
            || self.is_child
            || self.wait(libc::WEXITED).is_none_or(|(code, _)| code != 0);
        self.has_left
    }
}

impl Drop for ThreadStop {
    fn drop(&mut self) {
        self.let_go();
    }
}

fn ask(request: libc::c_uint, thread: libc::pid_t) -> io::Result<()> {
    ask_with(request, thread, 0)
}

fn ask_with(request: libc::c_uint, thread: libc::pid_t, number: libc::c_int) -> io::Result<()> {
    // SAFETY: none of the requests made here takes memory.
    match unsafe { libc::ptrace(request, thread, 0, libc::c_long::from(number)) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};
    use std::thread::sleep;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_thread_stops_and_goes_on() {
        let mut cat = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let stop = ThreadStop::of(cat.id(), cat.id()).expect("a child may be stopped");
        while !stop.is_reached() {
            sleep(Duration::from_millis(1));
        }
        assert_eq!(stop.state().map(|(code, _)| code), Some(libc::CLD_TRAPPED));
        assert!(ThreadStop::of(cat.id(), cat.id()).is_none(), "it is stopped already");
        drop(cat.stdin.take());
        sleep(Duration::from_millis(20));
        assert_eq!(stop.state().map(|(code, _)| code), Some(libc::CLD_TRAPPED), "it executes nothing");
        drop(stop);
        assert!(cat.wait().unwrap().success());
    }

    #[test]
    fn a_thread_that_is_killed_meanwhile_is_left_to_its_parent() {
        let mut cat = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let stop = ThreadStop::of(cat.id(), cat.id()).expect("a child may be stopped");
        cat.kill().unwrap();
        while stop.state().is_some_and(|(code, _)| code != libc::CLD_KILLED) {
            sleep(Duration::from_millis(1));
        }
        assert!(stop.is_reached());
        drop(stop);
        assert!(!cat.wait().unwrap().success());
    }

    #[test]
    fn the_parent_of_a_thread_that_takes_long_to_end_is_told_of_it() {
        // `dd` waits with much memory, which the kernel takes a while to free.
        let script = "{ dd if=/dev/zero bs=512M 2>/dev/null & echo $! >&2; wait $!; echo told >&2; } | sleep 9";
        let mut shell = Command::new("sh").args(["-c", script]).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(shell.stderr.take().unwrap()).lines().map(Result::unwrap);
        let pid: u32 = lines.next().unwrap().parse().unwrap();
        let memory = || -> Option<u64> {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
            status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?.trim().strip_suffix(" kB")?.parse().ok()
        };
        while memory().is_none_or(|kilobytes| kilobytes < 512 << 10) {
            sleep(Duration::from_millis(10));
        }
        let mut stop = ThreadStop::of(pid, pid).expect("a process may be stopped");
        while !stop.is_reached() {
            sleep(Duration::from_millis(1));
        }
        // SAFETY: it is the child of the shell.
        assert_eq!(unsafe { libc::kill(pid.cast_signed(), libc::SIGKILL) }, 0);
        let mut asked = 1;
        while !stop.let_go() {
            asked += 1;
            sleep(Duration::from_millis(1));
        }
        assert!(asked > 1, "it had ended at once");
        assert!(lines.any(|line| line == "told"), "behind what the shell says of it");
        shell.kill().unwrap();
        shell.wait().unwrap();
    }
}
