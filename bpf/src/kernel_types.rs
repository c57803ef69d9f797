//! The types of the running kernel that our programs name, as BTF of their own.
//!
//! libbpf looks for each type among all types of the kernel, which takes a millisecond of CPU time each. Here they are
//! found in one pass, and libbpf is given them and what they consist of. The layout of BTF is that of
//! `Documentation/bpf/btf.rst` of Linux.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::path::PathBuf;

use libbpf_rs::libbpf_sys::{BPF_PROG_TYPE_TRACING, BPF_TRACE_FENTRY, bpf_prog_load, bpf_prog_load_opts};

/// Where the kernel describes its types.
const KERNEL: &str = "/sys/kernel/btf/vmlinux";

/// The types that our programs name.
const NAMED: &str = include_str!("../kernel/hooks/kernel.h");

const MAGIC: u16 = 0xeb9f;
const HEADER: usize = 24;
/// Bytes of a type without its members: name, kind and number of members, size or type.
const FIXED: usize = 12;

/// Kinds of types.
mod kind {
    pub const INT: u32 = 1;
    pub const PTR: u32 = 2;
    pub const ARRAY: u32 = 3;
    pub const STRUCT: u32 = 4;
    pub const UNION: u32 = 5;
    pub const ENUM: u32 = 6;
    pub const TYPEDEF: u32 = 8;
    pub const VOLATILE: u32 = 9;
    pub const CONST: u32 = 10;
    pub const RESTRICT: u32 = 11;
    pub const FUNC: u32 = 12;
    pub const FUNC_PROTO: u32 = 13;
    pub const VAR: u32 = 14;
    pub const DATASEC: u32 = 15;
    pub const DECL_TAG: u32 = 17;
    pub const TYPE_TAG: u32 = 18;
    pub const ENUM64: u32 = 19;
}

/// A file with the types, in memory; none where the kernel describes its types otherwise than we know, so that libbpf
/// has to look itself.
pub fn of_this_kernel() -> Option<KernelTypes> {
    let all = fs::read(KERNEL).ok()?;
    let btf = Btf::parse(&all)?;
    let has = |tracepoint| btf.find(kind::TYPEDEF, tracepoint).is_some();
    Some(KernelTypes {
        file: in_memory(&reduced(&all, &named(NAMED))?).ok()?,
        sees_exec_coming: has(EXEC_IS_COMING),
        sees_registers: has(REGISTERS),
        sees_writers: writers(&btf),
    })
}

/// The tracepoint in front of an exec's point of no return.
const EXEC_IS_COMING: &[u8] = b"btf_trace_sched_prepare_exec";

/// The tracepoint behind the loading of a thread's vector registers.
const REGISTERS: &[u8] = b"btf_trace_x86_fpu_regs_activated";

/// The tracepoint in front of the lock of a process's memory.
const LOCKS: &[u8] = b"btf_trace_mmap_lock_start_locking";
/// What it gives its programs: what it was attached with, the memory, and whether it is to be written.
const ARGUMENTS_OF_LOCKS: u32 = 3;

/// The system calls that make memory writable.
const WRITERS: [&[u8]; 2] = [b"__x64_sys_mprotect", b"__x64_sys_pkey_mprotect"];

/// Where programs can run before a process makes its code writable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeesWriters {
    /// Where that is all that a thread does.
    Calls,
    /// Where any thread locks its memory.
    Locks,
    Not,
}

/// Those who make nothing writable pay nothing for system calls. Before Linux 6.14, the tracepoint makes every lock of
/// memory on the machine look up the name of a cgroup, under a lock of all CPUs: then it is not taken.
fn writers(btf: &Btf<'_>) -> SeesWriters {
    if WRITERS.iter().all(|call| btf.find(kind::FUNC, call).is_some_and(may_run_at)) {
        return SeesWriters::Calls;
    }
    let arguments = || {
        let pointer = btf.target(btf.find(kind::TYPEDEF, LOCKS)?)?;
        Some(btf.word(btf.starts.get(btf.target(pointer)? as usize - 1)? + 4)? & 0xffff)
    };
    if arguments() == Some(ARGUMENTS_OF_LOCKS) { SeesWriters::Locks } else { SeesWriters::Not }
}

/// Whether a program may run where this function of the kernel begins. Some machines refuse that.
fn may_run_at(function: u32) -> bool {
    // r0 = 0; exit
    let code = [0xb7_u64, 0x95];
    let mut options = bpf_prog_load_opts {
        sz: size_of::<bpf_prog_load_opts>() as u64,
        expected_attach_type: BPF_TRACE_FENTRY,
        attach_btf_id: function,
        ..Default::default()
    };
    // SAFETY: the names are strings, the two instructions are as many as is said, and the options have their size.
    let fd = unsafe {
        bpf_prog_load(
            BPF_PROG_TYPE_TRACING,
            c"rt_try".as_ptr(),
            c"GPL".as_ptr(),
            code.as_ptr().cast(),
            2,
            &raw mut options,
        )
    };
    if fd >= 0 {
        // SAFETY: the kernel has just made it, for us alone.
        drop(unsafe { OwnedFd::from_raw_fd(fd) });
    }
    fd >= 0
}

/// BTF that libbpf can read as long as this is there.
pub struct KernelTypes {
    file: File,
    /// Whether this kernel lets programs run in front of an exec's point of no return.
    pub sees_exec_coming: bool,
    /// Whether this kernel lets programs run where it loads the vector registers of a thread.
    pub sees_registers: bool,
    pub sees_writers: SeesWriters,
}

impl KernelTypes {
    /// A path that leads there.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
    }
}

/// A file with this content, in memory.
fn in_memory(content: &[u8]) -> io::Result<File> {
    // SAFETY: the name is a string, and the flags are valid.
    let fd = unsafe { libc::memfd_create(c"kernel types".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made it, for us alone.
    let mut file = unsafe { File::from_raw_fd(fd) };
    file.write_all(content)?;
    Ok(file)
}

/// The structures, unions and enumerations that a header in our style declares.
fn named(header: &str) -> HashSet<&[u8]> {
    let declared = header.lines().filter_map(|line| {
        let (kind, name) = line.strip_suffix(" {")?.split_once(' ')?;
        matches!(kind, "struct" | "union" | "enum").then(|| essential(name.as_bytes()))
    });
    declared.collect()
}

/// A name without its flavour, by which several types of ours may stand for one of the kernel's.
fn essential(name: &[u8]) -> &[u8] {
    name.windows(3).position(|window| window == b"___").map_or(name, |end| &name[..end])
}

/// BTF as it was read.
struct Btf<'a> {
    types: &'a [u8],
    strings: &'a [u8],
    /// Where each type begins, by its number less one.
    starts: Vec<usize>,
}

impl<'a> Btf<'a> {
    fn parse(all: &'a [u8]) -> Option<Btf<'a>> {
        let word = |at: usize| word(all, at).map(|word| word as usize);
        if all.get(..2)? != MAGIC.to_ne_bytes() {
            return None;
        }
        let section = |offset: usize, length: usize| {
            let start = word(4)?.checked_add(word(offset)?)?;
            all.get(start..start.checked_add(word(length)?)?)
        };
        let mut btf = Btf { types: section(8, 12)?, strings: section(16, 20)?, starts: Vec::new() };
        let mut at = 0;
        while at < btf.types.len() {
            btf.starts.push(at);
            at += FIXED + btf.rest_of(at)?;
        }
        Some(btf)
    }

    fn word(&self, at: usize) -> Option<u32> {
        word(self.types, at)
    }

    fn kind(&self, at: usize) -> Option<u32> {
        Some(self.word(at + 4)? >> 24 & 0x1f)
    }

    /// Bytes that follow the fixed part of the type; none of a kind that is not known.
    fn rest_of(&self, at: usize) -> Option<usize> {
        let members = (self.word(at + 4)? & 0xffff) as usize;
        Some(match self.kind(at)? {
            kind::INT | kind::VAR | kind::DECL_TAG => 4,
            kind::ARRAY => 12,
            kind::STRUCT | kind::UNION | kind::DATASEC | kind::ENUM64 => members * 12,
            kind::ENUM | kind::FUNC_PROTO => members * 8,
            1..=kind::ENUM64 => 0,
            _ => return None,
        })
    }

    /// The number of the type of this kind and name.
    fn find(&self, kind: u32, name: &[u8]) -> Option<u32> {
        let has_name = |at: usize| {
            let rest = self.word(at).and_then(|offset| self.strings.get(offset as usize..));
            rest.and_then(|rest| rest.strip_prefix(name)).is_some_and(|rest| rest.first() == Some(&0))
        };
        (1..).zip(&self.starts).find(|&(_, &at)| self.kind(at) == Some(kind) && has_name(at)).map(|(number, _)| number)
    }

    /// The number of the type to which one of a kind with a single target leads.
    fn target(&self, number: u32) -> Option<u32> {
        self.word(self.starts.get((number as usize).checked_sub(1)?)? + 8).filter(|&target| target > 0)
    }

    fn string(&self, offset: u32) -> Option<&'a [u8]> {
        let rest = self.strings.get(offset as usize..)?;
        rest.split(|&byte| byte == 0).next()
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_ne_bytes(word.try_into().ok()?))
}

/// BTF that is written.
struct Reduced<'a> {
    from: Btf<'a>,
    /// The number of each type here, by its number there.
    numbers: HashMap<u32, u32>,
    /// Types that have a number and are not written yet.
    waiting: Vec<u32>,
    types: Vec<u8>,
    strings: Vec<u8>,
    places: HashMap<u32, u32>,
}

/// What of `all` has one of these names, and what that consists of. What pointers lead to is left out, as nobody asks
/// for more than whether a member is a pointer.
fn reduced(all: &[u8], names: &HashSet<&[u8]>) -> Option<Vec<u8>> {
    let from = Btf::parse(all)?;
    let is_wanted = |&at: &usize| {
        let is_kind = matches!(from.kind(at), Some(kind::STRUCT | kind::UNION | kind::ENUM | kind::ENUM64));
        let name = from.word(at).filter(|_| is_kind).and_then(|name| from.string(name));
        name.is_some_and(|name| names.contains(essential(name)))
    };
    let wanted: Vec<u32> = (1..).zip(&from.starts).filter(|(_, at)| is_wanted(at)).map(|(number, _)| number).collect();
    let (numbers, places) = (HashMap::new(), HashMap::from([(0, 0)]));
    let mut reduced = Reduced { from, numbers, waiting: Vec::new(), types: Vec::new(), strings: vec![0], places };
    for number in wanted {
        reduced.number(number);
    }
    // What is met on the way is numbered behind what waits, so types are written in the order of their numbers.
    let mut next = 0;
    while let Some(&number) = reduced.waiting.get(next) {
        reduced.write(number)?;
        next += 1;
    }
    Some(reduced.finish())
}

impl Reduced<'_> {
    /// The number here of a type.
    fn number(&mut self, there: u32) -> u32 {
        if there == 0 {
            return 0;
        }
        *self.numbers.entry(there).or_insert_with(|| {
            self.waiting.push(there);
            self.waiting.len() as u32
        })
    }

    /// Where a string stands here.
    fn string(&mut self, there: u32) -> Option<u32> {
        if let Some(&place) = self.places.get(&there) {
            return Some(place);
        }
        let place = self.strings.len() as u32;
        self.strings.extend(self.from.string(there)?);
        self.strings.push(0);
        self.places.insert(there, place);
        Some(place)
    }

    fn put(&mut self, word: u32) {
        self.types.extend(word.to_ne_bytes());
    }

    fn write(&mut self, there: u32) -> Option<()> {
        let at = *self.from.starts.get(there as usize - 1)?;
        let kind = self.from.kind(at)?;
        let name = self.string(self.from.word(at)?)?;
        self.put(name);
        self.put(self.from.word(at + 4)?);
        let last = self.from.word(at + 8)?;
        let last = match kind {
            kind::PTR => 0,
            kind::TYPEDEF | kind::VOLATILE | kind::CONST | kind::RESTRICT | kind::TYPE_TAG => self.number(last),
            _ => last,
        };
        self.put(last);
        // In each group of words: which is a name, and which a type.
        let (group, name, types): (usize, Option<usize>, &[usize]) = match kind {
            kind::ARRAY => (3, None, &[0, 1]),
            kind::STRUCT | kind::UNION => (3, Some(0), &[1]),
            kind::ENUM => (2, Some(0), &[]),
            kind::ENUM64 => (3, Some(0), &[]),
            _ => (1, None, &[]),
        };
        for place in 0..self.from.rest_of(at)? / 4 {
            let word = self.from.word(at + FIXED + place * 4)?;
            let word = match place % group {
                of if name == Some(of) => self.string(word)?,
                of if types.contains(&of) => self.number(word),
                _ => word,
            };
            self.put(word);
        }
        Some(())
    }

    fn finish(self) -> Vec<u8> {
        let Reduced { types, strings, .. } = self;
        let mut all = Vec::with_capacity(HEADER + types.len() + strings.len());
        all.extend(MAGIC.to_ne_bytes());
        all.extend([1, 0]); // version, flags
        let words = [HEADER, 0, types.len(), types.len(), strings.len()];
        all.extend(words.iter().flat_map(|&word| (word as u32).to_ne_bytes()));
        all.extend(types);
        all.extend(strings);
        all
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use libbpf_rs::btf::types::Struct;
    use libbpf_rs::btf::{Btf as Known, BtfType};

    use super::*;

    /// The kernel's own types, as libbpf reads them.
    fn member(btf: &Known<'_>, of: &str, name: &str) -> Option<String> {
        let of: Struct<'_> = btf.type_by_name(of)?;
        of.iter()
            .find(|member| member.name.is_some_and(|known| known == name))
            .map(|member| format!("{:?}", member.attr))
    }

    #[test]
    fn types_are_as_the_kernel_describes_them_and_few() {
        let all = Known::from_vmlinux().unwrap();
        let file = of_this_kernel().unwrap();
        let few = Known::from_path(file.path()).unwrap();
        for (of, name) in [("task_struct", "mm"), ("task_struct", "thread"), ("file", "f_inode"), ("cred", "euid")] {
            let known = member(&all, of, name);
            assert!(known.is_some(), "{of}.{name}");
            assert_eq!(member(&few, of, name), known, "{of}.{name}");
        }
        assert!(few.len() * 20 < all.len(), "{} of {} types", few.len(), all.len());
        assert!(few.type_by_name::<BtfType<'_>>("sk_buff").is_none());
    }

    #[test]
    fn what_is_cut_off_or_not_known_is_left_to_libbpf() {
        let all = fs::read(KERNEL).unwrap();
        let names = named(NAMED);
        assert!(names.contains(&b"task_struct"[..]) && names.contains(&b"mm_struct"[..]), "{names:?}");
        for length in [0, 1, HEADER, all.len() / 3, all.len() - 1] {
            assert!(reduced(&all[..length], &names).is_none(), "{length}");
        }
        let mut unknown = all;
        // The kind of the first type.
        unknown[HEADER + 7] = 0x1f;
        assert!(reduced(&unknown, &names).is_none());
    }
}
