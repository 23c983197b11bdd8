//! A message: sender, recipient and content.
use prost::Message as _;

use crate::limit;
use crate::object::{Bundle, Id, Object, ObjectKind};
use crate::record::Content;
use crate::wire::{self, Empty, Failure, MessageMetadata};
use crate::{Error, Result};

/// A message with its content, or with the error that it carries instead.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// Sender, recipient, run and type.
    pub head: MessageMetadata,
    /// Its content.
    pub content: std::result::Result<Content, Failure>,
}

impl Message {
    /// Adds all its objects to a bundle and gives its id, which is the id of the root object.
    pub fn deflate(&self, bundle: &mut Bundle) -> Id {
        let children = self.content.iter().map(|content| content.deflate(bundle)).collect();
        bundle.add(&Object { kind: ObjectKind::Message, children, body: self.without_id().encode_to_vec() })
    }

    /// Reads a message and all below it, if it takes no more than the [default](limit::DEFAULT).
    pub fn inflate(id: &str, bundle: &Bundle) -> Result<Self> {
        Self::inflate_within(id, bundle, limit::DEFAULT)
    }

    /// Reads a message and all below it, if it takes no more than so many bytes when it is unpacked.
    pub fn inflate_within(id: &str, bundle: &Bundle, most: usize) -> Result<Self> {
        let (head, content) = open(id, bundle)?;
        let content = match content {
            Ok(content) => Ok(Content::inflate_within(&content, bundle, most)?),
            Err(failure) => Err(failure),
        };
        Ok(Self { head, content })
    }

    /// The id of the content of a message: the same for two messages with the same content.
    pub fn content_id(id: &str, bundle: &Bundle) -> Result<Id> {
        open(id, bundle)?.1.map_err(|failure| Error::object(id, failure.reason))
    }

    /// A message as it is announced, without its content.
    pub fn announced(id: &str, bundle: &Bundle) -> Result<wire::MessageHeader> {
        let (head, content) = open(id, bundle)?;
        Ok(wire::MessageHeader { metadata: Some(head), content: content.is_ok().then_some(Empty {}), error: content.err() })
    }

    /// The reply to this message. It has the date and the time to live of the message, so that the same reply to the same message has the same bytes, whenever
    /// it is sent: a SuperLink that has received a part of it accepts the rest, but no second reply.
    pub fn reply(&self, content: std::result::Result<Content, Failure>) -> Self {
        let MessageMetadata { src_node_id, dst_node_id, src_task_id, dst_task_id, .. } = self.head;
        let head = MessageMetadata {
            message_id: String::new(),
            src_node_id: dst_node_id,
            dst_node_id: src_node_id,
            src_task_id: dst_task_id,
            dst_task_id: src_task_id,
            reply_to_message_id: self.head.message_id.clone(),
            ..self.head.clone()
        };
        Self { head, content }
    }

    /// The message as it is hashed: without its id, which is the hash.
    fn without_id(&self) -> wire::MessageHeader {
        let metadata = MessageMetadata { message_id: String::new(), ..self.head.clone() };
        wire::MessageHeader { metadata: Some(metadata), content: None, error: self.content.as_ref().err().cloned() }
    }
}

/// The metadata of a message, and the id of its content or the error in its place.
fn open(id: &str, bundle: &Bundle) -> Result<(MessageMetadata, std::result::Result<Id, Failure>)> {
    let object = bundle.get(id, ObjectKind::Message)?;
    let wire::MessageHeader { metadata, error, .. } =
        wire::MessageHeader::decode(&object.body[..]).map_err(|error| Error::object(id, error.to_string()))?;
    let head = MessageMetadata { message_id: id.into(), ..metadata.ok_or_else(|| Error::object(id, "it has no metadata"))? };
    match (error, &object.children[..]) {
        (Some(failure), []) => Ok((head, Err(failure))),
        (None, [content]) => Ok((head, Ok(content.clone()))),
        _ => Err(Error::object(id, "it needs either a content or an error")),
    }
}
