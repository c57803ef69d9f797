//! What a process maps at one moment: the only reader of `/proc/PID/maps`.
//!
//! The names in that file belong to the process, which may map files with any name: with spaces, newlines, bytes that
//! are not UTF-8, and words that look like the kernel's own. So the lines are read as bytes, and only the columns that
//! the kernel fills itself are trusted.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use rustix::io::Errno;

use crate::Error;

/// A file by device and inode, as `stat` and the list of a process's mappings have them.
pub type FileId = (u64, u64);

/// What the kernel adds to the name of a file that was removed or replaced.
const DELETED: &[u8] = b" (deleted)";

/// What a process maps, as the kernel said a moment ago.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressSpace {
    lines: Vec<u8>,
}

/// A range of addresses that the process has mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// Address after the last byte.
    pub end: u64,
    /// Where in the file it begins, in bytes.
    pub offset: u64,
    /// The process may execute it.
    pub executable: bool,
}

/// A mapping with its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Area<'a> {
    /// Its addresses.
    pub mapping: Mapping,
    /// What is mapped there; `None` for memory without a file.
    pub file: Option<MappedFile<'a>>,
    /// The process may write there.
    pub is_writable: bool,
    /// What the process writes there is written to the file.
    pub is_shared: bool,
}

/// A file as the list of mappings names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MappedFile<'a> {
    /// Device number. Some file systems have another one here than in `stat`.
    pub device: u64,
    /// Inode number, never 0. The same holds.
    pub inode: u64,
    name: &'a [u8],
}

impl Mapping {
    /// How many bytes it has.
    pub fn length(&self) -> u64 {
        self.end - self.start
    }

    /// Whether an address lies in it.
    pub fn contains(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }

    /// Where in the file the byte at an address is; `None` outside.
    pub fn offset_of(&self, address: u64) -> Option<u64> {
        self.contains(address).then(|| self.offset.wrapping_add(address - self.start))
    }

    /// Where the process has this byte of the file; `None` outside.
    pub fn address_of(&self, offset: u64) -> Option<u64> {
        let within = offset.checked_sub(self.offset)?;
        (within < self.length()).then(|| self.start + within)
    }
}

impl MappedFile<'_> {
    /// The path as the process sees it, without the kernel's ` (deleted)`.
    pub fn path(&self) -> PathBuf {
        path(&unescape_newlines(self.name.strip_suffix(DELETED).unwrap_or(self.name)))
    }

    /// What the file may be called if it is not called [`path`](Self::path). The kernel escapes newlines as `\012`, but
    /// no backslashes, so names may hold what looks like an escaped newline, or like the mark of deleted files.
    pub(crate) fn other_paths(&self) -> impl Iterator<Item = PathBuf> {
        let likely = self.path();
        let stripped = self.name.strip_suffix(DELETED).unwrap_or(self.name);
        let names = [Cow::Borrowed(self.name), unescape_newlines(self.name), Cow::Borrowed(stripped)];
        names.map(|name| path(&name)).into_iter().filter(move |path| *path != likely)
    }
}

impl AddressSpace {
    /// That of a process.
    ///
    /// # Errors
    /// [`Error::NoSuchProcess`], [`Error::PermissionDenied`] or [`Error::Read`].
    pub fn of(pid: u32) -> Result<AddressSpace, Error> {
        let path = PathBuf::from(format!("/proc/{pid}/maps"));
        let lines = fs::read(&path).map_err(|error| process_error(pid, path, error))?;
        Ok(AddressSpace { lines })
    }

    /// All mappings, in address order.
    pub fn areas(&self) -> impl Iterator<Item = Area<'_>> {
        self.lines.split(|&byte| byte == b'\n').filter_map(area)
    }

    /// The files of all mappings, once for each mapping.
    pub fn files(&self) -> impl Iterator<Item = MappedFile<'_>> {
        self.areas().filter_map(|area| area.file)
    }
}

#[cfg(test)]
impl From<&[u8]> for AddressSpace {
    fn from(lines: &[u8]) -> AddressSpace {
        AddressSpace { lines: lines.to_vec() }
    }
}

/// Why a file below `/proc/PID` could not be read.
pub(crate) fn process_error(pid: u32, path: PathBuf, error: io::Error) -> Error {
    let owner = fs::metadata(format!("/proc/{pid}")).map(|metadata| metadata.uid());
    match (owner, Errno::from_io_error(&error)) {
        (Err(_), _) | (_, Some(Errno::SRCH)) => Error::NoSuchProcess { pid },
        (Ok(uid), Some(Errno::ACCESS | Errno::PERM)) => Error::PermissionDenied { pid, owner: format!("uid {uid}") },
        _ => Error::Read { path, source: error },
    }
}

/// Parses one line of /proc/PID/maps: `START-END PERMISSIONS OFFSET MAJOR:MINOR INODE`, then spaces and a name, which may
/// be missing. `None` if it is malformed.
fn area(line: &[u8]) -> Option<Area<'_>> {
    let mut columns = line.splitn(6, |&byte| byte == b' ');
    let mut column = || str::from_utf8(columns.next()?).ok();
    let (start, end) = column()?.split_once('-')?;
    let permissions = column()?.as_bytes();
    let offset = hexadecimal(column()?)?;
    let (major, minor) = column()?.split_once(':')?;
    let device = |number| u32::try_from(hexadecimal(number)?).ok();
    let device = rustix::fs::makedev(device(major)?, device(minor)?);
    let inode = column()?.parse().ok()?;
    let (start, end) = (hexadecimal(start)?, hexadecimal(end)?);
    let name = columns.next().unwrap_or_default().trim_ascii_start();
    let mapping = Mapping { start, end, offset, executable: permissions.get(2) == Some(&b'x') };
    // What the kernel names itself, as `[heap]`, has no file, and neither has a file a name that begins like this.
    let has_file = inode != 0 && name.starts_with(b"/");
    (start <= end).then_some(Area {
        mapping,
        file: has_file.then_some(MappedFile { device, inode, name }),
        is_writable: permissions.get(1) == Some(&b'w'),
        is_shared: permissions.get(3) == Some(&b's'),
    })
}

/// A number as the kernel writes it, without a sign.
fn hexadecimal(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_hexdigit()).then(|| u64::from_str_radix(text, 16).ok()).flatten()
}

fn path(name: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(name))
}

/// The kernel writes a newline in a path as `\012`.
fn unescape_newlines(path: &[u8]) -> Cow<'_, [u8]> {
    const NEWLINE: &[u8] = br"\012";
    if !path.windows(NEWLINE.len()).any(|bytes| bytes == NEWLINE) {
        return Cow::Borrowed(path);
    }
    let mut plain = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&first, after)) = rest.split_first() {
        let (byte, after) = rest.strip_prefix(NEWLINE).map_or((first, after), |after| (b'\n', after));
        plain.push(byte);
        rest = after;
    }
    Cow::Owned(plain)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::fs::File;

    use rustix::mm::{MapFlags, ProtFlags, mmap};

    use super::*;

    fn space(lines: &[u8]) -> AddressSpace {
        AddressSpace::from(lines)
    }

    fn paths(lines: &[u8]) -> Vec<PathBuf> {
        space(lines).files().map(|file| file.path()).collect()
    }

    #[test]
    fn columns_of_the_kernel() {
        let space = space(b"7f0000001000-7f0000003000 r-xp 00001000 08:a1 12                 /usr/lib/libz.so.1\n");
        let mapping = Mapping { start: 0x7f00_0000_1000, end: 0x7f00_0000_3000, offset: 0x1000, executable: true };
        let device = rustix::fs::makedev(8, 0xa1);
        let file = MappedFile { device, inode: 12, name: b"/usr/lib/libz.so.1" };
        let area = Area { mapping, file: Some(file), is_writable: false, is_shared: false };
        assert_eq!(space.areas().collect::<Vec<_>>(), [area]);
    }

    #[test]
    fn memory_without_a_file() {
        for name in [
            &b""[..],
            b"[heap]",
            b"[vdso]",
            b"[anon:/lib/libz.so.1]",
            b"[anon: 08:01 12 /lib/libz.so.1]",
            b"anon_inode:[perf_event]",
        ] {
            let line = [b"00c00000-02400000 r-xp 00000000 00:00 0                          ", name].concat();
            let space = space(&line);
            let areas: Vec<Area<'_>> = space.areas().collect();
            assert_eq!((areas.len(), areas[0].file), (1, None), "{}", String::from_utf8_lossy(name));
            assert!(areas[0].mapping.executable);
        }
        // Also without the padding, and with an inode: sockets and others are mapped by names of the kernel's.
        assert_eq!(space(b"1000-2000 rw-p 0 00:00 0").areas().count(), 1);
        assert!(paths(b"1000-2000 rw-p 00000000 00:0a 77                  socket:[77]").is_empty());
    }

    #[test]
    fn names_are_taken_as_they_are() {
        let named = |name: &[u8]| {
            let lines = [b"1000-2000 r--p 00000000 08:01 12                         ", name, b"\n"].concat();
            let found = paths(&lines);
            assert_eq!(found.len(), 1, "{}", String::from_utf8_lossy(name));
            found[0].as_os_str().as_bytes().to_vec()
        };
        assert_eq!(named(b"/tmp/a b  c.so"), b"/tmp/a b  c.so");
        assert_eq!(named(b"/tmp/a\\012b.so"), b"/tmp/a\nb.so");
        assert_eq!(named(b"/tmp/\\012\\012"), b"/tmp/\n\n");
        assert_eq!(named(b"/tmp/\\01\\012\\0122"), b"/tmp/\\01\n\n2");
        assert_eq!(named(b"/tmp/\xff\xfe\x1b[31m.so"), b"/tmp/\xff\xfe\x1b[31m.so");
        assert_eq!(named(b"/tmp/a.so (deleted)"), b"/tmp/a.so");
        assert_eq!(named(b"/tmp/a.so (deleted) (deleted)"), b"/tmp/a.so (deleted)");
        assert_eq!(named(b"/memfd: (deleted) (deleted)"), b"/memfd: (deleted)");
        assert_eq!(
            named(b"/1000-2000 r-xp 00000000 08:01 13 /lib/libz.so.1"),
            b"/1000-2000 r-xp 00000000 08:01 13 /lib/libz.so.1"
        );
        assert_eq!(named(b"/tmp/ends in a space "), b"/tmp/ends in a space ");
        assert_eq!(named(b"/tmp/carriage\rreturn\t"), b"/tmp/carriage\rreturn\t");
    }

    #[test]
    fn what_is_no_line_is_passed_over() {
        for line in [
            &b""[..],
            b"nonsense",
            b"1000-2000",
            b"1000-2000 r-xp",
            b"1000-2000 r-xp 00000000 08:01",
            b"1000-zz r-xp 00000000 08:01 12 /lib/libz.so.1",
            b"+1000-+2000 r-xp 00000000 08:01 12 /lib/libz.so.1",
            b"2000-1000 r-xp 00000000 08:01 12 /lib/libz.so.1",
            b"1000-2000 r-xp 00000000 08:123456789 12 /lib/libz.so.1",
            b"1000-2000 r-xp 00000000 0801 12 /lib/libz.so.1",
            b"1000-2000 r-xp 00000000 08:01 -12 /lib/libz.so.1",
            b"1000-99999999999999999 r-xp 00000000 08:01 12 /lib/libz.so.1",
            b"\xff-\xfe r-xp 00000000 08:01 12 /lib/libz.so.1",
        ] {
            assert_eq!(space(line).areas().count(), 0, "{}", String::from_utf8_lossy(line));
        }
    }

    #[test]
    fn the_last_page_of_the_address_space() {
        let space = space(b"ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]");
        let mapping = space.areas().next().unwrap().mapping;
        assert!(mapping.executable && mapping.contains(0xffff_ffff_ff60_0fff));
    }

    #[test]
    fn addresses_and_offsets_lead_to_each_other() {
        let mapping = Mapping { start: 0x7000, end: 0x9000, offset: 0x1000, executable: true };
        assert_eq!((mapping.offset_of(0x7010), mapping.address_of(0x1010)), (Some(0x1010), Some(0x7010)));
        assert_eq!((mapping.offset_of(0x6fff), mapping.offset_of(0x9000)), (None, None));
        assert_eq!((mapping.address_of(0xfff), mapping.address_of(0x3000)), (None, None));
        assert_eq!(mapping.address_of(0x2fff), Some(0x8fff));
        let last = Mapping { offset: u64::MAX - 0xfff, ..mapping };
        assert_eq!(last.address_of(u64::MAX), Some(0x7fff));
        assert_eq!(last.offset_of(0x8000), Some(0), "it wraps, as nothing that the kernel allows does");
    }

    /// The kernel is asked what it writes for such names.
    #[test]
    fn files_of_our_own_with_strange_names() {
        let folder = tempfile::tempdir().unwrap();
        for name in [&b"a b"[..], b"line\nbreak", b"x (deleted)", b"\xffbytes", br"\012", b" 7f00-7f01 r-xp 0 08:01 1 "]
        {
            let path = folder.path().join(OsStr::from_bytes(name));
            fs::write(&path, [0; 4096]).unwrap();
            let file = File::open(&path).unwrap();
            // SAFETY: a fresh mapping that nothing else refers to.
            let address =
                unsafe { mmap(std::ptr::null_mut(), 4096, ProtFlags::READ, MapFlags::PRIVATE, &file, 0).unwrap() }
                    as u64;
            let space = AddressSpace::of(std::process::id()).unwrap();
            let mapped = space.areas().find(|area| area.mapping.contains(address)).unwrap().file.unwrap();
            assert_eq!(mapped.inode, file.metadata().unwrap().ino());
            let could_be = std::iter::once(mapped.path()).chain(mapped.other_paths()).any(|other| other == path);
            assert!(could_be, "{path:?} {mapped:?}");
        }
    }
}
