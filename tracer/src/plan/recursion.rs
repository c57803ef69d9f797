//! Which functions may call themselves, directly or through other functions of their library.
//!
//! The kernel hooks only so many returns of a thread at a time, so what may nest without end is
//! better seen at its exits. What calls what is read from all code of the library: direct calls,
//! tail jumps, and both through slots that lead back into the library. Calls through pointers are
//! not seen; a function that calls itself by one of them counts as if it did not.

use std::collections::HashSet;

use iced_x86::{FlowControl, Instruction, OpKind};

use super::linkage;
use super::text::Text;

/// The functions of a library that may call themselves.
pub struct Recursion {
    /// Sorted addresses of their first instructions.
    addresses: Vec<u64>,
}

/// A direct way from one instruction to another.
struct Branch {
    from: u64,
    to: u64,
    is_call: bool,
}

/// A way from one function, or fragment of a function, to another; both by number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Edge {
    from: usize,
    to: usize,
    /// It begins a call; otherwise both are parts of one function.
    is_call: bool,
}

impl Recursion {
    /// Reads all code of a library.
    pub fn of(text: &Text) -> Recursion {
        let branches = branches(text);
        let mut starts = text.starts();
        let begins = |branch: &&Branch| branch.is_call || text.is_stub(branch.to);
        starts.extend(branches.iter().filter(begins).map(|branch| branch.to));
        starts.sort_unstable();
        starts.dedup();
        let edges = edges(text, &starts, &branches);
        let component = components(&edges, starts.len());
        let recursive: HashSet<usize> = edges
            .iter()
            .filter(|edge| edge.is_call && component[edge.from] == component[edge.to])
            .map(|edge| component[edge.from])
            .collect();
        let addresses = starts.iter().zip(&component).filter(|(_, component)| recursive.contains(component));
        Recursion { addresses: addresses.map(|(&start, _)| start).collect() }
    }

    /// Whether the function that begins at `address` may call itself.
    pub fn contains(&self, address: u64) -> bool {
        self.addresses.binary_search(&address).is_ok()
    }
}

/// All direct branches, but for jumps that stay within a function.
fn branches(text: &Text) -> Vec<Branch> {
    let slots = linkage::own_slots(text.image());
    let target = |instruction: &Instruction| match instruction.op0_kind() {
        OpKind::NearBranch64 => Some(instruction.near_branch_target()),
        OpKind::Memory if instruction.is_ip_rel_memory_operand() => {
            slots.get(&instruction.ip_rel_memory_address()).copied()
        }
        _ => None,
    };
    let mut branches = Vec::new();
    text.sweep_code(|instruction| {
        let is_call = match instruction.flow_control() {
            FlowControl::Call | FlowControl::IndirectCall => true,
            FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch | FlowControl::IndirectBranch => false,
            _ => return,
        };
        let Some(to) = target(instruction).filter(|&to| text.image().code(to, 1).is_some()) else { return };
        let from = instruction.ip();
        let stays = || {
            text.frame_at(to).is_some_and(|(index, frame)| {
                to != frame.start && text.frame_at(from).is_some_and(|(own, _)| own == index)
            })
        };
        if is_call || !stays() {
            branches.push(Branch { from, to, is_call });
        }
    });
    branches
}

/// The branches as ways between what begins at `starts`, sorted by origin.
fn edges(text: &Text, starts: &[u64], branches: &[Branch]) -> Vec<Edge> {
    let holder = |address: u64| starts.partition_point(|&start| start <= address).checked_sub(1);
    let begins = |address: u64| starts.binary_search(&address).is_ok();
    let is_fragment =
        |address: u64| text.frame_at(address).is_some_and(|(_, frame)| frame.start == address && !frame.entry_is_plain);
    let ways: Vec<(usize, usize, &Branch)> =
        branches.iter().filter_map(|branch| Some((holder(branch.from)?, holder(branch.to)?, branch))).collect();
    let is_inward = |branch: &Branch| !branch.is_call && (!begins(branch.to) || is_fragment(branch.to));
    let inward: HashSet<(usize, usize)> =
        ways.iter().filter(|(.., branch)| is_inward(branch)).map(|&(from, to, _)| (from, to)).collect();
    // A jump to what jumps back into the middle goes to a fragment, though it looks like a call.
    let is_call = |from, to, branch: &Branch| branch.is_call || !is_inward(branch) && !inward.contains(&(to, from));
    let mut edges: Vec<Edge> =
        ways.iter().map(|&(from, to, branch)| Edge { from, to, is_call: is_call(from, to, branch) }).collect();
    edges.sort_unstable();
    edges.dedup();
    edges
}

/// For each of `count` nodes one node that stands for its strongly connected component: Tarjan's
/// algorithm, with a stack of its own because the file sets the depth. `edges` are sorted.
fn components(edges: &[Edge], count: usize) -> Vec<usize> {
    const NONE: usize = usize::MAX;
    let edges_before = |node: usize| edges.partition_point(|edge| edge.from < node);
    let mut component = vec![NONE; count];
    let mut order = vec![NONE; count];
    // The earliest node that each can reach, by order.
    let mut earliest = vec![NONE; count];
    let mut visited = 0;
    let mut pending = Vec::new();
    for root in 0..count {
        // Nodes on the way from the root, each with the next of its edges.
        let mut way = Vec::new();
        let mut entered = (order[root] == NONE).then_some(root);
        loop {
            if let Some(node) = entered.take() {
                order[node] = visited;
                earliest[node] = visited;
                visited += 1;
                pending.push(node);
                way.push((node, edges_before(node)));
            }
            let Some((node, next)) = way.last_mut() else { break };
            let node = *node;
            match edges.get(*next).filter(|edge| edge.from == node) {
                Some(edge) => {
                    *next += 1;
                    if order[edge.to] == NONE {
                        entered = Some(edge.to);
                    } else if component[edge.to] == NONE {
                        earliest[node] = earliest[node].min(order[edge.to]);
                    }
                }
                None => {
                    way.pop();
                    if let Some(&(caller, _)) = way.last() {
                        earliest[caller] = earliest[caller].min(earliest[node]);
                    }
                    if earliest[node] == order[node] {
                        while let Some(member) = pending.pop() {
                            component[member] = node;
                            if member == node {
                                break;
                            }
                        }
                    }
                }
            }
        }
    }
    component
}
