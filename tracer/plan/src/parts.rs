//! Parts of files.

use std::ops::Range;

/// Parts of a file, by offsets in bytes, sorted.
pub type Parts = Vec<Range<u64>>;

/// The same parts, sorted, and those as one that overlap or touch.
pub fn union(mut parts: Parts) -> Parts {
    parts.sort_unstable_by_key(|part| part.start);
    let mut union = Parts::with_capacity(parts.len());
    for part in parts {
        match union.last_mut() {
            Some(last) if part.start <= last.end => last.end = last.end.max(part.end),
            _ => union.push(part),
        }
    }
    union
}

/// Whether one of these parts has a byte of `range`.
pub fn overlaps(parts: &[Range<u64>], range: &Range<u64>) -> bool {
    let following = parts.partition_point(|part| part.end <= range.start);
    parts.get(following).is_some_and(|part| part.start < range.end)
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
            assert_eq!(overlaps(&parts, &range), expected, "{range:?}");
        }
        assert!(!overlaps(&[], &(0..9)));
    }

    #[test]
    fn parts_that_touch_become_one() {
        assert_eq!(union(vec![8..9, 0..4, 2..3, 4..6]), [0..6, 8..9]);
    }
}
