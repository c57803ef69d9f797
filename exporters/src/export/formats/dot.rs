//! The call graph in Graphviz' language: a node per function, an edge per pair of caller and callee.
//! See <https://graphviz.org/doc/info/lang.html>.

use std::io::Write;

use rtrace_model::{counted, escape};

use super::super::format::{ExportFormat, Form};
use super::super::paths::{ExportPaths, readable, remarkable};
use super::super::remarks::remarks;
use super::super::{Excerpt, ExportError};

pub(super) const FORMAT: ExportFormat = ExportFormat {
    name: "dot",
    summary: "Graphviz: the graph of callers and callees",
    extension: "dot",
    opens_in: "Graphviz' dot, xdot, Gephi",
    keeps: "number of calls, own and inclusive time, endings, by caller and callee; losses as comments",
    omits: "processes, threads, times of single calls, counters; a recursive call's inclusive time counts at each level",
    untimed: "counted, no time",
    form: Form::File(write),
};

fn write(source: &Excerpt<'_>, output: &mut dyn Write) -> Result<(), ExportError> {
    let (nodes, edges) = ExportPaths::graph(source)?;
    let whole = nodes.values().map(|sum| sum.exclusive).fold(0, u64::saturating_add).max(1);
    writeln!(output, "digraph calls {{")?;
    for (name, text) in remarks(source)? {
        writeln!(output, "  // {name}: {}", escape(&text))?;
    }
    writeln!(output, "  node [shape=box, style=filled, fontname=monospace];")?;
    for (region, sum) in &nodes {
        let share = sum.exclusive as f64 / whole as f64;
        let label = format!(
            "{}\\n{}\\n{}\\n{}, own {}",
            quoted(source.function(*region)),
            quoted(source.library_of(*region)),
            calls(sum.endings),
            readable(sum.inclusive, sum.endings),
            readable(sum.exclusive, sum.endings),
        );
        writeln!(output, "  f{} [label=\"{label}\", fillcolor=\"0.05 {share:.3} 1.0\"];", region.0)?;
    }
    for ((caller, callee), sum) in &edges {
        let label = format!("{}\\n{}", calls(sum.endings), readable(sum.inclusive, sum.endings));
        writeln!(output, "  f{} -> f{} [label=\"{label}\"];", caller.0, callee.0)?;
    }
    writeln!(output, "}}")?;
    Ok(())
}

fn calls(endings: [u64; 4]) -> String {
    let remarks: Vec<String> = remarkable(endings).map(|(ending, calls)| format!("{calls} {ending}")).collect();
    let calls = counted(endings.iter().sum(), "call");
    if remarks.is_empty() { calls } else { format!("{calls}: {}", remarks.join(", ")) }
}

/// A name inside quotes.
fn quoted(name: &str) -> String {
    escape(name).replace('\\', "\\\\").replace('"', "\\\"")
}
