//! Standard output as people see it: how wide it is, whether it has colours, and a pager for what is longer than it.

use std::env;
use std::io::{IsTerminal as _, Write as _, stdout};
use std::process::{Command, Stdio};

use anyhow::Context as _;
use rtrace_report::Look;

use super::args::{Colour, Display};
use super::print;

/// What `less` does unless the user has chosen otherwise: it ends by itself if all fits one screen, passes colours
/// through, and leaves the text on the terminal. git does the same.
const LESS: &str = "FRX";

/// Columns of a terminal that does not tell.
const COLUMNS: usize = 80;

/// The terminal that shows standard output.
#[derive(Clone, Copy, Debug)]
pub struct OutputScreen {
    columns: usize,
    /// Unknown of some serial lines and emulators.
    rows: Option<usize>,
}

impl OutputScreen {
    /// The terminal, if standard output is one.
    fn of_output() -> Option<OutputScreen> {
        let size =
            || rustix::termios::tcgetwinsize(stdout()).map(|size| [size.ws_col, size.ws_row]).unwrap_or_default();
        stdout().is_terminal().then(|| OutputScreen::new(size(), variable))
    }

    /// A terminal of which the kernel knows so many columns and rows, 0 if it does not. `COLUMNS` and `LINES` take
    /// precedence.
    fn new(known: [u16; 2], variable: impl Fn(&str) -> Option<String>) -> OutputScreen {
        let said = |name: &str| variable(name)?.parse().ok().filter(|&number| number > 0);
        let [columns, rows] = known.map(|number| Some(usize::from(number)).filter(|&number| number > 0));
        OutputScreen { columns: said("COLUMNS").or(columns).unwrap_or(COLUMNS), rows: said("LINES").or(rows) }
    }

    /// Whether so many lines do not fit. The prompt takes one, too.
    fn is_shorter(&self, lines: usize) -> bool {
        self.rows.is_some_and(|rows| lines >= rows)
    }
}

/// What the environment says, unless it says nothing.
fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// How tables look on standard output.
pub fn look(display: Display) -> Look {
    look_on(OutputScreen::of_output(), display.color, variable)
}

fn look_on(screen: Option<OutputScreen>, color: Colour, variable: impl Fn(&str) -> Option<String>) -> Look {
    let is_plain = variable("NO_COLOR").is_some() || variable("TERM").is_some_and(|term| term == "dumb");
    let colours = match color {
        Colour::Auto => screen.is_some() && !is_plain,
        Colour::Always => true,
        Colour::Never => false,
    };
    let locale = variable("LC_ALL").or_else(|| variable("LC_CTYPE")).or_else(|| variable("LANG")).unwrap_or_default();
    let locale = locale.to_lowercase();
    let is_ascii = !locale.contains("utf-8") && !locale.contains("utf8");
    Look { width: screen.map(|screen| screen.columns), colours, is_ascii, ..Look::default() }
}

/// Prints a result, through a pager if it is longer than the terminal.
pub fn show(text: &[u8], display: Display) -> anyhow::Result<()> {
    let lines = text.iter().filter(|&&byte| byte == b'\n').count();
    let is_long = !display.no_pager && OutputScreen::of_output().is_some_and(|screen| screen.is_shorter(lines));
    let Some(pager) = pager(env::var("PAGER").ok()).filter(|_| is_long) else { return print(text) };
    let mut command = Command::new("sh");
    command.args(["-c", &pager]).stdin(Stdio::piped());
    if env::var_os("LESS").is_none() {
        command.env("LESS", LESS);
    }
    let mut paged = command.spawn().with_context(|| format!("failed to start the pager `{pager}`"))?;
    if let Some(mut input) = paged.stdin.take() {
        // Who leaves the pager early has seen enough.
        let _ = input.write_all(text);
    }
    let status = paged.wait().with_context(|| format!("failed to wait for the pager `{pager}`"))?;
    match status.code() {
        // The shell found no such program.
        Some(126 | 127) => print(text),
        _ => Ok(()),
    }
}

/// The command of the pager that the environment chooses; none where the user wants none.
fn pager(chosen: Option<String>) -> Option<String> {
    Some(chosen.unwrap_or_else(|| "less".to_owned())).filter(|pager| !matches!(pager.trim(), "" | "cat"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An environment of these variables.
    fn of<'a>(variables: &'a [(&str, &str)]) -> impl Fn(&str) -> Option<String> + 'a {
        |name| variables.iter().find(|(of, _)| *of == name).map(|(_, value)| (*value).to_owned())
    }

    #[test]
    fn what_the_user_says_of_a_terminal_counts_more_than_what_the_kernel_knows() {
        let size = |known, variables: &[(&str, &str)]| {
            let screen = OutputScreen::new(known, of(variables));
            (screen.columns, screen.rows)
        };
        assert_eq!(size([120, 40], &[]), (120, Some(40)));
        assert_eq!(size([120, 40], &[("COLUMNS", "60"), ("LINES", "10")]), (60, Some(10)));
        assert_eq!(size([0, 0], &[("COLUMNS", "x"), ("LINES", "0")]), (80, None));
        assert!(
            OutputScreen::new([80, 24], of(&[])).is_shorter(24) && !OutputScreen::new([80, 24], of(&[])).is_shorter(23)
        );
        assert!(!OutputScreen::new([80, 0], of(&[])).is_shorter(1_000), "nobody knows");
    }

    #[test]
    fn colours_are_for_terminals_unless_they_are_asked_for_or_refused() {
        let screen = Some(OutputScreen { columns: 80, rows: None });
        let colours = |screen, color, variables: &[(&str, &str)]| look_on(screen, color, of(variables)).colours;
        assert!(colours(screen, Colour::Auto, &[("TERM", "xterm")]));
        assert!(!colours(None, Colour::Auto, &[]));
        for variable in [("NO_COLOR", "1"), ("TERM", "dumb")] {
            assert!(!colours(screen, Colour::Auto, &[variable]), "{variable:?}");
            assert!(colours(None, Colour::Always, &[variable]), "{variable:?}");
        }
        assert!(!colours(screen, Colour::Never, &[]));
    }

    #[test]
    fn elsewhere_there_is_no_width_and_bars_need_a_locale_that_has_them() {
        assert_eq!(look_on(None, Colour::Auto, of(&[])).width, None);
        let is_ascii = |variables: &[(&str, &str)]| look_on(None, Colour::Auto, of(variables)).is_ascii;
        assert!(is_ascii(&[]) && is_ascii(&[("LANG", "de_DE.UTF-8"), ("LC_ALL", "C")]));
        assert!(!is_ascii(&[("LANG", "de_DE.utf8")]));
    }

    #[test]
    fn no_pager_is_a_choice() {
        assert_eq!(pager(None).as_deref(), Some("less"));
        assert_eq!(pager(Some("more -s".to_owned())).as_deref(), Some("more -s"));
        assert!(["", " ", "cat"].iter().all(|&none| pager(Some(none.to_owned())).is_none()));
    }
}
