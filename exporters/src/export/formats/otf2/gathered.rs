//! What the events of an archive refer to, gathered while they are written.

use std::collections::HashMap;

use rtrace_model::{LocationId, RegionId, Timestamp};

use super::super::super::paths::Paths;
use super::super::super::samples::Series;
use super::super::super::step::Step;

/// The class of the metrics that calls have readings of.
pub(super) const METRICS: u32 = 0;

/// What the events refer to, and where they lie.
#[derive(Default)]
pub(super) struct Gathered {
    /// The locations with the number of their events.
    pub(super) locations: Vec<(LocationId, u64)>,
    /// The series of samples with the number of their values.
    pub(super) series: Vec<(Series, u64)>,
    pub(super) regions: Vec<RegionId>,
    pub(super) places: HashMap<RegionId, u32>,
    pub(super) paths: Paths,
    pub(super) span: Option<(Timestamp, Timestamp)>,
}

impl Gathered {
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
        self.paths.place(parent, Step::Function(region))
    }

    pub(super) fn at(&mut self, time: Timestamp) {
        let (begin, end) = self.span.unwrap_or((time, time));
        self.span = Some((begin.min(time), end.max(time)));
    }
}
