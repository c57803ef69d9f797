//! What values add to a call, to its time and to its record.

use std::process::Command;

use anyhow::Result;

use super::figures::{Goal, Ratios};
use super::subject::Worker;
use super::{Bench, BenchLine};
use crate::files;

/// Calls of the function in a round.
const CALLS: f64 = 200_000.0;

/// What `pushes` of the program is called with.
const PROTOTYPE: &str = "void pushes(long a, long b, long c, long d, long e, const char *text)";

/// What is captured, with the most that it may add to a call, in nanoseconds, and to its record, in bytes.
struct CaptureCase {
    what: &'static str,
    captures: &'static str,
    most_time: Option<f64>,
    most_bytes: Option<f64>,
}

const KINDS: [CaptureCase; 3] = [
    CaptureCase { what: "three integers", captures: r#""a", "b", "c""#, most_time: None, most_bytes: Some(5.0) },
    CaptureCase {
        what: "six integers",
        captures: r#""a", "b", "c", "d", "e", "text""#,
        most_time: Some(80.0),
        most_bytes: None,
    },
    CaptureCase {
        what: "a text of 16 bytes",
        captures: r#""text:text(16)""#,
        most_time: Some(120.0),
        most_bytes: None,
    },
];

impl Bench {
    /// What values add to a call that has none.
    pub fn values(&self) -> Result<Vec<BenchLine>> {
        let mut subject = Worker::start(&mut Command::new(&self.program), "loop 1 200000\n")?;
        let mut selection = self.pushes();
        let table = self.folder.join("values.toml");
        let mut traced = |captures: Option<&str>| -> Result<(f64, f64)> {
            selection.options.clear();
            if let Some(captures) = captures {
                let text = format!("[[function]]\nc = \"{PROTOTYPE}\"\ncapture = [{captures}]\n");
                files::write(&table, text)?;
                selection.options = vec!["--args-from".to_owned(), table.display().to_string()];
            }
            let rtrace = self.tools.rtrace(subject.pid(), &selection)?;
            let time = subject.quickest()?;
            let recorded = self.tools.recorded(rtrace)?;
            Ok((time / CALLS, recorded.bytes as f64 / recorded.calls as f64))
        };
        let (mut times, mut bytes) = (vec![Vec::new(); KINDS.len()], vec![Vec::new(); KINDS.len()]);
        for _ in 0..self.rounds {
            let (time, size) = traced(None)?;
            for (place, kind) in KINDS.iter().enumerate() {
                let (with, bytes_with) = traced(Some(kind.captures))?;
                times[place].push(with - time);
                bytes[place].push(bytes_with - size);
            }
        }
        let line = |what: String, unit, rounds: Vec<f64>, most: Option<f64>, kind: &CaptureCase| BenchLine {
            what,
            unit,
            ratios: Ratios(rounds),
            goal: most.map(Goal),
            remark: format!("`capture = [{}]`", kind.captures),
        };
        let of = |((kind, times), bytes): ((&CaptureCase, Vec<f64>), Vec<f64>)| {
            [
                line(format!("added per call by {}", kind.what), "ns", times, kind.most_time, kind),
                line(format!("added to a record by {}", kind.what), "bytes", bytes, kind.most_bytes, kind),
            ]
        };
        Ok(KINDS.iter().zip(times).zip(bytes).flat_map(of).collect())
    }
}
