//! The archives of packages of which tests take kernels and clean trees.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::process;

/// What knows Ubuntu's keys is no package of Debian: it is fetched, and taken if it has this sum.
const UBUNTU_KEYS: &str = "pool/main/u/ubuntu-keyring/ubuntu-keyring_2021.03.26_all.deb";
const UBUNTU_KEYS_SUM: &str = "SHA256:0d0e7ed6b112f5d03eabf3c7eb01ebdacf9c57714b279e90495cfc58c8c4520f";

/// Where the packages of a suite are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Archive {
    Debian,
    Ubuntu,
}

impl Archive {
    /// The one that has a suite, which may have a part: `jammy-updates`.
    pub fn of(suite: &str) -> Archive {
        let release = suite.split('-').next().unwrap_or_default();
        if ["jammy", "noble"].contains(&release) { Archive::Ubuntu } else { Archive::Debian }
    }

    /// The address of its mirrors.
    pub fn address(self) -> &'static str {
        match self {
            Archive::Debian => "http://deb.debian.org/debian",
            Archive::Ubuntu => "http://archive.ubuntu.com/ubuntu",
        }
    }

    /// The script by which debootstrap makes a tree: it has no names of releases that are newer than itself.
    pub fn script(self) -> &'static str {
        match self {
            Archive::Debian => "sid",
            Archive::Ubuntu => "gutsy",
        }
    }

    /// The package that depends on the newest kernel of a suite.
    pub fn newest_kernel(self) -> &'static str {
        match self {
            Archive::Debian => "linux-image-cloud-amd64",
            Archive::Ubuntu => "linux-image-virtual",
        }
    }

    /// The file with the keys of those who sign what it has.
    ///
    /// # Errors
    /// It cannot be fetched, or is not the one that is known.
    pub fn keys(self) -> Result<PathBuf> {
        match self {
            Archive::Debian => Ok(PathBuf::from("/usr/share/keyrings/debian-archive-keyring.gpg")),
            Archive::Ubuntu => ubuntu_keys(&process::target_directory().join("ubuntu-keys")),
        }
    }
}

/// Kept between runs.
fn ubuntu_keys(folder: &Path) -> Result<PathBuf> {
    let keys = folder.join("usr/share/keyrings/ubuntu-archive-keyring.gpg");
    if keys.exists() {
        return Ok(keys);
    }
    fs::create_dir_all(folder).with_context(|| format!("failed to create `{}`", folder.display()))?;
    let package = folder.join("keys.deb");
    let address = format!("{}/{UBUNTU_KEYS}", Archive::Ubuntu.address());
    let mut fetch = Command::new("/usr/lib/apt/apt-helper");
    fetch.args(["--option=APT::Sandbox::User=root", "download-file", &address]);
    process::run(fetch.arg(&package).arg(UBUNTU_KEYS_SUM))?;
    process::run(Command::new("dpkg-deb").arg("--extract").arg(&package).arg(folder))?;
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_archive_is_that_of_the_release() {
        assert_eq!(Archive::of("jammy-updates"), Archive::Ubuntu);
        assert_eq!(Archive::of("noble"), Archive::Ubuntu);
        assert_eq!(Archive::of("bookworm-backports"), Archive::Debian);
    }
}
