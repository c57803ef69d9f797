//! Which code of a file the processor executes as it stands there, where the kernel takes probes.
//!
//! The kernel executes a copy of a probed instruction that it takes from the file. Where the dynamic linker patches an
//! instruction, the copy is another one than the program's. Every place for a probe is asked for here, whatever it is
//! to detect.

use std::ops::Range;

use rtrace_symbolizer::Image;

use crate::obstacle::Obstacle;

/// The parts of a file in which no probe may be, by virtual addresses or by offsets in the file.
pub struct Verbatim {
    /// To these the dynamic linker writes; sorted.
    relocated: Vec<Range<u64>>,
    /// To these the program may write.
    writable: Vec<Range<u64>>,
}

impl Verbatim {
    /// Those of `image`, by virtual addresses.
    pub fn of(image: &Image) -> Verbatim {
        Verbatim { relocated: image.relocated_code(), writable: image.writable_code() }
    }

    /// The same parts of `image`, by offsets in the file.
    pub fn by_offset(&self, image: &Image) -> Verbatim {
        let offsets = |range: Range<u64>| {
            let start = image.file_offset(range.start)?;
            Some(start..start + (range.end - range.start))
        };
        let in_file = |ranges: &[Range<u64>]| ranges.iter().cloned().filter_map(offsets).collect::<Vec<_>>();
        let mut relocated = in_file(&self.relocated);
        relocated.sort_unstable_by_key(|range| range.start);
        Verbatim { relocated, writable: in_file(&self.writable) }
    }

    /// Why no probe may be on the instruction that takes up this range, if there is a reason.
    pub fn obstacle(&self, instruction: &Range<u64>) -> Option<Obstacle> {
        if self.writable.iter().any(|range| range.contains(&instruction.start)) {
            return Some(Obstacle::Writable);
        }
        (self.end(instruction.start) < instruction.end).then_some(Obstacle::Relocated)
    }

    /// Up to where code from this place on is executed as it stands.
    pub fn end(&self, address: u64) -> u64 {
        if self.writable.iter().any(|range| range.contains(&address)) {
            return address;
        }
        let following = self.relocated.partition_point(|range| range.end <= address);
        self.relocated.get(following).map_or(u64::MAX, |range| range.start.max(address))
    }

    /// Where the dynamic linker writes; sorted.
    pub fn relocated(&self) -> &[Range<u64>] {
        &self.relocated
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instruction_is_verbatim_if_all_of_its_bytes_are() {
        let verbatim =
            Verbatim { relocated: vec![0x13..0x1b, 0x30..0x34], writable: std::iter::once(0x100..0x200).collect() };
        for (range, expected) in [
            (0x10..0x13, None),
            (0x11..0x1b, Some(Obstacle::Relocated)),
            (0x1a..0x1c, Some(Obstacle::Relocated)),
            (0x1b..0x30, None),
            (0x2f..0x31, Some(Obstacle::Relocated)),
            (0x34..0x40, None),
            (0x100..0x101, Some(Obstacle::Writable)),
        ] {
            assert_eq!(verbatim.obstacle(&range), expected, "{range:x?}");
        }
        assert_eq!(
            [0x10, 0x13, 0x1a, 0x1b, 0x34, 0x150].map(|at| verbatim.end(at)),
            [0x13, 0x13, 0x1a, 0x30, u64::MAX, 0x150]
        );
    }
}
