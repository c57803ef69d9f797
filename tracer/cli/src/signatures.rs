//! `rtrace signatures`: of which libraries the arguments and results are known without debug information.

use anyhow::bail;
use rtrace_model::{escape, grouped, text_of_os};
use rtrace_signatures::{SITE_TABLES, TableContents, TableOrigin};
use serde_json::{Value, json};

use super::args::SignaturesArgs;
use super::columns::TextColumns;
use super::message::Hint as _;
use super::{Outcome, print, terminal_columns};

/// Libraries that are shown of a table.
const SHOWN: usize = 2;

/// Prints a line for each table, or for each function of those that are named.
pub fn signatures(options: &SignaturesArgs) -> anyhow::Result<Outcome> {
    let mut tables = rtrace_signatures::contents()?;
    if !options.libraries.is_empty() {
        let is_named = |name: &str| options.libraries.iter().any(|library| name.contains(library.as_str()));
        tables.retain(|table| table.libraries.iter().any(|name| is_named(name)) || is_named(&origin(table)));
        if tables.is_empty() {
            let refused =
                || -> anyhow::Result<()> { bail!("failed to find a table of {}", options.libraries.join(", ")) };
            refused().hint("`rtrace signatures` lists all; --args also reads debug information")?;
        }
    }
    let text = match (options.format.is_json(), options.libraries.is_empty()) {
        (true, _) => format!("{:#}\n", Value::from(tables.iter().map(as_json).collect::<Vec<_>>())),
        (false, true) => list(&tables),
        (false, false) => functions(&tables),
    };
    print(text.as_bytes())?;
    Ok(Outcome::Complete)
}

fn origin(table: &TableContents) -> String {
    match &table.origin {
        TableOrigin::BuiltIn(name) => format!("built in: {name}"),
        TableOrigin::File(path) => text_of_os(path).into_owned(),
    }
}

fn list(tables: &[TableContents]) -> String {
    let mut columns = TextColumns::new(["libraries", "functions", "made of", "table"], 3, |place| place == 1);
    for table in tables {
        let (first, others) = table.libraries.split_at(table.libraries.len().min(SHOWN));
        let libraries = match (first, others) {
            ([], _) => "any".to_owned(),
            (first, []) => first.join(", "),
            (first, others) => format!("{} and {} more", first.join(", "), others.len()),
        };
        let functions = grouped(table.functions.len() as u64);
        columns.add([escape(&libraries).into_owned(), functions, escape(&table.version).into_owned(), origin(table)]);
    }
    let place = format!("\nFiles {SITE_TABLES}/*.toml come before built-in tables, and --args-from before both.\n");
    columns.text(terminal_columns()) + &place
}

fn functions(tables: &[TableContents]) -> String {
    let function = |(name, c): &(String, Option<String>)| {
        let said = c.clone().unwrap_or_else(|| format!("{name}: by debug information"));
        format!("{}\n", escape(&said))
    };
    tables.iter().flat_map(|table| table.functions.iter().map(function)).collect()
}

fn as_json(table: &TableContents) -> Value {
    let function = |(name, c): &(String, Option<String>)| json!({ "name": name, "c": c });
    json!({
        "table": origin(table),
        "libraries": table.libraries,
        "symbols": table.symbols,
        "version": table.version,
        "functions": table.functions.iter().map(function).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_a_line_and_its_functions_are_prototypes() {
        let table = TableContents {
            origin: TableOrigin::BuiltIn("solve"),
            libraries: vec!["libsolve.so".to_owned()],
            symbols: Vec::new(),
            version: "2.1".to_owned(),
            functions: vec![("f".to_owned(), Some("int f(int n)".to_owned())), ("g".to_owned(), None)],
        };
        let tables = [table];
        assert!(list(&tables).contains("libsolve.so          2  2.1      built in: solve\n"), "{}", list(&tables));
        assert_eq!(functions(&tables), "int f(int n)\ng: by debug information\n");
    }
}
