//! The same visits for calls that are folded by call path: callers before their callees, each path
//! once, whatever a damaged file says of its parent.

use std::collections::HashMap;

use rtrace_model::{FoldedPath, LocationId, PathId, Timestamp};

use super::{Caller, OpenCall, Visitor, Walk};
use crate::Visited;

type Children<'a> = HashMap<(LocationId, Option<PathId>), Vec<&'a FoldedPath>>;

impl<V: Visitor> Walk<V> {
    pub(super) fn visit_paths(&mut self, paths: &[FoldedPath]) {
        let known: HashMap<_, _> = paths.iter().map(|path| ((path.location, path.path), path)).collect();
        let mut children = Children::new();
        let mut orphans = Vec::new();
        for path in paths {
            match path.parent {
                Some(parent) if !known.contains_key(&(path.location, parent)) => orphans.push(path),
                parent => children.entry((path.location, parent)).or_default().push(path),
            }
        }
        let mut locations: Vec<LocationId> = paths.iter().map(|path| path.location).collect();
        locations.dedup();
        for location in locations {
            for root in children.remove(&(location, None)).unwrap_or_default() {
                self.subtree(root, &mut children);
            }
        }
        for orphan in orphans {
            self.subtree(orphan, &mut children);
        }
        // What is left is below itself.
        for path in paths {
            let Some(siblings) = children.get_mut(&(path.location, path.parent)) else { continue };
            if let Some(place) = siblings.iter().position(|sibling| std::ptr::eq(*sibling, path)) {
                siblings.swap_remove(place);
                self.subtree(path, &mut children);
            }
        }
    }

    /// Visits a path whose callers are not on record, unless it is a root, and all that it called.
    fn subtree<'a>(&mut self, top: &'a FoldedPath, children: &mut Children<'a>) {
        let mut stack: Vec<OpenCall<V::Mark>> = Vec::new();
        let mut next = vec![(top, 0)];
        while let Some((path, depth)) = next.pop() {
            stack.truncate(depth);
            let caller = match (path.parent, depth) {
                (None, _) => Caller::None,
                (Some(_), 0) => Caller::Lost(&stack),
                (Some(_), _) => Caller::Known(&stack),
            };
            if matches!(caller, Caller::Lost(_)) {
                self.lost_callers += path.calls;
            }
            let mark = self.visitor.visit(Visited::Path(path), caller);
            let is_timed = path.has_time();
            let id = path.path.0.into();
            stack.push(OpenCall { mark, is_timed, id, parent: 0, start: Timestamp(0), end: Timestamp(0) });
            let below = children.remove(&(path.location, Some(path.path))).unwrap_or_default();
            next.extend(below.into_iter().map(|child| (child, depth + 1)));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::collections::BTreeMap;

    use rtrace_model::{PathProfile, RegionId};

    use super::*;

    /// The ids of each path's callers, from the nearest, then `None` if the last is not a root.
    type CallersOf = BTreeMap<(u32, u32), Vec<Option<u32>>>;

    #[derive(Default)]
    struct Chains(CallersOf);

    impl Visitor for Chains {
        type Mark = u32;

        fn visit(&mut self, calls: Visited<'_>, caller: Caller<'_, u32>) -> u32 {
            let Visited::Path(path) = calls else { unreachable!("there are no calls") };
            let mut chain: Vec<_> = caller.enclosing().iter().rev().map(|open| Some(open.mark)).collect();
            if matches!(caller, Caller::Lost(_)) {
                chain.push(None);
            }
            assert_eq!(self.0.insert((path.location.0, path.path.0), chain), None, "visited twice");
            path.path.0
        }
    }

    fn path(location: u32, path: u32, parent: u32) -> FoldedPath {
        FoldedPath::from(PathProfile {
            path: PathId(path),
            parent: (parent != 0).then_some(PathId(parent)),
            region: RegionId(0),
            location: LocationId(location),
            calls: 1,
            timed: 1,
            inclusive: 1,
            exclusive: 1,
            min: Some(1),
            max: Some(1),
            ..PathProfile::default()
        })
    }

    fn chains(paths: &[FoldedPath]) -> (CallersOf, u64) {
        let mut walk = Walk::new(Chains::default());
        walk.visit_paths(paths);
        (walk.visitor.0, walk.lost_callers)
    }

    #[test]
    fn callers_come_first_whatever_their_ids() {
        let (chains, lost) = chains(&[path(1, 2, 5), path(1, 3, 2), path(1, 5, 0), path(2, 2, 0), path(2, 4, 2)]);
        assert_eq!(lost, 0);
        assert_eq!(chains[&(1, 3)], [Some(2), Some(5)]);
        assert_eq!(chains[&(2, 2)], []);
        assert_eq!(chains[&(2, 4)], [Some(2)]);
    }

    #[test]
    fn paths_without_callers_and_below_themselves_are_visited_once() {
        let (chains, lost) = chains(&[path(1, 2, 9), path(1, 3, 2), path(1, 4, 5), path(1, 5, 4), path(1, 6, 6)]);
        assert_eq!(chains.len(), 5);
        assert_eq!(chains[&(1, 3)], [Some(2)]);
        assert_eq!(chains[&(1, 2)], [None]);
        assert_eq!(lost, 3);
    }
}
