//! `rtrace completions`: the script that teaches a shell rtrace's options.

use super::args::{self, Completions};
use super::{Outcome, print};

/// Prints the completions of one shell.
pub fn completions(options: &Completions) -> anyhow::Result<Outcome> {
    print(&script(options.shell))?;
    Ok(Outcome::Complete)
}

/// Generates into memory because clap's generator panics when its output is closed.
fn script(shell: clap_complete::Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut args::command(), "rtrace", &mut script);
    script
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use clap::ValueEnum;

    use super::*;

    #[test]
    fn every_shell_learns_every_verb() {
        for &shell in clap_complete::Shell::value_variants() {
            let script = String::from_utf8(script(shell)).unwrap();
            for verb in ["attach", "run", "libs", "plan", "report", "export", "doctor", "completions"] {
                assert!(script.contains(verb), "{shell}: {verb}");
            }
        }
    }
}
