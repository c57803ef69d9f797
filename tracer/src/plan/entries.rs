//! Where the enter of each function is seen.
use std::collections::HashSet;

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
    /// File offsets of the sites at which exits are seen.
    pub exits: HashSet<u64>,
}

impl Entries<'_> {
    /// The site of each function's enter, or why there is none.
    pub fn sites(&self, functions: &[FunctionCode]) -> Vec<Result<EntrySite, &'static str>> {
        functions.iter().map(|function| self.site(function.entry)).collect()
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
