//! What there is to say about a run before it begins.
use fedeq_core::{Array, LocalProblems, PrivacySummary, View, Weights, shared_part};
use fedeq_data::Seed;
use fedeq_models::Graph;
use fedeq_models::graph::Parameter;

use crate::experiment::Prepared;
use crate::number::{bytes, counted};

/// What a run is about to do.
#[derive(Clone, Debug, PartialEq)]
pub struct RunStart {
    /// What it is, in a line.
    pub title: String,
    /// Rounds that are over.
    pub round: u64,
    /// Rounds in all.
    pub rounds: u64,
    /// By which of a client's models the method is evaluated.
    pub headline: View,
    /// How much disk it will take.
    pub disk: Disk,
    /// The most bytes that the fixed points remembered for warm starts take, a client at work.
    pub warm_bytes: Option<u64>,
    /// What it will promise to clients at its end, where the server's models are private.
    pub privacy: Option<PrivacySummary>,
}

impl RunStart {
    /// What a run is, where it continues, and what it will take: a line each.
    pub fn lines(&self) -> Vec<String> {
        let Self { title, round, rounds, disk, warm_bytes, privacy, .. } = self;
        let mut lines = vec![title.clone()];
        if *round > 0 {
            lines.push(format!("continuing after round {round} of {rounds}"));
        }
        lines.push(format!("takes up to {} of disk, {} when it is finished", bytes(disk.working), bytes(disk.finished)));
        if let Some(warm) = warm_bytes.filter(|warm| *warm >= WORTH_SAYING) {
            lines.push(format!("warm starts: each client at work remembers up to {} of fixed points", bytes(warm)));
        }
        if let Some(privacy) = privacy {
            lines.push(format!("differential privacy: {privacy}, after {}", counted(*rounds as usize, "round")));
        }
        lines
    }
}

/// Bytes of memory that would not be missed.
const WORTH_SAYING: u64 = 1_000_000;

/// About how many bytes a run folder will take, at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Disk {
    /// While it is carried out: the last two checkpoints, and states that do not fit in memory.
    pub working: u64,
    /// When it is finished: the last one.
    pub finished: u64,
    /// Its last checkpoint alone.
    pub checkpoint: u64,
}

/// A line of every journal, for a round.
const ROUND: u64 = 2_000;

/// What the journal of rounds says about the distance of each client of a cohort.
const DISTANCE: u64 = 130;

/// What the journals say about each client, for an evaluation.
const EVALUATED: u64 = 50;

impl Disk {
    /// What a run will take: nearly all of it are the states of the clients that take part.
    pub(crate) fn of(prepared: &Prepared) -> Self {
        let plan = &prepared.experiment.plan;
        let clients = prepared.splits.clients.len() as u64;
        let cohort = prepared.cohort().map_or(clients, |cohort| cohort as u64);
        let taking_part = clients.min(cohort.saturating_mul(plan.rounds));
        let all = states(prepared);
        let states = all / (clients + prepared.unseen().len() as u64).max(1) * (taking_part + prepared.unseen().len() as u64);
        let shared = shared_part(prepared.experiment.method.algorithm(), &zeros(prepared.network.graph())).params.count();
        let checkpoint = states + 4 * shared as u64;
        let evaluations = plan.rounds.checked_div(plan.evaluate_every).unwrap_or(0) + 1;
        let round = if prepared.plan.aggregation.notes_distances() { ROUND + cohort * DISTANCE } else { ROUND };
        let journals = plan.rounds.saturating_mul(round).saturating_add(evaluations.saturating_mul(clients * EVALUATED));
        // States that do not fit in memory are on disk also between checkpoints.
        let fits = states / 1_000_000 <= prepared.experiment.engine.client_memory_mb as u64;
        let working = if fits { 2 } else { 3 } * checkpoint;
        Self { working: journals.saturating_add(working), finished: journals.saturating_add(checkpoint), checkpoint }
    }
}

/// The states of all clients, once every client has taken part.
fn states(prepared: &Prepared) -> u64 {
    let (algorithm, own) = (prepared.experiment.method.algorithm(), zeros(prepared.network.graph()));
    let models = if algorithm.keeps_second_model() { 2 } else { 1 };
    let dual = algorithm.initial_dual(&own, Seed::new(0)).count();
    let fixed = 4 * (models * (own.params.count() + own.statistics.count()) + dual) as u64;
    (0..LocalProblems::clients(prepared)).map(|client| fixed + prepared.lasting_warm_bytes(client)).sum()
}

/// A model to be counted: memory that the system gives is zero, and no numbers are drawn for it.
fn zeros(graph: &Graph) -> Weights {
    let zeros =
        |parameter: &Parameter| (parameter.path.clone(), Array::new(parameter.shape.clone(), vec![0.0; parameter.count()]));
    let flat = |(name, values): (String, Vec<f32>)| (name, Array::new(vec![values.len()], values));
    let statistics = graph.initial_statistics().into_iter().map(flat).collect();
    Weights { params: graph.parameters.iter().map(zeros).collect(), statistics }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Experiment;
    use fedeq_core::Method;

    #[test]
    fn states_are_counted_as_large_as_they_are() {
        for method in Method::NAMES {
            for model in ["deq-resnet-xs", "resnet-xs", "linear"] {
                let settings =
                    [format!("method={method}"), format!("model={model}")].map(|text| text.parse().expect("a setting"));
                let prepared = Experiment::read(None, &settings).and_then(|experiment| experiment.prepare()).expect("sound");
                let fresh = prepared.fresh_state(0);
                let models = if prepared.experiment.method.algorithm().keeps_second_model() { 2 } else { 1 };
                let own = fresh.own.params.count() + fresh.own.statistics.count();
                let expected = 4 * (models * own + fresh.dual.count()) * LocalProblems::clients(&prepared);
                assert_eq!(states(&prepared), expected as u64, "{method}, {model}");
                let shared = shared_part(prepared.experiment.method.algorithm(), &zeros(prepared.network.graph())).params.count();
                assert_eq!(shared, prepared.server().weights.params.count(), "{method}, {model}");
            }
        }
    }
}
