//! `cargo xtask dist`: what users install, made of one static binary.
//!
//! Two builds of one commit give the same bytes, in whatever folder: paths are replaced, times are those of the commit,
//! archives are sorted. `docs/install.md` says what is in the packages.

mod binary;
mod bundles;
mod check;
mod image;
mod notices;
mod tree;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use clap::Args;

use crate::{packages, process};

/// What building all of it needs beside Rust.
const PACKAGES: &[&str] = &["binutils", "git", "rpm"];

/// What is built.
#[derive(Debug, Args)]
pub struct DistOptions {
    /// Install each package in trees of Debian and Ubuntu, remove it, and look for what is left
    #[arg(long)]
    check: bool,
    /// Build all of it once more in other folders, and compare
    #[arg(long)]
    twice: bool,
}

/// One release, as it is built.
struct Release {
    version: String,
    /// Seconds since 1970 of the commit: every file's time.
    epoch: String,
    /// Gets all that is made.
    folder: PathBuf,
}

impl Release {
    fn new(folder: PathBuf) -> Result<Release> {
        let commit =
            || process::output(Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(crate::root()));
        let epoch = std::env::var("SOURCE_DATE_EPOCH").or_else(|_| commit())?.trim().to_owned();
        Ok(Release { version: env!("CARGO_PKG_VERSION").to_owned(), epoch, folder })
    }

    /// A file that users fetch.
    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// A program that dates what it writes.
    fn dated(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("SOURCE_DATE_EPOCH", &self.epoch).env("TZ", "UTC").env("LC_ALL", "C");
        command
    }

    /// Packs a folder: sorted, dated, owned by root.
    fn pack(&self, folder: &Path, archive: &Path) -> Result<()> {
        let mut tar = self.dated("tar");
        tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--format=gnu"]);
        tar.arg(format!("--mtime=@{}", self.epoch)).arg("--directory").arg(folder).arg("--create");
        let is_compressed = archive.extension().is_some_and(|extension| extension == "gz");
        if is_compressed {
            tar.arg("--use-compress-program=gzip -9n");
        }
        process::run(tar.arg("--file").arg(archive).arg("--").args(entries(folder)?))
    }
}

/// The names in a folder, sorted.
fn entries(folder: &Path) -> Result<Vec<std::ffi::OsString>> {
    let entries = fs::read_dir(folder).with_context(|| format!("failed to read `{}`", folder.display()))?;
    let mut names: Vec<_> = entries.map(|entry| Ok(entry?.file_name())).collect::<std::io::Result<_>>()?;
    names.sort_unstable();
    Ok(names)
}

/// Builds everything into `packages` of cargo's folder, and checks it as asked.
///
/// # Errors
/// Something cannot be built, or is not as it should be.
pub fn run(options: &DistOptions) -> Result<()> {
    packages::require(&[packages::BUILD, PACKAGES].concat())?;
    let release = Release::new(folder())?;
    build(&release, crate::root(), &process::target_directory())?;
    if options.check {
        check::run(&release)?;
    }
    if options.twice {
        check::compare(&release)?;
    }
    Ok(())
}

/// Builds everything from the sources in `source`; cargo builds into `target`.
fn build(release: &Release, source: &Path, target: &Path) -> Result<()> {
    let binary = binary::build(source, target)?;
    let tree = tree::stage(release, source, &binary)?;
    bundles::tarball(release, &tree)?;
    bundles::deb(release, source, &tree)?;
    bundles::rpm(release, source, &tree)?;
    bundles::spack(release, source)?;
    image::build(release, &tree)?;
    println!("\n{}", process::output(Command::new("ls").args(["-l", "--"]).arg(&release.folder))?);
    Ok(())
}

fn folder() -> PathBuf {
    process::target_directory().join("packages")
}
