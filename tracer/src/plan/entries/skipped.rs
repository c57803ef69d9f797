//! Which slides are sound: nothing comes to the bytes between the entry of a function and the site
//! of its enter but from the entry.
//!
//! A jump back to there, as in a loop that begins a function, would be counted as another call.
//! All code of the library is asked for branches and for addresses that it takes, all words that it
//! loads for addresses (symbols, relocations, tables), and an indirect jump within the function for
//! its targets. Exception handlers run with the function's frame on the stack, so none is there.

use std::ops::Range;

use foldhash::HashMap;

use super::line::Place;
use crate::plan::exits::{self, FunctionCode};
use crate::plan::text::Text;

/// A site that is to be moved.
pub struct Slide<'a> {
    /// The function whose enter it sees.
    pub function: FunctionCode<'a>,
    /// Where its code is.
    pub extent: Range<u64>,
    /// Where the site is to be.
    pub site: Place,
}

/// The site of each function, by entry, to which the slide is sound.
pub fn sound(text: &Text, slides: Vec<Slide>) -> HashMap<u64, Place> {
    if slides.is_empty() {
        return HashMap::default();
    }
    let mut candidates = Candidates::new(slides);
    let references = text.references();
    references.all.iter().for_each(|reference| candidates.see_address(reference.to));
    references.computed_jumps.iter().for_each(|&jump| candidates.see_computed_jump(jump));
    let is_complete = references.is_complete && text.sweep_words(|word| candidates.see_address(word));
    if is_complete { candidates.sound() } else { HashMap::default() }
}

struct Candidates<'a> {
    /// Sorted by entry.
    candidates: Vec<Candidate<'a>>,
    /// Nothing behind it matters. Most words of a file are larger numbers.
    last_site: u64,
}

struct Candidate<'a> {
    slide: Slide<'a>,
    /// The first address after the entry to which something refers: what stands from there on may be
    /// reached without passing the entry.
    entered: u64,
    /// The function has a jump whose targets its operands do not tell.
    jumps_indirectly: bool,
}

impl<'a> Candidates<'a> {
    fn new(mut slides: Vec<Slide<'a>>) -> Candidates<'a> {
        slides.sort_by_key(|slide| slide.function.entry);
        let candidate = |slide| Candidate { slide, entered: u64::MAX, jumps_indirectly: false };
        let last_site = slides.iter().map(|slide| slide.site.address).max().unwrap_or(0);
        Candidates { candidates: slides.into_iter().map(candidate).collect(), last_site }
    }

    /// The candidate with the nearest entry up to `address`.
    fn before(&mut self, address: u64) -> Option<&mut Candidate<'a>> {
        if self.candidates.first().is_none_or(|first| address < first.slide.function.entry) {
            return None;
        }
        let following = self.candidates.partition_point(|candidate| candidate.slide.function.entry <= address);
        self.candidates[..following].last_mut()
    }

    fn see_computed_jump(&mut self, address: u64) {
        if let Some(candidate) = self.before(address) {
            candidate.jumps_indirectly |= candidate.slide.extent.contains(&address);
        }
    }

    fn see_address(&mut self, address: u64) {
        if address > self.last_site {
            return;
        }
        if let Some(candidate) = address.checked_sub(1).and_then(|address| self.before(address)) {
            candidate.entered = candidate.entered.min(address);
        }
    }

    fn sound(self) -> HashMap<u64, Place> {
        self.candidates
            .into_iter()
            .filter_map(|candidate| Some((candidate.slide.function.entry, candidate.site()?)))
            .collect()
    }
}

impl Candidate<'_> {
    /// The site, if nothing enters before it.
    fn site(&self) -> Option<Place> {
        let Slide { function, site, .. } = &self.slide;
        let entered = if self.jumps_indirectly {
            let behind = exits::jump_targets(function).ok()?.filter(|&target| target > function.entry);
            behind.min().map_or(self.entered, |target| self.entered.min(target))
        } else {
            self.entered
        };
        (site.address < entered).then_some(*site)
    }
}
