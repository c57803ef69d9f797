//! Patterns of names with `*`, `?` and `[…]`, as shells have them; none of them is stopped by a `/`.

/// A pattern over a whole name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wildcard(Vec<WildcardPart>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum WildcardPart {
    One(char),
    AnyOne,
    Any,
    Set { ranges: Vec<(char, char)>, is_negated: bool },
}

impl Wildcard {
    /// Reads a pattern in which `\` takes the meaning from the character behind it.
    pub(crate) fn new(pattern: &str) -> Wildcard {
        let mut parts = Vec::new();
        let mut rest = pattern.chars();
        while let Some(c) = rest.next() {
            let part = match c {
                // Several are as one, and would only take time.
                '*' if parts.last() == Some(&WildcardPart::Any) => continue,
                '*' => WildcardPart::Any,
                '?' => WildcardPart::AnyOne,
                '\\' => WildcardPart::One(rest.next().unwrap_or('\\')),
                '[' => match set(rest.as_str()) {
                    Some((part, behind)) => {
                        rest = behind.chars();
                        part
                    }
                    None => WildcardPart::One('['),
                },
                c => WildcardPart::One(c),
            };
            parts.push(part);
        }
        Wildcard(parts)
    }

    /// Whether it matches all of the name. Takes no longer than the length of the one times that of the other.
    pub(crate) fn matches(&self, name: &str) -> bool {
        let mut parts = self.0.as_slice();
        let mut rest = name.chars();
        // What to try next if this does not match: the `*` takes one character more.
        let mut retry = None;
        loop {
            let ahead = rest.clone();
            match (parts.split_first(), rest.next()) {
                (Some((WildcardPart::Any, behind)), _) => {
                    (parts, rest) = (behind, ahead.clone());
                    retry = Some((behind, ahead));
                }
                (Some((part, behind)), Some(c)) if part.admits(c) => parts = behind,
                (None, None) => return true,
                _ => {
                    let Some((behind, from)) = &mut retry else { return false };
                    if from.next().is_none() {
                        return false;
                    }
                    (parts, rest) = (behind, from.clone());
                }
            }
        }
    }
}

impl WildcardPart {
    fn admits(&self, c: char) -> bool {
        match self {
            WildcardPart::One(own) => *own == c,
            WildcardPart::AnyOne | WildcardPart::Any => true,
            WildcardPart::Set { ranges, is_negated } => {
                ranges.iter().any(|(first, last)| (*first..=*last).contains(&c)) != *is_negated
            }
        }
    }
}

/// Reads a set behind its `[`, and gives what is behind it; `None` where it has no end.
fn set(text: &str) -> Option<(WildcardPart, &str)> {
    let mut rest = text.chars();
    let is_negated = text.starts_with(['!', '^']);
    if is_negated {
        rest.next();
    }
    let mut ranges = Vec::new();
    let mut is_first = true;
    loop {
        let mut first = rest.next()?;
        match first {
            // The first one is a member.
            ']' if !is_first => return Some((WildcardPart::Set { ranges, is_negated }, rest.as_str())),
            '[' if rest.as_str().starts_with(':') => {
                let (name, behind) = rest.as_str()[1..].split_once(":]")?;
                ranges.extend_from_slice(class(name)?);
                rest = behind.chars();
                is_first = false;
                continue;
            }
            '\\' => first = rest.next()?,
            _ => {}
        }
        is_first = false;
        let mut ahead = rest.clone();
        let last = match (ahead.next(), ahead.next()) {
            (Some('-'), Some(last)) if last != ']' => {
                rest = ahead.clone();
                if last == '\\' { rest.next()? } else { last }
            }
            _ => first,
        };
        ranges.push((first, last));
    }
}

/// The members of `[:name:]`.
fn class(name: &str) -> Option<&'static [(char, char)]> {
    Some(match name {
        "alpha" => &[('a', 'z'), ('A', 'Z')],
        "digit" => &[('0', '9')],
        "alnum" => &[('a', 'z'), ('A', 'Z'), ('0', '9')],
        "lower" => &[('a', 'z')],
        "upper" => &[('A', 'Z')],
        "xdigit" => &[('0', '9'), ('a', 'f'), ('A', 'F')],
        "space" => &[(' ', ' '), ('\t', '\r')],
        "blank" => &[(' ', ' '), ('\t', '\t')],
        "punct" => &[('!', '/'), (':', '@'), ('[', '`'), ('{', '~')],
        "print" => &[(' ', '~')],
        "graph" => &[('!', '~')],
        "cntrl" => &[('\0', '\x1f'), ('\x7f', '\x7f')],
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The C library's own matcher, which Score-P uses.
    fn by_libc(pattern: &str, name: &str) -> Option<bool> {
        let text = |text: &str| std::ffi::CString::new(text).ok();
        let (pattern, name) = (text(pattern)?, text(name)?);
        // SAFETY: both are strings that end in a zero.
        Some(unsafe { libc::fnmatch(pattern.as_ptr(), name.as_ptr(), 0) } == 0)
    }

    #[test]
    fn it_matches_what_fnmatch_matches() {
        let patterns = [
            "",
            "*",
            "?",
            "a",
            "a*",
            "*a",
            "*a*b*",
            "a?c",
            "??",
            "[abc]",
            "[a-c]x",
            "[!a-c]*",
            "[^a]b",
            "[]a]",
            "[!]a]",
            "[a",
            "a[",
            "\\*",
            "a\\*b",
            "\\a",
            "[\\]]",
            "[a-]",
            "[-a]",
            "[[:alpha:]]*",
            "[[:digit:]_]?",
            "*/src/*.c",
            "/a/*",
            "operator\\[\\]*",
            "operator[[][]]*",
            "a\\ b",
            "***b",
            "*[0-9]",
            "[z-a]",
            "f(*)",
            "*::*",
            "a\\#",
        ];
        let names = [
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
        for pattern in patterns {
            for name in names {
                let expected = by_libc(pattern, name);
                assert_eq!(Some(Wildcard::new(pattern).matches(name)), expected, "`{pattern}` on `{name}`");
            }
        }
    }

    #[test]
    fn many_stars_do_not_take_forever() {
        let pattern = format!("{}b", "a*".repeat(200));
        assert!(!Wildcard::new(&pattern).matches(&"a".repeat(20_000)));
    }
}
