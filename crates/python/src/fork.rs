//! Processes that were forked from one at work.
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

use fedeq_core::{Error, Result};

/// Refuses to work in a process that was forked from one that had already worked: the threads that it would wait for are not in it. What only reads folders works there too.
pub(crate) fn require_no_fork() -> Result<()> {
    static FIRST: AtomicU32 = AtomicU32::new(0);
    let own = process::id();
    match FIRST.compare_exchange(0, own, Ordering::Relaxed, Ordering::Relaxed) {
        Err(first) if first != own => {
            let problem = "this process was forked from one in which fedeq was already at work, and has none of its threads";
            Err(Error::invalid(problem, "start processes with `multiprocessing.get_context(\"spawn\")`"))
        }
        _ => Ok(()),
    }
}
