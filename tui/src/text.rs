//! Numbers and names as they fit a cell.

use std::borrow::Cow;

use rtrace_model::escape;
pub use rtrace_model::{counted, grouped};
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use crate::theme::Glyphs;

/// A number in at most eight cells: exact while it fits.
pub fn count(number: u64) -> String {
    match number {
        0..100_000_000 => number.to_string(),
        100_000_000..100_000_000_000 => format!("{:.1}M", number as f64 / 1e6),
        _ => format!("{:.1}G", number as f64 / 1e9),
    }
}

/// A part of a whole, in percent.
pub fn percent(part: u64, whole: u64) -> String {
    format!("{:.1} %", part as f64 * 100.0 / whole.max(1) as f64)
}

/// A number of bytes.
pub fn bytes(bytes: u64) -> String {
    match bytes {
        0..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.2} GB", bytes as f64 / 1e9),
    }
}

/// Nanoseconds as hours, minutes and seconds.
pub fn clock(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// A duration in few cells, such as `1.2 ms`.
pub fn short_ns(ns: u64) -> String {
    let with = |value: f64, unit: &str| match value {
        0.0..9.95 => format!("{value:.1} {unit}"),
        _ => format!("{value:.0} {unit}"),
    };
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => with(ns as f64 / 1e3, "us"),
        1_000_000..1_000_000_000 => with(ns as f64 / 1e6, "ms"),
        _ => with(ns as f64 / 1e9, "s"),
    }
}

/// Cells that a text takes.
pub fn width(text: &str) -> usize {
    text.width()
}

/// A name of a traced program, safe to show, and cut to a number of cells.
pub fn fit<'a>(name: &'a str, cells: usize, glyphs: &Glyphs) -> Cow<'a, str> {
    let name = escape(name);
    if name.width() <= cells {
        return name;
    }
    let mut cut = String::new();
    let mut room = cells.saturating_sub(glyphs.more.width());
    for c in name.chars() {
        let taken = c.width().unwrap_or(0);
        if taken > room {
            break;
        }
        room -= taken;
        cut.push(c);
    }
    if cells > 0 {
        cut.push_str(glyphs.more);
    }
    Cow::Owned(cut)
}

/// A text of a traced program on lines of so many cells, broken between words; what does not fit
/// the last line stays on it, to be cut.
pub fn wrap(text: &str, cells: usize, lines: usize) -> Vec<String> {
    let mut wrapped = Vec::new();
    let mut line = String::new();
    for word in escape(text).split(' ') {
        let is_full = !line.is_empty() && line.width() + 1 + word.width() > cells;
        if is_full && wrapped.len() + 1 < lines {
            wrapped.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    wrapped.push(line);
    wrapped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::theme::Theme;

    #[test]
    fn numbers_are_exact_while_they_fit() {
        assert_eq!([0, 99_999_999, 100_000_000].map(count), ["0", "99999999", "100.0M"]);
        assert_eq!(count(1_234_567_890_123), "1234.6G");
        assert_eq!(
            [999, 1_234, 12_345, 9_960_000, 2_000_000_000].map(short_ns),
            ["999 ns", "1.2 us", "12 us", "10 ms", "2.0 s"]
        );
    }

    #[test]
    fn names_are_safe_and_cut_by_cells() {
        let glyphs = Theme::of_environment(|_| Some("C.UTF-8".to_owned())).glyphs;
        assert_eq!(fit("a\u{1b}[31m", 20, glyphs), "a\\x1b[31m");
        assert_eq!(fit("漢字漢字", 5, glyphs), "漢字…");
        assert_eq!(fit("name", 4, glyphs), "name");
        assert_eq!(fit("name", 0, glyphs), "");
    }

    #[test]
    fn long_texts_are_broken_between_words() {
        assert_eq!(wrap("one two three", 7, 2), ["one two", "three"]);
        assert_eq!(wrap("one two three", 7, 1), ["one two three"]);
        assert_eq!(wrap("\u{1b} evil_long_name", 5, 2), ["\\x1b", "evil_long_name"]);
        assert_eq!(wrap("", 5, 2), [""]);
    }
}
