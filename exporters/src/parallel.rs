//! Work that is shared between the CPUs.

use std::sync::mpsc::sync_channel;
use std::thread;

/// Threads at most: each may have a trace of its own in memory.
const MOST: usize = 8;

/// Gives `take` what `of` makes of each number below `count`, in their order, while other threads make what comes next.
///
/// At most one result of each thread is in memory beside the one that is taken.
///
/// # Errors
/// Those of `take`: after one, no further result is taken.
pub fn in_order<R: Send, E>(
    count: usize,
    of: impl Fn(usize) -> R + Sync,
    mut take: impl FnMut(R) -> Result<(), E>,
) -> Result<(), E> {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(MOST).min(count);
    if threads < 2 {
        return (0..count).try_for_each(|number| take(of(number)));
    }
    let of = &of;
    thread::scope(|scope| {
        // Each thread makes every n-th result, so the next one always comes from the next thread.
        let results: Vec<_> = (0..threads)
            .map(|first| {
                let (sender, results) = sync_channel(0);
                // After an error nobody receives.
                scope
                    .spawn(move || (first..count).step_by(threads).try_for_each(|number| sender.send(of(number)).ok()));
                results
            })
            .collect();
        // A thread that panics sends nothing more; the scope hands its panic on.
        results.iter().cycle().take(count).map_while(|results| results.recv().ok()).try_for_each(&mut take)
    })
}

#[cfg(test)]
mod tests {
    use super::in_order;

    #[test]
    fn results_come_in_the_order_of_the_numbers() {
        for count in [0, 1, 2, 3, 1000] {
            let mut results = Vec::new();
            let mut take = |result| {
                results.push(result);
                Ok::<_, ()>(())
            };
            assert_eq!(in_order(count, |number| number * 2, &mut take), Ok(()));
            assert_eq!(results, (0..count).map(|number| number * 2).collect::<Vec<_>>());
        }
    }

    #[test]
    fn after_an_error_nothing_is_taken() {
        let mut taken = 0;
        let take = |number: usize| {
            taken += 1;
            if number == 5 { Err(number) } else { Ok(()) }
        };
        assert_eq!(in_order(1000, |number| number, take), Err(5));
        assert_eq!(taken, 6);
    }

    #[test]
    #[should_panic(expected = "a scoped thread panicked")]
    fn a_panic_is_handed_on() {
        let _ = in_order(100, |_| panic!("one of many"), |()| Ok::<_, ()>(()));
    }
}
