//! What came out of a run, as data and in words.
use std::collections::BTreeMap;

use fedeq_core::{
    AttackKind, Dropped, Evaluation, Liars, Mechanism, PrivacySummary, Quality, Result, Round, SolveTally, StoodStill, Unseen,
    View,
};
use serde::{Deserialize, Serialize};

use super::engine::DeviceUse;
use super::folder::RunFolder;
use super::record::Timing;
use crate::experiment::Prepared;
use crate::number::{bytes, count, counted, percent};
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
    /// That training ended before the plan did, since validation accuracy stood still.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stood_still: Option<StoodStill>,
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
            stood_still: None,
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
        Ok(Self { evaluation, unseen, solves: solves_of(&rounds), dropped, resources, ..self }.ended_as(&evaluations))
    }

    /// The same with the word of the evaluation, if there was one, that ended training before the plan did.
    pub(super) fn ended_as(self, evaluations: &[Evaluation]) -> Self {
        let stood_still = evaluations.iter().find_map(|evaluation| evaluation.stood_still);
        Self { rounds: stood_still.map_or(self.rounds, |end| end.last_round), stood_still, ..self }
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

impl RunSummary {
    /// What it is, in a line.
    pub fn title(&self) -> String {
        let rounds = counted(self.rounds as usize, "round");
        format!("{} on {} with {}, {rounds}", self.method, self.data, self.model)
    }

    /// What there is to say about it: names, and values in words.
    pub fn facts(&self) -> Vec<(&'static str, String)> {
        let quality = self.quality();
        let traffic = self.evaluation.traffic;
        let mut lines = vec![
            ("accuracy", format!("{} (mean over {}, {})", percent(quality.mean), who(self), in_words_of(self.headline))),
            ("worst tenth", percent(quality.worst_decile)),
            ("sent", format!("{} up, {} down", bytes(traffic.up), bytes(traffic.down))),
            ("parameters", format!("{} shared, {} personal", count(self.shared_parameters), count(self.personal_parameters))),
            ("a round", format!("{:.1} s", self.resources.seconds_per_round)),
        ];
        if let Some(attack) = &self.attack {
            lines.insert(1, ("attack", format!("{} by {}", attack.kind.name(), liars(&attack.names))));
        }
        if let Some(unseen) = &self.unseen {
            let clients = counted(unseen.clients, "client");
            lines.insert(
                2,
                ("unseen", format!("{} (mean over {clients}, {})", percent(unseen.local.mean), in_words_of(View::Local))),
            );
        }
        if let (View::Local, Some(shared)) = (self.headline, &self.evaluation.shared) {
            lines.insert(1, ("shared", format!("{} ({})", percent(shared.mean), in_words_of(View::Shared))));
        } else if self.headline == View::Shared {
            lines.insert(1, ("local", format!("{} ({})", percent(self.evaluation.local.mean), in_words_of(View::Local))));
        }
        lines.extend(self.stood_still.as_ref().map(|end| ("ended early", early_end(end))));
        lines.extend(self.privacy.as_ref().map(|privacy| ("privacy", privacy.to_string())));
        lines.extend(solves(&self.solves).map(|text| ("solves", text)));
        lines.extend(self.resources.peak_memory.map(|peak| ("peak memory", bytes(peak))));
        lines.extend(self.resources.device.map(|used| ("GPU", device_use(&used))));
        lines
    }
}

/// Why training ended before the plan did, and when.
fn early_end(end: &StoodStill) -> String {
    let StoodStill { last_round, planned, best, evaluations } = end;
    let since = counted(*evaluations as usize, "evaluation");
    format!("after {last_round} of {planned} rounds: {since} found no better validation accuracy than {}", percent(*best))
}

/// What the equilibrium solves of training took and how they ended; nothing where there were none.
fn solves(solves: &SolveTally) -> Option<String> {
    let ([steps, _, unconverged], warm) = (solves.means()?, solves.warm_share()?);
    let warm = if warm > 0.0 { format!(", {} started warm", percent(warm)) } else { String::new() };
    let broken = percent(solves.not_finite as f64 / solves.samples as f64);
    let broken = if solves.not_finite > 0 { format!(", {broken} became NaN or infinite") } else { String::new() };
    Some(format!("{steps:.1} steps a sample{warm}, {} did not converge{broken}", percent(unconverged)))
}

/// What a GPU held and did.
fn device_use(used: &DeviceUse) -> String {
    format!("{} at most, at work {} of the time", bytes(used.peak_memory), percent(used.utilisation))
}

/// Whose accuracies are averaged.
fn who(summary: &RunSummary) -> String {
    let all = summary.quality().clients.len();
    match &summary.attack {
        Some(attack) => counted(all - attack.liars.len(), "honest client"),
        None => counted(all, "client"),
    }
}

/// Who lies: all of them, or the first few.
fn liars(names: &[String]) -> String {
    const MOST: usize = 10;
    let first = names.iter().take(MOST).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len() {
        0 => "no client".into(),
        1..=MOST => first,
        many => format!("{} clients: {first} ..", count(many)),
    }
}

/// With which of its models a client is evaluated, in words.
fn in_words_of(view: View) -> &'static str {
    match view {
        View::Local => "each client's own model",
        View::Shared => "the server's model with each client's head",
    }
}
