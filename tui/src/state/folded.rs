//! What the call paths of a thread had when last told, so that what is new is known.

use std::collections::{BTreeMap, HashMap};

use foldhash::fast::FixedState;
use rtrace_model::{PathId, PathProfile};

use super::paths::{PathIndex, ROOT};

/// The rows told of one thread.
#[derive(Debug, Default)]
pub struct Folded {
    known: HashMap<PathId, (PathIndex, PathProfile), FixedState>,
    /// Rows of callers that are not known yet: the kernel's table grows while it is read.
    waiting: Vec<PathProfile>,
}

impl Folded {
    /// Takes in rows. `place` is told what each has more than before, callers before callees, with
    /// the node of its caller, and gives its own.
    ///
    /// Rows whose callers are not known wait, unless nothing is to come: then their caller is `None`.
    pub fn take(
        &mut self,
        rows: &[&PathProfile],
        are_last: bool,
        mut place: impl FnMut(Option<PathIndex>, &PathProfile) -> PathIndex,
    ) {
        let waited = std::mem::take(&mut self.waiting);
        let mut left: BTreeMap<PathId, &PathProfile> =
            waited.iter().chain(rows.iter().copied()).map(|row| (row.path, row)).collect();
        while let Some((_, row)) = left.pop_first() {
            let (mut chain, mut node) = self.callers(row, &mut left);
            if node.is_none() && !are_last {
                self.waiting.extend(chain.into_iter().cloned());
                continue;
            }
            while let Some(row) = chain.pop() {
                let own = match self.known.get_mut(&row.path) {
                    Some((own, before)) => {
                        *own = place(node, &row.since(before));
                        before.clone_from(row);
                        *own
                    }
                    None => {
                        let own = place(node, row);
                        self.known.insert(row.path, (own, row.clone()));
                        own
                    }
                };
                node = Some(own);
            }
        }
    }

    /// A path with its callers, the outermost last, up to the first that has a node, and that node.
    fn callers<'r>(
        &self,
        row: &'r PathProfile,
        left: &mut BTreeMap<PathId, &'r PathProfile>,
    ) -> (Vec<&'r PathProfile>, Option<PathIndex>) {
        let mut parent = row.parent;
        let mut chain = vec![row];
        while let Some(caller) = parent {
            if let Some(&(node, _)) = self.known.get(&caller) {
                return (chain, Some(node));
            }
            let Some(row) = left.remove(&caller) else { return (chain, None) };
            parent = row.parent;
            chain.push(row);
        }
        (chain, Some(ROOT))
    }
}
