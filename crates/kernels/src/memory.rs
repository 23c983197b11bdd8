//! How much memory work takes: an allocator that counts, thread by thread.
#[cfg(target_env = "musl")]
use mimalloc::MiMalloc as Underlying;
#[cfg(not(target_env = "musl"))]
use std::alloc::System as Underlying;
use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

/// The system's allocator, counting. (musl's gives freed memory back at once and asks for it anew at every step, which doubles the time of
/// training; there it is another one.)
///
/// A program that wants [`Meter`] to tell something installs it:
///
/// ```
/// use fedeq_kernels::memory::{Counting, Meter};
///
/// #[global_allocator]
/// static ALLOCATOR: Counting = Counting;
///
/// let mut meter = Meter::start();
/// drop(vec![0u8; 1_000_000]);
/// assert_eq!(meter.lap(), Some(1_000_000));
/// assert_eq!(meter.lap(), Some(0));
/// ```
#[derive(Debug)]
pub struct Counting;

static INSTALLED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Bytes this thread has allocated and not freed; below zero where it freed what others allocated.
    static LIVE: Cell<i64> = const { Cell::new(0) };
    /// The most `LIVE` has been since somebody reset it.
    static PEAK: Cell<i64> = const { Cell::new(0) };
}

/// Takes note of a change; quietly does nothing while a thread ends.
fn count(change: i64) {
    let _ = LIVE.try_with(|live| {
        live.set(live.get() + change);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(live.get())));
    });
}

fn size_of(layout: Layout) -> i64 {
    layout.size() as i64
}

// SAFETY: every request goes to the allocator underneath as it came; counting allocates nothing and cannot panic.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        INSTALLED.store(true, Ordering::Relaxed);
        count(size_of(layout));
        // SAFETY: as the caller guarantees.
        unsafe { Underlying.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(size_of(layout));
        // SAFETY: as the caller guarantees.
        unsafe { Underlying.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-size_of(layout));
        // SAFETY: as the caller guarantees.
        unsafe { Underlying.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as i64 - size_of(layout));
        // SAFETY: as the caller guarantees.
        unsafe { Underlying.realloc(pointer, layout, size) }
    }
}

/// Tells the most memory that this thread held during stretches of work, beyond what it held at the start.
#[derive(Clone, Copy, Debug)]
pub struct Meter {
    start: i64,
}

impl Meter {
    /// Starts the first stretch.
    pub fn start() -> Self {
        let start = LIVE.get();
        PEAK.set(start);
        Self { start }
    }

    /// Ends a stretch and starts the next: the most bytes held during it. Nothing where [`Counting`] is not installed.
    pub fn lap(&mut self) -> Option<u64> {
        let most = PEAK.get() - self.start;
        PEAK.set(LIVE.get());
        INSTALLED.load(Ordering::Relaxed).then_some(most.max(0) as u64)
    }
}

/// Gives memory that is free but still held by the allocator back to the system, where the allocator can.
///
/// glibc keeps a heap for every thread there has been. After a crew of threads is gone, what they freed would stay with the process.
pub fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: takes no pointer, and glibc allows it at any time from any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Asks the allocator to keep freed memory for the next training step, instead of returning it to the system after each.
///
/// Every page that comes back from the system is cleared first, which took a tenth of a training step. What is kept is no more than the
/// most that was held at once, and [`give_back`] still returns it.
pub fn keep() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        /// The most that glibc takes from its heaps and not directly from the system.
        const LARGEST: libc::c_int = 32 << 20;
        /// What a thread's heaps are made of: with so much to spare, an empty one is not torn down. Address space, not memory.
        const HEAP: libc::c_int = 64 << 20;
        static ONCE: std::sync::Once = std::sync::Once::new();
        // SAFETY: takes no pointer, and glibc allows it at any time from any thread.
        ONCE.call_once(|| unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, LARGEST);
            libc::mallopt(libc::M_TRIM_THRESHOLD, libc::c_int::MAX);
            libc::mallopt(libc::M_TOP_PAD, HEAP);
        });
    }
}
