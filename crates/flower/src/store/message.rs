//! Messages as files.
use std::fs;
use std::path::Path;

use fedeq_core::write_atomically;

use crate::object::{Bundle, id_of};
use crate::wire::{MessageMetadata, ObjectTree};
use crate::{Error, Result};

/// A message on disk: all its objects.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct StoredMessage {
    /// The run it belongs to.
    #[prost(uint64, tag = "1")]
    pub(crate) run_id: u64,
    /// The id of the root object, which is the message's own id.
    #[prost(string, tag = "2")]
    pub(crate) id: String,
    /// The bytes of all objects.
    #[prost(bytes = "vec", repeated, tag = "3")]
    pub(crate) objects: Vec<Vec<u8>>,
}

impl StoredMessage {
    /// A message's objects in a bundle.
    pub(crate) fn new(run_id: u64, id: &str, bundle: &Bundle) -> Self {
        Self { run_id, id: id.into(), objects: bundle.iter().map(|(_, bytes)| bytes.to_vec()).collect() }
    }

    /// The bundle again; ids are hashes, so damage is noticed when an object is read.
    pub(crate) fn bundle(&self) -> Bundle {
        let mut bundle = Bundle::default();
        for bytes in &self.objects {
            bundle.receive(id_of(bytes), bytes.clone());
        }
        bundle
    }
}

/// A message that the SuperLink has listed and will not list again, while its objects have not all arrived.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Announcement {
    /// Sender, run and type.
    #[prost(message, optional, tag = "1")]
    pub(crate) head: Option<MessageMetadata>,
    /// The ids of its objects.
    #[prost(message, optional, tag = "2")]
    pub(crate) tree: Option<ObjectTree>,
}

/// Writes one of the two, whole or not at all.
pub(super) fn write(path: &Path, message: &impl prost::Message) -> Result<()> {
    Ok(write_atomically(path, &message.encode_to_vec())?)
}

/// Reads what [`write`] wrote.
pub(super) fn read<M: prost::Message + Default>(path: &Path) -> Result<M> {
    let bytes = fs::read(path).map_err(Error::file(path, "read it"))?;
    M::decode(&bytes[..]).map_err(|error| Error::damaged(path, error.to_string()))
}

/// A message of one object, for tests.
#[cfg(test)]
pub(super) fn stored(id: &str) -> StoredMessage {
    StoredMessage { run_id: 1, id: id.into(), objects: vec![id.as_bytes().to_vec()] }
}
