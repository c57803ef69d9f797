//! Which slides are sound: nothing comes to the bytes between the entry of a function and the site
//! of its enter but from the entry.
//!
//! A jump back to there, as in a loop that begins a function, would be counted as another call.
//! All code of the library is asked for branches and for addresses that it takes, all words that it
//! loads for addresses (symbols, relocations, tables), and an indirect jump within the function for
//! its targets. Exception handlers run with the function's frame on the stack, so none is there.

use std::collections::HashMap;
use std::ops::Range;

use iced_x86::{FlowControl, Instruction, OpKind};

use crate::plan::exits::{self, FunctionCode};
use crate::plan::text::Text;

/// A site that is to be moved.
pub struct Slide<'a> {
    /// The function whose enter it sees.
    pub function: FunctionCode<'a>,
    /// Where its code is.
    pub extent: Range<u64>,
    /// Where the site is to be.
    pub site: u64,
}

impl Slide<'_> {
    /// Whether what goes to `address` comes to the site, or to what stands before it, without passing
    /// the entry.
    fn is_entered_at(&self, address: u64) -> bool {
        self.function.entry < address && address <= self.site
    }
}

/// The site of each function, by entry, whose slide is sound.
pub fn sound(text: &Text, slides: Vec<Slide>) -> HashMap<u64, u64> {
    if slides.is_empty() {
        return HashMap::new();
    }
    let mut candidates = Candidates::new(slides);
    let is_complete = text.sweep_code(|instruction| candidates.see_instruction(instruction))
        && text.sweep_words(|word| candidates.see_address(word));
    if is_complete { candidates.sound() } else { HashMap::new() }
}

struct Candidates<'a> {
    /// Sorted by entry.
    candidates: Vec<Candidate<'a>>,
}

struct Candidate<'a> {
    slide: Slide<'a>,
    /// Something refers to what it skips.
    is_entered: bool,
    /// The function has a jump whose targets its operands do not tell.
    jumps_indirectly: bool,
}

impl<'a> Candidates<'a> {
    fn new(mut slides: Vec<Slide<'a>>) -> Candidates<'a> {
        slides.sort_by_key(|slide| slide.function.entry);
        let candidate = |slide| Candidate { slide, is_entered: false, jumps_indirectly: false };
        Candidates { candidates: slides.into_iter().map(candidate).collect() }
    }

    /// The candidate with the nearest entry up to `address`.
    fn before(&mut self, address: u64) -> Option<&mut Candidate<'a>> {
        let following = self.candidates.partition_point(|candidate| candidate.slide.function.entry <= address);
        self.candidates[..following].last_mut()
    }

    fn see_instruction(&mut self, instruction: &Instruction) {
        if instruction.op0_kind() == OpKind::NearBranch64 {
            self.see_address(instruction.near_branch_target());
        } else if instruction.is_ip_rel_memory_operand() {
            self.see_address(instruction.ip_rel_memory_address());
        } else if instruction.flow_control() == FlowControl::IndirectBranch
            && let Some(candidate) = self.before(instruction.ip())
        {
            candidate.jumps_indirectly |= candidate.slide.extent.contains(&instruction.ip());
        }
    }

    fn see_address(&mut self, address: u64) {
        if let Some(candidate) = address.checked_sub(1).and_then(|address| self.before(address)) {
            candidate.is_entered |= candidate.slide.is_entered_at(address);
        }
    }

    fn sound(self) -> HashMap<u64, u64> {
        let is_sound = |candidate: &Candidate| {
            let slide = &candidate.slide;
            let jumps_elsewhere = || {
                exits::jump_targets(&slide.function)
                    .is_ok_and(|mut targets| !targets.any(|target| slide.is_entered_at(target)))
            };
            !candidate.is_entered && (!candidate.jumps_indirectly || jumps_elsewhere())
        };
        let sound = self.candidates.into_iter().filter(is_sound);
        sound.map(|candidate| (candidate.slide.function.entry, candidate.slide.site)).collect()
    }
}
