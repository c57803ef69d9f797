//! Functions that may get control back from a call without its return.
//!
//! A caller that only returns from a call is skipped: the call ends where that one returns to. That would be
//! too late where an exception or a `longjmp` ends the call and the caller goes on.

use std::ops::Range;
use std::sync::OnceLock;

use foldhash::HashSet;
use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, Register};
use rtrace_symbolizer::{FrameRange, Image};

use crate::calls::{candidates, confirmed};
use crate::flow::Flow;
use crate::text::Text;

/// Functions that return twice.
const RETURN_TWICE: [&str; 8] =
    ["setjmp", "_setjmp", "__setjmp", "sigsetjmp", "__sigsetjmp", "getcontext", "vfork", "__vfork"];

/// `lea REGISTER, [rip + NUMBER]` up to the number.
const LEA: [u8; 3] = [0x48, 0x8d, 0x05];

/// The bits of its prefix and of its operands that say which register.
const LEA_ANY: [u8; 2] = [0x04, 0x38];

/// The functions of a file that may.
pub struct Catching {
    /// Ranges of code by file offset, sorted.
    ranges: Vec<FunctionRange>,
    /// Its addresses are fixed.
    is_fixed: bool,
}

/// A function by file offsets.
struct FunctionRange {
    start: u64,
    end: u64,
    /// It has a table for exceptions, or calls what returns twice.
    catches: bool,
    /// Control may come into its middle by a jump from anywhere, as far as its bytes tell.
    landing: Option<Box<Landing>>,
    /// Where what it calls returns to twice.
    twice: Vec<u64>,
}

/// What is looked for once it is asked for, as many numbers in code look like an address of code.
struct Landing {
    /// The virtual address of the function.
    address: u64,
    /// Where control comes to by jumps; none where no instruction takes an address in the middle of code.
    joins: OnceLock<Option<Vec<u64>>>,
}

impl Catching {
    /// Those that have a table for exceptions, or call what returns twice, or take an address in the middle of code, as
    /// compilers do for `__builtin_setjmp`.
    pub fn of(image: &Image) -> Catching {
        let slots = image.slots();
        let twice = slots.iter().filter(|slot| RETURN_TWICE.contains(&slot.name)).map(|slot| slot.address);
        let twice: HashSet<u64> = twice.collect();
        let frames = image.frame_ranges();
        let calls = if twice.is_empty() { ReturnAddresses::default() } else { calls(image, &frames, &twice) };
        let ranges = frames.iter().filter_map(|frame| {
            let start = image.file_offset(frame.start)?;
            let within = |calls: &[u64]| {
                let (from, to) =
                    [frame.start, frame.end].map(|end| calls.partition_point(|&address| address <= end)).into();
                calls[from..to].iter().map(|address| start + (address - frame.start)).collect::<Vec<u64>>()
            };
            let landing = || Box::new(Landing { address: frame.start, joins: OnceLock::new() });
            Some(FunctionRange {
                start,
                end: start + (frame.end - frame.start),
                catches: frame.has_lsda || !within(&calls.possible).is_empty(),
                landing: takes_label(image, &frames, frame).then(landing),
                twice: within(&calls.confirmed),
            })
        });
        let mut ranges: Vec<FunctionRange> = ranges.collect();
        ranges.sort_unstable_by_key(|function| (function.start, function.end));
        Catching { ranges, is_fixed: image.is_fixed() }
    }

    fn function(&self, offset: u64) -> Option<&FunctionRange> {
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

    /// The function that has the byte in front of an offset of the file, and those behind it that begin before another
    /// offset, if it is known.
    pub fn functions(&self, offset: u64, end: u64) -> Vec<Range<u64>> {
        let Some(first) = offset.checked_sub(1).and_then(|last| self.function(last)) else { return Vec::new() };
        let from = self.ranges.partition_point(|function| function.start < first.start);
        let functions = self.ranges[from..].iter().take_while(|function| function.start < end);
        functions.map(|function| function.start..function.end).collect()
    }

    /// Whether the function at an offset of the file may, or nothing is known of it. `read` gives the code of a range of
    /// the file.
    pub fn contains(&self, offset: u64, read: impl Fn(Range<u64>) -> Option<Vec<u8>>) -> bool {
        self.function(offset).is_none_or(|function| function.catches || self.landing(function, read).is_some())
    }

    /// Whether control may come into the middle of the function at an offset by a jump from anywhere.
    pub fn lands(&self, offset: u64, read: impl Fn(Range<u64>) -> Option<Vec<u8>>) -> bool {
        self.function(offset).is_some_and(|function| self.landing(function, read).is_some())
    }

    /// Whether control may come to this return address by a jump from anywhere, and on from where that lands: a hit there
    /// does not tell that what was called has returned. None where it cannot come into the middle of the function.
    /// `read` gives the code of a range of the file.
    pub fn joined(&self, offset: u64, read: impl Fn(Range<u64>) -> Option<Vec<u8>>) -> Option<bool> {
        let joins = self.landing(self.function(offset.checked_sub(1)?)?, read)?;
        Some(joins.binary_search(&offset).is_ok())
    }

    /// What is looked for once: the places that control comes to by jumps in a function into whose middle it may come.
    fn landing<'f>(
        &self,
        function: &'f FunctionRange,
        read: impl Fn(Range<u64>) -> Option<Vec<u8>>,
    ) -> Option<&'f [u64]> {
        let Landing { address, joins } = function.landing.as_deref()?;
        joins.get_or_init(|| self.joins(function, *address, read)).as_deref()
    }

    /// The sorted places in a function and behind it that control comes to by jumps, from within it and from its parts
    /// elsewhere; all of them where that is not known. None where it takes no address in the middle of code.
    fn joins(
        &self,
        function: &FunctionRange,
        address: u64,
        read: impl Fn(Range<u64>) -> Option<Vec<u8>>,
    ) -> Option<Vec<u64>> {
        let own = function.start..function.end;
        let unknown = || Some((own.start..=own.end).collect());
        let Some(code) = read(own.clone()) else { return unknown() };
        let labels = match self.labels(&code, own.start, address) {
            Some(labels) if labels.is_empty() => return None,
            Some(labels) => labels,
            None => return unknown(),
        };
        let follow = |code: &[u8], start: u64, from: &[u64]| {
            let mut flow = Flow::new(code, start);
            from.iter().for_each(|&place| flow.follow(place));
            let targets = flow.jumps.iter().map(|&(_, target)| target).chain(flow.leaves.iter().copied());
            (!flow.is_broken && !flow.jumps_indirectly).then(|| targets.collect::<Vec<u64>>())
        };
        let Some(mut joins) = follow(&code, own.start, &[&[own.start], &labels[..]].concat()) else { return unknown() };
        joins.extend(labels);
        let mut others: Vec<u64> = joins.iter().copied().filter(|place| !own.contains(place)).collect();
        others.sort_unstable();
        others.dedup();
        for place in others {
            let Some(other) = self.function(place) else { continue };
            let code = read(other.start..other.end).unwrap_or_default();
            joins.extend(follow(&code, other.start, &[place]).unwrap_or_default());
        }
        joins.retain(|place| own.contains(place));
        joins.sort_unstable();
        joins.dedup();
        Some(joins)
    }

    /// The places in the middle of functions whose address the instructions of a function take, if it also keeps its stack
    /// pointer: who jumps there from elsewhere has to restore it. A function that jumps to its own labels (`goto *label`)
    /// does not. None where not all of it are instructions.
    fn labels(&self, code: &[u8], start: u64, address: u64) -> Option<Vec<u64>> {
        let mut decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        let (mut labels, mut keeps_stack) = (Vec::new(), false);
        let offset_of = |number: u64| number.wrapping_sub(address).wrapping_add(start);
        while decoder.can_decode() {
            decoder.decode_out(&mut instruction);
            let taken = match instruction.mnemonic() {
                Mnemonic::INVALID => return None,
                Mnemonic::Lea if instruction.is_ip_rel_memory_operand() => Some(instruction.ip_rel_memory_address()),
                Mnemonic::Lea if self.is_fixed && instruction.memory_base() == Register::None => {
                    Some(offset_of(instruction.memory_displacement64()))
                }
                Mnemonic::Mov | Mnemonic::Push if self.is_fixed => {
                    let last = instruction.op_count().saturating_sub(1);
                    instruction.try_immediate(last).ok().map(offset_of)
                }
                _ => None,
            };
            labels.extend(taken.filter(|&place| self.is_label(place)));
            keeps_stack |= keeps_stack_pointer(&instruction);
        }
        Some(if keeps_stack { labels } else { Vec::new() })
    }

    /// Whether a place is in the middle of a function. What signal handlers return to begins a byte behind its frame.
    fn is_label(&self, place: u64) -> bool {
        self.function(place).is_some_and(|function| place >= function.start + 2)
    }

    /// The return addresses in the function at an offset of the file, as offsets, to which control may come
    /// twice. A hit there tells that what was called later is over.
    pub fn returns_twice(&self, offset: u64) -> &[u64] {
        self.function(offset).map_or(&[], |function| &function.twice)
    }
}

/// Whether an instruction copies the stack pointer to memory or to a register, but for the one that points to the frame.
fn keeps_stack_pointer(instruction: &Instruction) -> bool {
    let last = instruction.op_count().saturating_sub(1);
    matches!(instruction.mnemonic(), Mnemonic::Mov | Mnemonic::Push | Mnemonic::Xchg)
        && instruction.op_register(last) == Register::RSP
        && instruction.op0_register() != Register::RBP
}

/// Whether a function takes the address of code that no function begins with.
fn takes_label(image: &Image, frames: &[FrameRange], frame: &FrameRange) -> bool {
    let length = usize::try_from(frame.end - frame.start).unwrap_or(0);
    let code = image.code(frame.start, length).unwrap_or_default();
    let (first, last) = (frames.first().map_or(0, |frame| frame.start), frames.last().map_or(0, |frame| frame.end));
    let is_label = |address: u64| {
        // Most numbers are no addresses of code.
        if !(first..last).contains(&address) {
            return false;
        }
        let following = frames.partition_point(|other| other.start <= address);
        // What signal handlers return to begins a byte behind its frame.
        frames[..following].last().is_some_and(|other| (other.start + 2..other.end).contains(&address))
    };
    let is_fixed = image.is_fixed();
    code.windows(LEA.len() + 4).enumerate().any(|(position, bytes)| {
        let &[prefix, opcode, operands, ref number @ ..] = bytes else { return false };
        let number = i32::from_le_bytes(number.try_into().unwrap_or_default());
        let behind = frame.start + (position + bytes.len()) as u64;
        let is_lea = [prefix & !LEA_ANY[0], opcode, operands & !LEA_ANY[1]] == LEA;
        (is_lea && is_label(behind.wrapping_add_signed(number.into())))
            || (is_fixed && is_label(u64::from(number.cast_unsigned())))
    })
}

/// The sorted addresses to which calls return.
#[derive(Default)]
struct ReturnAddresses {
    /// All of them, and perhaps some that are none.
    possible: Vec<u64>,
    /// Those of calls to which control certainly comes.
    confirmed: Vec<u64>,
}

/// Calls of the functions in these slots, made by the code itself or by a linkage stub.
fn calls(image: &Image, frames: &[FrameRange], slots: &HashSet<u64>) -> ReturnAddresses {
    let is_linked = |target| linked(image, target).is_some_and(|slot| slots.contains(&slot));
    let functions: Vec<Range<u64>> = frames.iter().map(|frame| frame.start..frame.end).collect();
    let text = Text::new(image, Vec::new());
    let mut calls = ReturnAddresses::default();
    for segment in image.executable_ranges() {
        let bytes = image.code_from(segment.start).unwrap_or_default();
        let possible = candidates(bytes, segment.start, is_linked, |slot| slots.contains(&slot));
        let first = functions.partition_point(|function| function.start < segment.start);
        let confirmed = confirmed(bytes, segment.start, &functions[first..], &possible, |range| text.tables(range));
        calls.confirmed.extend(confirmed.into_iter().map(|call| call.behind));
        calls.possible.extend(possible);
    }
    calls
}

/// The slot through which a linkage stub jumps.
fn linked(image: &Image, stub: u64) -> Option<u64> {
    let code = image.code_from(stub)?;
    // Most of what is asked for is none.
    if !matches!(code, [0xff | 0xf2 | 0xf3, ..]) {
        return None;
    }
    let mut decoder = Decoder::with_ip(64, code, stub, DecoderOptions::NONE);
    let first = decoder.decode();
    let jump = if first.mnemonic() == Mnemonic::Endbr64 { decoder.decode() } else { first };
    (jump.mnemonic() == Mnemonic::Jmp && jump.is_ip_rel_memory_operand()).then(|| jump.ip_rel_memory_address())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use rtrace_symbolizer::Function as Exported;

    use super::*;

    /// Three functions that call what returns twice, and one that does not.
    const SOURCE: &str = "
        #include <setjmp.h>
        #include <unistd.h>
        static jmp_buf buffer; static sigjmp_buf masked;
        void other(void);
        int plain(void) { if (_setjmp(buffer)) return 1; other(); return 0; }
        int signals(void) { if (sigsetjmp(masked, 1)) return 1; other(); return 0; }
        int forks(void) { if (vfork() == 0) _exit(0); other(); if (_setjmp(buffer)) return 1; return 0; }
        int none(void) { other(); return 2; }
    ";

    /// Gives the code of a range of the file, of an image whose code lies so far behind its offsets.
    fn reader(image: &Image, delta: u64) -> impl Fn(Range<u64>) -> Option<Vec<u8>> + Copy {
        move |range: Range<u64>| {
            let length = usize::try_from(range.end - range.start).ok()?;
            image.code(range.start + delta, length).map(<[u8]>::to_vec)
        }
    }

    #[test]
    fn jumps_into_the_middle_of_a_function_are_foreseen() {
        const SOURCE: &str = "
            static void *landing[5]; static int (*volatile hook)(void); static volatile int left;
            __attribute__((noipa)) int lands(void) { if (__builtin_setjmp(landing)) return left += 1; hook(); return left; }
            __attribute__((noipa)) int none(void) { hook(); return left; }
            __attribute__((noipa)) int takes(void) { hook = none; return hook(); }
            /* Its code has the number without taking it for an address. */
            __attribute__((noipa)) int compares(long place) { return hook() + (place == (long)((char *)lands + 8)); }
            /* It jumps to its own labels. */
            __attribute__((noipa)) int dispatches(const signed char *step) {
                static const int steps[] = {&&add - &&add, &&call - &&add, &&end - &&add};
                goto *(&&add + steps[*step++]);
            add: left++; goto *(&&add + steps[*step++]);
            call: hook(); goto *(&&add + steps[*step++]);
            end: return left;
            }
            int main(void) { return lands() + takes() + compares(0) + dispatches((signed char *)\"\\2\"); }";
        for flags in [&["-fPIC", "-shared"][..], &["-no-pie"], &["-pie", "-fPIE"]] {
            let Some(image) = crate::testing::compile("c", SOURCE, flags) else { return };
            let catching = Catching::of(&image);
            let functions = image.exports().unwrap().functions;
            let fixed = if image.is_fixed() { Some(("compares", false)) } else { None };
            let known = [("lands", true), ("none", false), ("takes", false), ("dispatches", false), ("main", false)];
            for (name, expected) in known.into_iter().chain(fixed) {
                let function = functions.iter().find(|function| function.name == name).unwrap();
                let read = reader(&image, function.address - function.file_offset);
                assert_eq!(catching.lands(function.file_offset, read), expected, "{name} with {flags:?}");
                assert_eq!(catching.contains(function.file_offset, read), expected, "{name} with {flags:?}");
            }
        }
    }

    #[test]
    fn returns_where_jumps_from_anywhere_come_by_are_known() {
        const SOURCE: &str = "
            static void *landing[5]; static int (*volatile hook)(void); static volatile int left;
            __attribute__((noipa)) int joined(void) { if (__builtin_setjmp(landing)) left++; else hook(); return left * 2; }
            __attribute__((noipa)) int apart(void) { if (__builtin_setjmp(landing)) return -1; left += hook(); return left * 2; }
            int cold(void) {
                if (__builtin_expect(__builtin_setjmp(landing) != 0, 0)) left--; else hook();
                return left * 2;
            }
            __attribute__((noipa)) int none(void) { if (left) hook(); return left * 2; }
            int main(void) { return joined() + apart() + cold() + none(); }";
        for flags in [&["-fPIC", "-shared"][..], &["-no-pie"]] {
            let Some(image) = crate::testing::compile("c", SOURCE, flags) else { return };
            let catching = Catching::of(&image);
            let functions = image.exports().unwrap().functions;
            for (name, expected) in [("joined", 1), ("apart", 0), ("cold", 1), ("none", 0)] {
                let function = functions.iter().find(|function| function.name == name).unwrap();
                let read = reader(&image, function.address - function.file_offset);
                let code = image.code(function.address, function.size as usize).unwrap();
                let mut flow = Flow::new(code, function.file_offset);
                flow.follow(function.file_offset);
                assert_eq!(flow.calls.len(), 1, "{name}");
                let joined = flow.calls.iter().filter(|&&behind| catching.joined(behind, read) == Some(true)).count();
                assert_eq!(joined, expected, "{name}");
                let lands = catching.joined(flow.calls[0], read).is_some();
                assert_eq!(lands, name != "none", "{name}");
            }
        }
    }

    #[test]
    fn calls_of_what_returns_twice_are_found() {
        let ways: [&[&str]; 4] = [&[], &["-fno-plt"], &["-fcf-protection=full"], &["-Wl,-z,now"]];
        for way in ways {
            let flags = [&["-shared", "-fPIC"], way].concat();
            let Some(image) = crate::testing::compile("c", SOURCE, &flags) else { return };
            let catching = Catching::of(&image);
            let functions = image.exports().unwrap().functions;
            for (name, expected) in [("plain", 1), ("signals", 1), ("forks", 2), ("none", 0)] {
                let is_meant = |function: &&Exported| function.name == name;
                let function = functions.iter().find(is_meant).unwrap();
                let twice = catching.returns_twice(function.file_offset);
                assert_eq!(twice.len(), expected, "{name} with {way:?}");
                let read = reader(&image, function.address - function.file_offset);
                assert_eq!(catching.contains(function.file_offset, read), expected > 0, "{name} with {way:?}");
                let range = function.file_offset + 5..=function.file_offset + function.size;
                assert!(twice.iter().all(|offset| range.contains(offset)), "{name} with {way:?}: {twice:x?}");
            }
        }
    }
}
