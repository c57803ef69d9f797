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
pub mod plan;
pub mod question;
pub mod threads;
pub mod timeline;
pub mod tree;

use crate::panel::Panel;

/// The views, in the order of their tabs. Esc leads to the first.
pub fn panels() -> Vec<Box<dyn Panel>> {
    vec![
        Box::<functions::Functions>::default(),
        Box::<tree::CallTree>::default(),
        Box::new(threads::Threads),
        Box::<timeline::Timeline>::default(),
        Box::<detail::Detail>::default(),
        Box::<plan::Plan>::default(),
        Box::<events::Events>::default(),
    ]
}

#[cfg(test)]
mod tests;
