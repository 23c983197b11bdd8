//! What counting costs: allocating and freeing with the allocator beneath and with the one that counts, by one thread up to one a core.
use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use fedeq_memory::Counting;

/// How long the slowest of some threads takes to allocate and free so many times, all at once.
fn pairs(allocator: &(impl GlobalAlloc + Sync), threads: usize, count: u64) -> Duration {
    let layout = Layout::new::<[u64; 8]>();
    let ready = Barrier::new(threads);
    let work = || {
        ready.wait();
        let start = Instant::now();
        for _ in 0..count {
            // SAFETY: the layout has a size, and what was allocated is freed with it, once.
            unsafe {
                let pointer = black_box(allocator.alloc(layout));
                assert!(!pointer.is_null());
                allocator.dealloc(pointer, layout);
            }
        }
        start.elapsed()
    };
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        all.into_iter().map(|thread| thread.join().expect("it only allocates")).max().unwrap_or_default()
    })
}

fn allocators(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("allocate and free");
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    for threads in [1, 2, 4, 8, 16].into_iter().filter(|&threads| threads <= cores) {
        group.bench_function(BenchmarkId::new("system", threads), |bencher| {
            bencher.iter_custom(|count| pairs(&System, threads, count));
        });
        group.bench_function(BenchmarkId::new("counting", threads), |bencher| {
            bencher.iter_custom(|count| pairs(&Counting, threads, count));
        });
    }
    group.finish();
}

criterion_group!(benches, allocators);
criterion_main!(benches);
