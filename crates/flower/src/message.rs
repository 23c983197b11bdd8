//! A message: who says what to whom.
use prost::Message as _;

use crate::limit;
use crate::object::{Bundle, Id, Kind, Object};
use crate::record::Content;
use crate::wire::{self, Failure, Metadata, Nothing};
use crate::{Error, Result};

/// A message with what it holds, or why it holds nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// Who, to whom, about what.
    pub head: Metadata,
    /// What it says.
    pub content: std::result::Result<Content, Failure>,
}

impl Message {
    /// Puts all its objects into a bundle and gives its id, which is also the topmost object's.
    pub fn deflate(&self, bundle: &mut Bundle) -> Id {
        let children = self.content.iter().map(|content| content.deflate(bundle)).collect();
        bundle.add(&Object { kind: Kind::Message, children, body: self.anonymous().encode_to_vec() })
    }

    /// Reads a message and all below it, if it takes no more than is [usual](limit::USUAL).
    pub fn inflate(id: &str, bundle: &Bundle) -> Result<Self> {
        Self::inflate_within(id, bundle, limit::USUAL)
    }

    /// Reads a message and all below it, if it takes no more than so many bytes when it is unpacked.
    pub fn inflate_within(id: &str, bundle: &Bundle, most: usize) -> Result<Self> {
        let (head, holds) = opened(id, bundle)?;
        let content = match holds {
            Ok(content) => Ok(Content::inflate_within(&content, bundle, most)?),
            Err(failure) => Err(failure),
        };
        Ok(Self { head, content })
    }

    /// The id of what a message of a bundle says: the same for two messages that say the same.
    pub fn content_id(id: &str, bundle: &Bundle) -> Result<Id> {
        opened(id, bundle)?.1.map_err(|failure| Error::object(id, failure.reason))
    }

    /// A message of a bundle as it is announced: nothing below it is looked at.
    pub fn announced(id: &str, bundle: &Bundle) -> Result<wire::Message> {
        let (head, holds) = opened(id, bundle)?;
        Ok(wire::Message { metadata: Some(head), content: holds.is_ok().then_some(Nothing {}), error: holds.err() })
    }

    /// The answer to this message. It lives as long as the question would have, and has the question's date: the same answer to the same question has the same
    /// bytes, whenever it is given. A SuperLink to which a part of it was brought before takes the rest of it, but no second answer.
    pub fn reply(&self, content: std::result::Result<Content, Failure>) -> Self {
        let Metadata { src_node_id, dst_node_id, src_task_id, dst_task_id, .. } = self.head;
        let head = Metadata {
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

    /// The message as it is hashed: an id cannot be part of what it is the hash of.
    fn anonymous(&self) -> wire::Message {
        let metadata = Metadata { message_id: String::new(), ..self.head.clone() };
        wire::Message { metadata: Some(metadata), content: None, error: self.content.as_ref().err().cloned() }
    }
}

/// A message's head under its id, and the id of its content or why there is none.
fn opened(id: &str, bundle: &Bundle) -> Result<(Metadata, std::result::Result<Id, Failure>)> {
    let object = bundle.get(id, Kind::Message)?;
    let wire::Message { metadata, error, .. } =
        wire::Message::decode(&object.body[..]).map_err(|error| Error::object(id, error.to_string()))?;
    let head = Metadata { message_id: id.into(), ..metadata.ok_or_else(|| Error::object(id, "it has no head"))? };
    match (error, &object.children[..]) {
        (Some(failure), []) => Ok((head, Err(failure))),
        (None, [content]) => Ok((head, Ok(content.clone()))),
        _ => Err(Error::object(id, "it has neither one content nor one error")),
    }
}
