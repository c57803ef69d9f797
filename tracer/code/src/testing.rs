//! ELF files for tests: of bytes, and of a compiler.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::process::Command;

use rtrace_symbolizer::Image;

/// Where the code of [`image`] begins, in memory and in the file.
pub const BASE: u64 = 0x78;

/// An image of nothing but this code.
pub fn image(code: &[u8]) -> Image {
    let size = BASE + code.len() as u64;
    let mut bytes = Vec::new();
    bytes.extend([0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    bytes.extend(3u16.to_le_bytes()); // shared object
    bytes.extend(62u16.to_le_bytes()); // x86-64
    bytes.extend(1u32.to_le_bytes());
    bytes.extend([0u64, 64, 0].iter().flat_map(|field| field.to_le_bytes())); // program headers at 64
    bytes.extend(0u32.to_le_bytes());
    bytes.extend([64u16, 56, 1, 64, 0, 0].iter().flat_map(|field| field.to_le_bytes()));
    bytes.extend([1u32, 5].iter().flat_map(|field| field.to_le_bytes())); // loaded, read and execute
    bytes.extend([0, 0, 0, size, size, 0x1000].iter().flat_map(|field: &u64| field.to_le_bytes()));
    assert_eq!(bytes.len() as u64, BASE);
    bytes.extend(code);
    Image::parse(bytes).unwrap()
}

/// What the compiler makes of `source` in this language (`c` or `c++`); none, with a word on why,
/// where there is no compiler.
pub fn compile(language: &str, source: &str, flags: &[&str]) -> Option<Image> {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("output");
    compile_to(&output, language, source, flags).then(|| Image::open(&output).unwrap())
}

/// The same, as a file that stays; false where there is no compiler.
pub fn compile_to(output: &Path, language: &str, source: &str, flags: &[&str]) -> bool {
    let input = output.with_extension("source");
    std::fs::write(&input, source).unwrap();
    let mut compiler = Command::new("gcc");
    compiler.args(["-O2", "-w", "-x", language]).arg(&input).args(["-x", "none"]).args(flags).arg("-o").arg(output);
    match compiler.status() {
        Ok(status) => assert!(status.success(), "{compiler:?}"),
        Err(error) => {
            eprintln!("skipped: gcc cannot be run: {error}");
            return false;
        }
    }
    true
}
