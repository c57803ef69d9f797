//! Which slides are sound: nothing comes to the bytes between the entry of a function and the site
//! of its enter but from the entry.
//!
//! A jump back to there, as in a loop that begins a function, would be counted as another call.
//! All code of the library is asked for branches and for addresses that it takes, all words that it
//! loads for addresses (symbols, relocations, tables), and an indirect jump within the function for
//! its targets. Exception handlers run with the function's frame on the stack, so none is there.

use std::ops::Range;

use foldhash::HashMap;

use crate::line::Place;
use crate::text::Text;

/// A site that is to be moved.
pub struct Slide {
    /// Where the code of the function is whose enter it sees.
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
    references.all().for_each(|address| candidates.see_address(address));
    references.computed_jumps.iter().for_each(|&jump| candidates.see_computed_jump(jump));
    let is_complete = references.is_complete && text.sweep_words(|word| candidates.see_address(word));
    if is_complete { candidates.sound(text) } else { HashMap::default() }
}

struct Candidates {
    /// Sorted by entry.
    candidates: Vec<Candidate>,
    /// Nothing behind it matters. Most words of a file are larger numbers.
    last_site: u64,
}

struct Candidate {
    slide: Slide,
    /// The first address after the entry to which something refers: what stands from there on may be
    /// reached without passing the entry.
    entered: u64,
    /// The function has a jump whose targets its operands do not tell.
    jumps_indirectly: bool,
}

impl Candidates {
    fn new(mut slides: Vec<Slide>) -> Candidates {
        slides.sort_by_key(|slide| slide.extent.start);
        let candidate = |slide| Candidate { slide, entered: u64::MAX, jumps_indirectly: false };
        let last_site = slides.iter().map(|slide| slide.site.address).max().unwrap_or(0);
        Candidates { candidates: slides.into_iter().map(candidate).collect(), last_site }
    }

    /// The candidate with the nearest entry up to `address`.
    fn before(&mut self, address: u64) -> Option<&mut Candidate> {
        if self.candidates.first().is_none_or(|first| address < first.slide.extent.start) {
            return None;
        }
        let following = self.candidates.partition_point(|candidate| candidate.slide.extent.start <= address);
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

    fn sound(self, text: &Text) -> HashMap<u64, Place> {
        self.candidates
            .into_iter()
            .filter_map(|candidate| Some((candidate.slide.extent.start, candidate.site(text)?)))
            .collect()
    }
}

impl Candidate {
    /// The site, if nothing enters before it.
    fn site(&self, text: &Text) -> Option<Place> {
        let Slide { extent, site } = &self.slide;
        let mut entered = self.entered;
        if self.jumps_indirectly {
            let ways = text.ways_out(extent);
            if ways.is_unknown {
                return None;
            }
            let behind = ways.tables.iter().copied().filter(|&target| target > extent.start);
            entered = behind.fold(entered, u64::min);
        }
        (site.address < entered).then_some(*site)
    }
}
