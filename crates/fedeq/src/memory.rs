//! The memory of this process, and its peak run by run.

/// Forgets the most memory this process has held so far, where the system can: several runs in one process then each have a peak
/// of their own.
pub(crate) fn forget_peak() {
    // Linux lets a process reset its own peak (proc(5), `clear_refs`); elsewhere a run's peak is that of the process.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

/// The memory that this process holds, in bytes; nothing where the system does not tell.
pub(crate) fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kibibytes| 1024 * kibibytes)
}
