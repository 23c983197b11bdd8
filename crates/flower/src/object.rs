//! Content-addressed objects: Flower transfers everything as a tree of them.
//!
//! ```text
//! bytes = "<kind> <ids of children, separated by commas> <length of body>\0" + body
//! id    = SHA-256 of these bytes, in hexadecimal
//! ```
//!
//! A message's tree is Message -> RecordDict -> records -> arrays -> chunks. Equal objects are one object.
use std::collections::BTreeMap;

use fedeq_core::named;
use sha2::{Digest, Sha256};

use crate::wire::ObjectTree;
use crate::{Error, Result};

/// The id of an object: 64 hexadecimal digits.
pub type Id = String;

/// A decoded object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Its kind.
    pub kind: ObjectKind,
    /// The ids of the objects it refers to, each once, in order of first use.
    pub children: Vec<Id>,
    /// Its own content.
    pub body: Vec<u8>,
}

named! {
    /// The kind of an object; its name is that in the object's header.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum ObjectKind without serde {
        /// A message; the body is its metadata as protobuf.
        Message = "Message",
        /// The content of a message; the body is JSON from names to ids of records.
        RecordDict = "RecordDict",
        /// Named arrays; the body is JSON from names to ids.
        ArrayRecord = "ArrayRecord",
        /// Named numbers; the body is protobuf.
        MetricRecord = "MetricRecord",
        /// Named settings; the body is protobuf.
        ConfigRecord = "ConfigRecord",
        /// An array; the body is JSON.
        Array = "Array",
        /// A chunk of an array's `.npy` file.
        ArrayChunk = "ArrayChunk",
    }
}

/// No header is longer than this: a record of 60,000 arrays.
const LONGEST_HEADER: usize = 4 << 20;

impl Object {
    /// Its bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let header = format!("{} {} {}\0", self.kind.name(), self.children.join(","), self.body.len());
        [header.as_bytes(), &self.body].concat()
    }

    /// Decodes the bytes of the object `id`; refuses bytes with another hash.
    pub fn from_bytes(id: &str, bytes: &[u8]) -> Result<Self> {
        let refuse = |problem: &str| Error::object(id, problem);
        if id_of(bytes) != id {
            return Err(refuse("its bytes have another hash"));
        }
        let end = bytes.iter().take(LONGEST_HEADER).position(|&byte| byte == 0).ok_or_else(|| refuse("it has no header"))?;
        let header = std::str::from_utf8(&bytes[..end]).map_err(|_| refuse("its header is not text"))?;
        let body = &bytes[end + 1..];
        let [kind, children, length] = split(header).ok_or_else(|| refuse("its header does not have three parts"))?;
        let kind = ObjectKind::named(kind).ok_or_else(|| refuse("its kind is unknown"))?;
        let children: Vec<Id> = children.split(',').filter(|id| !id.is_empty()).map(str::to_owned).collect();
        if !children.iter().all(|id| is_id(id)) {
            return Err(refuse("it refers to something that is not an object id"));
        }
        if length.parse() != Ok(body.len()) {
            return Err(refuse("its body does not have the length that its header gives"));
        }
        Ok(Self { kind, children, body: body.to_vec() })
    }

    /// Refuses an object of another kind.
    pub fn expect(self, kind: ObjectKind, id: &str) -> Result<Self> {
        let found = self.kind;
        if found == kind { Ok(self) } else { Err(Error::object(id, format!("it is `{}`, not `{}`", found.name(), kind.name()))) }
    }
}

fn split(header: &str) -> Option<[&str; 3]> {
    let parts: Vec<&str> = header.split(' ').collect();
    parts.try_into().ok()
}

/// The id of an object with these bytes.
pub fn id_of(bytes: &[u8]) -> Id {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether something has the form of an id.
pub fn is_id(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Objects by their ids: a message in transfer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bundle {
    objects: BTreeMap<Id, Vec<u8>>,
}

impl Bundle {
    /// Adds an object and gives its id.
    pub fn add(&mut self, object: &Object) -> Id {
        let bytes = object.to_bytes();
        let id = id_of(&bytes);
        self.objects.insert(id.clone(), bytes);
        id
    }

    /// Adds bytes that arrived under an id; they are checked when the object is read.
    pub fn receive(&mut self, id: Id, bytes: Vec<u8>) {
        self.objects.insert(id, bytes);
    }

    /// All ids and bytes.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.objects.iter().map(|(id, bytes)| (id.as_str(), bytes.as_slice()))
    }

    /// The bytes of all objects together.
    pub fn size(&self) -> usize {
        self.objects.values().map(Vec::len).sum()
    }

    /// An object's bytes.
    pub fn bytes(&self, id: &str) -> Option<&[u8]> {
        self.objects.get(id).map(Vec::as_slice)
    }

    /// An object, which must be of the given kind.
    pub fn get(&self, id: &str, kind: ObjectKind) -> Result<Object> {
        let bytes = self.bytes(id).ok_or_else(|| Error::object(id, "it has not arrived"))?;
        Object::from_bytes(id, bytes)?.expect(kind, id)
    }

    /// The ids of an object and all below it. Trees are at most five levels deep, so that a cycle of ids ends in an error.
    pub fn tree(&self, id: &str) -> Result<ObjectTree> {
        self.tree_to(id, 5)
    }

    fn tree_to(&self, id: &str, depth: usize) -> Result<ObjectTree> {
        let bytes = self.bytes(id).ok_or_else(|| Error::object(id, "it is missing"))?;
        let object = Object::from_bytes(id, bytes)?;
        if depth == 0 && !object.children.is_empty() {
            return Err(Error::object(id, "the tree is too deep"));
        }
        let children = object.children.iter().map(|child| self.tree_to(child, depth.saturating_sub(1))).collect::<Result<_>>()?;
        Ok(ObjectTree { object_id: id.into(), children })
    }
}

/// All ids of a tree, each once, in order of first use; refuses trees of more than `most` objects.
pub fn ids_of(tree: &ObjectTree, most: usize) -> Result<Vec<Id>> {
    let mut ids = Vec::new();
    let mut open = vec![tree];
    while let Some(node) = open.pop() {
        if !is_id(&node.object_id) {
            return Err(Error::object(&node.object_id, "this is not an object id"));
        }
        ids.push(node.object_id.clone());
        if ids.len() + open.len() + node.children.len() > most {
            return Err(Error::object(&tree.object_id, format!("its tree has more than {most} objects")));
        }
        open.extend(node.children.iter().rev());
    }
    let mut seen = std::collections::BTreeSet::new();
    ids.retain(|id| seen.insert(id.clone()));
    Ok(ids)
}
