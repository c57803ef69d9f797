//! What the events of an archive refer to, gathered while they are written.

use std::collections::HashMap;

use rtrace_model::{Ending, LocationId, RegionId, Timestamp};

use super::super::super::paths::ExportPaths;
use super::super::super::samples::Series;
use super::super::super::step::PathStep;

/// The class of the metrics that calls have readings of.
pub(super) const METRICS: u32 = 0;

/// Bytes of texts that are values: each stays in memory, as it is defined when all events are written.
const MOST_TEXTS: usize = 64 << 20;

/// What a text takes beside its bytes, about.
const TEXT_COST: usize = 64;

/// What the events refer to, and where they lie.
#[derive(Default)]
pub(super) struct Gathered {
    /// The locations with the number of their events.
    pub(super) locations: Vec<(LocationId, u64)>,
    /// The series of samples with the number of their values.
    pub(super) series: Vec<(Series, u64)>,
    pub(super) regions: Vec<RegionId>,
    pub(super) places: HashMap<RegionId, u32>,
    pub(super) paths: ExportPaths,
    pub(super) span: Option<(Timestamp, Timestamp)>,
    /// Names of parameters with the kind of their events, in the order of their numbers.
    pub(super) parameters: Vec<(String, u8)>,
    parameter_numbers: HashMap<(String, u8), u32>,
    /// Texts that events refer to, in the order of their numbers.
    pub(super) texts: Vec<String>,
    text_numbers: HashMap<String, u32>,
    text_bytes: usize,
    /// What else is left out.
    pub(super) remarks: Vec<String>,
    /// Values without a record, as there were too many texts.
    pub(super) left_out: u64,
}

impl Gathered {
    pub(super) fn new() -> Gathered {
        let mut gathered = Gathered::default();
        for text in first_strings() {
            gathered.text(text.to_owned());
        }
        gathered
    }

    /// The archive's number of a parameter whose events are of that kind.
    pub(super) fn parameter(&mut self, name: &str, kind: u8) -> u32 {
        let next = self.parameters.len() as u32;
        let number = *self.parameter_numbers.entry((name.to_owned(), kind)).or_insert(next);
        if number == next {
            self.parameters.push((name.to_owned(), kind));
        }
        number
    }

    /// The archive's number of a text; `None` where there are too many.
    pub(super) fn text(&mut self, text: String) -> Option<u32> {
        if let Some(&number) = self.text_numbers.get(&text) {
            return Some(number);
        }
        let bytes = self.text_bytes + 2 * text.len() + TEXT_COST;
        if bytes > MOST_TEXTS {
            self.left_out += 1;
            return None;
        }
        self.text_bytes = bytes;
        let number = self.texts.len() as u32;
        self.texts.push(text.clone());
        self.text_numbers.insert(text, number);
        Some(number)
    }

    /// The archive's number of a region: they count up from 0 without holes.
    pub(super) fn region(&mut self, id: RegionId) -> u32 {
        *self.places.entry(id).or_insert_with(|| {
            self.regions.push(id);
            self.regions.len() as u32 - 1
        })
    }

    /// The archive's number of a call path.
    pub(super) fn path(&mut self, parent: Option<usize>, region: RegionId) -> usize {
        self.region(region);
        self.paths.place(parent, PathStep::Function(region))
    }

    pub(super) fn at(&mut self, time: Timestamp) {
        let (begin, end) = self.span.unwrap_or((time, time));
        self.span = Some((begin.min(time), end.max(time)));
    }
}

/// The first texts that are defined.
fn first_strings() -> impl Iterator<Item = &'static str> {
    std::iter::once("").chain(Ending::ALL.into_iter().map(Ending::name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_beyond_the_bound_are_counted() {
        let mut gathered = Gathered::new();
        let first = gathered.text("a".repeat(MOST_TEXTS / 4));
        assert_eq!(first, Some(first_strings().count() as u32));
        assert_eq!(gathered.text("b".repeat(MOST_TEXTS / 2)), None);
        assert_eq!(gathered.text("b".repeat(MOST_TEXTS / 2)), None);
        assert_eq!(gathered.text("a".repeat(MOST_TEXTS / 4)), first);
        assert_eq!(gathered.text(String::new()), Some(0));
        assert_eq!(gathered.left_out, 2);
    }
}
