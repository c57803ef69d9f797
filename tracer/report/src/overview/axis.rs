//! Time in equal slices. How long a recording is may be known only when its calls are read, so slices become wider as
//! later times appear: each time two of them become one.

use rtrace_model::Timestamp;

/// A bounded number of slices from the beginning of a recording.
#[derive(Clone, Debug)]
pub struct Axis {
    begin: Timestamp,
    /// The binary logarithm of a slice's nanoseconds.
    scale: u32,
    slices: u32,
}

impl Axis {
    pub(super) fn new(begin: Timestamp, slices: u32) -> Axis {
        Axis { begin, scale: 0, slices }
    }

    /// Most slices.
    pub fn slices(&self) -> u32 {
        self.slices
    }

    /// Of a slice, in nanoseconds.
    pub fn width(&self) -> u64 {
        1 << self.scale
    }

    pub(super) fn scale(&self) -> u32 {
        self.scale
    }

    /// Nanoseconds since the beginning; 0 before it.
    pub(super) fn offset(&self, time: Timestamp) -> u64 {
        time.since(self.begin)
    }

    /// The slice of an instant, unless it is after the last one.
    pub(super) fn slice(&self, time: Timestamp) -> Option<u32> {
        let slice = self.offset(time) >> self.scale;
        (slice < u64::from(self.slices)).then_some(slice as u32)
    }

    /// The slice of an instant, or the last one.
    pub(super) fn nearest(&self, time: Timestamp) -> u32 {
        self.slice(time).unwrap_or(self.slices - 1)
    }

    /// Makes two slices one.
    pub(super) fn widen(&mut self) {
        self.scale = (self.scale + 1).min(u64::BITS - 1);
    }
}
