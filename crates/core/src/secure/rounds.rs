//! Secure aggregation as a plan has it: what both sides of every session know before it begins.
use std::ops::RangeInclusive;

use fedeq_data::Seed;
use fedeq_secure::{MessageCounts, Quantisation, QuantisedMean, RingVector, Session, SessionSettings, Trust, key_to_hex};
use rayon::prelude::*;

use super::noise::NoisyVector;
use super::{FEWEST, RingNoise, SecretRow, SecureAggregation, SessionOf, refused, signing, too_large_or_unfit, unfit};
use crate::algorithm::{Algorithm, Weighting};
use crate::error::{Error, Result};
use crate::plan::Plan;
use crate::transport::Traffic;

/// How all rounds of a plan are summed in secret: whose vectors, how they are rounded, and with which noise.
#[derive(Clone, Debug)]
pub struct SecureRounds {
    pub(super) settings: SecureAggregation,
    /// Noise by clients, where the plan is private.
    pub(super) noise: Option<RingNoise>,
    /// How many clients the sum of a round is to be of.
    planned: usize,
    /// The most that there can be: more than that under Poisson sampling.
    most: usize,
}

/// How vectors of one session become those of its ring, and the sum a mean.
pub(super) enum RingCode {
    /// Rounded, to a mean over those who are in the sum.
    Rounded(Quantisation),
    /// Shortened, rounded and with noise, to a sum that is divided by a number that does not depend on who is in it.
    Noisy {
        noise: RingNoise,
        /// How many clients there are.
        clients: usize,
    },
}

impl RingCode {
    fn ring_bits(&self) -> Result<u8> {
        match self {
            Self::Rounded(quantisation) => quantisation.ring_bits().map_err(unfit),
            Self::Noisy { noise, clients } => noise.ring_bits(*clients),
        }
    }

    fn ring_length(&self, parameters: usize, statistics: usize) -> Result<usize> {
        match self {
            Self::Rounded(quantisation) => quantisation.ring_length(parameters, statistics).map_err(unfit),
            Self::Noisy { noise, .. } if statistics == 0 => noise.check_length(parameters).map(|()| parameters),
            Self::Noisy { .. } => {
                refused("running statistics travel too, and no noise covers them", "choose a network without them")
            }
        }
    }

    /// A client's vector, and how many of its numbers were cut off. `seed` is what its noise comes from.
    pub(super) fn encode(&self, row: &SecretRow, weight: Option<u32>, seed: Seed) -> Result<(RingVector, u64)> {
        match self {
            Self::Rounded(quantisation) => {
                let encoded = quantisation.encode(&row.changes, &row.statistics, weight).map_err(too_large_or_unfit)?;
                Ok((encoded.vector, encoded.clipped as u64))
            }
            Self::Noisy { noise, clients } => {
                let NoisyVector { vector, clipped } = noise.encode(&row.changes, *clients, seed)?;
                Ok((vector, clipped))
            }
        }
    }

    /// The mean that a sum over so many clients comes to.
    pub(super) fn decode(&self, sum: &RingVector, statistics: usize, clients: usize) -> Result<QuantisedMean> {
        match self {
            Self::Rounded(quantisation) => quantisation.decode_mean(sum, statistics, clients).map_err(unfit),
            Self::Noisy { noise, .. } => {
                Ok(QuantisedMean { values: noise.decode(sum), wide: Vec::new(), total_weight: clients as u64 })
            }
        }
    }
}

impl SecureRounds {
    /// What a plan does with so many clients; nothing where its server sees single updates.
    pub(crate) fn of(plan: &Plan, algorithm: &dyn Algorithm, clients: usize) -> Result<Option<Self>> {
        let Some(settings) = plan.secure_aggregation.clone() else { return Ok(None) };
        let planned = plan.cohort_size(algorithm, clients)?;
        settings.validate_cohort(planned)?;
        settings.validate_keys(clients)?;
        let mechanism = plan.mechanism(algorithm, clients)?;
        let noise = mechanism.map(|mechanism| RingNoise::new(&settings, mechanism.share())).transpose()?;
        noise.map_or(Ok(0), |noise| noise.ring_bits(planned))?;
        let most = if plan.sampling.poisson && !algorithm.takes_all_clients() { clients } else { planned };
        Ok(Some(Self { settings, noise, planned, most }))
    }

    /// The fewest clients whose sum may become known: three; as many as the account of privacy counts on; and where clients know each other's keys more than two thirds of those
    /// that are planned, so that a server with a third of them on its side cannot choose a cohort that is mostly its own.
    pub(crate) fn minimum(&self) -> usize {
        let known = u16::try_from(self.planned).map_or(self.planned, |planned| SessionSettings::usual_threshold(planned).into());
        let known = if self.is_signed() { known } else { FEWEST };
        FEWEST.max(known).max(self.noise.map_or(0, |noise| noise.fewest()))
    }

    /// The standard deviation of the noise in every shared parameter after a sum over so many clients, where clients add noise.
    pub(crate) fn deviation(&self, clients: usize) -> Option<f64> {
        self.noise.map(|noise| noise.deviation(clients))
    }

    /// Refuses networks that the steps of the ring are too coarse for, where noise is added.
    pub(crate) fn validate_length(&self, parameters: usize) -> Result<()> {
        self.noise.map_or(Ok(()), |noise| noise.check_length(parameters))
    }

    /// The numbers of clients that a session may have.
    pub(super) fn cohorts(&self) -> RangeInclusive<usize> {
        self.minimum()..=self.most
    }

    /// Whether clients know each other's keys.
    pub fn is_signed(&self) -> bool {
        !self.settings.signing_keys.is_empty()
    }

    /// Refuses a client whose key is not the one that is registered for it.
    pub fn require_key(&self, client: usize, public: &[u8; 32]) -> Result<()> {
        let registered = self.settings.signing_keys.get(client);
        if registered.is_some_and(|key| key.eq_ignore_ascii_case(&key_to_hex(public))) {
            return Ok(());
        }
        refused(
            format!("the key to sign with that the experiment has for client `{client}` is not this client's"),
            "send its owner's line of `fedeq node key --signing` to the author of the federation, and accept the agreement that they write with it",
        )
    }

    fn code(&self, clients: usize) -> Result<RingCode> {
        match self.noise {
            Some(noise) => Ok(RingCode::Noisy { noise, clients }),
            None => self.settings.for_clients(clients).map(RingCode::Rounded),
        }
    }

    /// A session, and how numbers become those of its ring.
    pub(super) fn session(&self, of: &SessionOf<'_>) -> Result<(Session, RingCode)> {
        let clients = self.settings.for_clients(of.cohort)?.clients;
        let code = self.code(of.cohort)?;
        let trust = if self.is_signed() {
            Trust::Registry(signing::registry(&self.settings.signing_keys)?)
        } else {
            Trust::HonestButCurious
        };
        let settings = SessionSettings {
            nonce: of.nonce(),
            clients,
            threshold: SessionSettings::usual_threshold(clients),
            minimum: u16::try_from(self.minimum()).unwrap_or(u16::MAX),
            length: u32::try_from(code.ring_length(of.parameters, of.statistics)?).unwrap_or(u32::MAX),
            ring_bits: code.ring_bits()?,
            neighbours: None,
            trust,
        };
        Ok((Session::new(settings).map_err(unfit)?, code))
    }

    /// The numbers of clients in a session: their own where others know them by their keys, and otherwise their places in the cohort.
    pub(super) fn numbers(&self, clients: &[usize]) -> Result<Vec<u16>> {
        let number = |(place, client): (usize, &usize)| u16::try_from(if self.is_signed() { *client } else { place });
        let numbers = clients.iter().enumerate().map(number).collect::<std::result::Result<Vec<u16>, _>>();
        numbers.map_err(|_| Error::invalid("`plan.secure_aggregation` with more than 65,534 clients", "leave it out"))
    }

    /// The bytes of a session of these clients, each with so many parameters and running statistics; no client drops out.
    pub fn traffic(&self, clients: &[usize], parameters: usize, statistics: usize) -> Result<Traffic> {
        let of = SessionOf { federation: "", round: 0, attempt: 0, cohort: clients.len(), parameters, statistics };
        let (session, _) = self.session(&of)?;
        let counts = MessageCounts::without_drop_outs(&session, &self.numbers(clients)?.into_iter().collect());
        let sum = |bytes: fn(&MessageCounts) -> u64| counts.values().map(bytes).sum();
        Ok(Traffic { up: sum(MessageCounts::sent_by_clients), down: sum(MessageCounts::sent_by_server) })
    }

    /// The mean of what clients send as the server gets it, and how many numbers were cut off. `seed` is what noise comes from.
    pub(crate) fn mean(&self, rows: &[SecretRow], weighting: Weighting, seed: Seed) -> Result<(QuantisedMean, u64)> {
        self.settings.validate_cohort(rows.len())?;
        let code = self.code(rows.len())?;
        let encode = |(place, row): (usize, &SecretRow)| {
            code.encode(row, self.settings.weight(row.samples, weighting)?, seed.derive("noise", [place as u64]))
        };
        let add = |one: (RingVector, u64), other: (RingVector, u64)| {
            let (mut sum, clipped) = one;
            sum.add(&other.0).map_err(unfit)?;
            Ok((sum, clipped + other.1))
        };
        // Exact sums are the same in any order.
        let sum = rows.par_iter().enumerate().map(encode).try_reduce_with(add);
        let (sum, clipped) = sum.unwrap_or_else(|| refused("no updates came", "report this"))?;
        let statistics = rows.first().map_or(0, |row| row.statistics.len());
        Ok((code.decode(&sum, statistics, rows.len())?, clipped))
    }
}
