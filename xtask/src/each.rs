//! Maps items in parallel, with a bound on the number of threads.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Applies the function to every item, a few at a time; returns the results in the order of items.
pub(crate) fn each<T: Sync, R: Send>(
    threads: usize,
    items: &[T],
    act: impl Fn(usize, &T) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(index) else { return done };
            done.push((index, act(index, item)));
        }
    };
    let mut results: BTreeMap<usize, R> = BTreeMap::new();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            let done = worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            results.extend(done);
        }
    });
    results.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::each;

    #[test]
    fn results_come_in_the_order_of_items() {
        let items: Vec<u64> = (0..100).collect();
        for threads in [0, 1, 2, 200] {
            let squares = each(threads, &items, |index, item| index as u64 * item);
            assert!(squares.into_iter().eq(items.iter().map(|item| item * item)), "{threads}");
        }
    }
}
