//! Probes on instructions that a process rewrites.
//!
//! Where a probe is hit, the kernel executes the instruction that the file held when the probe was placed. A program that
//! changes its own code behind the first byte of that instruction (where a call leads, the constant that is loaded) would
//! go on with what was there before. The breakpoint is then taken out of the memory of the process: the program gets its
//! own instruction, and calls there are missed from then on. Probes that were overwritten as a whole are looked for, too.
//! [`inspection`](crate::inspection) reports both.
//!
//! To change code, a program has to make it writable and mostly makes it executable again, of which the kernel tells. Where
//! a program may write to code that it executes, all probes are taken out. Who changes code without the kernel's telling is
//! noticed only by the inspection.

use std::cell::LazyCell;
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rtrace_bpf::Programs;
use rtrace_model::Timestamp;
use rtrace_symbolizer::address_space::{AddressSpace, Area};
use rtrace_symbolizer::modules::Module;

use crate::altered::{BREAKPOINT, Code, Stale};
use crate::followed::Followed;
use crate::perf::mappings::Mapping;
use crate::presence::Presence;
use crate::{privilege, target};

/// A look at a process is followed by so many times the time that it took, on average of that time.
const REST: u32 = 20;
const AT_ONCE: Duration = Duration::from_secs(1);

/// What a look at a process has found.
#[derive(Default)]
pub struct Look {
    /// Breakpoints that were taken out.
    pub taken_out: Vec<Presence>,
    /// Breakpoints have to go and cannot be taken out of its memory.
    pub is_stuck: bool,
    /// There are or were probes in what was looked at.
    pub has_ours: bool,
    /// Files with code in which the kernel takes no probes.
    unprobed: Vec<PathBuf>,
    /// Nothing could be looked at.
    pub is_gone: bool,
}

impl Look {
    /// Whether calls are known to be missed there.
    pub fn tells(&self) -> bool {
        !self.taken_out.is_empty() || !self.unprobed.is_empty()
    }
}

/// Takes the probes out of a process that are on instructions which it has changed, or may change without asking, at these
/// addresses; no process gets probes there any more.
pub fn look(programs: &Programs, pid: u32, addresses: &Range<u64>) -> Look {
    let mut look = Look { is_gone: true, ..Look::default() };
    let (Ok(code), Ok(space)) = (Code::of(pid), AddressSpace::of(pid)) else { return look };
    let memory = LazyCell::new(|| OpenOptions::new().read(true).write(true).open(format!("/proc/{pid}/mem")));
    let is_meant = |area: &Area<'_>| {
        let mapping = &area.mapping;
        mapping.executable && mapping.start < addresses.end && addresses.start < mapping.end
    };
    for area in space.areas().filter(is_meant) {
        let Some(file) = area.file else { continue };
        let (path, mappings) = (file.path(), vec![area.mapping]);
        let module = Module { pid, path, device: file.device, inode: file.inode, mappings };
        let Ok(file) = File::open(module.open_path()) else { continue };
        let Ok(metadata) = file.metadata() else { continue };
        look.is_gone = false;
        let (device, inode) = (metadata.dev(), metadata.ino());
        let offset = area.mapping.offset;
        if !programs.has_placed_within(device, inode, &(offset..offset + area.mapping.length())) {
            continue;
        }
        look.has_ours = true;
        let stale = code.stale(&area.mapping, &file, area.is_writable);
        let offsets: Vec<u64> = stale.iter().map(|stale| stale.offset).collect();
        let ours = programs.placed_among(device, inode, &offsets);
        let mut absent = Vec::new();
        for stale in stale.iter().filter(|stale| ours.contains(&stale.offset)) {
            programs.avoid(device, inode, stale.offset);
            match memory.as_ref().map(|memory| take_out(memory, stale)) {
                Ok(Ok(())) => absent.push(stale.offset),
                Ok(Err(_)) | Err(_) => look.is_stuck = !privilege::has_ended(pid),
            }
        }
        if !absent.is_empty() {
            look.taken_out.push(Presence {
                path: module.path,
                pid,
                file: (device, inode),
                mappings: vec![area.mapping],
                present: 0,
                absent,
            });
        } else if area.is_writable || area.is_shared {
            look.unprobed.push(module.path);
        }
    }
    look
}

/// Writes the first byte of the instruction back, unless the process has just done so. The kernel leaves alone what is no
/// breakpoint when it takes out the probe later.
fn take_out(memory: &File, stale: &Stale) -> io::Result<()> {
    let mut live = [0];
    memory.read_exact_at(&mut live, stale.address)?;
    if live == [BREAKPOINT] {
        memory.write_all_at(&[stale.stored], stale.address)?;
    }
    Ok(())
}

/// Looks at processes whose code may have changed.
pub struct Rewriting<'a> {
    programs: &'a Programs,
    followed: &'a Followed<'a>,
    /// What is looked at next, and when, by process.
    next: HashMap<u32, (Vec<Mapping>, Instant)>,
    /// When a process may be looked at again.
    rested: HashMap<u32, Instant>,
}

impl<'a> Rewriting<'a> {
    /// None yet.
    pub fn new(programs: &'a Programs, followed: &'a Followed<'a>) -> Rewriting<'a> {
        Rewriting { programs, followed, next: HashMap::new(), rested: HashMap::new() }
    }

    /// A process has mapped a file executable, or has changed what it may do with what it maps.
    pub fn hear(&mut self, mapping: &Mapping) {
        let pid = mapping.pid;
        let has_file = mapping.file.1 != 0;
        if !has_file || !self.programs.has_placed_in(pid) {
            return;
        }
        let now = Instant::now();
        let due = self.rested.get(&pid).map_or(now, |&rested| rested.max(now));
        self.next.entry(pid).or_insert((Vec::new(), due)).0.push(mapping.clone());
    }

    /// Looks at what is due. Returns the files with code in which there are no probes, or which processes were about to
    /// change that have ended before anybody could look at them, and since when; and how long nothing more is due.
    pub fn go_on(&mut self) -> (Vec<(PathBuf, Timestamp)>, Option<Duration>) {
        let begin = Instant::now();
        self.rested.retain(|_, rested| *rested + AT_ONCE > begin);
        let due: Vec<_> = self.next.extract_if(|_, (_, due)| *due <= begin).collect();
        let mut unknown = Vec::new();
        for (pid, (mappings, _)) in due {
            let begin = Instant::now();
            let start = mappings.iter().map(|mapping| mapping.addresses.start).min().unwrap_or_default();
            let end = mappings.iter().map(|mapping| mapping.addresses.end).max().unwrap_or_default();
            let mut look = self.followed.look(pid, &(start..end));
            let since = mappings.iter().map(|mapping| mapping.time).min().unwrap_or_default();
            unknown.extend(look.unprobed.drain(..).map(|path| (path, since)));
            if look.is_gone {
                let had_none = mappings.into_iter().filter(|mapping| self.takes_no_probes(mapping));
                unknown.extend(had_none.map(|mapping| (mapping.path, mapping.time)));
            }
            let rested = self.rested.get(&pid).copied().into_iter().chain(begin.checked_sub(AT_ONCE)).max();
            self.rested.insert(pid, rested.unwrap_or(begin) + begin.elapsed() * REST);
        }
        let now = Instant::now();
        (unknown, self.next.values().map(|(_, due)| due.saturating_duration_since(now)).min())
    }

    /// Whether a process cannot have probes there, though it should.
    fn takes_no_probes(&self, mapping: &Mapping) -> bool {
        let offsets = mapping.offset..mapping.offset + (mapping.addresses.end - mapping.addresses.start);
        // Some file systems have other numbers here than in `stat`.
        let ids = [Some(mapping.file), target::identity(&mapping.path).ok()];
        let mut ids = ids.into_iter().flatten();
        mapping.takes_no_probes && ids.any(|(device, inode)| self.programs.has_placed_within(device, inode, &offsets))
    }
}
