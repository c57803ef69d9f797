//! Whether calls to single-stepped functions go through stubs.

use clap::Args;

/// The option of the verbs that start a command, or plan for one.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Stubs")]
pub struct StubsArgs {
    /// Use stubs for functions that are expensive to probe (about 10x cheaper)
    ///
    /// rtrace gives the command an audit library, through which the dynamic linker (glibc 2.35 or newer) binds calls to
    /// stubs. With `--args`, stubs also read `float` and `double` arguments, which probes cannot. Other calls are traced at
    /// full cost: calls within a library, calls through pointers, and calls of programs
    /// that the command runs. No call is missed.
    #[arg(long)]
    pub stubs: bool,
}
