//! Metric plug-ins: programs that write values on their standard output.
//!
//! A plug-in is a shell command. It is started before the recording is armed, has a few seconds to
//! declare its metrics, and is ended (SIGTERM, then SIGKILL) with its children after the recording.
//! Its death and what cannot be understood are reported and fail nothing. What it writes is bounded
//! in every way: `docs/metrics.md` describes the lines and the limits.

mod line;
mod reader;

use std::io;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, sync_channel};
use std::time::{Duration, Instant};

use rtrace_model::{Metric, MetricId, Sample, escape};
use rustix::process::{Pid, Signal, kill_process_group};

use self::reader::PluginAnswer;
use crate::target::user::{self, User};

/// Time for the first line.
const PATIENCE: Duration = Duration::from_secs(5);

/// Time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(1);

/// Values that may wait; more are dropped and reported.
const WAITING: usize = 10_000;

/// Why a plug-in could not be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The shell does not start.
    #[error("failed to start the metric plug-in `{}`: {source}", escape(command))]
    Start {
        /// Its command.
        command: String,
        /// The cause.
        source: io::Error,
    },
    /// Its first line is none that declares metrics, or did not come.
    #[error("failed to start the metric plug-in `{}`: {}", escape(command), escape(problem))]
    Declaration {
        /// Its command.
        command: String,
        /// What is wrong.
        problem: String,
    },
}

/// Something about a plug-in that the user should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// Its command.
    pub command: String,
    /// What happened.
    pub problem: String,
}

/// A plug-in that runs.
#[derive(Debug)]
pub struct Plugin {
    command: String,
    child: Child,
    metrics: Vec<Metric>,
    heard: Receiver<PluginAnswer>,
    problems: Vec<String>,
    ended: bool,
}

impl Plugin {
    /// Starts the command, as this user or as us, and waits for its declaration; ids of its metrics count up from `first`.
    ///
    /// # Errors
    /// It does not start, or does not declare metrics.
    pub fn start(command: &str, user: Option<&User>, first: MetricId) -> Result<Plugin, Error> {
        let mut child = user::shell(command, user)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|source| Error::Start { command: command.to_owned(), source })?;
        let output = child.stdout.take().expect("it is piped");
        let (sender, heard) = sync_channel(WAITING);
        std::thread::spawn(move || reader::read(output, first, &sender));
        let mut plugin = Plugin {
            command: command.to_owned(),
            child,
            metrics: Vec::new(),
            heard,
            problems: Vec::new(),
            ended: false,
        };
        let problem = match plugin.heard.recv_timeout(PATIENCE) {
            Ok(PluginAnswer::Declared(metrics)) => {
                plugin.metrics = metrics;
                return Ok(plugin);
            }
            Ok(PluginAnswer::Problem(problem)) => problem,
            Ok(PluginAnswer::Value(_)) | Err(RecvTimeoutError::Disconnected) => "it ended without a line".to_owned(),
            Err(RecvTimeoutError::Timeout) => format!("it wrote no line within {} s", PATIENCE.as_secs()),
        };
        Err(Error::Declaration { command: command.to_owned(), problem })
    }

    /// What it measures.
    pub fn metrics(&self) -> &[Metric] {
        &self.metrics
    }

    /// The values since the last call.
    pub fn samples(&mut self) -> Vec<Sample> {
        let mut samples = Vec::new();
        loop {
            match self.heard.try_recv() {
                Ok(PluginAnswer::Value(sample)) => samples.push(sample),
                Ok(PluginAnswer::Problem(problem)) => self.problems.push(problem),
                Ok(PluginAnswer::Declared(_)) => {}
                Err(TryRecvError::Empty) => return samples,
                Err(TryRecvError::Disconnected) => {
                    if !std::mem::replace(&mut self.ended, true) {
                        self.problems.push("its output ended: no more values".to_owned());
                    }
                    return samples;
                }
            }
        }
    }

    /// What went wrong since the last call.
    pub fn trouble(&mut self) -> impl Iterator<Item = Trouble> {
        let command = self.command.clone();
        self.problems.drain(..).map(move |problem| Trouble { command: command.clone(), problem })
    }

    /// Ends it and its children.
    pub fn stop(&mut self) {
        // What ends from here on is our doing.
        self.ended = true;
        self.signal(Signal::TERM);
        let end = Instant::now() + GRACE;
        while Instant::now() < end && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(5));
        }
        self.signal(Signal::KILL);
        // It cannot fail but when somebody else has waited for it.
        let _ = self.child.wait();
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = Pid::from_raw(self.child.id().cast_signed()) {
            // A group that has ended needs none.
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn start(command: &str) -> Result<Plugin, Error> {
        Plugin::start(command, None, MetricId(5))
    }

    fn wait_for(plugin: &mut Plugin, count: usize) -> Vec<Sample> {
        let mut samples = Vec::new();
        let end = Instant::now() + PATIENCE;
        while samples.len() < count && Instant::now() < end {
            samples.extend(plugin.samples());
            std::thread::sleep(Duration::from_millis(5));
        }
        samples
    }

    #[test]
    fn values_come_with_their_metric_time_and_instance() {
        let mut plugin =
            start("echo 'metrics power:socket:W load:node:#'; echo 'load 0.5'; echo 'power 45 77 1'; sleep 100")
                .unwrap();
        let names: Vec<(&str, MetricId)> = plugin.metrics().iter().map(|m| (m.name.as_str(), m.id)).collect();
        assert_eq!(names, [("power", MetricId(5)), ("load", MetricId(6))]);
        let samples = wait_for(&mut plugin, 2);
        assert_eq!((samples[0].metric, samples[0].value, samples[0].instance), (MetricId(6), 0.5, 0));
        assert!(samples[0].time.0 > 77);
        assert_eq!((samples[1].metric, samples[1].time.0, samples[1].instance), (MetricId(5), 77, 1));
        let begin = Instant::now();
        plugin.stop();
        assert!(begin.elapsed() < GRACE, "SIGTERM ends it");
        assert_eq!(plugin.trouble().count(), 0);
    }

    #[test]
    fn death_is_reported_once_and_is_no_failure() {
        let mut plugin = start("echo 'metrics a:node:#'").unwrap();
        let end = Instant::now() + PATIENCE;
        let mut troubles: Vec<Trouble> = Vec::new();
        while troubles.is_empty() && Instant::now() < end {
            plugin.samples();
            troubles.extend(plugin.trouble());
        }
        plugin.samples();
        troubles.extend(plugin.trouble());
        assert_eq!(troubles.len(), 1);
        assert_eq!(troubles[0].problem, "its output ended: no more values");
    }

    #[test]
    fn a_plug_in_without_declaration_is_refused() {
        let refusal = |command| start(command).unwrap_err().to_string();
        assert!(refusal("true").ends_with("`true`: it ended without a line"), "{}", refusal("true"));
        assert!(refusal("echo hello").contains("the first line must begin with `metrics`"));
    }

    #[test]
    fn one_that_ignores_sigterm_is_killed_with_its_children() {
        let mut plugin = start("trap '' TERM; echo 'metrics a:node:#'; sleep 1000 & echo \"a $!\"; wait").unwrap();
        let pid = wait_for(&mut plugin, 1)[0].value as u32;
        plugin.stop();
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(crate::target::descendants::parent_of(pid), None, "it has ended");
    }
}
