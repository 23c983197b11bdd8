//! An equilibrium layer for burn: a layer whose output is the fixed point `z* = g(z*; x)` of a cell `g`, as if the cell had been
//! applied infinitely often, at the training memory of applying it once.
//!
//! ```
//! use burn::module::Module;
//! use burn::nn::{Linear, LinearConfig};
//! use burn::optim::{AdamConfig, GradientsParams};
//! use burn::tensor::{Device, Tensor};
//! use fedeq_equilibrium::{Cell, Equilibrium};
//!
//! #[derive(Module, Debug)]
//! struct Recurrent { b: Linear }
//! impl Cell<2> for Recurrent {
//!     type Input = Tensor<2>;
//!     fn step(&self, z: Tensor<2>, x: &Tensor<2>) -> Tensor<2> { (self.b.forward(z) + x.clone()).tanh() }
//! }
//! #[derive(Module, Debug)]
//! struct Model { before: Linear, cell: Recurrent, after: Linear }
//!
//! let device = Device::default().autodiff();
//! device.seed(7);
//! let linear = |inputs, outputs| LinearConfig::new(inputs, outputs).init(&device);
//! let mut model = Model { before: linear(2, 16), cell: Recurrent { b: linear(16, 16) }, after: linear(16, 1) };
//! let x = Tensor::<2>::from_floats([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], &device); // exclusive or
//! let y = Tensor::<2>::from_floats([[0.0], [1.0], [1.0], [0.0]], &device);
//! let mut optimizer = AdamConfig::new().init();
//! for _ in 0..300 {
//!     let u = model.before.forward(x.clone());
//!     let settled = Equilibrium::default().forward(&model.cell, &u, u.zeros_like());
//!     let loss = (model.after.forward(settled.z) - y.clone()).square().mean();
//!     let gradients = GradientsParams::from_grads(loss.backward(), &model);
//!     model = optimizer.step(0.02, model, gradients);
//! }
//! # let u = model.before.forward(x.clone());
//! # let z = Equilibrium::default().forward(&model.cell, &u, u.zeros_like()).z;
//! # assert!((model.after.forward(z) - y).square().mean().into_scalar::<f32>() < 0.01);
//! ```
//!
//! # Three independent choices
//! - A [`Solver`] finds the state: damped iteration, [Anderson acceleration](Anderson) or Broyden. There is [one loop](solve()) around
//!   them; every sample stops on its own.
//! - An [`Adjoint`] passes the gradient: Jacobian-free, phantom or implicit. An ordinary `backward()` then trains what
//!   comes before, inside and after the layer.
//! - A [`WarmStart`] says where the next solve begins.
//!
//! A solve that does not converge is a value, not an error: [`Report`] says for every sample how it went.
//!
//! # Layout
//! - `cell`, `rows`, `map`: what is solved for. `solve`, `stop`, `solution`, `solver/`: how.
//! - `layer`, `adjoint`, `pullback`, `linear/`: the layer and its gradient.
//! - `warm`: memory between solves. [`diagnose`] and [`contract`]: how contractive a cell is, and how to keep it so.
mod adjoint;
mod cell;
pub mod contract;
mod dense;
pub mod diagnose;
mod error;
mod host;
mod layer;
mod linear;
mod map;
mod pullback;
mod rows;
mod solution;
mod solve;
mod solver;
mod stop;
mod vectors;
mod warm;

pub use adjoint::{Adjoint, AdjointRecord};
pub use cell::Cell;
pub use error::InvalidSetting;
pub use layer::{Equilibrium, Settled};
pub use linear::LinearSolver;
pub use map::{Injected, Map, Transposed};
pub use rows::Rows;
pub use solution::{Outcome, Report, Solution};
pub use solve::{SolveOptions, solve};
pub use solver::{Anderson, Ridge, Solver};
pub use stop::Stop;
pub use warm::{Precision, WarmMemory, WarmStart};
