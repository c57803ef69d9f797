//! The order of what a caller calls, and its loops.
//!
//! What can follow itself is a loop: a strongly connected component of the graph. It begins with the one call by which it
//! is entered; without that, and without what leads back to it, the rest has loops of its own. A loop that is entered at
//! several calls has none within, and the order of their first calls.
//!
//! Calls that two loops begin with are told from one loop with a condition by the ways out: `a a b a a b` is left behind
//! `b` alone, so it is `a` in a loop of its own, and `a a b a a` is one loop, in which `b` is not always called.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::super::super::flow::{EdgeEnd, EventFlow};

/// Loops within loops, at most: what looks like more has no structure to show.
const DEEPEST: usize = 12;

/// Calls of one caller that are repeated, by their places among its callees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Loop {
    pub(super) first: usize,
    pub(super) last: usize,
    pub(super) entries: u64,
    pub(super) iterations: u64,
}

/// The callees in order, and the loops among them, the outer ones first.
pub(super) fn arranged(flow: &EventFlow, caller: Option<usize>, callees: Vec<usize>) -> (Vec<usize>, Vec<Loop>) {
    let graph = Graph::of(flow, caller, &callees);
    let mut arrangement = Arrangement { graph: &graph, order: Vec::new(), spans: Vec::new() };
    arrangement.arrange(&Vec::from_iter(0..callees.len()), 0);
    let Arrangement { order, spans, .. } = arrangement;
    let loops = graph.loops(&order, spans);
    (order.into_iter().map(|place| callees[place]).collect(), loops)
}

/// What follows what among the callees of one caller, which have numbers in the order of their first calls.
struct Graph {
    /// Of each callee: those that follow it, with how often.
    followers: Vec<Vec<(usize, u64)>>,
    /// Of each callee: those that it follows.
    leaders: Vec<Vec<usize>>,
    /// How often the caller calls it first.
    begins: Vec<u64>,
    /// Whether it may be the last.
    ends: Vec<bool>,
}

impl Graph {
    fn of(flow: &EventFlow, caller: Option<usize>, callees: &[usize]) -> Graph {
        let places: HashMap<usize, usize> = callees.iter().enumerate().map(|(place, &node)| (node, place)).collect();
        let followers = |from: EdgeEnd| {
            let edges = flow.leaving(from).filter_map(|(to, edge)| match to {
                EdgeEnd::Call(to) => Some((*places.get(&to)?, edge.count)),
                _ => None,
            });
            edges.collect::<Vec<_>>()
        };
        let mut begins = vec![0; callees.len()];
        for (place, count) in followers(EdgeEnd::Begin(caller)) {
            begins[place] = count;
        }
        let is_last = |&node: &usize| flow.leaving(EdgeEnd::Call(node)).any(|(to, _)| matches!(to, EdgeEnd::End(_)));
        let followers = callees.iter().map(|&node| followers(EdgeEnd::Call(node))).collect();
        Graph::new(followers, begins, callees.iter().map(is_last).collect())
    }

    fn new(followers: Vec<Vec<(usize, u64)>>, begins: Vec<u64>, ends: Vec<bool>) -> Graph {
        let mut leaders = vec![Vec::new(); followers.len()];
        for (from, followers) in followers.iter().enumerate() {
            followers.iter().for_each(|&(to, _)| leaders[to].push(from));
        }
        Graph { followers, leaders, begins, ends }
    }

    /// The strongly connected components among these callees, each before those that follow it (Tarjan's algorithm;
    /// callees come and go by their numbers).
    fn components(&self, among: &[usize]) -> Vec<Vec<usize>> {
        const LEFT: usize = usize::MAX;
        let mut numbers: HashMap<usize, usize> = HashMap::new();
        let mut lowest: HashMap<usize, usize> = HashMap::new();
        let (mut open, mut components) = (Vec::new(), Vec::new());
        for &root in among.iter().rev() {
            // Callees on the way, each with the number of its followers that are still to be visited.
            let mut way: Vec<(usize, usize)> = Vec::new();
            let mut enter = Some(root).filter(|root| !numbers.contains_key(root));
            loop {
                if let Some(place) = enter.take() {
                    lowest.insert(place, numbers.len());
                    numbers.insert(place, numbers.len());
                    open.push(place);
                    way.push((place, self.followers[place].len()));
                }
                let Some((place, rest)) = way.last_mut() else { break };
                let place = *place;
                if let Some(left) = rest.checked_sub(1) {
                    *rest = left;
                    let (next, _) = self.followers[place][left];
                    match numbers.get(&next) {
                        _ if among.binary_search(&next).is_err() => {}
                        Some(&LEFT) => {}
                        Some(&number) => _ = lowest.entry(place).and_modify(|lowest| *lowest = number.min(*lowest)),
                        None => enter = Some(next),
                    }
                    continue;
                }
                way.pop();
                let reached = lowest[&place];
                if reached == numbers[&place] {
                    let begin = open.iter().rposition(|&of| of == place).unwrap_or(0);
                    let mut component = open.split_off(begin);
                    component.iter().for_each(|of| _ = numbers.insert(*of, LEFT));
                    component.sort_unstable();
                    components.push(component);
                } else if let Some((before, _)) = way.last() {
                    lowest.entry(*before).and_modify(|lowest| *lowest = reached.min(*lowest));
                }
            }
        }
        components.reverse();
        components
    }

    /// The callees of a component that something outside of it leads to.
    fn heads(&self, component: &[usize]) -> Vec<usize> {
        let is_outside = |from: &usize| component.binary_search(from).is_err();
        let is_head = |&place: &usize| self.begins[place] > 0 || self.leaders[place].iter().any(is_outside);
        component.iter().copied().filter(is_head).collect()
    }

    /// Loops over these spans of the order, with their numbers of iterations.
    fn loops(&self, order: &[usize], mut spans: Vec<(usize, usize)>) -> Vec<Loop> {
        spans.sort_by_key(|&(first, last)| (first, Reverse(last)));
        spans.dedup();
        let mut places = vec![0; order.len()];
        order.iter().enumerate().for_each(|(place, &callee)| places[callee] = place);
        let mut loops: Vec<Loop> =
            spans.iter().map(|&(first, last)| Loop { first, last, entries: 0, iterations: 0 }).collect();
        let begins = self.begins.iter().enumerate().map(|(to, &count)| (None, places[to], count));
        let follows = self.followers.iter().enumerate().flat_map(|(from, followers)| {
            let (from, places) = (Some(places[from]), &places);
            followers.iter().map(move |&(to, count)| (from, places[to], count))
        });
        for (from, to, count) in begins.chain(follows).filter(|&(_, _, count)| count > 0) {
            let mut smallest = None;
            for around in &mut loops {
                let within = |place: usize| (around.first..=around.last).contains(&place);
                match (within(to), from.is_some_and(within)) {
                    (true, true) => smallest = Some(around),
                    (true, false) => {
                        around.entries += count;
                        around.iterations += count;
                    }
                    _ => {}
                }
            }
            if let Some(around) = smallest.filter(|_| from.is_some_and(|from| to <= from)) {
                around.iterations += count;
            }
        }
        loops
    }
}

struct Arrangement<'g> {
    graph: &'g Graph,
    order: Vec<usize>,
    /// Places in the order between which a loop is.
    spans: Vec<(usize, usize)>,
}

impl Arrangement<'_> {
    /// Puts these callees, in ascending order, behind those that have their places.
    fn arrange(&mut self, callees: &[usize], depth: usize) {
        for component in self.graph.components(callees) {
            let first = self.order.len();
            let follows_itself = || self.graph.followers[component[0]].iter().any(|&(to, _)| to == component[0]);
            if component.len() == 1 && !follows_itself() {
                self.order.extend(component);
                continue;
            }
            let last = first + component.len() - 1;
            self.spans.push((first, last));
            match self.graph.heads(&component)[..] {
                [head] if depth < DEEPEST => {
                    self.order.push(head);
                    let rest: Vec<usize> = component.iter().copied().filter(|&callee| callee != head).collect();
                    self.arrange(&rest, depth + 1);
                    self.repeat_beginning(first, &component);
                }
                _ => self.order.extend(component),
            }
        }
    }

    /// Finds the loops with which the loop over this component begins.
    fn repeat_beginning(&mut self, first: usize, component: &[usize]) {
        let members = &self.order[first..];
        let is_outside = |&(to, _): &(usize, u64)| component.binary_search(&to).is_err();
        let is_left = |&callee: &usize| self.graph.ends[callee] || self.graph.followers[callee].iter().any(is_outside);
        let before = members.iter().position(is_left).unwrap_or(members.len()).min(members.len() - 1);
        let repeats = |&place: &usize| self.graph.leaders[members[0]].contains(&members[place]);
        let ends: Vec<usize> = (0..before).filter(repeats).map(|place| first + place).collect();
        let crosses = |end: usize| self.spans.iter().any(|&(from, to)| first < from && from <= end && end < to);
        let inner: Vec<(usize, usize)> =
            ends.into_iter().filter(|&end| !crosses(end)).map(|end| (first, end)).collect();
        self.spans.extend(inner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The loops of a caller that calls these letters, as text.
    fn text(calls: &str) -> String {
        let mut callees: Vec<char> = Vec::new();
        let (mut begins, mut followers, mut ends) = (Vec::new(), Vec::new(), Vec::new());
        let mut before: Option<usize> = None;
        for letter in calls.chars() {
            let place = callees.iter().position(|&known| known == letter).unwrap_or_else(|| {
                callees.push(letter);
                begins.push(0);
                followers.push(Vec::<(usize, u64)>::new());
                ends.push(false);
                callees.len() - 1
            });
            match before {
                None => begins[place] = 1,
                Some(before) => match followers[before].iter_mut().find(|(to, _)| *to == place) {
                    Some((_, count)) => *count += 1,
                    None => followers[before].push((place, 1)),
                },
            }
            before = Some(place);
        }
        ends[before.expect("there are calls")] = true;
        followers.iter_mut().for_each(|of| of.sort_unstable());
        let graph = Graph::new(followers, begins, ends);
        let mut arrangement = Arrangement { graph: &graph, order: Vec::new(), spans: Vec::new() };
        arrangement.arrange(&Vec::from_iter(0..callees.len()), 0);
        let Arrangement { order, spans, .. } = arrangement;
        let loops = graph.loops(&order, spans);
        let mut text = String::new();
        for (place, &callee) in order.iter().enumerate() {
            for Loop { entries, iterations, .. } in loops.iter().filter(|of| of.first == place) {
                text += &format!("{iterations}/{entries}(");
            }
            text.push(callees[callee]);
            loops.iter().filter(|of| of.last == place).for_each(|_| text.push(')'));
        }
        text
    }

    #[test]
    fn a_loop_is_what_is_repeated() {
        for (calls, expected) in [
            ("abc", "abc"),
            ("aaa", "3/1(a)"),
            ("abababc", "3/1(ab)c"),
            ("axbaxb", "2/1(axb)"),
            // Loops in loops, one behind the other, and with one beginning.
            ("abbbcabbbcd", "2/1(a6/2(b)c)d"),
            ("abababcdcdcde", "3/1(ab)3/1(cd)e"),
            ("aaabaaab", "2/1(6/2(a)b)"),
            ("xababcdababcdy", "x2/1(4/2(ab)cd)y"),
        ] {
            assert_eq!(text(calls), expected, "{calls}");
        }
    }

    #[test]
    fn what_is_not_always_called_makes_no_loop() {
        for (calls, expected) in [
            // Behind the others, in front of what follows it, and instead of another.
            ("xaaaraaaay", "x7/1(ar)y"),
            ("xacacacracacy", "x5/1(acr)y"),
            ("xapaparpapy", "x4/1(arp)y"),
            ("abdacdabd", "3/1(abcd)"),
            ("abcadc", "2/1(abdc)"),
        ] {
            assert_eq!(text(calls), expected, "{calls}");
        }
    }

    #[test]
    fn calls_without_any_structure_are_one_loop() {
        let mut seed = 1_u32;
        let mut next = || {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            char::from(b'a' + (seed >> 16) as u8 % 26)
        };
        let calls: String = (0..5_000).map(|_| next()).collect();
        let text = text(&calls);
        assert!(text.matches('(').count() <= 3, "{text}");
    }
}
