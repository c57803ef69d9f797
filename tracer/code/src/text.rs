//! The code of one library, with what is known of its layout.

mod addresses;
mod sweep;
mod table;
#[cfg(test)]
mod tests;
mod ways;

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::HashMap;
use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind};
use rtrace_symbolizer::{FrameRange, Image};

pub use self::addresses::Addresses;
pub use self::sweep::References;
pub use self::ways::{Returns, Ways, leaves_frames};
use crate::instruction::LONGEST;
use crate::verbatim::Verbatim;

/// Effort per byte of code before the search is given up: overlapping symbols of a hostile file
/// could ask for the square of its size.
const EFFORT_PER_BYTE: u64 = 16;

/// One function of a library.
#[derive(Clone, Copy, Debug)]
pub struct FunctionCode {
    /// Virtual address of its first instruction.
    pub entry: u64,
    /// Its size in bytes as the symbol table states it; 0 where unknown.
    pub size: u64,
}

/// The code of one library with what is known of its layout.
pub struct Text<'a> {
    image: &'a Image,
    /// Sorted by start.
    frames: Vec<FrameRange>,
    /// Where they start.
    frame_starts: Addresses,
    /// Per frame range, how control leaves it.
    ways: Vec<OnceLock<Ways>>,
    /// Frame range of a function → the fragments that branch into it.
    fragments: OnceLock<HashMap<usize, Vec<usize>>>,
    /// Own functions by the slots that lead to them.
    own: OnceLock<HashMap<u64, u64>>,
    references: OnceLock<References>,
    /// Where functions begin.
    entries: Addresses,
    verbatim: Verbatim,
    effort: AtomicU64,
}

impl<'a> Text<'a> {
    /// The code of `image`, in which functions are known to begin at `entries`.
    pub fn new(image: &'a Image, mut entries: Vec<u64>) -> Text<'a> {
        entries.sort_unstable();
        entries.dedup();
        let frames = image.frame_ranges();
        let frame_starts = Addresses::new(frames.iter().map(|frame| frame.start).collect());
        let size: u64 = image.executable_ranges().iter().map(|range| range.end - range.start).sum();
        Text {
            image,
            ways: frames.iter().map(|_| OnceLock::new()).collect(),
            frames,
            frame_starts,
            fragments: OnceLock::new(),
            own: OnceLock::new(),
            references: OnceLock::new(),
            entries: Addresses::new(entries),
            verbatim: Verbatim::of(image),
            effort: AtomicU64::new(size.saturating_mul(EFFORT_PER_BYTE)),
        }
    }

    /// Whether code begins here that does not continue what stands before it.
    pub fn is_start(&self, address: u64) -> bool {
        self.is_entry(address) || self.frame_at(address).is_some_and(|(_, frame)| frame.start == address)
    }

    /// Sorted addresses at which code begins that does not continue what stands before it.
    pub fn starts(&self) -> Vec<u64> {
        let mut starts: Vec<u64> =
            self.frames.iter().map(|frame| frame.start).chain(self.entries.all().iter().copied()).collect();
        starts.sort_unstable();
        starts.dedup();
        starts
    }

    /// Where no probe may be in it.
    pub fn verbatim(&self) -> &Verbatim {
        &self.verbatim
    }

    /// The file.
    pub fn image(&self) -> &'a Image {
        self.image
    }

    /// The bytes of a range of code, if all of it is code.
    pub fn code(&self, range: &Range<u64>) -> Option<&'a [u8]> {
        self.image.code(range.start, usize::try_from(range.end.checked_sub(range.start)?).ok()?)
    }

    /// The instruction at `address`; none where there is no code or it is not valid.
    pub(crate) fn instruction(&self, address: u64) -> Option<Instruction> {
        let bytes = (1..=LONGEST).rev().find_map(|len| self.image.code(address, len))?;
        let instruction = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE).decode();
        (!instruction.is_invalid()).then_some(instruction)
    }

    /// Whether the instructions from `start` on come to `address`, one behind the other.
    pub fn is_reached(&self, start: u64, address: u64) -> bool {
        let Some(bytes) = self.code(&(start..address)).filter(|bytes| self.spend(bytes.len())) else { return false };
        let mut decoder = Decoder::with_ip(64, bytes, start, DecoderOptions::NONE);
        decoder.iter().all(|instruction| !instruction.is_invalid())
    }

    /// The bytes of the instruction at `address`.
    pub fn instruction_bytes(&self, address: u64) -> Option<&'a [u8]> {
        self.image.code(address, self.instruction(address)?.len())
    }

    /// `N` bytes of constant data.
    pub fn data<const N: usize>(&self, address: u64) -> Option<[u8; N]> {
        self.image.loaded(address)?.get(..N)?.try_into().ok()
    }

    /// Whether a function is known to begin here.
    pub fn is_entry(&self, address: u64) -> bool {
        self.entries.contains(address)
    }

    /// The sorted addresses, from this one on, at which functions are known to begin.
    pub fn entries_from(&self, address: u64) -> &[u64] {
        self.entries.from(address)
    }

    /// The frame range that holds this address.
    pub fn frame_at(&self, address: u64) -> Option<(usize, FrameRange)> {
        let index = self.frame_starts.up_to(address).checked_sub(1)?;
        let frame = self.frames[index];
        (address < frame.end).then_some((index, frame))
    }

    /// Where a function is: its frame range says best where it ends, then its size up to where something
    /// else begins.
    pub fn extent(&self, FunctionCode { entry, size }: FunctionCode) -> Option<Range<u64>> {
        if let Some((_, frame)) = self.frame_at(entry)
            && frame.start == entry
        {
            return Some(entry..frame.end);
        }
        let next = self.frames.get(self.frame_starts.up_to(entry)).map_or(u64::MAX, |frame| frame.start);
        let end = entry.checked_add(size)?.min(next);
        (size > 0).then_some(entry..end)
    }

    /// How control leaves the frame range of that index.
    pub fn ways_out_of_frame(&self, index: usize) -> &Ways {
        self.ways[index].get_or_init(|| self.ways_out(&(self.frames[index].start..self.frames[index].end)))
    }

    /// The parts of functions elsewhere (such as cold paths and exception handlers) that branch
    /// into the range `index`; whole functions are not among them.
    pub fn fragments_of(&self, index: usize) -> &[usize] {
        let fragments = self.fragments.get_or_init(|| {
            let mut owners: HashMap<usize, Vec<usize>> = HashMap::default();
            for (fragment, frame) in self.frames.iter().enumerate() {
                if frame.entry_is_plain {
                    continue;
                }
                for &target in &self.ways_out_of_frame(fragment).targets {
                    if let Some((owner, range)) = self.frame_at(target)
                        && target != range.start
                    {
                        let known = owners.entry(owner).or_default();
                        if known.last() != Some(&fragment) {
                            known.push(fragment);
                        }
                    }
                }
            }
            owners
        });
        fragments.get(&index).map_or(&[], Vec::as_slice)
    }

    /// The function of the library itself to which the linkage stub that stands here leads, if it does.
    pub fn linked(&self, address: u64) -> Option<u64> {
        let mut instruction = self.instruction(address)?;
        if instruction.mnemonic() == Mnemonic::Endbr64 {
            instruction = self.instruction(instruction.next_ip())?;
        }
        let is_stub = instruction.code() == Code::Jmp_rm64 && instruction.is_ip_rel_memory_operand();
        let slot = is_stub.then(|| instruction.ip_rel_memory_address())?;
        let own = self.own.get_or_init(|| {
            let slots = self.image.slots();
            slots.iter().filter_map(|slot| Some((slot.address, slot.own?))).collect()
        });
        own.get(&slot).copied()
    }

    /// The frame range of that index.
    pub fn frame(&self, index: usize) -> FrameRange {
        self.frames[index]
    }

    /// Accounts for `effort`, in instructions looked at; false when the file has used up its share.
    pub fn spend(&self, effort: usize) -> bool {
        let effort = effort as u64;
        let spent = |left: u64| Some(left.saturating_sub(effort));
        self.effort.fetch_update(Ordering::Relaxed, Ordering::Relaxed, spent).is_ok_and(|left| left >= effort)
    }
}

/// Where a direct jump goes when it is taken; calls are not jumps.
pub(crate) fn branch_target(instruction: &Instruction) -> Option<u64> {
    let jumps = instruction.op0_kind() == OpKind::NearBranch64 && instruction.flow_control() != FlowControl::Call;
    jumps.then(|| instruction.near_branch_target())
}
