//! Reads the code of a file, and finds the calls in it.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::sync::OnceLock;

use foldhash::{HashMap, HashMapExt as _};
use rtrace_code::arrival::Keeps;
use rtrace_code::calls::{Callee, Confirmed, LONGEST_WRAPPER, callee, candidates, confirmed, passes_on, stubs};
use rtrace_code::text::{Addresses, Text};
use rtrace_symbolizer::open_regular;

use super::{CallerFile, CodeFile, Return, add_keeps};

/// Code that is read and scanned at once, in bytes; functions are not divided.
const PIECE: u64 = 256 << 10;

/// What is called in a file, and where it may be called.
pub struct Callees<'a> {
    caller: &'a CodeFile,
    file: File,
    /// Traced functions, and stubs that lead to such.
    targets: Meant,
    /// Slots that lead to such.
    slots: Meant,
    /// Virtual addresses of functions and of their parts.
    ranges: Vec<Range<u64>>,
    /// All of its code and constants, once tables are asked for.
    text: OnceLock<Option<Text<'a>>>,
}

/// Virtual addresses that lead to traced functions, with what is read of those calls at a return.
struct Meant {
    addresses: Addresses,
    keeps: HashMap<u64, Keeps>,
}

impl Meant {
    fn new(keeps: HashMap<u64, Keeps>) -> Meant {
        Meant { addresses: Addresses::new(keeps.keys().copied().collect()), keeps }
    }
}

/// Some functions of a file.
pub struct FunctionPiece {
    /// Index of the file.
    pub file: usize,
    /// Indexes of their ranges.
    ranges: Range<usize>,
    /// The virtual addresses that they take up.
    code: Range<u64>,
}

impl<'a> Callees<'a> {
    /// None where nothing that is traced is called directly, and where the file cannot be read.
    pub fn of(caller: &'a CodeFile, slots: &HashMap<u64, Keeps>) -> Option<Callees<'a>> {
        if caller.entries.is_empty() && slots.is_empty() {
            return None;
        }
        let file = open_regular(&caller.path).ok()?;
        let metadata = file.metadata().ok()?;
        if (metadata.dev(), metadata.ino()) != caller.id {
            return None;
        }
        let (targets, slots) = (Meant::new(HashMap::new()), Meant::new(slots.clone()));
        let mut callees = Callees { caller, file, targets, slots, ranges: Vec::new(), text: OnceLock::new() };
        let mut targets = caller.entries.clone();
        if !callees.slots.keeps.is_empty() {
            callees.stubs().into_iter().for_each(|(stub, slot)| {
                add_keeps(&mut targets, stub, callees.slots.keeps[&slot]);
            });
        }
        callees.targets = Meant::new(targets);
        callees.ranges = caller.image.code_ranges();
        callees.add_wrappers();
        Some(callees)
    }

    /// Who calls a function that passes on to a target gets the return of that.
    fn add_wrappers(&mut self) {
        let is_target = |target| self.targets.addresses.contains(target);
        let mut targets = self.targets.keeps.clone();
        for FunctionPiece { ranges, code, .. } in self.pieces(0) {
            let bytes = self.read(code.clone());
            let short = self.ranges[ranges].iter().filter(|range| range.end - range.start <= LONGEST_WRAPPER);
            for range in short {
                let within = (range.start - code.start) as usize..(range.end - code.start) as usize;
                let target = bytes.get(within).and_then(|code| passes_on(code, range.start, is_target));
                if let Some(target) = target {
                    add_keeps(&mut targets, range.start, self.targets.keeps[&target]);
                }
            }
        }
        self.targets = Meant::new(targets);
    }

    /// The file without its calls.
    pub fn file(&self) -> CallerFile {
        let CodeFile { id: (device, inode), path, image, .. } = self.caller;
        CallerFile { device: *device, inode: *inode, path: path.clone(), stamp: image.stamp(), returns: Vec::new() }
    }

    /// All functions, divided; `index` is that of the file.
    pub fn pieces(&self, index: usize) -> Vec<FunctionPiece> {
        let mut pieces: Vec<FunctionPiece> = Vec::new();
        for segment in self.caller.image.executable_ranges() {
            let first = self.ranges.partition_point(|range| range.start < segment.start);
            let end = self.ranges.partition_point(|range| range.start < segment.end);
            let mut open: Option<FunctionPiece> = None;
            for (number, range) in self.ranges.iter().enumerate().take(end).skip(first) {
                let (ranges, code) = (number..number, range.start..range.start);
                let piece = open.get_or_insert(FunctionPiece { file: index, ranges, code });
                piece.ranges.end = number + 1;
                piece.code.end = range.end.min(segment.end);
                if piece.code.end - piece.code.start >= PIECE {
                    pieces.extend(open.take());
                }
            }
            pieces.extend(open);
        }
        pieces
    }

    /// Where the calls in a piece return to.
    pub fn returns(&self, piece: &FunctionPiece) -> Vec<Return> {
        let start = piece.code.start;
        let Some(place) = self.caller.image.file_offset(start) else { return Vec::new() };
        let bytes = self.read(piece.code.clone());
        let is_target = |target| self.targets.addresses.contains(target);
        let candidates = candidates(&bytes, start, is_target, |slot| self.slots.addresses.contains(slot));
        let confirmed =
            confirmed(&bytes, start, &self.ranges[piece.ranges.clone()], &candidates, |range| self.tables(range));
        let keeps = |address| match callee(&bytes, start, address)? {
            Callee::Direct(target) => self.targets.keeps.get(&target).copied(),
            Callee::Slot(slot) => self.slots.keeps.get(&slot).copied(),
        };
        let call = |Confirmed { behind, joined }| Return {
            offset: place + (behind - start),
            keeps: keeps(behind).unwrap_or(Keeps::READABLE),
            is_direct: true,
            joined,
        };
        confirmed.into_iter().map(call).collect()
    }

    /// Where jumps by tables lead in a function.
    fn tables(&self, range: &Range<u64>) -> Vec<u64> {
        let whole = || self.caller.whole().map(|image| Text::new(image, Vec::new()));
        self.text.get_or_init(whole).as_ref().map_or_else(Vec::new, |text| text.tables(range))
    }

    /// Virtual addresses of the stubs that jump through one of the slots, each with the slot.
    fn stubs(&self) -> Vec<(u64, u64)> {
        let slots = &self.slots.addresses;
        let tables = self.caller.image.stub_tables();
        tables.into_iter().flat_map(|table| stubs(&self.read(table.clone()), table.start, slots)).collect()
    }

    /// The bytes at these virtual addresses, as far as one segment of the file holds them.
    fn read(&self, range: Range<u64>) -> Vec<u8> {
        let image = &self.caller.image;
        let executable = image.executable_ranges().into_iter().find(|segment| segment.contains(&range.start));
        let Some((segment, place)) = executable.zip(image.file_offset(range.start)) else { return Vec::new() };
        let mut bytes = vec![0; (range.end.min(segment.end) - range.start) as usize];
        let mut read = 0;
        while read < bytes.len() {
            match self.file.read_at(&mut bytes[read..], place + read as u64) {
                Ok(0) | Err(_) => break,
                Ok(more) => read += more,
            }
        }
        bytes.truncate(read);
        bytes
    }
}
