//! Which functions a function may end in by a jump instead of a return.
//!
//! Such a function is over when the other one returns, to the same address and with the same slot. All code is
//! looked at that control may come to by jumps: the function itself, its fragments elsewhere, and functions
//! that are not probed. A way out that is not understood may lead to any function, of any library.

use std::ops::Range;

use crate::text::{FunctionCode, Text, Ways};

/// A function whose jumps lead to more pieces of code is not followed.
const MOST_PARTS: usize = 64;

/// Which functions a function may end in by a jump instead of a return.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tails {
    /// None: it returns, or does not end.
    Never,
    /// These of its library, perhaps itself: file offsets of their first instructions, sorted.
    To(Vec<u64>),
    /// Any.
    Anywhere,
}

/// Which functions `function` may end in, of those that are probed.
pub fn of(text: &Text, function: FunctionCode, is_probed: impl Fn(u64) -> bool) -> Tails {
    let followed = text.extent(function).and_then(|extent| followed(text, extent, &is_probed));
    let Some(JumpTargets { reached, through_pointers: false }) = followed else { return Tails::Anywhere };
    let offsets: Option<Vec<u64>> = reached.into_iter().map(|entry| text.image().file_offset(entry)).collect();
    match offsets {
        None => Tails::Anywhere,
        Some(offsets) if offsets.is_empty() => Tails::Never,
        Some(mut offsets) => {
            offsets.sort_unstable();
            offsets.dedup();
            Tails::To(offsets)
        }
    }
}

pub use crate::text::leaves_frames;

/// Whether a function leaves its callers by a jump or a return with another stack pointer.
pub fn abandons(text: &Text, function: FunctionCode) -> bool {
    own_ways(text, function, |ways| ways.abandons).unwrap_or(false)
}

/// What is asked of the ways out of a function, without its parts elsewhere.
pub(crate) fn own_ways<T>(text: &Text, function: FunctionCode, ask: impl Fn(&Ways) -> T) -> Option<T> {
    let extent = text.extent(function)?;
    let frame = text.frame_at(extent.start).filter(|(_, frame)| (frame.start..frame.end) == extent);
    Some(frame.map_or_else(|| ask(&text.ways_out(&extent)), |(index, _)| ask(text.ways_out_of_frame(index))))
}

/// Where control may come to by jumps.
pub(crate) struct JumpTargets {
    /// The addresses of the functions that are not followed further.
    pub reached: Vec<u64>,
    /// Also where pointers lead.
    pub through_pointers: bool,
}

/// Where control may come to by jumps from this range of code, up to functions that are `known`; none where that
/// cannot be told.
pub(crate) fn followed(text: &Text, extent: Range<u64>, is_known: &impl Fn(u64) -> bool) -> Option<JumpTargets> {
    let entry = extent.start;
    let mut reached = Vec::new();
    let mut through_pointers = false;
    let mut parts = vec![extent];
    let mut next = 0;
    while let Some(part) = parts.get(next).cloned() {
        next += 1;
        let within = text.entries_from(part.start).iter().copied().take_while(|&start| start < part.end);
        reached.extend(within.filter(|&start| start != entry && is_known(start)));
        let frame = text.frame_at(part.start).filter(|(_, frame)| (frame.start..frame.end) == part);
        let computed;
        let ways: &Ways = match frame {
            Some((index, _)) => text.ways_out_of_frame(index),
            None => {
                computed = text.ways_out(&part);
                &computed
            }
        };
        if ways.is_unknown {
            return None;
        }
        through_pointers |= ways.through_pointers;
        // The unwinder comes to exception handlers without a jump.
        let handlers = frame.filter(|(_, frame)| frame.has_lsda).map(|(index, _)| text.fragments_of(index));
        let handlers = handlers.unwrap_or_default().iter().map(|&fragment| text.frame(fragment).start);
        for target in ways.targets.iter().copied().chain(handlers) {
            // By the linkage table it comes to the library's own function, unless another library has one of
            // that name and comes first: then its return is still detected, but it is nobody's caller.
            let target = text.linked(target).unwrap_or(target);
            if is_known(target) {
                reached.push(target);
            } else if !parts.iter().any(|part| part.contains(&target)) {
                let (_, frame) = text.frame_at(target).filter(|_| parts.len() < MOST_PARTS)?;
                parts.push(frame.start..frame.end);
            }
        }
    }
    Some(JumpTargets { reached, through_pointers })
}
