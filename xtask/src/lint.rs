//! `cargo xtask lint`: what must hold of the sources before a change goes in.

use anyhow::Result;

use crate::{packages, process, tidy};

/// Runs all checks and stops at the first that fails.
pub fn run() -> Result<()> {
    process::run(&mut process::cargo(&["fmt", "--all", "--check"]))?;
    tidy::run()?;
    packages::require(packages::BUILD)?;
    process::run(&mut process::cargo(&["clippy", "--workspace", "--all-targets", "--", "--deny", "warnings"]))?;
    process::run(process::cargo(&["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "--deny warnings"))
}
