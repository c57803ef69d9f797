//! The tarball, and packages for Debian's and Red Hat's kin and for Spack. What belongs to one kind alone is in `packaging/`.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use super::Release;
use crate::files::{emptied, read, write};
use crate::process;

/// `usr` of the tree, under a folder of the version's name.
pub fn tarball(release: &Release, tree: &Path) -> Result<()> {
    let name = release.tarball();
    let folder = emptied(release.file("tarball"))?;
    let top = name.trim_end_matches(".tar.gz");
    process::run(Command::new("cp").arg("-a").arg(tree.join("usr")).arg(folder.join(top)))?;
    release.pack(&folder, &release.file(&name))
}

/// A package for dpkg.
pub fn deb(release: &Release, source: &Path, tree: &Path) -> Result<()> {
    let folder = release.file("deb");
    copy(tree, &folder)?;
    let size = process::output(Command::new("du").args(["--apparent-size", "-sk"]).arg(tree))?;
    let size = size.split_whitespace().next().unwrap_or_default();
    for (name, mode) in [("control", "644"), ("postinst", "755"), ("postrm", "755")] {
        let text = release.filled(&source.join("packaging/deb").join(name))?.replace("@SIZE@", size);
        write(&folder.join("DEBIAN").join(name), text)?;
        process::run(Command::new("chmod").arg(mode).arg(folder.join("DEBIAN").join(name)))?;
    }
    let file = release.file(&format!("rtrace_{}_amd64.deb", release.version));
    // Its own compression depends on the number of processors.
    let options = ["--build", "--root-owner-group", "-Zgzip", "-z9"];
    process::run(release.dated("dpkg-deb").args(options).arg(&folder).arg(file))
}

/// A package for rpm.
pub fn rpm(release: &Release, source: &Path, tree: &Path) -> Result<()> {
    let folder = emptied(release.file("rpm"))?;
    let specification = folder.join("rtrace.spec");
    let text = release.filled(&source.join("packaging/rtrace.spec"))?;
    write(&specification, text.replace("@TREE@", &tree.display().to_string()))?;
    let mut build = release.dated("rpmbuild");
    build.args(["-bb", "--quiet", "--target=x86_64-linux", "--define"]).arg(format!("_topdir {}", folder.display()));
    process::run(build.arg(&specification))?;
    let name = format!("rtrace-{}-1.x86_64.rpm", release.version);
    let built = folder.join("RPMS/x86_64").join(&name);
    fs::rename(&built, release.file(&name)).with_context(|| format!("failed to find `{}`", built.display()))
}

/// A recipe for Spack, which fetches the tarball.
pub fn spack(release: &Release, source: &Path) -> Result<()> {
    let sum = sha256(&release.file(&release.tarball()))?;
    let text = release.filled(&source.join("packaging/spack/package.py"))?.replace("@SHA256@", &sum);
    write(&release.file("spack/rtrace/package.py"), text)
}

/// The sum of a file in hexadecimal digits.
pub fn sha256(file: &Path) -> Result<String> {
    let sum = process::output(Command::new("sha256sum").arg("--").arg(file))?;
    Ok(sum.split_whitespace().next().unwrap_or_default().trim_start_matches('\\').to_owned())
}

fn copy(tree: &Path, folder: &Path) -> Result<()> {
    emptied(folder.to_owned())?;
    process::run(Command::new("cp").arg("-a").arg(tree.join(".")).arg(folder))
}

impl Release {
    /// The tarball's name.
    pub fn tarball(&self) -> String {
        format!("rtrace-{}-x86_64-linux.tar.gz", self.version)
    }

    /// A text with what is known of the release.
    fn filled(&self, file: &Path) -> Result<String> {
        let text = read(file)?;
        Ok(text.replace("@VERSION@", &self.version))
    }
}
