//! The node side of a [Flower](https://flower.ai) federation, without Python.
//!
//! A node connects to an unmodified SuperLink (Flower 1.41) and carries out its messages with `fedeq_core::Client`, the code that the simulation runs.
//!
//! # Layout
//! - [`node`]: the main loop (pull, store, work, commit, push); [`store`], what it keeps on disk; `polling`, how often it asks for messages
//! - [`connection`]: the calls of Flower's Fleet API, signed with the node's [`key`]; [`wire`], their protobuf
//! - [`envelope`]: requests and replies as Flower's records; `layout`, all arrays packed into one
//! - [`parts`]: what a server app in Python sends and receives
//! - [`limit`]: how much memory a message may take
//! - [`message`]: sender, recipient and content; [`record`], what the content consists of; [`object`], the content-addressed objects that Flower
//!   transfers; [`npy`], arrays in numpy's format
pub mod connection;
pub mod envelope;
mod error;
pub mod key;
mod layout;
pub mod limit;
pub mod message;
pub mod node;
pub mod npy;
pub mod object;
pub mod parts;
mod polling;
mod python_json;
pub mod record;
pub mod store;
pub mod wire;

pub use error::{Error, Result};
pub use layout::Layout;
