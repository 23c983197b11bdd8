//! With the allocator installed, a meter tells what its own thread held, and nothing else.
use std::sync::Barrier;

use fedeq_memory::{Counting, Meter, give_back, keep};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn hold(bytes: usize) -> Vec<u8> {
    std::hint::black_box(vec![1; bytes])
}

#[test]
fn a_lap_tells_the_most_that_was_held_at_once_and_starts_anew() {
    let mut meter = Meter::start();
    let first = hold(1000);
    drop(hold(500));
    drop(hold(800));
    assert_eq!(meter.lap(), Some(1800));
    assert_eq!(meter.lap(), Some(1000), "what is still held counts");
    drop(first);
    meter.lap();
    assert_eq!(meter.lap(), Some(0));
}

#[test]
fn memory_that_grows_and_memory_of_zeros_is_counted() {
    let mut meter = Meter::start();
    let mut growing = Vec::<u8>::with_capacity(100);
    growing.reserve_exact(1000);
    assert!(meter.lap().is_some_and(|most| (1000..=1100).contains(&most)));
    let zeros = std::hint::black_box(vec![0u8; 1 << 20]);
    assert_eq!(meter.lap(), Some((1 << 20) + 1000));
    drop((growing, zeros));
}

#[test]
fn threads_count_for_themselves() {
    let both = Barrier::new(2);
    std::thread::scope(|scope| {
        for bytes in [10_000, 3_000_000] {
            let both = &both;
            scope.spawn(move || {
                let mut meter = Meter::start();
                both.wait();
                let held = hold(bytes);
                both.wait();
                assert_eq!(meter.lap(), Some(bytes as u64));
                drop(held);
            });
        }
    });
}

#[test]
fn what_another_thread_allocated_does_not_hide_what_this_one_holds() {
    let foreign = std::thread::spawn(|| hold(1 << 20)).join().expect("it only allocates");
    let mut meter = Meter::start();
    drop(foreign);
    assert_eq!(meter.lap(), Some(0), "below the start is nothing");
}

#[test]
fn asking_the_allocator_to_keep_or_give_back_changes_no_count() {
    let mut meter = Meter::start();
    keep();
    give_back();
    assert_eq!(meter.lap(), Some(0));
}
