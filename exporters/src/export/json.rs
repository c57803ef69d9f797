//! JSON written piece by piece: an export is too long to be one value in memory.

use std::io::{self, Write};

/// A text in quotes.
pub(super) fn text(text: &str) -> String {
    serde_json::to_string(text).expect("texts can always be written as JSON")
}

/// Texts as an object; where a name repeats, its texts become a list.
pub(super) fn object<'a>(members: impl IntoIterator<Item = (&'a str, &'a str)>) -> serde_json::Value {
    let mut object = serde_json::Map::new();
    for (name, text) in members {
        match object.entry(name) {
            serde_json::map::Entry::Vacant(entry) => {
                entry.insert(text.into());
            }
            serde_json::map::Entry::Occupied(mut entry) => match entry.get_mut() {
                serde_json::Value::Array(list) => list.push(text.into()),
                first => *first = vec![first.take(), text.into()].into(),
            },
        }
    }
    object.into()
}

/// The commas of a list: nothing before the first element.
#[derive(Default)]
pub(super) struct Commas {
    some: bool,
}

impl Commas {
    /// Begins a line with the next element.
    pub(super) fn next(&mut self, output: &mut dyn Write) -> io::Result<()> {
        output.write_all(if std::mem::replace(&mut self.some, true) { b",\n" } else { b"\n" })
    }
}
