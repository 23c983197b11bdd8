//! How much memory work takes: an allocator that counts, thread by thread.
//!
//! A program that wants [`Meter`] to tell something installs [`Counting`]:
//!
//! ```
//! use fedeq_memory::{Counting, Meter};
//!
//! #[global_allocator]
//! static ALLOCATOR: Counting = Counting;
//!
//! let mut meter = Meter::start();
//! drop(vec![0u8; 1_000_000]);
//! assert_eq!(meter.lap(), Some(1_000_000));
//! assert_eq!(meter.lap(), Some(0));
//! ```
#[cfg(target_env = "musl")]
use mimalloc::MiMalloc as Underlying;
#[cfg(not(target_env = "musl"))]
use std::alloc::System as Underlying;
use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::hint::black_box;
use std::sync::OnceLock;

/// The system's allocator, counting. (musl's gives freed memory back at once and asks for it again at every step, which doubles the time of
/// training; there it is another one.)
///
/// Every thread counts for itself; an allocation touches nothing that threads share.
#[derive(Debug)]
pub struct Counting;

/// What a thread has counted.
struct Counters {
    /// Bytes this thread has allocated and not freed; below zero where it freed what others allocated.
    live: Cell<i64>,
    /// The most `live` has been since it was reset.
    peak: Cell<i64>,
}

thread_local! {
    // Known when the program is compiled and without a destructor: reaching it allocates nothing, and it is there until a thread is gone.
    static COUNTERS: Counters = const { Counters { live: Cell::new(0), peak: Cell::new(0) } };
}

/// Takes note of a change.
#[inline]
fn count(change: i64) {
    // A system whose threads lose such variables early counts nothing after that.
    let _ = COUNTERS.try_with(|Counters { live, peak }| {
        let now = live.get().wrapping_add(change);
        live.set(now);
        peak.set(peak.get().max(now));
    });
}

/// Takes note of a change if there is memory to count.
#[inline]
fn counted(pointer: *mut u8, change: i64) -> *mut u8 {
    if !pointer.is_null() {
        count(change);
    }
    pointer
}

fn size_of(layout: Layout) -> i64 {
    layout.size() as i64
}

// SAFETY: every request goes to the allocator underneath as it came, and its answer back; counting allocates nothing and cannot panic.
unsafe impl GlobalAlloc for Counting {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller guarantees.
        counted(unsafe { Underlying.alloc(layout) }, size_of(layout))
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller guarantees.
        counted(unsafe { Underlying.alloc_zeroed(layout) }, size_of(layout))
    }

    #[inline]
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-size_of(layout));
        // SAFETY: as the caller guarantees.
        unsafe { Underlying.dealloc(pointer, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as the caller guarantees.
        counted(unsafe { Underlying.realloc(pointer, layout, size) }, (size as i64).wrapping_sub(size_of(layout)))
    }
}

/// Whether the program's allocator is [`Counting`]: found out once, by an allocation.
fn is_installed() -> bool {
    static INSTALLED: OnceLock<bool> = OnceLock::new();
    *INSTALLED.get_or_init(|| {
        let live = || COUNTERS.with(|counters| counters.live.get());
        let before = live();
        let something = black_box(Box::new(0u8));
        let counted = live() != before;
        drop(something);
        counted
    })
}

/// Tells the most memory that this thread held during stretches of work, beyond what it held at the start.
#[derive(Clone, Copy, Debug)]
pub struct Meter {
    start: i64,
}

impl Meter {
    /// Starts the first stretch.
    pub fn start() -> Self {
        is_installed();
        COUNTERS.with(|Counters { live, peak }| {
            peak.set(live.get());
            Self { start: live.get() }
        })
    }

    /// Ends a stretch and starts the next: the most bytes held during it. Nothing where [`Counting`] is not installed.
    pub fn lap(&mut self) -> Option<u64> {
        let most = COUNTERS.with(|Counters { live, peak }| peak.replace(live.get())) - self.start;
        is_installed().then_some(most.max(0) as u64)
    }
}

/// Gives memory that is free but still held by the allocator back to the system, where the allocator can.
///
/// glibc keeps a heap for every thread there has been. After the threads of a pool are gone, what they freed would stay with the process.
pub fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: takes no pointer, and glibc allows it at any time from any thread ("MT-Safe").
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Asks the allocator to keep freed memory for the next training step, instead of returning it to the system after each. A program that trains calls it first of all, while it has
/// no other threads.
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
        // SAFETY: takes no pointer. glibc's manual lets it be called while there is one thread ("MT-Unsafe init const:mallopt"), as at the start of a program: the first call may set the
        // allocator up, and settings are written that other threads read as they are. A module that is loaded into a running program, as Python's is, cannot know that it is alone.
        // There the allocator has long been set up, by what allocated before, and it is assumed that glibc goes on to hold its main heap's lock and to write each setting as one word
        // that was read at any time before, so that a thread that allocates meanwhile finds the old value or the new one, and either will do.
        ONCE.call_once(|| unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, LARGEST);
            libc::mallopt(libc::M_TRIM_THRESHOLD, libc::c_int::MAX);
            libc::mallopt(libc::M_TOP_PAD, HEAP);
        });
    }
}
