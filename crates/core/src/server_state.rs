//! What the server keeps between rounds.
use std::collections::{BTreeMap, BTreeSet};

use fedeq_models::store::Metadata;

use crate::aggregation::Received;
use crate::algorithm::Weighting;
use crate::asynchronous::AsyncSchedule;
use crate::error::{Error, Result};
use crate::params::Params;
use crate::patience::ValidationRecord;
use crate::training::is_float;
use crate::weights::Weights;

/// What the server knows: never a client's data, head or dual.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerState {
    /// The shared part of the model, `theta`.
    pub weights: Weights,
    /// How many clients there are in all.
    pub clients: usize,
    /// Rounds that are over.
    pub round: u64,
    /// The penalty in force, where the method has one; it moves only if it is balanced automatically.
    pub rho: Option<f64>,
    /// The bound on clients' changes that the next round begins with, where it adapts; nothing before the first round.
    pub clip: Option<f64>,
    /// Work under way, where clients are asynchronous; nothing before the first of it.
    pub schedule: Option<AsyncSchedule>,
    /// How validation accuracy has gone, where that may end training; nothing before the first evaluation.
    pub validation: Option<ValidationRecord>,
    /// Vectors like the weights that a server step keeps between rounds, by name: moments of an optimiser, FedDyn's `h`.
    pub kept: BTreeMap<String, Params>,
}

impl ServerState {
    /// The server before the first round.
    pub fn new(weights: Weights, clients: usize, rho: Option<f64>) -> Self {
        Self { weights, clients, round: 0, rho, clip: None, schedule: None, validation: None, kept: BTreeMap::new() }
    }

    /// `theta` becomes what the rule of the [aggregation](crate::Aggregation) makes of what was sent: the mean, in the order of the cohort, where nothing
    /// else is asked for.
    pub fn average(&mut self, received: &Received<'_>, weighting: Weighting) -> Result<()> {
        if !received.is_nothing() {
            let aggregate = received.aggregate(&self.weights.params, self.clip, weighting)?;
            self.weights = aggregate.weights;
            self.clip = aggregate.clip;
        }
        Ok(())
    }

    /// The last round of training, of so many that were planned.
    pub(crate) fn last_round(&self, planned: u64) -> u64 {
        self.validation.and_then(|record| record.last_round).map_or(planned, |last| last.min(planned))
    }

    /// What a server step kept under a name; `fresh` of every weight before its first round.
    pub(crate) fn recall(&self, name: &str, fresh: f32) -> Params {
        self.kept.get(name).cloned().unwrap_or_else(|| self.weights.params.map(|_| fresh))
    }

    /// Keeps a vector for the next round.
    pub(crate) fn keep(&mut self, name: &str, vector: Params) {
        self.kept.insert(name.into(), vector);
    }

    /// Refuses weights and a penalty that are no longer finite in the precision that clients compute in.
    pub(crate) fn ensure_finite(&self) -> Result<()> {
        let diverged = |problem: String, remedy: &str| Err(Error::Diverged { problem, remedy: remedy.into() });
        match self.rho.filter(|rho| !is_float(*rho)) {
            Some(rho) => diverged(
                format!("the penalty `rho` is `{rho:e}`"),
                "lower `method.balance.factor`, or leave out `method.balance`",
            ),
            None if !(self.weights.params.is_finite() && self.kept.values().all(Params::is_finite)) => {
                diverged("the server's weights are no longer finite".into(), "lower `training.learning_rate`")
            }
            None => Ok(()),
        }
    }

    /// The bytes of a file; the same state gives the same bytes. The round is not among them.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let mut all = self.weights.packed();
        let mut notes = Metadata::from([("clients".into(), self.clients.to_string())]);
        notes.extend(self.rho.map(|rho| ("rho".into(), format!("{rho:?}"))));
        notes.extend(self.clip.map(|clip| ("clip".into(), format!("{clip:?}"))));
        if let Some(validation) = &self.validation {
            validation.write(&mut notes);
        }
        if let Some(schedule) = &self.schedule {
            notes.insert(SCHEDULE.into(), schedule_text(schedule)?);
            schedule.handed_out.iter().for_each(|(begun, theta)| all.overwrite(&theta.packed().under(&handed_out(*begun))));
        }
        self.kept.iter().for_each(|(name, vector)| all.overwrite(&vector.under(name).under(KEPT)));
        all.to_bytes(&notes)
    }

    /// Reads the bytes of a file, written after `round` rounds; `like` tells which layout is expected.
    pub fn from_bytes(bytes: &[u8], round: u64, like: &Self) -> Result<Self> {
        let (all, notes) = Params::from_bytes(bytes)?;
        let weights = Weights::stored(&all, &like.weights)?;
        let number = |key: &str| {
            let parsed = |text: &String| text.parse().map_err(|_| Error::message(format!("its `{key}` is not a number")));
            notes.get(key).map(parsed).transpose()
        };
        let schedule = notes.get(SCHEDULE).map(|text| read_schedule(text, &all, like));
        Ok(Self {
            weights,
            clients: like.clients,
            round,
            rho: number("rho")?,
            clip: number("clip")?,
            schedule: schedule.transpose()?,
            validation: ValidationRecord::read(&notes)?,
            kept: read_kept(&all.below(KEPT), like)?,
        })
    }
}

/// Its name in the file.
const SCHEDULE: &str = "agenda";

/// Where vectors that a server step keeps stand in the file.
const KEPT: &str = "kept";

fn read_kept(all: &Params, like: &ServerState) -> Result<BTreeMap<String, Params>> {
    let names: BTreeSet<&str> = all.iter().filter_map(|(name, _)| name.split_once('/')).map(|(name, _)| name).collect();
    let read = |name: &str| {
        let vector = all.below(name);
        vector.ensure_like(&like.weights.params)?;
        Ok((name.to_owned(), vector))
    };
    names.into_iter().map(read).collect()
}

/// Where a `theta` that a client works on stands in the file.
fn handed_out(begun: u64) -> String {
    format!("handed-out/{begun:020}")
}

fn schedule_text(schedule: &AsyncSchedule) -> Result<String> {
    serde_json::to_string(schedule).map_err(|error| Error::message(format!("its schedule cannot be written: {error}")))
}

fn read_schedule(text: &str, all: &Params, like: &ServerState) -> Result<AsyncSchedule> {
    let mut schedule: AsyncSchedule =
        serde_json::from_str(text).map_err(|error| Error::message(format!("its schedule is damaged: {error}")))?;
    for begun in schedule.begun() {
        let theta = Weights::stored(&all.below(&handed_out(begun)), &like.weights)?;
        schedule.handed_out.insert(begun, theta);
    }
    if schedule.is_sound(like.clients) { Ok(schedule) } else { Err(Error::message("its schedule does not fit its clients")) }
}
