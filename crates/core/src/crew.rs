//! Clients side by side: parallelism at one level.
use std::sync::{Mutex, PoisonError};

use fedeq_memory::give_back;
use rayon::ThreadPoolBuilder;

/// Works on all items, as many at a time as the current rayon pool has threads; results come in the order of the items.
///
/// Tensor operations have a parallelism of their own. Inside it, a thread that waits for others would begin another item meanwhile, and hold
/// the memory of both. So every item gets threads that nobody else uses: one, or more where there are fewer items than threads.
pub(crate) fn side_by_side<T: Send, R: Send>(items: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
    let threads = rayon::current_num_threads();
    let crew = threads.min(items.len());
    if crew <= 1 {
        return items.into_iter().map(work).collect();
    }
    let results = Mutex::new(items.iter().map(|_| None).collect::<Vec<Option<R>>>());
    let queue = Mutex::new(items.into_iter().enumerate());
    // A function of its own, so that the lock is gone before the work begins.
    let next = || lock(&queue).next();
    let hand = || {
        while let Some((index, item)) = next() {
            let result = work(item);
            lock(&results)[index] = Some(result);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..crew {
            scope.spawn(|| match ThreadPoolBuilder::new().num_threads(threads / crew).build() {
                Ok(pool) => pool.install(hand),
                Err(_) => hand(), // No more threads to be had: this one still works.
            });
        }
    });
    give_back();
    let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.into_iter().map(|result| result.expect("the queue is empty")).collect()
}

/// The lock, also after somebody panicked with it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_pool<R: Send>(threads: usize, work: impl FnOnce() -> R + Send) -> R {
        ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool").install(work)
    }

    #[test]
    fn results_come_in_order_for_any_number_of_threads() {
        for threads in [1, 2, 3, 8] {
            let doubled = in_pool(threads, || side_by_side((0..20).collect(), |item: usize| 2 * item));
            assert_eq!(doubled, (0..20).map(|item| 2 * item).collect::<Vec<_>>());
        }
    }

    #[test]
    fn items_are_worked_on_at_the_same_time() {
        let begun = std::sync::Barrier::new(3);
        // Would wait forever if they came one by one.
        let leaders = in_pool(3, || side_by_side(vec![(); 3], |()| begun.wait().is_leader()));
        assert_eq!(leaders.into_iter().filter(|&leader| leader).count(), 1);
    }

    #[test]
    fn an_item_shares_its_threads_with_nobody() {
        let threads_of =
            |threads, items: usize| in_pool(threads, || side_by_side(vec![(); items], |()| rayon::current_num_threads()));
        assert_eq!(threads_of(4, 8), [1; 8]);
        assert_eq!(threads_of(4, 2), [2; 2]);
        assert_eq!(threads_of(4, 1), [4]);
    }
}
