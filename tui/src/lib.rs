//! The live view of rtrace in a terminal.
//!
//! [`live()`] gives two ends of one state: a [`LiveSink`] that the recording feeds, and a [`Handle`]
//! that [`run()`] draws from. The recording never waits for the terminal, and only drawing knows
//! what a screen is: `live` and `snapshot` hold state, `app` what the user has done to the view of
//! it, `view` and `column` what that looks like, `term` the terminal.

mod app;
mod column;
mod live;
mod rates;
mod run;
mod snapshot;
mod term;
mod view;

pub use live::{Handle, LiveSink, live};
pub use run::{is_possible, run};
