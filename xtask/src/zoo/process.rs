//! A program of the zoo that runs.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// Longest time for anything.
const PATIENCE: Duration = Duration::from_secs(120);

/// What a program printed, and how it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran {
    /// Without what it says for others: that it is ready, and the truth.
    pub stdout: Vec<String>,
    pub status: ExitStatus,
}

impl Ran {
    /// How it differs from what was wanted: the first line that does, else the status.
    pub fn unlike(&self, wanted: &Ran) -> Option<String> {
        let line = |lines: &[String], place: usize| lines.get(place).cloned().unwrap_or_default();
        let longest = self.stdout.len().max(wanted.stdout.len());
        let pairs = (0..longest).map(|place| (line(&self.stdout, place), line(&wanted.stdout, place)));
        let of_output = pairs.into_iter().find(|(found, wanted)| found != wanted);
        let of_output = of_output.map(|(found, wanted)| format!("`{found}`, not `{wanted}`"));
        let of_status = (self.status != wanted.status).then(|| format!("{}, not {}", self.status, wanted.status));
        let differences: Vec<String> = [of_output, of_status].into_iter().flatten().collect();
        (!differences.is_empty()).then(|| differences.join(", "))
    }
}

/// What a program tells of its calls of a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Truth {
    pub calls: u64,
    /// Of these, calls that a jump or an exception left.
    pub left: u64,
}

/// Truths by function; several lines of one function add up.
pub type Truths = BTreeMap<String, Truth>;

/// Takes the truth out of what was printed.
pub fn told(lines: &[String]) -> Truths {
    let mut truths = Truths::new();
    for line in lines.iter().filter_map(|line| line.strip_prefix("truth ")) {
        let mut words = line.rsplitn(3, ' ').collect::<Vec<_>>();
        words.reverse();
        let number = |word: Option<&&str>| word.and_then(|word| word.parse().ok());
        // A name may hold blanks: the numbers stand at the end.
        let (name, calls, left) = match (words.as_slice(), number(words.get(1)), number(words.get(2))) {
            ([name, ..], Some(calls), Some(left)) => ((*name).to_owned(), calls, left),
            _ => match line.rsplit_once(' ') {
                Some((name, calls)) => (name.to_owned(), calls.parse().unwrap_or_default(), 0),
                None => continue,
            },
        };
        let truth = truths.entry(name).or_default();
        truth.calls += calls;
        truth.left += left;
    }
    truths
}

/// Whether a line says nothing about what the program computes.
pub fn is_talk(line: &str) -> bool {
    line.starts_with("ready") || line.starts_with("truth ")
}

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

    /// Starts a command of which `of` is heard.
    pub fn listen<R: Read + Send + 'static>(
        command: &mut Command,
        of: impl FnOnce(&mut Child) -> Option<R>,
    ) -> Result<Running> {
        let shown = crate::process::shown(command);
        let mut child = super::apart(command)
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
        let deadline = Instant::now() + PATIENCE;
        while !self.seen.last().is_some_and(|line| line.contains(text)) {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => self.seen.push(line),
                Err(RecvTimeoutError::Timeout) => bail!("failed to hear `{text}`: it hangs"),
                Err(RecvTimeoutError::Disconnected) => {
                    bail!("failed to hear `{text}`: {}", self.seen.join(" / "));
                }
            }
        }
        Ok(())
    }

    /// The process to trace: the one that was started, or the one that it named.
    pub fn pid(&self) -> u32 {
        let named = self.seen.iter().find_map(|line| line.strip_prefix("ready ")?.trim().parse().ok());
        named.unwrap_or(self.child.id())
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
        if let Some(pid) = Pid::from_raw(self.child.id().cast_signed()) {
            let _ = kill_process(pid, Signal::INT);
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

    /// Waits for the end of a program of the zoo.
    pub fn finish(self) -> Result<Ran> {
        let (lines, status) = self.end()?;
        Ok(Ran { stdout: lines.into_iter().filter(|line| !is_talk(line)).collect(), status })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_that_differs_and_the_status_are_told() {
        use std::os::unix::process::ExitStatusExt as _;

        let ran = |lines: &[&str], status| Ran {
            stdout: lines.iter().map(|&line| line.to_owned()).collect(),
            status: ExitStatus::from_raw(status),
        };
        assert_eq!(ran(&["a"], 0).unlike(&ran(&["a"], 0)), None);
        let difference = ran(&["a", "b"], 5).unlike(&ran(&["a", "c", "d"], 256)).expect("they differ");
        assert_eq!(difference, "`b`, not `c`, signal: 5 (SIGTRAP), not exit status: 1");
        assert!(ran(&["a"], 0).unlike(&ran(&["a", "b"], 0)).is_some());
    }

    #[test]
    fn truths_add_up_and_names_may_hold_blanks() {
        let lines = ["truth f 3", "truth f 4 1", "truth g(int, long) 2", "truth nonsense", "sum 3"];
        let truths = told(&lines.map(str::to_owned));
        assert_eq!(truths["f"], Truth { calls: 7, left: 1 });
        assert_eq!(truths["g(int, long)"], Truth { calls: 2, left: 0 });
        assert_eq!(truths.len(), 2);
    }
}
