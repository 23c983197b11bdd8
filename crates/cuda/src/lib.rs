//! Trains all clients of a round at once on an NVIDIA GPU.
//!
//! A client of a cohort is a *lane*: a row of a table on the device with its weights. One launch does the same for all lanes, each with its own weights and samples.
//! A network is [data](fedeq_models::Graph); a plan says for a cohort which kernels run when, and which memory they write to.
mod arena;
#[cfg(test)]
mod check;
mod data;
mod device;
mod engine;
mod executor;
mod layout;
mod op;
mod plan;
mod projection;
mod support;

pub use device::{DeviceInfo, KernelTime, devices, usable_device};
pub use engine::{ClientData, CudaEngine, CudaOptions, DeviceUsage, ensure_training_supported};
pub use plan::Precision;
pub use support::ensure_supported;
