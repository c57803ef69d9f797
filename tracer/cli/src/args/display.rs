//! How results are shown on a terminal.

use clap::Args;

use super::choice::{Choice, one_of};

/// Options of verbs that print tables.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Display")]
pub struct Display {
    /// Use colours
    ///
    /// `auto` uses colours on a terminal, unless NO_COLOR is set.
    #[arg(long, value_name = "WHEN", default_value = "auto", value_parser = one_of(COLOUR))]
    pub color: Colour,

    /// Do not pipe long output into a pager
    ///
    /// By default, output that is longer than the terminal goes to $PAGER, or to `less` if that is not set.
    #[arg(long)]
    pub no_pager: bool,
}

/// When to use colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    /// On a terminal, unless `NO_COLOR` is set.
    Auto,
    /// Whatever the output is.
    Always,
    /// Not at all.
    Never,
}

const COLOUR: [Choice<Colour>; 3] = [
    ("auto", "On a terminal, unless NO_COLOR is set", Colour::Auto),
    ("always", "Even if the output is not a terminal", Colour::Always),
    ("never", "Not at all", Colour::Never),
];
