//! Parts of files.

use std::ops::Range;

/// Parts of a file, by offsets in bytes, sorted.
pub type FileParts = Vec<Range<u64>>;

/// The same parts, sorted, and those as one that overlap or touch.
pub fn union(mut parts: FileParts) -> FileParts {
    parts.sort_unstable_by_key(|part| part.start);
    let mut union = FileParts::with_capacity(parts.len());
    for part in parts {
        match union.last_mut() {
            Some(last) if part.start <= last.end => last.end = last.end.max(part.end),
            _ => union.push(part),
        }
    }
    union
}

/// Whether one of these parts has a byte of `range`, of those that lie within none of the `known` ones.
pub fn overlaps_beside(parts: &[Range<u64>], range: &Range<u64>, known: &[Range<u64>]) -> bool {
    let following = parts.partition_point(|part| part.end <= range.start);
    let mut touching = parts[following..].iter().take_while(|part| part.start < range.end);
    touching.any(|part| {
        let following = known.partition_point(|known| known.end < part.end);
        known.get(following).is_none_or(|known| part.start < known.start)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_overlap_what_has_a_byte_of_them() {
        let parts = [4..6, 10..11];
        for (range, expected) in
            [(0..4, false), (0..5, true), (5..9, true), (6..10, false), (10..11, true), (11..20, false)]
        {
            assert_eq!(overlaps_beside(&parts, &range, &[]), expected, "{range:?}");
        }
        assert!(!overlaps_beside(&[], &(0..9), &[]));
    }

    #[test]
    fn what_is_known_does_not_count() {
        let (parts, known) = ([4..6, 10..11, 20..25], [3..7, 20..24]);
        for (range, expected) in [(0..9, false), (0..11, true), (10..11, true), (19..21, true), (26..30, false)] {
            assert_eq!(overlaps_beside(&parts, &range, &known), expected, "{range:?}");
        }
    }

    #[test]
    fn parts_that_touch_become_one() {
        assert_eq!(union(vec![8..9, 0..4, 2..3, 4..6]), [0..6, 8..9]);
    }
}
