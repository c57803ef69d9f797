//! Whether calls to single-stepped functions go through stubs, and which calls.

use clap::Args;
use rtrace::stubs::Reach;

/// The option of the verbs that start a command, or plan for one.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Stubs")]
pub struct StubsArgs {
    /// Use stubs for functions that are expensive to probe (about 10x cheaper)
    ///
    /// rtrace gives the command an audit library, through which the dynamic linker (glibc 2.35 or newer) binds calls to
    /// stubs. With `--args`, stubs also read `float` and `double` arguments, which probes cannot. Other calls are traced at
    /// full cost: calls within a library, calls through pointers, and calls of programs
    /// that the command runs. No call is missed. With `--stubs=dlsym`, dlsym finds the stubs, too. The program may notice
    /// that their addresses differ from those of the functions.
    #[arg(
        long = "stubs",
        value_name = "dlsym",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "",
        value_parser = parse_reach
    )]
    pub reach: Option<Reach>,
}

fn parse_reach(word: &str) -> Result<Reach, String> {
    match word {
        "" => Ok(Reach::default()),
        "dlsym" => Ok(Reach { dlsym: true }),
        _ => Err(format!("`{word}` is not `dlsym`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stubs_reach_as_far_as_is_said() {
        assert_eq!(parse_reach(""), Ok(Reach::default()));
        assert_eq!(parse_reach("dlsym"), Ok(Reach { dlsym: true }));
        assert!(parse_reach("plt").is_err_and(|message| message.contains("`plt`")));
    }
}
