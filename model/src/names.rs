//! Names as they fit a table: signatures of C++ shortened, and what is still too long cut in its middle.

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// What stands for the arguments that are left out.
const LEFT_OUT: &str = "…";
const ARGUMENTS: &str = "(…)";

/// Cells that a text takes.
pub fn width(text: &str) -> usize {
    text.width()
}

/// A name without the types of its arguments, as `QPen::QPen(…)`; one that has no arguments stays.
pub fn without_arguments(name: &str) -> String {
    let name = name.strip_suffix(" const").unwrap_or(name);
    shortened(name, '(', ')', |before| {
        before.ends_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '>' | '~' | ']' | '}'))
            || ends_with_operator(before)
    })
}

/// A name without the arguments of its templates, as `std::vector<…>::push_back(…)`.
pub fn without_templates(name: &str) -> String {
    shortened(name, '<', '>', |before| {
        // What begins behind `operator` and `operator<` is the operator itself.
        let is_operator = before.ends_with("operator") || before.ends_with("operator<");
        !is_operator && (before.ends_with(|c: char| c.is_alphanumeric() || c == '_') || ends_with_operator(before))
    })
}

/// Whether the name of an operator ends here.
fn ends_with_operator(before: &str) -> bool {
    before.trim_end_matches(|c| "()<>=!+-*/%&|^~[], ".contains(c)).ends_with("operator")
}

/// The text with what stands between outermost brackets left out, where `is_meant` says so of what is before them.
/// Text in which brackets do not match stays.
fn shortened(name: &str, open: char, close: char, is_meant: impl Fn(&str) -> bool) -> String {
    let mut short = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(place) = rest.find(open) {
        let (before, from) = rest.split_at(place);
        short.push_str(before);
        let end = if is_meant(&short) { matching(from, open, close) } else { None };
        match end {
            Some(end) if end > open.len_utf8() => {
                short.push(open);
                short.push_str(LEFT_OUT);
                short.push(close);
                rest = &from[end + close.len_utf8()..];
            }
            _ => {
                short.push(open);
                rest = &from[open.len_utf8()..];
            }
        }
    }
    short.push_str(rest);
    short
}

/// Where the bracket with which the text begins is closed. The `>` of `->` closes nothing.
pub fn matching(text: &str, open: char, close: char) -> Option<usize> {
    let mut depth = 0_usize;
    let mut last = ' ';
    for (place, c) in text.char_indices() {
        if c == open {
            depth += 1;
        } else if c == close && last != '-' {
            depth -= 1;
            if depth == 0 {
                return Some(place);
            }
        }
        last = c;
    }
    None
}

/// A name without arguments, in at most so many cells.
pub fn short(name: &str, cells: usize) -> String {
    fit(&without_arguments(name), cells)
}

/// A name in at most so many cells: whole if it fits, else shortened, else cut.
pub fn fit(name: &str, cells: usize) -> String {
    if name.width() <= cells {
        return name.to_owned();
    }
    let short = without_templates(name);
    if short.width() <= cells {
        return short;
    }
    cut(short.strip_suffix(ARGUMENTS).unwrap_or(&short), cells)
}

/// A text in at most so many cells. What is left out comes after its first third: the end of a name says most.
fn cut(text: &str, cells: usize) -> String {
    if text.width() <= cells {
        return text.to_owned();
    }
    let room = cells.saturating_sub(LEFT_OUT.width());
    let (head, tail) = (room / 3, room - room / 3);
    let head = within(text.chars(), head);
    let tail: String = within(text.chars().rev(), tail).chars().rev().collect();
    let (head, tail) = (head.trim_end_matches(LEFT_OUT), tail.trim_start_matches(LEFT_OUT));
    if cells == 0 { String::new() } else { format!("{head}{LEFT_OUT}{tail}") }
}

/// A text in at most so many cells, its end left out.
pub fn beginning(text: &str, cells: usize) -> String {
    if text.width() <= cells {
        return text.to_owned();
    }
    within(text.chars(), cells.saturating_sub(LEFT_OUT.width())) + LEFT_OUT
}

/// The first letters that fit so many cells.
fn within(letters: impl Iterator<Item = char>, cells: usize) -> String {
    let mut taken = 0;
    let fits = |letter: &char| {
        taken += letter.width().unwrap_or(0);
        taken <= cells
    };
    letters.take_while(fits).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn arguments_are_left_out() {
        for (name, short) in [
            ("QPen::QPen(QBrush const&, double, Qt::PenStyle)", "QPen::QPen(…)"),
            ("QPen::~QPen()", "QPen::~QPen()"),
            ("crc32_z", "crc32_z"),
            ("std::function<bool (char)>::operator()(char) const", "std::function<bool (char)>::operator()(…)"),
            ("bool std::operator< <char>(A const&, B)", "bool std::operator< <char>(…)"),
            ("operator+(A, B)", "operator+(…)"),
            ("std::ostream::operator<<(int)", "std::ostream::operator<<(…)"),
            ("(anonymous namespace)::f(int)", "(anonymous namespace)::f(…)"),
            ("main::{lambda(int)#1}::operator()(int) const", "main::{lambda(…)#1}::operator()(…)"),
            ("std::to_string[abi:cxx11](int)", "std::to_string[abi:cxx11](…)"),
            ("f(void (*)(int, char))", "f(…)"),
            ("net/http.(*Server).Serve", "net/http.(*Server).Serve"),
            ("<alloc::vec::Vec<T> as Drop>::drop", "<alloc::vec::Vec<T> as Drop>::drop"),
            ("myoperator(int)", "myoperator(…)"),
            ("f(int", "f(int"),
            ("f)(", "f)("),
            ("", ""),
        ] {
            assert_eq!(without_arguments(name), short, "{name}");
        }
    }

    #[test]
    fn templates_are_left_out_where_there_is_no_room() {
        let name = "std::vector<int, std::allocator<int> >::push_back(…)";
        assert_eq!(fit(name, 60), name);
        assert_eq!(fit(name, 40), "std::vector<…>::push_back(…)");
        assert_eq!(fit(name, 25), "std::vector<…>::push_back");
        assert_eq!(fit(name, 20), "std::v…>::push_back");
        assert_eq!(fit("A<int>::operator->() const", 25), "A<…>::operator->() const");
        assert_eq!(
            fit("<alloc::vec::Vec<Thing> as core::ops::Drop>::drop", 46),
            "<alloc::vec::Vec<…> as core::ops::Drop>::drop"
        );
        assert_eq!(fit("bool std::operator< <char, int>(…)", 32), "bool std::operator< <…>(…)");
        assert_eq!(fit("bool operator==<char const*>(…)", 30), "bool operator==<…>(…)");
        assert_eq!(fit("operator<< <char, int>(…)", 21), "operator<< <…>(…)");
        assert_eq!(fit("abc", 0), "");
        assert_eq!(fit("abc", 1), "…");
        assert_eq!(fit("漢字漢字", 7), "漢…漢字");
    }

    proptest! {
        #[test]
        fn any_name_fits(name in "[a-c:<>(){}~ 漢-]{0,60}", cells in 0..70_usize) {
            prop_assert!(fit(&name, cells).width() <= cells);
            prop_assert!(without_arguments(&name).width() <= name.width());
        }
    }
}
