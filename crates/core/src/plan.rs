//! What a federation is to do.
use fedeq_data::Seed;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::aggregation::Aggregation;
use crate::algorithm::Algorithm;
use crate::asynchronous::Asynchronous;
use crate::client::shares_anything;
use crate::compression::Compression;
use crate::error::{Error, Result};
use crate::privacy::{Mechanism, NoiseBy, Privacy};
use crate::sampler::Sampling;
use crate::secure::{SecureAggregation, SecureRounds};
use crate::server_optimiser::ServerOptimiser;

/// What a federation is to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Plan {
    /// Rounds of training.
    #[schemars(range(min = 1, max = MOST_ROUNDS))]
    pub rounds: u64,
    /// Who takes part.
    pub sampling: Sampling,
    /// Evaluate all clients after every so many rounds, and always after the last.
    pub evaluate_every: u64,
    /// Early stopping: training ends after this many evaluations in a row without a better validation accuracy than before them (the round after is the last); off if
    /// left out. Needs `data.split.validation`, and does not go with `plan.privacy`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub patience: Option<u64>,
    /// Whether evaluations also measure the augmented Lagrangian and stationarity, at the cost of a pass over all training data.
    pub measure_theory: bool,
    /// Lets clients of different speeds work whenever they can, asynchronously; off if left out. A round is then as many
    /// updates as the sampling gives a synchronous round.
    pub asynchronous: Option<Asynchronous>,
    /// Compresses what is sent: differences, by codecs, in fewer bytes; off if left out.
    pub compression: Option<Compression>,
    /// How the server aggregates what clients send.
    #[serde(skip_serializing_if = "Aggregation::is_default")]
    pub aggregation: Aggregation,
    /// Moves the server by an optimiser of its own instead of taking the mean of what clients send; off if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_optimiser: Option<ServerOptimiser>,
    /// Makes the server's models differentially private at the level of clients; off if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub privacy: Option<Privacy>,
    /// Lets the server learn only the sum of what clients send; off if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secure_aggregation: Option<SecureAggregation>,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            rounds: 150,
            sampling: Sampling::default(),
            evaluate_every: 10,
            patience: None,
            measure_theory: false,
            asynchronous: None,
            compression: None,
            aggregation: Aggregation::default(),
            server_optimiser: None,
            privacy: None,
            secure_aggregation: None,
        }
    }
}

/// More rounds than this would never come to an end, and a list of them would fill the memory.
const MOST_ROUNDS: u64 = 1_000_000;

impl Plan {
    /// Refuses settings that mean nothing, or nothing to this method.
    pub fn validate(&self, algorithm: &dyn Algorithm) -> Result<()> {
        if !(1..=MOST_ROUNDS).contains(&self.rounds) {
            let problem = format!("`plan.rounds` is `{}`", self.rounds);
            return Err(Error::invalid(problem, "give at least 1 and at most 1,000,000"));
        }
        self.validate_patience()?;
        self.sampling.validate()?;
        self.validate_sending(algorithm)?;
        if let Some(compression) = &self.compression {
            compression.validate(self.sampling.replacement)?;
        }
        self.validate_aggregation()?;
        self.privacy.map_or(Ok(()), |privacy| privacy.validate(self, algorithm))?;
        self.validate_secure(algorithm)?;
        self.validate_optimiser(algorithm)?;
        let Some(asynchronous) = &self.asynchronous else { return Ok(()) };
        asynchronous.validate()?;
        if self.sampling.poisson {
            let problem = "`plan.sampling.poisson` draws cohorts of different sizes, and an asynchronous round has a fixed number of updates";
            return Err(Error::invalid(problem, "leave out `plan.asynchronous` or `plan.sampling.poisson`"));
        }
        if algorithm.takes_single_updates() {
            return Ok(());
        }
        Err(Error::invalid(
            "`plan.asynchronous` needs a server that takes single updates, which this method's does not",
            "leave it out, or set `method=fedeq` and `method.server_step=consensus`",
        ))
    }

    /// Refuses to wait for no evaluation, or for evaluations that do not come.
    fn validate_patience(&self) -> Result<()> {
        match self.patience {
            Some(0) => Err(Error::invalid("`plan.patience` is `0`", "give at least 1, or leave it out")),
            Some(_) if self.evaluate_every == 0 => Err(Error::invalid(
                "`plan.patience` counts evaluations, and `plan.evaluate_every` is `0`",
                "evaluate more often, or leave out `plan.patience`",
            )),
            _ => Ok(()),
        }
    }

    /// Refuses what is about messages where none are sent.
    fn validate_sending(&self, algorithm: &dyn Algorithm) -> Result<()> {
        let settings = [
            ("plan.compression", self.compression.is_some()),
            ("plan.aggregation", !self.aggregation.is_default()),
            ("plan.privacy", self.privacy.is_some()),
            ("plan.secure_aggregation", self.secure_aggregation.is_some()),
        ];
        match settings.into_iter().find(|(_, is_set)| *is_set && !shares_anything(algorithm)) {
            Some((setting, _)) => Err(Error::invalid(
                format!("`{setting}` does not go with a method that sends nothing"),
                "leave it out, or choose another method",
            )),
            None => Ok(()),
        }
    }

    fn validate_aggregation(&self) -> Result<()> {
        self.aggregation.validate()?;
        if self.sampling.poisson && self.aggregation.needs_cohort() {
            let problem =
                "`plan.aggregation` asks for a number of clients a round, and with `plan.sampling.poisson` there may be any";
            return Err(Error::invalid(
                problem,
                "leave out `plan.sampling.poisson`, or choose the rule `median` or `geometric-median`",
            ));
        }
        self.asynchronous.map_or(Ok(()), |_| self.aggregation.validate_single())
    }

    fn validate_secure(&self, algorithm: &dyn Algorithm) -> Result<()> {
        let Some(secure) = &self.secure_aggregation else { return Ok(()) };
        let is_compressed_up = self.compression.is_some_and(|compression| compression.up.is_some());
        secure.validate(&self.aggregation, self.asynchronous.is_some(), is_compressed_up, &self.sampling)?;
        if let Some(setting) = algorithm.needs_single_updates() {
            let problem = format!(
                "`{setting}` follows what single clients sent, and with `plan.secure_aggregation` the server learns only their sum"
            );
            return Err(Error::invalid(problem, "leave one of the two out"));
        }
        secure.validate_weighting(algorithm.weighting())
    }

    fn validate_optimiser(&self, algorithm: &dyn Algorithm) -> Result<()> {
        let Some(optimiser) = &self.server_optimiser else { return Ok(()) };
        optimiser.validate()?;
        if self.asynchronous.is_some() {
            let problem = "`plan.server_optimiser` does not go with `plan.asynchronous`, which applies updates one at a time";
            return Err(Error::invalid(problem, "leave out one of them"));
        }
        if algorithm.averages() && shares_anything(algorithm) {
            return Ok(());
        }
        let problem =
            "`plan.server_optimiser` does not go with this method, whose server does not take the mean of what clients send";
        Err(Error::invalid(problem, "leave it out, or choose a method that averages, such as `method=fedavg`"))
    }

    /// Refuses what cannot be done with so many clients.
    pub fn validate_clients(&self, algorithm: &dyn Algorithm, clients: usize) -> Result<()> {
        let cohort = self.cohort_size(algorithm, clients)?;
        self.aggregation.validate_cohort(cohort)?;
        self.mechanism(algorithm, clients)?;
        self.secure_rounds(algorithm, clients).map(drop)
    }

    /// How rounds of so many clients are summed in secret; nothing where the server sees single updates.
    pub fn secure_rounds(&self, algorithm: &dyn Algorithm, clients: usize) -> Result<Option<SecureRounds>> {
        SecureRounds::of(self, algorithm, clients)
    }

    /// Whether clients add noise to single updates that the server sees.
    pub fn has_noise_in_clear(&self) -> bool {
        self.secure_aggregation.is_none() && self.privacy.is_some_and(|privacy| privacy.noise == NoiseBy::Clients)
    }

    /// What makes the server's models private for so many clients; nothing where the plan does not.
    pub fn mechanism(&self, algorithm: &dyn Algorithm, clients: usize) -> Result<Option<Mechanism>> {
        Mechanism::of(self, algorithm, clients)
    }
}

/// Who takes part: the one place that knows.
impl Plan {
    /// How many of so many clients take part in a round.
    pub fn cohort_size(&self, algorithm: &dyn Algorithm, clients: usize) -> Result<usize> {
        if algorithm.takes_all_clients() { Ok(clients) } else { self.sampling.cohort_size(clients) }
    }

    /// Who takes part in a round, in order of their numbers.
    pub fn cohort(&self, algorithm: &dyn Algorithm, clients: usize, seed: Seed, round: u64) -> Result<Vec<usize>> {
        if algorithm.takes_all_clients() { Ok((0..clients).collect()) } else { self.sampling.draw(clients, seed, round) }
    }
}
