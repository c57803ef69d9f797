//! Which functions may call themselves, directly or through other functions of their library.
//!
//! The kernel hooks only so many returns of a thread at a time, so what may nest without end is
//! better seen at its exits. What calls what is read from all code of the library: direct calls,
//! tail jumps, and both through slots that lead back into the library. Calls through pointers are
//! not seen; a function that calls itself by one of them counts as if it did not.

use std::ops::Range;

use foldhash::{HashMap, HashSet};

use super::text::{Addresses, Reference, ReferenceKind, Text};

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
        let starts = Addresses::new(starts);
        let edges = edges(text, &starts, &branches);
        let component = components(&edges, starts.all().len());
        let recursive: HashSet<usize> = edges
            .iter()
            .filter(|edge| edge.is_call && component[edge.from] == component[edge.to])
            .map(|edge| component[edge.from])
            .collect();
        let addresses = starts.all().iter().zip(&component).filter(|(_, component)| recursive.contains(component));
        Recursion { addresses: addresses.map(|(&start, _)| start).collect() }
    }

    /// Whether the function that begins at `address` may call itself.
    pub fn contains(&self, address: u64) -> bool {
        self.addresses.binary_search(&address).is_ok()
    }
}

/// All direct branches, but for jumps that stay within a function.
fn branches(text: &Text) -> Vec<Branch> {
    let slots: HashMap<u64, u64> =
        text.image().slots().into_iter().filter_map(|slot| Some((slot.address, slot.own?))).collect();
    // Branches come in the order of their addresses, so those of one function follow each other.
    let mut own = None;
    let mut stays = |from: u64, to: u64| {
        let is_in = |range: &Range<u64>| range.contains(&from);
        if !own.as_ref().is_some_and(is_in) {
            own = text.frame_at(from).map(|(index, _)| text.part_of_frame(index));
        }
        own.as_ref().is_some_and(|own| own.start < to && to < own.end)
    };
    let branch = |&Reference { from, to, kind }: &Reference| {
        let (to, is_call) = match kind {
            ReferenceKind::Call => (to, true),
            ReferenceKind::Jump => (to, false),
            ReferenceKind::SlotOfCall => (*slots.get(&to)?, true),
            ReferenceKind::SlotOfJump => (*slots.get(&to)?, false),
            ReferenceKind::Other => return None,
        };
        let is_kept = text.image().code(to, 1).is_some() && (is_call || !stays(from, to));
        is_kept.then_some(Branch { from, to, is_call })
    };
    text.references().all.iter().filter_map(branch).collect()
}

/// The branches as ways between what begins at `starts`, sorted by origin.
fn edges(text: &Text, starts: &Addresses, branches: &[Branch]) -> Vec<Edge> {
    let holder = |address: u64| starts.up_to(address).checked_sub(1);
    let begins = |address: u64| starts.contains(address);
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::super::testing::compile;
    use super::*;

    /// Which of the functions that this code exports may call themselves.
    fn recursive(code: &str, flags: &[&str]) -> Option<Vec<String>> {
        let image = compile("c", code, &[&["-shared", "-fPIC", "-fno-inline"], flags].concat())?;
        let functions = image.exports().unwrap().functions;
        let text = Text::new(&image, functions.iter().map(|function| function.address).collect());
        let recursion = Recursion::of(&text);
        let recursive = functions.into_iter().filter(|function| recursion.contains(function.address));
        let mut names: Vec<String> = recursive.map(|function| function.name).collect();
        names.sort();
        Some(names)
    }

    const CODE: &str = "
        int plain(int x) { return x + 1; }
        int direct(int x) { return x > 0 ? direct(x - 1) + direct(x - 2) : plain(x); }
        int odd(int x);
        int even(int x) { return x ? odd(x - 1) * 2 : 1; }
        int odd(int x) { return x ? even(x - 1) + 1 : 0; }
        int through_local(int x);
        static int local(int x) { return x > 1 ? through_local(x / 2) + 1 : 7; }
        int through_local(int x) { return local(x) * 5; }
        int caller(int x) { return direct(x) + even(x) + through_local(x); }
        int tail(int x) { return plain(x); }
        int loop(int x) { int sum = 0; while (x) sum += plain(x--); return sum; }
        int pointer(int (*f)(int), int x) { return f(x) + 1; }";

    #[test]
    fn cycles_are_found_however_calls_are_made() {
        let expected = ["direct", "even", "odd", "through_local"];
        for flags in [&[][..], &["-Wl,-Bsymbolic"], &["-fno-plt"], &["-Wl,-z,now"], &["-fcf-protection=none"], &["-s"]]
        {
            let Some(names) = recursive(CODE, flags) else { return };
            assert_eq!(names, expected, "{flags:?}");
        }
    }

    #[test]
    fn functions_without_unwind_tables_are_told_apart() {
        let Some(names) = recursive(CODE, &["-fno-asynchronous-unwind-tables", "-fno-unwind-tables"]) else { return };
        assert_eq!(names, ["direct", "even", "odd", "through_local"]);
    }

    #[test]
    fn a_tail_call_to_itself_counts() {
        let code = "__asm__(\".globl f\\n.type f,@function\\nf: dec %edi\\njne f\\nret\\n.size f,.-f\\n\");";
        let Some(names) = recursive(code, &[]) else { return };
        assert_eq!(names, ["f"]);
    }

    /// Control goes to and fro between a function and its rarely used part, with its frame on the
    /// stack and without.
    #[test]
    fn a_cold_part_is_no_callee() {
        let code = "
            __attribute__((cold)) int rare(int);
            int framed(int x, int *p) {
                int y = rare(x);
                if (__builtin_expect(y < 0, 0)) { y = rare(y); *p = y; }
                return y * 3;
            }
            __asm__(\".pushsection .text.unlikely\\n\\
                .cfi_startproc\\nbare.cold: inc %edi\\njmp 1f\\n.cfi_endproc\\n.popsection\\n\\
                .globl bare\\n.type bare,@function\\n\\
                bare: .cfi_startproc\\ntest %edi,%edi\\nje bare.cold\\n1: ret\\n.cfi_endproc\\n\\
                .size bare,.-bare\\n\");";
        let Some(names) = recursive(code, &[]) else { return };
        assert!(names.is_empty(), "{names:?}");
    }

    #[test]
    fn cold_parts_that_follow_each_other_are_no_callees() {
        let code = "__asm__(\".macro cold name next\\n\\
                .cfi_startproc\\n.cfi_def_cfa_offset 16\\n\\\\name: inc %edi\\njmp \\\\next\\n.cfi_endproc\\n.endm\\n\\
            .pushsection .text.unlikely\\ncold first second\\ncold second back\\n.popsection\\n\\
            .globl f\\n.type f,@function\\n\\
            f: .cfi_startproc\\npush %rbx\\ntest %edi,%edi\\nje first\\nback: pop %rbx\\nret\\n.cfi_endproc\\n\\
            .size f,.-f\\n\");";
        let Some(names) = recursive(code, &[]) else { return };
        assert!(names.is_empty(), "{names:?}");
    }

    /// Linkage stubs stand side by side, and each leads elsewhere.
    #[test]
    fn a_stub_that_is_only_jumped_to_is_told_from_the_one_before_it() {
        let code =
            "int absent(int); int callee(int x) { return absent(x) + 1; } int jumps(int x) { return callee(x + 2); }";
        let Some(names) = recursive(code, &[]) else { return };
        assert!(names.is_empty(), "{names:?}");
    }

    #[test]
    fn components_are_cycles() {
        let edges = [(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (4, 3), (5, 3)];
        let edges = edges.map(|(from, to)| Edge { from, to, is_call: true });
        let component = components(&edges, 7);
        for (one, other, same) in
            [(0, 1, true), (0, 2, true), (3, 4, true), (2, 3, false), (5, 3, false), (6, 5, false)]
        {
            assert_eq!(component[one] == component[other], same, "{one} {other}");
        }
    }

    #[test]
    fn a_long_chain_needs_no_deep_stack() {
        let edges: Vec<Edge> = (0..1_000_000).map(|from| Edge { from, to: from + 1, is_call: true }).collect();
        let component = components(&edges, 1_000_001);
        assert_ne!(component[0], component[1_000_000]);
    }
}
