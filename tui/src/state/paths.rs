//! Call paths: all calls that were reached by the same chain of functions are one node.
//!
//! Each thread has a tree of its own with the figures. Its nodes are linked to those of one tree
//! for all threads, so that looking a path up once serves both.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use rtrace_model::{Count, RegionId, Totals};

/// Names a node of a [`Paths`].
pub type PathIndex = u32;

/// The node above all roots.
pub const ROOT: PathIndex = 0;

/// What a node stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Label {
    /// The node above all roots.
    Root,
    /// Calls whose caller is not on record.
    LostCaller,
    /// Calls by paths that are not told apart.
    MorePaths,
    /// Calls of a function.
    Region(RegionId),
}

/// A call path.
#[derive(Clone, Debug)]
pub struct Node {
    /// What it stands for.
    pub label: Label,
    /// The path of the caller; the root's is itself.
    pub parent: PathIndex,
    /// Whether no caller on the path is the same function.
    pub outermost: bool,
    /// Its calls.
    pub figures: Totals,
    /// The node of the same path in the tree of all threads.
    pub merged: PathIndex,
    first_child: Option<PathIndex>,
    last_child: Option<PathIndex>,
    next_sibling: Option<PathIndex>,
    /// The child looked up last.
    recent: Option<PathIndex>,
}

impl Node {
    /// The function whose calls it stands for.
    pub fn function(&self) -> Option<RegionId> {
        match self.label {
            Label::Region(region) => Some(region),
            Label::Root | Label::LostCaller | Label::MorePaths => None,
        }
    }
}

/// A tree of call paths.
#[derive(Debug)]
pub struct Paths {
    nodes: Vec<Node>,
    ids: HashMap<(PathIndex, Label), PathIndex, FixedState>,
    /// What was counted, by node; shorter where nothing was.
    counts: Vec<Vec<Count>>,
}

impl Default for Paths {
    fn default() -> Paths {
        let mut paths = Paths { nodes: Vec::new(), ids: HashMap::default(), counts: Vec::new() };
        paths.push(Label::Root, ROOT);
        paths
    }
}

impl Paths {
    /// The same, to be looked at only.
    pub fn snapshot(&self) -> Paths {
        Paths { nodes: self.nodes.clone(), ids: HashMap::default(), counts: self.counts.clone() }
    }

    /// The node of that index.
    pub fn node(&self, index: PathIndex) -> &Node {
        &self.nodes[index as usize]
    }

    /// All nodes, callers before their callees, the root first.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The nodes right below one.
    pub fn children(&self, parent: PathIndex) -> impl Iterator<Item = PathIndex> {
        std::iter::successors(self.node(parent).first_child, |&child| self.node(child).next_sibling)
    }

    /// The figures of a node.
    pub fn figures(&mut self, index: PathIndex) -> &mut Totals {
        &mut self.nodes[index as usize].figures
    }

    /// What the calls of each node counted, by counter; nodes at the end may be missing.
    pub fn counts(&self) -> &[Vec<Count>] {
        &self.counts
    }

    /// Adds to what the calls of a node counted.
    pub fn count(&mut self, index: PathIndex, counts: &[Count]) {
        if counts.is_empty() {
            return;
        }
        let index = index as usize;
        if self.counts.len() <= index {
            self.counts.resize(index + 1, Vec::new());
        }
        Count::add_all(&mut self.counts[index], counts.iter().copied());
    }

    /// Adds what another tree's calls counted, whose nodes are linked to those of this one.
    pub fn count_all(&mut self, of: &Paths) {
        for (node, counts) in of.nodes.iter().zip(&of.counts) {
            self.count(node.merged, counts);
        }
    }

    /// The node of calls of `label` from `parent`, made when there is none. While `room` is 0 new
    /// paths are not told apart: what a known one calls by new ones is one node below it.
    pub fn child(&mut self, parent: PathIndex, label: Label, merged: &mut Paths, room: &mut usize) -> PathIndex {
        let above = &self.nodes[parent as usize];
        if let Some(recent) = above.recent {
            // Programs do things in the same order again and again.
            let next = self.nodes[recent as usize].next_sibling.or(above.first_child);
            let expected = [Some(recent), next].into_iter().flatten();
            if let Some(index) = expected.into_iter().find(|&index| self.nodes[index as usize].label == label) {
                self.nodes[parent as usize].recent = Some(index);
                return index;
            }
        }
        if above.label == Label::MorePaths {
            return parent;
        }
        let found = self.ids.get(&(parent, label)).copied();
        let index = found.unwrap_or_else(|| {
            let label = if *room == 0 { Label::MorePaths } else { label };
            self.ids.get(&(parent, label)).copied().unwrap_or_else(|| {
                *room = room.saturating_sub(1);
                let index = self.push(label, parent);
                self.nodes[index as usize].merged = merged.same(self.nodes[parent as usize].merged, label);
                index
            })
        });
        self.nodes[parent as usize].recent = Some(index);
        index
    }

    /// The node of a path that some thread has.
    fn same(&mut self, parent: PathIndex, label: Label) -> PathIndex {
        self.ids.get(&(parent, label)).copied().unwrap_or_else(|| self.push(label, parent))
    }

    fn push(&mut self, label: Label, parent: PathIndex) -> PathIndex {
        let index = PathIndex::try_from(self.nodes.len()).expect("there is not room for so many paths");
        let before = self.nodes.get_mut(parent as usize).and_then(|above| {
            above.first_child.get_or_insert(index);
            above.last_child.replace(index)
        });
        if let Some(before) = before {
            self.nodes[before as usize].next_sibling = Some(index);
        }
        let outermost = !self.nodes.is_empty() && !self.has_above(parent, label);
        self.nodes.push(Node {
            label,
            parent,
            outermost,
            figures: Totals::default(),
            merged: ROOT,
            first_child: None,
            last_child: None,
            next_sibling: None,
            recent: None,
        });
        if label != Label::Root {
            self.ids.insert((parent, label), index);
        }
        index
    }

    /// Whether a node or one above it stands for this.
    pub fn has_above(&self, index: PathIndex, label: Label) -> bool {
        let mut above = index;
        while above != ROOT {
            let node = self.node(above);
            if node.label == label {
                return true;
            }
            above = node.parent;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(id: u32) -> Label {
        Label::Region(RegionId(id))
    }

    #[test]
    fn paths_of_threads_share_a_merged_one() {
        let (mut merged, mut room) = (Paths::default(), 100);
        let (mut one, mut two) = (Paths::default(), Paths::default());
        let main = one.child(ROOT, region(1), &mut merged, &mut room);
        let solve = one.child(main, region(2), &mut merged, &mut room);
        let again = one.child(solve, region(1), &mut merged, &mut room);
        assert_eq!(one.child(main, region(2), &mut merged, &mut room), solve);
        let other = two.child(ROOT, region(1), &mut merged, &mut room);
        assert_eq!(one.node(main).merged, two.node(other).merged);
        assert_eq!(merged.nodes().len(), 4);
        assert_eq!([main, solve, again].map(|index| one.node(index).outermost), [true, true, false]);
        assert_eq!(one.children(main).collect::<Vec<_>>(), [solve]);
        assert_eq!(room, 96);
    }

    #[test]
    fn callees_are_found_in_any_order() {
        let (mut merged, mut room, mut paths) = (Paths::default(), 100, Paths::default());
        let ids = [1, 2, 3, 4];
        let nodes = ids.map(|id| paths.child(ROOT, region(id), &mut merged, &mut room));
        assert_eq!(paths.children(ROOT).collect::<Vec<_>>(), nodes, "in the order in which they came");
        for order in [[0, 1, 2, 3], [3, 0, 1, 1], [2, 2, 0, 3], [3, 2, 1, 0]] {
            for place in order {
                assert_eq!(paths.child(ROOT, region(ids[place]), &mut merged, &mut room), nodes[place]);
            }
        }
        assert_eq!((paths.nodes().len(), room), (5, 96));
    }

    #[test]
    fn without_room_new_paths_are_one_node() {
        let (mut merged, mut room, mut paths) = (Paths::default(), 1, Paths::default());
        let known = paths.child(ROOT, region(1), &mut merged, &mut room);
        let more = paths.child(known, region(2), &mut merged, &mut room);
        assert_eq!(paths.node(more).label, Label::MorePaths);
        assert_eq!(paths.child(known, region(3), &mut merged, &mut room), more);
        assert_eq!(paths.child(more, region(4), &mut merged, &mut room), more);
        assert_eq!(paths.child(ROOT, region(1), &mut merged, &mut room), known);
    }
}
