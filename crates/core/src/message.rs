//! What server and clients say to each other. This is all they say.
use serde::{Deserialize, Serialize};

use crate::algorithm::Update;
use crate::error::{Error, Result};
use crate::fixed_points::FixedPoints;
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

impl Task {
    /// Whether a client is another one afterwards, so that its new state is to be kept.
    pub fn changes_state(self) -> bool {
        match self {
            Self::Train | Self::Finish | Self::Adopt => true,
            Self::Evaluate | Self::Measure => false,
        }
    }
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
    /// What the solves of some test samples end in, if that is watched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fixed_points: Option<FixedPoints>,
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
        encode(self.header()?, &self.weights)
    }

    /// Reads what [`encode`](Self::encode) wrote.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let (header, weights) = decode(bytes)?;
        Self::from_parts(&header, weights)
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
    /// Shares memory with `other` wherever they are equal.
    pub(crate) fn share(&mut self, other: &Self) {
        if let (Self::Update(update), Self::Update(other)) = (self, other) {
            update.weights.share(&other.weights);
        }
    }

    /// The bytes on the wire.
    pub fn encode(&self) -> Result<Vec<u8>> {
        encode(self.header()?, self.weights().unwrap_or(&Weights::default()))
    }

    /// Reads what [`encode`](Self::encode) wrote.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let (header, weights) = decode(bytes)?;
        Self::from_parts(&header, weights)
    }

    /// The weights it carries, if any.
    pub fn weights(&self) -> Option<&Weights> {
        match self {
            Self::Update(update) => Some(&update.weights),
            Self::Scores(_) | Self::Done(_) => None,
        }
    }

    /// Everything but the weights, as JSON.
    pub fn header(&self) -> Result<String> {
        written(&match self {
            Self::Update(Update { samples, gap, descent, .. }) => {
                ReplyHeader::Update { samples: *samples, gap: *gap, descent: descent.clone() }
            }
            Self::Scores(scores) => ReplyHeader::Scores { scores: scores.clone() },
            Self::Done(descent) => ReplyHeader::Done { descent: descent.clone() },
        })
    }

    /// A reply of its [`header`](Self::header) and its weights.
    pub fn from_parts(header: &str, weights: Weights) -> Result<Self> {
        Ok(match read(header)? {
            ReplyHeader::Update { samples, gap, descent } => Self::Update(Update { weights, samples, gap, descent }),
            ReplyHeader::Scores { scores } => Self::Scores(scores),
            ReplyHeader::Done { descent } => Self::Done(descent),
        })
    }
}

fn written(header: &impl Serialize) -> Result<String> {
    serde_json::to_string(header).map_err(|error| Error::message(format!("its header cannot be written: {error}")))
}

fn read<H: for<'de> Deserialize<'de>>(header: &str) -> Result<H> {
    serde_json::from_str(header).map_err(|error| Error::message(format!("its header is damaged: {error}")))
}

fn encode(header: String, weights: &Weights) -> Result<Vec<u8>> {
    weights.packed().to_bytes(&Metadata::from([(HEADER.into(), header)]))
}

fn decode(bytes: &[u8]) -> Result<(String, Weights)> {
    let (packed, mut metadata) = Params::from_bytes(bytes)?;
    let header = metadata.remove(HEADER).ok_or_else(|| Error::message("it has no header"))?;
    Ok((header, Weights::unpacked(&packed)))
}
