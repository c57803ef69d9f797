//! The table of keys: what each does, where, and how the help names it. Help and the line of hints
//! are made from it.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// The views, in the order of their tabs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// Functions with their figures.
    Functions,
    /// Who called whom.
    Tree,
    /// Threads, and what each is in.
    Threads,
    /// Calls over time, a lane for each thread.
    Timeline,
    /// One function.
    Detail,
    /// What is probed, and what is not.
    Plan,
    /// What happened beside the calls.
    Events,
}

impl View {
    /// All views.
    pub const ALL: [View; 7] =
        [View::Functions, View::Tree, View::Threads, View::Timeline, View::Detail, View::Plan, View::Events];

    /// The word on its tab.
    pub const fn title(self) -> &'static str {
        match self {
            View::Functions => "functions",
            View::Tree => "tree",
            View::Threads => "threads",
            View::Timeline => "timeline",
            View::Detail => "detail",
            View::Plan => "plan",
            View::Events => "events",
        }
    }

    /// The view so many tabs further.
    pub fn further(self, tabs: usize) -> View {
        View::ALL[(self as usize + tabs) % View::ALL.len()]
    }
}

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// End the view, and the recording with it.
    Quit,
    /// Show or hide the help.
    Help,
    /// The next view.
    Next,
    /// The view before.
    Previous,
    /// This view.
    Show(View),
    /// Move the choice by rows.
    Step(isize),
    /// Move the choice by pages.
    Page(isize),
    /// Choose the first row.
    First,
    /// Choose the last row.
    Last,
    /// Fold a node, or look further back.
    Left,
    /// Unfold a node, or look further on.
    Right,
    /// Open what is chosen.
    Enter,
    /// Leave what was opened, or clear the filter.
    Back,
    /// Type a filter.
    Filter,
    /// Sort by the next column.
    Sort,
    /// Turn the order around.
    Reverse,
    /// Stand still, or go on.
    Pause,
    /// Hide the function.
    Mute,
    /// Show hidden functions again.
    Unmute,
    /// Write what is seen to files.
    Export,
    /// The tree of all threads, or of the chosen one.
    OneThread,
    /// Look closer at the timeline.
    ZoomIn,
    /// Look at more of the timeline.
    ZoomOut,
    /// Keep up with the present.
    Follow,
    /// An earlier part of a stored trace.
    Earlier,
    /// A later part of a stored trace.
    Later,
    /// Half of the part of a stored trace.
    Narrower,
    /// Twice the part of a stored trace.
    Wider,
    /// All of a stored trace.
    Whole,
}

/// Where a key is of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Everywhere,
    In(View),
    /// In stored traces.
    Stored,
}

/// Keys that do the same.
#[derive(Clone, Copy, Debug)]
pub struct Binding {
    codes: &'static [KeyCode],
    /// How the keys are named.
    pub keys: &'static str,
    /// What they do.
    pub does: &'static str,
    /// One word for it on the line of hints; empty where it is not there.
    pub hint: &'static str,
    action: Action,
    place: Place,
}

const fn key(
    codes: &'static [KeyCode],
    keys: &'static str,
    does: &'static str,
    hint: &'static str,
    action: Action,
) -> Binding {
    Binding { codes, keys, does, hint, action, place: Place::Everywhere }
}

const fn at(place: Place, binding: Binding) -> Binding {
    Binding { place, ..binding }
}

use KeyCode::{BackTab, Char, Down, End, Enter, Esc, Home, Left, PageDown, PageUp, Right, Tab, Up};

/// All keys; where several are of use, the first is meant.
pub const BINDINGS: &[Binding] = &[
    key(&[Char('q')], "q", "end the view, and the recording with it", "quit", Action::Quit),
    key(&[Char('?')], "?", "show or hide this help", "help", Action::Help),
    key(&[Tab], "Tab", "next view; Shift-Tab: the one before", "view", Action::Next),
    key(&[BackTab], "", "", "", Action::Previous),
    key(&[Char('1')], "1 to 7", "a view by its number", "", Action::Show(View::Functions)),
    key(&[Char('2')], "", "", "", Action::Show(View::Tree)),
    key(&[Char('3')], "", "", "", Action::Show(View::Threads)),
    key(&[Char('4')], "", "", "", Action::Show(View::Timeline)),
    key(&[Char('5')], "", "", "", Action::Show(View::Detail)),
    key(&[Char('6')], "", "", "", Action::Show(View::Plan)),
    key(&[Char('7')], "", "", "", Action::Show(View::Events)),
    key(&[Up, Char('k')], "Up/Down", "row above, row below; also k and j", "", Action::Step(-1)),
    key(&[Down, Char('j')], "", "", "", Action::Step(1)),
    key(&[PageUp], "PgUp/PgDn", "page above, page below", "", Action::Page(-1)),
    key(&[PageDown], "", "", "", Action::Page(1)),
    key(&[Home, Char('g')], "Home/End", "first row, and stay there; last row; also g and G", "", Action::First),
    key(&[End, Char('G')], "", "", "", Action::Last),
    key(&[Enter], "Enter", "open what is chosen", "open", Action::Enter),
    key(&[Esc], "Esc", "back; clear the filter", "", Action::Back),
    key(&[Char('/')], "/", "filter by name while typing", "filter", Action::Filter),
    key(&[Char(' ')], "Space", "stand still, or go on; recording goes on", "pause", Action::Pause),
    key(&[Char('e')], "e", "write this moment to files beside the trace", "export", Action::Export),
    at(
        Place::In(View::Functions),
        key(&[Char('s')], "s r", "sort by the next column; turn the order around", "sort", Action::Sort),
    ),
    at(Place::In(View::Functions), key(&[Char('r')], "", "", "", Action::Reverse)),
    at(
        Place::In(View::Functions),
        key(&[Char('m')], "m u", "hide the function; show hidden ones again", "mute", Action::Mute),
    ),
    at(Place::In(View::Functions), key(&[Char('u')], "", "", "", Action::Unmute)),
    at(
        Place::In(View::Tree),
        key(&[Right, Char('l')], "Right/Left", "unfold, fold; also l and h", "unfold", Action::Right),
    ),
    at(Place::In(View::Tree), key(&[Left, Char('h')], "", "", "", Action::Left)),
    at(
        Place::In(View::Tree),
        key(&[Char('t')], "t", "of all threads, or of the one chosen there", "thread", Action::OneThread),
    ),
    at(
        Place::In(View::Timeline),
        key(&[Left, Char('h')], "Left/Right", "earlier, later; also h and l", "pan", Action::Left),
    ),
    at(Place::In(View::Timeline), key(&[Right, Char('l')], "", "", "", Action::Right)),
    at(Place::In(View::Timeline), key(&[Char('+'), Char('=')], "+/-", "closer, further away", "zoom", Action::ZoomIn)),
    at(Place::In(View::Timeline), key(&[Char('-')], "", "", "", Action::ZoomOut)),
    at(Place::In(View::Timeline), key(&[Char('f')], "f", "keep up with the present", "follow", Action::Follow)),
    at(Place::Stored, key(&[Char('<'), Char(',')], "</>", "earlier, later part of the trace", "part", Action::Earlier)),
    at(Place::Stored, key(&[Char('>'), Char('.')], "", "", "", Action::Later)),
    at(Place::Stored, key(&[Char(']')], "]/[", "half, twice the part of the trace", "length", Action::Narrower)),
    at(Place::Stored, key(&[Char('[')], "", "", "", Action::Wider)),
    at(Place::Stored, key(&[Char('0')], "0", "the whole trace", "whole", Action::Whole)),
];

impl Binding {
    /// Whether the keys are of use in a view, of a stored trace or not.
    pub fn serves(&self, view: View, is_stored: bool) -> bool {
        match self.place {
            Place::Everywhere => true,
            Place::In(place) => place == view,
            Place::Stored => is_stored,
        }
    }

    /// Whether the keys are of use in this place only.
    pub fn is_special(&self) -> bool {
        self.place != Place::Everywhere
    }

    /// Where the keys are of use, for people.
    pub fn place(&self) -> &'static str {
        match self.place {
            Place::Everywhere => "",
            Place::In(view) => view.title(),
            Place::Stored => "stored trace",
        }
    }
}

/// What a key asks for.
pub fn action(key: KeyEvent, view: View, is_stored: bool) -> Option<Action> {
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return (key.code == Char('c')).then_some(Action::Quit);
    }
    let meant = |binding: &&Binding| binding.serves(view, is_stored) && binding.codes.contains(&key.code);
    BINDINGS.iter().find(meant).map(|binding| binding.action)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_means_two_things_in_one_place() {
        for view in View::ALL {
            let served: Vec<_> = BINDINGS.iter().filter(|binding| binding.serves(view, true)).collect();
            for (index, one) in served.iter().enumerate() {
                for other in &served[index + 1..] {
                    assert!(!one.codes.iter().any(|code| other.codes.contains(code)), "{view:?}: {one:?}, {other:?}");
                }
            }
        }
    }

    #[test]
    fn keys_mean_what_their_view_makes_of_them() {
        let of = |code, view, stored| action(KeyEvent::from(code), view, stored);
        assert_eq!(of(Char('s'), View::Functions, false), Some(Action::Sort));
        assert_eq!(of(Char('s'), View::Events, false), None);
        assert_eq!(of(Char('<'), View::Tree, false), None);
        assert_eq!(of(Char('<'), View::Tree, true), Some(Action::Earlier));
        let control = KeyEvent::new(Char('c'), KeyModifiers::CONTROL);
        assert_eq!(action(control, View::Tree, false), Some(Action::Quit));
    }
}
