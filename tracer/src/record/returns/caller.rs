//! The code of callers around return addresses.

use std::collections::hash_map::Entry;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use foldhash::{HashMap, HashMapExt as _};
use rtrace_bpf::Back;
use rtrace_code::arrival::{self, Arrival, Keeps, ReturnProbe};
use rtrace_code::calls::{self, Callee};
use rtrace_code::catching::Catching;
use rtrace_code::instruction::Emulation;
use rtrace_code::parallel;
use rtrace_code::verbatim::Verbatim;
use rtrace_symbolizer::parts::{self, FileParts};
use rtrace_symbolizer::{Image, Stamp};

use super::FileId;
use crate::target::files::Pinned;

/// Bytes that are read in front of a return address, and from there on.
const BEFORE: u64 = 16;
const BEHIND: u64 = 128;
/// Return addresses whose code is read at once, and bytes between two of them at most.
const TOGETHER: usize = 256;
const NEAR: u64 = 64 << 10;

/// Code in front of a call and behind it, in bytes, in which further calls are looked for.
const FAR: u64 = 256 << 10;
/// Time to look into the files of a process.
const TIME_TO_LOOK: Duration = Duration::from_millis(100);
/// Calls that are found at once.
const MOST_FOUND: usize = 4096;

/// A file with callers.
struct Caller {
    file: Pinned,
    /// What its tables say; none where it cannot be told.
    known: OnceLock<Option<Known>>,
}

/// What is known of the code of a file.
struct Known {
    /// Which functions may get control back without a return.
    catching: Catching,
    /// Where probes may be, by offset.
    verbatim: Verbatim,
}

/// A part of a file.
struct Part {
    start: u64,
    bytes: Vec<u8>,
}

impl Part {
    /// What is there in front of an offset of the file, and from there on.
    fn at(&self, offset: u64) -> Option<(&[u8], &[u8])> {
        let (before, behind) = self.bytes.split_at_checked(usize::try_from(offset.checked_sub(self.start)?).ok()?)?;
        let (before, behind) =
            (&before[before.len().saturating_sub(BEFORE as usize)..], behind.get(..BEHIND as usize).unwrap_or(behind));
        (!behind.is_empty()).then_some((before, behind))
    }
}

/// Further calls of one callee.
struct Found {
    /// Where they return to.
    returns: Vec<u64>,
    /// Where all of them are found.
    within: Range<u64>,
}

/// Files with callers.
pub(crate) struct Callers {
    emulation: Emulation,
    keeps: Keeps,
    /// None for one that cannot be opened.
    files: HashMap<FileId, Option<Caller>>,
    /// Where code is not the file's any more in a process.
    altered: HashMap<FileId, FileParts>,
    found: HashMap<(FileId, Callee), Found>,
}

impl Callers {
    /// None yet. `emulation`: what the kernel does without a single step; `keeps`: what must be as it was at a return of
    /// which nothing is known.
    pub fn new(emulation: Emulation, keeps: Keeps) -> Callers {
        Callers { emulation, keeps, files: HashMap::new(), altered: HashMap::new(), found: HashMap::new() }
    }

    /// Makes a file known, which can be reached by this path now; `looked_at`: what it held when calls were found in
    /// it, if they were. If the process has ended by which it was to be reached, another one may lead there later.
    pub fn add(&mut self, id: FileId, path: &Path, looked_at: Option<Stamp>) {
        let Entry::Vacant(unknown) = self.files.entry(id) else { return };
        match Pinned::open(path, looked_at) {
            Ok(file) => _ = unknown.insert(Some(Caller { file, known: OnceLock::new() })),
            Err(_) if looked_at.is_none() => {}
            Err(_) => _ = unknown.insert(None),
        }
    }

    /// No site is placed near these parts of files.
    pub fn avoid(&mut self, altered: HashMap<FileId, FileParts>) {
        self.altered = altered;
    }

    /// A path by which the file can be reached as long as rtrace runs, whatever becomes of its name; none where it
    /// has changed since it became known, and no probe may be placed.
    pub fn path(&self, id: FileId) -> Option<PathBuf> {
        let file = &self.files.get(&id)?.as_ref()?.file;
        file.is_unchanged().then(|| file.path())
    }

    /// Where calls that return to this offset of a file are seen to have returned; `keeps`: what is read of them then,
    /// where that is known.
    pub fn arrival(&self, id: FileId, offset: u64, keeps: Option<Keeps>) -> Arrival {
        self.part(id, offset, offset).map_or(Arrival::Impossible, |part| self.arrival_in(id, &part, offset, keeps))
    }

    /// The same for each of these offsets, which are sorted.
    pub fn arrivals(&self, id: FileId, offsets: &[u64], keeps: impl Fn(u64) -> Option<Keeps> + Sync) -> Vec<Arrival> {
        let near = offsets.chunk_by(|one, next| next - one <= NEAR);
        let chunks: Vec<&[u64]> = near.flat_map(|near| near.chunks(TOGETHER)).collect();
        let of_chunk = |&chunk: &&[u64]| -> Vec<Arrival> {
            let part = self.part(id, chunk[0], chunk[chunk.len() - 1]);
            let arrival = |part| chunk.iter().map(|&offset| self.arrival_in(id, part, offset, keeps(offset))).collect();
            part.as_ref().map_or_else(|| vec![Arrival::Impossible; chunk.len()], arrival)
        };
        parallel::map(&chunks, of_chunk).into_iter().flatten().collect()
    }

    fn arrival_in(&self, id: FileId, part: &Part, offset: u64, keeps: Option<Keeps>) -> Arrival {
        let Some(code) = self.code(id, part, offset) else { return Arrival::Impossible };
        let at_once = || arrival::at_return_address(code, &self.emulation).map_or(Arrival::Impossible, Arrival::Site);
        let arrival = |keeps| match arrival::arrival(code, &self.emulation, keeps) {
            Arrival::Skip { .. } if self.catches(id, offset) => at_once(),
            // What jumps into the function may come to a site further down.
            Arrival::Site(site) if site.distance > 0 && self.lands(id, offset) => at_once(),
            arrival => arrival,
        };
        let readable = keeps.unwrap_or(Keeps::READABLE).and(self.keeps);
        let seen = match arrival(Keeps { accesses: self.keeps.accesses, ..readable }) {
            // A call from there may end in another one, of which more is read.
            Arrival::Skip { .. } => arrival(self.keeps),
            arrival => arrival,
        };
        if seen != Arrival::Impossible {
            return seen;
        }
        // A call has a time rather than values: a site knows which of them it comes too late for.
        match arrival(Keeps { accesses: self.keeps.accesses, ..Keeps::default() }) {
            late @ Arrival::Site(_) => late,
            _ => seen,
        }
    }

    /// Whether the function at this offset of a file may get control back without a return.
    fn catches(&self, id: FileId, offset: u64) -> bool {
        self.catching(id).is_none_or(|catching| catching.contains(offset, |range| self.read(id, range)))
    }

    /// Whether control may come into the middle of the function at this offset of a file by a jump from anywhere.
    fn lands(&self, id: FileId, offset: u64) -> bool {
        self.catching(id).is_some_and(|catching| catching.lands(offset, |range| self.read(id, range)))
    }

    /// How the function at this return address of a file may get control back without a return.
    pub fn back(&self, id: FileId, offset: u64) -> Back {
        let joined = self.catching(id).and_then(|catching| catching.joined(offset, |range| self.read(id, range)));
        match joined {
            Some(true) => Back::Joined,
            Some(false) => Back::Lands,
            None if self.catches(id, offset) => Back::Caught,
            None => Back::Never,
        }
    }

    /// The function that makes the call that returns to this offset of a file, if it is known.
    pub fn function(&self, id: FileId, offset: u64) -> Option<Range<u64>> {
        self.catching(id)?.functions(offset, offset).into_iter().next()
    }

    /// The return addresses in the function at this offset of a file to which control may come twice.
    pub fn returns_twice(&self, id: FileId, offset: u64) -> &[u64] {
        self.catching(id).map_or(&[], |catching| catching.returns_twice(offset))
    }

    /// Where the direct call leads that returns to this offset of a file. The address counts from where the file begins.
    pub fn callee(&self, id: FileId, offset: u64) -> Option<Callee> {
        let part = self.part(id, offset, offset)?;
        calls::callee(&part.bytes, part.start, offset)
    }

    /// Where the next calls of the same callee return to, behind this return address.
    pub fn next_calls(&mut self, id: FileId, offset: u64, callee: Callee, most: usize) -> Vec<u64> {
        let is_known = |found: &&Found| found.within.contains(&offset);
        let found = match self.found.get(&(id, callee)).filter(is_known) {
            Some(found) => found,
            None => {
                let Some(found) = self.find_calls(id, offset, callee) else { return Vec::new() };
                self.found.entry((id, callee)).insert_entry(found).into_mut()
            }
        };
        let first = found.returns.partition_point(|&other| other <= offset);
        found.returns[first..].iter().copied().take(most).collect()
    }

    fn find_calls(&self, id: FileId, offset: u64, callee: Callee) -> Option<Found> {
        let end = offset.saturating_add(FAR);
        let functions = self.catching(id)?.functions(offset, end);
        let start = functions.first()?.start;
        if offset - start > FAR {
            return None;
        }
        let bytes = self.read(id, start..end)?;
        let leads_there = |other| other == callee;
        let mut returns = calls::candidates(
            &bytes,
            start,
            |target| leads_there(Callee::Direct(target)),
            |slot| leads_there(Callee::Slot(slot)),
        );
        returns.retain(|&other| other > offset);
        returns.truncate(MOST_FOUND);
        let within = offset..returns.last().copied().unwrap_or(end);
        let confirmed = calls::confirmed(&bytes, start, &functions, &returns, |_| Vec::new());
        Some(Found { returns: confirmed.into_iter().map(|call| call.behind).collect(), within })
    }

    fn catching(&self, id: FileId) -> Option<&Catching> {
        Some(&self.known(id)?.catching)
    }

    fn known(&self, id: FileId) -> Option<&Known> {
        let Caller { file, known } = self.files.get(&id)?.as_ref()?;
        let look = || {
            let image = Image::open(&file.path()).ok()?;
            Some(Known { catching: Catching::of(&image), verbatim: Verbatim::of(&image).by_offset(&image) })
        };
        known.get_or_init(look).as_ref()
    }

    /// Finds out what the tables of these files say, which takes long the first time: the process that maps them is held, and
    /// later its threads would wait. Those that are left when the time is over are looked into when somebody is met there.
    pub fn look_into(&mut self, files: impl IntoIterator<Item = (FileId, PathBuf)>) {
        let until = Instant::now() + TIME_TO_LOOK;
        let mut ids = Vec::new();
        for (id, path) in files {
            self.add(id, &path, None);
            ids.push(id);
        }
        let look = |&id: &FileId| {
            if Instant::now() < until {
                self.known(id);
            }
        };
        parallel::map(&ids, look);
    }

    /// The site at the return address itself.
    pub fn at_return_address(&self, id: FileId, offset: u64) -> Option<ReturnProbe> {
        arrival::at_return_address(self.code(id, &self.part(id, offset, offset)?, offset)?, &self.emulation)
    }

    /// The code of the function from an offset of a file on, if an instruction certainly begins there: behind a call,
    /// or where a function begins, or is entered by a return. A probe anywhere else would change what the program does,
    /// and one in the next function would be hit by that function's calls.
    fn code<'p>(&self, id: FileId, part: &'p Part, offset: u64) -> Option<&'p [u8]> {
        let (before, code) = part.at(offset)?;
        let known = self.known(id);
        let relocated = known.map_or(&[][..], |known| known.verbatim.relocated());
        let near = offset.saturating_sub(BEFORE)..offset + BEHIND;
        if self.altered.get(&id).is_some_and(|altered| parts::overlaps_beside(altered, &near, relocated)) {
            return None;
        }
        let verbatim = known.map_or(u64::MAX, |known| known.verbatim.end(offset));
        let begins = arrival::is_return_address(before) || known.is_some_and(|known| known.catching.begins(offset));
        if !begins || verbatim == offset {
            return None;
        }
        let end = known.and_then(|known| known.catching.end(offset)).map_or(verbatim, |end| end.min(verbatim));
        Some(usize::try_from(end - offset).ok().and_then(|length| code.get(..length)).unwrap_or(code))
    }

    /// The part of a file with the code around the return addresses from the first to the last.
    fn part(&self, id: FileId, first: u64, last: u64) -> Option<Part> {
        let start = first.saturating_sub(BEFORE);
        Some(Part { start, bytes: self.read(id, start..last.saturating_add(BEHIND))? })
    }

    /// These bytes of a file, as far as there are so many.
    fn read(&self, id: FileId, range: Range<u64>) -> Option<Vec<u8>> {
        let file = self.files.get(&id)?.as_ref()?.file.file();
        let mut bytes = vec![0; usize::try_from(range.end - range.start).ok()?];
        let length = file.read_at(&mut bytes, range.start).ok()?;
        bytes.truncate(length);
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use rtrace_code::testing::compile_to;

    use super::*;

    #[test]
    fn a_file_that_one_process_took_along_is_reached_by_another() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "content").unwrap();
        let (mut callers, id) = (Callers::new(Emulation::default(), Keeps::default()), (0, 0));
        callers.add(id, &folder.path().join("ended"), None);
        assert_eq!(callers.path(id), None);
        callers.add(id, &path, None);
        assert!(callers.path(id).is_some());
    }

    #[test]
    fn further_calls_of_one_callee_are_found() {
        const SOURCE: &str =
            "int same(int), other(int); int one(int n) { return same(n) + 1 + same(n + 2) + other(n); }
            int two(int n) { return other(n) + same(n); }";
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("library");
        if !compile_to(&path, "c", SOURCE, &["-shared", "-fPIC", "-O1", "-fno-optimize-sibling-calls"]) {
            return;
        }
        let image = Image::open(&path).unwrap();
        let (mut callers, id) = (Callers::new(Emulation::default(), Keeps::default()), (0, 0));
        callers.add(id, &path, image.stamp());
        let one = image.definitions().find(|definition| definition.name == "one").unwrap().address;
        let code = image.code(one, 16).unwrap();
        let first = (1..=16).map(|length| image.file_offset(one).unwrap() + length);
        let first = first.filter(|&offset| callers.callee(id, offset).is_some()).min().unwrap();
        let callee = callers.callee(id, first).unwrap();
        let next = callers.next_calls(id, first, callee, 9);
        assert_eq!(next.len(), 2, "{next:x?} in {code:x?}");
        assert!(next.iter().all(|&next| next > first && callers.callee(id, next) == Some(callee)), "{next:x?}");
        assert_eq!(callers.next_calls(id, next[0], callee, 9), next[1..]);
        assert_eq!(callers.next_calls(id, first, callee, 1), next[..1]);
    }

    #[test]
    fn a_call_has_a_time_where_what_it_left_in_memory_cannot_be_read() {
        // The kernel takes no probe on an instruction that locks memory.
        const SOURCE: &str =
            "static long n; void fill(int *); int one(int *at) { fill(at); __sync_fetch_and_add(&n, 1); return *at; }";
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("library");
        if !compile_to(&path, "c", SOURCE, &["-shared", "-fPIC", "-O1"]) {
            return;
        }
        let image = Image::open(&path).unwrap();
        let (mut callers, id) = (Callers::new(Emulation::default(), Keeps::READABLE), (0, 0));
        callers.add(id, &path, image.stamp());
        let one = image.definitions().find(|definition| definition.name == "one").unwrap().address;
        let entry = image.file_offset(one).unwrap();
        let behind = (entry..entry + 64).find(|&offset| callers.callee(id, offset).is_some()).unwrap();
        let arrival = callers.arrival(id, behind, None);
        assert!(matches!(arrival, Arrival::Site(site) if site.is_stored), "{arrival:?}");
    }

    #[test]
    fn behind_a_call_that_ends_a_function_there_is_no_site() {
        const SOURCE: &str = "void stop(void) __attribute__((noreturn)); int next(int *n) { return *n += 2; }
            int ends(int n) { if (n) return 1; stop(); }";
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("library");
        if !compile_to(&path, "c", SOURCE, &["-shared", "-fPIC", "-fno-toplevel-reorder", "-falign-functions=1"]) {
            return;
        }
        let image = Image::open(&path).unwrap();
        let entry = image.definitions().find(|definition| definition.name == "ends").unwrap().address;
        let frame = image.frame_ranges().into_iter().find(|frame| frame.start <= entry && entry < frame.end).unwrap();
        let (mut callers, id) = (Callers::new(Emulation::default(), Keeps::default()), (0, 0));
        callers.add(id, &path, image.stamp());
        let behind = image.file_offset(frame.end - 1).unwrap() + 1;
        assert_eq!(callers.arrival(id, behind, None), Arrival::Never);
        assert_eq!(callers.at_return_address(id, behind), None);
    }
}
