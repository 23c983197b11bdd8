//! Experiments that differ only in their seed.
use std::collections::BTreeMap;

use fedeq_core::Result;

use crate::experiment::Experiment;

/// Experiments that differ only in their seed.
#[derive(Clone, Debug, PartialEq)]
pub struct Cluster {
    /// Method, model and data.
    pub names: [String; 3],
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
            None => clusters.push(Cluster { names: names(experiment), settings, members: vec![place] }),
        }
    }
    clusters.iter_mut().for_each(|cluster| cluster.members.sort_by_key(|member| experiments[*member].seed));
    keep_what_differs(&mut clusters);
    Ok(clusters)
}

/// How an experiment divides its data among clients, in a text that is the same wherever the same seed gives the same clients.
pub fn division(experiment: &Experiment) -> Result<String> {
    let settings = experiment.settings()?.into_iter().filter(|(key, _)| key.starts_with("data."));
    Ok(settings.map(|(key, value)| format!("{key}={value}\n")).collect())
}

fn names(experiment: &Experiment) -> [String; 3] {
    [experiment.method.name(), experiment.model.name(), experiment.data.source.name()].map(str::to_owned)
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
