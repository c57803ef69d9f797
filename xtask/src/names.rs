//! Names of types that are defined more than once: a reader must find out which one is meant.

use std::collections::BTreeMap;
use std::path::Path;

use crate::files::has_extension;
use crate::lines::SourceText;

/// Names that are known to be defined more than once; this only becomes less.
const MOST: usize = 38;

/// What is against this in the files of the product.
pub fn faults(files: &[SourceText]) -> Vec<String> {
    let mut defined: BTreeMap<&str, Vec<&Path>> = BTreeMap::new();
    for (file, text) in files.iter().filter(|(file, _)| has_extension(file, &["rs"])) {
        text.lines().filter_map(type_in).for_each(|name| defined.entry(name).or_default().push(file));
    }
    defined.retain(|_, files| files.len() > 1);
    if defined.len() <= MOST {
        return Vec::new();
    }
    let told = |(name, files): (&&str, &Vec<&Path>)| {
        let files: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
        format!("  {name}: {}", files.join(", "))
    };
    let list: Vec<String> = defined.iter().map(told).collect();
    vec![format!("{} names of types are defined more than once, at most {MOST}:\n{}", list.len(), list.join("\n"))]
}

/// The name of the type that a line defines outside of any block.
fn type_in(line: &str) -> Option<&str> {
    let line = match line.strip_prefix("pub") {
        Some(rest) => rest.split_once(if rest.starts_with('(') { ") " } else { " " })?.1,
        None => line,
    };
    let (keyword, rest) = line.split_once(' ')?;
    let end = rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(rest.len());
    ["struct", "enum", "type", "trait", "union"].contains(&keyword).then(|| &rest[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_that_of_a_type_outside_of_blocks() {
        let lines = [
            "struct A<'a> {",
            "pub enum B {",
            "pub(in crate::a) type C = u8;",
            "pub(super) trait D: E {",
            "    type Item = u8;",
            "fn f() {",
            "structure",
        ];
        assert_eq!(lines.map(type_in), [Some("A"), Some("B"), Some("C"), Some("D"), None, None, None]);
    }

    #[test]
    fn a_name_may_be_defined_once() {
        let file = |name: &str, text: &str| (name.into(), text.to_owned());
        let once = [file("a.rs", "struct A;\nstruct B;\n"), file("b.h", "struct A;\n"), file("b.rs", "struct C;\n")];
        assert!(faults(&once).is_empty());
        let twice: Vec<SourceText> = (0..=MOST)
            .flat_map(|number| ["a.rs", "b.rs"].map(|name| file(name, &format!("pub struct T{number};\n"))))
            .collect();
        assert!(faults(&twice)[0].contains("T0: a.rs, b.rs"));
    }
}
