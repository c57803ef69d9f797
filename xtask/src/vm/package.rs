//! Kernels out of the packages of Debian and Ubuntu: fetched by apt, which checks their signatures, and unpacked,
//! not installed. apt works in folders of its own and leaves this machine's alone.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use super::kernels::Kernel;
use crate::archive::Archive;
use crate::process;

/// The kernel's image, kept between runs; its folder is to be removed to get a newer one.
pub fn fetch(kernel: &Kernel) -> Result<PathBuf> {
    let folder = super::folder().join(&kernel.name);
    let file = folder.join("vmlinuz");
    if file.exists() {
        return Ok(file);
    }
    let apt = Apt::prepare(&folder, &kernel.suite)?;
    process::run(&mut apt.command("apt-get", &["--quiet", "update"]))?;
    let package = apt.package_of_newest()?;
    process::run(apt.command("apt-get", &["--quiet", "download", &package]).current_dir(&folder))?;
    unpack(&folder, &package, &file)?;
    Ok(file)
}

/// apt, for one suite.
struct Apt {
    folder: PathBuf,
    archive: Archive,
}

impl Apt {
    fn prepare(folder: &Path, suite: &str) -> Result<Apt> {
        let folder = folder.join("apt");
        let archive = Archive::of(suite);
        let (address, keys) = (archive.address(), archive.keys()?);
        let source = format!("deb [arch=amd64 signed-by={}] {address} {suite} main\n", keys.display());
        let write = || {
            fs::create_dir_all(folder.join("state/lists/partial"))?;
            fs::create_dir_all(folder.join("cache/archives/partial"))?;
            fs::write(folder.join("status"), "")?;
            fs::write(folder.join("sources.list"), source)
        };
        write().with_context(|| format!("failed to prepare `{}`", folder.display()))?;
        Ok(Apt { folder, archive })
    }

    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        let mut option = |name: &str, path: &str| {
            command.arg(format!("--option=Dir::{name}={}", self.folder.join(path).display()));
        };
        option("Etc::SourceList", "sources.list");
        option("Etc::SourceParts", "no-other-sources");
        option("State", "state");
        option("State::status", "status");
        option("Cache", "cache");
        // Its own user for downloads may not see these folders.
        command.args(["--option=APT::Sandbox::User=root", "--option=Acquire::Languages=none"]).args(arguments);
        command
    }

    /// The package with the image of the suite's newest kernel. Since Linux 6.17 it stands behind
    /// another that only has dependencies.
    fn package_of_newest(&self) -> Result<String> {
        let image = self
            .dependency(self.archive.newest_kernel(), "linux-image-")?
            .context("failed to find a kernel in the suite")?;
        Ok(self.dependency(&image, "linux-binary-")?.unwrap_or(image))
    }

    fn dependency(&self, package: &str, prefix: &str) -> Result<Option<String>> {
        let listed = process::output(&mut self.command("apt-cache", &["depends", "--important", package]))?;
        Ok(first_dependency(&listed, prefix))
    }
}

/// From the lines of apt-cache, `  Depends: NAME`.
fn first_dependency(listed: &str, prefix: &str) -> Option<String> {
    let mut names = listed.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    names.find(|name| name.starts_with(prefix)).map(str::to_owned)
}

/// Takes the image out of `package` in `folder`, and removes the rest.
fn unpack(folder: &Path, package: &str, image: &Path) -> Result<()> {
    let unpacked = folder.join("unpacked");
    let archive = process::output(
        Command::new("find").arg(folder).args(["-maxdepth", "1", "-name"]).arg(format!("{package}_*.deb")),
    )?;
    process::run(Command::new("dpkg-deb").arg("--extract").arg(archive.trim()).arg(&unpacked))?;
    let found = process::output(Command::new("find").arg(&unpacked).args(["-name", "vmlinuz*", "-type", "f"]))?;
    let move_out = || {
        fs::rename(found.trim(), image)?;
        fs::remove_file(archive.trim())?;
        fs::remove_dir_all(&unpacked)
    };
    move_out().with_context(|| format!("failed to take the kernel out of `{package}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_are_found_by_prefix() {
        let listed = "linux-image-cloud-amd64\n  Depends: linux-base-cloud-amd64\n  Depends: linux-image-7.2-amd64\n";
        assert_eq!(first_dependency(listed, "linux-image-").as_deref(), Some("linux-image-7.2-amd64"));
        assert_eq!(first_dependency(listed, "linux-binary-"), None);
    }
}
