//! Work that is shared between the CPUs.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Shares of the work per thread: it ends nowhere much later than elsewhere, though some take longer.
const SHARES: usize = 16;

/// What `of` makes of each item, in their order.
pub fn map<T: Sync, R: Send>(items: &[T], of: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(items.len());
    if threads < 2 {
        return items.iter().map(of).collect();
    }
    let shares: Vec<&[T]> = items.chunks(items.len().div_ceil(threads * SHARES)).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(share) = shares.get(index) else { return done };
            done.push((index, share.iter().map(&of).collect::<Vec<R>>()));
        }
    };
    let mut done = thread::scope(|scope| {
        let helpers: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mut done = work();
        for helper in helpers {
            done.extend(helper.join().unwrap_or_else(|panic| resume_unwind(panic)));
        }
        done
    });
    done.sort_unstable_by_key(|(index, _)| *index);
    done.into_iter().flat_map(|(_, results)| results).collect()
}

#[cfg(test)]
mod tests {
    use super::map;

    #[test]
    fn results_come_in_the_order_of_the_items() {
        for count in [0, 1, 2, 3, 1000] {
            let items: Vec<usize> = (0..count).collect();
            assert_eq!(map(&items, |item| item * 2), (0..count).map(|item| item * 2).collect::<Vec<_>>());
        }
    }

    #[test]
    #[should_panic(expected = "one of many")]
    fn a_panic_is_handed_on() {
        map(&[1; 100], |_| panic!("one of many"));
    }
}
