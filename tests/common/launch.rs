//! Programs run by other programs.

use std::process::{Command, Output, Stdio};

/// Runs `program`, with its arguments and environment, as the last arguments of `tool`, and without
/// input.
pub fn under(mut tool: Command, program: &Command) -> Output {
    tool.arg(program.get_program()).args(program.get_args()).stdin(Stdio::null());
    tool.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
    tool.output().unwrap_or_else(|error| panic!("failed to run {tool:?}: {error}"))
}

/// Runs `program` as it is.
pub fn alone(program: &Command) -> Output {
    under(Command::new("env"), program)
}
