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
    /// always do; none is missed. MORE is a list of what the program may notice:
    /// `dlsym`: what dlsym finds is a stub, so not the address that a pointer to the function has;
    /// `children`: programs that the command runs have stubs, too, and LD_AUDIT stays in the
    /// environment.
    #[arg(
        long = "stubs",
        value_name = "MORE",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "",
        value_parser = parse_reach
    )]
    pub reach: Option<Reach>,
}

fn parse_reach(list: &str) -> Result<Reach, String> {
    let mut reach = Reach::default();
    for word in list.split(',').filter(|word| !word.is_empty()) {
        match word {
            "dlsym" => reach.dlsym = true,
            "children" => reach.children = true,
            _ => return Err(format!("`{word}` is neither `dlsym` nor `children`")),
        }
    }
    Ok(reach)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stubs_reach_as_far_as_is_said() {
        assert_eq!(parse_reach(""), Ok(Reach::default()));
        assert_eq!(parse_reach("dlsym"), Ok(Reach { dlsym: true, children: false }));
        assert_eq!(parse_reach("children,dlsym"), Ok(Reach { dlsym: true, children: true }));
        assert!(parse_reach("plt").is_err_and(|message| message.contains("`plt`")));
    }
}
