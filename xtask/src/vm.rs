//! `cargo xtask vm [KERNEL…]`: the kernel tests on the kernels of other releases of Debian and Ubuntu.
//!
//! Each kernel is booted in an emulator with nothing but the tests in its memory. The tests run
//! here first: that builds the programs which they trace. Nothing of a guest is installed here.

mod guest;
mod image;
mod kernels;
mod package;
mod verdict;

use std::path::Path;

use anyhow::{Result, bail};

use crate::{packages, process};
use image::GuestImage;
pub use image::pack;
use kernels::Matrix;

/// What fetching and booting kernels needs.
const PACKAGES: &[&str] = &["busybox-static", "debian-archive-keyring", "g++", "qemu-system-x86"];

/// Runs the tests on the kernels of these names, or on all, and ends with a table; `tests`: only those
/// whose names contain one of these.
///
/// # Errors
/// A name that is not in the list; a kernel that is not what the list says; a test that fails.
pub fn run(names: &[String], tests: &[String]) -> Result<()> {
    let matrix = Matrix::read()?;
    let tests = if tests.is_empty() { &matrix.tests } else { tests };
    let kernels = matrix.choose(names)?;
    packages::require_root("build the traced programs, as only tests that may trace do")?;
    packages::require(&[packages::BUILD, PACKAGES].concat())?;
    let image = GuestImage::build(tests)?;

    let parameters = [
        ("RTRACE", image.rtrace.display().to_string()),
        ("TESTS", image.tests.display().to_string()),
        ("FILTERS", tests.join(",")),
    ];

    let mut rows = Vec::new();
    for kernel in kernels {
        println!("\n{} ({})", kernel.name, kernel.suite);
        let report = package::fetch(kernel).and_then(|file| guest::boot(kernel, &file, &image.file, &parameters))?;
        rows.push((kernel, report));
    }

    println!("\n{}", verdict::table(&rows));
    if rows.iter().any(|(kernel, report)| report.fault(kernel).is_some()) {
        bail!("failed to find every kernel as expected; their messages are in `{}`", folder().display());
    }
    Ok(())
}

/// Boots the kernel of this name with an image whose first program says how it went.
///
/// # Errors
/// It does not boot, or something went wrong there.
pub fn boot(name: &str, image: &Path) -> Result<()> {
    packages::require(PACKAGES)?;
    let matrix = Matrix::read()?;
    for kernel in matrix.choose(&[name.to_owned()])? {
        let report = package::fetch(kernel).and_then(|file| guest::boot(kernel, &file, image, &[]))?;
        if let Some(fault) = report.fault(kernel) {
            bail!("failed on kernel {name}: {fault}");
        }
    }
    Ok(())
}

/// Where kernels, the guests' file system and the kernels' messages are kept.
fn folder() -> std::path::PathBuf {
    process::target_directory().join("vm")
}
