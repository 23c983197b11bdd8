//! Data sets of federated learning: readers, partitions among clients, batches and verified downloads.
mod change;
mod dataset;
pub mod draws;
mod error;
#[cfg(feature = "fetch")]
pub mod fetch;
mod named;
pub mod partition;
mod seed;
pub mod shard;
pub mod source;
mod spread;

pub use change::FeatureShift;
pub use dataset::{Dataset, Images, Labels, Owners, Samples, Scaling, Sequences, Vectors};
pub use error::{Error, Place, Result};
pub use seed::Seed;
pub use spread::Spread;
