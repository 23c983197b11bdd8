//! A node in a test: a fake SuperLink, a federation, and the folder of the node.
#![allow(dead_code, unused_imports, reason = "every test uses some of it")]
mod app;
mod node_folder;
mod superlink;

pub(crate) use app::{App, message, settings};
pub(crate) use node_folder::{CountingWorker, NodeFolder};
pub(crate) use superlink::SuperLink;
