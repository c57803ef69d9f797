//! Small ELF files for tests, made by the compiler of this machine.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Image;

/// Compiles one source file to `output`; `false`, with a reason printed, where there is no compiler.
pub(crate) fn compile_to(compiler: &str, source: &str, flags: &[&str], output: &Path) -> bool {
    let extension = if compiler == "g++" { "cpp" } else { "c" };
    let source_file = output.with_extension(extension);
    fs::write(&source_file, source).unwrap();
    let result = Command::new(compiler).arg(&source_file).args(flags).arg("-o").arg(output).status();
    match result {
        Ok(status) => {
            assert!(status.success(), "{compiler} failed");
            true
        }
        Err(error) => {
            eprintln!("skipped: failed to run `{compiler}`: {error}");
            false
        }
    }
}

/// Compiles and reads one file.
pub(crate) fn compile(compiler: &str, source: &str, flags: &[&str]) -> Option<Image> {
    let folder = tempfile::tempdir().unwrap();
    let output: PathBuf = folder.path().join("fixture.so");
    compile_to(compiler, source, flags, &output).then(|| Image::parse(fs::read(&output).unwrap()).unwrap())
}

/// The same file without its section headers.
pub(crate) fn without_sections(image: &Image) -> Image {
    let mut bytes = image.bytes().to_vec();
    // Their place; their size, number and names.
    bytes[40..48].fill(0);
    bytes[58..64].fill(0);
    Image::parse(bytes).unwrap()
}
