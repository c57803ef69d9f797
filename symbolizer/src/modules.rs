//! What a live process maps: its ELF files, by device and inode.
//!
//! A process changes while it is looked at: what is returned was true a moment ago. Its files may
//! be deleted, replaced or in another container, so they are opened through the mapping itself.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt};
use std::path::{Path, PathBuf};

use crate::address_space::{AddressSpace, MappedFile, Mapping, process_error};
use crate::image::is_elf;
use crate::{Error, Image, outline, select};

/// A path has so many bytes at most, as the kernel takes it.
const PATH_BYTES: usize = 4096;

/// One ELF file that a process maps executable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    /// The process.
    pub pid: u32,
    /// The path as the process sees it, or saw it before the file was removed.
    pub path: PathBuf,
    /// Device number of the file, as `stat` reports it.
    pub device: u64,
    /// Inode number of the file.
    pub inode: u64,
    /// All mappings of the file, in address order.
    pub mappings: Vec<Mapping>,
}

impl Module {
    /// A path by which we reach the file whatever happened to its name and in whatever container it lies.
    ///
    /// That takes a privilege (`CAP_CHECKPOINT_RESTORE`); without it this is the path in the
    /// process's root folder, which may name another file meanwhile.
    pub fn open_path(&self) -> PathBuf {
        let by_mapping = self.first_executable().map(|mapping| {
            PathBuf::from(format!("/proc/{}/map_files/{:x}-{:x}", self.pid, mapping.start, mapping.end))
        });
        by_mapping.filter(|path| fs::metadata(path).is_ok()).unwrap_or_else(|| in_root(self.pid, &self.path))
    }

    /// The last component of the path; empty where it is not UTF-8.
    pub fn file_name(&self) -> &str {
        self.path.file_name().and_then(OsStr::to_str).unwrap_or_default()
    }

    /// Whether `pattern` names the file, or the link by which its program was started.
    pub fn is_named(&self, pattern: &str) -> bool {
        let linked = || fs::canonicalize(in_root(self.pid, &self.path)).ok();
        select::names(pattern, &self.path, || outline::soname(&self.open_path()))
            || linked().is_some_and(|path| select::matches(pattern, &path))
    }

    /// What to add (wrapping) to an address of `image` to get the address in the process; `None`
    /// where `image` is not what the process maps.
    pub fn load_bias(&self, image: &Image) -> Option<u64> {
        self.load_biases(image).next()
    }

    /// The same for each executable mapping, in address order: a file may be loaded several times
    /// (`dlmopen`), and each time in several mappings.
    pub fn load_biases(&self, image: &Image) -> impl Iterator<Item = u64> {
        let executable = self.mappings.iter().filter(|mapping| mapping.executable);
        executable.filter_map(|mapping| {
            let address = image.mapped_address(mapping.offset)?;
            Some(mapping.start.wrapping_sub(address))
        })
    }

    fn first_executable(&self) -> Option<&Mapping> {
        self.mappings.iter().find(|mapping| mapping.executable)
    }
}

/// The ELF files that the process maps executable, in address order.
///
/// # Errors
/// As [`AddressSpace::of`].
pub fn of_process(pid: u32) -> Result<Vec<Module>, Error> {
    of_process_again(pid, &[])
}

/// The same where it was read before: only files that were not `known` then, or are mapped otherwise now, are opened. That
/// is most of the time that it takes.
///
/// # Errors
/// As [`AddressSpace::of`].
pub fn of_process_again(pid: u32, known: &[Module]) -> Result<Vec<Module>, Error> {
    let space = AddressSpace::of(pid)?;
    let known: HashMap<_, _> = known.iter().map(|module| ((module.device, module.inode), module)).collect();
    let is_same = |known: &&&Module, now: &Module| known.pid == pid && known.mappings == now.mappings;
    let program = fs::metadata(format!("/proc/{pid}/exe")).ok().map(|file| (file.dev(), file.ino()));
    let look = |(module, file): (Module, MappedFile<'_>)| {
        let same = known.get(&(module.device, module.inode)).filter(|known| is_same(known, &module));
        same.map_or_else(|| look_at(module, &file, program), |&known| Some(known.clone()))
    };
    Ok(group(pid, &space).into_iter().filter_map(look).collect())
}

/// The file with the numbers and the path that it has outside of the list of mappings; none if it is no ELF file; `program`:
/// the device and the inode of what the process executes.
fn look_at(mut module: Module, file: &MappedFile<'_>, program: Option<(u64, u64)>) -> Option<Module> {
    let path = module.open_path();
    if !is_elf(&path) {
        return None;
    }
    // Some file systems show other numbers in the list of mappings than `stat` does.
    if let Ok(metadata) = fs::metadata(path) {
        module.device = metadata.dev();
        module.inode = metadata.ino();
    }
    let is_it = |path: &PathBuf| leads_to(module.pid, path, (module.device, module.inode));
    let is_program = program == Some((module.device, module.inode));
    let started = is_program.then(|| started_as(module.pid)).flatten().filter(is_it);
    module.path = started.or_else(|| file.other_paths().find(is_it)).unwrap_or(file.path());
    Some(module)
}

/// Path of the program that a process runs, as people know it: by which it was started, if that leads to it.
///
/// # Errors
/// The process has ended, or may not be looked at.
pub fn program_path(pid: u32) -> io::Result<PathBuf> {
    let link = format!("/proc/{pid}/exe");
    let (path, program) = (fs::read_link(&link)?, fs::metadata(&link)?);
    let is_it = |path: &PathBuf| leads_to(pid, path, (program.dev(), program.ino()));
    Ok(started_as(pid).filter(is_it).unwrap_or(path))
}

/// The path by which the program of the process was started. People know the program by that path, which may be a
/// link: Debian's `redis-server` leads to the file `redis-check-rdb`.
fn started_as(pid: u32) -> Option<PathBuf> {
    const AT_EXECFN: u64 = 31;
    let memory = fs::File::open(format!("/proc/{pid}/mem")).ok()?;
    let mut bytes = [0; PATH_BYTES];
    let read = memory.read_at(&mut bytes, auxiliary(pid, AT_EXECFN)?).ok()?;
    let path = Path::new(OsStr::from_bytes(bytes[..read].split(|&byte| byte == 0).next()?));
    path.is_absolute().then(|| path.to_owned())
}

/// A value that the kernel handed to the program of a process, by its number in `<elf.h>`.
pub fn auxiliary(pid: u32, kind: u64) -> Option<u64> {
    let values = fs::read(format!("/proc/{pid}/auxv")).ok()?;
    let number = |bytes: &[u8]| bytes.try_into().ok().map(u64::from_ne_bytes);
    let found = values.chunks_exact(16).find(|pair| number(&pair[..8]) == Some(kind));
    found.and_then(|pair| number(&pair[8..]))
}

/// The program that the process runs.
///
/// # Errors
/// As [`of_process`].
pub fn executable(pid: u32) -> Result<Module, Error> {
    let path = PathBuf::from(format!("/proc/{pid}/exe"));
    let metadata = fs::metadata(&path).map_err(|error| process_error(pid, path.clone(), error))?;
    let is_executable = |module: &Module| (module.device, module.inode) == (metadata.dev(), metadata.ino());
    let not_mapped = || Error::Read { path, source: io::Error::new(io::ErrorKind::NotFound, "it is not mapped") };
    of_process(pid)?.into_iter().find(is_executable).ok_or_else(not_mapped)
}

/// Whether a path of a process leads to the file with this device and inode.
fn leads_to(pid: u32, path: &Path, file: (u64, u64)) -> bool {
    fs::metadata(in_root(pid, path)).is_ok_and(|found| (found.dev(), found.ino()) == file)
}

/// A path of a process, from outside of its root folder.
fn in_root(pid: u32, path: &Path) -> PathBuf {
    Path::new("/proc").join(pid.to_string()).join("root").join(path.strip_prefix("/").unwrap_or(path))
}

/// Puts the mappings of each file together; files without executable mappings are left out.
fn group(pid: u32, space: &AddressSpace) -> Vec<(Module, MappedFile<'_>)> {
    let mut modules: Vec<(Module, MappedFile<'_>)> = Vec::new();
    let mut by_file = HashMap::new();
    for area in space.areas() {
        let Some(file) = area.file else { continue };
        let (device, inode) = (file.device, file.inode);
        let index = *by_file.entry((device, inode)).or_insert_with(|| {
            modules.push((Module { pid, path: file.path(), device, inode, mappings: Vec::new() }, file));
            modules.len() - 1
        });
        modules[index].0.mappings.push(area.mapping);
    }
    modules.retain(|(module, _)| module.first_executable().is_some());
    modules
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::fs::File;

    use super::*;

    #[test]
    fn mappings_are_put_together_by_file() {
        let maps = b"7f0000000000-7f0000001000 r--p 00000000 08:01 12                 /tmp/a b\\012c.so (deleted)\n\
            7f0000001000-7f0000003000 r-xp 00001000 08:01 12                 /tmp/a b\\012c.so (deleted)\n\
            7f0000003000-7f0000004000 r--p 00000000 08:01 13                 /tmp/data\n\
            7ffd00000000-7ffd00001000 r-xp 00000000 00:00 0                  [vdso]\n\
            nonsense\n\
            7f00000-zz r-xp 0 8:1 14 /x\n";
        let space = AddressSpace::from(&maps[..]);
        let modules: Vec<Module> = group(1, &space).into_iter().map(|(module, _)| module).collect();
        assert_eq!(
            modules,
            [Module {
                pid: 1,
                path: PathBuf::from("/tmp/a b\nc.so"),
                device: rustix::fs::makedev(8, 1),
                inode: 12,
                mappings: vec![
                    Mapping { start: 0x7f0000000000, end: 0x7f0000001000, offset: 0, executable: false },
                    Mapping { start: 0x7f0000001000, end: 0x7f0000003000, offset: 0x1000, executable: true },
                ],
            }]
        );
        assert_eq!(modules[0].file_name(), "a b\nc.so");
    }

    #[test]
    fn our_own_process() {
        let pid = std::process::id();
        let modules = of_process(pid).unwrap();
        let libc = modules.iter().find(|module| module.file_name().starts_with("libc.so")).unwrap();
        let image = Image::open(&libc.open_path()).unwrap();
        let metadata = fs::metadata(&libc.path).unwrap();
        assert_eq!((libc.device, libc.inode), (metadata.dev(), metadata.ino()));

        let getpid = image.exports().unwrap().functions.into_iter().find(|function| function.name == "getpid").unwrap();
        let bias = libc.load_bias(&image).unwrap();
        assert_eq!(bias.wrapping_add(getpid.address), libc::getpid as *const () as u64);

        let program = executable(pid).unwrap();
        assert_eq!(program.path, std::env::current_exe().unwrap());
    }

    #[test]
    fn a_deleted_library_is_read_through_its_mapping() {
        let pid = std::process::id();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gone");
        fs::copy("/proc/self/exe", &path).unwrap();
        let file = File::open(&path).unwrap();
        // SAFETY: a fresh mapping that nothing else refers to and that stays for the test's life.
        let address = unsafe {
            use rustix::mm::{MapFlags, ProtFlags, mmap};
            mmap(std::ptr::null_mut(), 4096, ProtFlags::READ | ProtFlags::EXEC, MapFlags::PRIVATE, &file, 0).unwrap()
        };
        fs::remove_file(&path).unwrap();
        let modules = of_process(pid).unwrap();
        let module = modules.iter().find(|module| module.mappings[0].start == address as u64).unwrap();
        assert_eq!(module.path, path);
        match File::open(module.open_path()) {
            Ok(_) => drop(Image::open(&module.open_path()).unwrap()),
            Err(error) => eprintln!("skipped: opening files of mappings takes a privilege: {error}"),
        }
    }

    /// Nobody can make us take a file for another by its name.
    #[test]
    fn a_file_whose_name_looks_deleted_or_escaped() {
        let pid = std::process::id();
        let folder = tempfile::tempdir().unwrap();
        for name in ["libz.so (deleted)", r"lib\012z.so", "lib\nz.so", "lib\nz.so (deleted)", r"lib\012z.so (deleted)"]
        {
            let path = folder.path().join(name);
            fs::copy("/proc/self/exe", &path).unwrap();
            let file = File::open(&path).unwrap();
            // SAFETY: a fresh mapping that nothing else refers to and that stays for the test's life.
            let address = unsafe {
                use rustix::mm::{MapFlags, ProtFlags, mmap};
                let protection = ProtFlags::READ | ProtFlags::EXEC;
                mmap(std::ptr::null_mut(), 4096, protection, MapFlags::PRIVATE, &file, 0).unwrap()
            };
            let modules = of_process(pid).unwrap();
            let module = modules.iter().find(|module| module.mappings[0].start == address as u64).unwrap();
            assert_eq!(module.path, path);
            assert!(!module.is_named("libz.so") && !module.is_named("lib\nz.so (del"));
        }
    }

    #[test]
    fn a_program_has_the_name_by_which_it_was_started() {
        let folder = tempfile::tempdir().unwrap();
        let [file, link] = ["file", "link"].map(|name| folder.path().join(name));
        fs::copy(fs::canonicalize("/bin/sleep").unwrap(), &file).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let mut started = std::process::Command::new(&link).arg("60").spawn().unwrap();
        // It has been started before the kernel has mapped the program and told it its name.
        let told = format!("/proc/{}/auxv", started.id());
        while fs::read(&told).unwrap().iter().all(|&byte| byte == 0) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let (program, path) = (executable(started.id()), program_path(started.id()));
        let is_named = |name: &str| program.as_ref().is_ok_and(|program| program.is_named(name));
        let named = ["link", "file", "sleep"].map(is_named);
        started.kill().unwrap();
        started.wait().unwrap();
        assert_eq!(path.unwrap(), link);
        assert_eq!((program.unwrap().path, named), (link, [true, true, false]));
    }

    #[test]
    fn processes_that_are_not_there() {
        assert!(matches!(of_process(u32::MAX), Err(Error::NoSuchProcess { pid: u32::MAX })));
        assert!(matches!(executable(u32::MAX), Err(Error::NoSuchProcess { .. })));
    }
}
