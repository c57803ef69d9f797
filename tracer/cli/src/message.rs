//! What is said on standard error when something failed: one line, then the step that helps.
//!
//! Causes may quote names from traced programs, so every line is escaped here, last of all.

use std::fmt::{self, Display};
use std::io::{ErrorKind, Write};

use rtrace::counters;
use rtrace::session;
use rtrace::suggestions;
use rtrace::target;
use rtrace::target::cgroups;
use rtrace::target::memory;
use rtrace::target::names::NotRunning;
use rtrace::target::presence::Absent;
use rtrace::target::privilege;
use rtrace::target::source_files;
use rtrace::watch;
use rtrace_exporters::ExportError;
use rtrace_model::escape;

use super::shortage;

/// An error with the step that helps.
#[derive(Debug)]
struct Hinted {
    error: anyhow::Error,
    hint: String,
}

impl Display for Hinted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for Hinted {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(self.error.as_ref())
    }
}

/// Adds to an error what the user can do about it.
pub trait Hint<T> {
    /// Adds a hint, best with the exact command; of several, the one added last is shown.
    fn hint(self, hint: impl Display) -> anyhow::Result<T>;
}

impl<T, E: Into<anyhow::Error>> Hint<T> for Result<T, E> {
    fn hint(self, hint: impl Display) -> anyhow::Result<T> {
        self.map_err(|error| Hinted { error: error.into(), hint: hint.to_string() }.into())
    }
}

/// Whether the error is only that the reader of our output has gone.
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let is_broken = |error: &std::io::Error| error.kind() == ErrorKind::BrokenPipe;
    error.chain().any(|cause| {
        // An error of the export takes the place of its cause in the chain.
        let of_export = matches!(cause.downcast_ref(), Some(ExportError::Write(error)) if is_broken(error));
        let of_page = matches!(
            cause.downcast_ref(),
            Some(rtrace_report::Error::Page(ExportError::Write(error))) if is_broken(error)
        );
        of_export || of_page || cause.downcast_ref().is_some_and(is_broken)
    })
}

/// Tells the user something that is no result, in one line. Arguments as for [`format!`].
macro_rules! tell {
    ($($message:tt)+) => { $crate::message::write_line(&format!($($message)+)) };
}

pub(super) use tell;

/// What [`tell`] does with its line.
pub fn write_line(message: &str) {
    write(&format!("rtrace: {}\n", escape(message)));
}

/// Tells the user of an error; with `verbose` also of its causes, one a line.
pub fn print(error: &anyhow::Error, verbose: bool) {
    write(&render(error, verbose));
}

fn write(text: &str) {
    // Nobody is left to tell when standard error has gone: that is no reason to end.
    let _ = std::io::stderr().write_all(text.as_bytes());
}

fn render(error: &anyhow::Error, verbose: bool) -> String {
    let messages: Vec<String> =
        error.chain().filter(|cause| !cause.is::<Hinted>()).map(|cause| escape_lines(&cause.to_string())).collect();
    let mut text = format!("rtrace: {}\n", one_line(&messages));
    if verbose {
        text.extend(messages.iter().skip(1).map(|cause| format!("  caused by: {cause}\n")));
    }
    if let Some(hint) = hint_of(error) {
        text.push_str(&format!("\nhint: {}\n", escape_lines(&hint)));
    }
    text
}

/// Joins the messages of a chain; many already end with their cause, which is not said twice.
fn one_line(messages: &[String]) -> String {
    messages.iter().fold(String::new(), |line, message| match line.as_str() {
        "" => message.clone(),
        line if line.ends_with(message.as_str()) => line.to_owned(),
        line => format!("{line}: {message}"),
    })
}

fn hint_of(error: &anyhow::Error) -> Option<String> {
    let short = || error.chain().find_map(|cause| shortage::hint(&cause.to_string())).map(str::to_owned);
    let of_cause = error.chain().find_map(|cause| {
        let added = cause.downcast_ref::<Hinted>().map(|hinted| hinted.hint.clone());
        added
            .or_else(|| cause.downcast_ref::<privilege::Error>()?.hint())
            .or_else(|| cause.downcast_ref::<target::Error>()?.hint())
            .or_else(|| Some(cause.downcast_ref::<NotRunning>()?.hint()))
            .or_else(|| Some(cause.downcast_ref::<cgroups::Error>()?.hint()))
            .or_else(|| cause.downcast_ref::<counters::Error>()?.hint())
            .or_else(|| Some(cause.downcast_ref::<Absent>()?.hint().to_owned()))
            .or_else(|| Some(cause.downcast_ref::<memory::Error>()?.hint()))
            .or_else(|| cause.downcast_ref::<session::Error>()?.hint().map(str::to_owned))
            .or_else(|| Some(cause.downcast_ref::<source_files::Error>()?.hint()))
            .or_else(|| Some(cause.downcast_ref::<suggestions::Error>()?.hint()))
            .or_else(|| cause.downcast_ref::<watch::Error>()?.hint().map(str::to_owned))
    });
    short().or(of_cause)
}

fn escape_lines(text: &str) -> String {
    text.lines().map(escape).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::io;

    use anyhow::Context;

    use super::*;

    fn full_disk() -> io::Error {
        io::Error::other("no space left on device")
    }

    fn written() -> Result<(), rtrace_model::SinkError> {
        Err(rtrace_model::SinkError::new("write `calls/000001.parquet`", full_disk()))
    }

    #[test]
    fn a_cause_is_said_once() {
        let error = written().context("failed to record").unwrap_err();
        assert_eq!(
            render(&error, false),
            "rtrace: failed to record: failed to write `calls/000001.parquet`: no space left on device\n"
        );
    }

    #[test]
    fn verbose_lists_every_cause() {
        let error = written().context("failed to record").unwrap_err();
        assert_eq!(
            render(&error, true),
            "rtrace: failed to record: failed to write `calls/000001.parquet`: no space left on device\n  \
               caused by: failed to write `calls/000001.parquet`: no space left on device\n  \
               caused by: no space left on device\n"
        );
    }

    #[test]
    fn a_hint_follows_after_a_blank_line_and_survives_context() {
        let error = written().hint("rtrace attach -o /var/tmp/out.rtrace").context("failed to record").unwrap_err();
        let text = render(&error, false);
        assert!(text.ends_with(": no space left on device\n\nhint: rtrace attach -o /var/tmp/out.rtrace\n"), "{text}");
        assert_eq!(text.matches("no space").count(), 1, "{text}");
    }

    #[test]
    fn missing_privileges_bring_their_own_hint() {
        let missing = privilege::Error::Missing(vec![privilege::Capability::Bpf]);
        let text = render(&anyhow::Error::from(missing), false);
        assert!(text.starts_with("rtrace: failed to trace: missing CAP_BPF\n\nhint: "), "{text}");
    }

    #[test]
    fn a_limit_that_was_met_is_named() {
        let hint = |number| render(&io::Error::from_raw_os_error(number).into(), false);
        assert!(hint(libc::EMFILE).contains("\n\nhint: ") && hint(libc::EMFILE).contains("raise `ulimit -n`"));
        assert!(hint(libc::ENOMEM).contains("raise `ulimit -v`"));
        assert!(!hint(libc::EIO).contains("hint"));
    }

    #[test]
    fn hostile_names_do_not_reach_the_terminal() {
        let error = anyhow::anyhow!("failed to read `\u{1b}[2J\r`");
        assert_eq!(render(&error, false), "rtrace: failed to read `\\x1b[2J\\x0d`\n");
    }

    #[test]
    fn a_reader_that_has_gone_is_recognised_under_hint_and_context() {
        let gone = || Err::<(), _>(io::Error::from(ErrorKind::BrokenPipe));
        assert!(is_broken_pipe(&gone().context("failed to print").unwrap_err()));
        assert!(is_broken_pipe(&gone().hint("try less").unwrap_err()));
        let export = ExportError::Write(io::Error::from(ErrorKind::BrokenPipe));
        assert!(is_broken_pipe(&anyhow::Error::from(export).context("failed to export")));
        let page = rtrace_report::Error::Page(ExportError::Write(io::Error::from(ErrorKind::BrokenPipe)));
        assert!(is_broken_pipe(&anyhow::Error::from(page)));
        assert!(!is_broken_pipe(&anyhow::Error::from(full_disk())));
    }
}
