//! What came out of a run.
use std::collections::BTreeMap;

use fedeq_core::{
    AttackKind, Dropped, Evaluation, Liars, Mechanism, PrivacySummary, Quality, Result, Round, SolveTally, Unseen, View,
};
use serde::{Deserialize, Serialize};

use super::engine::DeviceUse;
use super::folder::RunFolder;
use super::record::Timing;
use crate::experiment::Prepared;
use crate::preset::Preset;

/// What came out of a run. All but the [`resources`](Self::resources) is the same for the same experiment, to the byte.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunSummary {
    /// The method.
    pub method: String,
    /// The data set.
    pub data: String,
    /// The model.
    pub model: String,
    /// Who computed the model, where that was not fedeq: `Python`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub computed_by: Option<String>,
    /// What filled in the rest.
    pub preset: Preset,
    /// The seed.
    pub seed: u64,
    /// Rounds of training.
    pub rounds: u64,
    /// Clients that took part.
    pub clients: usize,
    /// Shared parameters.
    pub shared_parameters: usize,
    /// Parameters that stay with their clients.
    pub personal_parameters: usize,
    /// By which of a client's models the method is evaluated.
    pub headline: View,
    /// The last evaluation.
    pub evaluation: Evaluation,
    /// Unseen clients, if there are any.
    pub unseen: Option<Unseen>,
    /// The equilibrium solves of training, by samples; all zero where nothing is solved.
    #[serde(default)]
    pub solves: SolveTally,
    /// How often the replies of a client did not count, by its number; nothing where all always did.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub dropped: BTreeMap<usize, u64>,
    /// What is promised to clients, where the server's models are private.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub privacy: Option<PrivacySummary>,
    /// Who lied, where some clients were let to. They are left out of every evaluation: accuracies are those of the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attack: Option<AttackSummary>,
    /// What it took.
    pub resources: Resources,
}

/// The clients that lied in a run, and how.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttackSummary {
    /// What they did.
    pub kind: AttackKind,
    /// Their numbers, in order.
    pub liars: Vec<usize>,
    /// Their names, in the same order.
    pub names: Vec<String>,
}

impl AttackSummary {
    fn of(prepared: &Prepared, liars: &Liars) -> Self {
        let name = |client: usize| prepared.names().nth(client).unwrap_or_default().to_owned();
        Self { kind: liars.attack().kind, liars: liars.numbers().collect(), names: liars.numbers().map(name).collect() }
    }
}

/// What a run took: time and memory, which no two runs have in common.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Resources {
    /// Seconds of training.
    pub train_seconds: f64,
    /// Seconds of evaluation.
    pub evaluate_seconds: f64,
    /// Seconds of training a round, on average.
    pub seconds_per_round: f64,
    /// Seconds of forward passes with their solves, summed over clients that may have worked side by side.
    #[serde(default)]
    pub solve_seconds: f64,
    /// Seconds of backward passes, summed alike.
    #[serde(default)]
    pub backward_seconds: f64,
    /// Seconds of parameter updates, summed alike.
    #[serde(default)]
    pub update_seconds: f64,
    /// Seconds of writing, sending and reading messages, summed alike.
    #[serde(default)]
    pub communicate_seconds: f64,
    /// The most memory the process held, in bytes, where the system tells.
    pub peak_memory: Option<u64>,
    /// What a GPU held and did; nothing on the CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<DeviceUse>,
}

impl RunSummary {
    /// Puts together what came out.
    pub fn of(
        prepared: &Prepared,
        evaluation: Evaluation,
        unseen: Option<Unseen>,
        solves: SolveTally,
        timings: &[Timing],
    ) -> Self {
        let experiment = &prepared.experiment;
        let [shared_parameters, personal_parameters] = prepared.parameters();
        // It was made once before anything began, so it can be made.
        let mechanism = prepared.mechanism().ok().flatten();
        Self {
            method: experiment.method.name().into(),
            data: experiment.data.source.name().into(),
            model: experiment.model.to_string(),
            computed_by: prepared.computed_by().map(str::to_owned),
            preset: experiment.preset,
            seed: experiment.seed,
            rounds: mechanism.as_ref().map_or(experiment.plan.rounds, Mechanism::rounds),
            clients: prepared.splits.clients.len(),
            shared_parameters,
            personal_parameters,
            headline: experiment.method.algorithm().default_view(),
            privacy: mechanism.map(|mechanism| mechanism.summary(evaluation.round)),
            evaluation,
            unseen,
            solves,
            dropped: BTreeMap::new(),
            attack: prepared.liars.as_ref().map(|liars| AttackSummary::of(prepared, liars)),
            resources: Resources::of(timings),
        }
    }

    /// What came out of a federation of which this was known beforehand.
    pub(super) fn completed(self, folder: &RunFolder, evaluation: Evaluation, unseen: Option<Unseen>) -> Result<Self> {
        let (rounds, evaluations) = (folder.rounds()?, folder.evaluations()?);
        let mut dropped: BTreeMap<usize, u64> = BTreeMap::new();
        let of_rounds = rounds.iter().flat_map(|round| &round.dropped);
        for Dropped { client, .. } in of_rounds.chain(evaluations.iter().flat_map(|evaluation| &evaluation.dropped)) {
            *dropped.entry(*client).or_default() += 1;
        }
        let resources = Resources::of(&folder.timings()?);
        Ok(Self { evaluation, unseen, solves: solves_of(&rounds), dropped, resources, ..self })
    }

    /// The quality of the models the method is evaluated by.
    pub fn quality(&self) -> &Quality {
        headline(self.headline, &self.evaluation)
    }

    /// The mean over clients of the accuracy the method is evaluated by.
    pub fn accuracy(&self) -> f64 {
        self.quality().mean
    }
}

/// The quality by which a method is evaluated.
pub fn headline(view: View, evaluation: &Evaluation) -> &Quality {
    evaluation.quality(view)
}

/// An evaluation in words, by the models with which the method is evaluated.
pub fn in_words(view: View, evaluation: &Evaluation) -> String {
    let quality = headline(view, evaluation);
    format!("accuracy {:.1} %, worst tenth {:.1} %", 100.0 * quality.mean, 100.0 * quality.worst_decile)
}

/// The equilibrium solves of some rounds.
pub(super) fn solves_of(rounds: &[Round]) -> SolveTally {
    rounds.iter().fold(SolveTally::default(), |sum, round| sum.plus(&round.solves))
}

impl Resources {
    fn of(timings: &[Timing]) -> Self {
        let mut total = Timing::default();
        timings.iter().for_each(|timing| total.add(timing));
        Self {
            train_seconds: total.train,
            evaluate_seconds: total.evaluate,
            seconds_per_round: total.train / timings.len().max(1) as f64,
            solve_seconds: total.solve,
            backward_seconds: total.backward,
            update_seconds: total.update,
            communicate_seconds: total.communicate,
            peak_memory: total.peak_memory,
            device: total.device,
        }
    }
}
