//! The call tree: who called whom, of all threads or of one.

use std::borrow::Cow;
use std::collections::HashMap;

use crossterm::event::KeyCode::{self, Char, Left, Right};
use ratatui::layout::Rect;
use rtrace_model::{Count, RegionId, Totals};

use crate::app::{App, Outside};
use crate::canvas::{Canvas, Cell, TableColumn, TableFrame};
use crate::colours::Colours;
use crate::key::{Binding, Keys, also, find, key};
use crate::list::{List, Rows};
use crate::panel::{self, Act, Panel, PanelSubject};
use crate::state::State;
use crate::state::paths::{Label, PathIndex, Paths, ROOT};
use crate::text::count;
use crate::view::{counters, no_calls};

/// Nodes above this depth are unfolded at first, if they take this part of all time.
const UNFOLDED_DEPTH: usize = 2;
const UNFOLDED_PART: u64 = 100;

/// The most cells that a name is moved to the right.
const MOST_INDENT: usize = 60;

const COLUMNS: [TableColumn<'static>; 4] = [
    TableColumn::time("inclusive", 12, 0),
    TableColumn::number("share %", 13, 50),
    TableColumn::time("exclusive", 12, 68),
    TableColumn::number("calls", 9, 84),
];

/// The view.
#[derive(Debug, Default)]
pub struct CallTree {
    rows: List<PathIndex>,
    /// As last arranged.
    sums: NodeSums,
    /// Nodes that the user has folded or unfolded.
    unfolded: HashMap<PathIndex, bool>,
}

const KEYS: &[Binding<Act<CallTree>>] = &[
    key(&[Right, Char('l')], "Right/Left", "unfold, fold; also l and h", "unfold", |tree, app, state| {
        tree.unfold(app, state);
        Outside::Continue
    }),
    also(&[Left, Char('h')], |tree, app, state| {
        tree.fold(app, state);
        Outside::Continue
    }),
    key(&[Char('t')], "t", "all threads, or the one selected in view 3", "thread", |tree, app, state| {
        tree.switch_thread(app, state);
        Outside::Continue
    }),
];

impl CallTree {
    /// Folds the node chosen, or else chooses its caller.
    fn fold(&mut self, app: &mut App, state: &State) {
        let Some(node) = self.rows.key() else { return };
        let tree = SummedTree::of(app, state, &self.sums);
        let (depth, parent) = (tree.depth(node) - 1, tree.paths.node(node).parent);
        if !tree.is_leaf(node) && tree.is_unfolded(app, &self.unfolded, node, depth) {
            self.unfolded.insert(node, false);
        } else {
            self.rows.choose_key(parent);
        }
        self.arrange(app, state);
    }

    /// Unfolds the node chosen.
    fn unfold(&mut self, app: &mut App, state: &State) {
        if let Some(node) = self.rows.key() {
            self.unfolded.insert(node, true);
            self.arrange(app, state);
        }
    }

    /// Changes between the tree of all threads and that of the thread chosen.
    fn switch_thread(&mut self, app: &mut App, state: &State) {
        app.tree_of = match app.tree_of {
            Some(_) => None,
            None => app.threads.key().or_else(|| state.threads().next().map(|thread| thread.location.id)),
        };
        self.unfolded.clear();
        self.arrange(app, state);
    }
}

impl Panel for CallTree {
    fn title(&self) -> &'static str {
        "tree"
    }

    fn keys(&self) -> Vec<&'static Keys> {
        panel::keys(KEYS)
    }

    fn press(&mut self, code: KeyCode, app: &mut App, state: &State) -> Option<Outside> {
        find(KEYS, code).map(|act| act(self, app, state))
    }

    /// Lists the nodes that are unfolded; under a filter those that pass it, with their callers.
    fn arrange(&mut self, app: &mut App, state: &State) {
        let sums = NodeSums::of(app, state);
        let tree = SummedTree::of(app, state, &sums);
        let passing = passing(app, state, &tree);
        let mut rows = Vec::new();
        let mut next: Vec<(PathIndex, usize)> = tree.children(ROOT).into_iter().rev().map(|root| (root, 0)).collect();
        while let Some((node, depth)) = next.pop() {
            if passing.as_ref().is_some_and(|passing| !passing[node as usize]) {
                continue;
            }
            rows.push(node);
            if tree.is_unfolded(app, &self.unfolded, node, depth) {
                next.extend(tree.children(node).into_iter().rev().map(|child| (child, depth + 1)));
            }
        }
        self.rows.set(rows);
        self.sums = sums;
    }

    fn draw(&mut self, canvas: &mut Canvas<'_>, area: Rect, app: &mut App, state: &State) {
        let CallTree { rows, sums, unfolded } = self;
        let tree = SummedTree::of(app, state, sums);
        let glyphs = app.theme.glyphs;
        let colours = Colours::of(state, app.theme);
        let (counted, left) = counters::fitting(state, area.width);
        let thread = app.tree_of.and_then(|location| state.thread(location));
        let counts: Cow<'_, [Vec<Count>]> = match thread {
            _ if counted.is_empty() => Cow::Borrowed(&[]),
            Some(thread) => thread.paths.counts().into(),
            None => state.merged_counts().into(),
        };
        let row = |node: PathIndex| -> Vec<Cell<'_>> {
            let Some(figures) = tree.figures.get(node as usize) else { return Vec::new() };
            let depth = tree.depth(node).saturating_sub(1);
            let mark = match (tree.is_leaf(node), tree.is_unfolded(app, unfolded, node, depth)) {
                (true, _) => " ",
                (_, true) => glyphs.expanded,
                (_, false) => glyphs.collapsed,
            };
            let is_hot = tree.is_hot(node);
            let hot = if is_hot { format!(" {}", glyphs.hot) } else { String::new() };
            let name = name(state, tree.paths.node(node).label);
            let path = format!("{mark} {name}{hot}");
            let style = if is_hot { app.theme.title() } else { ratatui::style::Style::new() };
            let inclusive = figures.time(figures.inclusive);
            let share = inclusive.map(|_| tree.weight(node) as f64 / tree.whole.max(1) as f64);
            let colour = match tree.paths.node(node).label {
                Label::Region(region) => colours.function(state, region),
                _ => ratatui::style::Style::new(),
            };
            let mut cells = vec![
                Cell::time(inclusive).styled(style),
                Cell::share(share, 0.0).styled(colour),
                Cell::time(figures.time(figures.exclusive)),
                count(figures.calls).into(),
            ];
            cells.retain({
                let mut columns = COLUMNS.iter();
                move |_| columns.next().is_some_and(|column| column.from <= left)
            });
            let counts = counts.get(node as usize).map_or(&[][..], Vec::as_slice);
            cells.extend(counted.iter().map(|figure| counters::text(figure, figures.exclusive, counts)));
            cells.push(Cell::indented(path, (2 * depth).min(MOST_INDENT)).styled(style));
            cells
        };
        let figures = COLUMNS.iter().copied().filter(|column| column.from <= left);
        let columns: Vec<TableColumn<'_>> =
            figures.chain(counted.iter().map(counters::column)).chain([TableColumn::rest("")]).collect();
        let title;
        if let Some(thread) = thread {
            title = format!("call path on thread {} {}", thread.location.tid, thread.location.name);
        } else {
            title = format!("call path, all threads ({} hot)", glyphs.hot);
        }
        let last = columns.len() - 1;
        let places = canvas.table(TableFrame::plain(area, &columns), rows, row);
        if let Some((_, place)) = places.into_iter().find(|(index, _)| *index == last) {
            canvas.put(place.x, place.y, place.width, &title, canvas.theme.title());
        }
        if rows.rows().is_empty() {
            canvas.put_empty(area, app.why_empty(no_calls(app, state)));
        }
    }

    fn rows<'a>(&'a mut self, _app: &'a mut App) -> &'a mut dyn Rows {
        &mut self.rows
    }

    fn chosen_function(&self, app: &App, state: &State) -> Option<RegionId> {
        let tree = SummedTree::of(app, state, &self.sums);
        match tree.paths.nodes().get(self.rows.key()? as usize)?.label {
            Label::Region(region) => Some(region),
            _ => None,
        }
    }

    fn opens(&self) -> Option<PanelSubject> {
        Some(PanelSubject::Function)
    }

    fn shows(&self) -> Option<PanelSubject> {
        Some(PanelSubject::Thread)
    }

    fn open(&mut self, app: &mut App, _state: &State) {
        app.tree_of = app.threads.key();
        self.unfolded.clear();
    }

    fn close(&mut self, app: &mut App, state: &State) -> bool {
        let has_opened = app.tree_of.is_some();
        if has_opened {
            self.switch_thread(app, state);
        }
        has_opened
    }
}

/// A tree with its sums; nodes that are newer than these have none.
struct SummedTree<'a> {
    paths: &'a Paths,
    figures: &'a [Totals],
    /// Of each node, its time without tracing, or that of its callees where this is more.
    weights: &'a [u64],
    /// The same of all roots.
    whole: u64,
}

impl<'a> SummedTree<'a> {
    /// The tree of what is chosen, with the figures of when it was arranged: to sum up those of
    /// all threads takes its time.
    fn of(app: &App, state: &'a State, NodeSums { figures, weights }: &'a NodeSums) -> SummedTree<'a> {
        let paths = paths(app, state);
        let mut tree = SummedTree { paths, figures, weights, whole: 0 };
        tree.whole = paths.children(ROOT).map(|root| tree.weight(root)).sum();
        tree
    }

    fn weight(&self, node: PathIndex) -> u64 {
        self.weights.get(node as usize).copied().unwrap_or(0)
    }

    fn depth(&self, node: PathIndex) -> usize {
        let above = std::iter::successors(Some(node), |&node| Some(self.paths.node(node).parent));
        above.take_while(|&node| node != ROOT).count()
    }

    /// Whether it takes at least half of its caller's time, as all its callers do of theirs.
    fn is_hot(&self, node: PathIndex) -> bool {
        let mut at = node;
        while at != ROOT {
            let above = self.paths.node(at).parent;
            let of = if above == ROOT { self.whole } else { self.weight(above) };
            if self.weight(at) == 0 || self.weight(at) < of / 2 {
                return false;
            }
            at = above;
        }
        true
    }

    /// The nodes below one, those that take most time first.
    fn children(&self, node: PathIndex) -> Vec<PathIndex> {
        let mut children: Vec<PathIndex> = self.paths.children(node).collect();
        children.sort_by_key(|&child| (std::cmp::Reverse(self.weight(child)), child));
        children
    }

    fn is_leaf(&self, node: PathIndex) -> bool {
        self.paths.children(node).next().is_none()
    }

    /// `unfolded`: nodes that the user has folded or unfolded.
    fn is_unfolded(&self, app: &App, unfolded: &HashMap<PathIndex, bool>, node: PathIndex, depth: usize) -> bool {
        !app.filter.is_empty()
            || unfolded.get(&node).copied().unwrap_or_else(|| {
                let is_large = self.weight(node) >= self.whole / UNFOLDED_PART;
                depth < UNFOLDED_DEPTH && is_large || self.is_hot(node)
            })
    }
}

/// The sums of a tree's nodes when it was arranged.
#[derive(Debug, Default)]
struct NodeSums {
    figures: Vec<Totals>,
    /// Of each node, its time without tracing, or that of its callees where this is more: they may be timed where
    /// their caller was not.
    weights: Vec<u64>,
}

impl NodeSums {
    fn of(app: &App, state: &State) -> NodeSums {
        let figures = match app.tree_of.and_then(|location| state.thread(location)) {
            Some(thread) => thread.paths.nodes().iter().map(|node| node.figures).collect(),
            None => state.merged_figures(),
        };
        let paths = paths(app, state);
        let own = state.own_times(paths, &figures);
        // What tracing took, of a node and of all below it.
        let mut tracing: Vec<u64> = figures.iter().zip(own).map(|(figures, own)| figures.exclusive - own).collect();
        let (mut weights, mut below) = (vec![0_u64; figures.len()], vec![0_u64; figures.len()]);
        // A node comes after its caller.
        for (index, node) in paths.nodes().iter().enumerate().take(weights.len()).skip(1).rev() {
            weights[index] = figures[index].inclusive.saturating_sub(tracing[index]).max(below[index]);
            let above = node.parent as usize;
            below[above] = below[above].saturating_add(weights[index]);
            tracing[above] = tracing[above].saturating_add(tracing[index]);
        }
        NodeSums { figures, weights }
    }
}

/// The tree of what is chosen.
fn paths<'a>(app: &App, state: &'a State) -> &'a Paths {
    let thread = app.tree_of.and_then(|location| state.thread(location));
    thread.map_or(state.merged_paths(), |thread| &thread.paths)
}

/// Whether each node, or one below it, passes the filter; absent without one.
fn passing(app: &App, state: &State, tree: &SummedTree<'_>) -> Option<Vec<bool>> {
    if app.filter.is_empty() {
        return None;
    }
    let wanted = app.filter.to_lowercase();
    let nodes = tree.paths.nodes();
    let mut passing: Vec<bool> = nodes.iter().map(|node| App::passes(&wanted, &[name(state, node.label)])).collect();
    for index in (1..nodes.len()).rev() {
        if passing[index] {
            passing[nodes[index].parent as usize] = true;
        }
    }
    Some(passing)
}

/// What a node is called; not escaped.
pub fn name(state: &State, label: Label) -> &str {
    match label {
        Label::Root => "",
        Label::LostCaller => "[lost caller]",
        Label::MorePaths => "[more paths]",
        Label::Region(region) => state.function(region).map_or("[unknown]", |function| &function.alone),
    }
}
