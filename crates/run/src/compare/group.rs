//! Runs that differ only in their seed, and what came out of them.
use std::collections::BTreeMap;
use std::path::PathBuf;

use fedeq_core::{Quality, Result, View};
use serde::Serialize;

use super::contrast::Contestant;
use super::gather::Finished;
use super::label::label;
use crate::experiment::Experiment;
use crate::run::RunSummary;
use crate::statistics::{BySeed, Sample};

/// Experiments that differ only in their seed.
#[derive(Clone, Debug, PartialEq)]
pub struct Cluster {
    /// Method, model and data.
    pub names: [String; 3],
    /// What it is called beside the others: as little as tells it from them.
    pub label: String,
    /// The settings in which those of the same names differ, as people read them: `rho = 0.1`.
    pub differs: Vec<String>,
    /// What sets it apart from other clusters of the same names: key and value.
    pub settings: BTreeMap<String, String>,
    /// Their places, in the order of their seeds.
    pub members: Vec<usize>,
}

/// Clusters of experiments, in the order in which their first members come.
pub fn clusters(experiments: &[&Experiment]) -> Result<Vec<Cluster>> {
    let mut clusters: Vec<Cluster> = Vec::new();
    for (place, experiment) in experiments.iter().enumerate() {
        let settings = experiment.settings()?;
        match clusters.iter_mut().find(|known| known.settings == settings) {
            Some(known) => known.members.push(place),
            None => clusters.push(Cluster::of(experiment, settings, place)),
        }
    }
    clusters.iter_mut().for_each(|cluster| cluster.members.sort_by_key(|member| experiments[*member].seed));
    keep_what_differs(&mut clusters);
    label(&mut clusters);
    Ok(clusters)
}

impl Cluster {
    fn of(experiment: &Experiment, settings: BTreeMap<String, String>, place: usize) -> Self {
        Self { names: names(experiment), label: String::new(), differs: Vec::new(), settings, members: vec![place] }
    }
}

/// How an experiment divides its data among clients, in a text that is the same wherever the same seed gives the same clients.
pub fn division(experiment: &Experiment) -> Result<String> {
    let settings = experiment.settings()?.into_iter().filter(|(key, _)| key.starts_with("data."));
    Ok(settings.map(|(key, value)| format!("{key}={value}\n")).collect())
}

fn names(experiment: &Experiment) -> [String; 3] {
    [experiment.method.name().to_owned(), experiment.model.to_string(), experiment.data.source.name().to_owned()]
}

/// Leaves of each cluster's settings those in which clusters of the same method, model and data differ.
fn keep_what_differs(clusters: &mut [Cluster]) {
    let all = clusters.to_vec();
    for cluster in clusters {
        let alike = || all.iter().filter(|other| other.names == cluster.names);
        let differs = |key: &String, value: &String| alike().any(|other| other.settings.get(key) != Some(value));
        cluster.settings.retain(|key, value| differs(key, value));
    }
}

/// Runs that differ only in their seed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Group {
    /// What it is called beside the others: as little as tells it from them.
    pub label: String,
    /// The settings in which it differs from groups of the same method, model and data, as people read them: `rho = 0.1`.
    #[serde(skip)]
    pub differs: Vec<String>,
    /// The method.
    pub method: String,
    /// The model.
    pub model: String,
    /// The data set.
    pub data: String,
    /// What sets it apart from other groups of the same method, model and data: key and value.
    pub settings: BTreeMap<String, String>,
    /// Rounds of training.
    pub rounds: u64,
    /// The seeds, in order.
    pub seeds: Vec<u64>,
    /// The folders of the runs, in the order of the seeds.
    pub runs: Vec<PathBuf>,
    /// Shared parameters.
    pub shared_parameters: usize,
    /// Parameters that stay with their clients.
    pub personal_parameters: usize,
    /// By which of a client's models the method is meant to be evaluated on its own.
    pub headline: View,
    /// What came out, over the seeds.
    pub measures: Measures,
    /// How the data is divided among clients, the seed aside.
    #[serde(skip)]
    division: String,
    /// The mean over clients of each seed, in both views.
    #[serde(skip)]
    scores: [BySeed; View::ALL.len()],
}

/// What came out, over seeds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measures {
    /// With the clients' own models.
    pub local: Qualities,
    /// With the shared part as the server has it; nothing where nothing is shared.
    pub shared: Option<Qualities>,
    /// Bytes sent in both directions.
    pub bytes: Sample,
    /// Seconds of training and evaluation.
    pub seconds: Sample,
    /// What was spent of the clients' privacy; nothing where it is not protected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epsilon: Option<Sample>,
}

/// Accuracies in one view, over the seeds of which they are known: samples of nothing where no client tells its scores.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Qualities {
    /// Mean over clients.
    pub mean: Sample,
    /// Clients count by their samples.
    pub weighted: Sample,
    /// The worst tenth of the clients.
    pub worst_decile: Sample,
}

/// Groups runs, in the order in which they come.
pub(super) fn groups(runs: &[Finished]) -> Result<Vec<Group>> {
    let experiments: Vec<_> = runs.iter().map(|run| &run.experiment).collect();
    clusters(&experiments)?.into_iter().map(|cluster| group(cluster, runs)).collect()
}

fn group(cluster: Cluster, runs: &[Finished]) -> Result<Group> {
    let Cluster { names: [method, model, data], label, differs, settings, members } = cluster;
    let members: Vec<&Finished> = members.into_iter().map(|place| &runs[place]).collect();
    let summaries: Vec<&RunSummary> = members.iter().map(|run| &run.summary).collect();
    let first = summaries[0];
    let scores = |view: View| {
        members.iter().filter_map(|run| Some((run.experiment.seed, run.summary.evaluation.quality(view).known()?.mean))).collect()
    };
    Ok(Group {
        label,
        differs,
        method,
        model,
        data,
        settings,
        rounds: first.rounds,
        seeds: members.iter().map(|run| run.experiment.seed).collect(),
        runs: members.iter().map(|run| run.path.clone()).collect(),
        shared_parameters: first.shared_parameters,
        personal_parameters: first.personal_parameters,
        headline: first.headline,
        measures: Measures::of(&summaries),
        division: division(&members[0].experiment)?,
        scores: View::ALL.map(scores),
    })
}

impl Measures {
    /// What some runs measured.
    pub fn of(summaries: &[&RunSummary]) -> Self {
        let over = |measure: fn(&RunSummary) -> f64| Sample::of(summaries.iter().map(|summary| measure(summary)));
        let local: Vec<&Quality> = summaries.iter().map(|summary| &summary.evaluation.local).collect();
        let shared: Option<Vec<&Quality>> = summaries.iter().map(|summary| summary.evaluation.shared.as_ref()).collect();
        let spent: Option<Vec<f64>> = summaries.iter().map(|summary| Some(summary.privacy.as_ref()?.epsilon)).collect();
        Self {
            epsilon: spent.map(Sample::of),
            local: Qualities::of(&local),
            shared: shared.map(|shared| Qualities::of(&shared)),
            bytes: over(|summary| summary.evaluation.traffic.total() as f64),
            seconds: over(|summary| summary.resources.train_seconds + summary.resources.evaluate_seconds),
        }
    }

    /// The accuracies in a view; where nothing is shared there is only one.
    pub fn quality(&self, view: View) -> &Qualities {
        match (view, &self.shared) {
            (View::Shared, Some(shared)) => shared,
            _ => &self.local,
        }
    }
}

impl Qualities {
    fn of(qualities: &[&Quality]) -> Self {
        let over =
            |measure: fn(&Quality) -> f64| Sample::of(qualities.iter().filter_map(|quality| Some(measure(quality.known()?))));
        Self {
            mean: over(|quality| quality.mean),
            weighted: over(|quality| quality.weighted),
            worst_decile: over(|quality| quality.worst_decile),
        }
    }
}

impl Group {
    /// The group among others.
    pub(super) fn contestant(&self, view: View) -> Contestant {
        let scores = self.scores[View::ALL.iter().position(|known| *known == view).unwrap_or(0)].clone();
        Contestant { data: self.data.clone(), division: self.division.clone(), scores }
    }
}
