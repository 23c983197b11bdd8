//! Requests and replies of `fedeq_core` as Flower's records. The server's side of it is `python/src/fedeq/flower/messages.py`.
//!
//! | record | in a request | in a reply |
//! |---|---|---|
//! | `weights` (one array, `packed`) | the shared part of the model | the shared part after `train` |
//! | `fedeq` (settings) | `federation`, `experiment`, `header`, `layout` of the weights | `header`, `layout` |
//! | `metrics` | | `num-examples`, `loss`: for any strategy of Flower |
use fedeq_core::{Reply, Request, Weights};

use crate::layout::{pack, unpack};
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
}

impl Envelope {
    /// Reads it from the content of a message.
    pub fn read(content: &Content) -> Result<Self> {
        let settings = content.config(SETTINGS)?;
        let weights = weights(content)?;
        Ok(Self {
            federation: text(settings, "federation")?.into(),
            experiment: text(settings, "experiment")?.into(),
            request: Request::from_parts(text(settings, "header")?, weights)?,
        })
    }

    /// The content of a message.
    pub fn write(&self) -> Result<Content> {
        let (arrays, layout) = pack(&self.request.weights.packed());
        let settings = NamedValues::default()
            .with("federation", Scalar::Text(self.federation.clone()))
            .with("experiment", Scalar::Text(self.experiment.clone()))
            .with("header", Scalar::Text(self.request.header()?))
            .with(LAYOUT, Scalar::Text(layout));
        Ok(Content::default().with(WEIGHTS, Record::Arrays(arrays)).with(SETTINGS, Record::Config(settings)))
    }
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
    let Some(weights) = reply.weights()? else { return Ok(content.with(SETTINGS, Record::Config(header))) };
    let (arrays, layout) = pack(&weights.packed());
    let settings = header.with(LAYOUT, Scalar::Text(layout));
    Ok(content.with(SETTINGS, Record::Config(settings)).with(WEIGHTS, Record::Arrays(arrays)))
}

/// Reads a reply.
pub fn read_reply(content: &Content) -> Result<Reply> {
    let header = text(content.config(SETTINGS)?, "header")?;
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
    };
    NamedValues::default().with("num-examples", Scalar::Integer(samples as i64)).with("loss", Scalar::Double(loss))
}

fn text<'a>(values: &'a NamedValues, key: &str) -> Result<&'a str> {
    match values.get(key) {
        Some(Scalar::Text(text)) => Ok(text),
        _ => Err(Error::record(SETTINGS, format!("`{key}` is missing or not a text"))),
    }
}
