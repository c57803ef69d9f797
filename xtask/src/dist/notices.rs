//! What the binary is made of: a list for programs (CycloneDX), and the licences of all its parts for people.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Result;
use serde_json::{Value, json};

use super::Release;
use crate::dependencies::{self, Package};
use crate::files::read;
use crate::process;

/// Debian's packages whose archives are linked, with the licence that applies to the binary.
const SYSTEM: [(&str, &str); 4] = [
    ("libelf-dev", "LGPL-3.0-or-later"),
    ("zlib1g-dev", "Zlib"),
    ("libc6-dev", "LGPL-2.1-or-later"),
    ("libgcc-12-dev", "GPL-3.0-or-later WITH GCC-exception-3.1"),
];
/// Where Debian keeps the texts of licences.
const COMMON: &str = "/usr/share/common-licenses";
/// C that packages bring with them, by folder in the package.
const BUNDLED: [&str; 3] = ["", "libbpf", "zstd"];

const PREFACE: &str = "\
The program rtrace is distributed under the Apache License 2.0 or the MIT License, as you choose. Its BPF programs are
also under the GPL 2. It contains the parts below, under their own licences.

libelf (of elfutils) is linked statically under the GNU Lesser General Public License 3 or later, and glibc under version
2.1 or later. You may replace them with versions that you have changed: the complete sources of rtrace of this version are
published with it, with the lock file of all other parts, and `cargo xtask dist` links them anew with the `libelf.a` and
`libc.a` of your system. Debian's source packages `elfutils` and `glibc` of the versions below have the sources of these
libraries. You may examine and debug such a program for that purpose.
";

/// The packages that are linked into the binary.
pub fn parts(source: &Path) -> Result<Vec<Package>> {
    let arguments =
        ["tree", "--locked", "--package=rtrace-cli", "--features=rtrace-bpf/static", "--edges=normal", "--prefix=none"];
    let listed = process::output(process::cargo(&arguments).arg("--format={p}").current_dir(source))?;
    // `NAME vVERSION (FOLDER)`; macros leave nothing of themselves in the binary.
    let linked: Vec<&str> = listed.lines().filter(|line| !line.ends_with("(proc-macro)")).collect();
    let mut packages = dependencies::packages(&source.join("Cargo.toml"))?;
    packages.retain(|package| {
        let name = format!("{} v{}", package.name, package.version);
        linked.iter().any(|line| line.strip_prefix(&name).is_some_and(|rest| rest.is_empty() || rest.starts_with(' ')))
    });
    packages.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
    Ok(packages)
}

/// The list of parts in CycloneDX's format.
pub fn bill(release: &Release, parts: &[Package]) -> Result<String> {
    let component = |kind: &str, name: &str, version: &str, licence: &str| {
        let address = format!("pkg:{kind}/{name}@{version}");
        json!({ "type": "library", "bom-ref": address, "name": name, "version": version, "purl": address,
                "licenses": [{ "expression": licence }] })
    };
    let mut components: Vec<Value> = parts
        .iter()
        .filter(|part| part.source.is_some())
        .map(|part| {
            // Older packages write `/` for `OR`.
            let licence = part.license.as_deref().unwrap_or_default().replace('/', " OR ");
            component("cargo", &part.name, &part.version, &licence)
        })
        .collect();
    for (package, licence) in SYSTEM {
        components.push(component("deb/debian", package, &version_of(package)?, licence));
    }
    let bill = json!({
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "metadata": { "component": { "type": "application", "name": "rtrace", "version": release.version,
                                     "licenses": [{ "expression": "Apache-2.0 OR MIT" }] } },
        "components": components,
    });
    Ok(serde_json::to_string_pretty(&bill)? + "\n")
}

fn version_of(package: &str) -> Result<String> {
    process::output(Command::new("dpkg-query").args(["--show", "--showformat=${Version}", package]))
}

/// The licences of all parts; each text once.
pub fn licences(parts: &[Package]) -> Result<String> {
    let mut users: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for part in parts.iter().filter(|part| part.source.is_some()) {
        let folder = part.manifest_path.parent().unwrap_or(Path::new("/"));
        let name = format!("{} {} ({})", part.name, part.version, part.license.as_deref().unwrap_or_default());
        let texts: Vec<String> = BUNDLED.iter().flat_map(|bundled| texts_in(&folder.join(bundled))).collect();
        if texts.is_empty() {
            users.entry("(The package has no text of it.)\n".to_owned()).or_default().push(name.clone());
        }
        for text in texts {
            let users = users.entry(text).or_default();
            users.extend((users.last() != Some(&name)).then(|| name.clone()));
        }
    }
    let mut text = PREFACE.to_owned();
    for (text_of_licence, users) in &users {
        text += &section(&users.join(", "), text_of_licence);
    }
    for (package, licence) in SYSTEM {
        let copyright = read(Path::new(&format!("/usr/share/doc/{}/copyright", documented(package))))?;
        text += &section(&format!("{package} {} ({licence})", version_of(package)?), &copyright);
    }
    for name in ["LGPL-3", "GPL-3", "LGPL-2.1"] {
        text += &section(name, &read(&Path::new(COMMON).join(name))?);
    }
    Ok(text)
}

/// The package that has the documents of another: compilers share one.
fn documented(package: &str) -> &str {
    if package.starts_with("libgcc-") { "gcc-12-base" } else { package }
}

fn section(title: &str, text: &str) -> String {
    format!("\n{}\n{title}\n\n{}\n", "=".repeat(100), text.trim_end())
}

fn texts_in(folder: &Path) -> Vec<String> {
    let is_licence = |name: &str| {
        let name = name.to_uppercase();
        ["LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE"].iter().any(|word| name.starts_with(word))
    };
    let names = super::entries(folder).unwrap_or_default();
    let names = names.iter().filter(|name| name.to_str().is_some_and(is_licence));
    names.filter_map(|name| fs::read_to_string(folder.join(name)).ok()).collect()
}
