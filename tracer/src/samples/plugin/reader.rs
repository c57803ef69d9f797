//! Reads what a plug-in writes, on a thread of its own, in bounded memory.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read};
use std::sync::mpsc::{SyncSender, TrySendError};

use rtrace_model::{Metric, MetricId, Sample, Timestamp};

use super::line;
use crate::host;

/// Bytes of a line, at most; of longer ones the rest is skipped.
const LONGEST_LINE: u64 = 4096;

/// Series (a metric of an instance) that are told apart, at most.
const MOST_SERIES: usize = 1024;

/// Problems that are told; one line more says that there are others.
const MOST_PROBLEMS: u32 = 10;

/// What was heard.
#[derive(Debug)]
pub(super) enum PluginAnswer {
    /// The first line.
    Declared(Vec<Metric>),
    /// A value.
    Value(Sample),
    /// Something that cannot be used.
    Problem(String),
}

/// Reads until the output ends or nobody listens.
pub(super) fn read(output: impl Read, first: MetricId, heard: &SyncSender<PluginAnswer>) {
    let mut output = BufReader::new(output);
    let mut text = Vec::new();
    if !matches!(next_line(&mut output, &mut text), PluginLine::Whole) {
        return;
    }
    let metrics = match line::declaration(&String::from_utf8_lossy(&text), first) {
        Ok(metrics) => metrics,
        Err(problem) => {
            // Nobody listens only when rtrace ends.
            let _ = heard.send(PluginAnswer::Problem(problem));
            return;
        }
    };
    let mut listener = Listener { heard, problems: 0 };
    if heard.send(PluginAnswer::Declared(metrics.clone())).is_err() {
        return;
    }
    let mut series: HashMap<(MetricId, u32), Timestamp> = HashMap::new();
    loop {
        let line = match next_line(&mut output, &mut text) {
            PluginLine::End => return,
            PluginLine::TooLong => None,
            PluginLine::Whole => Some(String::from_utf8_lossy(&text)),
        };
        let sample = line.as_deref().and_then(|line| line::value(line, &metrics, host::now()));
        let told = match sample {
            Some(sample) if !is_in_order(&mut series, &sample) => {
                listener.problem("a value is older than the one before it, or of too many instances".to_owned())
            }
            Some(sample) => listener.value(sample),
            None => {
                let shown: String = line.unwrap_or_default().chars().take(40).collect();
                listener.problem(format!("a line cannot be understood: {shown}"))
            }
        };
        if told.is_err() {
            return;
        }
    }
}

fn is_in_order(series: &mut HashMap<(MetricId, u32), Timestamp>, sample: &Sample) -> bool {
    let key = (sample.metric, sample.instance);
    if !series.contains_key(&key) && series.len() == MOST_SERIES {
        return false;
    }
    let last = series.entry(key).or_insert(sample.time);
    let in_order = *last <= sample.time;
    *last = sample.time.max(*last);
    in_order
}

/// Nobody listens any more.
struct Gone;

struct Listener<'a> {
    heard: &'a SyncSender<PluginAnswer>,
    problems: u32,
}

impl Listener<'_> {
    fn value(&mut self, sample: Sample) -> Result<(), Gone> {
        match self.heard.try_send(PluginAnswer::Value(sample)) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(_)) => self.problem("values come too fast: some were dropped".to_owned()),
            Err(TrySendError::Disconnected(_)) => Err(Gone),
        }
    }

    /// Waits for room: problems are few.
    fn problem(&mut self, problem: String) -> Result<(), Gone> {
        self.problems = self.problems.saturating_add(1);
        let problem = match self.problems {
            number if number <= MOST_PROBLEMS => problem,
            number if number == MOST_PROBLEMS + 1 => "more problems follow, which are not told".to_owned(),
            _ => return Ok(()),
        };
        self.heard.send(PluginAnswer::Problem(problem)).map_err(|_| Gone)
    }
}

enum PluginLine {
    Whole,
    TooLong,
    End,
}

/// Reads a line without its end; of one that is too long, skips the rest.
fn next_line(output: &mut impl BufRead, text: &mut Vec<u8>) -> PluginLine {
    text.clear();
    match output.by_ref().take(LONGEST_LINE).read_until(b'\n', text) {
        Err(_) | Ok(0) => return PluginLine::End,
        Ok(_) if text.last() == Some(&b'\n') || (text.len() as u64) < LONGEST_LINE => return PluginLine::Whole,
        Ok(_) => {}
    }
    match output.skip_until(b'\n') {
        Ok(_) => PluginLine::TooLong,
        Err(_) => PluginLine::End,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;

    fn heard(output: &[u8]) -> (usize, Vec<String>) {
        let (sender, receiver) = sync_channel(1 << 16);
        read(output, MetricId(0), &sender);
        drop(sender);
        let (mut values, mut problems) = (0, Vec::new());
        for heard in receiver {
            match heard {
                PluginAnswer::Declared(_) => {}
                PluginAnswer::Value(_) => values += 1,
                PluginAnswer::Problem(problem) => problems.push(problem),
            }
        }
        (values, problems)
    }

    #[test]
    fn a_line_without_end_is_read_and_a_long_one_skipped() {
        let long = vec![b'x'; 3 * LONGEST_LINE as usize];
        let output = [b"metrics a:node:#\na 1\n".as_slice(), &long, b"\na 2"].concat();
        let (values, problems) = heard(&output);
        assert_eq!(values, 2);
        assert_eq!(problems, ["a line cannot be understood: "]);
    }

    #[test]
    fn hostile_output_is_told_in_few_lines() {
        let noise: Vec<u8> = (0..100_000_u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let (values, problems) = heard(&[b"metrics a:node:#\n".as_slice(), &noise].concat());
        assert_eq!(values, 0);
        assert_eq!(problems.len(), 11);
        assert!(problems.iter().all(|problem| problem.chars().count() < 100));
    }

    #[test]
    fn instances_are_bounded_and_times_do_not_run_back() {
        let many: String = (0..2000).map(|instance| format!("a 1 5 {instance}\n")).collect();
        let (values, problems) = heard(format!("metrics a:node:#\n{many}").as_bytes());
        assert_eq!((values, problems.len()), (MOST_SERIES, 11));
        let (values, problems) = heard(b"metrics a:node:#\na 1 5\na 1 4\na 1 5\n");
        assert_eq!((values, problems.len()), (2, 1));
    }
}
