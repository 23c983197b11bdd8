//! Secure aggregation as a simulation sees it: the numbers that the server would get, and the bytes of the protocol.
//!
//! No keys are drawn and no masks added, since they cancel: the sum of masked vectors is the sum of the vectors, in the same ring, exactly
//! (`fedeq-secure` proves it). What it does to training is the rounding, and what it costs is the messages.
use fedeq_secure::{MessageCounts, Quantisation, QuantisedMean, RingVector, Session, SessionSettings, Trust};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::aggregation::Aggregation;
use crate::algorithm::Weighting;
use crate::error::{Error, Result};
use crate::transport::Traffic;

/// The server learns only the sum of what clients send: clients send their changes as integers of a ring, under masks that cancel in the sum.
///
/// A simulation rounds as clients would, takes the sum as the server would and counts the bytes of all messages of the protocol, for clients
/// that trust the server to follow it and of whom none drops out. Goes with the mean only, by equal weights or by samples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SecureAggregation {
    /// No parameter of a client changes by more than this in a round; what exceeds it is cut off, and counted in the journal.
    pub clip: f32,
    /// Bits of one client's change of a parameter: from 2 to 24. The sum takes as many more as the size of the cohort has.
    pub precision_bits: u8,
    /// No client has more samples than this; needed where clients are weighted by their samples, and refused where not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub largest_weight: Option<u32>,
}

impl Default for SecureAggregation {
    fn default() -> Self {
        Self { clip: 1.0, precision_bits: 16, largest_weight: None }
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
        is_compressed: bool,
        replacement: bool,
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
        if is_compressed {
            return does_not_go("plan.compression", "what is summed must be the same numbers of all clients, rounded alike");
        }
        if replacement {
            return does_not_go("plan.sampling.replacement", "a client takes part in a sum once");
        }
        Ok(())
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
        let Self { clip, precision_bits, largest_weight } = *self;
        let Ok(clients) = u16::try_from(clients) else {
            return refused(
                format!("`plan.secure_aggregation` with `{clients}` clients a round"),
                "let at most 65,534 clients take part",
            );
        };
        let quantisation = Quantisation { clip, precision_bits, clients, largest_weight };
        quantisation.ring_bits().map(|_| quantisation).map_err(unfit)
    }

    /// The bytes of a session of so many clients, each with so many parameters and running statistics; no client drops out.
    pub(crate) fn traffic(&self, clients: usize, parameters: usize, statistics: usize) -> Result<Traffic> {
        let quantisation = self.for_clients(clients)?;
        let length = quantisation.ring_length(parameters, statistics).map_err(unfit)?;
        let settings = SessionSettings {
            nonce: [0; 32],
            clients: quantisation.clients,
            threshold: SessionSettings::usual_threshold(quantisation.clients),
            minimum: fedeq_secure::SMALLEST_COHORT,
            length: u32::try_from(length).unwrap_or(u32::MAX),
            ring_bits: quantisation.ring_bits().map_err(unfit)?,
            neighbours: None,
            trust: Trust::HonestButCurious,
        };
        let session = Session::new(settings).map_err(unfit)?;
        // Clients are numbered within their cohort.
        let counts = MessageCounts::without_drop_outs(&session, &(0..quantisation.clients).collect());
        let sum = |bytes: fn(&MessageCounts) -> u64| counts.values().map(bytes).sum();
        Ok(Traffic { up: sum(MessageCounts::sent_by_clients), down: sum(MessageCounts::sent_by_server) })
    }

    /// The mean of what clients send as the server gets it, and how many numbers were cut off.
    pub(crate) fn mean(&self, rows: &[SecretRow], weighting: Weighting) -> Result<(QuantisedMean, u64)> {
        self.validate_cohort(rows.len())?;
        let quantisation = self.for_clients(rows.len())?;
        let encode = |row: &SecretRow| {
            let weight = self.weight(row.samples, weighting)?;
            let encoded = quantisation.encode(&row.changes, &row.statistics, weight).map_err(too_large_or_unfit)?;
            Ok((encoded.vector, encoded.clipped as u64))
        };
        let add = |one: (RingVector, u64), other: (RingVector, u64)| {
            let (mut sum, clipped) = one;
            sum.add(&other.0).map_err(unfit)?;
            Ok((sum, clipped + other.1))
        };
        // Exact sums are the same in any order.
        let sum = rows.par_iter().map(encode).try_reduce_with(add);
        let (sum, clipped) = sum.unwrap_or_else(|| refused("no updates came", "report this"))?;
        let statistics = rows.first().map_or(0, |row| row.statistics.len());
        Ok((quantisation.decode_mean(&sum, statistics, rows.len()).map_err(unfit)?, clipped))
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

#[cfg(test)]
mod tests {
    use fedeq_secure::in_memory::{DropOut, SessionClient, run};
    use fedeq_secure::{Entropy, Identity};
    use proptest::prelude::*;

    use super::*;

    /// Runs the protocol itself, with keys, masks and shares.
    fn protocol(settings: SecureAggregation, rows: &[SecretRow], weighting: Weighting) -> (QuantisedMean, Traffic) {
        let quantisation = settings.for_clients(rows.len()).unwrap();
        let clients = rows.len() as u16;
        let session = Session::new(SessionSettings {
            nonce: [3; 32],
            clients,
            threshold: SessionSettings::usual_threshold(clients),
            minimum: 3,
            length: quantisation.ring_length(rows[0].changes.len(), rows[0].statistics.len()).unwrap() as u32,
            ring_bits: quantisation.ring_bits().unwrap(),
            neighbours: None,
            trust: Trust::HonestButCurious,
        });
        let client = |(client, row): (u16, &SecretRow)| SessionClient {
            client,
            identity: Identity::Unsigned,
            entropy: Entropy::fixed([client as u8; 32]),
            vector: quantisation
                .encode(&row.changes, &row.statistics, settings.weight(row.samples, weighting).unwrap())
                .unwrap()
                .vector,
            leaves: DropOut::Never,
        };
        let outcome = run(&session.unwrap(), (0u16..).zip(rows).map(client).collect()).unwrap();
        let mean = quantisation.decode_mean(&outcome.sum.sum, rows[0].statistics.len(), rows.len()).unwrap();
        (mean, Traffic { up: outcome.counts.sent_by_clients(), down: outcome.counts.sent_by_server() })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(6))]

        #[test]
        fn a_simulation_has_the_numbers_and_the_bytes_of_the_protocol_itself(
            rows in prop::collection::vec((prop::collection::vec(-1.5f32..1.5, 7), prop::collection::vec(-9.0..900.0, 2), 1u64..500), 3..6),
            weighted: bool,
        ) {
            let rows: Vec<SecretRow> =
                rows.into_iter().map(|(changes, statistics, samples)| SecretRow { changes, statistics, samples }).collect();
            let (weighting, largest_weight) = if weighted { (Weighting::Samples, Some(500)) } else { (Weighting::Uniform, None) };
            let settings = SecureAggregation { largest_weight, ..SecureAggregation::default() };
            let (mean, clipped) = settings.mean(&rows, weighting).unwrap();
            let (expected, traffic) = protocol(settings, &rows, weighting);
            prop_assert_eq!(mean, expected);
            prop_assert_eq!(settings.traffic(rows.len(), 7, 2).unwrap(), traffic);
            let beyond = rows.iter().flat_map(|row| &row.changes).filter(|value| value.abs() > 1.0).count();
            prop_assert_eq!(clipped, beyond as u64);
        }
    }

    #[test]
    fn what_cannot_be_summed_in_secret_is_refused_by_name() {
        let settings = SecureAggregation::default();
        let problem = |result: Result<()>| result.unwrap_err().to_string();
        let mean = Aggregation::MEAN;
        settings.validate(&mean, false, false, false).unwrap();
        let capped = Aggregation { cap: Some(0.5), ..mean.clone() };
        assert!(problem(settings.validate(&capped, false, false, false)).contains("`plan.aggregation.cap`"));
        let noted = Aggregation { distances: Some(true), ..mean.clone() };
        assert!(problem(settings.validate(&noted, false, false, false)).contains("`plan.aggregation.distances`"));
        assert!(problem(settings.validate(&mean, true, false, false)).contains("`plan.asynchronous`"));
        assert!(problem(settings.validate(&mean, false, true, false)).contains("`plan.compression`"));
        assert!(problem(settings.validate(&mean, false, false, true)).contains("`plan.sampling.replacement`"));
        assert!(problem(settings.validate_cohort(2)).contains("`2` clients a round"));
        assert!(problem(settings.validate_cohort(70_000)).contains("`70000` clients"));
        assert!(problem(settings.validate_weighting(Weighting::Samples)).contains("largest_weight` is missing"));
        let weighted = SecureAggregation { largest_weight: Some(9), ..settings };
        assert!(problem(weighted.validate_weighting(Weighting::Uniform)).contains("all clients count the same"));
        assert!(problem(weighted.weight(10, Weighting::Samples).map(drop)).contains("a client has 10 samples"));
        for bad in [SecureAggregation { clip: -1.0, ..settings }, SecureAggregation { precision_bits: 40, ..settings }] {
            assert!(problem(bad.validate(&mean, false, false, false)).contains("`plan.secure_aggregation`"));
        }
    }
}
