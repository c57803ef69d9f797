//! The container image: the static binary alone, in the layout of the Open Container Initiative, made without a network.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::bundles::sha256;
use super::{Release, tree};
use crate::files::{emptied, write};
use crate::process;

const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// Builds the archive that `podman load` and `docker load` take.
pub fn build(release: &Release, tree: &Path) -> Result<()> {
    let root = emptied(release.file("image/root"))?;
    for part in ["usr/bin/rtrace", &format!("{}/copyright", tree::DOC)] {
        let from = tree.join(part);
        let content = fs::read(&from).with_context(|| format!("failed to read `{}`", from.display()))?;
        write(&root.join(part), content)?;
    }
    process::run(Command::new("chmod").args(["-R", "u=rwX,go=rX"]).arg(&root))?;
    process::run(Command::new("chmod").arg("755").arg(root.join("usr/bin/rtrace")))?;
    let plain = release.file("image/layer.tar");
    release.pack(&root, &plain)?;
    let difference = sha256(&plain)?;
    process::run(Command::new("gzip").args(["-9nf"]).arg(&plain))?;

    let layout = emptied(release.file("image/layout"))?;
    let layer = fs::read(release.file("image/layer.tar.gz")).context("failed to read the layer")?;
    let created = process::output(
        release.dated("date").args(["-u", "+%Y-%m-%dT%H:%M:%SZ"]).arg(format!("-d@{}", release.epoch)),
    )?;
    let config = json!({
        "created": created.trim(), "architecture": "amd64", "os": "linux",
        "config": { "Entrypoint": ["/usr/bin/rtrace"], "Env": ["PATH=/usr/bin"], "WorkingDir": "/",
                    "Labels": { "org.opencontainers.image.version": release.version,
                                "org.opencontainers.image.licenses": "Apache-2.0 OR MIT" } },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{difference}")] },
    });
    let config = blob(&layout, CONFIG, &serde_json::to_vec(&config)?)?;
    let layer = blob(&layout, LAYER, &layer)?;
    let manifest = json!({ "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer] });
    let mut manifest = blob(&layout, MANIFEST, &serde_json::to_vec(&manifest)?)?;
    manifest["annotations"] =
        json!({ "org.opencontainers.image.ref.name": format!("localhost/rtrace:{}", release.version) });
    let index = json!({ "schemaVersion": 2, "manifests": [manifest] });
    write(&layout.join("index.json"), serde_json::to_vec(&index)?)?;
    write(&layout.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#)?;
    release.pack(&layout, &release.file(&release.image()))
}

/// Stores a part of the image under its sum, and gives what refers to it.
fn blob(layout: &Path, kind: &str, content: &[u8]) -> Result<Value> {
    let folder = layout.join("blobs/sha256");
    let file = folder.join("new");
    write(&file, content)?;
    let sum = sha256(&file)?;
    fs::rename(&file, folder.join(&sum)).context("failed to name a part of the image")?;
    Ok(json!({ "mediaType": kind, "digest": format!("sha256:{sum}"), "size": content.len() }))
}

impl Release {
    /// The name of the image's archive.
    pub fn image(&self) -> String {
        format!("rtrace-{}-image.tar", self.version)
    }
}
