//! What a view of the dashboard is. Each is one file in `view`; the dashboard knows them by this trait alone.

use std::fmt::Debug;

use crossterm::event::KeyCode;
use ratatui::layout::Rect;
use rtrace_model::RegionId;

use crate::app::{App, Outside};
use crate::canvas::Canvas;
use crate::key::{Binding, Keys};
use crate::list::Rows;
use crate::state::State;

/// What a key of one view does.
pub type Act<P> = fn(&mut P, &mut App, &State) -> Outside;

/// What one view opens in another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PanelSubject {
    /// The function of the row chosen.
    Function,
    /// The thread of the row chosen.
    Thread,
    /// The threads of the process of the row chosen: those that pass the filter.
    Process,
    /// The call of the row chosen: that of [`App::call`].
    Call,
}

/// A view of the dashboard.
pub trait Panel: Debug {
    /// The word on its tab.
    fn title(&self) -> &'static str;

    /// The keys that only this view has, as the help names them.
    fn keys(&self) -> Vec<&'static Keys> {
        Vec::new()
    }

    /// Does what a key of this view asks for; `None` where it has none such.
    fn press(&mut self, _code: KeyCode, _app: &mut App, _state: &State) -> Option<Outside> {
        None
    }

    /// Filters and sorts its rows anew.
    fn arrange(&mut self, app: &mut App, state: &State);

    /// Draws it.
    fn draw(&mut self, canvas: &mut Canvas<'_>, area: Rect, app: &mut App, state: &State);

    /// The list in which the user chooses.
    fn rows<'a>(&'a mut self, app: &'a mut App) -> &'a mut dyn Rows;

    /// The function that the row chosen is about.
    fn chosen_function(&self, _app: &App, _state: &State) -> Option<RegionId> {
        None
    }

    /// What Enter opens, in the view that [`shows`](Panel::shows) it.
    fn opens(&self) -> Option<PanelSubject> {
        None
    }

    /// What is opened here, from other views.
    fn shows(&self) -> Option<PanelSubject> {
        None
    }

    /// Opens what is chosen in another view.
    fn open(&mut self, _app: &mut App, _state: &State) {}

    /// Opens the row chosen within this view; whether it did.
    fn descend(&mut self, _app: &mut App, _state: &State) -> bool {
        false
    }

    /// Leaves what was opened; whether there was anything.
    fn close(&mut self, _app: &mut App, _state: &State) -> bool {
        false
    }

    /// The view is shown from here on; `chosen`: the function that was chosen in the one before.
    fn enter(&mut self, _app: &mut App, _chosen: Option<RegionId>) {}

    /// Another row was chosen.
    fn moved(&mut self, _app: &mut App) {}
}

/// What these bindings of a view say of their keys.
pub fn keys<P>(bindings: &'static [Binding<Act<P>>]) -> Vec<&'static Keys> {
    bindings.iter().map(|binding| &binding.keys).collect()
}
