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

use crate::reader::list;
use crate::values::{self, folder_name, names};
use crate::{Error, Trace, TraceSet};

/// The views in the order in which they build on each other; `{…}` is put in by [`views`], and by the Python package.
const VIEWS: &str = include_str!("../../python/rtrace/views.sql");

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
    let begin = set.header().begin.monotonic.0;
    let mut parts = VIEWS.split(['{', '}']);
    let mut sql = parts.next().unwrap_or_default().to_owned();
    while let (Some(place), Some(rest)) = (parts.next(), parts.next()) {
        match place {
            "traces" => sql += &rows_of_traces(set, &traces),
            "begin" => sql += &begin.to_string(),
            place => {
                for (number, member) in traces.iter().enumerate() {
                    if let Some(files) = member.files(place) {
                        let _ = write!(sql, "\n  UNION ALL BY NAME {}", select(number, &files));
                    }
                }
            }
        }
        sql += rest;
    }
    define_values(&traces, &mut sql);
    Ok(sql)
}

fn select(trace: usize, files: &str) -> String {
    format!("SELECT {trace}::INTEGER AS trace, * FROM read_parquet({files}, union_by_name = true)")
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
        let is_there =
            if place.ends_with(".parquet") { path.is_file() } else { list(&path).is_ok_and(|found| !found.is_empty()) };
        let all = if place.ends_with(".parquet") { "" } else { "/*.parquet" };
        is_there.then(|| text(&format!("{}{all}", without_wildcards(&format!("{}/{place}", self.path)))))
    }
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

fn rows_of_traces(set: &TraceSet, traces: &[Member<'_>]) -> String {
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
    rows.join(",\n")
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
            parts.push(select(place, &files));
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
    use arrow_schema::{DataType, Field, SchemaRef};
    use rtrace_model::{
        Call, CallSite, Estimate, Event, FoldedPath, Library, Location, Metric, PathProfile, Process, Region, Sample,
        ValueColumn,
    };

    use super::*;
    use crate::schema::Row as _;

    #[test]
    fn names_and_paths_stay_what_they_are() {
        assert_eq!(text("it's"), "'it''s'");
        assert_eq!(name("a\"b"), "\"a\"\"b\"");
        assert_eq!(without_wildcards("/a[1]*/b?"), "/a[[]1][*]/b[?]");
        let taken = HashSet::from(["call".to_owned(), "call_".to_owned()]);
        assert_eq!(told_apart("CALL", &taken), "CALL__");
    }

    #[test]
    fn tables_without_a_file_have_the_columns_of_the_files() {
        let views =
            VIEWS.split_whitespace().collect::<Vec<_>>().join(" ").replace("STRUCT( ", "STRUCT(").replace('"', "");
        let mut places = vec!["traces", "begin", "begin"];
        let mut check = |place, schema: SchemaRef| {
            let columns: Vec<String> = schema.fields().iter().map(|field| column(field)).collect();
            let empty = format!("NULL::STRUCT({})) WHERE false{{{place}}};", columns.join(", "));
            assert!(views.contains(&empty), "views.sql lacks {empty}");
            places.push(place);
        };
        check(Call::PLACE, Call::encode([].iter()).schema());
        check(Region::PLACE, Region::encode([].iter()).schema());
        check(Library::PLACE, Library::encode([].iter()).schema());
        check(Process::PLACE, Process::encode([].iter()).schema());
        check(Location::PLACE, Location::encode([].iter()).schema());
        check(CallSite::PLACE, CallSite::encode([].iter()).schema());
        check(Metric::PLACE, Metric::encode([].iter()).schema());
        check(Event::PLACE, Event::encode([].iter()).schema());
        check(Sample::PLACE, Sample::encode([].iter()).schema());
        check(Estimate::PLACE, Estimate::encode([].iter()).schema());
        check(PathProfile::PLACE, PathProfile::encode([].iter()).schema());
        check(FoldedPath::PLACE, FoldedPath::encode([].iter()).schema());
        check(ValueColumn::PLACE, ValueColumn::encode([].iter()).schema());
        assert_eq!(VIEWS.matches('{').count(), places.len(), "views.sql has other places: {places:?}");
    }

    fn column(field: &Field) -> String {
        format!("{} {}", field.name(), type_of(field.data_type()))
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
                format!("STRUCT({})", fields.iter().map(|field| column(field)).collect::<Vec<_>>().join(", "))
            }
            // Texts, some of them in dictionaries.
            _ => "VARCHAR".to_owned(),
        }
    }
}
