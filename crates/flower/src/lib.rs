//! The node side of a [Flower](https://flower.ai) federation, without Python.
//!
//! A node joins an unmodified SuperLink (Flower 1.41) and answers its messages with `fedeq_core::Client`, the code that the simulation runs.
//!
//! # Layout
//! - [`node`]: the loop: pull, keep, work, commit, push; [`vault`], what it keeps; `pace`, how often it asks
//! - [`fleet`]: the calls it makes, signed with its [`key`]; [`wire`], their protobuf
//! - [`letter`]: requests and replies as records; `layout`, all arrays in one
//! - [`limit`]: how much memory a message may take
//! - [`message`]: who says what to whom; [`record`], what a message holds; [`object`], the content-addressed objects it is made of; [`npy`], arrays as
//!   numpy writes them
mod error;
pub mod fleet;
pub mod key;
mod layout;
pub mod letter;
pub mod limit;
pub mod message;
pub mod node;
pub mod npy;
pub mod object;
mod pace;
mod python_json;
pub mod record;
pub mod vault;
pub mod wire;

pub use error::{Error, Result};
