//! Which slides are sound: nothing comes to the bytes between the entry of a function and the site
//! of its enter but from the entry.
//!
//! A jump back to there, as in a loop that begins a function, would be counted as another call.
//! All code of the library is asked for branches and for addresses that it takes, all words that it
//! loads for addresses (symbols, relocations, tables), and an indirect jump within the function for
//! its targets. Exception handlers run with the function's frame on the stack, so none is there.

use std::ops::Range;

use foldhash::HashMap;

use crate::line::CodePoint;
use crate::text::Text;

/// A site that is to be moved.
pub struct MovedEntry {
    /// Where the code of the function is whose enter it sees.
    pub extent: Range<u64>,
    /// Where the site is to be.
    pub site: CodePoint,
}

/// The site of each function, by entry, to which the slide is sound.
pub fn sound(text: &Text, moved: Vec<MovedEntry>) -> HashMap<u64, CodePoint> {
    if moved.is_empty() {
        return HashMap::default();
    }
    let mut candidates = Candidates::new(moved);
    let references = text.references();
    references.all().for_each(|address| candidates.see_address(address));
    references.computed_jumps.iter().for_each(|&jump| candidates.see_computed_jump(jump));
    let is_complete = references.is_complete && text.sweep_words(|word| candidates.see_address(word));
    if is_complete { candidates.sound(text) } else { HashMap::default() }
}

struct Candidates {
    /// Sorted by entry.
    candidates: Vec<SiteCandidate>,
    /// Nothing behind it matters. Most words of a file are larger numbers.
    last_site: u64,
}

struct SiteCandidate {
    moved: MovedEntry,
    /// The first address after the entry to which something refers: what stands from there on may be
    /// reached without passing the entry.
    entered: u64,
    /// The function has a jump whose targets its operands do not tell.
    jumps_indirectly: bool,
}

impl Candidates {
    fn new(mut moved: Vec<MovedEntry>) -> Candidates {
        moved.sort_by_key(|moved| moved.extent.start);
        let candidate = |moved| SiteCandidate { moved, entered: u64::MAX, jumps_indirectly: false };
        let last_site = moved.iter().map(|moved| moved.site.address).max().unwrap_or(0);
        Candidates { candidates: moved.into_iter().map(candidate).collect(), last_site }
    }

    /// The candidate with the nearest entry up to `address`.
    fn before(&mut self, address: u64) -> Option<&mut SiteCandidate> {
        if self.candidates.first().is_none_or(|first| address < first.moved.extent.start) {
            return None;
        }
        let following = self.candidates.partition_point(|candidate| candidate.moved.extent.start <= address);
        self.candidates[..following].last_mut()
    }

    fn see_computed_jump(&mut self, address: u64) {
        if let Some(candidate) = self.before(address) {
            candidate.jumps_indirectly |= candidate.moved.extent.contains(&address);
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

    fn sound(self, text: &Text) -> HashMap<u64, CodePoint> {
        self.candidates
            .into_iter()
            .filter_map(|candidate| Some((candidate.moved.extent.start, candidate.site(text)?)))
            .collect()
    }
}

impl SiteCandidate {
    /// The site, if nothing enters before it.
    fn site(&self, text: &Text) -> Option<CodePoint> {
        let MovedEntry { extent, site } = &self.moved;
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
