//! `rtrace info`: what was recorded, when, where and how, and what is missing from it.

mod values;

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use rtrace_exporters::{Error, TraceSet};
use rtrace_model::{
    Estimate, EventKind, Loss, Missed, Untimed, Window, counted, escape, format_ns, grouped, text_of_os,
};
use serde::Serialize;

pub use self::values::{ValueInfo, ValuesOf};
use super::Look;
use super::overhead::Slowdown;
use super::part::duration;
use super::people::paint::{Tone, paint};
use super::people::wrapped;

/// What there is to know about a trace, or several as one.
#[derive(Debug, Serialize)]
pub struct Info {
    /// The recordings of which it is made.
    pub recordings: Vec<RecordingInfo>,
    /// Calls on record, each or folded by call path.
    pub calls: u64,
    /// From the first begin to the last end in nanoseconds, once ended.
    pub duration_ns: Option<u64>,
    /// The processes.
    pub processes: Vec<ProcessInfo>,
    /// Threads with calls.
    pub threads: usize,
    /// The libraries.
    pub libraries: Vec<LibraryInfo>,
    /// Calls beside these that a budget left without a record: counted exactly.
    pub counted: u64,
    /// Calls beside these that were outside of the functions within which calls were recorded.
    pub outside: u64,
    /// And not seen; absent where the budget left none out.
    pub missed: Option<Missed>,
    /// Functions that were left out.
    pub refused: usize,
    /// Calls and events known to be missing.
    pub losses: Vec<Loss>,
    /// Of the calls on record, how many were not timed, once the recording has ended.
    pub unseen: Option<u64>,
    /// Why calls were not timed.
    pub untimed: Vec<Untimed>,
    /// Libraries that ran for a time without their probes.
    pub blind_windows: Vec<BlindWindow>,
    /// Probes that the program wrote over: calls may be missing, or their returns.
    pub overwritten: u64,
    /// Programs of which nothing was recorded, as who recorded could not ptrace them.
    pub withheld: Vec<String>,
    /// Files that should be there and are not.
    pub warnings: Vec<String>,
    /// The functions whose arguments and results were recorded.
    pub values: Vec<ValuesOf>,
    /// Size of all files.
    pub bytes: u64,
    /// Size per call.
    pub bytes_per_call: Option<f64>,
    /// By how much tracing made the programs' CPU time longer, in percent; absent where nobody measured it.
    pub overhead_percent: Option<f64>,
    /// Between which that is, 95 times of 100; absent where it is not known, infinite at the end where the most is not.
    pub overhead_range_percent: Option<[f64; 2]>,
    /// The same for people.
    #[serde(skip)]
    pub(super) slowdown: Option<Slowdown>,
}

/// One recording.
#[derive(Debug, Serialize)]
pub struct RecordingInfo {
    /// Its directory.
    pub directory: String,
    /// `finished`, `recording` or `abandoned`.
    pub status: &'static str,
    /// When it began: nanoseconds since 1970-01-01 UTC.
    pub begin_realtime_ns: u64,
    /// Name of the machine.
    pub host: String,
    /// Kernel release.
    pub kernel: String,
    /// CPUs on line.
    pub cpus: u32,
    /// rtrace's version.
    pub rtrace_version: String,
    /// rtrace's command line.
    pub command_line: Vec<String>,
    /// How probes were attached.
    pub mechanism: String,
    /// The part of the programs' CPU time that tracing was to take at most, in percent.
    pub budget: Option<f64>,
    /// The rank in a parallel job.
    pub rank: Option<u32>,
    /// Why it was kept, where it is a part of a longer recording.
    pub window: Option<Window>,
}

/// A process that was traced.
#[derive(Debug, Serialize)]
pub struct ProcessInfo {
    /// Its id.
    pub pid: u32,
    /// Its command line, or where that is not known its program.
    pub command_line: Vec<String>,
    /// Its threads with calls.
    pub threads: usize,
    /// Exit code, or 128 + signal, where it ended in sight.
    pub exit_code: Option<i32>,
}

/// A library with probes.
#[derive(Debug, Serialize)]
pub struct LibraryInfo {
    /// Its name, which no other has.
    pub name: String,
    /// Its path.
    pub path: String,
    /// Its build id.
    pub build_id: Option<String>,
    /// Functions with probes.
    pub regions: usize,
    /// Of these, functions with a stub.
    pub stubs: usize,
}

/// A time in which calls of a library may be missing.
#[derive(Debug, Serialize)]
pub struct BlindWindow {
    /// Path of the library.
    pub library: String,
    /// Its length at most, in nanoseconds.
    pub duration_ns: u64,
}

impl Info {
    /// Looks at the trace in `directory`.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn of(directory: &Path) -> Result<Info, Error> {
        let trace = TraceSet::open(directory)?;
        let mut calls = 0;
        for member in trace.traces() {
            calls += match member.profile() {
                [] => member.recorded_calls(),
                paths => paths.iter().map(|path| path.calls).sum(),
            };
        }
        let (mut refused, mut blind_windows, mut overwritten, mut withheld) = (0, Vec::new(), 0, Vec::new());
        for events in trace.events() {
            for event in events? {
                match event.kind {
                    EventKind::Refused { .. } => refused += 1,
                    EventKind::Overwritten { sites, .. } => overwritten += sites,
                    EventKind::Withheld { program } => withheld.push(program),
                    EventKind::BlindWindow { library, since } => {
                        blind_windows.push(BlindWindow { library, duration_ns: event.time.since(since) });
                    }
                    _ => {}
                }
            }
        }
        let bytes = size_of(directory);
        let slowdown = Slowdown::of(&trace)?;
        let sum = |of: fn(&Estimate) -> u64| trace.estimates().iter().map(of).sum();
        Ok(Info {
            recordings: trace.traces().map(RecordingInfo::of).collect(),
            calls,
            counted: sum(|estimate| estimate.counted),
            outside: trace.summary().map_or(0, |summary| summary.outside),
            missed: trace.estimates().first().map(|_| Missed::of(trace.estimates().iter().copied())),
            duration_ns: duration(&trace),
            processes: processes(&trace),
            threads: trace.locations().len(),
            libraries: libraries(&trace),
            refused,
            losses: trace.losses()?,
            unseen: trace.summary().map(|summary| summary.unseen),
            untimed: trace.untimed()?,
            blind_windows,
            overwritten,
            withheld,
            warnings: trace.warnings().iter().map(ToString::to_string).collect(),
            values: values::of(&trace)?,
            bytes,
            bytes_per_call: (calls > 0).then(|| bytes as f64 / calls as f64),
            overhead_percent: slowdown.map(|slowdown| slowdown.overhead.in_percent()),
            overhead_range_percent: slowdown.and_then(Slowdown::range),
            slowdown,
        })
    }
}

impl RecordingInfo {
    fn of(trace: &rtrace_exporters::Trace) -> RecordingInfo {
        let header = trace.header().clone();
        RecordingInfo {
            directory: text_of_os(&trace.directory()).into_owned(),
            status: trace.status().name(),
            begin_realtime_ns: header.begin.realtime_ns,
            host: header.host,
            kernel: header.kernel,
            cpus: header.cpus,
            rtrace_version: header.rtrace_version,
            command_line: header.command_line,
            mechanism: header.mechanism,
            budget: header.budget.map(|budget| budget.share() * 100.0),
            rank: header.rank.map(|rank| rank.rank),
            window: header.window,
        }
    }
}

fn processes(trace: &TraceSet) -> Vec<ProcessInfo> {
    let threads_of = |process: &rtrace_model::Process| {
        trace.locations().iter().filter(|location| trace.process_of(location) == Some(process)).count()
    };
    let describe = |process: &rtrace_model::Process| ProcessInfo {
        pid: process.pid,
        command_line: match process.command_line.as_slice() {
            [] => vec![process.executable.clone()],
            words => words.to_vec(),
        },
        threads: threads_of(process),
        exit_code: process.exit_code,
    };
    trace.processes().iter().map(describe).collect()
}

fn libraries(trace: &TraceSet) -> Vec<LibraryInfo> {
    let regions_of = |library: &rtrace_model::Library| {
        let id = library.id;
        trace.regions().iter().filter(move |region| region.library == id)
    };
    let describe = |library: &rtrace_model::Library| LibraryInfo {
        name: library.name().to_owned(),
        path: library.path.clone(),
        build_id: library.build_id.clone(),
        regions: regions_of(library).count(),
        stubs: regions_of(library).filter(|region| region.stub).count(),
    };
    trace.libraries().iter().map(describe).collect()
}

/// Bytes of all files below; what cannot be looked at counts as nothing.
pub(super) fn size_of(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    entries
        .flatten()
        .map(|entry| match entry.file_type() {
            Ok(kind) if kind.is_dir() => size_of(&entry.path()),
            _ => entry.metadata().map_or(0, |metadata| metadata.len()),
        })
        .sum()
}

/// Cells of the names of lines.
const NAMES: usize = 13;

/// A line for people: what it is about, and what is to be said.
type InfoLine = (&'static str, String, Tone);

fn plain(name: &'static str, text: impl Into<String>) -> InfoLine {
    (name, text.into(), Tone::Plain)
}

fn warning(name: &'static str, text: impl Into<String>) -> InfoLine {
    (name, text.into(), Tone::Warning)
}

impl Info {
    /// Writes lines for people, names escaped.
    ///
    /// # Errors
    /// `out` cannot be written.
    pub fn write(&self, look: &Look, out: &mut dyn Write) -> io::Result<()> {
        for (name, text, tone) in self.lines() {
            let room = look.width.map(|width| width.saturating_sub(NAMES));
            for (number, part) in wrapped(&escape(&text), room, 0).into_iter().enumerate() {
                let name = format!("{:<NAMES$}", if number == 0 { name } else { "" });
                writeln!(out, "{}{}", paint(&name, Tone::Dim, look.colours), paint(&part, tone, look.colours))?;
            }
        }
        Ok(())
    }

    fn lines(&self) -> Vec<InfoLine> {
        let mut lines: Vec<InfoLine> = self.recordings.iter().flat_map(RecordingInfo::lines).collect();
        lines.extend(self.duration_ns.map(|duration| plain("duration", format_ns(duration))));
        lines.extend(self.processes.iter().filter(|process| process.threads > 0).map(ProcessInfo::line));
        match self.processes.iter().filter(|process| process.threads == 0).count() {
            0 => {}
            others => lines.push(plain("", format!("and {} without a traced call", number(others, "process")))),
        }
        lines.extend(self.libraries.iter().map(LibraryInfo::line));
        lines.push(plain("calls", format!("{} on {}", grouped(self.calls), number(self.threads, "thread"))));
        if self.counted > 0 {
            lines.push(plain("counted", format!("{} more, exactly, without a record", grouped(self.counted))));
        }
        if self.outside > 0 {
            lines.push(plain(
                "outside",
                format!("{} more, outside of --within, without a record", grouped(self.outside)),
            ));
        }
        if let Some(missed) = self.missed {
            lines.push(plain("estimated", missed.to_string()));
        }
        if let Some(unseen) = self.unseen.filter(|&unseen| unseen > 0) {
            let share = 100.0 * unseen as f64 / self.calls.max(1) as f64;
            lines.push(plain("not timed", format!("{} of the calls ({share:.1} %)", grouped(unseen))));
        }
        let untimed = Untimed::by_reason(&self.untimed).into_iter();
        lines.extend(
            untimed.map(|(reason, count)| plain("not timed", format!("{} ({})", grouped(count), reason.name()))),
        );
        lines.extend(values::lines(&self.values).into_iter().map(|text| plain("values", text)));
        let per_call = self.bytes_per_call.map_or_else(String::new, |bytes| format!(", {bytes:.1} per call"));
        let seconds = self.duration_ns.filter(|&duration| duration > 0).map(|duration| duration as f64 / 1e9);
        let per_second = seconds.map(|seconds| (self.bytes as f64 / seconds).round() as u64);
        let per_second = per_second.map_or_else(String::new, |bytes| format!(", {} per second", grouped(bytes)));
        lines.push(plain("size", format!("{} bytes{per_call}{per_second}", grouped(self.bytes))));
        if let Some(slowdown) = self.slowdown {
            let line = if slowdown.overhead.is_high() { warning } else { plain };
            lines.push(line("overhead", slowdown.sentence()));
        }
        if self.refused > 0 {
            lines.push(plain("skipped", number(self.refused, "function")));
        }
        lines.extend(self.missing());
        lines.extend(self.warnings.iter().map(|text| warning("warning", text.as_str())));
        lines
    }

    /// What is missing, or that nothing is.
    fn missing(&self) -> Vec<InfoLine> {
        let mut lines = Vec::new();
        let losses = self.losses.iter().filter(|loss| loss.count > 0);
        lines.extend(losses.map(|loss| warning("lost", format!("{} ({})", grouped(loss.count), loss.reason.name()))));
        lines.extend(self.blind_windows.iter().map(|window| {
            let text = format!("{} in {}", format_ns(window.duration_ns), window.library);
            warning("blind window", text)
        }));
        if self.overwritten > 0 {
            lines.push(warning("overwritten", counted(self.overwritten, "probe")));
        }
        if self.missed.is_some() {
            lines.push(warning("incomplete", "the budget left calls out".to_owned()));
        }
        let withheld = |program: &String| warning("not recorded", format!("{program}, which has other rights"));
        lines.extend(self.withheld.iter().map(withheld));
        match self.duration_ns {
            Some(_) if lines.is_empty() => vec![("complete", "no calls lost".to_owned(), Tone::Good)],
            _ => lines,
        }
    }
}

impl RecordingInfo {
    fn lines(&self) -> Vec<InfoLine> {
        let status = if self.status == "finished" { Tone::Good } else { Tone::Warning };
        let mut lines = vec![
            plain("trace", self.directory.as_str()),
            ("status", self.status.to_owned(), status),
            plain("begin", utc(self.begin_realtime_ns)),
            plain("host", format!("{}, Linux {}, {} CPUs", self.host, self.kernel, self.cpus)),
        ];
        lines.extend(self.rank.map(|rank| plain("rank", rank.to_string())));
        lines.extend(self.window.as_ref().map(|window| {
            let cut = if window.is_cut { ", cut because memory ran out" } else { "" };
            plain("window", format!("{} of a longer recording, around `{}`{cut}", window.number, window.trigger))
        }));
        lines.push(plain("recorded by", format!("rtrace {}, {}", self.rtrace_version, self.mechanism)));
        lines.extend(self.budget.map(|budget| plain("budget", format!("{budget} % of the programs' CPU time"))));
        lines.push(plain("command", self.command_line.join(" ")));
        lines
    }
}

impl ProcessInfo {
    fn line(&self) -> InfoLine {
        let mut text = format!("{} {}, {}", self.pid, self.command_line.join(" "), number(self.threads, "thread"));
        if let Some(code) = self.exit_code {
            text.push_str(&format!(", ended with {code}"));
        }
        plain("process", text)
    }
}

impl LibraryInfo {
    fn line(&self) -> InfoLine {
        let build_id = self.build_id.as_deref().unwrap_or("none");
        let mut text = format!("{}, build id {build_id}, {}", self.path, number(self.regions, "function"));
        if self.stubs > 0 {
            text.push_str(&format!(", {} of them with a stub", grouped(self.stubs as u64)));
        }
        plain("library", text)
    }
}

fn number(count: usize, thing: &str) -> String {
    counted(count as u64, thing)
}

/// An instant in the form of RFC 3339, by the algorithm of Howard Hinnant, "chrono-Compatible
/// Low-Level Date Algorithms" (civil_from_days).
fn utc(realtime_ns: u64) -> String {
    let seconds = realtime_ns / 1_000_000_000;
    // Days since 0000-03-01, in eras of 400 years.
    let days = seconds / 86_400 + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        let at = |seconds: u64| utc(seconds * 1_000_000_000);
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(at(1_700_000_000), "2023-11-14T22:13:20Z");
        assert_eq!(at(4_107_542_399), "2100-02-28T23:59:59Z");
        assert_eq!(at(4_107_542_400), "2100-03-01T00:00:00Z");
    }
}
