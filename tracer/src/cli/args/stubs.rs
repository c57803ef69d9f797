//! Whether, and how far, single-stepped functions are seen at stubs.

use clap::Args;
use rtrace::stubs::Reach;

/// The option of the verbs that start a command, or plan for one.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Stubs")]
pub struct Stubs {
    /// See calls of single-stepped functions at stubs, for a tenth of the cost
    ///
    /// The dynamic linker (glibc 2.35 or newer) binds calls to the stubs, by an audit library that
    /// the command gets. Calls by other ways (within a library, through pointers) cost what they
    /// always do, and so do those of programs that the command runs; none is missed. With `dlsym`,
    /// what dlsym finds is a stub, too: not the address that a pointer to the function has, which the
    /// program may notice.
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
