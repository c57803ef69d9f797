//! What must be true of every package that is compiled: its licence, where it comes from, and which Rust it needs.
//!
//! `cargo deny` checks more, and takes minutes to install; this takes a second and needs nothing but cargo.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use crate::process;

/// Licences that allow to link a package into programs under any of ours, and ask for no more than a notice.
const ALLOWED: [&str; 9] =
    ["0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "MIT", "NCSA", "Unicode-3.0", "Zlib"];

/// How cargo begins the name of a registry; anything else is a repository or a folder that may change.
const REGISTRY: &str = "registry+";

/// The workspaces of this repository.
const WORKSPACES: [&str; 2] = ["Cargo.toml", "fuzz/Cargo.toml"];

#[derive(Debug, Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

/// A package that is compiled.
#[derive(Debug, Default, Deserialize)]
pub struct Package {
    pub name: String,
    pub version: String,
    /// A licence expression.
    pub license: Option<String>,
    /// `None` for our own.
    pub source: Option<String>,
    rust_version: Option<String>,
    /// Path of its manifest.
    pub manifest_path: PathBuf,
}

/// Checks the packages of all workspaces and names all faults.
///
/// # Errors
/// A package must not be used, or cargo cannot tell which there are.
pub fn check() -> Result<()> {
    let mut faults = Vec::new();
    let mut count = 0;
    for manifest in WORKSPACES {
        let packages = packages(&crate::root().join(manifest))?;
        count += packages.len();
        faults.extend(packages.iter().flat_map(faults_of));
    }
    faults.sort();
    faults.dedup();
    if !faults.is_empty() {
        bail!("failed to accept all dependencies:\n{}", faults.join("\n"));
    }
    println!("{count} packages have a licence and a Rust version that we accept");
    Ok(())
}

/// All packages of a workspace, with those that it is built with.
///
/// # Errors
/// cargo cannot tell.
pub fn packages(manifest: &Path) -> Result<Vec<Package>> {
    let arguments = ["metadata", "--format-version", "1", "--locked", "--filter-platform", "x86_64-unknown-linux-gnu"];
    let text = process::output(process::cargo(&arguments).arg("--manifest-path").arg(manifest))?;
    let metadata: Metadata = serde_json::from_str(&text).context("failed to understand `cargo metadata`")?;
    Ok(metadata.packages)
}

fn faults_of(package: &Package) -> Vec<String> {
    let mut faults = Vec::new();
    let Package { name, version, license, source, rust_version, .. } = package;
    match license.as_deref() {
        Some(license) if is_allowed(license) => {}
        Some(license) => faults.push(format!("{name} {version}: licence `{license}`")),
        None => faults.push(format!("{name} {version}: no licence")),
    }
    if let Some(source) = source.as_deref().filter(|source| !source.starts_with(REGISTRY)) {
        faults.push(format!("{name} {version}: from `{source}`"));
    }
    // cargo gives this program the Rust version of its manifest, which is that of the workspace.
    let ours = env!("CARGO_PKG_RUST_VERSION");
    if let Some(needed) = rust_version.as_deref().filter(|&needed| numbers(needed) > numbers(ours)) {
        faults.push(format!("{name} {version}: needs Rust {needed}, we promise {ours}"));
    }
    faults
}

/// `1.88` and `1.88.0` are the same.
fn numbers(version: &str) -> [u32; 3] {
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
    std::array::from_fn(|_| parts.next().unwrap_or(0))
}

/// Whether a licence expression (SPDX; older packages write `/` for `OR`) leaves us a choice that is allowed. `OR` binds as if
/// it were in parentheses, which only refuses more. A licence with an exception is judged without: that only allows more.
fn is_allowed(expression: &str) -> bool {
    let is_balanced = expression.matches('(').count() == expression.matches(')').count();
    let plain = expression.replace('/', " OR ").replace(['(', ')'], "");
    let is_licence = |licence: &str| ALLOWED.contains(&licence.split(" WITH ").next().unwrap_or_default().trim());
    is_balanced && plain.split(" AND ").all(|part| part.split(" OR ").any(is_licence))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_needs_one_licence_that_is_allowed() {
        for expression in ["MIT", "MIT/GPL-3.0", "LGPL-2.1-only OR BSD-2-Clause", "(MIT OR X) AND Unicode-3.0"] {
            assert!(is_allowed(expression), "{expression}");
        }
        assert!(is_allowed("Apache-2.0 WITH LLVM-exception OR GPL-2.0"));
        assert!(is_allowed("GPL-2.0 OR MIT AND Zlib"));
    }

    #[test]
    fn whatever_else_is_refused() {
        for expression in ["", "GPL-3.0", "MIT AND GPL-3.0", "(MIT OR Zlib) AND X", "(MIT", "MIT Zlib", "X OR"] {
            assert!(!is_allowed(expression), "{expression}");
        }
    }

    #[test]
    fn faults_name_the_package() {
        let fine =
            || Package { name: "a".into(), version: "1.0.0".into(), license: Some("MIT".into()), ..Package::default() };
        assert!(faults_of(&fine()).is_empty());
        assert_eq!(faults_of(&Package { license: None, ..fine() }), ["a 1.0.0: no licence"]);
        assert_eq!(faults_of(&Package { license: Some("X".into()), ..fine() }), ["a 1.0.0: licence `X`"]);
        let git = Package { source: Some("git+https://x".into()), ..fine() };
        assert_eq!(faults_of(&git), ["a 1.0.0: from `git+https://x`"]);
        let new = Package { rust_version: Some("99.0".into()), ..fine() };
        assert_eq!(
            faults_of(&new),
            [format!("a 1.0.0: needs Rust 99.0, we promise {}", env!("CARGO_PKG_RUST_VERSION"))]
        );
        let same = Package { rust_version: Some(format!("{}.0", env!("CARGO_PKG_RUST_VERSION"))), ..fine() };
        assert!(faults_of(&same).is_empty());
    }
}
