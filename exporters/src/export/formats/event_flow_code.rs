//! Event-flow graphs as the program that they describe: C-like text with the loops that the edges
//! show. [`flow`](super::super::flow) says what the graphs are.
//!
//! The calls of one caller stand in an order in which each comes before those that follow it, or else in that of their first
//! calls; [`arrangement`] finds it with the loops. So the text shows every call path once, with exact counts.

use std::collections::HashMap;
use std::io::{self, Write};

use rtrace_model::{Count, Metric, escape};

use self::arrangement::{Loop, arranged};
use super::super::flow::{Edge, EdgeEnd, EventFlow, Flows};
use super::super::format::{ExportFormat, Form};
use super::super::paths::PathFigures;
use super::super::step::PathStep;
use super::super::variety::Varieties;
use super::super::{Excerpt, ExportError};

mod arrangement;

pub(super) const FORMAT: ExportFormat = ExportFormat {
    name: "event-flow-code",
    summary: "Event-flow graph as C-like text: the program's loops",
    extension: "flow.c",
    opens_in: "any text editor",
    keeps: "order and number of calls by call path, with arguments and results, and counters per millisecond, loops folded, threads of one flow together",
    omits: "times, endings, losses",
    untimed: "like any call",
    form: Form::File(write),
};

fn write(source: &Excerpt<'_>, output: &mut dyn Write) -> Result<(), ExportError> {
    for Flows { flow, threads, values, figures } in &EventFlow::collect(source)? {
        for &location in threads {
            writeln!(output, "// {}", escape(&source.step(PathStep::Thread(location))))?;
        }
        let mut callees: HashMap<Option<usize>, Vec<usize>> = HashMap::new();
        for (place, node) in flow.nodes.iter().enumerate() {
            callees.entry(node.parent).or_default().push(place);
        }
        let mut entered = vec![Entered::Never; flow.nodes.len()];
        for (&(_, to), &edge) in &flow.edges {
            let EdgeEnd::Call(node) = to else { continue };
            entered[node] = if entered[node] == Entered::Never { Entered::By(edge) } else { Entered::InSeveralWays };
        }
        let mut code = CodeWriter { source, flow, values, figures, callees, entered, output: &mut *output };
        code.body(None, 1, Scope { indent: 0, loops: 0 })?;
        writeln!(output)?;
    }
    Ok(())
}

/// Where in the text a statement stands.
#[derive(Clone, Copy)]
struct Scope {
    indent: usize,
    /// Number of loops around it.
    loops: usize,
}

impl Scope {
    fn inner(self) -> Scope {
        Scope { indent: self.indent + 4, ..self }
    }
}

/// The edges that lead to a node.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Entered {
    Never,
    By(Edge),
    InSeveralWays,
}

struct CodeWriter<'a> {
    source: &'a Excerpt<'a>,
    flow: &'a EventFlow,
    values: &'a [Varieties],
    figures: &'a [PathFigures],
    callees: HashMap<Option<usize>, Vec<usize>>,
    /// Of each node.
    entered: Vec<Entered>,
    output: &'a mut dyn Write,
}

impl CodeWriter<'_> {
    /// What a caller does that is executed so many times.
    fn body(&mut self, caller: Option<usize>, executions: u64, scope: Scope) -> io::Result<()> {
        let Some(callees) = self.callees.remove(&caller) else { return Ok(()) };
        let (callees, loops) = arranged(self.flow, caller, callees);
        self.statements(&callees, 0..callees.len(), &loops, executions, scope)
    }

    /// The callees at these places; `loops` are those that lie within, the outer ones first.
    fn statements(
        &mut self,
        callees: &[usize],
        places: std::ops::Range<usize>,
        mut loops: &[Loop],
        executions: u64,
        scope: Scope,
    ) -> io::Result<()> {
        let mut place = places.start;
        while place < places.end {
            match loops.split_first() {
                Some((outer, rest)) if outer.first == place => {
                    let inside = rest.iter().take_while(|inner| inner.last <= outer.last).count();
                    let (inside, after) = rest.split_at(inside);
                    self.repeat(outer, scope)?;
                    let inner = Scope { loops: scope.loops + 1, ..scope.inner() };
                    self.statements(callees, outer.first..outer.last + 1, inside, outer.iterations, inner)?;
                    self.line(scope, "}", "")?;
                    loops = after;
                    place = outer.last + 1;
                }
                _ => {
                    self.call(callees[place], executions, scope)?;
                    place += 1;
                }
            }
        }
        Ok(())
    }

    /// The head of a loop: with its number of iterations, if that may be the same at each entry.
    fn repeat(&mut self, repeated: &Loop, scope: Scope) -> io::Result<()> {
        let Loop { entries, iterations, .. } = *repeated;
        let remark = match entries {
            1 => String::new(),
            _ => format!("{iterations} iterations, entered {entries} times"),
        };
        if iterations.is_multiple_of(entries.max(1)) {
            let counter = ["i", "j", "k", "l", "m", "n"].get(scope.loops).copied().unwrap_or("x");
            let limit = iterations / entries.max(1);
            self.line(scope, &format!("for ({counter} = 0; {counter} < {limit}; {counter}++) {{"), &remark)
        } else {
            self.line(scope, "while (...) {", &remark)
        }
    }

    fn call(&mut self, node: usize, executions: u64, scope: Scope) -> io::Result<()> {
        let calls = self.flow.nodes[node].calls;
        let name = &*self.source.function_alone(self.flow.nodes[node].region);
        let name = match self.values[node].is_empty() {
            true if name.ends_with(')') => escape(name).into_owned(),
            true => format!("{}()", escape(name)),
            false => self.values[node].call(&escape(name)),
        };
        let rates = self.rates(node);
        let (condition, remarks) = match calls {
            _ if calls == executions => ("", rates),
            _ => ("if (...) ", [vec![format!("{calls} of {executions}{}", self.pattern(node))], rates].concat()),
        };
        let remark = remarks.join(", ");
        if self.callees.contains_key(&Some(node)) {
            self.line(scope, &format!("{condition}{name} {{"), &remark)?;
            // What happens within a call is counted anew.
            self.body(Some(node), calls, scope.inner())?;
            self.line(scope, "}", "")
        } else {
            self.line(scope, &format!("{condition}{name};"), &remark)
        }
    }

    /// What was counted in the calls by their time, with traced callees.
    fn rates(&self, node: usize) -> Vec<String> {
        let PathFigures { totals, counts, .. } = &self.figures[node];
        if totals.inclusive == 0 {
            return Vec::new();
        }
        let rate = |(metric, count): (&Metric, &Count)| {
            let per_ns = count.inclusive as f64 / totals.inclusive as f64;
            match metric.is_nanoseconds() {
                true => format!("{} {per_ns:.2}", escape(&metric.name)),
                false => format!("{} {:.3}/ms", escape(&metric.name), per_ns * 1e6),
            }
        };
        self.source.call_metrics().iter().zip(counts).map(rate).collect()
    }

    /// After which executions of the call before it a call is made, if that is regular.
    fn pattern(&self, node: usize) -> String {
        match self.entered[node] {
            Entered::By(Edge { first, last, stride, .. }) if stride > 1 => {
                format!(": {first}, {}, ... {last}", first + stride)
            }
            _ => String::new(),
        }
    }

    fn line(&mut self, scope: Scope, code: &str, remark: &str) -> io::Result<()> {
        let remark = if remark.is_empty() { String::new() } else { format!("  // {remark}") };
        writeln!(self.output, "{:indent$}{code}{remark}", "", indent = scope.indent)
    }
}
