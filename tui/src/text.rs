//! Numbers and names as they fit a cell.

use std::borrow::Cow;

pub use rtrace_model::names::width;
use rtrace_model::units::Unit;
pub use rtrace_model::{counted, grouped};
use rtrace_model::{escape, names};
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use crate::theme::Glyphs;

/// What stands for a part of a name that is left out, where there are glyphs.
const LEFT_OUT: &str = "…";

/// A number in at most nine cells: exact while it fits.
pub fn count(number: u64) -> String {
    match number {
        0..10_000_000 => grouped(number),
        10_000_000..10_000_000_000 => format!("{}M", hundredths(number / 10_000)),
        10_000_000_000..10_000_000_000_000 => format!("{}G", hundredths(number / 10_000_000)),
        _ => format!("{:.1e}", number as f64),
    }
}

fn hundredths(number: u64) -> String {
    format!("{}.{:02}", grouped(number / 100), number % 100)
}

/// A part of a whole in percent, without the sign.
pub fn share(part: f64) -> String {
    format!("{:.1}", part * 100.0)
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

/// A duration with two digits after the point, such as `1.23 ms`.
pub fn time(ns: u64) -> String {
    let unit = Unit::steady(None, &[ns], usize::MAX);
    format!("{} {}", unit.show(ns, true), unit.name)
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

/// A function's name, safe to show, in a number of cells: without arguments where it is too long, and cut in its middle
/// where that is not enough.
pub fn fit_name(name: &str, cells: usize, glyphs: &Glyphs) -> String {
    let name = escape(name);
    if name.width() <= cells {
        return name.into_owned();
    }
    let short = names::short(&name, cells);
    if glyphs.more == LEFT_OUT { short } else { short.replace(LEFT_OUT, glyphs.more) }
}

/// A text of a traced program wrapped to `cells`, between words. The last line keeps the rest, for the caller to cut.
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
        assert_eq!([0, 9_999_999, 10_000_000].map(count), ["0", "9,999,999", "10.00M"]);
        assert_eq!([9_999_999_999, 1_234_567_890_123].map(count), ["9,999.99M", "1,234.56G"]);
        assert!([u64::MAX, 9_999_999_999_999].into_iter().all(|number| count(number).len() <= 9));
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
    fn names_of_functions_lose_their_arguments_first() {
        let glyphs = |locale: &str| Theme::of_environment(|_| Some(locale.to_owned())).glyphs;
        let name = "QHeaderView::paintEvent(QPaintEvent*)";
        assert_eq!(fit_name(name, 40, glyphs("C.UTF-8")), name);
        assert_eq!(fit_name(name, 30, glyphs("C.UTF-8")), "QHeaderView::paintEvent(…)");
        assert_eq!(fit_name(name, 30, glyphs("C")), "QHeaderView::paintEvent(~)");
        assert_eq!(fit_name("evil\u{1b}", 5, glyphs("C.UTF-8")), "e…x1b");
    }

    #[test]
    fn long_texts_are_broken_between_words() {
        assert_eq!(wrap("one two three", 7, 2), ["one two", "three"]);
        assert_eq!(wrap("one two three", 7, 1), ["one two three"]);
        assert_eq!(wrap("\u{1b} evil_long_name", 5, 2), ["\\x1b", "evil_long_name"]);
        assert_eq!(wrap("", 5, 2), [""]);
    }
}
