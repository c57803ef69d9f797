//! The files of all packages, in the folders that they have when installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use super::{Release, notices};
use crate::files::{emptied, write};
use crate::process;

/// Documents that are installed.
const DOCUMENTS: [&str; 6] =
    ["README.md", "CHANGELOG.md", "SCHEMA.md", "docs/install.md", "docs/security.md", "bpf/LICENSE.md"];
/// Completions by shell, where it looks for those of packages.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/rtrace"),
    ("zsh", "usr/share/zsh/vendor-completions/_rtrace"),
    ("fish", "usr/share/fish/vendor_completions.d/rtrace.fish"),
];
/// The folder of the documents.
pub const DOC: &str = "usr/share/doc/rtrace";

/// Puts the files together, and gives their folder.
pub fn stage(release: &Release, source: &Path, binary: &Path) -> Result<PathBuf> {
    let tree = emptied(release.file("tree"))?;
    let program = tree.join("usr/bin/rtrace");
    write(&program, fs::read(binary).with_context(|| format!("failed to read `{}`", binary.display()))?)?;
    process::run(Command::new("chmod").arg("755").arg(&program))?;
    process::run(Command::new(&program).arg("man").arg(tree.join("usr/share/man/man1")))?;
    for (shell, file) in COMPLETIONS {
        write(&tree.join(file), process::output(Command::new(&program).args(["completions", shell]))?)?;
    }
    for name in DOCUMENTS {
        let text = fs::read(source.join(name)).with_context(|| format!("failed to read `{name}`"))?;
        write(&tree.join(DOC).join(Path::new(name).file_name().unwrap_or_default()), text)?;
    }
    let parts = notices::parts(source)?;
    write(&tree.join(DOC).join("sbom.cdx.json"), notices::bill(release, &parts)?)?;
    write(&release.file(&format!("rtrace-{}.cdx.json", release.version)), notices::bill(release, &parts)?)?;
    write(&tree.join(DOC).join("copyright"), notices::licences(&parts)?)?;
    process::run(Command::new("chmod").args(["-R", "u=rwX,go=rX"]).arg(&tree))?;
    Ok(tree)
}
