//! The tables of keys that all views have: what each does, and how the help names it. A view has a table of its own.
//! Help and the line of hints are made from them.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Leave the view; for a recording, ask whether to keep it.
    Quit,
    /// End the view, and the recording with it, at once.
    End,
    /// Show or hide the help.
    Help,
    /// The next view.
    Next,
    /// The view before.
    Previous,
    /// The view at this place among the tabs.
    Show(usize),
    /// Move the choice by rows.
    Step(isize),
    /// Move the choice by pages.
    Page(isize),
    /// Choose the first row.
    First,
    /// Choose the last row.
    Last,
    /// Open what is chosen.
    Enter,
    /// Leave what was opened, or clear the filter.
    Back,
    /// Type a filter.
    Filter,
    /// Stand still, or go on.
    Pause,
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

/// Keys that do the same, as the help names them.
#[derive(Clone, Copy, Debug)]
pub struct Keys {
    /// The keys.
    pub codes: &'static [KeyCode],
    /// How they are named; empty where another entry names them.
    pub names: &'static str,
    /// What they do.
    pub does: &'static str,
    /// One word for it on the line of hints; empty where it is not there.
    pub hint: &'static str,
}

/// Keys with what they ask for.
#[derive(Clone, Copy, Debug)]
pub struct Binding<A: 'static> {
    /// The keys.
    pub keys: Keys,
    /// What they ask for.
    pub action: A,
}

/// Keys on the help and on the line of hints.
#[derive(Clone, Copy, Debug)]
pub struct Help {
    /// The keys.
    pub keys: &'static Keys,
    /// Where they are of use, for people; empty for everywhere.
    pub place: &'static str,
    /// Whether they are of use now.
    pub serves: bool,
}

/// A binding that the help names.
pub const fn key<A: Copy>(
    codes: &'static [KeyCode],
    names: &'static str,
    does: &'static str,
    hint: &'static str,
    action: A,
) -> Binding<A> {
    Binding { keys: Keys { codes, names, does, hint }, action }
}

/// A binding that another one names with its own.
pub const fn also<A: Copy>(codes: &'static [KeyCode], action: A) -> Binding<A> {
    key(codes, "", "", "", action)
}

/// What a key asks for, by these bindings.
pub fn find<A: Copy>(bindings: &[Binding<A>], code: KeyCode) -> Option<A> {
    bindings.iter().find(|binding| binding.keys.codes.contains(&code)).map(|binding| binding.action)
}

use KeyCode::{BackTab, Char, Down, End, Enter, Esc, Home, PageDown, PageUp, Tab, Up};

/// The first tabs; others are reached by Tab.
const DIGITS: &[KeyCode] =
    &[Char('1'), Char('2'), Char('3'), Char('4'), Char('5'), Char('6'), Char('7'), Char('8'), Char('9')];

/// The keys of all views.
pub const BINDINGS: &[Binding<Action>] = &[
    key(&[Char('q')], "q", "quit; asks what becomes of a recording", "quit", Action::Quit),
    key(&[Char('?')], "?", "show or hide this list", "help", Action::Help),
    key(&[Tab], "Tab", "next view; Shift-Tab: previous view", "view", Action::Next),
    also(&[BackTab], Action::Previous),
    key(DIGITS, "1, 2, ...", "view by number", "", Action::Show(0)),
    key(&[Up, Char('k')], "Up/Down", "previous row, next row; also k and j", "", Action::Step(-1)),
    also(&[Down, Char('j')], Action::Step(1)),
    key(&[PageUp], "PgUp/PgDn", "previous page, next page", "", Action::Page(-1)),
    also(&[PageDown], Action::Page(1)),
    key(
        &[Home, Char('g')],
        "Home/End",
        "first row (the selection stays there), last row; also g and G",
        "",
        Action::First,
    ),
    also(&[End, Char('G')], Action::Last),
    key(&[Enter], "Enter", "open the selected row", "open", Action::Enter),
    key(&[Esc], "Esc", "back; clear the filter", "", Action::Back),
    key(&[Char('/')], "/", "filter by name while you type", "filter", Action::Filter),
    key(&[Char(' ')], "Space", "freeze or resume the display (recording continues)", "pause", Action::Pause),
];

/// The keys of stored traces.
pub const STORED: &[Binding<Action>] = &[
    key(&[Char('<'), Char(',')], "</>", "earlier part, later part of the trace", "part", Action::Earlier),
    also(&[Char('>'), Char('.')], Action::Later),
    key(&[Char(']')], "]/[", "show half as much, twice as much of the trace", "length", Action::Narrower),
    also(&[Char('[')], Action::Wider),
    key(&[Char('0')], "0", "the whole trace", "whole", Action::Whole),
];

/// What a key asks for in every one of so many views.
pub fn action(key: KeyEvent, views: usize, is_stored: bool) -> Option<Action> {
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return (key.code == Char('c')).then_some(Action::End);
    }
    if let Some(place) = DIGITS.iter().position(|&digit| digit == key.code) {
        return (place < views).then_some(Action::Show(place));
    }
    let stored = || is_stored.then(|| find(STORED, key.code)).flatten();
    find(BINDINGS, key.code).or_else(stored)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_mean_what_is_there() {
        let of = |code, views, stored| action(KeyEvent::from(code), views, stored);
        assert_eq!(of(Char('7'), 7, false), Some(Action::Show(6)));
        assert_eq!(of(Char('8'), 7, false), None);
        assert_eq!(of(Char('<'), 7, false), None);
        assert_eq!(of(Char('<'), 7, true), Some(Action::Earlier));
        let control = KeyEvent::new(Char('c'), KeyModifiers::CONTROL);
        assert_eq!(action(control, 7, false), Some(Action::End));
    }
}
