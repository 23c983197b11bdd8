//! Runs that differ only in their seed, as one line of a table and one curve of a figure.
use std::collections::BTreeMap;

use fedeq_core::{Evaluation, Quality, Result, Round, View};
use serde::Serialize;

use super::record::Record;
use crate::compare::{Cluster, clusters};
use crate::statistics::Sample;

/// Runs that differ only in their seed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// What it is called: the method, and what sets it apart from the others.
    pub name: String,
    /// The method.
    pub method: String,
    /// The model.
    pub model: String,
    /// The data set.
    pub data: String,
    /// What sets it apart from others of the same method, model and data: key and value.
    pub settings: BTreeMap<String, String>,
    /// The places of its runs in [`Report::runs`](super::Report::runs), in the order of their seeds.
    pub members: Vec<usize>,
}

/// The value of a curve at some place, over seeds.
pub(super) type Point = (f64, Sample);

/// Groups runs.
pub(super) fn lines(runs: &[Record]) -> Result<Vec<Line>> {
    let experiments: Vec<_> = runs.iter().map(|run| &run.experiment).collect();
    let clusters = clusters(&experiments)?;
    let name = |cluster: &Cluster| name(cluster, &clusters);
    let line = |cluster: &Cluster| {
        let [method, model, data] = cluster.names.clone();
        Line { name: name(cluster), method, model, data, settings: cluster.settings.clone(), members: cluster.members.clone() }
    };
    Ok(clusters.iter().map(line).collect())
}

/// As little as tells a cluster from the others.
fn name(cluster: &Cluster, all: &[Cluster]) -> String {
    let [method, model, data] = &cluster.names;
    let mut name = written(method).to_owned();
    if all.iter().any(|other| other.names[0] == *method && other.names[1] != *model) {
        name += &format!(", {model}");
    }
    if all.iter().any(|other| other.names[2] != *data) {
        name += &format!(" on {data}");
    }
    let settings = cluster.settings.iter().map(|(key, value)| format!(" {key}={value}"));
    name + &settings.collect::<String>()
}

/// A method as its authors write it.
pub(crate) fn written(method: &str) -> &str {
    match method {
        "local" => "Local",
        "fedavg" => "FedAvg",
        "fedavg-ft" => "FedAvg+FT",
        "ditto" => "Ditto",
        "fedper" => "FedPer",
        "fedrep" => "FedRep",
        "knn-per" => "kNN-Per",
        "fedeq" => "FeDEQ",
        other => other,
    }
}

impl Line {
    /// Its runs.
    pub(super) fn runs<'a>(&self, all: &'a [Record]) -> Vec<&'a Record> {
        self.members.iter().map(|place| &all[*place]).collect()
    }

    /// Some measure of the last evaluations, over seeds; nothing if no run has it.
    pub(super) fn at_the_end(&self, all: &[Record], measure: impl Fn(&Record, &Evaluation) -> Option<f64>) -> Option<Sample> {
        let measured = self.runs(all).into_iter().filter_map(|run| measure(run, run.last()?));
        sample(measured.collect())
    }

    /// Some measure of the runs themselves, over seeds.
    pub(super) fn over_runs(&self, all: &[Record], measure: impl Fn(&Record) -> Option<f64>) -> Option<Sample> {
        sample(self.runs(all).into_iter().filter_map(measure).collect())
    }

    /// Some measure of evaluations over the rounds before them.
    pub(super) fn over_evaluations(
        &self,
        all: &[Record],
        measure: impl Fn(&Record, &Evaluation) -> Option<f64>,
    ) -> BTreeMap<u64, Sample> {
        let measure = &measure;
        let values = |run: &'_ Record| {
            let value = |evaluation: &Evaluation| Some((evaluation.round, measure(run, evaluation)?));
            run.evaluations.iter().filter_map(value).collect::<Vec<_>>()
        };
        self.gathered(all, values)
    }

    /// Some measure of rounds, counted from 1.
    pub(super) fn over_rounds(&self, all: &[Record], measure: impl Fn(&Round) -> Option<f64>) -> Vec<Point> {
        let value = |round: &Round| Some((round.round + 1, measure(round)?));
        let values = |run: &Record| run.rounds.iter().filter_map(value).collect::<Vec<_>>();
        self.gathered(all, values).into_iter().map(|(round, sample)| (round as f64, sample)).collect()
    }

    /// What the runs that came so far measured, round by round.
    fn gathered(&self, all: &[Record], values: impl Fn(&Record) -> Vec<(u64, f64)>) -> BTreeMap<u64, Sample> {
        let mut found: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
        for (round, value) in self.runs(all).into_iter().flat_map(values) {
            found.entry(round).or_default().push(value);
        }
        found.into_iter().map(|(round, values)| (round, Sample::of(values))).collect()
    }
}

fn sample(values: Vec<f64>) -> Option<Sample> {
    (!values.is_empty()).then(|| Sample::of(values))
}

/// Megabytes (1e6 bytes) sent in both directions before an evaluation.
pub(super) fn megabytes(evaluation: &Evaluation) -> f64 {
    evaluation.traffic.total() as f64 / 1e6
}

/// One of the four accuracies.
pub(super) fn accuracy(evaluation: &Evaluation, view: View, weighted: bool) -> Option<f64> {
    let quality = match view {
        View::Local => Some(&evaluation.local),
        View::Shared => evaluation.shared.as_ref(),
    };
    quality.map(|quality: &Quality| if weighted { quality.weighted } else { quality.mean })
}
