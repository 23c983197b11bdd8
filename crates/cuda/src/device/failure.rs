//! The driver's errors in our words.
use cudarc::driver::DriverError;
use cudarc::driver::sys::CUresult;
use fedeq_core::{Error, Result};

/// Results of the driver.
pub(crate) trait Told<T> {
    /// The same, with what was attempted as a verb phrase: "copy to the GPU".
    fn told(self, doing: &str) -> Result<T>;
}

impl<T> Told<T> for std::result::Result<T, DriverError> {
    fn told(self, doing: &str) -> Result<T> {
        self.map_err(|error| failure(error, doing))
    }
}

fn failure(error: DriverError, doing: &str) -> Error {
    if error.0 == CUresult::CUDA_ERROR_OUT_OF_MEMORY {
        return out_of_memory(doing, None);
    }
    let reason = error.error_string().map_or_else(|_| format!("{error:?}"), |text| text.to_string_lossy().into_owned());
    let remedy = "look at `nvidia-smi` and the system's log; the run can be resumed from its last checkpoint";
    Error::invalid(format!("the GPU cannot {doing}: {reason}"), remedy)
}

/// The device's memory is full; `wanted` bytes were asked for.
pub(crate) fn out_of_memory(doing: &str, wanted: Option<u64>) -> Error {
    let wanted = wanted.map(|bytes| format!(" ({:.2} GB wanted)", bytes as f64 / 1e9)).unwrap_or_default();
    let remedy = "lower `plan.sampling`'s clients a round, `training.batch_size` or `engine.device_memory_mb`, or run fewer jobs on this card; \
                  the run can be resumed from its last checkpoint";
    Error::invalid(format!("the GPU's memory is full: cannot {doing}{wanted}"), remedy)
}
