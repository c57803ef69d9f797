//! Event-flow graphs for Graphviz: [`flow`](super::super::flow) says what they are. Dashed edges
//! lead from a caller to the calls that it makes first, solid ones to the call that follows.

use std::io::Write;

use rtrace_model::escape;

use super::super::flow::{Edge, Flow, Flows, Place};
use super::super::format::{Form, Format};
use super::super::step::Step;
use super::super::{ExportError, Source};

pub(super) const FORMAT: Format = Format {
    name: "event-flow",
    summary: "Event-flow graph: what is called after what, for Graphviz",
    extension: "flow.dot",
    opens_in: "Graphviz' dot, xdot",
    keeps: "order and number of calls by call path, with arguments and results, loops folded, threads of one flow together",
    omits: "times, endings, losses, counters",
    untimed: "like any call",
    form: Form::File(write),
};

fn write(source: &Source<'_>, output: &mut dyn Write) -> Result<(), ExportError> {
    writeln!(output, "digraph flow {{\n  node [shape=box, fontname=monospace];")?;
    for (number, Flows { flow, threads, values }) in Flow::collect(source)?.iter().enumerate() {
        let names: Vec<String> = threads.iter().map(|&location| source.step(Step::Thread(location))).collect();
        writeln!(output, "  subgraph cluster{number} {{\n    label=\"{}\";", quoted(&names.join(", ")))?;
        for (place, node) in flow.nodes.iter().enumerate() {
            let name = quoted(&values[place].call(source.function(node.region)));
            writeln!(output, "    n{number}_{place} [label=\"{name}\\n{} calls\"];", node.calls)?;
        }
        for (&ends, edge) in &flow.edges {
            let (from, to, style) = match ends {
                (Place::Begin(Some(from)), Place::Call(to)) => (from, to, "dashed"),
                (Place::Call(from), Place::Call(to)) => (from, to, "solid"),
                _ => continue,
            };
            let label = label(edge);
            writeln!(output, "    n{number}_{from} -> n{number}_{to} [style={style}, label=\"{label}\"];")?;
        }
        writeln!(output, "  }}")?;
    }
    writeln!(output, "}}")?;
    Ok(())
}

/// How often; after which executions of the source, where not after each.
fn label(edge: &Edge) -> String {
    let Edge { count, first, last, stride } = *edge;
    match (count, stride) {
        (1, _) => format!("1: {first}"),
        (_, 0) => format!("{count}: {first}..{last}"),
        _ => format!("{count}: {first}..{last} step {stride}"),
    }
}

fn quoted(name: &str) -> String {
    escape(name).replace('\\', "\\\\").replace('"', "\\\"")
}
