//! The Fleet API's messages: what travels between a node and a SuperLink, with the field numbers of Flower 1.41.
//!
//! Only what a node needs is here; fields that are not named are skipped on reading, as protobuf has it.
use std::collections::HashMap;

use prost::{Message as Protobuf, Oneof};

/// Asks for a node of this key to be known.
#[derive(Clone, PartialEq, Protobuf)]
pub struct RegisterNodeRequest {
    /// The public key, as PEM.
    #[prost(bytes = "vec", tag = "1")]
    pub public_key: Vec<u8>,
}

/// The answer to [`RegisterNodeRequest`] and [`ActivateNodeRequest`].
#[derive(Clone, Copy, PartialEq, Eq, Protobuf)]
pub struct NodeIdResponse {
    /// The node's number.
    #[prost(uint64, tag = "1")]
    pub node_id: u64,
}

/// Says that a node is there from now on.
#[derive(Clone, PartialEq, Protobuf)]
pub struct ActivateNodeRequest {
    /// The public key, as PEM.
    #[prost(bytes = "vec", tag = "1")]
    pub public_key: Vec<u8>,
    /// How often it will say so, in seconds.
    #[prost(double, tag = "2")]
    pub heartbeat_interval: f64,
}

/// Says that a node leaves.
#[derive(Clone, Copy, PartialEq, Eq, Protobuf)]
pub struct DeactivateNodeRequest {
    /// The node's number.
    #[prost(uint64, tag = "1")]
    pub node_id: u64,
}

/// A node, by its number.
#[derive(Clone, Copy, PartialEq, Eq, Protobuf)]
pub struct Node {
    /// The number.
    #[prost(uint64, tag = "1")]
    pub node_id: u64,
}

/// Says that a node is still there.
#[derive(Clone, PartialEq, Protobuf)]
pub struct HeartbeatRequest {
    /// Which one.
    #[prost(message, optional, tag = "1")]
    pub node: Option<Node>,
    /// How often it says so, in seconds.
    #[prost(double, tag = "2")]
    pub heartbeat_interval: f64,
}

/// The answer to a [`HeartbeatRequest`].
#[derive(Clone, Copy, PartialEq, Eq, Protobuf)]
pub struct HeartbeatResponse {
    /// Whether the node is known.
    #[prost(bool, tag = "1")]
    pub success: bool,
}

/// Asks for messages.
#[derive(Clone, PartialEq, Protobuf)]
pub struct PullMessagesRequest {
    /// Who asks.
    #[prost(message, optional, tag = "1")]
    pub node: Option<Node>,
    /// For which; none means any.
    #[prost(string, repeated, tag = "2")]
    pub message_ids: Vec<String>,
}

/// Messages, each with its tree of objects.
#[derive(Clone, PartialEq, Protobuf)]
pub struct PullMessagesResponse {
    /// The messages; their content is in the objects.
    #[prost(message, repeated, tag = "2")]
    pub messages: Vec<Message>,
    /// One for each message.
    #[prost(message, repeated, tag = "3")]
    pub trees: Vec<ObjectTree>,
}

/// Announces answers.
#[derive(Clone, PartialEq, Protobuf)]
pub struct PushMessagesRequest {
    /// Who answers.
    #[prost(message, optional, tag = "1")]
    pub node: Option<Node>,
    /// The messages; their content follows as objects.
    #[prost(message, repeated, tag = "2")]
    pub messages: Vec<Message>,
    /// One for each message.
    #[prost(message, repeated, tag = "3")]
    pub trees: Vec<ObjectTree>,
    /// How long the work took, in seconds, for each message.
    #[prost(double, repeated, tag = "4")]
    pub seconds: Vec<f64>,
}

/// Which objects of announced answers are wanted.
#[derive(Clone, PartialEq, Protobuf)]
pub struct PushMessagesResponse {
    /// A code for each message, by its id.
    #[prost(map = "string, uint32", tag = "2")]
    pub results: HashMap<String, u32>,
    /// Ids of objects that are not there yet.
    #[prost(string, repeated, tag = "3")]
    pub objects_to_push: Vec<String>,
    /// Goes with every object pushed.
    #[prost(string, tag = "4")]
    pub session_id: String,
}

/// A message without its content.
#[derive(Clone, PartialEq, Protobuf)]
pub struct Message {
    /// Who, to whom, about what.
    #[prost(message, optional, tag = "1")]
    pub metadata: Option<Metadata>,
    /// There, and empty, where there is content.
    #[prost(message, optional, tag = "2")]
    pub content: Option<Nothing>,
    /// In place of content, if the work failed.
    #[prost(message, optional, tag = "3")]
    pub error: Option<Failure>,
}

/// A message's head.
#[derive(Clone, PartialEq, Protobuf)]
pub struct Metadata {
    /// The run it belongs to.
    #[prost(uint64, tag = "1")]
    pub run_id: u64,
    /// Its id: the hash of its object.
    #[prost(string, tag = "2")]
    pub message_id: String,
    /// Who sends it.
    #[prost(uint64, tag = "3")]
    pub src_node_id: u64,
    /// Whom it is for.
    #[prost(uint64, tag = "4")]
    pub dst_node_id: u64,
    /// What it answers.
    #[prost(string, tag = "5")]
    pub reply_to_message_id: String,
    /// The round, as the server names it.
    #[prost(string, tag = "6")]
    pub group_id: String,
    /// How long it is worth something, in seconds.
    #[prost(double, tag = "7")]
    pub ttl: f64,
    /// `train`, `evaluate` or `query`, perhaps with an action after a dot.
    #[prost(string, tag = "8")]
    pub message_type: String,
    /// When it was made, in seconds since 1970.
    #[prost(double, tag = "9")]
    pub created_at: f64,
    /// The task it comes from.
    #[prost(uint64, optional, tag = "10")]
    pub src_task_id: Option<u64>,
    /// The task it is for.
    #[prost(uint64, optional, tag = "11")]
    pub dst_task_id: Option<u64>,
}

/// Why there is no content.
#[derive(Clone, PartialEq, Eq, Protobuf)]
pub struct Failure {
    /// What kind of failure.
    #[prost(sint64, tag = "1")]
    pub code: i64,
    /// In words.
    #[prost(string, tag = "2")]
    pub reason: String,
}

/// An object's id and those of all below it.
#[derive(Clone, PartialEq, Eq, Protobuf)]
pub struct ObjectTree {
    /// The object's id.
    #[prost(string, tag = "1")]
    pub object_id: String,
    /// What it refers to.
    #[prost(message, repeated, tag = "2")]
    pub children: Vec<ObjectTree>,
}

/// Brings an object.
#[derive(Clone, PartialEq, Eq, Protobuf)]
pub struct PushObjectRequest {
    /// Who brings it.
    #[prost(message, optional, tag = "1")]
    pub node: Option<Node>,
    /// For which run.
    #[prost(uint64, tag = "2")]
    pub run_id: u64,
    /// Its id.
    #[prost(string, tag = "3")]
    pub object_id: String,
    /// Its bytes.
    #[prost(bytes = "vec", tag = "4")]
    pub object_content: Vec<u8>,
    /// From the [`PushMessagesResponse`] that asked for it.
    #[prost(string, tag = "5")]
    pub session_id: String,
}

/// The answer to a [`PushObjectRequest`].
#[derive(Clone, Copy, PartialEq, Eq, Protobuf)]
pub struct PushObjectResponse {
    /// Whether it was kept.
    #[prost(bool, tag = "1")]
    pub stored: bool,
}

/// Asks for an object.
#[derive(Clone, PartialEq, Eq, Protobuf)]
pub struct PullObjectRequest {
    /// Who asks.
    #[prost(message, optional, tag = "1")]
    pub node: Option<Node>,
    /// In which run.
    #[prost(uint64, tag = "2")]
    pub run_id: u64,
    /// Its id.
    #[prost(string, tag = "3")]
    pub object_id: String,
}

/// The answer to a [`PullObjectRequest`].
#[derive(Clone, PartialEq, Eq, Protobuf)]
pub struct PullObjectResponse {
    /// Whether the SuperLink has heard of it.
    #[prost(bool, tag = "1")]
    pub object_found: bool,
    /// Whether its bytes have arrived; if not, ask again.
    #[prost(bool, tag = "2")]
    pub object_available: bool,
    /// Its bytes.
    #[prost(bytes = "vec", tag = "3")]
    pub object_content: Vec<u8>,
}

/// Says that all objects of a message have arrived.
#[derive(Clone, PartialEq, Eq, Protobuf)]
pub struct ConfirmMessageRequest {
    /// Who says so.
    #[prost(message, optional, tag = "1")]
    pub node: Option<Node>,
    /// In which run.
    #[prost(uint64, tag = "2")]
    pub run_id: u64,
    /// The message's object.
    #[prost(string, tag = "3")]
    pub message_object_id: String,
}

/// An answer that says nothing.
#[derive(Clone, Copy, PartialEq, Eq, Protobuf)]
pub struct Nothing {}

/// Several numbers.
#[derive(Clone, PartialEq, Protobuf)]
pub struct Doubles {
    /// The numbers.
    #[prost(double, repeated, tag = "1")]
    pub vals: Vec<f64>,
}

/// Several whole numbers.
#[derive(Clone, PartialEq, Eq, Protobuf)]
pub struct Integers {
    /// The numbers.
    #[prost(sint64, repeated, tag = "1")]
    pub vals: Vec<i64>,
}

/// Named metrics or settings: the body of a `MetricRecord` or a `ConfigRecord`.
#[derive(Clone, PartialEq, Protobuf)]
pub struct Values {
    /// In the order they were put in.
    #[prost(message, repeated, tag = "1")]
    pub items: Vec<Item>,
}

/// A name and what it stands for.
#[derive(Clone, PartialEq, Protobuf)]
pub struct Item {
    /// The name.
    #[prost(string, tag = "1")]
    pub key: String,
    /// The value.
    #[prost(message, optional, tag = "2")]
    pub value: Option<Value>,
}

/// A metric or a setting. Metrics are numbers; the field numbers of both kinds agree.
#[derive(Clone, PartialEq, Protobuf)]
pub struct Value {
    /// What it is.
    #[prost(oneof = "Scalar", tags = "1, 2, 3, 4, 5, 6, 21, 22")]
    pub scalar: Option<Scalar>,
}

/// The kinds of values in use here.
#[derive(Clone, PartialEq, Oneof)]
pub enum Scalar {
    /// A number.
    #[prost(double, tag = "1")]
    Double(f64),
    /// A whole number.
    #[prost(sint64, tag = "2")]
    Integer(i64),
    /// A whole number that may be large.
    #[prost(uint64, tag = "3")]
    Unsigned(u64),
    /// Yes or no.
    #[prost(bool, tag = "4")]
    Bool(bool),
    /// Words.
    #[prost(string, tag = "5")]
    Text(String),
    /// Anything.
    #[prost(bytes, tag = "6")]
    Bytes(Vec<u8>),
    /// Several numbers.
    #[prost(message, tag = "21")]
    Doubles(Doubles),
    /// Several whole numbers.
    #[prost(message, tag = "22")]
    Integers(Integers),
}
