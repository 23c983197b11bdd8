//! Requests and replies of `fedeq_core` as Flower's records. The server's side of it is `python/src/fedeq/flower/messages.py`.
//!
//! | record | in a request | in a reply |
//! |---|---|---|
//! | `weights` (one array, `packed`) | the shared part of the model, as numbers or as a codec wrote it (bytes); messages of secure aggregation | alike |
//! | `fedeq` (settings) | `federation`, `experiment`, `header`, `layout` of the weights | `header`, `layout` |
//! | `metrics` | | `num-examples`, `loss`: for any strategy of Flower |
use fedeq_core::{Reply, Request, Weights};

use std::collections::BTreeMap;

use crate::layout::{Layout, PACKED, layout_of, layout_text, pack, read_layout, unpack};
use crate::record::{Content, Record};
use crate::wire::{NamedValues, Scalar};
use crate::{Error, Result};

const WEIGHTS: &str = "weights";
const SETTINGS: &str = "fedeq";
const METRICS: &str = "metrics";
const LAYOUT: &str = "layout";

/// A request with what a node needs to carry it out.
#[derive(Clone, Debug, PartialEq)]
pub struct Envelope {
    /// The name of the federation, the same after a restart of the server: a node keeps one state for each federation.
    pub federation: String,
    /// The experiment, as TOML.
    pub experiment: String,
    /// The request.
    pub request: Request,
    /// What is sent in place of its weights; the request then has none.
    pub payload: Option<Payload>,
}

/// What is sent in place of weights: what a codec wrote, or a message of secure aggregation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payload {
    /// The names and shapes of the weights that it stands for, as the sender says.
    pub layout: Layout,
    /// The bytes.
    pub bytes: Vec<u8>,
}

impl Envelope {
    /// A request with its weights.
    pub fn new(federation: &str, experiment: &str, request: Request) -> Self {
        Self { federation: federation.into(), experiment: experiment.into(), request, payload: None }
    }

    /// The names and shapes of the weights that it is about.
    pub fn layout(&self) -> Layout {
        let own = || layout_of(&self.request.weights.packed());
        self.payload.as_ref().map_or_else(own, |payload| payload.layout.clone())
    }

    /// Reads it from the content of a message.
    pub fn read(content: &Content) -> Result<Self> {
        let settings = content.config(SETTINGS)?;
        let payload = match packed_bytes(content)? {
            Some(bytes) => Some(Payload { layout: read_layout(text(settings, LAYOUT)?)?, bytes: bytes.clone() }),
            None => None,
        };
        let weights = if payload.is_some() { Weights::default() } else { weights(content)? };
        Ok(Self {
            federation: text(settings, "federation")?.into(),
            experiment: text(settings, "experiment")?.into(),
            request: Request::from_parts(text(settings, "header")?, weights)?,
            payload,
        })
    }

    /// The content of a message.
    pub fn write(&self) -> Result<Content> {
        let (record, layout) = match &self.payload {
            Some(Payload { layout, bytes }) => (bytes_record(bytes), layout_text(layout)),
            None => {
                let (arrays, layout) = pack(&self.request.weights.packed());
                (Record::Arrays(arrays), layout)
            }
        };
        let settings = NamedValues::default()
            .with("federation", Scalar::Text(self.federation.clone()))
            .with("experiment", Scalar::Text(self.experiment.clone()))
            .with("header", Scalar::Text(self.request.header()?))
            .with(LAYOUT, Scalar::Text(layout));
        Ok(Content::default().with(WEIGHTS, record).with(SETTINGS, Record::Config(settings)))
    }
}

fn bytes_record(bytes: &[u8]) -> Record {
    Record::Bytes(BTreeMap::from([(PACKED.to_owned(), bytes.to_vec())]))
}

/// The bytes that are sent in place of weights, if any.
fn packed_bytes(content: &Content) -> Result<Option<&Vec<u8>>> {
    let Ok(Some(arrays)) = content.bytes(WEIGHTS) else { return Ok(None) };
    arrays.get(PACKED).map(Some).ok_or_else(|| Error::record(PACKED, "the message has no such array"))
}

/// The reply to a `query`: which client of the federation the node is, and the version of its program.
pub fn identity(client: u64) -> Content {
    let values = NamedValues::default()
        .with("client", Scalar::Integer(client as i64))
        .with("version", Scalar::Text(env!("CARGO_PKG_VERSION").into()));
    Content::default().with(SETTINGS, Record::Config(values))
}

/// A reply as the content of a message.
pub fn write_reply(reply: &Reply) -> Result<Content> {
    let header = NamedValues::default().with("header", Scalar::Text(reply.header()?));
    let content = Content::default().with(METRICS, Record::Metrics(metrics(reply)));
    if let Some(bytes) = reply.compressed() {
        return Ok(content.with(SETTINGS, Record::Config(header)).with(WEIGHTS, bytes_record(bytes)));
    }
    let Some(weights) = reply.weights()? else { return Ok(content.with(SETTINGS, Record::Config(header))) };
    let (arrays, layout) = pack(&weights.packed());
    let settings = header.with(LAYOUT, Scalar::Text(layout));
    Ok(content.with(SETTINGS, Record::Config(settings)).with(WEIGHTS, Record::Arrays(arrays)))
}

/// Reads a reply.
pub fn read_reply(content: &Content) -> Result<Reply> {
    let header = text(content.config(SETTINGS)?, "header")?;
    if let Some(bytes) = packed_bytes(content)? {
        return Ok(Reply::from_compressed(header, bytes.clone())?);
    }
    let weights = if content.arrays(WEIGHTS).is_ok() { weights(content)? } else { Weights::default() };
    Ok(Reply::from_parts(header, weights)?)
}

fn weights(content: &Content) -> Result<Weights> {
    let layout = text(content.config(SETTINGS)?, LAYOUT)?;
    Ok(Weights::unpacked(&unpack(content.arrays(WEIGHTS)?, layout)?))
}

fn metrics(reply: &Reply) -> NamedValues {
    let (samples, loss) = match reply {
        Reply::Update(update) => (update.samples, update.stats.loss),
        Reply::Scores(scores) => (scores.local.predictions, scores.local.loss / scores.local.predictions.max(1) as f64),
        Reply::Done(stats) => (stats.steps, stats.loss),
        Reply::Aggregation(_) => (0, 0.0),
    };
    NamedValues::default().with("num-examples", Scalar::Integer(samples as i64)).with("loss", Scalar::Double(loss))
}

fn text<'a>(values: &'a NamedValues, key: &str) -> Result<&'a str> {
    match values.get(key) {
        Some(Scalar::Text(text)) => Ok(text),
        _ => Err(Error::record(SETTINGS, format!("`{key}` is missing or not a text"))),
    }
}
