//! Runs that differ only in their seed.
use std::collections::BTreeMap;
use std::path::PathBuf;

use fedeq_core::{Quality, Result, View};
use serde::Serialize;

use super::cluster::{Cluster, clusters};
use super::gather::Finished;
use crate::run::Summary;
use crate::statistics::Sample;

/// Runs that differ only in their seed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Group {
    /// The method.
    pub method: String,
    /// The model.
    pub model: String,
    /// The data set.
    pub data: String,
    /// What sets it apart from other groups of the same method, model and data: key and value.
    pub settings: BTreeMap<String, String>,
    /// The seeds, in order.
    pub seeds: Vec<u64>,
    /// The folders of the runs, in the order of the seeds.
    pub runs: Vec<PathBuf>,
    /// Parameters that travel.
    pub shared_parameters: usize,
    /// Parameters that stay with their clients.
    pub personal_parameters: usize,
    /// By which of a client's models the method is judged.
    pub headline: View,
    /// What came out, over the seeds.
    pub measures: Measures,
}

/// What came out, over seeds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measures {
    /// The accuracy by which the method is judged: mean over clients.
    pub accuracy: Sample,
    /// The same for the worst tenth of the clients.
    pub worst_decile: Sample,
    /// With `theta_i` and `w_i`: mean over clients.
    pub local_mean: Sample,
    /// With `theta_i` and `w_i`: clients count by their samples.
    pub local_weighted: Sample,
    /// With `theta` and `w_i`: mean over clients; nothing where nothing is shared.
    pub shared_mean: Option<Sample>,
    /// With `theta` and `w_i`: clients count by their samples.
    pub shared_weighted: Option<Sample>,
    /// Bytes sent in both directions.
    pub bytes: Sample,
    /// Seconds of training and evaluation.
    pub seconds: Sample,
}

/// Groups runs, in the order in which they come.
pub(super) fn groups(runs: &[Finished]) -> Result<Vec<Group>> {
    let experiments: Vec<_> = runs.iter().map(|run| &run.experiment).collect();
    Ok(clusters(&experiments)?.into_iter().map(|cluster| group(cluster, runs)).collect())
}

fn group(cluster: Cluster, runs: &[Finished]) -> Group {
    let Cluster { names: [method, model, data], settings, members } = cluster;
    let members: Vec<&Finished> = members.into_iter().map(|place| &runs[place]).collect();
    let summaries: Vec<&Summary> = members.iter().map(|run| &run.summary).collect();
    let first = summaries[0];
    Group {
        method,
        model,
        data,
        settings,
        seeds: members.iter().map(|run| run.experiment.seed).collect(),
        runs: members.iter().map(|run| run.path.clone()).collect(),
        shared_parameters: first.shared_parameters,
        personal_parameters: first.personal_parameters,
        headline: first.headline,
        measures: Measures::of(&summaries),
    }
}

impl Measures {
    /// What some runs measured.
    pub fn of(summaries: &[&Summary]) -> Self {
        let over = |measure: fn(&Summary) -> f64| Sample::of(summaries.iter().map(|summary| measure(summary)));
        let shared = |measure: fn(&Quality) -> f64| {
            let measured = summaries.iter().map(|summary| summary.evaluation.shared.as_ref().map(measure));
            measured.collect::<Option<Vec<f64>>>().map(Sample::of)
        };
        Self {
            accuracy: over(Summary::accuracy),
            worst_decile: over(|summary| summary.quality().worst_decile),
            local_mean: over(|summary| summary.evaluation.local.mean),
            local_weighted: over(|summary| summary.evaluation.local.weighted),
            shared_mean: shared(|quality| quality.mean),
            shared_weighted: shared(|quality| quality.weighted),
            bytes: over(|summary| summary.evaluation.traffic.total() as f64),
            seconds: over(|summary| summary.resources.train_seconds + summary.resources.evaluate_seconds),
        }
    }
}

impl Group {
    /// What it is called: the method, and what sets it apart.
    pub fn title(&self) -> String {
        let settings = self.settings.iter().map(|(key, value)| format!(" {key}={value}"));
        format!("{} with {}{}", self.method, self.model, settings.collect::<String>())
    }
}
