//! Names and numbers as text. Names from traced programs are hostile: they may hold terminal escapes.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

/// Makes a name safe to print on a terminal and in a line of text.
///
/// Control characters, and characters that turn the direction of text, become `\x1b`-like escapes;
/// everything else stays.
///
/// ```
/// assert_eq!(rtrace_model::escape("a\u{1b}[31m"), "a\\x1b[31m");
/// ```
pub fn escape(name: &str) -> Cow<'_, str> {
    if !name.chars().any(is_hostile) {
        return Cow::Borrowed(name);
    }
    let mut safe = String::with_capacity(name.len() + 8);
    for c in name.chars() {
        match c {
            c if !is_hostile(c) => safe.push(c),
            c if (c as u32) < 0x100 => safe.push_str(&format!("\\x{:02x}", c as u32)),
            c => safe.push_str(&format!("\\u{{{:x}}}", c as u32)),
        }
    }
    Cow::Owned(safe)
}

/// What the system calls something, as text: names are any bytes, and those that are no text become `\xff`-like escapes, so
/// that two names are never one text.
///
/// ```
/// assert_eq!(rtrace_model::text_of(b"m\xff"), "m\\xff");
/// ```
pub fn text_of(name: &[u8]) -> Cow<'_, str> {
    let mut chunks = name.utf8_chunks();
    match chunks.next() {
        None => return Cow::Borrowed(""),
        Some(first) if first.invalid().is_empty() => return Cow::Borrowed(first.valid()),
        Some(_) => {}
    }
    let mut text = String::with_capacity(name.len() + 8);
    for chunk in name.utf8_chunks() {
        text.push_str(chunk.valid());
        chunk.invalid().iter().for_each(|byte| text.push_str(&format!("\\x{byte:02x}")));
    }
    Cow::Owned(text)
}

/// The same of a path, or of another name of the system's kind.
pub fn text_of_os(name: &(impl AsRef<OsStr> + ?Sized)) -> Cow<'_, str> {
    text_of(name.as_ref().as_bytes())
}

/// The name of which [`text_of`] has made this text.
///
/// ```
/// assert_eq!(rtrace_model::name_of("m\\xff \\x41"), b"m\xff \\x41");
/// ```
pub fn name_of(text: &str) -> Vec<u8> {
    let mut name = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("\\x") {
        name.extend_from_slice(&rest.as_bytes()[..at]);
        let digits = rest.get(at + 2..at + 4).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        // What is text has no escape.
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()).filter(|byte| !byte.is_ascii()) {
            Some(byte) => {
                name.push(byte);
                rest = &rest[at + 4..];
            }
            None => {
                name.extend_from_slice(b"\\x");
                rest = &rest[at + 2..];
            }
        }
    }
    name.extend_from_slice(rest.as_bytes());
    name
}

/// A text as a field of comma-separated values: in quotes where it holds what separates fields (RFC 4180), and
/// behind a `'` where a spreadsheet would take it for a formula.
///
/// Which beginnings are formulas is listed at <https://owasp.org/www-community/attacks/CSV_Injection>; tabs and
/// ends of lines never come through, as [`escape`] has made them visible.
///
/// ```
/// assert_eq!(rtrace_model::csv_field("=f(1,2)"), "\"'=f(1,2)\"");
/// ```
pub fn csv_field(text: &str) -> String {
    let text = escape(text);
    let mark = if text.starts_with(['=', '+', '-', '@', '＝', '＋', '－', '＠']) { "'" } else { "" };
    match text.contains([',', '"']) {
        true => format!("\"{mark}{}\"", text.replace('"', "\"\"")),
        false => format!("{mark}{text}"),
    }
}

/// A number for people, its digits in groups of three.
///
/// ```
/// assert_eq!(rtrace_model::grouped(278_126), "278,126");
/// ```
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// A number of things, for people.
///
/// ```
/// assert_eq!(rtrace_model::counted(1, "call"), "1 call");
/// assert_eq!(rtrace_model::counted(2_000, "process"), "2,000 processes");
/// ```
pub fn counted(number: u64, thing: &str) -> String {
    let ending = match number {
        1 => "",
        _ if thing.ends_with('s') => "es",
        _ => "s",
    };
    format!("{} {thing}{ending}", grouped(number))
}

fn is_hostile(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}
