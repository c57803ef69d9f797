//! Which recording a report is about: of what, where, when, how long, and whether it is complete.

use super::part::{Part, duration};
use rtrace_exporters::TraceSet;
use rtrace_model::{Process, escape, format_ns, names};
use serde::Serialize;

/// Programs that a line names.
const NAMED: usize = 3;

/// A recording, or several as one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct About {
    /// The command that was recorded with its arguments; none where running processes were.
    command: Vec<String>,
    /// The programs that made calls, as they were called.
    programs: Vec<String>,
    host: String,
    kernel: String,
    /// Nanoseconds since 1970-01-01 UTC.
    begin_realtime_ns: u64,
    /// From the first begin to the last end; absent of a recording that has not ended.
    pub(super) duration_ns: Option<u64>,
    /// The part of it that a report is of, if it is not all.
    #[serde(flatten)]
    part: Option<PartOf>,
    /// Whether no call is missing; absent of a recording that has not ended, as the following are.
    complete: Option<bool>,
    calls: Option<u64>,
    functions: Option<u64>,
    threads: Option<u64>,
    lost: Option<u64>,
    /// Whether all that a command did was recorded, from its start to its end.
    #[serde(skip)]
    pub(super) is_whole: bool,
}

/// Nanoseconds after the start of the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct PartOf {
    from_ns: Option<u64>,
    to_ns: Option<u64>,
}

impl About {
    pub(super) fn new(trace: &TraceSet) -> About {
        let (header, summary) = (trace.header(), trace.summary());
        About {
            command: header.command.clone(),
            programs: programs(trace),
            host: header.host.clone(),
            kernel: header.kernel.clone(),
            begin_realtime_ns: header.begin.realtime_ns,
            duration_ns: duration(trace),
            part: None,
            complete: summary.map(|summary| summary.is_complete()),
            calls: summary.map(|summary| summary.calls),
            functions: summary.map(|summary| summary.regions),
            threads: summary.map(|summary| summary.locations),
            lost: summary.map(|summary| summary.lost()),
            is_whole: !header.command.is_empty() && first(trace).is_some_and(|process| process.exit_code.is_some()),
        }
    }

    /// The same of a part of the time.
    pub(super) fn of_part(self, part: Option<Part>) -> About {
        let is_whole = self.is_whole && part.is_none();
        About { part: part.map(|Part { from, to }| PartOf { from_ns: from, to_ns: to }), is_whole, ..self }
    }

    /// Nanoseconds of the time that is reported; 0 of a recording that has not ended.
    pub(super) fn length(&self) -> u64 {
        let duration = self.duration_ns.unwrap_or(0);
        self.part.map_or(duration, |part| Part { from: part.from_ns, to: part.to_ns }.length(duration))
    }

    /// One line, in which a long command is cut so that the line has at most `width` cells.
    pub(super) fn line(&self, width: Option<usize>) -> String {
        let mut place = format!(" on {} (Linux {})", escape(&self.host), escape(&self.kernel));
        if let Some(duration) = self.duration_ns {
            place.push_str(&format!(", recorded for {}", format_ns(duration)));
        }
        let what = self.what();
        let what = match width {
            Some(width) => names::beginning(&what, width.saturating_sub(place.len()).max(WHAT)),
            None => what,
        };
        what + &place
    }

    fn what(&self) -> String {
        if !self.command.is_empty() {
            let words = self.command.iter().flat_map(|word| word.split_whitespace());
            return escape(&words.collect::<Vec<_>>().join(" ")).into_owned();
        }
        let mut what = self.programs.iter().take(NAMED).map(|program| escape(program)).collect::<Vec<_>>().join(", ");
        match self.programs.len().saturating_sub(NAMED) {
            0 if what.is_empty() => what.push_str("no program with a traced call"),
            0 => {}
            1 => what.push_str(" and 1 more program"),
            more => what.push_str(&format!(" and {more} more programs")),
        }
        what
    }
}

#[cfg(test)]
impl About {
    /// A recording that there never was.
    pub(super) fn made_up() -> About {
        About {
            programs: vec!["fftw_demo".to_owned()],
            host: "box".to_owned(),
            kernel: "6.18".to_owned(),
            duration_ns: Some(3_028_000_000),
            ..About::default()
        }
    }
}

/// Cells that the command keeps on a narrow terminal.
const WHAT: usize = 30;

/// The process that started first: of a command its own.
fn first(trace: &TraceSet) -> Option<&Process> {
    trace.processes().iter().min_by_key(|process| (process.start, process.pid))
}

/// The programs of all threads with calls, each once.
fn programs(trace: &TraceSet) -> Vec<String> {
    let processes = trace.locations().iter().filter_map(|location| trace.process_of(location));
    let mut programs: Vec<String> = processes.map(|process| process.name().to_owned()).collect();
    programs.sort_unstable();
    programs.dedup();
    programs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_command_is_cut_to_the_width() {
        let command = ["python3", "-c", "import zlib\n for i in range(1000):\n  zlib.crc32(b'')"];
        let about = About {
            command: command.map(str::to_owned).into(),
            host: "box".to_owned(),
            kernel: "6.18".to_owned(),
            duration_ns: Some(1_500_000),
            ..About::default()
        };
        let whole =
            "python3 -c import zlib for i in range(1000): zlib.crc32(b'') on box (Linux 6.18), recorded for 1.500 ms";
        assert_eq!(about.line(None), whole);
        assert_eq!(about.line(Some(80)).chars().count(), 80);
        assert!(about.line(Some(80)).starts_with("python3 -c import zlib "));
    }

    #[test]
    fn many_programs_are_counted() {
        let of =
            |count: usize| About { programs: (0..count).map(|n| n.to_string()).collect(), ..About::default() }.what();
        assert_eq!(of(3), "0, 1, 2");
        assert_eq!(of(4), "0, 1, 2 and 1 more program");
        assert_eq!(of(9), "0, 1, 2 and 6 more programs");
        assert_eq!(of(0), "no program with a traced call");
    }
}
