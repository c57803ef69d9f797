//! What the state looks like: a file for each view, and the lines around it.
//!
//! Nothing depends on colour: what it says is also said in words, by weight or by place.

pub mod activity;
pub mod axis;
pub mod counters;
pub mod detail;
pub mod events;
pub mod functions;
pub mod groups;
pub mod header;
pub mod help;
pub mod legend;
pub mod question;
pub mod threads;
pub mod timeline;
pub mod tree;

use crate::app::App;
use crate::panel::Panel;
use crate::state::State;

/// Cells of a title with a unit and the mark of the order.
pub const TIME: u16 = 13;

/// The views, in the order of their tabs. Esc leads to the first.
pub fn panels() -> Vec<Box<dyn Panel>> {
    vec![
        Box::<functions::Functions>::default(),
        Box::<tree::CallTree>::default(),
        Box::new(threads::ThreadView),
        Box::<timeline::Timeline>::default(),
        Box::<detail::Detail>::default(),
        Box::<events::Events>::default(),
    ]
}

/// Why there is no call that ended.
pub fn no_calls<'a>(app: &'a App, state: &State) -> &'a str {
    match &app.stored {
        Some(stored) if state.summary.is_none() => stored.status.as_str(),
        Some(_) => "no call ended in this part of the trace",
        None if state.is_armed => "no call has ended yet; press 3 to see running calls",
        None => "probes are being placed",
    }
}

#[cfg(test)]
mod tests;
