//! A node in a test: a stand-in for the SuperLink, a federation to ask about, and the folder of the node.
#![allow(dead_code, unused_imports, reason = "every test uses some of it")]
mod app;
mod site;
mod superlink;

pub(crate) use app::{App, message, settings};
pub(crate) use site::{Counted, Site};
pub(crate) use superlink::SuperLink;
