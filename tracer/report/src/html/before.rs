//! An earlier recording with which a page compares its call paths: a differential flame graph.

use rtrace_exporters::TraceSet;
use serde_json::{Value as Json, json};

use super::names::Names;
use super::tables;
use crate::about::About;
use crate::diff::per_second;
use crate::reading::Need;
use crate::tree::{Order, Tree};
use crate::{Error, Sort, walk};

/// What a page needs of the earlier recording.
pub(super) struct Before<'a> {
    trace: &'a TraceSet,
    about: About,
    tree: Tree<'a>,
}

impl Before<'_> {
    pub(super) fn read(trace: &TraceSet) -> Result<Before<'_>, Error> {
        let (walk, _) = walk(trace, Need::Paths, Tree::of(trace))?;
        let about = About::new(trace);
        Ok(Before { about, tree: walk.visitor, trace })
    }

    /// Its call paths, at most so many, with functions and libraries of their own; the lengths of both recordings where
    /// times are compared per second.
    pub(super) fn told(&self, after: &About, most: usize) -> Result<Json, Error> {
        let table = self.tree.table(self.trace, Order::new(Sort::Inclusive)?, Some(most));
        let mut names = Names::new(self.trace);
        let tree = tables::tree(&table, &mut names);
        let is_per_second = per_second(&self.about, after).is_some();
        let lengths = self.about.duration_ns.zip(after.duration_ns).filter(|_| is_per_second);
        Ok(json!({
            "title": self.about.line(None),
            "lengths": lengths.map(|(before, after)| [before, after]),
            "libraries": self.trace.libraries().iter().map(|library| &library.path).collect::<Vec<_>>(),
            "tree": tree,
            "names": names.into_told(),
        }))
    }
}
