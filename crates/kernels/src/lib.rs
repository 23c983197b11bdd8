//! CPU kernels for equilibrium networks: convolutions, normalisations, fused cells and layers, forward and backward.
//!
//! Everything here works on slices of `f32` in **channels-last** order, `[B, H, W, C]`, on one thread unless it says otherwise,
//! and gives the same bits on every run. The vector instructions are chosen at run time by [`InstructionSet`].
mod access;
mod buffer;
mod elementary;
mod instructions;
mod size;
mod sweep;
mod vectors;

pub mod activation;
pub mod cell;
pub mod conv;
pub mod dense;
pub mod embedding;
pub mod gemm;
pub mod loss;
pub mod neighbours;
pub mod norm;
pub mod optimiser;
pub mod padding;
pub mod pool;
pub mod sgd;
pub mod shortcut;
pub mod transformer;

pub use instructions::InstructionSet;
