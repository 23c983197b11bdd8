//! What server and clients say to each other. This is all they say.
use std::borrow::Cow;

use fedeq_data::named;
use fedeq_models::store::Metadata;
use serde::{Deserialize, Serialize};

use crate::algorithm::{Algorithm, Update};
use crate::disclosure::Disclosure;
use crate::error::{Error, Result};
use crate::fixed_points::FixedPoints;
use crate::frame;
use crate::params::Params;
use crate::sent::SentWeights;
use crate::stats::{Score, TrainStats};
use crate::weights::Weights;

/// What the server asks of a client.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// What to do.
    pub task: ClientTask,
    /// The round, from 0.
    pub round: u64,
    /// How many there will be.
    pub rounds: u64,
    /// The penalty in force, where the method has one.
    pub rho: Option<f64>,
    /// The shared part of the model.
    pub weights: Weights,
}

named! {
    /// What a client is to do.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    pub enum ClientTask {
        /// Train, and send what is shared.
        Train = "train",
        /// Evaluate your models.
        Evaluate = "evaluate",
        /// Evaluate your models, and say what the theory wants to know: this costs a pass over the training data.
        Measure = "measure",
        /// Training is over: do what the method does then.
        Finish = "finish",
        /// To an unseen client: make the shared part your own.
        Adopt = "adopt",
        /// Let the server have the sum of what you and others trained: a message of secure aggregation follows in place of weights.
        Aggregate = "aggregate",
    }
}

impl ClientTask {
    /// Whether a client is another one afterwards, so that its new state is to be kept.
    pub fn changes_state(self) -> bool {
        match self {
            Self::Train | Self::Finish | Self::Adopt => true,
            Self::Evaluate | Self::Measure | Self::Aggregate => false,
        }
    }
}

/// What a client replies.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// To [`ClientTask::Train`].
    Update(Update),
    /// To [`ClientTask::Evaluate`] and [`ClientTask::Measure`].
    Scores(Box<Scores>),
    /// To [`ClientTask::Finish`] and [`ClientTask::Adopt`].
    Done(TrainStats),
    /// To [`ClientTask::Aggregate`]: a message of secure aggregation.
    Aggregation(Vec<u8>),
}

/// How a client's models do. Numbers about the model, never the model's own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Scores {
    /// Test scores with `theta_i` and `w_i`.
    pub local: Score,
    /// Test scores with `theta` and `w_i`, where something is shared.
    pub shared: Option<Score>,
    /// Validation scores by the method's default model, where something is set aside.
    pub validation: Option<Score>,
    /// How often the client has taken part.
    pub participations: u64,
    /// `||theta_i - theta||`.
    pub gap: f64,
    /// `||lambda_i||`.
    pub dual_norm: f64,
    /// What the theory wants to know, if asked for.
    pub theory: Option<Theory>,
    /// What the solves of some test samples end in, if that is watched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fixed_points: Option<FixedPoints>,
    /// How much of this the client tells.
    #[serde(default, skip_serializing_if = "Disclosure::is_everything")]
    pub disclosure: Disclosure,
}

/// Where a client stands in the paper's analysis.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Theory {
    /// `L_i(theta_i, w_i) + <lambda_i, theta_i - theta> + (rho / 2) ||theta_i - theta||^2`.
    pub lagrangian: f64,
    /// `||grad_theta L_i + lambda_i||`.
    pub stationarity: f64,
    /// `||grad_w L_i||`.
    pub head_gradient: f64,
}

/// A request without its weights, as it stands in a message's header.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestHeader {
    task: ClientTask,
    round: u64,
    rounds: u64,
    rho: Option<f64>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, tag = "reply", rename_all = "kebab-case")]
enum ReplyHeader {
    Update {
        samples: u64,
        gap: f64,
        #[serde(rename = "descent")]
        stats: TrainStats,
    },
    Scores {
        scores: Box<Scores>,
    },
    Done {
        #[serde(rename = "descent")]
        stats: TrainStats,
    },
    Aggregation,
}

const HEADER: &str = "header";

impl Request {
    /// The bytes on the wire.
    pub fn encode(&self) -> Result<Vec<u8>> {
        encode_parts(self.header()?, &self.weights)
    }

    /// Reads what [`encode`](Self::encode) wrote.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let (header, weights) = decode_parts(bytes)?;
        Self::from_parts(&header, weights)
    }

    /// The message as it arrives, and the bytes it takes on the wire. Its header goes through text and back, which may round a number; its weights are the same numbers and are shared.
    pub(crate) fn delivered(&self) -> Result<(Self, u64)> {
        let header = self.header()?;
        Ok((Self::from_parts(&header, self.weights.clone())?, encoded_len(header, &self.weights)))
    }

    /// Everything but the weights, as JSON: what another way of sending puts beside them.
    pub fn header(&self) -> Result<String> {
        written(&RequestHeader { task: self.task, round: self.round, rounds: self.rounds, rho: self.rho })
    }

    /// A request of its [`header`](Self::header) and its weights.
    pub fn from_parts(header: &str, weights: Weights) -> Result<Self> {
        let RequestHeader { task, round, rounds, rho } = read(header)?;
        Ok(Self { task, round, rounds, rho, weights })
    }
}

impl Reply {
    /// The bytes on the wire.
    pub fn encode(&self) -> Result<Vec<u8>> {
        match self.compressed() {
            Some(bytes) => Ok(frame::write(&self.header()?, bytes)),
            None => encode_parts(self.header()?, &self.weights()?.unwrap_or_default()),
        }
    }

    /// Reads what [`encode`](Self::encode) wrote.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        if frame::is_framed(bytes) {
            let (header, body) = frame::read(bytes)?;
            return Self::from_compressed(header, body.to_vec());
        }
        let (header, weights) = decode_parts(bytes)?;
        Self::from_parts(&header, weights)
    }

    /// What it carries in place of weights: what a codec wrote, or a message of secure aggregation.
    pub fn compressed(&self) -> Option<&[u8]> {
        match self {
            Self::Aggregation(bytes) => Some(bytes),
            other => other.update().and_then(|update| update.weights.bytes()),
        }
    }

    /// The same, as it is sent where its weights are part of a sum.
    pub fn masked(self) -> Self {
        match self {
            Self::Update(update) => Self::Update(Update { weights: SentWeights::masked(), ..update }),
            other => other,
        }
    }

    /// A reply of its [`header`](Self::header) and what it carries in place of weights.
    pub fn from_compressed(header: &str, bytes: Vec<u8>) -> Result<Self> {
        match Self::from_parts(header, Weights::default())? {
            Self::Update(update) => Ok(Self::Update(Update { weights: SentWeights::compressed(bytes), ..update })),
            Self::Aggregation(_) => Ok(Self::Aggregation(bytes)),
            Self::Scores(_) | Self::Done(_) => Err(Error::message("it carries weights, and is no update")),
        }
    }

    /// The message as it arrives, and the bytes it takes on the wire. Its header goes through text and back, which may round a number; its weights are the same numbers and are shared.
    pub(crate) fn delivered(self) -> Result<(Self, u64)> {
        let header = self.header()?;
        let nothing = Weights::default();
        let size = match self.compressed() {
            Some(bytes) => frame::len(&header, bytes.len()),
            None => encoded_len(header.clone(), self.update().map_or(&nothing, |update| update.weights.like())),
        };
        let mut reply = Self::from_parts(&header, nothing)?;
        match (&mut reply, self) {
            (Self::Update(arrived), Self::Update(sent)) => arrived.weights = sent.weights,
            (Self::Aggregation(arrived), Self::Aggregation(sent)) => *arrived = sent,
            _ => {}
        }
        Ok((reply, size))
    }

    /// The same with other weights, where it carries some.
    pub fn with_weights(self, weights: Weights) -> Self {
        match self {
            Self::Update(update) => Self::Update(Update { weights: weights.into(), ..update }),
            other => other,
        }
    }

    /// An update of a client that received something else than the server has, as the change it made to the server's parameters.
    pub fn rebased(self, algorithm: &dyn Algorithm, received: &Params, theta: &Params) -> Result<Self> {
        let Self::Update(update) = &self else { return Ok(self) };
        if algorithm.sends_changes() {
            return Ok(self);
        }
        let Weights { params, statistics } = update.weights.to_host()?.into_owned();
        params.ensure_like(theta)?;
        Ok(self.with_weights(Weights { params: theta.plus(1.0, &params.minus(received)), statistics }))
    }

    /// The bytes it takes on the wire where its weights are sent otherwise.
    pub(crate) fn len_without_weights(&self) -> Result<u64> {
        Ok(encoded_len(self.header()?, &Weights::default()))
    }

    /// The weights it carries, if any.
    pub fn weights(&self) -> Result<Option<Cow<'_, Weights>>> {
        self.update().map(|update| update.weights.to_host()).transpose()
    }

    /// What kind it is, as in a message.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Update(_) => "update",
            Self::Scores(_) => "scores",
            Self::Done(_) => "done",
            Self::Aggregation(_) => "aggregation",
        }
    }

    fn update(&self) -> Option<&Update> {
        match self {
            Self::Update(update) => Some(update),
            Self::Scores(_) | Self::Done(_) | Self::Aggregation(_) => None,
        }
    }

    /// Everything but the weights, as JSON.
    pub fn header(&self) -> Result<String> {
        written(&match self {
            Self::Update(Update { samples, gap, stats, .. }) => {
                ReplyHeader::Update { samples: *samples, gap: *gap, stats: stats.clone() }
            }
            Self::Scores(scores) => ReplyHeader::Scores { scores: scores.clone() },
            Self::Done(stats) => ReplyHeader::Done { stats: stats.clone() },
            Self::Aggregation(_) => ReplyHeader::Aggregation,
        })
    }

    /// A reply of its [`header`](Self::header) and its weights.
    pub fn from_parts(header: &str, weights: Weights) -> Result<Self> {
        Ok(match read(header)? {
            ReplyHeader::Update { samples, gap, stats } => Self::Update(Update { weights: weights.into(), samples, gap, stats }),
            ReplyHeader::Scores { scores } => Self::Scores(scores),
            ReplyHeader::Done { stats } => Self::Done(stats),
            ReplyHeader::Aggregation => Self::Aggregation(Vec::new()),
        })
    }
}

fn written(header: &impl Serialize) -> Result<String> {
    serde_json::to_string(header).map_err(|error| Error::message(format!("its header cannot be written: {error}")))
}

fn read<H: for<'de> Deserialize<'de>>(header: &str) -> Result<H> {
    serde_json::from_str(header).map_err(|error| Error::message(format!("its header is damaged: {error}")))
}

/// A message of a header, as it is, and weights.
pub fn encode_parts(header: String, weights: &Weights) -> Result<Vec<u8>> {
    weights.packed().to_bytes(&Metadata::from([(HEADER.into(), header)]))
}

/// The bytes of a message with this header and these weights, counted and not written: as many as [`Request::encode`] and [`Reply::encode`] give.
pub fn encoded_len(header: String, weights: &Weights) -> u64 {
    weights.packed().encoded_len(&Metadata::from([(HEADER.into(), header)]))
}

/// The header and the weights of a message.
pub fn decode_parts(bytes: &[u8]) -> Result<(String, Weights)> {
    let (packed, mut metadata) = Params::from_bytes(bytes)?;
    let header = metadata.remove(HEADER).ok_or_else(|| Error::message("it has no header"))?;
    Ok((header, Weights::unpacked(&packed)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::params::Array;

    fn weights(shapes: &[Vec<usize>]) -> Weights {
        let named = |(at, shape): (usize, &Vec<usize>)| {
            let count = shape.iter().product::<usize>();
            (format!("layer \"{at}\".weight"), Array::new(shape.clone(), (0..count).map(|value| value as f32).collect()))
        };
        let params: Params = shapes.iter().enumerate().map(named).collect();
        Weights { statistics: params.under("running"), params }
    }

    proptest! {
        #[test]
        fn bytes_are_counted_as_if_every_kind_of_message_had_been_encoded(
            shapes in prop::collection::vec(prop::collection::vec(0usize..40, 0..4), 0..6),
            gap in prop::num::f64::NORMAL,
            rho in prop::option::of(prop::num::f64::NORMAL),
            samples in any::<u64>(),
        ) {
            let weights = weights(&shapes);
            let stats = TrainStats { steps: samples / 3, loss: gap / 7.0, ..TrainStats::default() };
            let replies = [
                Reply::Update(Update { weights: weights.clone().into(), samples, gap, stats: stats.clone() }),
                Reply::Update(Update { weights: SentWeights::compressed(vec![7; shapes.len()]), samples, gap, stats: stats.clone() }),
                Reply::Scores(Box::new(Scores { gap, theory: Some(Theory::default()), ..Scores::default() })),
                Reply::Done(stats),
                Reply::Aggregation(vec![1, 2, 3]),
            ];
            for reply in replies {
                let bytes = reply.encode().expect("writable");
                let decoded = Reply::decode(&bytes).expect("readable");
                prop_assert_eq!(reply.delivered().expect("sound"), (decoded, bytes.len() as u64));
            }
            for task in [ClientTask::Train, ClientTask::Evaluate, ClientTask::Measure, ClientTask::Finish, ClientTask::Adopt] {
                let request = Request { task, round: samples, rounds: samples / 2, rho, weights: weights.clone() };
                let bytes = request.encode().expect("writable");
                let decoded = Request::decode(&bytes).expect("readable");
                prop_assert_eq!(request.delivered().expect("sound"), (decoded, bytes.len() as u64));
            }
        }
    }
}
