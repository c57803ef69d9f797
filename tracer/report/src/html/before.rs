//! An earlier recording with which a page compares its call paths: a differential flame graph.

use rtrace_exporters::TraceSet;
use serde_json::{Value as Json, json};

use super::names::PageNames;
use super::tables;
use crate::about::About;
use crate::diff::per_second;
use crate::measures::Measures;
use crate::part::Part;
use crate::reading::Need;
use crate::tree::Tree;
use crate::{Error, walk};

/// What a page needs of the earlier recording.
pub(super) struct Before<'a> {
    trace: &'a TraceSet,
    about: About,
    tree: Tree<'a>,
}

impl Before<'_> {
    pub(super) fn read(trace: &TraceSet, part: Option<Part>) -> Result<Before<'_>, Error> {
        let span = part.map(|part| part.of(trace)).transpose()?;
        let need = span.map_or(Need::Paths, Need::Within);
        let tree = Measures::new(Tree::of(trace), trace, span.and_then(|span| span.from)).uncounted();
        let (walk, _) = walk(trace, need, tree)?;
        let about = About::new(trace).of_part(part);
        Ok(Before { about, tree: walk.visitor.rows, trace })
    }

    /// Its call paths, at most so many, with functions and libraries of their own; the lengths of both recordings where
    /// times are compared per second.
    pub(super) fn told(&self, after: &About, most: usize) -> Result<Json, Error> {
        let mut names = PageNames::new(self.trace);
        let tree = tables::tree(&self.tree, self.trace, most, &mut names)?;
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
