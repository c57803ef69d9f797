//! One pass over all of a library, for questions that are not about one function: what calls what,
//! and what is referred to.
//!
//! Code is decoded line by line, anew where something is known to begin, so data between code is
//! decoded too: what is shown is all that the library does and some things that it never does.

use iced_x86::{Decoder, DecoderOptions, Instruction};

use super::Text;

impl Text<'_> {
    /// Shows every instruction; false when the file has used up its share of effort before.
    pub fn sweep_code(&self, mut show: impl FnMut(&Instruction)) -> bool {
        let starts = self.starts();
        let mut instruction = Instruction::default();
        for range in self.image.executable_ranges() {
            let Some(bytes) = self.code(&range) else { return false };
            let mut decoder = Decoder::with_ip(64, bytes, range.start, DecoderOptions::NONE);
            let mut following = starts.partition_point(|&start| start <= range.start);
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
        for (address, bytes) in self.image.loaded_parts() {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::testing::{BASE, image};

    #[test]
    fn code_is_decoded_anew_where_something_begins() {
        let code = [0xc3, 0xe9, 0x53, 0xc3, 0x06, 0xc3]; // ret; data; 2: push rbx; ret; data; 5: ret
        let image = image(&code);
        let text = Text::new(&image, vec![BASE, BASE + 2]);
        let mut seen = Vec::new();
        assert!(text.sweep_code(|instruction| seen.push((instruction.ip().wrapping_sub(BASE), instruction.len()))));
        assert!([(0, 1), (2, 1), (3, 1), (5, 1)].iter().all(|one| seen.contains(one)), "{seen:?}");
    }

    #[test]
    fn words_are_those_at_multiples_of_their_size() {
        let image = image(&[&0x1122_3344_u64.to_le_bytes()[..], &[1; 8], &[2; 7]].concat());
        let text = Text::new(&image, Vec::new());
        let mut words = Vec::new();
        assert!(text.sweep_words(|word| words.push(word)));
        assert_eq!(words[BASE as usize / 8..], [0x1122_3344, 0x0101_0101_0101_0101]);
    }
}
