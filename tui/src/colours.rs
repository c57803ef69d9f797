//! Which colour is whose: a hue for each library, a shade of it for each function. A library has the same hue in every
//! recording, as far as no other one there has taken it.

use std::collections::BTreeMap;

use ratatui::style::Style;
use rtrace_model::{LibraryId, RegionId};

use crate::state::State;
use crate::theme::{HUES, Theme};

/// The hues of the libraries of a recording.
#[derive(Debug)]
pub struct Colours {
    theme: Theme,
    hues: BTreeMap<LibraryId, usize>,
}

impl Colours {
    /// Those of a recording.
    pub fn of(state: &State, theme: Theme) -> Colours {
        let mut taken = [false; HUES];
        let mut hue_of = |name: &str| {
            let wanted = wanted(name);
            let free = (0..HUES).map(|step| (wanted + step) % HUES).find(|&hue| !taken[hue]);
            let hue = free.unwrap_or(wanted);
            taken[hue] = true;
            hue
        };
        Colours { theme, hues: state.libraries().map(|(id, name)| (id, hue_of(name))).collect() }
    }

    /// A call on a timeline; absent without colours.
    pub fn ground(&self, state: &State, region: RegionId) -> Option<Style> {
        self.theme.ground(self.hue_of(state, region), region.index())
    }

    /// A cell of a timeline that is covered in part.
    pub fn part(&self, state: &State, region: RegionId) -> Style {
        self.theme.mark(self.hue_of(state, region), region.index())
    }

    /// What stands for a library.
    pub fn library(&self, library: LibraryId) -> Style {
        self.theme.mark(self.hues.get(&library).copied().unwrap_or(0), 0)
    }

    /// What stands for the library of a function.
    pub fn function(&self, state: &State, region: RegionId) -> Style {
        self.theme.mark(self.hue_of(state, region), 0)
    }

    fn hue_of(&self, state: &State, region: RegionId) -> usize {
        let library = state.function(region).map(|function| function.library);
        library.and_then(|library| self.hues.get(&library)).copied().unwrap_or(0)
    }
}

/// The hue that a library would have alone: by its name without the version (FNV-1a).
fn wanted(name: &str) -> usize {
    let stem = name.split(".so").next().unwrap_or(name);
    let hash = stem
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    (hash >> 32) as usize % HUES
}

#[cfg(test)]
mod tests {
    use rtrace_model::{Definition, Library};

    use super::*;
    use crate::state::Span;

    fn state(names: &[&str]) -> State {
        let mut state = State::new(Span::Live, false);
        for (id, name) in (0..).map(LibraryId).zip(names) {
            let path = format!("/lib/{name}");
            state.define(&Definition::Library(Library { id, path, apart: None, build_id: None, device: 0, inode: 0 }));
        }
        state
    }

    #[test]
    fn a_library_keeps_its_colour_and_shares_it_late() {
        let theme = Theme::of_environment(|_| None);
        let colours = |names: &[&str]| {
            let colours = Colours::of(&state(names), theme);
            (0..names.len() as u32).map(|id| colours.library(LibraryId(id))).collect::<Vec<_>>()
        };
        let alone = colours(&["libz.so.1"])[0];
        assert_eq!(colours(&["libz.so.1.3.1", "libc.so.6"])[0], alone, "another version");
        let many: Vec<String> = (0..HUES).map(|id| format!("lib{id}.so")).collect();
        let many = colours(&many.iter().map(String::as_str).collect::<Vec<_>>());
        assert!((1..HUES).all(|place| !many[..place].contains(&many[place])), "{many:?}");
        assert_eq!(colours(&["a"; HUES + 1]).len(), HUES + 1);
    }
}
