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
        return out_of_memory(doing, None, None);
    }
    let reason = error.error_string().map_or_else(|_| format!("{error:?}"), |text| text.to_string_lossy().into_owned());
    let remedy = "look at `nvidia-smi` and the system's log; the run can be resumed from its last checkpoint";
    Error::invalid(format!("the GPU cannot {doing}: {reason}"), remedy)
}

/// The device's memory is full: `wanted` bytes were asked for, and of all bytes (the second of `memory`) the first were free.
pub(crate) fn out_of_memory(doing: &str, wanted: Option<u64>, memory: Option<(u64, u64)>) -> Error {
    let gigabytes = |bytes: u64| format!("{:.2} GB", bytes as f64 / 1e9);
    let wanted = wanted.map(|bytes| format!(" {} wanted", gigabytes(bytes)));
    let free = memory.map(|(free, all)| format!(" {} of {} free", gigabytes(free), gigabytes(all)));
    let amounts: Vec<String> = wanted.into_iter().chain(free).collect();
    let amounts = if amounts.is_empty() { String::new() } else { format!(":{}", amounts.join(",")) };
    let remedy = "lower `engine.device_memory_mb` (what the run may use of the card) or `training.batch_size`, choose a smaller model, or run fewer jobs on this \
                  card";
    Error::out_of_memory(format!("the GPU's memory is full, it cannot {doing}{amounts}"), remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_card_says_what_was_asked_for_and_what_to_lower() {
        let error = out_of_memory("hold what training needs", Some(3_200_000_000), Some((1_000_000_000, 8_000_000_000)));
        assert!(matches!(error, Error::OutOfMemory { .. }));
        assert_eq!(
            error.to_string(),
            "the GPU's memory is full, it cannot hold what training needs: 3.20 GB wanted, 1.00 GB of 8.00 GB free"
        );
        assert!(error.hint().contains("`engine.device_memory_mb`") && error.hint().contains("`training.batch_size`"));
    }
}
