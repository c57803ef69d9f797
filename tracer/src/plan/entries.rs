//! Where the enter of each function is seen.
//!
//! At its first instruction, if the kernel emulates that. Else the site slides along the straight
//! line from there to the first instruction that the kernel does emulate: a hit there costs a
//! tenth, and tells the same, since the stack pointer still points at the return address. A
//! function that has none stays with its first instruction, or, where the kernel refuses a probe
//! on it, takes the next one that it steps.
//!
mod line;
mod skipped;
#[cfg(test)]
mod tests;

use std::collections::HashSet;

use self::skipped::Slide;
use super::exits::FunctionCode;
use super::instruction::{Emulation, Handling, NOP5};
use super::text::Text;
use super::{EntrySite, SiteCost};

/// What is known of a library before its entry sites are chosen.
pub struct Entries<'a> {
    /// Its code.
    pub text: &'a Text<'a>,
    /// What the kernel emulates.
    pub emulated: Emulation,
    /// On this kernel a probe on a five-byte nop kills forked children.
    pub nop5_kills_children: bool,
    /// No instruction before a site may access a variable.
    pub keeps_accesses: bool,
    /// File offsets of the sites at which exits are seen.
    pub exits: HashSet<u64>,
}

impl Entries<'_> {
    /// The site of each function's enter, or why there is none.
    pub fn sites(&self, functions: &[FunctionCode]) -> Vec<Result<EntrySite, &'static str>> {
        let wanted = functions.iter().filter_map(|&function| self.slide(function)).collect();
        let sound = skipped::sound(self.text, wanted);
        let site = |function: &FunctionCode| {
            let entry = function.entry;
            let slid = sound.get(&entry).and_then(|&address| self.site(address).ok());
            slid.map_or_else(|| self.site(entry), Ok)
        };
        functions.iter().map(site).collect()
    }

    /// The slide that makes the site of a function better, if there is one.
    fn slide<'a>(&self, code: FunctionCode<'a>) -> Option<Slide<'a>> {
        let extent = self.text.extent(code.entry, code.size)?;
        let line = line::from_entry(self.text, &extent, self.keeps_accesses);
        let find = |handling| line.iter().copied().find(|&site| self.handling(site) == handling && !self.is_exit(site));
        let site = match self.handling(code.entry) {
            Handling::Emulated => None,
            Handling::SingleStep => find(Handling::Emulated),
            Handling::Refused(_) => find(Handling::Emulated).or_else(|| find(Handling::SingleStep)),
        }?;
        Some(Slide { function: code, extent, site })
    }

    fn is_exit(&self, address: u64) -> bool {
        self.text.image().file_offset(address).is_none_or(|file_offset| self.exits.contains(&file_offset))
    }

    fn site(&self, address: u64) -> Result<EntrySite, &'static str> {
        let cost = match self.handling(address) {
            Handling::Emulated => SiteCost::Emulated,
            Handling::SingleStep => SiteCost::SingleStep,
            Handling::Refused(reason) => return Err(reason),
        };
        let file_offset = self.text.image().file_offset(address).ok_or("its code is not in the file")?;
        Ok(EntrySite { file_offset, cost })
    }

    fn handling(&self, address: u64) -> Handling {
        match self.text.instruction_bytes(address) {
            None => Handling::Refused("its first bytes are no instruction"),
            Some(bytes) if bytes == NOP5 && self.nop5_kills_children => {
                Handling::Refused("on this kernel a probe on the nop that it begins with kills forked children")
            }
            Some(bytes) => self.emulated.handling(bytes),
        }
    }
}
