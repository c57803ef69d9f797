//! Where the enter of each function is seen.
//!
//! At its first instruction, if the kernel emulates that. Else the site slides along the straight
//! line from there to the first instruction that the kernel does emulate: a hit there costs a
//! tenth, and tells the same, since it is known how far the stack pointer is from the return address.
//! The kernel does not know it, so that it must be at it where the return is hooked. A function that
//! has no such instruction takes the next one that our program can do itself, or stays with its first
//! instruction, or, where the kernel refuses a probe on that, takes the next one that it steps.

mod line;
mod skipped;
#[cfg(test)]
mod tests;

use std::ops::Range;

use foldhash::HashSet;

use self::line::Place;
use self::skipped::Slide;
use super::exits::FunctionCode;
use super::instruction::{Emulation, Handling};
use super::text::Text;
use super::{Site, SiteCost};
use crate::parallel;

/// A function whose enter is to be seen.
#[derive(Clone, Copy)]
pub struct Function<'a> {
    /// Its code.
    pub code: FunctionCode<'a>,
    /// Its return is hooked: the kernel looks for the return address after our program.
    pub is_hooked: bool,
    /// File offsets of conditional jumps at which its calls may be over.
    pub ends: &'a [u64],
}

/// What is known of a library before its entry sites are chosen.
pub struct Entries<'a> {
    /// Its code.
    pub text: &'a Text<'a>,
    /// What is done without a single step.
    pub emulated: Emulation,
    /// No instruction before a site may access a variable.
    pub keeps_accesses: bool,
    /// File offsets of the sites at which exits are seen.
    pub exits: HashSet<u64>,
}

impl Entries<'_> {
    /// The site of each function's enter, or why there is none.
    pub fn sites(&self, functions: &[Function]) -> Vec<Result<Site, &'static str>> {
        let wanted = parallel::map(functions, |function| self.slide(function)).into_iter().flatten().collect();
        let sound = skipped::sound(self.text, wanted);
        let site = |function: &Function| {
            let entry = Place::entry(function.code);
            let slid = sound.get(&entry.address).and_then(|&place| self.site(function, place).ok());
            slid.map_or_else(|| self.site(function, entry), Ok)
        };
        functions.iter().map(site).collect()
    }

    /// The slide that makes the site of a function better, if there is one.
    fn slide<'a>(&self, function: &Function<'a>) -> Option<Slide<'a>> {
        let code = function.code;
        let at_entry = self.handling(function, Place::entry(code));
        if at_entry == Handling::Emulated && function.ends.is_empty() {
            return None;
        }
        let extent = self.text.extent(code.entry, code.size)?;
        let line = self.line(&extent, function.is_hooked);
        let find = |is_wanted: fn(Handling) -> bool| {
            let is_site = |&place: &Place| is_wanted(self.handling(function, place)) && !self.is_exit(place.address);
            line.iter().copied().find(is_site)
        };
        let emulated = || find(|handling| handling == Handling::Emulated);
        let written = || find(|handling| matches!(handling, Handling::Written(_)));
        let stepped = || find(|handling| handling == Handling::SingleStep);
        // Where some calls are over when others begin, one probe tells both.
        let is_end = |place: &&Place| {
            self.text.image().file_offset(place.address).is_some_and(|file_offset| function.ends.contains(&file_offset))
        };
        let end = line.iter().find(is_end).copied();
        let site = end.or_else(|| match at_entry {
            Handling::Emulated => None,
            Handling::Written(_) => emulated(),
            Handling::SingleStep => emulated().or_else(written),
            Handling::Refused(_) => emulated().or_else(written).or_else(stepped),
        })?;
        Some(Slide { function: code, extent, site })
    }

    /// Where the site of a function may slide.
    fn line(&self, extent: &Range<u64>, is_hooked: bool) -> Vec<Place> {
        let mut line = line::from_entry(self.text, extent, self.keeps_accesses);
        line.retain(|place| !is_hooked || place.words == 0);
        line
    }

    /// Whether the enter of a function must be single-stepped if its return is hooked, and need not be if
    /// its exits are seen at instructions.
    pub fn is_dear_only_hooked(&self, code: FunctionCode) -> bool {
        let Some(extent) = self.text.extent(code.entry, code.size) else { return false };
        let is_dear = |is_hooked| {
            let function = Function { code, is_hooked, ends: &[] };
            let mut places = std::iter::once(Place::entry(code)).chain(self.line(&extent, is_hooked));
            !places.any(|place| matches!(self.handling(&function, place), Handling::Emulated | Handling::Written(_)))
        };
        is_dear(true) && !is_dear(false)
    }

    fn is_exit(&self, address: u64) -> bool {
        self.text.image().file_offset(address).is_none_or(|file_offset| self.exits.contains(&file_offset))
    }

    fn site(&self, function: &Function, place: Place) -> Result<Site, &'static str> {
        let Place { address, words } = place;
        let cost = match self.handling(function, place) {
            Handling::Emulated => SiteCost::Emulated,
            Handling::Written(step) => SiteCost::Written(step),
            Handling::SingleStep => SiteCost::SingleStep,
            Handling::Refused(reason) => return Err(reason),
        };
        let file_offset = self.text.image().file_offset(address).ok_or("its code is not in the file")?;
        Ok(Site { words, ..Site::new(file_offset, cost) })
    }

    fn handling(&self, function: &Function, place: Place) -> Handling {
        match self.text.instruction_bytes(place.address) {
            None => Handling::Refused("its first bytes are no instruction"),
            Some(bytes) => match self.emulated.handling(bytes) {
                Handling::Written(step) if step.moves_stack() && function.is_hooked => Handling::SingleStep,
                // A cookie tells of the instruction or of the stack.
                Handling::Written(_) if place.words > 0 => Handling::SingleStep,
                handling => handling,
            },
        }
    }
}
