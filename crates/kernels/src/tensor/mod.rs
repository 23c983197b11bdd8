//! The kernels as differentiable operations on burn's tensors.
//!
//! Every function here has two ways: the kernel with its own gradient for 32-bit floats on the CPU, and burn's operations for everything
//! else, which are also what the tests compare the kernels with.
mod cell;
mod conv;
mod descend;
mod host;
mod norm;
mod operation;
mod pool;
mod transformer;

pub use cell::{HeldImageCell, ImageCell, LinearImageCell};
pub use conv::conv2d;
pub use descend::{Pull, descend};
pub use norm::{Affine, Around, BatchNormalized, Groups, batch_norm, batch_norm_train, group_norm};
pub use pool::{global_average_pool, max_pool};
pub use transformer::{HeldStack, LayerTensors, LinearStack, Surroundings, layer_norm, transformer_layers};
