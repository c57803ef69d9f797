//! The order of calls by thread and ID.
//!
//! Calls come when they end, so they are nearly in order, and the IDs of a thread are consecutive. Putting each into the
//! place that its ID says takes less time than a sort.

use foldhash::{HashMap, HashMapExt as _};
use rtrace_model::LocationId;

/// A call without its place.
const NONE: u32 = u32::MAX;

/// Places for IDs that have none among the calls: for each call so many. Above, the calls are sorted.
const SPARSE: u64 = 4;

/// IDs of the calls of a thread.
struct Ids {
    location: LocationId,
    first: u64,
    last: u64,
    /// The place of the first one.
    begin: usize,
}

/// The numbers of `calls` calls by location and ID; those of equal ones as they are.
pub(crate) fn of_calls(calls: usize, key: impl Fn(usize) -> (LocationId, u64)) -> Vec<u32> {
    by_places(calls, &key).unwrap_or_else(|| {
        let mut order: Vec<u32> = (0..calls as u32).collect();
        order.sort_by_key(|&call| key(call as usize));
        order
    })
}

/// `None` where the IDs are too far from each other, or one is there twice.
fn by_places(calls: usize, key: impl Fn(usize) -> (LocationId, u64)) -> Option<Vec<u32>> {
    let mut threads: Vec<Ids> = Vec::new();
    let mut thread_of = HashMap::new();
    let mut last = 0;
    for call in 0..calls {
        let (location, id) = key(call);
        if threads.get(last).is_none_or(|ids| ids.location != location) {
            last = *thread_of.entry(location).or_insert_with(|| {
                threads.push(Ids { location, first: id, last: id, begin: 0 });
                threads.len() - 1
            });
        }
        let ids = &mut threads[last];
        (ids.first, ids.last) = (ids.first.min(id), ids.last.max(id));
    }
    threads.sort_unstable_by_key(|ids| ids.location);
    let most = SPARSE * calls as u64;
    let mut places = 0_u64;
    for ids in &mut threads {
        ids.begin = places as usize;
        places = places.checked_add(ids.last - ids.first)?.checked_add(1).filter(|&places| places <= most)?;
    }
    thread_of.extend(threads.iter().enumerate().map(|(place, ids)| (ids.location, place)));
    let mut order = vec![NONE; places as usize];
    for call in 0..calls {
        let (location, id) = key(call);
        if threads[last].location != location {
            last = thread_of[&location];
        }
        let place = &mut order[threads[last].begin + (id - threads[last].first) as usize];
        if *place != NONE {
            return None;
        }
        *place = call as u32;
    }
    order.retain(|&call| call != NONE);
    Some(order)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn is_sorted_by(keys: &[(u32, u64)]) -> bool {
        let key = |call: usize| (LocationId(keys[call].0), keys[call].1);
        let mut sorted: Vec<u32> = (0..keys.len() as u32).collect();
        sorted.sort_by_key(|&call| key(call as usize));
        of_calls(keys.len(), key) == sorted
    }

    #[test]
    fn far_equal_and_extreme_ids_are_sorted() {
        for keys in [
            &[][..],
            &[(3, 7)],
            &[(1, 9), (1, 1), (2, 1), (1, 5)],
            &[(1, u64::MAX), (1, 0), (0, 5)],
            &[(1, 4), (0, 4), (1, 4), (1, 3)],
            &[(0, u64::MAX), (1, u64::MAX)],
        ] {
            assert!(is_sorted_by(keys), "{keys:?}");
        }
    }

    #[test]
    fn consecutive_ids_need_no_sort() {
        let ids = [3, 2, 4, 1, 5];
        let key = |call: usize| (LocationId(call as u32 % 2), ids[call % 5] + call as u64 / 5 * 5);
        assert!(by_places(100, key).is_some());
        assert!(by_places(2, |call| (LocationId(0), call as u64 * 100)).is_none());
    }

    proptest! {
        #[test]
        fn the_order_is_that_of_a_sort(keys in prop::collection::vec((0..4_u32, 0..60_u64), 0..80)) {
            prop_assert!(is_sorted_by(&keys));
        }
    }
}
