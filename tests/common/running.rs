//! Programs that run beside a task or a test, which hears what they say.

#![allow(dead_code, reason = "tests and `cargo xtask demo` share it, and neither needs all of it")]

use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process, kill_process_group, set_parent_process_death_signal};

/// Longest time for anything.
const PATIENCE: Duration = Duration::from_secs(120);

/// A child process whose output is read all the time; it goes when this goes.
pub struct Running {
    child: Child,
    lines: Receiver<String>,
    seen: Vec<String>,
}

impl Running {
    /// Starts a program and waits until it is ready.
    pub fn start(command: &mut Command) -> Result<Running> {
        let mut running = Running::listen(command.stderr(Stdio::null()), |child| child.stdout.take())?;
        running.wait_for("ready")?;
        Ok(running)
    }

    /// Starts a command of which `of` is heard, and which is asked to end where the thread that calls this ends.
    pub fn listen<R: Read + Send + 'static>(
        command: &mut Command,
        of: impl FnOnce(&mut Child) -> Option<R>,
    ) -> Result<Running> {
        let shown = format!("{command:?}");
        // SAFETY: between fork and exec it does nothing but one system call.
        unsafe { command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::INT))?)) };
        let mut child = command
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("failed to start `{shown}`"))?;
        let output = of(&mut child).context("failed to hear a program: it has no such output")?;
        let (sender, lines) = channel();
        thread::spawn(move || read(output, &sender));
        Ok(Running { child, lines, seen: Vec::new() })
    }

    /// Waits for a line that contains `text`; fails where it ends without.
    pub fn wait_for(&mut self, text: &str) -> Result<()> {
        while !self.seen.last().is_some_and(|line| line.contains(text)) {
            self.next_line(text)?;
        }
        Ok(())
    }

    /// The next line, which is about `subject`; fails where it ends without.
    pub fn next_line(&mut self, subject: &str) -> Result<&str> {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => self.seen.push(line),
            Err(RecvTimeoutError::Timeout) => bail!("failed to hear `{subject}`: it hangs"),
            Err(RecvTimeoutError::Disconnected) => bail!("failed to hear `{subject}`: {}", self.seen.join(" / ")),
        }
        Ok(self.seen.last().map_or("", String::as_str))
    }

    /// The process to trace: the one that was started, or the one that it named.
    pub fn pid(&self) -> u32 {
        let named = self.seen.iter().find_map(|line| line.strip_prefix("ready ")?.trim().parse().ok());
        named.unwrap_or(self.child.id())
    }

    /// Writes to its standard input, which stays open.
    pub fn tell(&mut self, text: &str) -> Result<()> {
        let input = self.child.stdin.as_mut().context("failed to tell a program something: it is to end")?;
        input.write_all(text.as_bytes()).and_then(|()| input.flush()).context("failed to tell a program something")
    }

    /// Lets the program work.
    pub fn go_on(mut self) -> Result<Running> {
        let mut input = self.child.stdin.take().context("failed to let it go on: twice")?;
        // One that has ended reads nothing.
        let _ = input.write_all(b"\n");
        Ok(self)
    }

    /// Asks it to end, as the terminal does.
    pub fn interrupt(&self) {
        self.signal(Signal::INT);
    }

    /// Asks it to end, as who has started it does: one in the background of a shell ignores the terminal.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Ends it, and nothing that it has started, where it stands.
    pub fn kill(&self) {
        self.signal(Signal::KILL);
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = Pid::from_raw(self.child.id().cast_signed()) {
            let _ = kill_process(pid, signal);
        }
    }

    /// Waits for its end: all that was heard, and its status.
    pub fn end(mut self) -> Result<(Vec<String>, ExitStatus)> {
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().context("failed to wait for a program")? {
                break status;
            }
            if Instant::now() > deadline {
                bail!("failed to see the end: it hangs");
            }
            thread::sleep(Duration::from_millis(5));
        };
        // What it left behind may hold the output open for long.
        while let Ok(line) = self.lines.recv_timeout(Duration::from_secs(2)) {
            self.seen.push(line);
        }
        Ok((std::mem::take(&mut self.seen), status))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // With what it has started; it leads a group of its own.
        if let Some(group) = Pid::from_raw(self.child.id().cast_signed()) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.wait();
    }
}

fn read(output: impl Read, lines: &Sender<String>) {
    for line in BufReader::new(output).split(b'\n').map_while(std::result::Result::ok) {
        if lines.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
            return;
        }
    }
}
