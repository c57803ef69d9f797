//! The page around the data: markup, style and scripts in one file.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use rtrace_model::escape;
use serde_json::Value;

/// What every page begins with, and nothing else does.
const PROLOGUE: &str = "<!doctype html>\n<!-- A recording of rtrace. -->\n";

const STYLE: &str = include_str!("assets/page.css");

/// The scripts in the order in which they need each other.
const SCRIPTS: [&str; 9] = [
    include_str!("assets/base.js"),
    include_str!("assets/table.js"),
    include_str!("assets/colours.js"),
    include_str!("assets/flame.js"),
    include_str!("assets/timeline.js"),
    include_str!("assets/charts.js"),
    include_str!("assets/detail.js"),
    include_str!("assets/recording.js"),
    include_str!("assets/page.js"),
];

/// Nothing is loaded from anywhere, and nothing sent: not even what a name could ask for.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; \
                      base-uri 'none'; form-action 'none'";

/// The whole page.
pub(super) fn page(title: &str, data: Value) -> String {
    let mut page = String::from(PROLOGUE);
    let (title, data) = (text(title), embedded(data));
    for part in [
        "<html lang=\"en\"><head><meta charset=\"utf-8\">\n<meta http-equiv=\"Content-Security-Policy\" content=\"",
        POLICY,
        "\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n",
        "<meta name=\"color-scheme\" content=\"light dark\">\n<title>",
        &title,
        "</title>\n<style>\n",
        STYLE,
        "</style></head>\n<body>\n",
        include_str!("assets/body.html"),
        "<script type=\"application/json\" id=\"data\">",
        &data,
        "</script>\n<script>\n\"use strict\";\n",
    ] {
        page.push_str(part);
    }
    SCRIPTS.iter().for_each(|script| page.push_str(script));
    page.push_str("</script>\n</body></html>\n");
    page
}

/// Whether the file is such a page.
pub fn is_page(path: &Path) -> bool {
    let mut begin = vec![0; PROLOGUE.len()];
    File::open(path).is_ok_and(|mut file| file.read_exact(&mut begin).is_ok() && begin == PROLOGUE.as_bytes())
}

/// JSON that no name in it can end: `<` occurs in texts alone, where it may be written as an escape.
fn embedded(mut data: Value) -> String {
    escape_texts(&mut data);
    data.to_string().replace('<', "\\u003c")
}

/// Makes control characters and marks of direction visible in every text.
fn escape_texts(value: &mut Value) {
    match value {
        Value::String(text) => *text = escape(text).into_owned(),
        Value::Array(values) => values.iter_mut().for_each(escape_texts),
        Value::Object(members) => members.values_mut().for_each(escape_texts),
        _ => {}
    }
}

/// A text inside an element.
fn text(text: &str) -> String {
    escape(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use serde_json::json;

    use super::*;

    #[test]
    fn names_cannot_leave_their_place() {
        let name = "</script><script>alert(1)</script><!-- \u{202e}\u{1b}[31m \" ' & </title>";
        let page = page(name, json!({ "names": [name] }));
        let data = page.split("id=\"data\">").nth(1).unwrap().split("</script>").next().unwrap();
        let read: Value = serde_json::from_str(data).unwrap();
        assert_eq!(read["names"][0], escape(name).as_ref());
        assert!(!page.contains("<script>alert") && !page.contains('\u{202e}') && !page.contains('\u{1b}'));
        assert_eq!(page.matches("</title>").count(), 1);
        assert_eq!(page.matches("</script>").count(), 2);
    }

    #[test]
    fn a_page_is_told_from_other_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page.html");
        assert!(!is_page(&path));
        std::fs::write(&path, "<!doctype html>\n<html>").unwrap();
        assert!(!is_page(&path));
        std::fs::write(&path, page("t", Value::Null)).unwrap();
        assert!(is_page(&path));
        assert!(!is_page(folder.path()));
    }
}
