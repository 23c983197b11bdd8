//! The node side of a [Flower](https://flower.ai) federation, without Python.
//!
//! A node joins an unmodified SuperLink (Flower 1.41) and answers its messages with `fedeq_core::Client`, the code that the simulation runs.
//!
//! # Layout
//! - [`wire`]: the Fleet API's messages, as protobuf
//! - [`object`]: content-addressed objects, of which every message is a tree
//! - [`message`]: who says what to whom
//! - [`npy`]: arrays as numpy writes them
//! - [`record`]: what a message holds: named arrays, metrics and settings
mod error;
pub mod message;
pub mod npy;
pub mod object;
mod python_json;
pub mod record;
pub mod wire;

pub use error::{Error, Result};
