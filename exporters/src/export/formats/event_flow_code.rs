//! Event-flow graphs as the program that they describe: C-like text with the loops that the edges
//! show. [`flow`](super::super::flow) says what the graphs are.
//!
//! The calls of one caller stand in the order in which they were first made. An edge back to an
//! earlier one is a loop over what lies between; loops that overlap without one lying in the other
//! are taken together. So the text shows every call path once, with exact counts, and its order is
//! that of the first iteration.

use std::collections::HashMap;
use std::io::{self, Write};

use rtrace_model::escape;

use super::super::flow::{Edge, Flow, Flows, Place};
use super::super::format::{Form, Format};
use super::super::step::Step;
use super::super::variety::Varieties;
use super::super::{ExportError, Source};

pub(super) const FORMAT: Format = Format {
    name: "event-flow-code",
    summary: "Event-flow graph as C-like text: the program's loops",
    extension: "flow.c",
    opens_in: "any text editor",
    keeps: "order and number of calls by call path, with arguments and results, loops folded, threads of one flow together",
    omits: "times, endings, losses, counters",
    untimed: "like any call",
    form: Form::File(write),
};

fn write(source: &Source<'_>, output: &mut dyn Write) -> Result<(), ExportError> {
    for Flows { flow, threads, values } in &Flow::collect(source)? {
        for &location in threads {
            writeln!(output, "// {}", escape(&source.step(Step::Thread(location))))?;
        }
        let mut callees: HashMap<Option<usize>, Vec<usize>> = HashMap::new();
        for (place, node) in flow.nodes.iter().enumerate() {
            callees.entry(node.parent).or_default().push(place);
        }
        let mut code = Code { source, flow, values, callees, output: &mut *output };
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

/// Calls of one caller that are repeated, by their places among its callees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Loop {
    first: usize,
    last: usize,
    entries: u64,
    iterations: u64,
}

struct Code<'a> {
    source: &'a Source<'a>,
    flow: &'a Flow,
    values: &'a [Varieties],
    callees: HashMap<Option<usize>, Vec<usize>>,
    output: &'a mut dyn Write,
}

impl Code<'_> {
    /// What a caller does that is executed so many times.
    fn body(&mut self, caller: Option<usize>, executions: u64, scope: Scope) -> io::Result<()> {
        let Some(callees) = self.callees.remove(&caller) else { return Ok(()) };
        let loops = loops(self.flow, &callees);
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
        let (condition, remark) = match calls {
            _ if calls == executions => ("", String::new()),
            _ => ("if (...) ", format!("{calls} of {executions}{}", self.pattern(node))),
        };
        if self.callees.contains_key(&Some(node)) {
            self.line(scope, &format!("{condition}{name} {{"), &remark)?;
            // What happens within a call is counted anew.
            self.body(Some(node), calls, scope.inner())?;
            self.line(scope, "}", "")
        } else {
            self.line(scope, &format!("{condition}{name};"), &remark)
        }
    }

    /// After which executions of the call before it a call is made, if that is regular.
    fn pattern(&self, node: usize) -> String {
        let mut into = self.flow.edges.iter().filter(|((_, to), _)| *to == Place::Call(node));
        match (into.next(), into.next()) {
            (Some((_, Edge { first, last, stride, .. })), None) if *stride > 1 => {
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

/// The loops among the callees of one caller, the outer ones first.
fn loops(flow: &Flow, callees: &[usize]) -> Vec<Loop> {
    let places: HashMap<usize, usize> = callees.iter().enumerate().map(|(place, &node)| (node, place)).collect();
    let mut edges: Vec<(Option<usize>, usize, u64)> = Vec::new();
    for ((from, to), edge) in &flow.edges {
        let Place::Call(to) = to else { continue };
        let Some(&to) = places.get(to) else { continue };
        let from = match from {
            Place::Call(from) => places.get(from).copied(),
            _ => None,
        };
        edges.push((from, to, edge.count));
    }

    let back = |&(from, to, _): &(Option<usize>, usize, u64)| Some((to, from.filter(|&from| to <= from)?));
    let mut spans: Vec<(usize, usize)> = edges.iter().filter_map(back).collect();
    spans.sort_by_key(|&(first, last)| (first, std::cmp::Reverse(last)));
    spans.dedup();
    let spans = nested(spans);

    let smallest_around = |first: usize, last: usize| {
        spans.iter().rposition(|span| span.0 <= first && last <= span.1).expect("every edge back lies in a span")
    };
    let mut loops: Vec<Loop> =
        spans.iter().map(|&(first, last)| Loop { first, last, entries: 0, iterations: 0 }).collect();
    for edge in &edges {
        let &(from, to, count) = edge;
        for entered in &mut loops {
            let within = |place: usize| (entered.first..=entered.last).contains(&place);
            if within(to) && !from.is_some_and(within) {
                entered.entries += count;
                entered.iterations += count;
            }
        }
        if let Some((first, last)) = back(edge) {
            loops[smallest_around(first, last)].iterations += count;
        }
    }
    loops
}

/// Joins spans that overlap without one lying in the other. Spans come and go by their begin, the
/// longer ones first.
fn nested(spans: Vec<(usize, usize)>) -> Vec<(usize, usize)> {
    let mut joined: Vec<Option<(usize, usize)>> = Vec::new();
    // The spans in `joined` around the current place.
    let mut around: Vec<usize> = Vec::new();
    let end = |joined: &[Option<(usize, usize)>], place: usize| joined[place].map_or(0, |(_, last)| last);
    for (first, last) in spans {
        while around.pop_if(|inner| end(&joined, *inner) < first).is_some() {}
        match around.last() {
            Some(&inner) if end(&joined, inner) < last => {
                // They cross: the inner one grows, and swallows those around it that it outgrows.
                while let &[.., outer, inner] = &around[..]
                    && end(&joined, outer) < last
                {
                    joined[inner] = None;
                    around.pop();
                }
                if let Some(span) = around.last().and_then(|&inner| joined[inner].as_mut()) {
                    span.1 = last;
                }
            }
            _ => {
                around.push(joined.len());
                joined.push(Some((first, last)));
            }
        }
    }
    joined.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_nest_or_are_apart() {
        assert_eq!(nested(vec![(0, 9), (1, 3), (2, 3), (5, 5)]), [(0, 9), (1, 3), (2, 3), (5, 5)]);
        assert_eq!(nested(vec![(0, 2), (1, 4), (3, 5), (7, 8)]), [(0, 5), (7, 8)]);
        assert_eq!(nested(vec![(0, 6), (1, 4), (2, 2), (3, 5), (8, 8)]), [(0, 6), (1, 5), (2, 2), (8, 8)]);
        assert_eq!(nested(vec![(0, 6), (1, 4), (2, 3), (3, 5)]), [(0, 6), (1, 5)]);
        assert_eq!(nested(vec![(0, 3), (0, 1), (1, 5)]), [(0, 5)]);
    }
}
