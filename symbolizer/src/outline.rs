//! What a file is known by to those who link with it, of which little is read.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use object::elf;

use crate::Image;
use crate::contents::{Contents, ReadBytes};
use crate::mounts::open_regular;

/// No file's name is longer, in bytes.
const MAX_SONAME: usize = 256;

/// The `DT_SONAME` of the file at `path`, of which little more is read; `None` where it has none or cannot be read.
pub fn soname(path: &Path) -> Option<String> {
    DynamicOutline::of(path)?.soname()
}

/// Whether the file at `path` is a program, as [`Image::is_executable`] says, of which little more is read; not if it
/// cannot be read.
pub fn is_executable(path: &Path) -> bool {
    DynamicOutline::of(path).is_some_and(|linkage| linkage.image.is_program(|| linkage.soname().is_some()))
}

/// A file of which only headers and the dynamic section were read.
struct DynamicOutline {
    file: File,
    image: Image,
}

impl DynamicOutline {
    fn of(path: &Path) -> Option<DynamicOutline> {
        let file = open_regular(path).ok()?;
        let contents = Contents::read(&file, file.metadata().ok()?.len(), ReadBytes::Linkage).ok()?;
        Some(DynamicOutline { file, image: Image::new(contents).ok()? })
    }

    fn soname(&self) -> Option<String> {
        let strings = self.image.dynamic_value(elf::DT_STRTAB)?;
        let offset = self.image.file_offset(strings.checked_add(self.image.dynamic_value(elf::DT_SONAME)?)?)?;
        let mut name = [0; MAX_SONAME];
        let length = self.file.read_at(&mut name, offset).ok()?;
        let end = name[..length].iter().position(|&byte| byte == 0)?;
        str::from_utf8(&name[..end]).ok().map(str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::modules;

    #[test]
    fn an_outline_tells_what_the_whole_does() {
        let mut shorter = 0;
        // Other tests map files that they remove.
        let is_lasting = |module: &modules::Module| !module.path.starts_with(std::env::temp_dir());
        for module in modules::of_process(std::process::id()).unwrap().into_iter().filter(is_lasting) {
            let (whole, outline) = match (Image::open(&module.path), Image::open_outline(&module.path)) {
                (Ok(whole), Ok(outline)) => (whole, outline),
                (whole, outline) => {
                    assert_eq!(whole.is_ok(), outline.is_ok());
                    continue;
                }
            };
            let names = ["malloc", "memcpy", "main", "sin"].into_iter().collect();
            assert_eq!(outline.imports(), whole.imports());
            assert_eq!(outline.defined(&names), whole.defined(&names));
            assert_eq!(outline.frame_ranges(), whole.frame_ranges());
            assert!(outline.definitions().eq(whole.definitions()));
            assert_eq!(outline.slots(), whole.slots());
            assert_eq!(outline.code_ranges(), whole.code_ranges());
            assert_eq!(outline.needed(), whole.needed());
            assert_eq!(outline.soname(), whole.soname());
            assert_eq!(soname(&module.path).as_deref(), whole.soname());
            assert_eq!(is_executable(&module.path), whole.is_executable());
            assert_eq!(outline.build_id(), whole.build_id());
            assert_eq!(outline.defines("malloc"), whole.defines("malloc"));
            shorter += usize::from(outline.bytes().size() < whole.bytes().size());
        }
        assert!(shorter > 0, "the C library has code");
    }

    #[test]
    fn files_of_any_kind_are_survived() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let own = std::fs::read("/proc/self/exe").unwrap();
        for bytes in [&b""[..], b"\x7fELF", &own[..100], &own[..5000], &own[..own.len() / 2]] {
            std::fs::write(&path, bytes).unwrap();
            assert_eq!(Image::open_outline(&path).is_ok(), Image::open(&path).is_ok(), "{} bytes", bytes.len());
        }
        assert!(Image::open_outline(Path::new("/dev/zero")).is_err());
    }
}
