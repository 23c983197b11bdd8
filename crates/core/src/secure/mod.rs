//! Secure aggregation.
//!
//! A federation carries out the protocol. In a simulation no keys are drawn and no masks added, since they cancel: the sum of masked vectors is the sum of the vectors, in the same ring, exactly
//! (`fedeq-secure` proves it). What it does to training is the rounding, and what it costs is the messages.
//!
//! # Layout
//! - this file: the settings, what a session is, and the simulation: the numbers that the server would get, and the bytes of the protocol
//! - `rounds`: what both sides know of every round, from the plan
//! - `client`, `server`: the two sides of the protocol, where clients are elsewhere
//! - `noise`: noise by clients, under their masks
//! - `signing`: keys by which clients know each other
mod client;
mod noise;
mod rounds;
mod server;
mod signing;
#[cfg(test)]
mod tests;

use fedeq_secure::Quantisation;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

pub use client::SecureClient;
pub use rounds::SecureRounds;
pub use server::{CarryStep, SecureMean, SecureStep};

pub(crate) use noise::RingNoise;

use crate::aggregation::Aggregation;
use crate::algorithm::Weighting;
use crate::error::{Error, Result};
use crate::sampler::Sampling;

/// The server learns only the sum of what clients send: clients send their changes as integers of a ring, under masks that cancel in the sum.
///
/// A simulation rounds as clients would, takes the sum as the server would and counts the bytes of all messages of the protocol, for clients
/// that trust the server to follow it and of whom none drops out. Goes with the mean only, by equal weights or by samples.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SecureAggregation {
    /// No parameter of a client changes by more than this in a round; what exceeds it is cut off, and counted in the journal.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub clip: f32,
    /// Bits of one client's change of a parameter: from 2 to 24. The sum takes as many more as the size of the cohort has.
    #[schemars(range(min = 2, max = 24))]
    pub precision_bits: u8,
    /// No client has more samples than this; needed where clients are weighted by their samples, and refused where not.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub largest_weight: Option<u32>,
    /// The clients' public keys to sign with, in their order: clients then share masks with no others and sign who is in the sum, so that a malicious server learns nothing. If left out,
    /// the server is trusted to follow the protocol. `fedeq init-federation --signing-keys` reads them from a file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("default" = []))]
    pub signing_keys: Vec<String>,
}

impl Default for SecureAggregation {
    fn default() -> Self {
        Self { clip: 1.0, precision_bits: 16, largest_weight: None, signing_keys: Vec::new() }
    }
}

/// What one client sends, as plain numbers.
pub(crate) struct SecretRow {
    /// By how much its parameters changed.
    pub(crate) changes: Vec<f32>,
    /// Its running statistics, which have all sizes: in 64 bits each.
    pub(crate) statistics: Vec<f64>,
    /// How many samples it has.
    pub(crate) samples: u64,
}

/// Which session: both sides know all of it beforehand but the attempt and the size of the cohort.
struct SessionOf<'a> {
    federation: &'a str,
    round: u64,
    attempt: u32,
    cohort: usize,
    parameters: usize,
    statistics: usize,
}

impl SessionOf<'_> {
    /// What names this session and no other: federations have names of their own, and sessions of a round numbers.
    fn nonce(&self) -> [u8; 32] {
        let length = (self.federation.len() as u64).to_le_bytes();
        let digest = Sha256::new().chain_update(b"fedeq secure aggregation\0").chain_update(length).chain_update(self.federation);
        digest.chain_update(self.round.to_le_bytes()).chain_update(self.attempt.to_le_bytes()).finalize().into()
    }
}

/// The message with which the server begins a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Opening {
    attempt: u32,
    /// How many clients are asked.
    cohort: u16,
    /// The recipient's number among them.
    place: u16,
}

/// No message of the protocol begins like this.
const OPENS: u8 = 0xff;

impl Opening {
    fn write(self) -> Vec<u8> {
        [&[OPENS][..], &self.attempt.to_le_bytes(), &self.cohort.to_le_bytes(), &self.place.to_le_bytes()].concat()
    }

    /// Reads one; nothing where the message is another one.
    fn read(bytes: &[u8]) -> Result<Option<Self>> {
        let Some((&OPENS, rest)) = bytes.split_first() else { return Ok(None) };
        let malformed = || Error::message("secure aggregation: the message that begins it is malformed");
        let rest: [u8; 8] = rest.try_into().map_err(|_| malformed())?;
        let [a, b, c, d, e, f, g, h] = rest;
        let (attempt, cohort, place) = (u32::from_le_bytes([a, b, c, d]), u16::from_le_bytes([e, f]), u16::from_le_bytes([g, h]));
        Ok(Some(Self { attempt, cohort, place }))
    }
}

/// The fewest updates whose sum the server may learn.
const FEWEST: usize = fedeq_secure::SMALLEST_COHORT as usize;

fn refused<V>(problem: impl Into<String>, remedy: &str) -> Result<V> {
    Err(Error::invalid(problem, remedy))
}

fn unfit(error: fedeq_secure::Error) -> Error {
    Error::invalid(format!("`plan.secure_aggregation`: {error}"), "choose other settings, or leave it out")
}

fn too_large_or_unfit(error: fedeq_secure::Error) -> Error {
    match error {
        fedeq_secure::Error::NotFinite { .. } => Error::Diverged {
            problem: "the update is too large to be sent".into(),
            remedy: "lower `training.learning_rate`".into(),
        },
        other => unfit(other),
    }
}

impl SecureAggregation {
    /// Refuses settings that mean nothing, and what a server that sees only sums cannot do.
    pub(crate) fn validate(
        &self,
        aggregation: &Aggregation,
        is_asynchronous: bool,
        is_compressed_up: bool,
        sampling: &Sampling,
    ) -> Result<()> {
        self.for_clients(FEWEST)?;
        let does_not_go = |with: &str, why: &str| {
            refused(format!("`plan.secure_aggregation` does not go with `{with}`: {why}"), "leave one of the two out")
        };
        if let Some(setting) = aggregation.beyond_mean() {
            return does_not_go(setting, "the server sees the sum of all updates and none of them");
        }
        if is_asynchronous {
            return does_not_go("plan.asynchronous", "a sum is of many updates, and they come one at a time");
        }
        if is_compressed_up {
            let why = "what is summed must be the same numbers of all clients, rounded alike, which `precision_bits` does";
            return does_not_go("plan.compression.up", why);
        }
        if sampling.replacement {
            return does_not_go("plan.sampling.replacement", "a client takes part in a sum once");
        }
        if self.signing_keys.is_empty() {
            return Ok(());
        }
        if sampling.poisson {
            let problem = "`plan.secure_aggregation.signing_keys` does not go with `plan.sampling.poisson`: clients must know how many of them to expect in a sum";
            return refused(problem, "leave one of the two out");
        }
        signing::registry(&self.signing_keys).map(drop)
    }

    /// Refuses keys of other clients than there are.
    pub(crate) fn validate_keys(&self, clients: usize) -> Result<()> {
        match self.signing_keys.len() {
            0 => Ok(()),
            keys if keys == clients => Ok(()),
            keys => refused(
                format!("`plan.secure_aggregation.signing_keys` has `{keys}` keys, and {clients} clients train"),
                "give one for each client that trains, in the order of their numbers",
            ),
        }
    }

    /// Refuses cohorts of which a sum tells too much, or that no ring holds.
    pub(crate) fn validate_cohort(&self, updates: usize) -> Result<()> {
        if updates < FEWEST {
            let problem =
                format!("`plan.secure_aggregation` with `{updates}` clients a round: a sum of so few tells what each sent");
            return refused(problem, "let at least 3 clients take part");
        }
        self.for_clients(updates).map(drop)
    }

    /// How numbers become those of a ring, for so many clients.
    fn for_clients(&self, clients: usize) -> Result<Quantisation> {
        let Self { clip, precision_bits, largest_weight, .. } = *self;
        let Ok(clients) = u16::try_from(clients) else {
            return refused(
                format!("`plan.secure_aggregation` with `{clients}` clients a round"),
                "let at most 65,534 clients take part",
            );
        };
        let quantisation = Quantisation { clip, precision_bits, clients, largest_weight };
        quantisation.ring_bits().map(|_| quantisation).map_err(unfit)
    }

    /// How much a client counts in the sum.
    fn weight(&self, samples: u64, weighting: Weighting) -> Result<Option<u32>> {
        match (weighting, self.largest_weight) {
            (Weighting::Uniform, None) => Ok(None),
            (Weighting::Uniform, Some(_)) => {
                refused("`plan.secure_aggregation.largest_weight` is given, and all clients count the same", "leave it out")
            }
            (Weighting::Samples, None) => refused(
                "`plan.secure_aggregation.largest_weight` is missing, and clients are weighted by their samples",
                "give the largest number of samples that a client may have, or set `method.weighting=uniform`",
            ),
            (Weighting::Samples, Some(largest)) => match u32::try_from(samples) {
                Ok(weight) if weight <= largest => Ok(Some(weight)),
                _ => refused(
                    format!("`plan.secure_aggregation.largest_weight` is `{largest}`, and a client has {samples} samples"),
                    "give a larger one",
                ),
            },
        }
    }

    /// Refuses a largest weight that is missing or means nothing, where the method says how clients count.
    pub(crate) fn validate_weighting(&self, weighting: Weighting) -> Result<()> {
        self.weight(0, weighting).map(drop)
    }
}
