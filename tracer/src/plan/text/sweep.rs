//! One pass over all of a library, for questions that are not about one function: what calls what,
//! and what is referred to.
//!
//! Code is decoded line by line, anew where something is known to begin, so data between code is
//! decoded too: what is shown is all that the library does and some things that it never does.

use iced_x86::{Decoder, DecoderOptions, Instruction};

use super::Text;
use crate::plan::linkage;

impl Text<'_> {
    /// Shows every instruction; false when the file has used up its share of effort before.
    pub fn sweep_code(&self, mut show: impl FnMut(&Instruction)) -> bool {
        let starts = self.starts();
        let mut instruction = Instruction::default();
        for range in self.image.executable_ranges() {
            let Some(bytes) = self.code(&range) else { return false };
            let mut decoder = Decoder::with_ip(64, bytes, range.start, DecoderOptions::NONE);
            let mut following = 0;
            while decoder.can_decode() {
                if !self.spend(1) {
                    return false;
                }
                let address = decoder.ip();
                decoder.decode_out(&mut instruction);
                let mut next = decoder.ip();
                if instruction.is_invalid() {
                    next = address + 1;
                } else {
                    show(&instruction);
                }
                while starts.get(following).is_some_and(|&start| start <= address) {
                    following += 1;
                }
                next = starts.get(following).map_or(next, |&start| next.min(start));
                if next != decoder.ip() {
                    decoder.set_ip(next);
                    decoder.set_position((next - range.start) as usize).expect("it lies within the range");
                }
            }
        }
        true
    }

    /// Shows every word of eight bytes that the file loads; false when the file has used up its
    /// share of effort before.
    pub fn sweep_words(&self, mut show: impl FnMut(u64)) -> bool {
        for (address, bytes) in linkage::loaded_parts(self.image) {
            let skipped = address.wrapping_neg() as usize % size_of::<u64>();
            let words = bytes.get(skipped..).unwrap_or_default().chunks_exact(size_of::<u64>());
            if !self.spend(words.len()) {
                return false;
            }
            for word in words {
                show(u64::from_le_bytes(word.try_into().expect("it has eight bytes")));
            }
        }
        true
    }
}
