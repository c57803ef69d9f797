//! An earlier recording with which a page compares its call paths: a differential flame graph.

use rtrace_exporters::TraceSet;
use serde_json::{Value as Json, json};

use super::names::Names;
use super::tables;
use crate::about::About;
use crate::diff::per_second;
use crate::part::Part;
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
    pub(super) fn read(trace: &TraceSet, part: Option<Part>) -> Result<Before<'_>, Error> {
        let need = part.map_or(Ok(Need::Paths), |part| part.of(trace).map(Need::Within))?;
        let (walk, _) = walk(trace, need, Tree::of(trace))?;
        let about = About::new(trace).of_part(part);
        Ok(Before { about, tree: walk.visitor, trace })
    }

    /// Its call paths, at most so many, with functions and libraries of their own; the lengths of both recordings where
    /// times are compared per second.
    pub(super) fn told(&self, after: &About, most: usize) -> Result<Json, Error> {
        let table = self.tree.table(self.trace, Order::new(Sort::Inclusive)?, Some(most));
        let mut names = Names::new(self.trace);
        let tree = tables::tree(&table, &mut names);
        let lengths = per_second(&self.about, after).map(|_| [self.about.length(), after.length()]);
        Ok(json!({
            "title": self.about.line(None),
            "lengths": lengths,
            "libraries": self.trace.libraries().iter().map(|library| &library.path).collect::<Vec<_>>(),
            "tree": tree,
            "names": names.into_told(),
        }))
    }
}
