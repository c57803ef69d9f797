//! The views with what they share: keys come in here, and the whole screen is drawn.

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use rtrace_model::{RegionId, Timestamp};

use crate::app::{App, Fate, Outside};
use crate::canvas::{Canvas, Units};
use crate::key::{self, Action, Help};
use crate::list::Rows;
use crate::live::{Range, Stored};
use crate::panel::{Panel, PanelSubject};
use crate::state::{Span, State};
use crate::theme::Theme;
use crate::view::{self, activity, functions, header, help, question};

const LONGEST_FILTER: usize = 64;

/// The shortest part of a stored trace, in nanoseconds.
const SHORTEST_RANGE: u64 = 1_000;

/// Heights from which there is room for facts, for tabs, for a free line above the view.
const FACTS_FROM: u16 = 6;
const TABS_FROM: u16 = 9;
const SPACE_FROM: u16 = 30;

/// Heights from which there is room for the graph of all calls, and how high it is.
const GRAPHS: [(u16, u16); 3] = [(48, 4), (30, 3), (16, 1)];

/// The state of the dashboard.
#[derive(Debug)]
pub struct Dashboard {
    /// What all views share.
    pub app: App,
    /// The views, in the order of their tabs.
    pub panels: Vec<Box<dyn Panel>>,
    /// The units of times in tables.
    units: Units,
}

impl Dashboard {
    /// A view of `target`, before anything is known.
    pub fn new(target: &str, theme: Theme) -> Dashboard {
        Dashboard { app: App::new(target, theme, functions::FIRST_ORDER), panels: view::panels(), units: Units::new() }
    }

    /// Filters and sorts the rows of the view anew.
    pub fn arrange(&mut self, state: &State) {
        let Dashboard { app, panels, .. } = self;
        panels[app.view].arrange(app, state);
    }

    /// Does what a key asks for.
    pub fn press(&mut self, key: KeyEvent, state: &State) -> Outside {
        if key.kind == KeyEventKind::Release {
            return Outside::Continue;
        }
        self.app.message = None;
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        if self.app.asks && !is_control {
            return self.answer(key.code);
        }
        if self.app.typing && !is_control && self.type_filter(key.code, state) {
            return Outside::Continue;
        }
        if let Some(action) = key::action(key, self.panels.len(), self.app.stored.is_some()) {
            return self.act(action, state);
        }
        let Dashboard { app, panels, .. } = self;
        let own = (!is_control).then(|| panels[app.view].press(key.code, app, state)).flatten();
        own.unwrap_or(Outside::Continue)
    }

    /// Draws the whole screen.
    pub fn draw(&mut self, frame: &mut Frame<'_>, state: &State) {
        let area = frame.area();
        let keys = self.keys();
        let Dashboard { app, panels, units } = self;
        let mut canvas = Canvas { buffer: frame.buffer_mut(), theme: app.theme, units };
        let lines = |shown: bool| Constraint::Length(u16::from(shown));
        let has_slider = app.stored.is_some() && area.height >= TABS_FROM;
        let graph = GRAPHS.iter().find(|&&(from, _)| area.height >= from && activity::is_known(state));
        let [title, facts, graph, tabs, _, view, slider, foot] = Layout::vertical([
            Constraint::Length(1),
            lines(area.height >= FACTS_FROM),
            Constraint::Length(graph.map_or(0, |&(_, lines)| lines)),
            lines(area.height >= TABS_FROM),
            lines(area.height >= SPACE_FROM),
            Constraint::Fill(1),
            lines(has_slider),
            Constraint::Length(1),
        ])
        .areas(inset(area));
        header::draw_title(&mut canvas, title, app, state);
        header::draw_facts(&mut canvas, facts, app, state);
        activity::draw(&mut canvas, graph, state);
        header::draw_tabs(&mut canvas, tabs, app, panels.iter().map(|panel| panel.title()));
        if app.asks {
            question::draw(&mut canvas, view, &app.fates);
        } else if app.help {
            help::draw(&mut canvas, view, &keys);
        } else {
            panels[app.view].draw(&mut canvas, view, app, state);
        }
        header::draw_slider(&mut canvas, slider, app);
        header::draw_foot(&mut canvas, foot, app, &keys);
    }

    /// All keys, as the help names them.
    fn keys(&self) -> Vec<Help> {
        let common = key::BINDINGS.iter().map(|binding| Help { keys: &binding.keys, place: "", serves: true });
        let of_panels = self.panels.iter().enumerate().flat_map(|(view, panel)| {
            let help = move |keys| Help { keys, place: panel.title(), serves: view == self.app.view };
            panel.keys().into_iter().map(help)
        });
        let serves = self.app.stored.is_some();
        let stored = key::STORED.iter().map(|binding| Help { keys: &binding.keys, place: "stored trace", serves });
        common.chain(of_panels).chain(stored).collect()
    }

    fn act(&mut self, action: Action, state: &State) -> Outside {
        let (view, views) = (self.app.view, self.panels.len());
        match action {
            Action::End => return Outside::End(Fate::Keep),
            Action::Quit => {
                let is_recording = state.span == Span::Live && state.summary.is_none();
                if !is_recording || self.app.fates.len() < 2 {
                    return Outside::End(Fate::Keep);
                }
                self.app.asks = true;
            }
            Action::Help => self.app.help = !self.app.help,
            Action::Next => self.show((view + 1) % views, state),
            Action::Previous => self.show((view + views - 1) % views, state),
            Action::Show(view) => self.show(view, state),
            Action::Step(rows) => self.choose(|list| list.step(rows)),
            Action::Page(pages) => self.choose(|list| list.step(pages * list.page())),
            Action::First => self.choose(|list| list.choose(0)),
            Action::Last => self.choose(|list| list.choose(usize::MAX)),
            Action::Enter => self.enter(state),
            Action::Back => self.back(state),
            Action::Filter => self.app.typing = true,
            Action::Pause => return Outside::Pause,
            Action::Earlier | Action::Later | Action::Narrower | Action::Wider | Action::Whole => {
                return self.other_range(action, state);
            }
        }
        Outside::Continue
    }

    fn answer(&mut self, code: KeyCode) -> Outside {
        if let Some(fate) = question::answer(code, &self.app.fates) {
            return Outside::End(fate);
        }
        self.app.asks = code != KeyCode::Esc;
        Outside::Continue
    }

    /// Shows a view on its own account.
    fn show(&mut self, view: usize, state: &State) {
        self.app.trail.clear();
        let chosen = self.panels[self.app.view].chosen_function(&self.app, state);
        self.turn_to(view, chosen, state);
    }

    fn turn_to(&mut self, view: usize, chosen: Option<RegionId>, state: &State) {
        let Dashboard { app, panels, .. } = self;
        app.view = view;
        app.help = false;
        panels[view].enter(app, chosen);
        self.arrange(state);
    }

    /// Opens what is chosen in the view that shows such.
    fn enter(&mut self, state: &State) {
        let Dashboard { app, panels, .. } = self;
        let from = app.view;
        if panels[from].descend(app, state) {
            self.arrange(state);
            return;
        }
        let Some(subject) = panels[from].opens() else { return };
        let Some(view) = panels.iter().position(|panel| panel.shows() == Some(subject)) else { return };
        let chosen = panels[from].chosen_function(app, state);
        if subject == PanelSubject::Function && chosen.is_none() {
            return;
        }
        panels[view].open(app, state);
        app.trail.push(from);
        self.turn_to(view, chosen, state);
    }

    fn back(&mut self, state: &State) {
        let Dashboard { app, panels, .. } = self;
        if app.help {
            app.help = false;
        } else if !app.filter.is_empty() {
            self.set_filter(String::new(), state);
        } else if panels[app.view].close(app, state) {
            self.arrange(state);
        } else if let Some(view) = app.trail.pop() {
            self.turn_to(view, None, state);
        } else {
            self.show(0, state);
        }
    }

    /// Lets the choice move.
    fn choose(&mut self, with: impl FnOnce(&mut dyn Rows)) {
        with(self.rows());
        let Dashboard { app, panels, .. } = self;
        panels[app.view].moved(app);
    }

    /// The list of the view.
    fn rows(&mut self) -> &mut dyn Rows {
        let Dashboard { app, panels, .. } = self;
        panels[app.view].rows(app)
    }

    fn other_range(&mut self, action: Action, state: &State) -> Outside {
        if state.is_folded && !state.awaits_calls {
            self.app.message =
                Some("calls are aggregated, without their times: this is the whole recording".to_owned());
            return Outside::Continue;
        }
        let Some(Stored { whole, wanted, .. }) = self.app.stored else { return Outside::Continue };
        let length = wanted.length();
        let (from, length) = match action {
            Action::Earlier => (wanted.from.0.saturating_sub(length / 2), length),
            Action::Later => (wanted.from.0.saturating_add(length / 2), length),
            Action::Narrower => (wanted.from.0 + length / 4, (length / 2).max(SHORTEST_RANGE)),
            Action::Wider => (wanted.from.0.saturating_sub(length / 2), length.saturating_mul(2)),
            _ => (whole.from.0, whole.length()),
        };
        Outside::Look(part(whole, from, length))
    }

    /// Takes a key into the filter; whether it was for the filter.
    fn type_filter(&mut self, code: KeyCode, state: &State) -> bool {
        match code {
            KeyCode::Enter => self.app.typing = false,
            KeyCode::Esc => {
                self.app.typing = false;
                self.set_filter(String::new(), state);
            }
            KeyCode::Backspace => {
                let mut filter = std::mem::take(&mut self.app.filter);
                filter.pop();
                self.set_filter(filter, state);
            }
            KeyCode::Char(c) if self.app.filter.chars().count() < LONGEST_FILTER => {
                let filter = format!("{}{c}", self.app.filter);
                self.set_filter(filter, state);
            }
            KeyCode::Char(_) => {}
            _ => return false,
        }
        true
    }

    fn set_filter(&mut self, filter: String, state: &State) {
        self.app.filter = filter;
        self.arrange(state);
    }
}

/// A part of a range, inside of it.
fn part(whole: Range, from: u64, length: u64) -> Range {
    let length = length.min(whole.length());
    let from = from.clamp(whole.from.0, whole.to.0 - length);
    Range { from: Timestamp(from), to: Timestamp(from + length) }
}

/// A wide screen has a margin.
fn inset(area: Rect) -> Rect {
    let margin = u16::from(area.width >= 60);
    Rect { x: area.x + margin, width: area.width.saturating_sub(2 * margin), ..area }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_means_two_things_in_one_place() {
        let dashboard = Dashboard::new("", Theme::of_environment(|_| None));
        for panel in &dashboard.panels {
            let common = key::BINDINGS.iter().map(|binding| &binding.keys);
            let all: Vec<_> =
                common.chain(key::STORED.iter().map(|binding| &binding.keys)).chain(panel.keys()).collect();
            for (index, one) in all.iter().enumerate() {
                for other in &all[index + 1..] {
                    let shared = one.codes.iter().find(|code| other.codes.contains(code));
                    assert_eq!(shared, None, "{}: {one:?}, {other:?}", panel.title());
                }
            }
        }
    }

    #[test]
    fn what_views_open_is_shown_by_one_other() {
        let dashboard = Dashboard::new("", Theme::of_environment(|_| None));
        for subject in [PanelSubject::Function, PanelSubject::Thread, PanelSubject::Call] {
            let showing = dashboard.panels.iter().filter(|other| other.shows() == Some(subject));
            assert_eq!(showing.count(), 1, "{subject:?}");
        }
    }
}
