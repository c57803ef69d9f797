//! Event-flow graphs for Graphviz: [`flow`](super::super::flow) says what they are. Dashed edges
//! lead from a caller to the calls that it makes first, solid ones to the call that follows.

use std::io::Write;

use rtrace_model::{counted, escape, grouped};

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
            let name = quoted(&values[place].call(&source.function_alone(node.region)));
            writeln!(output, "    n{number}_{place} [label=\"{name}\\n{}\"];", counted(node.calls, "call"))?;
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

/// How often, and after which executions of the source.
fn label(edge: &Edge) -> String {
    let Edge { count, first, last, stride } = *edge;
    let times = format!("{}×", grouped(count));
    let [first, last] = [first, last].map(grouped);
    match (count, stride) {
        (1, _) => format!("{times}, after call {first}"),
        (_, 0) => format!("{times}, after calls from {first} to {last}"),
        (_, 1) => format!("{times}, after calls {first} to {last}"),
        _ => format!("{times}, after each {} of calls {first} to {last}", ordinal(stride)),
    }
}

/// Such as `2nd`.
fn ordinal(number: u64) -> String {
    let ending = match (number % 10, number % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{}{ending}", grouped(number))
}

fn quoted(name: &str) -> String {
    escape(name).replace('\\', "\\\\").replace('"', "\\\"")
}
