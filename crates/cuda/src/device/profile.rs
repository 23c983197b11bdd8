//! Where a device's time goes, kernel by kernel.
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use cudarc::driver::sys::CUevent_flags;
use fedeq_core::Result;

use super::{Device, Told};

/// What a kernel took in all.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct KernelTime {
    /// How often it was launched.
    pub launches: u64,
    /// Its seconds, one launch after the other.
    pub seconds: f64,
}

/// Times of kernels while they are asked for. Launches are then waited for one by one, which takes longer in all.
#[derive(Default)]
pub(super) struct Profile(Mutex<Option<BTreeMap<&'static str, KernelTime>>>);

impl Profile {
    fn of(&self) -> std::sync::MutexGuard<'_, Option<BTreeMap<&'static str, KernelTime>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_on(&self) -> bool {
        self.of().is_some()
    }
}

impl Device {
    /// From now on times are taken.
    pub(crate) fn start_profile(&self) {
        *self.profile.of() = Some(BTreeMap::new());
    }

    /// The times since the start; no more are taken.
    pub(crate) fn end_profile(&self) -> BTreeMap<&'static str, KernelTime> {
        self.profile.of().take().unwrap_or_default()
    }

    /// Does what adds a kernel to the work, and waits for it.
    pub(super) fn timed(&self, kernel: &'static str, launch: impl FnOnce() -> Result<()>) -> Result<()> {
        let doing = "time a kernel";
        let flags = Some(CUevent_flags::CU_EVENT_DEFAULT);
        let (begun, ended) = (self.context.new_event(flags).told(doing)?, self.context.new_event(flags).told(doing)?);
        begun.record(&self.stream).told(doing)?;
        launch()?;
        ended.record(&self.stream).told(doing)?;
        let milliseconds = begun.elapsed_ms(&ended).told(doing)?;
        if let Some(times) = self.profile.of().as_mut() {
            let time = times.entry(kernel).or_default();
            time.launches += 1;
            time.seconds += f64::from(milliseconds) / 1e3;
        }
        Ok(())
    }
}
