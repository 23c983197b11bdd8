//! Peak memory, run by run.

/// Forgets the most memory this process has held so far, where the system can: several runs in one process then each have a peak
/// of their own.
pub(crate) fn forget_peak() {
    // Linux lets a process reset its own peak (proc(5), `clear_refs`); elsewhere a run's peak is that of the process.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}
