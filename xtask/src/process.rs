//! Commands that are shown before they run, and must succeed.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

/// cargo, in the workspace.
pub fn cargo(arguments: &[&str]) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(arguments).current_dir(crate::root());
    cargo
}

/// The folder that cargo builds into.
pub fn target_directory() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| crate::root().join("target"), PathBuf::from)
}

/// Runs `command` with our own input and output.
pub fn run(command: &mut Command) -> Result<()> {
    println!("$ {}", shown(command));
    let status = command.status().with_context(|| format!("failed to start `{}`", shown(command)))?;
    if !status.success() {
        bail!("failed to run `{}`: {status}", shown(command));
    }
    Ok(())
}

/// The optimised rtrace of these sources, built.
pub fn release() -> Result<PathBuf> {
    run(&mut cargo(&["build", "--release", "--package", "rtrace-cli"]))?;
    Ok(target_directory().join("release/rtrace"))
}

/// Runs `command` and shows each line that it prints as it comes, for `hear` to look at. Whether it succeeds is told.
pub fn listen(command: &mut Command, mut hear: impl FnMut(&str)) -> Result<bool> {
    println!("$ {}", shown(command));
    let started = command.stdout(Stdio::piped()).spawn();
    let mut child = started.with_context(|| format!("failed to start `{}`", shown(command)))?;
    for line in BufReader::new(child.stdout.take().expect("it is piped")).split(b'\n') {
        let line = line.with_context(|| format!("failed to read what `{}` prints", shown(command)))?;
        let line = String::from_utf8_lossy(&line);
        println!("{}", line.trim_end());
        hear(line.trim_end());
    }
    Ok(child.wait().with_context(|| format!("failed to wait for `{}`", shown(command)))?.success())
}

/// Runs `command` and gives what it prints.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("failed to start `{}`", shown(command)))?;
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        bail!("failed to run `{}`: {}\n{complaint}", shown(command), output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The command as one would type it.
pub fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| quoted(&word.to_string_lossy())).collect::<Vec<_>>().join(" ")
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_shown_as_typed() {
        let mut command = Command::new("echo");
        command.args(["plain-word", "two words", "it's", ""]);
        assert_eq!(shown(&command), r"echo plain-word 'two words' 'it'\''s' ''");
    }
}
