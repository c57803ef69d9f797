//! One pass over all of a library, for what is not about one function: what its code refers to.
//!
//! Code is decoded line by line, anew where something is known to begin, so data between code is
//! decoded too: what is found is all that the library does and some things that it never does.

use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind};

use super::{Text, branch_target};
use crate::parallel;

/// Parts of a library that are decoded apart.
const PIECES: usize = 64;

/// Length of a jump that can reach everywhere: no constants look like one to where a function begins.
const FAR_JUMP: usize = 5;

/// What the code of a library refers to.
#[derive(Default)]
pub struct References {
    /// The addresses that instructions jump to, load from, store to or compute, as often as they do.
    pub addresses: Vec<u64>,
    /// The addresses that they call, or from which they load what they call, as often as they do.
    pub called: Vec<u64>,
    /// Where functions begin to which they jump from others, by jumps that reach everywhere.
    pub jumped: Vec<u64>,
    /// The addresses of the jumps whose operands do not tell where they go, sorted.
    pub computed_jumps: Vec<u64>,
    /// What they read or write of the code itself as data.
    pub read: Vec<Range<u64>>,
    /// The addresses in the code that they compute, each with the instruction that does.
    pub taken: Vec<(u64, u64)>,
    /// False when the file has used up its share of effort before.
    pub is_complete: bool,
}

impl References {
    /// Adds a reference to an address in the code by an instruction that does not go there.
    fn see_data(&mut self, instruction: &Instruction, address: u64) {
        let has_memory = (0..instruction.op_count()).any(|operand| instruction.op_kind(operand) == OpKind::Memory);
        if !has_memory || instruction.mnemonic() == Mnemonic::Lea {
            self.taken.push((address, instruction.ip()));
        } else {
            let size = instruction.memory_size().size().max(1) as u64;
            self.read.push(address..address.saturating_add(size));
        }
    }

    /// All addresses that instructions refer to.
    pub fn all(&self) -> impl Iterator<Item = u64> {
        self.addresses.iter().chain(&self.called).copied()
    }
}

/// What an instruction that jumps nowhere refers to by its whole address, if that may be one.
fn absolute(instruction: &Instruction) -> Option<u64> {
    (0..instruction.op_count()).find_map(|operand| match instruction.op_kind(operand) {
        OpKind::Memory if instruction.memory_displ_size() >= 4 => Some(instruction.memory_displacement64()),
        OpKind::Immediate32 | OpKind::Immediate32to64 | OpKind::Immediate64 => Some(instruction.immediate(operand)),
        _ => None,
    })
}

/// The address that an instruction refers to, if it refers to one.
fn reference(instruction: &Instruction) -> Option<u64> {
    if instruction.op0_kind() == OpKind::NearBranch64 {
        Some(instruction.near_branch_target())
    } else {
        instruction.is_ip_rel_memory_operand().then(|| instruction.ip_rel_memory_address())
    }
}

impl Text<'_> {
    /// What all code of the library refers to.
    pub fn references(&self) -> &References {
        self.references.get_or_init(|| {
            let starts = self.starts();
            let mut references = References { is_complete: true, ..References::default() };
            for part in parallel::map(&self.pieces(&starts), |piece| self.sweep(piece, &starts)) {
                references.addresses.extend(part.addresses);
                references.called.extend(part.called);
                references.jumped.extend(part.jumped);
                references.computed_jumps.extend(part.computed_jumps);
                references.read.extend(part.read);
                references.taken.extend(part.taken);
                references.is_complete &= part.is_complete;
            }
            references
        })
    }

    /// Whether a function begins at this address, and the instruction at the other one is not in it.
    fn is_other_entry(&self, address: u64, instruction: u64) -> bool {
        let next = || self.entries_from(address.saturating_add(1)).first();
        self.is_entry(address) && (instruction < address || next().is_some_and(|&next| next <= instruction))
    }

    /// All code in pieces of about the same size that end where something begins.
    fn pieces(&self, starts: &[u64]) -> Vec<Range<u64>> {
        let mut pieces = Vec::new();
        for range in self.image.executable_ranges() {
            let size = (range.end - range.start).div_ceil(PIECES as u64).max(1);
            let mut piece = range.start;
            while piece < range.end {
                let following = starts.partition_point(|&start| start < piece.saturating_add(size));
                let end = starts.get(following).map_or(range.end, |&start| start.min(range.end));
                pieces.push(piece..end);
                piece = end;
            }
        }
        pieces
    }

    fn sweep(&self, piece: &Range<u64>, starts: &[u64]) -> References {
        let mut references = References::default();
        let executable = self.image.executable_ranges();
        let is_code = |address: u64| executable.iter().any(|range| range.contains(&address));
        let is_fixed = self.image.is_fixed();
        let mut effort = 0;
        let mut instruction = Instruction::default();
        // An instruction may reach beyond the piece.
        let Some(bytes) = self.image.code_from(piece.start).filter(|_| self.spend(1)) else { return references };
        let mut decoder = Decoder::with_ip(64, bytes, piece.start, DecoderOptions::NONE);
        let mut following = starts.partition_point(|&start| start <= piece.start);
        while decoder.ip() < piece.end && decoder.can_decode() {
            effort += 1;
            let address = decoder.ip();
            decoder.decode_out(&mut instruction);
            let mut next = decoder.ip();
            if instruction.is_invalid() {
                next = address + 1;
            } else if let Some(address) = reference(&instruction) {
                let calls = matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall);
                let found = if calls { &mut references.called } else { &mut references.addresses };
                found.push(address);
                let is_far = instruction.len() >= FAR_JUMP && branch_target(&instruction).is_some();
                if is_far && self.is_other_entry(address, instruction.ip()) {
                    references.jumped.push(address);
                }
                if instruction.flow_control() == FlowControl::Next && is_code(address) {
                    references.see_data(&instruction, address);
                }
            } else if is_fixed
                && instruction.flow_control() == FlowControl::Next
                && let Some(address) = absolute(&instruction).filter(|&address| is_code(address))
            {
                references.see_data(&instruction, address);
            } else if instruction.flow_control() == FlowControl::IndirectBranch {
                references.computed_jumps.push(address);
            }
            while starts.get(following).is_some_and(|&start| start <= address) {
                following += 1;
            }
            next = starts.get(following).map_or(next, |&start| next.min(start));
            if next != decoder.ip() {
                decoder.set_ip(next);
                decoder.set_position((next - piece.start) as usize).expect("it lies within the code");
            }
        }
        // Of a very large segment, a part is not read.
        references.is_complete = self.spend(effort) && decoder.ip() >= piece.end;
        references
    }

    /// Shows every word of eight bytes that the file loads; false when the file has used up its
    /// share of effort before, or more is loaded than was read.
    pub fn sweep_words(&self, mut show: impl FnMut(u64)) -> bool {
        if !self.image.is_whole() {
            return false;
        }
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
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::testing::{BASE, compile, image};

    #[test]
    fn code_is_decoded_anew_where_something_begins() {
        // ret; data; 2: jmp 2; data; 5: jmp rax
        let code = [0xc3, 0xe9, 0xeb, 0xfe, 0x06, 0xff, 0xe0];
        let image = image(&code);
        let text = Text::new(&image, vec![BASE, BASE + 2, BASE + 5]);
        let references = text.references();
        assert!(references.is_complete && references.addresses.contains(&(BASE + 2)), "{:x?}", references.addresses);
        assert!(references.computed_jumps.contains(&(BASE + 5)));
    }

    #[test]
    fn what_was_not_read_of_the_code_is_not_known() {
        let image = image(&[0xc3, 0xff, 0xe0, 0xe9]);
        let text = Text::new(&image, vec![BASE, BASE + 1]);
        let starts = text.starts();
        let read = image.code_from(BASE).unwrap().len() as u64;
        assert!(text.sweep(&(BASE..BASE + read), &starts).is_complete);
        let references = text.sweep(&(BASE..BASE + read + 100), &starts);
        assert!(!references.is_complete && references.computed_jumps.contains(&(BASE + 1)));
    }

    #[test]
    fn pieces_tell_what_the_whole_does() {
        let code = "int absent(int); int f(int x) { return absent(x) + 1; } int g(int x) { return f(x) * f(x + 1); }
            int h(int x) { switch (x) { case 0: return f(1); case 1: return g(2); case 2: return absent(3);
            case 3: return f(g(4)); case 4: return g(f(5)); default: return f(x); } }";
        let Some(image) = compile("c", code, &["-shared", "-fPIC", "-fno-inline"]) else { return };
        let functions = image.exports().unwrap().functions;
        let text = Text::new(&image, functions.iter().map(|function| function.address).collect());
        let starts = text.starts();
        assert!(text.pieces(&starts).len() > image.executable_ranges().len());
        let whole: Vec<References> = image.executable_ranges().iter().map(|range| text.sweep(range, &starts)).collect();
        let pieces = text.references();
        let of_whole =
            |addresses: fn(&References) -> &Vec<u64>| whole.iter().flat_map(addresses).copied().collect::<Vec<_>>();
        assert_eq!(pieces.addresses, of_whole(|whole| &whole.addresses));
        assert_eq!(pieces.called, of_whole(|whole| &whole.called));
        assert!(!pieces.addresses.is_empty() && !pieces.called.is_empty());
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
