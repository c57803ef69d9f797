//! Functions that may get control back from a call without its return.
//!
//! A caller that only returns from a call is skipped: the call ends where that one returns to. That would be
//! too late where an exception or a `longjmp` ends the call and the caller goes on.

use foldhash::HashSet;
use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, OpKind};
use rtrace_symbolizer::Image;

/// Functions that return twice.
const RETURN_TWICE: [&str; 8] =
    ["setjmp", "_setjmp", "__setjmp", "sigsetjmp", "__sigsetjmp", "getcontext", "vfork", "__vfork"];

/// The functions of a file that may.
pub struct Catching {
    /// Ranges of code by file offset, sorted.
    ranges: Vec<Function>,
}

/// A function by file offsets.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Function {
    start: u64,
    end: u64,
    catches: bool,
    /// Where what it calls returns to twice.
    twice: Vec<u64>,
}

impl Catching {
    /// Those that have a table for exceptions, or call what returns twice.
    pub fn of(image: &Image) -> Catching {
        let slots = image.slots();
        let twice = slots.iter().filter(|slot| RETURN_TWICE.contains(&slot.name)).map(|slot| slot.address);
        let twice: HashSet<u64> = twice.collect();
        let ranges = image.frame_ranges().into_iter().filter_map(|frame| {
            let start = image.file_offset(frame.start)?;
            let returns = if twice.is_empty() { Vec::new() } else { calls(image, frame.start, frame.end, &twice) };
            let twice: Vec<u64> = returns.iter().map(|address| start + (address - frame.start)).collect();
            let catches = frame.has_lsda || !twice.is_empty();
            Some(Function { start, end: start + (frame.end - frame.start), catches, twice })
        });
        let mut ranges: Vec<Function> = ranges.collect();
        ranges.sort_unstable();
        Catching { ranges }
    }

    fn function(&self, offset: u64) -> Option<&Function> {
        let following = self.ranges.partition_point(|function| function.start <= offset);
        self.ranges[..following].last().filter(|function| offset < function.end)
    }

    /// Whether a function begins at an offset of the file. Of one that is entered by a return, as those that
    /// signal handlers return to, the unwinder is told that it begins a byte earlier.
    pub fn begins(&self, offset: u64) -> bool {
        self.function(offset).is_some_and(|function| offset - function.start <= 1)
    }

    /// Where the function ends that has the byte in front of an offset of the file, if that is known.
    pub fn end(&self, offset: u64) -> Option<u64> {
        Some(self.function(offset.checked_sub(1)?)?.end)
    }

    /// Whether the function at an offset of the file may, or nothing is known of it.
    pub fn contains(&self, offset: u64) -> bool {
        self.function(offset).is_none_or(|function| function.catches)
    }

    /// The return addresses in the function at an offset of the file, as offsets, to which control may come
    /// twice. A hit there tells that what was called later is over.
    pub fn returns_twice(&self, offset: u64) -> &[u64] {
        self.function(offset).map_or(&[], |function| &function.twice)
    }
}

/// The addresses to which calls of the functions in these slots return, made by the code itself or by a
/// linkage stub.
fn calls(image: &Image, start: u64, end: u64, slots: &HashSet<u64>) -> Vec<u64> {
    let Some(bytes) = image.code(start, (end - start) as usize) else { return Vec::new() };
    let mut decoder = Decoder::with_ip(64, bytes, start, DecoderOptions::NONE);
    let is_meant = |instruction: &Instruction| {
        let slot = match instruction.op0_kind() {
            OpKind::NearBranch64 => linked(image, instruction.near_branch_target()),
            _ => instruction.is_ip_rel_memory_operand().then(|| instruction.ip_rel_memory_address()),
        };
        instruction.mnemonic() == Mnemonic::Call && slot.is_some_and(|slot| slots.contains(&slot))
    };
    decoder.iter().filter(is_meant).map(|instruction| instruction.next_ip()).collect()
}

/// The slot through which a linkage stub jumps.
fn linked(image: &Image, stub: u64) -> Option<u64> {
    let mut decoder = Decoder::with_ip(64, image.code_from(stub)?, stub, DecoderOptions::NONE);
    let first = decoder.decode();
    let jump = if first.mnemonic() == Mnemonic::Endbr64 { decoder.decode() } else { first };
    (jump.mnemonic() == Mnemonic::Jmp && jump.is_ip_rel_memory_operand()).then(|| jump.ip_rel_memory_address())
}
