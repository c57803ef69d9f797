//! SQL views over the files of a trace, for DuckDB: what refers to each other is joined once, here, and several traces
//! are one.
//!
//! The views whose names begin with `_` are the files as they are, with a column that names the trace; a file that a
//! trace does not have is a table without rows, so that all views exist whatever was recorded. The others build on these.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use arrow_schema::{DataType, Field};
use rtrace_model::{
    Call, CallSite, Estimate, Event, FoldedPath, Library, Location, Metric, PathProfile, Process, Region, Sample,
    ValueColumn,
};

use crate::schema::{Row, call_columns};
use crate::values::{self, folder_name, names};
use crate::{Error, Trace, TraceSet};

/// The views that join, in the order in which they build on each other; `{…}` is put in by [`views`].
const JOINED: &str = include_str!("views.sql");

/// The columns of the view `calls` in front of what was counted, by which values must not be called.
const OF_CALLS: [&str; 24] = [
    "trace",
    "rank",
    "location",
    "call",
    "parent",
    "depth",
    "function",
    "library",
    "waits_for",
    "pid",
    "tid",
    "thread",
    "process",
    "since_start_ns",
    "start_ns",
    "duration_ns",
    "child_ns",
    "exclusive_ns",
    "ending",
    "called_at",
    "call_site",
    "region",
    "context",
    "caller",
];

/// The statements that make the views of a trace, or of several as one. Paths in them are absolute.
///
/// # Errors
/// A directory is not there any more, or its path is no text.
pub fn views(set: &TraceSet) -> Result<String, Error> {
    let traces = set.traces().map(Member::new).collect::<Result<Vec<_>, Error>>()?;
    let mut sql = String::from(
        "-- Views of a trace for DuckDB, made by `rtrace info --sql`. docs/recipes.md uses them, SCHEMA.md says what\n\
         -- columns mean. They read the trace where it was when they were made.\n",
    );
    define_traces(set, &traces, &mut sql);
    define::<Call>("_calls", &traces, &mut sql);
    define::<Region>("_regions", &traces, &mut sql);
    define::<Library>("_libraries", &traces, &mut sql);
    define::<Process>("_processes", &traces, &mut sql);
    define::<Location>("_locations", &traces, &mut sql);
    define::<CallSite>("_call_sites", &traces, &mut sql);
    define::<Metric>("metrics", &traces, &mut sql);
    define::<Event>("events", &traces, &mut sql);
    define::<Sample>("_samples", &traces, &mut sql);
    define::<Estimate>("_estimates", &traces, &mut sql);
    define::<PathProfile>("_profile", &traces, &mut sql);
    define::<FoldedPath>("_folded", &traces, &mut sql);
    define::<ValueColumn>("value_columns", &traces, &mut sql);
    let counted: Vec<String> = counted(set).iter().map(|name| format!(", {}", counted_as(name))).collect();
    let begin = set.header().begin.monotonic.0;
    sql.push_str(&JOINED.replace("{counted}", &counted.concat()).replace("{begin}", &begin.to_string()));
    define_values(&traces, &mut sql);
    Ok(sql)
}

/// One of the traces.
struct Member<'a> {
    trace: &'a Trace,
    /// Its absolute path.
    path: String,
}

impl Member<'_> {
    fn new(trace: &Trace) -> Result<Member<'_>, Error> {
        let path = fs::canonicalize(trace.directory()).map_err(Error::io("find", trace.directory()))?;
        let no_text = || std::io::Error::new(std::io::ErrorKind::InvalidInput, "its path is not UTF-8");
        let text = path.to_str().ok_or_else(no_text).map_err(Error::io("name", trace.directory()))?;
        Ok(Member { trace, path: text.to_owned() })
    }

    /// The pattern that a file of this trace matches, or the segments in a folder; none if there is none.
    fn files(&self, place: &str) -> Option<String> {
        let path = Path::new(&self.path).join(place);
        let is_there = if place.ends_with(".parquet") { path.is_file() } else { has_segments(&path) };
        let all = if place.ends_with(".parquet") { "" } else { "/*.parquet" };
        is_there.then(|| text(&format!("{}{all}", without_wildcards(&format!("{}/{place}", self.path)))))
    }
}

/// Whether there is a complete segment in a folder.
fn has_segments(folder: &Path) -> bool {
    let is_segment = |entry: fs::DirEntry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        name.ends_with(".parquet") && !name.starts_with('.')
    };
    fs::read_dir(folder).is_ok_and(|entries| entries.filter_map(Result::ok).any(is_segment))
}

/// A path as DuckDB's patterns of files have it.
fn without_wildcards(path: &str) -> String {
    let escaped = |c: char| if "*?[".contains(c) { format!("[{c}]") } else { c.to_string() };
    path.chars().map(escaped).collect()
}

/// A text in quotes.
fn text(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// A name in quotes.
fn name(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn define_traces(set: &TraceSet, traces: &[Member<'_>], sql: &mut String) {
    let mut rows = Vec::new();
    for (place, (member, shift)) in traces.iter().zip(set.shifts()).enumerate() {
        let header = member.trace.header();
        let rank = header.rank.as_ref().map_or("NULL".to_owned(), |rank| rank.rank.to_string());
        let command: Vec<String> = header.command.iter().map(|word| text(word)).collect();
        rows.push(format!(
            "  ({place}, {}, {rank}, {}, [{}]::VARCHAR[], {}, {}, {shift})",
            text(&member.path),
            text(&header.host),
            command.join(", "),
            header.begin.monotonic.0,
            header.begin.realtime_ns,
        ));
    }
    let _ = writeln!(
        sql,
        "\n-- A row per recording; `shift_ns` leads from its clock to the one that all share.\n\
         CREATE OR REPLACE VIEW traces AS SELECT trace::INTEGER AS trace, directory, rank::INTEGER AS rank, host, command,\n  \
         begin_ns::BIGINT AS begin_ns, begin_realtime_ns::BIGINT AS begin_realtime_ns, shift_ns::BIGINT AS shift_ns\n\
         FROM (VALUES\n{}\n) AS t(trace, directory, rank, host, command, begin_ns, begin_realtime_ns, shift_ns);\n",
        rows.join(",\n"),
    );
}

/// A view of all files of that kind, with the columns that this version knows, and those that a file has beside them.
fn define<R: Row>(view: &str, traces: &[Member<'_>], sql: &mut String) {
    let empty = R::encode(std::iter::empty());
    let column =
        |field: &std::sync::Arc<Field>| format!("NULL::{} AS {}", type_of(field.data_type()), name(field.name()));
    let columns: Vec<String> = empty.schema().fields().iter().map(column).collect();
    let _ = write!(
        sql,
        "CREATE OR REPLACE VIEW {view} AS SELECT NULL::INTEGER AS trace, {} WHERE false",
        columns.join(", ")
    );
    for (place, member) in traces.iter().enumerate() {
        if let Some(files) = member.files(R::PLACE) {
            let _ = write!(
                sql,
                "\n  UNION ALL BY NAME SELECT {place}::INTEGER AS trace, * FROM read_parquet({files}, union_by_name = true)"
            );
        }
    }
    sql.push_str(";\n");
}

/// The type as SQL names it.
fn type_of(of: &DataType) -> String {
    match of {
        DataType::Int32 => "INTEGER".to_owned(),
        DataType::Int64 => "BIGINT".to_owned(),
        DataType::Float64 => "DOUBLE".to_owned(),
        DataType::Boolean => "BOOLEAN".to_owned(),
        DataType::List(item) => format!("{}[]", type_of(item.data_type())),
        DataType::Struct(fields) => {
            let field =
                |field: &std::sync::Arc<Field>| format!("{} {}", name(field.name()), type_of(field.data_type()));
            format!("STRUCT({})", fields.iter().map(field).collect::<Vec<_>>().join(", "))
        }
        // Texts, some of them in dictionaries.
        _ => "VARCHAR".to_owned(),
    }
}

/// The columns of what was counted on calls, in any of the traces.
fn counted(set: &TraceSet) -> Vec<String> {
    let mut columns: Vec<String> = Vec::new();
    for trace in set.traces().filter(|trace| trace.recorded_calls() > 0) {
        let further = call_columns(trace.metrics().iter());
        columns.extend(further.into_iter().filter(|name| !columns.contains(name)).collect::<Vec<_>>());
    }
    columns
}

/// Such a column in `calls`: with as many `_` behind it as tell it from the others.
fn counted_as(column: &str) -> String {
    format!("c.{} AS {}", name(column), name(&told_apart(column, &OF_CALLS.map(str::to_owned).into())))
}

/// The name with as many `_` behind it as tell it from those that are taken; DuckDB ignores case.
fn told_apart(name: &str, taken: &HashSet<String>) -> String {
    let mut name = name.to_owned();
    while taken.contains(&name.to_lowercase()) {
        name.push('_');
    }
    name
}

/// A view per function with the values of its calls behind the columns of `calls`.
fn define_values(traces: &[Member<'_>], sql: &mut String) {
    // Functions of the same symbol in several traces or libraries are one, but not those of one library.
    let mut functions: Vec<(String, Vec<String>, Vec<String>)> = Vec::new();
    for (place, member) in traces.iter().enumerate() {
        let mut of_symbol: HashMap<_, usize> = HashMap::new();
        for region in member.trace.regions() {
            *of_symbol.entry((region.library, region.symbol())).or_default() += 1;
        }
        for region in member.trace.regions() {
            let columns = member.trace.value_columns_of(region.id);
            let folder = format!("{}/{}", values::PLACE, folder_name(region));
            let Some(files) = (!columns.is_empty()).then(|| member.files(&folder)).flatten() else { continue };
            let symbol = match region.symbol() {
                symbol if of_symbol[&(region.library, symbol.clone())] > 1 => Cow::Borrowed(region.name.as_str()),
                symbol => symbol,
            };
            let known = functions.iter().position(|(name, ..)| *name == symbol);
            let known = known.unwrap_or_else(|| {
                functions.push((symbol.clone().into_owned(), Vec::new(), Vec::new()));
                functions.len() - 1
            });
            let (_, all, parts) = &mut functions[known];
            all.extend(names(columns).into_iter().filter(|name| !all.contains(name)).collect::<Vec<_>>());
            parts.push(format!("SELECT {place}::INTEGER AS trace, * FROM read_parquet({files}, union_by_name = true)"));
        }
    }
    let mut taken_views = HashSet::new();
    for (symbol, columns, parts) in functions {
        let view = told_apart(&format!("values_{symbol}"), &taken_views);
        taken_views.insert(view.to_lowercase());
        let mut taken: HashSet<String> = OF_CALLS.map(str::to_owned).into();
        let mut shown = Vec::new();
        for column in columns {
            let alias = told_apart(&column, &taken);
            taken.insert(alias.to_lowercase());
            shown.push(format!("v.{} AS {}", name(&column), name(&alias)));
        }
        let _ = writeln!(
            sql,
            "CREATE OR REPLACE VIEW {} AS SELECT {}, c.* FROM calls AS c JOIN (\n  {}\n) AS v USING (trace, location, call);",
            name(&view),
            shown.join(", "),
            parts.join("\n  UNION ALL BY NAME "),
        );
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn names_and_paths_stay_what_they_are() {
        assert_eq!(text("it's"), "'it''s'");
        assert_eq!(name("a\"b"), "\"a\"\"b\"");
        assert_eq!(without_wildcards("/a[1]*/b?"), "/a[[]1][*]/b[?]");
        let taken = HashSet::from(["call".to_owned(), "call_".to_owned()]);
        assert_eq!(told_apart("CALL", &taken), "CALL__");
        assert_eq!(counted_as("rank"), "c.\"rank\" AS \"rank_\"");
    }

    #[test]
    fn types_are_those_of_sql() {
        let regions = Region::encode(std::iter::empty()).schema();
        let symbols = regions.field_with_name("symbols").unwrap().data_type().clone();
        assert_eq!(type_of(&symbols), "STRUCT(\"symbol\" VARCHAR, \"version\" VARCHAR)[]");
        let calls = Call::encode(std::iter::empty()).schema();
        assert_eq!(type_of(calls.field_with_name("ending").unwrap().data_type()), "VARCHAR");
    }
}
