//! What a user writes: `[LIB:]SYMBOL[+OFFSET/SIZE][:w|rw][:unsigned|signed|float]`, or `0xADDRESS/SIZE` of running processes.
//!
//! Values are those after writes: to read one is an access, too, which would be told like the program's.

use std::fmt;
use std::str::FromStr;

/// Which accesses count. The hardware knows no others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Writes.
    Write,
    /// Reads and writes.
    ReadOrWrite,
}

/// What a variable's bytes mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    /// A number from 0 on.
    Unsigned,
    /// A number in two's complement.
    Signed,
    /// A floating-point number of 4 or 8 bytes.
    Float,
}

impl Number {
    const ALL: [(&'static str, Number); 3] =
        [("unsigned", Number::Unsigned), ("signed", Number::Signed), ("float", Number::Float)];

    /// The value of a variable with these bytes. Beyond 2⁵³ it is the nearest that a double has.
    pub fn of(self, bytes: u64, size: u8) -> f64 {
        let unused = 64 - 8 * u32::from(size.clamp(1, 8));
        match (self, size) {
            (Number::Float, 4) => f32::from_bits(bytes as u32).into(),
            (Number::Float, _) => f64::from_bits(bytes),
            (Number::Signed, _) => ((bytes << unused).cast_signed() >> unused) as f64,
            (Number::Unsigned, _) => bytes as f64,
        }
    }
}

/// A variable as the user names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The library that has it, as `--lib` names libraries.
    pub library: Option<String>,
    /// Its symbol, or its name in the source; an address as it was written.
    pub symbol: String,
    /// Where it is in the processes, if that is said.
    pub address: Option<u64>,
    /// The part of it that is watched, by its offset and size in bytes; all of it if there is none.
    pub part: Option<(u64, u64)>,
    /// Which accesses count.
    pub access: Access,
    /// What its values are, if they are recorded.
    pub values: Option<Number>,
}

impl FromStr for Name {
    type Err = String;

    fn from_str(text: &str) -> Result<Name, String> {
        let mut rest = text;
        let mut last = |words: &[&str]| {
            let (before, word) = rest.rsplit_once(':').filter(|(before, _)| !before.ends_with(':'))?;
            let place = words.iter().position(|known| *known == word)?;
            rest = before;
            Some(place)
        };
        let values = last(&Number::ALL.map(|(word, _)| word)).map(|place| Number::ALL[place].1);
        let access = match last(&["w", "rw"]) {
            Some(1) => Access::ReadOrWrite,
            _ => Access::Write,
        };
        let address = rest.strip_prefix("0x").and_then(|rest| {
            let (address, size) = rest.split_once('/')?;
            Some((u64::from_str_radix(address, 16).ok()?, size.parse().ok()?))
        });
        if let Some((address, size)) = address {
            let (symbol, address, part) = (format!("{address:#x}"), Some(address), Some((0, size)));
            return Name { library: None, symbol, address, part, access, values }.checked();
        }
        let part = rest.rsplit_once('+').and_then(|(before, part)| {
            let (offset, size) = part.split_once('/')?;
            Some((before, (offset.parse().ok()?, size.parse().ok()?)))
        });
        let (rest, part) = part.map_or((rest, None), |(before, part)| (before, Some(part)));
        let (library, symbol) = match single_colon(rest) {
            Some(place) => (Some(rest[..place].to_owned()), rest[place + 1..].to_owned()),
            None => (None, rest.to_owned()),
        };
        if symbol.is_empty() || library.as_ref().is_some_and(String::is_empty) {
            return Err("it must read [LIB:]SYMBOL[+OFFSET/SIZE][:w|rw][:unsigned|signed|float]".to_owned());
        }
        if single_colon(&symbol).is_some() {
            return Err("what follows the symbol must be w or rw, then unsigned, signed or float".to_owned());
        }
        Name { library, symbol, address: None, part, access, values }.checked()
    }
}

impl Name {
    fn checked(self) -> Result<Name, String> {
        match (self.values, self.access) {
            (Some(_), Access::ReadOrWrite) => Err("values are recorded after writes: leave out `rw`".to_owned()),
            _ => Ok(self),
        }
    }

    /// The variable, or the part of it that is watched.
    pub fn variable(&self) -> String {
        let part = match (self.address, self.part) {
            (_, None) => String::new(),
            (Some(_), Some((_, size))) => format!("/{size}"),
            (None, Some((offset, size))) => format!("+{offset}/{size}"),
        };
        format!("{}{part}", self.symbol)
    }
}

/// The first colon that is not one of the two between names of C++.
fn single_colon(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let is_colon = |place: Option<usize>| place.and_then(|place| bytes.get(place)) == Some(&b':');
    (0..bytes.len())
        .find(|&place| is_colon(Some(place)) && !is_colon(place.checked_sub(1)) && !is_colon(Some(place + 1)))
}

impl fmt::Display for Name {
    /// Library, symbol and accesses: what its counter is called.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(library) = &self.library {
            write!(out, "{library}:")?;
        }
        let access = match self.access {
            Access::Write => "w",
            Access::ReadOrWrite => "rw",
        };
        write!(out, "{}:{access}", self.variable())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn name(library: Option<&str>, symbol: &str, access: Access, values: Option<Number>) -> Name {
        let (library, symbol) = (library.map(str::to_owned), symbol.to_owned());
        Name { library, symbol, address: None, part: None, access, values }
    }

    #[test]
    fn names_are_taken_apart_from_both_ends() {
        let parse = |text: &str| text.parse::<Name>().unwrap();
        assert_eq!(parse("errors"), name(None, "errors", Access::Write, None));
        assert_eq!(parse("errors:rw"), name(None, "errors", Access::ReadOrWrite, None));
        assert_eq!(parse("x:float"), name(None, "x", Access::Write, Some(Number::Float)));
        let all = name(Some("libz.so.1"), "errors", Access::Write, Some(Number::Signed));
        assert_eq!(parse("libz.so.1:errors:w:signed"), all);
        assert_eq!(all.to_string(), "libz.so.1:errors:w");
        assert_eq!(parse("exe:ns::x:rw"), name(Some("exe"), "ns::x", Access::ReadOrWrite, None));
        assert_eq!(parse("ns::w"), name(None, "ns::w", Access::Write, None));
        let part = Name { part: Some((16, 8)), ..name(Some("exe"), "grid", Access::Write, Some(Number::Float)) };
        assert_eq!(parse("exe:grid+16/8:w:float"), part);
        assert_eq!(part.to_string(), "exe:grid+16/8:w");
        assert_eq!(parse("operator+").symbol, "operator+");
        let heap = Name {
            address: Some(0x55_5555),
            part: Some((0, 8)),
            ..name(None, "0x555555", Access::Write, Some(Number::Signed))
        };
        assert_eq!(parse("0x555555/8:w:signed"), heap);
        assert_eq!(heap.to_string(), "0x555555/8:w");
    }

    #[test]
    fn other_forms_are_refused() {
        for text in ["", ":w", "lib:", ":x", "x:r", "lib:x:write", "lib:x:signed:w", "x:rw:signed"] {
            let refusal = text.parse::<Name>();
            // `x:r` could be the variable `r` of a library `x`.
            assert_eq!(refusal.is_ok(), text == "x:r", "{text}: {refusal:?}");
        }
    }

    #[test]
    fn values_are_what_the_bytes_mean() {
        assert_eq!(Number::Unsigned.of(0xfe, 1), 254.0);
        assert_eq!(Number::Signed.of(0xfe, 1), -2.0);
        assert_eq!(Number::Signed.of(0x8000, 4), 32768.0);
        assert_eq!(Number::Signed.of(u64::MAX, 8), -1.0);
        assert_eq!(Number::Float.of(1.5_f32.to_bits().into(), 4), 1.5);
        assert_eq!(Number::Float.of((-2.25_f64).to_bits(), 8), -2.25);
    }
}
