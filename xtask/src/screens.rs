//! `cargo xtask screens`: the pictures of the HTML page in docs/screens, from the trace that `cargo xtask demo` left.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::{packages, process};

/// Bytes that a picture may have: it is in every clone.
const MOST_BYTES: u64 = 300_000;

/// Width and height in pixels.
const SIZE: (u32, u32) = (1_240, 860);

/// A picture: its name, and the scheme of colours that the browser prefers, as Blink numbers them.
const PICTURES: [(&str, &str); 2] = [("page.png", "1"), ("page-dark.png", "0")];

/// Takes the pictures with Chromium.
pub fn run() -> Result<()> {
    packages::require(packages::SCREENS)?;
    let folder = process::target_directory();
    let (rtrace, trace) = (folder.join("release/rtrace"), folder.join("demo/fftw.rtrace"));
    if !trace.exists() {
        bail!("failed to find `{}`\n\nhint: cargo xtask demo", trace.display());
    }
    let page = folder.join("demo/page.html");
    process::run(Command::new(rtrace).arg("report").arg(&trace).arg("--html").arg(&page))?;
    for (name, scheme) in PICTURES {
        let picture = crate::root().join("docs/screens").join(name);
        take(&page, &picture, &folder.join("demo/browser"), scheme)?;
        let bytes = fs::metadata(&picture).with_context(|| format!("failed to find `{}`", picture.display()))?.len();
        println!("{}: {bytes} bytes", picture.display());
        if bytes > MOST_BYTES {
            bail!("failed to keep `{}` small: it has more than {MOST_BYTES} bytes", picture.display());
        }
    }
    Ok(())
}

/// Text without colours at its edges makes a picture half as large.
fn take(page: &Path, picture: &Path, profile: &Path, scheme: &str) -> Result<()> {
    let (width, height) = SIZE;
    // It complains of much that a picture does not need.
    process::output(
        Command::new("chromium")
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-lcd-text"])
            .args(["--hide-scrollbars", "--force-device-scale-factor=1", "--virtual-time-budget=5000"])
            .arg(format!("--blink-settings=preferredColorScheme={scheme}"))
            .arg(format!("--window-size={width},{height}"))
            .arg(format!("--user-data-dir={}", profile.display()))
            .arg(format!("--screenshot={}", picture.display()))
            .arg(format!("file://{}", page.display())),
    )?;
    Ok(())
}
