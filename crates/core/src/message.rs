//! What server and clients say to each other. This is all they say.
use serde::{Deserialize, Serialize};

use crate::algorithm::Update;
use crate::error::{Error, Result};
use crate::params::{Metadata, Params};
use crate::site::{Descent, Score};
use crate::weights::Weights;

/// What the server asks of a client.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// What to do.
    pub task: Task,
    /// The round, from 0.
    pub round: u64,
    /// How many there will be.
    pub rounds: u64,
    /// The penalty in force, where the method has one.
    pub rho: Option<f64>,
    /// The shared part of the model.
    pub weights: Weights,
}

/// What a client is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Task {
    /// Train, and send what travels.
    Train,
    /// Judge your models.
    Evaluate,
    /// Judge your models, and say what the theory wants to know: this costs a pass over the training data.
    Measure,
    /// Training is over: do what the method does then.
    Finish,
    /// You were not there during training: make the shared part your own.
    Adopt,
}

/// What a client answers.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// To [`Task::Train`].
    Update(Update),
    /// To [`Task::Evaluate`] and [`Task::Measure`].
    Scores(Box<Scores>),
    /// To [`Task::Finish`] and [`Task::Adopt`].
    Done(Descent),
}

/// How a client's models do. Numbers about the model, never the model's own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Scores {
    /// Test scores with `theta_i` and `w_i`.
    pub local: Score,
    /// Test scores with `theta` and `w_i`, where something is shared.
    pub shared: Option<Score>,
    /// Validation scores by the model the method is judged by, where something is set aside.
    pub validation: Option<Score>,
    /// How often the client has taken part.
    pub participations: u64,
    /// `||theta_i - theta||`.
    pub gap: f64,
    /// `||lambda_i||`.
    pub dual_norm: f64,
    /// What the theory wants to know, if asked for.
    pub theory: Option<Theory>,
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
    task: Task,
    round: u64,
    rounds: u64,
    rho: Option<f64>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, tag = "reply", rename_all = "kebab-case")]
enum ReplyHeader {
    Update { samples: u64, gap: f64, descent: Descent },
    Scores { scores: Box<Scores> },
    Done { descent: Descent },
}

const HEADER: &str = "header";

impl Request {
    /// The bytes on the wire.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let header = RequestHeader { task: self.task, round: self.round, rounds: self.rounds, rho: self.rho };
        encode(&header, &self.weights)
    }

    /// Reads what [`encode`](Self::encode) wrote.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let (RequestHeader { task, round, rounds, rho }, weights) = decode(bytes)?;
        Ok(Self { task, round, rounds, rho, weights })
    }
}

impl Reply {
    /// Shares memory with `other` wherever they are equal.
    pub(crate) fn share(&mut self, other: &Self) {
        if let (Self::Update(update), Self::Update(other)) = (self, other) {
            update.weights.share(&other.weights);
        }
    }

    /// The bytes on the wire.
    pub fn encode(&self) -> Result<Vec<u8>> {
        match self {
            Self::Update(Update { weights, samples, gap, descent }) => {
                encode(&ReplyHeader::Update { samples: *samples, gap: *gap, descent: descent.clone() }, weights)
            }
            Self::Scores(scores) => encode(&ReplyHeader::Scores { scores: scores.clone() }, &Weights::default()),
            Self::Done(descent) => encode(&ReplyHeader::Done { descent: descent.clone() }, &Weights::default()),
        }
    }

    /// Reads what [`encode`](Self::encode) wrote.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let (header, weights) = decode(bytes)?;
        Ok(match header {
            ReplyHeader::Update { samples, gap, descent } => Self::Update(Update { weights, samples, gap, descent }),
            ReplyHeader::Scores { scores } => Self::Scores(scores),
            ReplyHeader::Done { descent } => Self::Done(descent),
        })
    }
}

fn encode(header: &impl Serialize, weights: &Weights) -> Result<Vec<u8>> {
    let header =
        serde_json::to_string(header).map_err(|error| Error::message(format!("its header cannot be written: {error}")))?;
    weights.packed().to_bytes(&Metadata::from([(HEADER.into(), header)]))
}

fn decode<H: for<'de> Deserialize<'de>>(bytes: &[u8]) -> Result<(H, Weights)> {
    let (packed, metadata) = Params::from_bytes(bytes)?;
    let header = metadata.get(HEADER).ok_or_else(|| Error::message("it has no header"))?;
    let header = serde_json::from_str(header).map_err(|error| Error::message(format!("its header is damaged: {error}")))?;
    Ok((header, Weights::unpacked(&packed)))
}
