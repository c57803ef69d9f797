//! Patterns of names with `*`, `?` and `[…]`, as the C library matches them, which Score-P asks, too.

use std::ffi::{CStr, CString};

/// A pattern over a whole name; none of its parts is stopped by a `/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wildcard(CString);

impl Wildcard {
    /// A pattern; what is behind a NUL, which no name contains, is no part of it.
    pub(crate) fn new(pattern: &str) -> Wildcard {
        Wildcard(c_string(pattern))
    }

    pub(crate) fn matches(&self, name: &CStr) -> bool {
        // SAFETY: both are strings that end in a NUL, and are only read.
        unsafe { libc::fnmatch(self.0.as_ptr(), name.as_ptr(), 0) == 0 }
    }
}

/// A text as the C library takes it: up to its first NUL.
pub(crate) fn c_string(text: &str) -> CString {
    let text = text.split('\0').next().unwrap_or_default();
    CString::new(text).expect("it has no NUL")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names that patterns are tried on.
    const NAMES: [&str; 27] = [
        "",
        "a",
        "b",
        "c",
        "ab",
        "abc",
        "ax",
        "bx",
        "dx",
        "*",
        "a*b",
        "]",
        "[a",
        "a[",
        "-",
        "1_",
        "z9",
        "__",
        "/home/x/src/a.c",
        "/a/b/c",
        "operator[](int)",
        "a b",
        "aabab",
        "f(int)",
        "ns::f",
        "a#",
        "\\",
    ];

    #[test]
    fn patterns_match_whole_names() {
        let all: &[&str] = &NAMES;
        let table: [(&str, &[&str]); 36] = [
            ("", &[""]),
            ("*", all),
            ("?", &["a", "b", "c", "*", "]", "-", "\\"]),
            ("a", &["a"]),
            ("a*", &["a", "ab", "abc", "ax", "a*b", "a[", "a b", "aabab", "a#"]),
            ("*a", &["a", "[a"]),
            ("*a*b*", &["ab", "abc", "a*b", "/a/b/c", "a b", "aabab"]),
            ("a?c", &["abc"]),
            ("??", &["ab", "ax", "bx", "dx", "[a", "a[", "1_", "z9", "__", "a#"]),
            ("[abc]", &["a", "b", "c"]),
            ("[a-c]x", &["ax", "bx"]),
            (
                "[!a-c]*",
                &[
                    "dx",
                    "*",
                    "]",
                    "[a",
                    "-",
                    "1_",
                    "z9",
                    "__",
                    "/home/x/src/a.c",
                    "/a/b/c",
                    "operator[](int)",
                    "f(int)",
                    "ns::f",
                    "\\",
                ],
            ),
            ("[^a]b", &[]),
            ("[]a]", &["a", "]"]),
            ("[!]a]", &["b", "c", "*", "-", "\\"]),
            ("[a", &["[a"]),
            ("a[", &["a["]),
            ("\\*", &["*"]),
            ("a\\*b", &["a*b"]),
            ("\\a", &["a"]),
            ("[\\]]", &["]"]),
            ("[a-]", &["a", "-"]),
            ("[-a]", &["a", "-"]),
            (
                "[[:alpha:]]*",
                &[
                    "a",
                    "b",
                    "c",
                    "ab",
                    "abc",
                    "ax",
                    "bx",
                    "dx",
                    "a*b",
                    "a[",
                    "z9",
                    "operator[](int)",
                    "a b",
                    "aabab",
                    "f(int)",
                    "ns::f",
                    "a#",
                ],
            ),
            ("[[:digit:]_]?", &["1_", "__"]),
            ("*/src/*.c", &["/home/x/src/a.c"]),
            ("/a/*", &["/a/b/c"]),
            ("operator\\[\\]*", &["operator[](int)"]),
            ("operator[[][]]*", &["operator[](int)"]),
            ("a\\ b", &["a b"]),
            ("***b", &["b", "ab", "a*b", "a b", "aabab"]),
            ("*[0-9]", &["z9"]),
            ("[z-a]", &[]),
            ("f(*)", &["f(int)"]),
            ("*::*", &["ns::f"]),
            ("a\\#", &["a#"]),
        ];
        for (pattern, expected) in table {
            let pattern = Wildcard::new(pattern);
            let matched: Vec<&str> = NAMES.into_iter().filter(|name| pattern.matches(&c_string(name))).collect();
            assert_eq!(matched, expected, "{pattern:?}");
        }
    }

    #[test]
    fn many_stars_do_not_take_forever() {
        let pattern = format!("{}b", "a*".repeat(200));
        assert!(!Wildcard::new(&pattern).matches(&c_string(&"a".repeat(20_000))));
    }

    #[test]
    fn a_name_ends_at_a_nul() {
        assert!(Wildcard::new("a\0b").matches(&c_string("a\0c")));
    }
}
