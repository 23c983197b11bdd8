//! How much memory this process has held.
use std::fs;

use crate::Result;

/// `VmRSS` (now) or `VmHWM` (at most so far), in units of 1e6 bytes.
pub(crate) fn megabytes(key: &str) -> Result<f64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    let kibibytes: f64 = line.and_then(|line| line.split_whitespace().next()).ok_or("the system does not tell")?.parse()?;
    Ok(kibibytes * 1024.0 / 1e6)
}
