//! The messages of Flower's Fleet API, between a node and a SuperLink, with the field numbers of Flower 1.41.
//!
//! Only what a node needs is defined here; other fields are skipped on reading, as usual in protobuf.
use std::collections::HashMap;

use prost::{Message as Protobuf, Oneof};

/// Registers a node.
#[derive(Clone, PartialEq, Protobuf)]
pub struct RegisterNodeRequest {
    /// The public key, as PEM.
    #[prost(bytes = "vec", tag = "1")]
    pub public_key: Vec<u8>,
}

/// The response to [`RegisterNodeRequest`] and [`ActivateNodeRequest`].
#[derive(Clone, Copy, PartialEq, Eq, Protobuf)]
pub struct NodeIdResponse {
    /// The node's id.
    #[prost(uint64, tag = "1")]
    pub node_id: u64,
}

/// Marks a node as active.
#[derive(Clone, PartialEq, Protobuf)]
pub struct ActivateNodeRequest {
    /// The public key, as PEM.
    #[prost(bytes = "vec", tag = "1")]
    pub public_key: Vec<u8>,
    /// The time between heartbeats, in seconds.
    #[prost(double, tag = "2")]
    pub heartbeat_interval: f64,
}

/// Marks a node as inactive.
#[derive(Clone, Copy, PartialEq, Eq, Protobuf)]
pub struct DeactivateNodeRequest {
    /// The node's id.
    #[prost(uint64, tag = "1")]
    pub node_id: u64,
}

/// A node, by its id: Flower's `Node`.
#[derive(Clone, Copy, PartialEq, Eq, Protobuf)]
pub struct NodeReference {
    /// The id.
    #[prost(uint64, tag = "1")]
    pub node_id: u64,
}

/// A heartbeat: the node is still active.
#[derive(Clone, PartialEq, Protobuf)]
pub struct HeartbeatRequest {
    /// The node.
    #[prost(message, optional, tag = "1")]
    pub node: Option<NodeReference>,
    /// The time between heartbeats, in seconds.
    #[prost(double, tag = "2")]
    pub heartbeat_interval: f64,
}

/// The response to a [`HeartbeatRequest`].
#[derive(Clone, Copy, PartialEq, Eq, Protobuf)]
pub struct HeartbeatResponse {
    /// Whether the node is known.
    #[prost(bool, tag = "1")]
    pub success: bool,
}

/// Asks for messages.
#[derive(Clone, PartialEq, Protobuf)]
pub struct PullMessagesRequest {
    /// The node that asks.
    #[prost(message, optional, tag = "1")]
    pub node: Option<NodeReference>,
    /// The ids of the wanted messages; empty means any.
    #[prost(string, repeated, tag = "2")]
    pub message_ids: Vec<String>,
}

/// Messages, each with its tree of objects.
#[derive(Clone, PartialEq, Protobuf)]
pub struct PullMessagesResponse {
    /// The messages; their contents are in the objects.
    #[prost(message, repeated, tag = "2")]
    pub messages: Vec<MessageHeader>,
    /// One for each message.
    #[prost(message, repeated, tag = "3")]
    pub trees: Vec<ObjectTree>,
}

/// Announces replies.
#[derive(Clone, PartialEq, Protobuf)]
pub struct PushMessagesRequest {
    /// The node that replies.
    #[prost(message, optional, tag = "1")]
    pub node: Option<NodeReference>,
    /// The messages; their contents follow as objects.
    #[prost(message, repeated, tag = "2")]
    pub messages: Vec<MessageHeader>,
    /// One for each message.
    #[prost(message, repeated, tag = "3")]
    pub trees: Vec<ObjectTree>,
    /// How long the work took, in seconds, for each message.
    #[prost(double, repeated, tag = "4")]
    pub seconds: Vec<f64>,
}

/// Which objects of the announced replies to upload.
#[derive(Clone, PartialEq, Protobuf)]
pub struct PushMessagesResponse {
    /// A status code for each message, by its id.
    #[prost(map = "string, uint32", tag = "2")]
    pub results: HashMap<String, u32>,
    /// The ids of objects that the SuperLink does not have.
    #[prost(string, repeated, tag = "3")]
    pub objects_to_push: Vec<String>,
    /// Sent along with every object.
    #[prost(string, tag = "4")]
    pub session_id: String,
}

/// A message without its content: Flower's `Message`.
#[derive(Clone, PartialEq, Protobuf)]
pub struct MessageHeader {
    /// Sender, recipient, run and type.
    #[prost(message, optional, tag = "1")]
    pub metadata: Option<MessageMetadata>,
    /// Present, and empty, if the message has content.
    #[prost(message, optional, tag = "2")]
    pub content: Option<Empty>,
    /// Instead of content, if the work failed.
    #[prost(message, optional, tag = "3")]
    pub error: Option<Failure>,
}

/// The metadata of a message: Flower's `Metadata`.
#[derive(Clone, PartialEq, Protobuf)]
pub struct MessageMetadata {
    /// The run it belongs to.
    #[prost(uint64, tag = "1")]
    pub run_id: u64,
    /// Its id: the hash of its object.
    #[prost(string, tag = "2")]
    pub message_id: String,
    /// The sender.
    #[prost(uint64, tag = "3")]
    pub src_node_id: u64,
    /// The recipient.
    #[prost(uint64, tag = "4")]
    pub dst_node_id: u64,
    /// The message it replies to.
    #[prost(string, tag = "5")]
    pub reply_to_message_id: String,
    /// The round, as the server names it.
    #[prost(string, tag = "6")]
    pub group_id: String,
    /// Its time to live, in seconds.
    #[prost(double, tag = "7")]
    pub ttl: f64,
    /// `train`, `evaluate` or `query`, perhaps with an action after a dot.
    #[prost(string, tag = "8")]
    pub message_type: String,
    /// When it was created, in seconds since 1970.
    #[prost(double, tag = "9")]
    pub created_at: f64,
    /// The task it comes from.
    #[prost(uint64, optional, tag = "10")]
    pub src_task_id: Option<u64>,
    /// The task it is for.
    #[prost(uint64, optional, tag = "11")]
    pub dst_task_id: Option<u64>,
}

/// The error that a message carries instead of content.
#[derive(Clone, PartialEq, Eq, Protobuf)]
pub struct Failure {
    /// Flower's error code.
    #[prost(sint64, tag = "1")]
    pub code: i64,
    /// The reason, as text.
    #[prost(string, tag = "2")]
    pub reason: String,
}

/// An object's id and those of all below it.
#[derive(Clone, PartialEq, Eq, Protobuf)]
pub struct ObjectTree {
    /// The object's id.
    #[prost(string, tag = "1")]
    pub object_id: String,
    /// The objects it refers to.
    #[prost(message, repeated, tag = "2")]
    pub children: Vec<ObjectTree>,
}

/// Uploads an object.
#[derive(Clone, PartialEq, Eq, Protobuf)]
pub struct PushObjectRequest {
    /// The node that uploads it.
    #[prost(message, optional, tag = "1")]
    pub node: Option<NodeReference>,
    /// The run it belongs to.
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

/// The response to a [`PushObjectRequest`].
#[derive(Clone, Copy, PartialEq, Eq, Protobuf)]
pub struct PushObjectResponse {
    /// Whether it was stored.
    #[prost(bool, tag = "1")]
    pub stored: bool,
}

/// Downloads an object.
#[derive(Clone, PartialEq, Eq, Protobuf)]
pub struct PullObjectRequest {
    /// The node that asks.
    #[prost(message, optional, tag = "1")]
    pub node: Option<NodeReference>,
    /// The run it belongs to.
    #[prost(uint64, tag = "2")]
    pub run_id: u64,
    /// Its id.
    #[prost(string, tag = "3")]
    pub object_id: String,
}

/// The response to a [`PullObjectRequest`].
#[derive(Clone, PartialEq, Eq, Protobuf)]
pub struct PullObjectResponse {
    /// Whether the SuperLink knows it.
    #[prost(bool, tag = "1")]
    pub object_found: bool,
    /// Whether its bytes have arrived; if not, ask again.
    #[prost(bool, tag = "2")]
    pub object_available: bool,
    /// Its bytes.
    #[prost(bytes = "vec", tag = "3")]
    pub object_content: Vec<u8>,
}

/// Confirms that all objects of a message have arrived.
#[derive(Clone, PartialEq, Eq, Protobuf)]
pub struct ConfirmMessageRequest {
    /// The node that confirms.
    #[prost(message, optional, tag = "1")]
    pub node: Option<NodeReference>,
    /// The run it belongs to.
    #[prost(uint64, tag = "2")]
    pub run_id: u64,
    /// The id of the message.
    #[prost(string, tag = "3")]
    pub message_object_id: String,
}

/// A response without content.
#[derive(Clone, Copy, PartialEq, Eq, Protobuf)]
pub struct Empty {}

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
pub struct NamedValues {
    /// In the order they were added.
    #[prost(message, repeated, tag = "1")]
    pub items: Vec<Item>,
}

/// A name and its value.
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
    /// The value.
    #[prost(oneof = "Scalar", tags = "1, 2, 3, 4, 5, 6, 21, 22")]
    pub scalar: Option<Scalar>,
}

/// The kinds of values that are used here.
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
    /// True or false.
    #[prost(bool, tag = "4")]
    Bool(bool),
    /// Text.
    #[prost(string, tag = "5")]
    Text(String),
    /// Bytes.
    #[prost(bytes, tag = "6")]
    Bytes(Vec<u8>),
    /// Several numbers.
    #[prost(message, tag = "21")]
    Doubles(Doubles),
    /// Several whole numbers.
    #[prost(message, tag = "22")]
    Integers(Integers),
}
