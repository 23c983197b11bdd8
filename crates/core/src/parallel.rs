//! Clients side by side: parallelism at one level.
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fedeq_memory::give_back;
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::error::{Error, Result};

/// Threads that work on clients, for as long as anybody holds them: what a thread has prepared for its next client, such as scratch memory, is still there in the next round.
///
/// Tensor operations have a parallelism of their own. Inside it, a thread that waits for others would begin another client meanwhile, and hold
/// the memory of both. So every client gets threads of its own: one, or more where there are fewer clients than threads.
#[derive(Clone)]
pub struct Workers {
    threads: usize,
    /// Pools by the number of their threads; made when they are first needed.
    pools: Arc<Mutex<BTreeMap<usize, Vec<Arc<ThreadPool>>>>>,
}

impl Workers {
    /// So many threads; 0 means as many as there are cores.
    pub fn new(threads: usize) -> Result<Self> {
        let threads = if threads == 0 { rayon::current_num_threads() } else { threads };
        let workers = Self { threads, pools: Arc::default() };
        workers.pools(1, threads)?; // Refuses what the system does not give now, and not in the middle of a run.
        Ok(workers)
    }

    /// How many threads there are.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Works on all items, as many at a time as there are threads; results come in the order of the items. Those that cost most come first, so that no thread begins
    /// long work when all others are about to finish.
    pub fn map_clients<T: Sync, R: Send>(
        &self,
        items: &[T],
        cost: impl Fn(&T) -> usize,
        work: impl Fn(&T) -> R + Sync,
    ) -> Vec<R> {
        let results: Vec<Mutex<Option<R>>> = items.iter().map(|_| Mutex::new(None)).collect();
        let queue = Mutex::new(longest_first(items, cost).into_iter());
        // A function of its own, so that the lock is gone before the work begins.
        let next = || lock(&queue).next();
        let work_off = || {
            while let Some(at) = next() {
                let result = work(&items[at]);
                *lock(&results[at]) = Some(result);
            }
        };
        let at_once = self.threads.min(items.len()).max(1);
        match self.pools(self.threads / at_once, at_once) {
            Ok(pools) => in_each(&pools, &work_off),
            Err(_) => work_off(), // No more threads to be had: this one still works.
        }
        give_back();
        let done = |result: Mutex<Option<R>>| result.into_inner().unwrap_or_else(PoisonError::into_inner);
        results.into_iter().map(|result| done(result).expect("the queue is empty")).collect()
    }

    /// So many pools of so many threads.
    fn pools(&self, threads: usize, count: usize) -> Result<Vec<Arc<ThreadPool>>> {
        let mut all = lock(&self.pools);
        let pools = all.entry(threads).or_default();
        while pools.len() < count {
            let pool = ThreadPoolBuilder::new().num_threads(threads).build();
            pools.push(Arc::new(pool.map_err(|error| self.refused(&error))?));
        }
        Ok(pools[..count].to_vec())
    }

    fn refused(&self, error: &rayon::ThreadPoolBuildError) -> Error {
        Error::invalid(format!("`engine.workers = {}` cannot be had: {error}", self.threads), "ask for fewer workers")
    }
}

/// Does the same once in every pool, at the same time, and waits for all.
fn in_each(pools: &[Arc<ThreadPool>], work: &(dyn Fn() + Sync)) {
    let Some((first, others)) = pools.split_first() else { return };
    first.in_place_scope(|scope| {
        scope.spawn(|_| work());
        in_each(others, work);
    });
}

/// The places of items, those that cost most first.
fn longest_first<T>(items: &[T], cost: impl Fn(&T) -> usize) -> Vec<usize> {
    let costs: Vec<usize> = items.iter().map(cost).collect();
    let mut order: Vec<usize> = (0..items.len()).collect();
    order.sort_by_key(|&at| std::cmp::Reverse(costs[at]));
    order
}

/// The lock, also after a panic with it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workers(threads: usize) -> Workers {
        Workers::new(threads).expect("threads")
    }

    #[test]
    fn results_come_in_order_for_any_number_of_threads() {
        let items: Vec<usize> = (0..20).collect();
        for threads in [1, 2, 3, 8] {
            let doubled = workers(threads).map_clients(&items, |item| *item, |item| 2 * item);
            assert_eq!(doubled, (0..20).map(|item| 2 * item).collect::<Vec<_>>());
        }
    }

    #[test]
    fn items_are_worked_on_at_the_same_time() {
        let begun = std::sync::Barrier::new(3);
        // Would wait forever if they came one by one.
        let leaders = workers(3).map_clients(&[(); 3], |()| 0, |()| begun.wait().is_leader());
        assert_eq!(leaders.into_iter().filter(|&leader| leader).count(), 1);
    }

    #[test]
    fn an_item_shares_its_threads_with_no_other() {
        let threads_of =
            |threads, items: usize| workers(threads).map_clients(&vec![(); items], |()| 0, |()| rayon::current_num_threads());
        assert_eq!(threads_of(4, 8), [1; 8]);
        assert_eq!(threads_of(4, 2), [2; 2]);
        assert_eq!(threads_of(4, 1), [4]);
        assert!(threads_of(4, 0).is_empty());
    }

    #[test]
    fn whoever_costs_most_comes_first() {
        let order = Mutex::new(Vec::new());
        workers(1).map_clients(&[1, 3, 2, 3], |cost| *cost, |cost| lock(&order).push(*cost));
        assert_eq!(order.into_inner().expect("no panic"), [3, 3, 2, 1]);
    }

    #[test]
    fn threads_outlive_the_work_on_a_round() {
        let workers = workers(2);
        let threads = || {
            let ids = workers.map_clients(&[(); 2], |()| 0, |()| std::thread::current().id());
            ids.into_iter().map(|id| format!("{id:?}")).collect::<std::collections::BTreeSet<_>>()
        };
        let mut all = threads();
        (0..10).for_each(|_| all.extend(threads()));
        assert!(all.len() <= 2, "{all:?}");
    }
}
