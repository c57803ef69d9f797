//! Where the enter of each function is seen.
//!
//! At its first instruction, if the kernel emulates that. Else the site slides along the straight
//! line from there to the first instruction that the kernel does emulate: a hit there costs a
//! tenth, and tells the same, since it is known how far the stack pointer is from the return address.
//! A function that has no such instruction takes the next one that our program can do itself, or stays with its first
//! instruction, or, where the kernel refuses a probe on that, takes the next one that it steps.

#[cfg(test)]
mod tests;

use std::ops::Range;

use rtrace_code::instruction::{Emulation, Handling, SiteCost};
use rtrace_code::line::{self, CodePoint, Intact};
use rtrace_code::obstacle::Obstacle;
use rtrace_code::skipped::{self, MovedEntry};
use rtrace_code::text::{FunctionCode, Text};
use rtrace_code::{parallel, restarting, stub};

use crate::jump::JumpFunctions;
use crate::{EntrySite, Reason};

/// What decides where enters are seen.
pub struct Entries<'a> {
    /// The code of the library.
    pub text: &'a Text<'a>,
    /// What is done without a single step.
    pub emulated: Emulation,
    /// What must be as it was where the entry of the function at an address is seen.
    pub keeps: &'a (dyn Fn(u64) -> Intact + Sync),
    /// Whether the function at an address is to have a stub, whatever its site costs.
    pub wants_stub: &'a (dyn Fn(u64) -> bool + Sync),
    /// Functions whose arguments are read at the site, which must be the first instruction then.
    pub jumps: &'a JumpFunctions,
    /// Whether the function that begins at an address is Go's.
    pub is_of_go: &'a (dyn Fn(u64) -> bool + Sync),
    /// Addresses of marked places, sorted. A call enters before it comes to one; and other tracers probe them with a counter,
    /// while the kernel takes no two probes at one place of which only one has such.
    pub markers: &'a [u64],
}

impl Entries<'_> {
    /// The site of each function's enter, or why there is none.
    pub fn sites(&self, functions: &[FunctionCode]) -> Vec<Result<EntrySite, Reason>> {
        let once = parallel::map(functions, |&function| match (self.is_of_go)(function.entry) {
            true => restarting::once(self.text, function),
            false => Ok(function),
        });
        let moved_entry = |function: &Result<FunctionCode, _>| self.moved_entry(*function.as_ref().ok()?);
        let wanted = parallel::map(&once, moved_entry).into_iter().flatten().collect();
        let sound = skipped::sound(self.text, wanted);
        let site = |function: Result<FunctionCode, Obstacle>| {
            let function = function?;
            let at_entry = || self.site(CodePoint::entry(function));
            let moved = sound.get(&function.entry).filter(|place| self.is_open_to_stub(function, place) != Some(false));
            moved.and_then(|&place| self.site(place).ok()).map_or_else(at_entry, Ok)
        };
        once.into_iter().map(site).collect()
    }

    /// The slide that makes the site of a function better, if there is one.
    fn moved_entry(&self, function: FunctionCode) -> Option<MovedEntry> {
        let at_entry = self.handling(CodePoint::entry(function));
        if at_entry == Handling::Emulated || self.jumps.contains_key(&function.entry) {
            return None;
        }
        let extent = self.text.extent(function)?;
        let line = self.line(&extent);
        let find = |is_wanted: fn(Handling) -> bool| {
            line.iter().copied().find(|&place| is_wanted(self.handling(place)) && self.is_in_file(place))
        };
        let emulated = || find(|handling| handling == Handling::Emulated);
        let written = || find(|handling| matches!(handling, Handling::BpfEmulated(_)));
        let stepped =
            || find(|handling| handling == Handling::SingleStep).filter(|place| place.registers.are_unmoved());
        let site = match at_entry {
            Handling::Emulated => None,
            Handling::BpfEmulated(_) => emulated(),
            Handling::SingleStep => emulated().or_else(written),
            Handling::Refused(_) => emulated().or_else(written).or_else(stepped),
        }?;
        Some(MovedEntry { extent, site })
    }

    /// Whether a function that is to have a stub could have one with its site at this place, where the first instruction
    /// leaves a choice. A site that is single-stepped costs those calls much that do not come by the stub.
    fn is_open_to_stub(&self, function: FunctionCode, place: &CodePoint) -> Option<bool> {
        let can_have_stub = |site| stub::of(self.text, function.entry, site).is_ok();
        let has_choice = (self.wants_stub)(function.entry) && can_have_stub(function.entry);
        has_choice.then(|| place.registers.are_unmoved() && can_have_stub(place.address))
    }

    /// Where the site of a function may slide.
    fn line(&self, extent: &Range<u64>) -> Vec<CodePoint> {
        let mut line = line::from_entry(self.text, extent, (self.keeps)(extent.start));
        let first = self.markers.partition_point(|&marked| marked <= extent.start);
        let end = self.markers.get(first).copied().unwrap_or(u64::MAX);
        line.retain(|place| place.address < end);
        line
    }

    fn is_in_file(&self, place: CodePoint) -> bool {
        self.text.image().file_offset(place.address).is_some()
    }

    /// The site at an instruction, or why there can be none.
    pub fn site(&self, place: CodePoint) -> Result<EntrySite, Reason> {
        let cost = match self.handling(place) {
            Handling::Emulated => SiteCost::Emulated,
            Handling::BpfEmulated(step) => SiteCost::BpfEmulated(step),
            Handling::SingleStep => SiteCost::SingleStep,
            Handling::Refused(obstacle) => return Err(obstacle.into()),
        };
        let file_offset = self.text.image().file_offset(place.address).ok_or(Reason::NotInFile)?;
        Ok(EntrySite { file_offset, cost, words: place.words, registers: place.registers })
    }

    fn handling(&self, place: CodePoint) -> Handling {
        let Some(bytes) = self.text.instruction_bytes(place.address) else {
            return Handling::Refused(Obstacle::NoInstruction);
        };
        let instruction = place.address..place.address + bytes.len() as u64;
        if let Some(obstacle) = self.text.verbatim().obstacle(&instruction) {
            return Handling::Refused(obstacle);
        }
        match self.emulated.handling(bytes) {
            // A cookie tells of the instruction or of the stack.
            Handling::BpfEmulated(_) if place.words > 0 => Handling::SingleStep,
            handling => handling,
        }
    }
}
