//! What the state looks like: a title, facts, tabs, one view, and a line of keys.
//!
//! Nothing depends on colour: what it says is also said in words, by weight or by place.

pub mod counters;
mod detail;
pub mod events;
pub mod functions;
pub mod header;
pub mod help;
pub mod plan;
pub mod threads;
pub mod timeline;
pub mod tree;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};

use crate::app::{App, Targets};
use crate::canvas::Canvas;
use crate::key::View;
use crate::state::State;

/// Heights from which there is room for facts, for tabs, for a free line above the view.
const FACTS_FROM: u16 = 6;
const TABS_FROM: u16 = 9;
const SPACE_FROM: u16 = 30;

/// Draws the whole screen.
pub fn draw(frame: &mut Frame<'_>, app: &mut App, state: &State) {
    let area = frame.area();
    let mut canvas = Canvas { buffer: frame.buffer_mut(), theme: app.theme };
    let lines = |shown: bool| Constraint::Length(u16::from(shown));
    let has_slider = app.stored.is_some() && area.height >= TABS_FROM;
    let [title, facts, tabs, _, view, slider, foot] = Layout::vertical([
        Constraint::Length(1),
        lines(area.height >= FACTS_FROM),
        lines(area.height >= TABS_FROM),
        lines(area.height >= SPACE_FROM),
        Constraint::Fill(1),
        lines(has_slider),
        Constraint::Length(1),
    ])
    .areas(inset(area));
    app.targets =
        Targets { rows: Rect { y: view.y + 1, height: view.height.saturating_sub(1), ..view }, ..Targets::default() };
    header::draw_title(&mut canvas, title, app, state);
    header::draw_facts(&mut canvas, facts, app, state);
    header::draw_tabs(&mut canvas, tabs, app);
    if app.help {
        help::draw(&mut canvas, view, app);
    } else {
        match app.view {
            View::Functions => functions::draw(&mut canvas, view, app, state),
            View::Tree => tree::draw(&mut canvas, view, app, state),
            View::Threads => threads::draw(&mut canvas, view, app, state),
            View::Timeline => timeline::draw(&mut canvas, view, app, state),
            View::Detail => detail::draw(&mut canvas, view, app, state),
            View::Plan => plan::draw(&mut canvas, view, app, state),
            View::Events => events::draw(&mut canvas, view, app, state),
        }
    }
    header::draw_slider(&mut canvas, slider, app);
    header::draw_foot(&mut canvas, foot, app);
}

/// A wide screen has a margin.
fn inset(area: Rect) -> Rect {
    let margin = u16::from(area.width >= 60);
    Rect { x: area.x + margin, width: area.width.saturating_sub(2 * margin), ..area }
}

#[cfg(test)]
mod tests;
